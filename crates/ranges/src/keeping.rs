//! How many free pages are kept with their memory.
//!
//! Memory that is given back and needed again is cleared by the kernel, page by page. A program
//! whose blocks come and go in waves (64 connections that each collect 1 MB) would have that done
//! in each wave; one that frees a lot once would keep it for nothing. The pages that come again
//! tell them apart: those that were given back and then needed are *regretted*, and so many more
//! are kept. Those that nobody needed for a time lie *idle*, and are given back by halves.

/// Time in seconds in which what was free all along lies idle.
const LOOK_SECONDS: i64 = 10;

/// The book of one store of free pages.
#[derive(Debug, Default)]
pub struct Keeping {
    /// Pages that were given back and then needed again, less those that lay idle since.
    regretted: usize,
    /// Pages that were given back and not needed again so far.
    gone: usize,
    /// Fewest pages that were free since the last look.
    idle: usize,
    /// When that was, in seconds.
    looked: i64,
    /// Pages that lay idle, and are still to be given back.
    surplus: usize,
}

impl Keeping {
    /// Nothing was given back yet.
    pub const fn new() -> Self {
        Self { regretted: 0, gone: 0, idle: 0, looked: 0, surplus: 0 }
    }

    /// Pages that are worth keeping beyond what always is.
    pub fn regretted(&self) -> usize {
        self.regretted
    }

    /// So many pages are being given back.
    pub fn gives_back(&mut self, pages: usize) {
        self.gone += pages;
    }

    /// So many pages without memory were taken, because none with memory were free where they were
    /// needed. (Some are without because they were mapped anew: keeping more would not have spared
    /// that.)
    pub fn regrets(&mut self, pages: usize) {
        let again = pages.min(self.gone);
        self.gone -= again;
        self.regretted += again;
    }

    /// So many are free after some were taken.
    #[inline]
    pub fn leaves(&mut self, free: usize) {
        self.idle = self.idle.min(free);
    }

    /// Now and then; it is `now`, in seconds since some beginning, and `free` pages are free. Half
    /// of what was not needed for 10 s becomes surplus.
    pub fn look(&mut self, now: i64, free: usize) {
        if now - self.looked >= LOOK_SECONDS {
            self.surplus = self.idle / 2;
            (self.idle, self.looked) = (free, now);
        }
    }

    /// How many pages are to be given back because they lay idle, `most` of them now.
    pub fn surplus(&mut self, most: usize) -> usize {
        // (Not what was needed meanwhile.)
        let pages = self.surplus.min(self.idle).min(most);
        self.surplus -= pages;
        self.regretted = self.regretted.saturating_sub(pages);
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_needed_again_are_regretted_until_as_many_lay_idle() {
        let mut k = Keeping::new();
        k.gives_back(100);
        k.regrets(60);
        assert_eq!(k.regretted(), 60);
        for (now, surplus, regretted) in [(10, 0, 60), (20, 40, 20), (30, 40, 0)] {
            k.look(now, 80);
            assert_eq!((k.surplus(usize::MAX), k.regretted()), (surplus, regretted), "at {now}");
        }
    }

    #[test]
    fn pages_that_were_never_given_back_are_not_regretted() {
        let mut k = Keeping::new();
        k.regrets(1000);
        k.gives_back(10);
        k.regrets(1000);
        assert_eq!(k.regretted(), 10);
    }

    #[test]
    fn half_of_what_was_always_free_between_two_looks_is_surplus_as_long_as_it_stays_free() {
        let mut k = Keeping::new();
        k.look(10, 100);
        k.leaves(40);
        k.leaves(80);
        k.look(19, 100);
        assert_eq!(k.surplus(100), 0, "it is too early");
        k.look(20, 100);
        assert_eq!((k.surplus(15), k.surplus(15), k.surplus(15)), (15, 5, 0));
        k.look(30, 90);
        k.leaves(7);
        assert_eq!(k.surplus(100), 7);
    }
}
