//! The savings that uncopy would bring, from the prices of its policy ([`Costs`]).
//!
//! As the policy decides, for each call site and size class: what is elided earns what copying it
//! would have cost; books and faults pay, and where they pay more the site is left alone
//! ([`elided_shares`]). (The policy has faults weigh four times as much, and credits what its
//! experiment finds beyond prices: neither is known here, and they pull in opposite directions.)
//! Faults are those of the place that the copy put its bytes at, and of no other: a parser that
//! looks at the last of twenty copies has the last site rest, not the other nineteen. Bytes that
//! were copied after all are the program's own from there on, so what copies them further elides
//! nothing of them.
//!
//! Then, for each path, what that saves ([`predict`]). Left out: pages that the twin allocator
//! recycles instead of having them faulted in (a gain), copies of what has left the cache (they
//! cost three times what is reckoned here), and what happens before the steady state (a loss).

use std::collections::{BTreeMap, BTreeSet};

use super::layout::{Sizes, Step, class_start};
use uncopy_decide::{COLD_OUTPUT, COLD_OUTPUT_8THS, Costs, WARM_8THS};
use uncopy_ranges::span::PAGE;

/// Pages that one fault fills where pages are touched in order: each fills twice as many as the
/// one before, up to 64.
const AROUND: f64 = 16.0;
/// Copies of 1 MB and more are of one size class: its number.
const LARGEST: usize = 12;

/// One node of the program's copies, as far as decisions go.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// The step that it adds to the node before.
    pub step: Step,
    /// The number of that node, which is smaller; its own: there is none.
    pub parent: usize,
    /// Of a copy: the number of its call site.
    pub site: usize,
    /// Copies by size class.
    pub sizes: Sizes,
    /// Their bytes.
    pub bytes: f64,
    /// Share of these whose pages the program touches where they were copied to.
    pub touched: f64,
}

/// The sites that are left alone, with the size class.
type Resting = BTreeSet<(usize, usize)>;

impl Copied {
    /// Calls and bytes by size class, of those that are large enough.
    fn large(&self, threshold: usize) -> impl Iterator<Item = (usize, f64, f64)> {
        let all = classes(&self.sizes, self.bytes);
        all.filter(move |(class, ..)| class_start(*class) >= threshold as u64)
            .map(|(class, calls, mean)| (class.min(LARGEST), calls, calls * mean))
    }
}

/// The part of so many bytes of so many copies that is not copied: a page of each is lost at the
/// ends.
fn without_ends(bytes: f64, calls: f64) -> f64 {
    (bytes - calls * PAGE as f64).max(0.0)
}

/// Size classes with calls, how many, and the mean size of each. (Within their classes all are
/// taken to be larger than the smallest alike.)
fn classes(sizes: &Sizes, bytes: f64) -> impl Iterator<Item = (usize, f64, f64)> + use<> {
    let sizes = *sizes;
    let least: f64 = sizes.iter().enumerate().map(|(c, n)| class_start(c) as f64 * *n as f64).sum();
    let larger = if least > 0.0 { bytes / least } else { 0.0 };
    let some = sizes.into_iter().enumerate().filter(|(_, n)| *n > 0);
    some.map(move |(c, n)| (c, n as f64, class_start(c) as f64 * larger))
}

/// The cost of touching `bytes` of views, `share` of whose pages are touched, in ns.
fn touching(bytes: f64, share: f64, costs: &Costs) -> f64 {
    let pages = bytes * share / PAGE as f64;
    let around = 1.0 + share * (AROUND - 1.0);
    pages * (costs.fault as f64 / around + costs.fill as f64)
}

/// The cost of copying a byte, in ns.
fn per_byte(costs: &Costs) -> f64 {
    costs.copy_mb as f64 / f64::from(1 << 20)
}

/// Of each node the share of its bytes that become views, their ends included: of an input all.
pub fn elided_shares(nodes: &[Copied], costs: &Costs, threshold: usize) -> Vec<f64> {
    let mut resting = Resting::new();
    loop {
        let shares = shares(nodes, &resting, threshold);
        let mut accounts: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for node in nodes.iter().filter(|node| node.step == Step::Copy) {
            for (class, calls, bytes) in node.large(threshold) {
                let earns = without_ends(bytes, calls) * per_byte(costs);
                let pays = calls * costs.elide as f64 + touching(bytes, node.touched, costs);
                *accounts.entry((node.site, class)).or_default() +=
                    shares[node.parent] * (earns - pays);
            }
        }
        let before = resting.len();
        resting.extend(accounts.into_iter().filter(|(_, ns)| *ns < 0.0).map(|(key, _)| key));
        if resting.len() == before {
            return shares;
        }
    }
}

fn shares(nodes: &[Copied], resting: &Resting, threshold: usize) -> Vec<f64> {
    let mut shares = vec![0.0; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        let before = if node.parent < i { shares[node.parent] } else { 0.0 };
        let elided = |(class, _, _): &(usize, f64, f64)| !resting.contains(&(node.site, *class));
        let own = || node.large(threshold).filter(elided).map(|(_, _, bytes)| bytes).sum::<f64>();
        shares[i] = match node.step {
            Step::Input => 1.0,
            Step::Rest => before,
            Step::Copy if node.bytes > 0.0 => before * (own() / node.bytes).clamp(0.0, 1.0),
            _ => 0.0,
        };
    }
    shares
}

/// One copy of a path.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// Bytes of the path that it copies.
    pub bytes: f64,
    /// Copies by size class, of this path and others that share the sequence so far.
    pub sizes: Sizes,
    /// Bytes of all those.
    pub total: f64,
    /// Share of them that become views ([`elided_shares`]).
    pub elided: f64,
    /// Share of them whose pages are touched where they were copied to.
    pub touched: f64,
}

/// The facts of a path.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// Its copies.
    pub copies: Vec<Copy>,
    /// Input calls.
    pub inputs: f64,
    /// Share of the bytes whose pages are touched where they arrived.
    pub touched: f64,
    /// Output calls; none where the data ends in the program.
    pub outputs: f64,
    /// Bytes that leave, or end.
    pub bytes: f64,
}

/// The saving; nothing, where the policy would leave the path alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Saving {
    /// Bytes that are not copied.
    pub bytes: f64,
    /// CPU time, ns.
    pub ns: f64,
}

/// Predicts for one path.
pub fn predict(path: &Path, costs: &Costs, threshold: usize) -> Saving {
    let (mut saved, mut pays) = (0.0, 0.0);
    // Of the copy before: bytes that are views of what arrived.
    let mut views: Option<f64> = None;
    for copy in &path.copies {
        let bytes = copy.bytes * copy.elided;
        let calls = bytes / mean_of_large(copy, threshold).max(PAGE as f64);
        saved += without_ends(bytes, calls);
        pays += calls * costs.elide as f64 + touching(bytes, copy.touched, costs);
        // Bytes that are copied out of an extent are not in the cache, as a copy of them would be.
        let out = views.map_or(0.0, |before| (before - bytes).max(0.0));
        pays += out * per_byte(costs) * WARM_8THS as f64 / 8.0;
        views = Some(bytes);
    }
    let first = path.copies.first().map_or(0.0, |copy| copy.elided);
    if saved <= 0.0 {
        return Saving::default();
    }
    // Of the last copy's bytes, which the output reads cold.
    let gathered = views.filter(|_| path.outputs > 0.0).unwrap_or_default();
    let last = path.copies.last().map_or(0.0, |copy| copy.elided);
    pays += path.inputs * costs.input as f64
        + touching(path.bytes * first, path.touched, costs)
        + last * path.outputs * (costs.output + COLD_OUTPUT) as f64
        + gathered * per_byte(costs) * COLD_OUTPUT_8THS as f64 / 8.0;
    let ns = saved * per_byte(costs) - pays;
    if ns > 0.0 { Saving { bytes: saved, ns } } else { Saving::default() }
}

/// The mean size of the copies that are large enough, in bytes; 0: there are none.
fn mean_of_large(copy: &Copy, threshold: usize) -> f64 {
    let large = classes(&copy.sizes, copy.total)
        .filter(|(class, ..)| class_start(*class) >= threshold as u64)
        .fold((0.0, 0.0), |(n, bytes), (_, calls, mean)| (n + calls, bytes + calls * mean));
    if large.0 > 0.0 { large.1 / large.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{CLASSES, class};

    const THRESHOLD: usize = 16 << 10;
    const COSTS: &Costs = &Costs::REFERENCE;

    /// An input and copies of all of it, one after the other, 1,000 times: each at a site of its
    /// own, where a share of its pages is touched.
    fn nodes(size: usize, touched: &[f64]) -> Vec<Copied> {
        let mut sizes = [0; CLASSES];
        sizes[class(size)] = 1000;
        let bytes = 1000.0 * size as f64;
        let input = Copied { step: Step::Input, parent: 0, site: 0, sizes, bytes, touched: 0.0 };
        let mut nodes = vec![input];
        for (i, touched) in touched.iter().copied().enumerate() {
            nodes.push(Copied { step: Step::Copy, parent: i, site: i + 1, touched, ..input });
        }
        nodes
    }

    /// The path of all these copies.
    fn path(size: usize, touched: &[f64]) -> Path {
        let nodes = nodes(size, touched);
        let shares = elided_shares(&nodes, COSTS, THRESHOLD);
        let copies = nodes[1..].iter().zip(&shares[1..]).map(|(node, elided)| {
            let Copied { bytes, sizes, touched, .. } = *node;
            Copy { bytes, sizes, total: bytes, elided: *elided, touched }
        });
        let bytes = nodes[0].bytes;
        Path { copies: copies.collect(), inputs: 1000.0, touched: 0.0, outputs: 1000.0, bytes }
    }

    fn saved(path: &Path) -> Saving {
        predict(path, COSTS, THRESHOLD)
    }

    #[test]
    fn more_copies_save_more_and_small_or_touched_ones_nothing() {
        let ns = |size, touched: &[f64]| saved(&path(size, touched)).ns;
        let four = ns(512 << 10, &[0.0; 4]);
        assert!(four > 3.0 * ns(512 << 10, &[0.0]) && four > 0.0);
        assert_eq!(ns(4 << 10, &[0.0; 4]), 0.0);
        assert_eq!(ns(512 << 10, &[]), 0.0);
        assert_eq!(ns(64 << 10, &[1.0]), 0.0);
    }

    #[test]
    fn a_copy_that_is_touched_is_made_and_those_before_it_are_not() {
        let shares = |touched: &[f64]| elided_shares(&nodes(64 << 10, touched), COSTS, THRESHOLD);
        let [_, first, second, third] = shares(&[0.0, 0.0, 1.0])[..] else { panic!() };
        assert!(first == 1.0 && second == 1.0 && third == 0.0, "{first} {second} {third}");
        // Bytes that were copied after all are not input any more.
        assert_eq!(shares(&[1.0, 0.0, 0.0])[1..], [0.0; 3]);
        let touched = saved(&path(1 << 20, &[0.0, 1.0]));
        assert!(touched.bytes > 900.0 * f64::from(1 << 20) && touched.ns > 0.0, "{touched:?}");
    }

    #[test]
    fn one_site_decides_for_all_its_copies_of_a_size_and_for_no_other_size() {
        // (Both copies are made at one site; the second one is touched.)
        let mut same = nodes(64 << 10, &[0.0, 1.0]);
        same[2].site = same[1].site;
        assert_eq!(elided_shares(&same, COSTS, THRESHOLD)[1..], [0.0; 2]);
        same[2].sizes = [0; CLASSES];
        same[2].sizes[class(32 << 10)] = 2000;
        let shares = elided_shares(&same, COSTS, THRESHOLD);
        assert!(shares[1] == 1.0 && shares[2] == 0.0, "{shares:?}");
    }

    #[test]
    fn bytes_that_end_in_the_program_are_gathered_by_nobody() {
        let sent = path(512 << 10, &[0.0]);
        let ended = Path { outputs: 0.0, ..sent.clone() };
        assert!(saved(&ended).ns > 1.5 * saved(&sent).ns && saved(&sent).ns > 0.0);
    }

    #[test]
    fn no_more_is_elided_than_is_copied() {
        let saved = saved(&path(512 << 10, &[0.0; 2]));
        assert!(saved.bytes <= 2.0 * 1000.0 * f64::from(512 << 10), "{saved:?}");
        assert!(saved.bytes > 1.9 * 1000.0 * f64::from(512 << 10), "{saved:?}");
    }
}
