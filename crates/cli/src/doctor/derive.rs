//! From measurements to the prices of the cost model.

use uncopy_decide::Costs;

use super::measured::{Measured, Work, find};

const PAGE: usize = 4 << 10;
const MB: usize = 1 << 20;

/// How each price comes about, in the order of the fields.
pub const HOW: [(&str, &str); 18] = [
    ("copy_mb", "1 MB: half hot, half cold"),
    ("again", "the reference's, as much dearer as the books are here"),
    ("elide", "the same"),
    ("look", "the same"),
    ("input", "the same"),
    ("output", "the same"),
    ("fault", "a fault on another core (or the same, if there is one only) less its page"),
    ("fault_near", "a fault on the same core less its page"),
    ("fill", "the 15 further pages of a fault with 16 around, each, on the same core"),
    ("fresh", "first touch of 64K, each page"),
    ("move_pages", "UFFDIO_MOVE of 64K less its pages"),
    ("move_page", "the 112 further pages of UFFDIO_MOVE of 512K, each"),
    ("register", "UFFDIO_REGISTER"),
    ("refused", "the reference's: not measured"),
    ("send_mb", "what sending 1 MB by reference saves over 64K, each page, and what that costs"),
    ("lend", "what sending 1 MB by reference saves less than that says"),
    ("lend_page", "the reference's: not measured"),
    ("drop_page", "first touch of 64K, each page, and a little"),
];

/// How cold a program's copies are. An elided MB saves the echo server of the README 55 to 75 us
/// where one takes 20 us hot and 65 cold, and aiohttp, which copies what it received a moment ago,
/// hardly more than a hot one: between them.
const COLD: f64 = 0.5;

/// Copying 1 MB.
fn copying(results: &[Measured]) -> Option<f64> {
    let found = |work| find(results, work, MB);
    Some((1.0 - COLD) * found(Work::CopyHot)? + COLD * found(Work::CopyCold)?)
}

/// A page that the kernel provides anew.
fn fresh(results: &[Measured]) -> Option<f64> {
    Some(find(results, Work::FirstTouch, 64 << 10)? / 16.0)
}

/// A page that a fault fills: on the same core, where nothing but the pages differs.
fn fill(results: &[Measured]) -> Option<f64> {
    let faults = |pages| find(results, Work::FaultSameCore, pages * PAGE);
    Some((faults(16)? - faults(1)?) / 15.0)
}

/// A fault less its page; with one core the one on it.
fn fault(results: &[Measured]) -> Option<f64> {
    let found = |work| find(results, work, PAGE);
    Some(found(Work::FaultOtherCore).or_else(|| found(Work::FaultSameCore))? - fill(results)?)
}

/// The prices of copies, new pages and faults as far as they were measured; all others are the
/// reference machine's.
pub fn some_costs(results: &[Measured]) -> Costs {
    let reference = Costs::REFERENCE;
    let price = |ns: Option<f64>, known| ns.map_or(known, |ns| plausible(ns, known));
    Costs {
        copy_mb: price(copying(results), reference.copy_mb),
        fault: price(fault(results), reference.fault),
        fill: price(fill(results), reference.fill),
        fresh: price(fresh(results), reference.fresh),
        ..reference
    }
}

/// The prices; nothing where a measurement that they need is missing.
pub fn costs(results: &[Measured]) -> Option<Costs> {
    let found = |work, bytes| find(results, work, bytes);
    let reference = Costs::REFERENCE;
    let scaled = |price: i64, work: Work| {
        let (here, there) = (found(work, 0)?, work.reference(0)?);
        Some(plausible(price as f64 * here / there, price))
    };
    let (copy_mb, fresh, fill) = (copying(results)?, fresh(results)?, fill(results)?);
    let near = found(Work::FaultSameCore, PAGE)? - fill;
    let moved = found(Work::Move, 64 << 10)?;
    let move_page = (found(Work::Move, 512 << 10)? - moved) / 112.0;
    // (With one core, or without a loopback device, sending is not measured.)
    let saved = saves(results, Work::Send, Work::SendByReference, MB);
    let saved_small = saves(results, Work::Send, Work::SendByReference, 64 << 10);
    let saved_further =
        saved.zip(saved_small).map(|(large, small)| (large - small) / 240.0 * 256.0);
    let sending_scaled = reference.send_mb as f64 * copy_mb / reference.copy_mb as f64;
    let lend_pages = (reference.lend_page * (MB / PAGE) as i64) as f64;
    Some(Costs {
        copy_mb: plausible(copy_mb, reference.copy_mb),
        again: scaled(reference.again, Work::BooksAgain)?,
        elide: scaled(reference.elide, Work::BooksElide)?,
        look: scaled(reference.look, Work::BooksLook)?,
        input: scaled(reference.input, Work::BooksInput)?,
        output: scaled(reference.output, Work::BooksOutput)?,
        fault: plausible(fault(results)?, reference.fault),
        fault_near: plausible(near, reference.fault_near),
        fill: plausible(fill, reference.fill),
        fresh: plausible(fresh, reference.fresh),
        move_pages: plausible(moved - 16.0 * move_page, reference.move_pages),
        move_page: plausible(move_page, reference.move_page),
        register: plausible(found(Work::Register, 64 << 10)?, reference.register),
        refused: reference.refused,
        send_mb: plausible(
            saved_further.map_or(sending_scaled, |saved| saved + lend_pages),
            reference.send_mb,
        ),
        lend: plausible(
            saved_further.zip(saved).map_or(reference.lend as f64, |(pages, all)| pages - all),
            reference.lend,
        ),
        lend_page: reference.lend_page,
        drop_page: plausible(fresh + 100.0, reference.drop_page),
    })
}

/// The saving of sending `bytes` by reference.
fn saves(results: &[Measured], copied: Work, by_reference: Work, bytes: usize) -> Option<f64> {
    Some(find(results, copied, bytes)? - find(results, by_reference, bytes)?)
}

/// How far from the reference machine's a price may be. Machines differ less; what is measured
/// further away is noise (faults wait for milliseconds where others want the core), and would
/// decide alone what is elided until it is measured anew.
pub const FURTHEST: i64 = 4;

/// Whole ns, not too far from `reference`.
fn plausible(ns: f64, reference: i64) -> i64 {
    (ns.round() as i64).clamp(reference / FURTHEST, reference * FURTHEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::measured::SIZES;

    fn reference_machine() -> Vec<Measured> {
        use Work::*;
        let sized = [CopyHot, CopyCold, FirstTouch, Move, FaultOtherCore, FaultSameCore];
        let books = [BooksAgain, BooksElide, BooksLook, BooksInput, BooksOutput];
        let sized = sized.into_iter().flat_map(|work| SIZES.map(|bytes| (work, bytes)));
        let mut results: Vec<Measured> = sized
            .chain(books.map(|work| (work, 0)))
            .map(|(work, bytes)| Measured { work, bytes, ns: work.reference(bytes).unwrap() })
            .collect();
        results.push(Measured { work: Register, bytes: 64 << 10, ns: 1_500.0 });
        results
    }

    #[test]
    fn the_reference_machine_has_nearly_the_reference_costs() {
        let mut results = reference_machine();
        // These as they were when the prices were found; the table's are older.
        for m in &mut results {
            match (m.work, m.bytes) {
                (Work::CopyHot, MB) => m.ns = 20_000.0,
                (Work::CopyCold, MB) => m.ns = 63_000.0,
                (Work::Move, 0x80000) => m.ns = 9_600.0,
                _ => {}
            }
        }
        let costs = costs(&results).unwrap();
        for ((name, here), (_, there)) in costs.iter().zip(Costs::REFERENCE.iter()) {
            let ratio = here as f64 / there as f64;
            assert!((0.8..1.25).contains(&ratio), "{name}: {here}, not {there}");
        }
    }

    #[test]
    fn with_one_core_the_fault_is_the_one_on_it() {
        let mut results = reference_machine();
        results.retain(|m| m.work != Work::FaultOtherCore);
        let costs = costs(&results).unwrap();
        assert!((2_000..4_000).contains(&costs.fault), "{}", costs.fault);
    }

    #[test]
    fn noise_moves_no_price_far_away() {
        let mut results = reference_machine();
        for m in &mut results {
            m.ns *= if m.work == Work::FaultOtherCore { 1000.0 } else { 0.001 };
        }
        let costs = costs(&results).unwrap();
        assert_eq!((costs.fault, costs.fill, costs.again), (44_000, 250, 30));
    }

    #[test]
    fn sending_is_priced_by_what_sending_by_reference_saves() {
        let mut results = reference_machine();
        let mut put = |work, bytes, ns| results.push(Measured { work, bytes, ns });
        // (500 ns a page, less 8,000.)
        put(Work::Send, 64 << 10, 20_000.0);
        put(Work::SendByReference, 64 << 10, 20_000.0);
        put(Work::Send, MB, 250_000.0);
        put(Work::SendByReference, MB, 130_000.0);
        let costs = costs(&results).unwrap();
        assert_eq!((costs.send_mb, costs.lend), (143_360, 8_000));
        assert_eq!(costs.lend_from(), 17 * PAGE);
    }

    #[test]
    fn without_faults_there_are_no_costs() {
        let mut results = reference_machine();
        results.retain(|m| m.bytes != PAGE);
        assert_eq!(costs(&results), None);
    }

    #[test]
    fn an_event_that_was_not_measured_costs_what_it_does_on_the_reference_machine() {
        let mut results = reference_machine();
        let all = costs(&results).unwrap();
        let Costs { copy_mb, fault, fill, fresh, .. } = all;
        assert_eq!(some_costs(&results), Costs { copy_mb, fault, fill, fresh, ..Costs::REFERENCE });
        results.retain(|m| m.work != Work::FaultSameCore);
        assert_eq!(some_costs(&results), Costs { copy_mb, fresh, ..Costs::REFERENCE });
        assert_eq!(some_costs(&[]), Costs::REFERENCE);
    }

    #[test]
    fn every_price_says_how_it_comes_about() {
        let names: Vec<&str> = Costs::REFERENCE.iter().map(|(name, _)| name).collect();
        assert_eq!(HOW.map(|(name, _)| name).to_vec(), names);
    }
}
