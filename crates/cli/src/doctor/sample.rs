//! Medians of short samples: other programs on the machine disturb a few of them.

use std::time::{Duration, Instant};

use uncopy_measure::medians::median;

/// The time that one measurement may take.
const SLICE: Duration = Duration::from_millis(40);
const MOST: usize = 101;
/// However long they take.
const LEAST: usize = 5;

/// The median of what `sample` answers, in ns; the first sample warms up and does not count.
pub fn of(sample: impl FnMut() -> f64) -> f64 {
    of_at_most(MOST, sample)
}

/// The same, of at most so many samples.
pub fn of_at_most(most: usize, mut sample: impl FnMut() -> f64) -> f64 {
    let end = Instant::now() + SLICE;
    sample();
    let mut samples = Vec::with_capacity(most);
    while samples.len() < LEAST || samples.len() < most && Instant::now() < end {
        samples.push(sample());
    }
    median(samples)
}

/// Time of `work`, in ns.
pub fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

/// Time of one of `times` runs of `work`, in ns.
pub fn time_of_each(times: usize, mut work: impl FnMut()) -> f64 {
    time(|| (0..times).for_each(|_| work())) / times as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_sample_and_the_first_one_do_not_show() {
        let mut n = 0;
        let result = of(|| {
            n += 1;
            if n == 1 || n % 7 == 0 { 1e9 } else { 10.0 }
        });
        assert_eq!((result, n), (10.0, MOST + 1));
        let mut n = 0;
        of_at_most(LEAST + 1, || {
            n += 1;
            10.0
        });
        assert_eq!(n, LEAST + 2);
    }
}
