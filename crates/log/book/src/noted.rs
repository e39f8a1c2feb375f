//! The ranges of a file that were written since it was synced last.

use uncopy_log_record::Range;

/// Most ranges that are noted.
pub const RANGES: usize = 32;

/// Ranges, in order, none of which touches another. If there are too many, only that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    ranges: [Range; RANGES],
    count: u8,
    /// More was written than is noted.
    over: bool,
}

impl Default for Noted {
    fn default() -> Noted {
        Noted { ranges: [Range { offset: 0, length: 0 }; RANGES], count: 0, over: false }
    }
}

impl Noted {
    /// The ranges, in order of their offsets.
    #[must_use]
    pub fn ranges(&self) -> &[Range] {
        &self.ranges[..usize::from(self.count)]
    }

    /// Nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0 && !self.over
    }

    /// More was written than the ranges say.
    #[must_use]
    pub fn over(&self) -> bool {
        self.over
    }

    /// Bytes of all ranges.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ranges().iter().map(|range| range.length).sum()
    }

    /// Notes a range.
    pub fn add(&mut self, new: Range) {
        if new.length == 0 || self.over {
            return;
        }
        let (mut from, mut to) = (new.offset, new.end());
        let mut kept = [Range::default(); RANGES + 1];
        let mut count = 0;
        for range in self.ranges() {
            if range.end() < from || range.offset > to {
                kept[count] = *range;
                count += 1;
            } else {
                (from, to) = (from.min(range.offset), to.max(range.end()));
            }
        }
        let place = kept[..count].iter().take_while(|range| range.offset < from).count();
        kept.copy_within(place..count, place + 1);
        kept[place] = Range { offset: from, length: to - from };
        count += 1;
        if count > RANGES {
            self.add_unknown();
            return;
        }
        self.ranges.copy_from_slice(&kept[..RANGES]);
        self.count = count as u8;
    }

    /// Something was written, nobody knows where.
    pub fn add_unknown(&mut self) {
        *self = Noted { over: true, ..Noted::default() };
    }

    /// Adds all of another one.
    pub fn add_all(&mut self, other: &Noted) {
        if other.over {
            self.add_unknown();
        }
        other.ranges().iter().for_each(|range| self.add(*range));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(ranges: &[(u64, u64)]) -> Noted {
        let mut noted = Noted::default();
        for &(offset, length) in ranges {
            noted.add(Range { offset, length });
        }
        noted
    }

    fn shown(noted: &Noted) -> Vec<(u64, u64)> {
        noted.ranges().iter().map(|range| (range.offset, range.length)).collect()
    }

    #[test]
    fn ranges_that_touch_become_one() {
        assert_eq!(shown(&noted(&[(10, 5), (20, 5), (15, 5)])), [(10, 15)]);
        assert_eq!(shown(&noted(&[(10, 5), (0, 3), (30, 1)])), [(0, 3), (10, 5), (30, 1)]);
        assert_eq!(shown(&noted(&[(10, 5), (30, 5), (0, 100)])), [(0, 100)]);
        assert_eq!(noted(&[(10, 5), (12, 9)]).bytes(), 11);
        assert!(noted(&[(10, 0)]).is_empty());
    }

    #[test]
    fn too_many_ranges_are_known_as_such() {
        let many: Vec<_> = (0..33).map(|i| (i * 10, 1)).collect();
        let mut all = noted(&many[..32]);
        assert!(!all.over());
        all.add(Range { offset: 5, length: 5 });
        assert_eq!((all.ranges().len(), all.over()), (32, false));
        all.add(Range { offset: 1000, length: 1 });
        assert!(all.over() && !all.is_empty());
        let mut other = noted(&[(1, 1)]);
        other.add_all(&all);
        assert!(other.over());
    }

    #[test]
    fn random_ranges_cover_what_was_noted_and_nothing_else() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..500 {
            let (mut all, mut model) = (Noted::default(), [false; 200]);
            for _ in 0..rng.usize(0..25) {
                let (offset, length) = (rng.usize(0..180), rng.usize(0..20));
                all.add(Range { offset: offset as u64, length: length as u64 });
                model[offset..offset + length].fill(true);
            }
            let mut covered = [false; 200];
            for range in all.ranges() {
                covered[range.offset as usize..range.end() as usize].fill(true);
            }
            assert_eq!(covered, model);
            assert!(all.ranges().windows(2).all(|two| two[0].end() < two[1].offset));
        }
    }
}
