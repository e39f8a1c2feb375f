//! The joint counters of a program and all that it started: one page of plain words, which all of
//! them have mapped.
//!
//! `uncopy run --verbose` makes it. Each process adds what it did where it ends or executes another
//! program; the program itself, which was the first, says at its end what stands there.

use crate::counters::Counters;
use crate::stats_page::Header;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module. It begins as a statistics file does, so that what was left behind is told apart
/// likewise.
#[repr(C, align(4096))]
#[derive(Debug, Default)]
pub struct Family {
    /// The program itself. Its layout is 0: no reader takes it for a process's statistics.
    pub header: Header,
    /// Whether the first line was said.
    pub announced: AtomicU64,
    /// Other processes that left something out.
    pub others: AtomicU64,
    /// The program's own work, also before it executed another file.
    pub own: Counters,
    /// The others' work.
    pub of_others: Counters,
}

/// Begins what stands in the place of the page's path where no file could be made; behind it comes
/// the name that the file would have. The program then sums up itself and its forked children.
pub const UNSAID: &str = "new/";

/// The library writes this over [`UNSAID`] when it reads it: what the process executes does not say
/// the first line again. (As long as that.)
pub const SAID: &str = "old/";

impl Family {
    /// Whether nobody has said the first line yet, who then says it.
    pub fn announces(&self) -> bool {
        self.announced.swap(1, Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_page_and_announced_once() {
        assert_eq!(size_of::<Family>(), 4096);
        let family = Family::default();
        assert!(family.announces() && !family.announces());
    }
}
