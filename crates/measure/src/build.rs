//! The source and the target that this program was built from and for: `--version`.

use uncopy_counters::stats_page::LAYOUT;

/// Version and commit, in one line.
pub const SHORT: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILT_FROM_COMMIT"), ")");
/// The commit alone.
pub const COMMIT: &str = env!("BUILT_FROM_COMMIT");
/// The commit's date: the same build has the same.
pub const DATE: &str = env!("BUILT_FROM_DATE");

/// All of it.
pub fn long() -> String {
    format!(
        "{}\n\
         commit:     {} of {DATE}\n\
         built with: {} for {}, {}\n\
         uses:       userfaultfd (MOVE, events), splice; needs Linux 6.8 and glibc 2.34 or newer\n\
         statistics: layout {LAYOUT:016x} (what 'uncopy stat' reads is of programs with the same)",
        env!("CARGO_PKG_VERSION"),
        env!("BUILT_FROM_COMMIT"),
        env!("BUILT_WITH"),
        env!("BUILT_FOR"),
        env!("BUILT_AS"),
    )
}
