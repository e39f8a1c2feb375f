//! What uncopy would save, from the prices of its policy ([`Costs`]).
//!
//! For each path, as the policy reckons for each call site: what is elided earns what copying it
//! would have cost; books, inputs, outputs and faults pay. Left out: pages that the twin allocator
//! recycles instead of having them faulted in (a gain), and what happens before the steady state (a
//! loss).

use super::layout::{Sizes, class_start};
use uncopy_decide::{COLD_OUTPUT, COLD_OUTPUT_8THS, Costs};
use uncopy_ranges::span::PAGE;

/// One copy of a path.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// Bytes of the path that it copies.
    pub bytes: f64,
    /// Copies by size class, of this path and others that share the sequence so far.
    pub sizes: Sizes,
    /// Bytes of all those.
    pub total: f64,
}

/// What of a path is known.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// Its copies.
    pub copies: Vec<Copy>,
    /// Input calls.
    pub inputs: f64,
    /// Output calls; none where the data ends in the program.
    pub outputs: f64,
    /// Bytes that leave, or end.
    pub bytes: f64,
    /// Touches of pages in all, each a fault.
    pub touches: f64,
}

/// What would be saved; nothing, where the policy would leave the path alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Saving {
    /// Bytes that are not copied.
    pub bytes: f64,
    /// CPU time, ns.
    pub ns: f64,
}

/// Elided calls and bytes of `copy`, of those of `threshold` bytes and more. A page is lost at the
/// ends.
fn elided(copy: &Copy, threshold: usize) -> (f64, f64) {
    let least: f64 =
        copy.sizes.iter().enumerate().map(|(c, n)| class_start(c) as f64 * *n as f64).sum();
    if least == 0.0 || copy.total == 0.0 {
        return (0.0, 0.0);
    }
    // Within their classes all are taken to be larger than the smallest alike.
    let mean = |class| class_start(class) as f64 * copy.total / least;
    let share = copy.bytes / copy.total;
    let large = copy.sizes.iter().enumerate().filter(|(c, _)| class_start(*c) >= threshold as u64);
    large.fold((0.0, 0.0), |(calls, bytes), (c, n)| {
        let n = *n as f64 * share;
        (calls + n, bytes + n * (mean(c) - PAGE as f64))
    })
}

/// Predicts for one path.
pub fn predict(path: &Path, costs: &Costs, threshold: usize) -> Saving {
    let per_byte = costs.copy_mb as f64 / f64::from(1 << 20);
    let (calls, bytes) = path
        .copies
        .iter()
        .map(|c| elided(c, threshold))
        .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    if calls == 0.0 {
        return Saving::default();
    }
    // Of the last copy's bytes, which the output reads cold.
    let last = path.copies.last().filter(|_| path.outputs > 0.0);
    let gathered = last.map_or(0.0, |c| elided(c, threshold).1);
    let pays = calls * costs.elide as f64
        + path.inputs * costs.input as f64
        + path.outputs * (costs.output + COLD_OUTPUT) as f64
        + gathered * per_byte * COLD_OUTPUT_8THS as f64 / 8.0
        + path.touches * (costs.fault + costs.fill) as f64;
    let ns = bytes * per_byte - pays;
    if ns > 0.0 { Saving { bytes, ns } } else { Saving::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{CLASSES, class};

    fn path(size: usize, copies: usize, touches: f64) -> Path {
        let mut sizes = [0; CLASSES];
        sizes[class(size)] = 1000;
        let bytes = 1000.0 * size as f64;
        let copies = vec![Copy { bytes, sizes, total: bytes }; copies];
        Path { copies, inputs: 1000.0, outputs: 1000.0, bytes, touches }
    }

    #[test]
    fn more_copies_save_more_and_small_or_touched_ones_nothing() {
        let saved = |p: &Path| predict(p, &Costs::REFERENCE, 16 << 10).ns;
        let four = saved(&path(512 << 10, 4, 0.0));
        assert!(four > 3.0 * saved(&path(512 << 10, 1, 0.0)) && four > 0.0);
        assert_eq!(saved(&path(4 << 10, 4, 0.0)), 0.0);
        assert_eq!(saved(&path(512 << 10, 0, 0.0)), 0.0);
        assert_eq!(saved(&path(64 << 10, 1, 16_000.0)), 0.0);
    }

    #[test]
    fn what_ends_in_the_program_is_gathered_by_nobody() {
        let sent = path(512 << 10, 1, 0.0);
        let ended = Path { outputs: 0.0, ..sent.clone() };
        let saved = |p: &Path| predict(p, &Costs::REFERENCE, 16 << 10).ns;
        assert!(saved(&ended) > 1.5 * saved(&sent) && saved(&sent) > 0.0);
    }

    #[test]
    fn no_more_is_elided_than_is_copied() {
        let saved = predict(&path(512 << 10, 2, 0.0), &Costs::REFERENCE, 16 << 10);
        assert!(saved.bytes <= 2.0 * 1000.0 * f64::from(512 << 10), "{saved:?}");
        assert!(saved.bytes > 1.9 * 1000.0 * f64::from(512 << 10), "{saved:?}");
    }
}
