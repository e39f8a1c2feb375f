//! libc's routine and ours, on one near copy: a microsecond or two when a program starts, fifteen
//! where libc's is slow.
//!
//! The decision follows from a measurement of libc's own routine on this processor. Its version,
//! its tunables, what a virtual machine hides of the processor and which one the processor is would
//! all have to be known to foretell it.
//!
//! unsafe: calls both on memory of its own, and reads the processor's clock, which needs no call
//! that a sandbox might forbid.

use crate::choice::Took;
use crate::near::distance;
use crate::routine::{Routine, Vectors, of};
use core::arch::x86_64::{_mm_lfence, _rdtsc};
use core::mem::MaybeUninit;

/// Bytes of the copy: as few as glibc uses `rep movsb` for with its default tunables (2,112, or 4
/// or 8 KB without "fast short `rep movsb`"). On a processor that is slow with it the two take 0.2
/// and 3 us.
const BYTES: usize = 8 << 10;
/// How far ahead the destination begins. Zen 3 is slow from 1 to 31, Zen 4 at all of these but 16
/// (28 times at 8, 1.2 at 16: `uncopy doctor`).
const AHEAD: usize = 8;
/// Copies by each, in turns, of which the fastest counts: who is interrupted or meets a cold cache
/// in one is not in all.
const ROUNDS: usize = 4;

const PAGE: usize = 4096;
type Scratch = [MaybeUninit<u8>; PAGE + 2 * BYTES + AHEAD];

/// The time that such a copy takes, in ticks of the processor's clock.
#[inline(never)]
pub fn near_copy(libc: Routine) -> Took {
    let mut room: Scratch = [const { MaybeUninit::uninit() }; _];
    let room = room.as_mut_ptr().cast::<u8>();
    let from = room.wrapping_add(room.align_offset(PAGE));
    let to = from.wrapping_add(BYTES + AHEAD);
    debug_assert_eq!(distance(to as usize, from as usize), AHEAD);
    let ours = of(Vectors::Sse2);
    let mut took = Took { libc: u64::MAX, ours: u64::MAX };
    for _ in 0..ROUNDS {
        // SAFETY: both lie in the room, apart; and see `ticks`.
        unsafe {
            took.libc = took.libc.min(ticks(libc, to, from, BYTES));
            took.ours = took.ours.min(ticks(ours, to, from, BYTES));
        }
    }
    took
}

/// The time that one copy takes, in ticks.
///
/// # Safety
/// As for `memmove`.
pub unsafe fn ticks(copy: Routine, to: *mut u8, from: *const u8, n: usize) -> u64 {
    // SAFETY: the caller's promise; every processor of this architecture has the clock.
    unsafe {
        _mm_lfence();
        let began = _rdtsc();
        copy(to, from, n);
        _mm_lfence();
        _rdtsc().saturating_sub(began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_routine_that_takes_ten_times_as_long_is_seen_to() {
        /// As `rep movsb` where it is slow: ten times over.
        unsafe extern "C" fn slow(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
            // SAFETY: the caller's promise.
            (0..10).for_each(|_| unsafe {
                of(Vectors::Sse2)(to, from, n);
            });
            to
        }
        let took = near_copy(slow);
        assert!(took.libc > 4 * took.ours, "{took:?}");
    }

    /// Zen 4.
    #[test]
    fn a_routine_that_is_slow_but_at_multiples_of_16_is_seen_to() {
        unsafe extern "C" fn slow(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
            let times =
                if distance(to as usize, from as usize).is_multiple_of(16) { 1 } else { 10 };
            // SAFETY: the caller's promise.
            (0..times).for_each(|_| unsafe {
                of(Vectors::Sse2)(to, from, n);
            });
            to
        }
        let took = near_copy(slow);
        assert!(took.libc > 4 * took.ours, "{took:?}");
    }
}
