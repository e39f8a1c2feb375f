//! A few runs of sequence numbers, sorted and apart from each other: what came out of order, or
//! what the peer has of it.

use crate::seq::Seq;

/// At most `N` runs. Bounded by design: a peer that sends every second byte gets no memory of ours
/// for it.
#[derive(Clone, Copy, Debug)]
pub struct Intervals<const N: usize> {
    runs: [(Seq, Seq); N],
    len: u8,
}

impl<const N: usize> Default for Intervals<N> {
    fn default() -> Self {
        Intervals { runs: [(Seq(0), Seq(0)); N], len: 0 }
    }
}

impl<const N: usize> Intervals<N> {
    /// The runs in order, each from its first number to behind its last.
    #[inline]
    pub fn runs(&self) -> &[(Seq, Seq)] {
        &self.runs[..usize::from(self.len)]
    }

    /// Holds nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets everything.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a run, joining those that it touches. False, and nothing added, where that would make
    /// more than `limit` runs.
    pub fn insert(&mut self, start: Seq, end: Seq, limit: usize) -> bool {
        let runs = self.runs();
        // The runs that it touches: those from `first` to before `last`.
        let first = runs.iter().position(|run| !run.1.before(start)).unwrap_or(runs.len());
        let touched = runs[first..].iter().take_while(|run| !run.0.after(end)).count();
        let last = first + touched;
        let len = runs.len();
        if touched == 0 {
            if len >= limit.min(N) {
                return false;
            }
            self.runs.copy_within(first..len, first + 1);
            self.runs[first] = (start, end);
            self.len += 1;
        } else {
            let joined = (start.min(runs[first].0), end.max(runs[last - 1].1));
            self.runs[first] = joined;
            self.runs.copy_within(last..len, first + 1);
            self.len -= (touched - 1) as u8;
        }
        true
    }

    /// Forgets what lies before `seq`.
    pub fn trim(&mut self, seq: Seq) {
        let gone = self.runs().iter().take_while(|run| !run.1.after(seq)).count();
        if gone > 0 {
            self.runs.copy_within(gone..usize::from(self.len), 0);
            self.len -= gone as u8;
        }
        if let Some(run) = self.runs[..usize::from(self.len)].first_mut()
            && run.0.before(seq)
        {
            run.0 = seq;
        }
    }

    /// Forgets what lies from `start` to before `end`; and the last run, too, where what is left of
    /// a run before and behind that makes one too many.
    pub fn remove(&mut self, start: Seq, end: Seq) {
        let mut left = Self::default();
        for &(from, to) in self.runs() {
            for (from, to) in [(from, to.min(start)), (from.max(end), to)] {
                if to.after(from) {
                    left.insert(from, to, N);
                }
            }
        }
        *self = left;
    }

    /// Takes the run that begins at or before `seq`, and says where it ends.
    pub fn take_through(&mut self, seq: Seq) -> Option<Seq> {
        let (start, end) = *self.runs().first()?;
        if start.after(seq) {
            return None;
        }
        self.runs.copy_within(1..usize::from(self.len), 0);
        self.len -= 1;
        Some(end)
    }

    /// The end of the last run.
    #[inline]
    pub fn end(&self) -> Option<Seq> {
        self.runs().last().map(|run| run.1)
    }

    /// How many numbers before `seq` it holds.
    pub fn covered_before(&self, seq: Seq) -> u32 {
        self.runs()
            .iter()
            .take_while(|run| run.0.before(seq))
            .map(|run| run.1.min(seq).distance(run.0))
            .sum()
    }

    /// The first gap at or behind `seq`, as far as the next run: where it begins, and where it ends
    /// if there is a next run.
    pub fn gap(&self, seq: Seq) -> (Seq, Option<Seq>) {
        let mut start = seq;
        for run in self.runs() {
            if run.0.after(start) {
                return (start, Some(run.0));
            }
            start = start.max(run.1);
        }
        (start, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(runs: &[(u32, u32)]) -> Intervals<4> {
        let mut set = Intervals::default();
        for run in runs {
            assert!(set.insert(Seq(run.0), Seq(run.1), 4));
        }
        set
    }

    fn runs(set: &Intervals<4>) -> Vec<(u32, u32)> {
        set.runs().iter().map(|run| (run.0.0, run.1.0)).collect()
    }

    #[test]
    fn runs_that_touch_are_joined() {
        assert_eq!(runs(&set(&[(10, 20), (30, 40), (20, 25)])), [(10, 25), (30, 40)]);
        assert_eq!(runs(&set(&[(10, 20), (30, 40), (15, 35)])), [(10, 40)]);
        assert_eq!(runs(&set(&[(30, 40), (10, 20), (50, 60), (5, 70)])), [(5, 70)]);
        assert_eq!(runs(&set(&[(30, 40), (32, 35)])), [(30, 40)]);
    }

    #[test]
    fn a_run_too_many_is_refused_but_one_that_joins_is_not() {
        let mut set = set(&[(10, 20), (30, 40), (50, 60), (70, 80)]);
        assert!(!set.insert(Seq(90), Seq(95), 4));
        assert!(!set.insert(Seq(22), Seq(28), 4));
        assert!(set.insert(Seq(20), Seq(30), 4));
        assert_eq!(runs(&set), [(10, 40), (50, 60), (70, 80)]);
    }

    #[test]
    fn runs_before_a_number_are_forgotten() {
        let mut set = set(&[(10, 20), (30, 40), (50, 60)]);
        set.trim(Seq(35));
        assert_eq!(runs(&set), [(35, 40), (50, 60)]);
        set.trim(Seq(40));
        assert_eq!(runs(&set), [(50, 60)]);
    }

    #[test]
    fn a_removed_run_leaves_what_lies_on_both_sides_of_it() {
        let mut set = set(&[(10, 20), (30, 40), (50, 60)]);
        set.remove(Seq(20), Seq(30));
        assert_eq!(runs(&set), [(10, 20), (30, 40), (50, 60)]);
        set.remove(Seq(15), Seq(55));
        assert_eq!(runs(&set), [(10, 15), (55, 60)]);
        set.remove(Seq(12), Seq(13));
        assert_eq!(runs(&set), [(10, 12), (13, 15), (55, 60)]);
        set.remove(Seq(56), Seq(57));
        assert_eq!(runs(&set), [(10, 12), (13, 15), (55, 56), (57, 60)]);
        // There is no room for one more.
        set.remove(Seq(58), Seq(59));
        assert_eq!(runs(&set), [(10, 12), (13, 15), (55, 56), (57, 58)]);
        set.remove(Seq(0), Seq(100));
        assert!(set.is_empty());
    }

    #[test]
    fn gaps_are_found_in_order() {
        let set = set(&[(10, 20), (30, 40)]);
        assert_eq!(set.gap(Seq(5)), (Seq(5), Some(Seq(10))));
        assert_eq!(set.gap(Seq(10)), (Seq(20), Some(Seq(30))));
        assert_eq!(set.gap(Seq(25)), (Seq(25), Some(Seq(30))));
        assert_eq!(set.gap(Seq(35)), (Seq(40), None));
        assert_eq!(set.covered_before(Seq(35)), 15);
    }

    #[test]
    fn random_insertions_agree_with_a_set_of_numbers() {
        let mut state = 7u32;
        let mut random = move |n: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % n
        };
        for _ in 0..2000 {
            let base = u32::MAX - 30;
            let mut set = Intervals::<8>::default();
            let mut plain = [false; 64];
            for _ in 0..6 {
                let start = random(60);
                let end = start + 1 + random(64 - start - 1);
                assert!(set.insert(Seq(base) + start, Seq(base) + end, 8));
                plain[start as usize..end as usize].fill(true);
            }
            // (Six runs, and two that are cut in two, are eight.)
            for _ in 0..2 {
                let start = random(60);
                let end = start + random(64 - start);
                set.remove(Seq(base) + start, Seq(base) + end);
                plain[start as usize..end as usize].fill(false);
            }
            let from = random(64);
            set.trim(Seq(base) + from);
            plain[..from as usize].fill(false);
            let mut got = [false; 64];
            for run in set.runs() {
                got[run.0.distance(Seq(base)) as usize..run.1.distance(Seq(base)) as usize]
                    .fill(true);
            }
            assert_eq!(got, plain);
        }
    }
}
