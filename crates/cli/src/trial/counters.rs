//! Counters of uncopy's work in a turn: from the statistics of processes that live, or from their
//! summaries at exit.

use uncopy_counters::{NAMES, Snapshot, is_gauge};

use crate::stat::files;

/// The sum over `pids`.
pub fn of_living(pids: &[u32]) -> Snapshot {
    sum(pids.iter().filter_map(|pid| files::of(*pid).ok()).map(|program| program.counters))
}

/// The sum of all summaries (`--verbose`) in what was said.
pub fn from_summaries(said: &[u8]) -> Snapshot {
    let text = String::from_utf8_lossy(said);
    let found: Vec<(&str, u64)> = text.lines().filter_map(counted).collect();
    Snapshot::from_values(NAMES.iter().map(|(name, _)| {
        found.iter().filter(|(n, _)| n == name && !is_gauge(n)).map(|(_, value)| value).sum()
    }))
}

/// The counter in a line of a summary.
fn counted(line: &str) -> Option<(&str, u64)> {
    let (name, value) = line.strip_prefix("uncopy: ")?.split_once('=')?;
    Some((name, value.parse().ok()?))
}

/// Whether a line is of a summary, or a banner (which names the process in brackets).
pub fn is_ours(line: &str) -> bool {
    counted(line).is_some() || line.starts_with("uncopy: ") && line.contains("]: ")
}

/// The larger of both: processes that were killed leave no summary, those that have ended no
/// statistics.
pub fn larger(a: Snapshot, b: Snapshot) -> Snapshot {
    if saved(&b) > saved(&a) { b } else { a }
}

/// Bytes that were not copied, by the program or for it.
pub fn saved(counters: &Snapshot) -> u64 {
    counters.elided_bytes + counters.lent_bytes
}

/// The work between `before` and `after`.
pub fn between(before: &Snapshot, after: &Snapshot) -> Snapshot {
    let both = after.iter().zip(before.iter());
    Snapshot::from_values(both.map(|((name, after), (_, before))| match is_gauge(name) {
        true => after,
        false => after.saturating_sub(before),
    }))
}

/// The sum of all.
pub fn sum(all: impl Iterator<Item = Snapshot>) -> Snapshot {
    all.fold(Snapshot::default(), |sum, one| {
        Snapshot::from_values(sum.iter().zip(one.iter()).map(|((_, a), (_, b))| a.wrapping_add(b)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_several_processes_are_added() {
        let said = b"noise\nuncopy: elided_bytes=5\nuncopy: faults=1\nuncopy: elided_bytes=7\n\
            uncopy: x=y\n";
        let found = from_summaries(said);
        assert_eq!((found.elided_bytes, found.faults), (12, 1));
        assert_eq!(larger(Snapshot::default(), found), found);
        let both = sum([found, found].into_iter());
        assert_eq!(both.elided_bytes, 24);
        assert_eq!(between(&found, &both).elided_bytes, 12);
    }

    #[test]
    fn our_own_words_are_known() {
        assert!(is_ours("uncopy: elided_bytes=5") && is_ours("uncopy: 0.1.0 [8206]: ready"));
        assert!(!is_ours("uncopy: refused: no userfaultfd") && !is_ours("a=5"));
    }
}
