//! Workload proportionality (TAS, 3.2.4): how many threads of the fast path run follows from how
//! idle they are together.

use core::time::Duration;

/// Less idle than this in sum, in cores: one more is added (the dissertation's).
const ADD_BELOW: f64 = 0.2;
/// More idle than this: one is taken away (the dissertation's).
const REMOVE_ABOVE: f64 = 1.25;

/// So long they are observed between two decisions. The dissertation has no number. Ten times the
/// quiet after which a thread sleeps: so a pause that ends a thread's work is seen as one.
pub const OBSERVED: Duration = Duration::from_millis(100);

/// How many threads should run, of `most`, when those that run now (`active`) were idle for these
/// shares of the time.
pub fn wanted(active: usize, most: usize, idle: impl Iterator<Item = f64>) -> usize {
    let idle: f64 = idle.take(active).map(|share| share.clamp(0.0, 1.0)).sum();
    if idle < ADD_BELOW {
        (active + 1).min(most)
    } else if idle > REMOVE_ABOVE {
        (active - 1).max(1)
    } else {
        active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(active: usize, most: usize, idle: &[f64]) -> usize {
        wanted(active, most, idle.iter().copied())
    }

    #[test]
    fn a_core_comes_when_nearly_nothing_is_idle_and_goes_when_more_than_one_is() {
        assert_eq!(next(1, 4, &[0.1]), 2);
        assert_eq!(next(2, 4, &[0.1, 0.09]), 3);
        assert_eq!(next(2, 4, &[0.1, 0.11]), 2);
        assert_eq!(next(3, 4, &[0.4, 0.4, 0.46]), 2);
        assert_eq!(next(3, 4, &[0.4, 0.4, 0.44]), 3);
        // Those that do not run do not count.
        assert_eq!(next(1, 4, &[0.3, 1.0, 1.0, 1.0]), 1);
    }

    #[test]
    fn never_less_than_one_nor_more_than_there_are() {
        assert_eq!(next(1, 4, &[1.0]), 1);
        assert_eq!(next(4, 4, &[0.0; 4]), 4);
    }

    #[test]
    fn a_constant_load_comes_to_rest() {
        for tenths in 0..40 {
            let load = f64::from(tenths) / 10.0;
            let mut active = 1;
            let mut seen = Vec::new();
            for _ in 0..20 {
                let idle = (1.0 - load / active as f64).max(0.0);
                active = wanted(active, 4, std::iter::repeat(idle));
                seen.push(active);
            }
            assert!(seen[10..].iter().all(|&n| n == active), "load {load}: {seen:?}");
            assert!(active as f64 >= load, "load {load}: {active}");
        }
    }
}
