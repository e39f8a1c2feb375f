//! How many free pages are worth keeping with their memory: those that were given back to the kernel too early, and those that lie idle.
//!
//! Memory that is given back and needed again is cleared by the kernel, page by page. A program that comes and goes in waves (64 connections
//! that each collect 1 MB) would have that done in each wave; one that frees a lot once would keep it for nothing. What comes again
//! tells them apart.

/// Time in seconds in which what was free all along lies idle.
const LOOK_SECONDS: i64 = 10;

/// The book of one store of free pages.
#[derive(Debug, Default)]
pub struct Keeping {
    /// Pages that were given back and then needed again, less half of them at each look.
    regretted: usize,
    /// Pages that were given back and not needed again so far.
    gone: usize,
    /// Fewest pages that were free since the last look.
    idle: usize,
    /// When that was, in seconds.
    looked: i64,
}

impl Keeping {
    /// Nothing was given back yet.
    pub const fn new() -> Self {
        Self { regretted: 0, gone: 0, idle: 0, looked: 0 }
    }

    /// Pages that are worth keeping beyond what always is.
    pub fn regretted(&self) -> usize {
        self.regretted
    }

    /// So many pages are being given back.
    pub fn gives_back(&mut self, pages: usize) {
        self.gone += pages;
    }

    /// So many pages without memory were taken, because none with memory were free. (Some are without because they were mapped anew:
    /// keeping more would not have spared that.)
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

    /// Now and then; it is `now`, in seconds since some beginning, and `free` pages are free. Returns how many are to be given back: half of
    /// what was not needed for [`LOOK_SECONDS`].
    pub fn look(&mut self, now: i64, free: usize) -> usize {
        if now - self.looked < LOOK_SECONDS {
            return 0;
        }
        let idle = self.idle / 2;
        (self.idle, self.looked) = (free, now);
        self.regretted /= 2;
        idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_again_is_worth_keeping_for_some_looks() {
        let mut k = Keeping::new();
        k.gives_back(100);
        k.regrets(60);
        assert_eq!(k.regretted(), 60);
        k.look(LOOK_SECONDS - 1, 0);
        assert_eq!(k.regretted(), 60);
        k.look(LOOK_SECONDS, 0);
        assert_eq!(k.regretted(), 30);
    }

    #[test]
    fn what_was_never_given_back_is_not_regretted() {
        let mut k = Keeping::new();
        k.regrets(1000);
        k.gives_back(10);
        k.regrets(1000);
        assert_eq!(k.regretted(), 10);
    }

    #[test]
    fn half_of_what_was_always_free_since_the_last_look_lies_idle() {
        let mut k = Keeping::new();
        assert_eq!(k.look(10, 100), 0);
        k.leaves(40);
        k.leaves(80);
        assert_eq!(k.look(20, 100), 20);
        assert_eq!(k.look(30, 90), 50);
    }
}
