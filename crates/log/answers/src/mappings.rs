//! Whether a process shares memory that it can write to: what it stores there leaves it without a
//! call. And where files are mapped: with the last mapping of a description a lock ends.
#![forbid(unsafe_code)]

use core::ops::Range;

/// So many places are told apart.
const PLACES: usize = 64;

/// Where files are mapped. More than that may be said, and never less.
#[derive(Debug, Default)]
pub struct Mapped {
    /// Each with how many were added before it.
    all: Vec<(Range<u64>, u64)>,
    added: u64,
}

impl Mapped {
    /// A file is mapped there.
    pub fn add(&mut self, at: u64, length: u64) {
        let mut new = at..at.saturating_add(length);
        self.all.retain(|(one, _)| one.start < new.start || new.end < one.end);
        if self.all.len() == PLACES {
            for (one, _) in self.all.drain(..) {
                new = new.start.min(one.start)..new.end.max(one.end);
            }
        }
        self.all.push((new, self.added));
        self.added += 1;
    }

    /// How many were added so far.
    #[must_use]
    pub const fn added(&self) -> u64 {
        self.added
    }

    /// Whether some file is, in some part of that.
    #[must_use]
    pub fn has(&self, at: u64, length: u64) -> bool {
        let end = at.saturating_add(length);
        self.all.iter().any(|(one, _)| one.start < end && at < one.end)
    }

    /// Nothing is mapped there any more of what was among the first `added`. (The kernel may have
    /// mapped something else there since.)
    pub fn remove(&mut self, at: u64, length: u64, added: u64) {
        let end = at.saturating_add(length);
        self.all.retain(|(one, number)| one.start < at || end < one.end || *number >= added);
    }
}

/// Whether `smaps`, as `/proc/self/smaps` has it, has such a mapping. (`sh`: a mapping that is
/// shared, and of what may be written through it; of a file that is open for reading only the
/// kernel does not say so.)
#[must_use]
pub fn is_shared(smaps: &[u8]) -> bool {
    let mut flags = smaps.split(|byte| *byte == b'\n').filter_map(|l| l.strip_prefix(b"VmFlags:"));
    flags.any(|line| line.split(|byte| *byte == b' ').any(|flag| flag == b"sh"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_mapping_is_one_until_all_of_it_is_gone() {
        let mut all = Mapped::default();
        assert!(!all.has(0, u64::MAX));
        all.add(0x2000, 0x2000);
        assert!(all.has(0x3000, 0x1000) && all.has(0, 0x2001) && all.has(0x3fff, u64::MAX));
        assert!(!all.has(0, 0x2000) && !all.has(0x4000, 0x1000));
        all.remove(0x2000, 0x1000, all.added());
        assert!(all.has(0x3000, 0x1000));
        all.remove(0x1000, 0x4000, all.added());
        assert!(!all.has(0, u64::MAX));
        // (Many are one, which is larger.)
        for at in 0..=PLACES as u64 {
            all.add(0x10_000 * at, 0x1000);
        }
        assert!((0..=PLACES as u64).all(|at| all.has(0x10_000 * at, 1)));
        assert!(!all.has(0x10_000 * PLACES as u64 + 0x1000, u64::MAX));
    }

    #[test]
    fn a_mapping_that_came_where_another_one_is_being_unmapped_stays_known() {
        let mut all = Mapped::default();
        all.add(0x2000, 0x2000);
        let before = all.added();
        all.add(0x2000, 0x1000);
        all.remove(0x2000, 0x2000, before);
        assert!(all.has(0x2000, 0x1000) && !all.has(0x3000, 0x1000));
        // (One that lies within another tells nothing more.)
        all.add(0x1000, 0x4000);
        assert_eq!(all.all.len(), 1);
    }

    #[test]
    fn a_mapping_is_shared_if_its_flags_say_so_whatever_its_name() {
        let of = |flags: &str| {
            let text = format!(
                "7f0000000000-7f0000001000 r--s 00000000 fe:01 5  /srv/sh sh\nSize: 4 kB\nVmFlags: \
                 {flags} \n"
            );
            is_shared(text.as_bytes())
        };
        assert!(of("rd wr sh mr mw me ms sd"));
        assert!(of("rd sh mr mw me ms"));
        assert!(!of("rd mr me ms"));
        assert!(!is_shared(b""));
    }
}
