//! A token bucket for each call site: it loses what faults and page-table calls take, and fills up as the program's time passes.

/// What a site may waste before it stops, in ns: at the start, and once it has long gone well. Registering and moving some hundred buffers of
/// 1 MB.
const FULL: i64 = 4_000_000;
/// A site that has stopped goes on with so much.
const AGAIN: i64 = FULL / 4;
/// It fills with one part in so many of the processor time that passes: so much may be wasted for good (1 << 7: 0.8%),
const SHARE_SHIFT: u32 = 7;
/// and a half of that each time that it is emptied, so many times at most.
const SHIFT_MAX: u32 = 8;
/// A site that has elided so many bytes since it stopped is as good as new.
const FORGIVEN: u64 = 256 << 20;
/// Of the time since one was full no more counts than this, in ns.
const LONGEST: u64 = 1 << 40;
/// One long message makes up for so many short ones.
const LONG_UNDOES: u8 = 4;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Brake {
    /// Call site and size class.
    pub(super) key: usize,
    tokens: i64,
    /// Processor time when that was so.
    since: u64,
    on: bool,
    /// How often it was emptied lately.
    emptied: u32,
    elided: u64,
    short: u8,
}

impl Default for Brake {
    fn default() -> Self {
        Self { key: 0, tokens: FULL, since: 0, on: false, emptied: 0, elided: 0, short: 0 }
    }
}

impl Brake {
    fn fill(&mut self, now: u64) {
        let passed = now.saturating_sub(self.since).min(LONGEST);
        let more = (passed >> (SHARE_SHIFT + self.emptied)) as i64;
        // (What is less than a token goes on counting. A forked child's time begins anew.)
        if more > 0 || now < self.since {
            self.tokens = (self.tokens + more).min(FULL);
            self.since = now;
        }
    }

    /// The site has cost `ns`. Returns whether it stops with that.
    pub(super) fn charge(&mut self, ns: i64, now: u64) -> bool {
        self.fill(now);
        // (What it costs while it stands still is what it did before.)
        self.tokens = (self.tokens - ns).max(-FULL);
        if self.tokens >= 0 || self.on {
            return false;
        }
        (self.on, self.elided) = (true, 0);
        self.emptied = (self.emptied + 1).min(SHIFT_MAX);
        true
    }

    /// Whether it may go on.
    pub(super) fn is_off(&mut self, now: u64) -> bool {
        if self.on {
            self.fill(now);
            self.on = self.tokens < AGAIN;
        }
        !self.on
    }

    /// Whether it has hardly wasted anything.
    pub(super) fn is_full(&self) -> bool {
        self.tokens > FULL / 2
    }

    pub(super) fn elided(&mut self, bytes: usize) {
        self.elided += bytes as u64;
        if self.elided > FORGIVEN {
            (self.elided, self.emptied) = (0, 0);
        }
    }

    /// An input filled nothing of what was made ready for it. Returns whether that was so often.
    pub(super) fn came_short(&mut self, most: u8) -> bool {
        self.short += 1;
        let often = self.short >= most;
        if often {
            self.short = 0;
        }
        often
    }

    pub(super) fn came_long(&mut self) {
        self.short = self.short.saturating_sub(LONG_UNDOES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_site_wastes_for_good_is_a_small_part_of_the_time_and_ever_less() {
        let mut b = Brake::default();
        let (mut now, mut wasted, mut stops) = (0, 0, Vec::new());
        while now < 60_000_000_000 {
            now += 50_000;
            if b.is_off(now) {
                wasted += 20_000;
                if b.charge(20_000, now) {
                    stops.push(now);
                }
            }
        }
        assert!((3..=9).contains(&stops.len()), "{stops:?}");
        assert!(wasted < 4 * FULL, "{wasted}");
    }

    #[test]
    fn a_site_that_wastes_less_than_its_share_never_stops() {
        let mut b = Brake::default();
        assert!((1..100_000).all(|i| b.is_off(i * 4_000_000) && !b.charge(20_000, i * 4_000_000)));
    }
}
