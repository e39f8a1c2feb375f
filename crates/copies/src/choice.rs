//! The choice of a routine for near copies. A pure function: what was measured and what the
//! processor has are handed in.
#![forbid(unsafe_code)]

use crate::features::Features;
use crate::routine::Vectors;

/// The routine that was asked for (`--copies`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The routine that is faster here.
    Auto,
    /// libc's routine.
    Libc,
    /// Ours.
    Ours,
}

/// The time that one near copy took, in any unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Took {
    /// The time of libc's routine.
    pub libc: u64,
    /// By ours, with vectors that every processor has.
    pub ours: u64,
}

/// libc's routine is left alone unless it takes more than so many times as long. Where `rep movsb`
/// is slow, it takes ten times as long at the least; elsewhere the two differ by less than this,
/// and so does what a disturbance adds to the fastest of several copies.
pub const DEARER: u64 = 2;

/// The vectors with which our routine makes near copies; `None`: libc's routine makes them.
pub fn choose(
    asked: Asked,
    took: impl FnOnce() -> Took,
    features: impl FnOnce() -> Features,
) -> Option<Vectors> {
    let ours = match asked {
        Asked::Libc => false,
        Asked::Ours => true,
        Asked::Auto => {
            let took = took();
            took.libc > DEARER.saturating_mul(took.ours)
        }
    };
    // (Asked only then: it takes longer than the copies.)
    ours.then(|| features().widest())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Features; 2] = [Features { avx: false }, Features { avx: true }];

    fn chosen(asked: Asked, libc: u64, ours: u64, features: Features) -> Option<Vectors> {
        choose(asked, || Took { libc, ours }, || features)
    }

    #[test]
    fn where_libc_is_as_good_it_stays_whatever_the_processor_has() {
        for features in ALL {
            for (libc, ours) in
                [(200, 300), (300, 300), (300, 200), (400, 200), (0, 0), (5, u64::MAX)]
            {
                assert_eq!(chosen(Asked::Auto, libc, ours, features), None, "{libc} {ours}");
            }
        }
    }

    #[test]
    fn where_libc_is_slow_ours_is_taken_with_the_widest_vectors() {
        for (libc, ours) in [(6_000, 400), (401, 200), (u64::MAX, 7)] {
            assert_eq!(chosen(Asked::Auto, libc, ours, ALL[0]), Some(Vectors::Sse2));
            assert_eq!(chosen(Asked::Auto, libc, ours, ALL[1]), Some(Vectors::Avx));
        }
    }

    #[test]
    fn a_routine_that_was_asked_for_needs_no_measuring() {
        let never = || -> Took { panic!("measured") };
        for features in ALL {
            assert_eq!(choose(Asked::Libc, never, || panic!("asked")), None);
            assert_eq!(choose(Asked::Ours, never, || features), Some(features.widest()));
        }
    }

    #[test]
    fn the_processor_is_not_asked_where_libc_stays() {
        let took = || Took { libc: 1, ours: 1 };
        assert_eq!(choose(Asked::Auto, took, || panic!("asked")), None);
    }
}
