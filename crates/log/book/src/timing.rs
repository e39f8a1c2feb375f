//! Plain against log: each file's syncs are timed, and the cheaper way is kept.
//!
//! Of [`PERIOD`] syncs the last two go the other way. A plain one that must end live records costs
//! more than those behind it, so the first of the two is not counted.

/// So many syncs make a round.
pub const PERIOD: u32 = 64;
/// Rounds in a row in which plain was cheaper, after which a file has nothing to gain.
pub const ROUNDS: u8 = 4;

/// How a sync is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncBy {
    /// A record in the log makes it durable.
    Log,
    /// The file's own sync makes it durable.
    Plain,
}

/// The times of syncs of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Averages in ns, 0: not known.
    log: u64,
    plain: u64,
    syncs: u32,
    lost: u8,
}

impl Timing {
    /// How the next sync is to be made.
    #[must_use]
    pub fn way(&self) -> SyncBy {
        let plain_is_cheaper = self.plain > 0 && self.log > 0 && self.plain < self.log;
        let other = self.syncs % PERIOD >= PERIOD - 2;
        if plain_is_cheaper != other { SyncBy::Plain } else { SyncBy::Log }
    }

    /// A sync was made in this way and took so many ns. `counts`: it cost what such a one costs.
    pub fn took(&mut self, way: SyncBy, ns: u64, counts: bool) {
        self.syncs = self.syncs.wrapping_add(1);
        if counts {
            let average = match way {
                SyncBy::Log => &mut self.log,
                SyncBy::Plain => &mut self.plain,
            };
            // (An eighth of each new one. Nothing takes 0 ns.)
            let ns = ns.max(1);
            *average = if *average == 0 { ns } else { (*average * 7 + ns).div_ceil(8) };
        }
        if self.syncs.is_multiple_of(PERIOD) && self.plain > 0 && self.log > 0 {
            self.lost = if self.plain < self.log { self.lost.saturating_add(1) } else { 0 };
        }
    }

    /// Plain has been cheaper for long: the file has nothing to gain.
    #[must_use]
    pub fn loses(&self) -> bool {
        self.lost >= ROUNDS
    }

    /// Averages in ns of a sync by the log and of a plain one; 0: not known.
    #[must_use]
    pub fn averages(&self) -> (u64, u64) {
        (self.log, self.plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(timing: &mut Timing, syncs: u32, log: u64, plain: u64) -> u32 {
        let mut plain_ones = 0;
        for _ in 0..syncs {
            let way = timing.way();
            plain_ones += u32::from(way == SyncBy::Plain);
            timing.took(way, if way == SyncBy::Log { log } else { plain }, true);
        }
        plain_ones
    }

    #[test]
    fn the_cheaper_way_is_kept_and_the_other_tried() {
        let mut timing = Timing::default();
        assert_eq!(run(&mut timing, 64, 80, 140), 2);
        assert_eq!(run(&mut timing, 64, 80, 140), 2);
        assert_eq!(timing.averages(), (80, 140));
        assert!(!timing.loses());
    }

    #[test]
    fn a_file_whose_log_is_dearer_loses() {
        let mut timing = Timing::default();
        run(&mut timing, 64, 200, 100);
        // From now on plain, but for the two.
        assert_eq!(run(&mut timing, 64, 200, 100), 62);
        assert!(!timing.loses());
        run(&mut timing, 128, 200, 100);
        assert!(timing.loses());
    }

    #[test]
    fn what_becomes_cheaper_is_found() {
        let mut timing = Timing::default();
        run(&mut timing, 128, 200, 100);
        run(&mut timing, 20 * 64, 50, 100);
        assert_eq!(timing.way(), SyncBy::Log);
        assert!(!timing.loses());
    }
}
