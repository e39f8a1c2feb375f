//! Whether what a call site saves is worth having, beside all that its process does.
//!
//! An account that gains is not enough: elision changes what no account sees (what lies in the caches, when a peer is
//! woken and whether it has to be), and that costs more than the few hundred ns which a copy of 64 KB saves in a program that
//! computes for 50 us from one to the next.

/// What is saved is not worth having where it is less than this part of the processor time that passes meanwhile.
pub(crate) const LEAST_SHARE: i64 = 32;
/// That is looked at for so many elided copies together.
pub(crate) const WINDOW: u32 = 256;

/// How late it is, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Processor time that all threads of this process have used.
    pub cpu: u64,
    /// Time that has passed anywhere.
    pub wall: u64,
}

/// What a site's last copies, up to [`WINDOW`], have brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    /// When it began; `None`: not known.
    began: Option<Times>,
    /// Copies elided in it.
    elided: u32,
    /// What all sites together had saved when it began.
    all: i64,
    /// What its copies have saved in ns, without what is spent.
    pub(crate) saved: i64,
    /// Faults and page-table calls, in ns: an investment, which ends, or a waste, which the credit will tell.
    pub(crate) spent: i64,
}

/// What came of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Too much was spent, or the time is not known.
    Unknown,
    /// Worth having.
    Worth,
    /// Next to nothing.
    Light,
}

impl Window {
    /// One copy more was elided. Returns whether the window ends with it (or is to begin).
    #[inline]
    pub(crate) fn elided(&mut self) -> bool {
        self.elided += 1;
        self.elided == 1 || self.elided > WINDOW
    }

    /// The window ends and another one begins `now`; all sites together have saved `all` ns so far. Small gains of many sites are
    /// worth having together, if each is one.
    pub(crate) fn end(&mut self, now: Option<Times>, all: i64) -> Verdict {
        let new = Window { began: now, elided: 1, all, ..Window::default() };
        let w = core::mem::replace(self, new);
        let (Some(began), Some(now), true) = (w.began, now, w.elided > WINDOW) else {
            return Verdict::Unknown;
        };
        // Of many threads those that never copy must not count: so no more than one processor's time. (And a child of
        // vfork, which has these books too, has used none.)
        let took = now.cpu.saturating_sub(began.cpu).min(now.wall.saturating_sub(began.wall));
        let least = took as i64 / LEAST_SHARE;
        if w.spent >= least.max(1) {
            Verdict::Unknown
        } else if w.saved < 0 || w.saved < least && all - w.all < least {
            Verdict::Light
        } else {
            Verdict::Worth
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// What comes of a window in which each copy saves `saved` ns, `others` save as much as they say, and
    /// `cpu` us of processor time and `wall` us pass in all.
    fn verdict(saved: i64, spent: i64, others: i64, cpu: u64, wall: u64) -> Verdict {
        let mut w = Window::default();
        assert!(w.elided());
        let began = Times { cpu: 7 * US, wall: 9 * US };
        assert_eq!(w.end(Some(began), 1_000), Verdict::Unknown);
        let ends = (1..).find(|_| {
            w.saved += saved;
            w.elided()
        });
        assert_eq!(ends, Some(WINDOW));
        w.spent += spent;
        let all = 1_000 + w.saved + others;
        w.end(Some(Times { cpu: began.cpu + cpu * US, wall: began.wall + wall * US }), all)
    }

    #[test]
    fn a_part_of_the_processor_time_is_worth_having_and_less_is_not() {
        // 256 copies of 1 us, and 32 times that.
        assert_eq!(verdict(1_000, 0, 0, 8_000, 9_000), Verdict::Worth);
        assert_eq!(verdict(1_000, 0, 0, 8_400, 9_000), Verdict::Light);
    }

    #[test]
    fn while_a_site_invests_nothing_is_said() {
        assert_eq!(verdict(1_000, 263_000, 0, 8_400, 9_000), Verdict::Unknown);
        assert_eq!(verdict(1_000, 262_000, 0, 8_400, 9_000), Verdict::Light);
    }

    #[test]
    fn threads_that_never_copy_count_for_one_processor_at_most() {
        assert_eq!(verdict(1_000, 0, 0, 100_000, 8_000), Verdict::Worth);
    }

    #[test]
    fn small_gains_of_many_sites_are_worth_having_together_and_a_loss_is_not() {
        assert_eq!(verdict(1_000, 0, 1_000_000, 20_000, 20_000), Verdict::Worth);
        assert_eq!(verdict(-1, 0, 1_000_000, 20_000, 20_000), Verdict::Light);
    }

    #[test]
    fn where_the_time_is_not_known_nothing_is_said() {
        let mut w = Window::default();
        for _ in 0..3 * WINDOW {
            if w.elided() {
                assert_eq!(w.end(None, 0), Verdict::Unknown);
            }
        }
    }
}
