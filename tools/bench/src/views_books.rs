//! The tracker's books among many views, on memory that does not exist.

use std::time::{Duration, Instant};

use uncopy_measure::tracker_alone::TrackerAlone;
use uncopy_measure::{Failure, failure};

/// Bytes of each of the live views.
pub const VIEW: usize = 16 << 10;
/// Destinations that are copied to in turns.
const DESTINATIONS: usize = 4;
/// Where nothing of the doctor's lies.
const BASE: usize = 1 << 42;
const FAR: usize = 1 << 40;
const SAMPLES: usize = 15;

/// Nanoseconds of a copy of each of `sizes` with `views` views alive, in samples.
pub fn measure(views: usize, sizes: &[usize]) -> Result<Vec<Vec<f64>>, Failure> {
    let mut books = TrackerAlone::new();
    for i in 0..views {
        books.copy(BASE + i * VIEW, BASE - VIEW, VIEW);
    }
    let mut results = Vec::new();
    for (nth, &size) in sizes.iter().enumerate() {
        let before = books.elided();
        let apart = (2 * size).next_multiple_of(4096);
        let place = |kind: usize| BASE + (1 + nth) * FAR + kind * apart;
        let mut turn = 0;
        let mut copies = 0;
        let mut round = |books: &mut TrackerAlone| {
            let source = place(turn % 2);
            turn += 1;
            for i in 0..DESTINATIONS {
                books.copy(place(2 + i), source, size);
                copies += 1;
            }
        };
        for _ in 0..4 {
            round(&mut books);
        }
        let samples = sample(|| round(&mut books), DESTINATIONS);
        if books.elided() - before != copies {
            return Err(failure!("the simulated tracker did not elide every copy of {size} bytes"));
        }
        results.push(samples);
    }
    Ok(results)
}

/// Nanoseconds of each of the `parts` parts of `work`, from batches of at least 200 us.
pub fn sample(mut work: impl FnMut(), parts: usize) -> Vec<f64> {
    let mut time = |calls: u32| {
        let start = Instant::now();
        (0..calls).for_each(|_| work());
        start.elapsed()
    };
    let mut calls = 1;
    while time(calls) < Duration::from_micros(200) {
        calls *= 2;
    }
    let each = f64::from(calls) * parts as f64;
    (0..SAMPLES).map(|_| time(calls).as_nanos() as f64 / each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_among_a_thousand_views_is_elided_and_takes_time() {
        let results = measure(1000, &[16 << 10, 1 << 20]).unwrap();
        assert_eq!(results.len(), 2);
        assert!(results.iter().flatten().all(|ns| *ns > 0.0));
    }
}
