//! Which runs of text have to be decoded: those with calls and what is beside them (the *zone*), and
//! those that may say of the zone where it is entered. Most text does neither.
//!
//! Nothing is missed: what could lead into the zone is looked for at every byte, and a run that has
//! such bytes is decoded, which says whether it does. Jump tables end where the next one begins, so
//! who may compute an address within one that leads into the zone is decoded, too.

use crate::bytes::first_bytes;
use crate::landings::entries;
use crate::marks::Marks;
use crate::object::{Object, Segment};
use crate::runs::{bytes_of_a_call, possible_targets};

/// See the module.
pub(crate) struct Needed<'a> {
    object: &'a Object<'a>,
    zone: Marks,
    /// Addresses outside of text that runs may compute, in order, each with the run's index.
    tables: Vec<(u64, usize)>,
}

/// How far behind a byte the 32 bits begin that say where a call, a jump, or an operand leads that
/// begins with it; 0: none does. (An operand begins with the byte that says how it is encoded.)
const FAR: [u8; 256] = {
    let mut all = [0; 256];
    (all[0xe8], all[0xe9], all[0x0f], all[0xc7]) = (1, 1, 2, 2);
    let mut operand = 0x05;
    while operand <= 0x3d {
        all[operand] = 1;
        operand += 8;
    }
    all
};

/// A short jump reaches less far.
const NEAR: u64 = 130;

/// What is displaced ends before so many bytes behind the first of a call: its last instruction
/// begins within the five bytes of a jump, and has no more than 15.
const BEHIND: u64 = 20;

impl<'a> Needed<'a> {
    /// Of these runs, of which `firsts` are entered anyway; and which they are.
    pub fn new(object: &'a Object<'a>, runs: &[Segment<'_>], firsts: &Marks) -> (Self, Vec<bool>) {
        let mut needed = around_calls(object, runs);
        let mut zone = Marks::new(object);
        for (run, _) in runs.iter().zip(&needed).filter(|it| *it.1) {
            (run.at..run.end()).filter(|&at| !firsts.has(at)).for_each(|at| zone.set(at));
        }
        let mut all = Self { object, zone, tables: Vec::new() };
        let near = close(runs, &needed);
        for (i, run) in runs.iter().enumerate() {
            needed[i] = needed[i] || all.leads_there(run, i, near[i]);
        }
        all.tables.sort_unstable();
        let mut known = None;
        for &(table, i) in &all.tables {
            let leads = match known {
                Some((same, leads)) if same == table => leads,
                _ => all.last_into_zone(table, u64::MAX).is_some(),
            };
            known = Some((table, leads));
            needed[i] |= leads;
        }
        (all, needed)
    }

    /// Whether a run may have a jump, or an operand, that leads into the zone: which is `near` if
    /// short jumps reach it. Notes what the run may compute.
    fn leads_there(&mut self, run: &Segment<'_>, index: usize, near: bool) -> bool {
        let mut leads = false;
        if near {
            possible_targets(run, |at| leads |= self.zone.has(at));
        }
        for (i, &byte) in run.bytes.iter().enumerate() {
            let skip = FAR[usize::from(byte)];
            if skip == 0 {
                continue;
            }
            let skip = usize::from(skip);
            // (A conditional jump, or `xbegin`.)
            if skip == 2 && !matches!(run.bytes[i..], [0x0f, 0x80..=0x8f, ..] | [0xc7, 0xf8, ..]) {
                continue;
            }
            let Some(&[a, b, c, d]) = run.bytes.get(i + skip..i + skip + 4) else { continue };
            let by = i32::from_le_bytes([a, b, c, d]);
            let to = (run.at + (i + skip + 4) as u64).wrapping_add(by as u64);
            leads |= self.zone.has(to);
            if byte & 0xc7 != 0x05 {
                continue;
            }
            // (A value of so many bytes may follow.)
            leads |= [1, 2, 4].iter().any(|n| self.zone.has(to.wrapping_add(*n)));
            let is_lea = i > 0 && run.bytes[i - 1] == 0x8d;
            if is_lea && !self.object.is_text(to) {
                self.tables.push((to, index));
            }
        }
        leads
    }

    /// Where the last entry of a jump table stands that leads into the zone.
    fn last_into_zone(&self, table: u64, next: u64) -> Option<u64> {
        let mut last = None;
        entries(self.object, table, next, |at, to| {
            if self.zone.has(to) {
                last = Some(at);
            }
        });
        last
    }

    /// Runs that may compute an address within one of these tables, before an entry that leads into
    /// the zone.
    pub fn that_end_tables(&self, computed: &[u64]) -> Vec<usize> {
        let mut all = Vec::new();
        for (i, &table) in computed.iter().enumerate() {
            let next = computed.get(i + 1).copied().unwrap_or(u64::MAX);
            let Some(last) = self.last_into_zone(table, next) else { continue };
            let from = self.tables.partition_point(|it| it.0 <= table);
            let within = self.tables[from..].iter().take_while(|it| it.0 <= last);
            all.extend(within.map(|it| it.1));
        }
        all
    }
}

/// The runs from which a short jump may reach one of these.
fn close(runs: &[Segment<'_>], these: &[bool]) -> Vec<bool> {
    let mut all = vec![false; runs.len()];
    let mut end = 0;
    for (i, run) in runs.iter().enumerate() {
        all[i] = run.at < end + NEAR;
        end = if these[i] { run.end() } else { end };
    }
    let mut at = u64::MAX;
    for (i, run) in runs.iter().enumerate().rev() {
        all[i] |= run.end() + NEAR > at;
        at = if these[i] { run.at } else { at };
    }
    all
}

/// The runs that have bytes of a call, each with the one before it, and with what is close behind
/// the call.
fn around_calls(object: &Object<'_>, runs: &[Segment<'_>]) -> Vec<bool> {
    let mut all = vec![false; runs.len()];
    for (i, run) in runs.iter().enumerate() {
        let Some(mut call) = bytes_of_a_call(object, run) else { continue };
        all[i.saturating_sub(1)] = true;
        all[i] = true;
        while let Some(next) = first_bytes(&run.bytes[(call + 1 - run.at) as usize..]) {
            call += 1 + next as u64;
        }
        let close = runs[i..].iter().take_while(|it| it.at < call + BEHIND).count();
        all[i..i + close].fill(true);
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::object::{Object, Segment};
    use crate::places::found;
    use crate::sweep::Decodes;
    use object::Endianness;
    use object::elf::{FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD};
    use object::read::elf::{FileHeader, ProgramHeader};

    /// (So that no number in data looks like an address.)
    const BASE: u64 = 0x7f00_0000_0000;

    /// Its segments, each with where it lies and whether it is text; where its tables are.
    type File = (Vec<(u64, Vec<u8>, bool)>, Option<u64>);

    /// The object of that name which this test is linked with.
    fn file(name: &str) -> File {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut paths = maps.lines().filter_map(|it| it.split_whitespace().nth(5));
        let file = std::fs::read(paths.find(|it| it.ends_with(name)).unwrap()).unwrap();
        let header = FileHeader64::<Endianness>::parse(&*file).unwrap();
        let little = header.endian().unwrap();
        let (mut segments, mut frames) = (Vec::new(), None);
        for it in header.program_headers(little, &*file).unwrap() {
            let at = BASE + it.p_vaddr(little);
            if it.p_type(little) == PT_LOAD {
                let bytes = it.data(little, &*file).unwrap().to_vec();
                segments.push((at, bytes, it.p_flags(little).0 & PF_X.0 != 0));
            } else if it.p_type(little) == PT_GNU_EH_FRAME {
                frames = Some(at);
            }
        }
        (segments, frames)
    }

    fn object((segments, frames): &File) -> Object<'_> {
        let segments = segments.iter().map(|it| {
            let (at, bytes, executable) = (it.0, it.1.as_slice(), it.2);
            Segment { at, bytes, executable }
        });
        Object { segments: segments.collect(), symbols: Vec::new(), frames: *frames }
    }

    #[test]
    fn what_is_not_decoded_would_have_changed_nothing() {
        for name in ["/libc.so.6", "/ld-linux-x86-64.so.2"] {
            let file = file(name);
            let object = object(&file);
            let all = found(&object, Decodes::All).unwrap();
            assert_eq!(found(&object, Decodes::Needed).unwrap(), all, "{name}");
        }
    }

    /// Jumps, operands and tables that lead near calls, anywhere: mostly in the middle of
    /// instructions.
    #[test]
    fn whatever_leads_near_a_call_is_found_wherever_it_is() {
        let seed =
            std::env::var("SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(fastrand::u64(..));
        println!("SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let original = file("/ld-linux-x86-64.so.2");
        let calls: Vec<u64> = {
            let all = found(&object(&original), Decodes::All).unwrap();
            all.iter().map(|it| it.call).collect()
        };
        let text = original.0.iter().position(|it| it.2).unwrap();
        let data = text + 1;
        let mut changed = 0;
        let as_it_was = found(&object(&original), Decodes::All);
        for _ in 0..150 {
            let mut file = original.clone();
            for _ in 0..random.usize(1..4) {
                leads_near(
                    &mut file,
                    calls[random.usize(0..calls.len())],
                    (text, data),
                    &mut random,
                );
            }
            let all = found(&object(&file), Decodes::All);
            changed += usize::from(all != as_it_was);
            assert_eq!(found(&object(&file), Decodes::Needed), all);
        }
        println!("{changed} of 150 differ from what is there");
        assert!(changed > 20);
    }

    fn leads_near(
        file: &mut File,
        call: u64,
        (text, data): (usize, usize),
        random: &mut fastrand::Rng,
    ) {
        let to = call.wrapping_add_signed(random.i64(-12..6));
        let n = file.0[text].1.len();
        // (Also nearby.)
        let nearby = (call - file.0[text].0) as i64 + random.i64(-160..160);
        let i = if random.bool() { random.usize(16..n - 16) } else { nearby as usize };
        let at = file.0[text].0 + i as u64;
        let by = |from: u64, to: u64| (to.wrapping_sub(from) as i32).to_le_bytes();
        let (table, entries) = (file.0[data].0, file.0[data].1.len() / 4);
        let entry = random.usize(0..entries - 4);
        let table = table + 4 * entry as u64;
        let bytes: Vec<u8> = match random.u32(0..6) {
            0 => [&[0xe9][..], &by(at + 5, to)].concat(),
            1 => [&[0x0f, 0x84][..], &by(at + 6, to)].concat(),
            2 => vec![0xeb, to.wrapping_sub(at + 2) as u8],
            3 => [&[0x48, 0x8d, 0x05][..], &by(at + 7, to)].concat(),
            4 => [&[0xc7, 0x05][..], &by(at + 10, to), &[0; 4]].concat(),
            _ => {
                let mut lies = [0; 16];
                for (i, it) in lies.chunks_exact_mut(4).enumerate() {
                    it.copy_from_slice(&by(table, to + i as u64));
                }
                file.0[data].1[4 * entry..4 * entry + 16].copy_from_slice(&lies);
                // (Perhaps another begins within it.)
                let begins = table + 4 * random.u64(0..2);
                [&[0x48, 0x8d, 0x05][..], &by(at + 7, begins)].concat()
            }
        };
        file.0[text].1[i..i + bytes.len()].copy_from_slice(&bytes);
    }
}
