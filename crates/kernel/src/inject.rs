//! Faults on demand: where a test has asked for it (`UNCOPY_INJECT`, see [`uncopy_inject`]),
//! a call of ours answers with an error instead of being made.
//!
//! It is in the library that ships, so that what is tested is what ships. At rest it is one load
//! before a system call.
//!
//! A static: every call asks it, also those of the allocator and of a lock, which have nothing in
//! hand that could lead to it.
//!
//! unsafe: a call with numbers.

use crate::call::syscall4;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use rustix::io::Errno;
use std::sync::OnceLock;
use uncopy_counters::add;
use uncopy_inject::{CALLS, Call, ERRORS, Error, Plan, Point};

/// So many failures in a row of a call that can only be made again are followed by a success.
const MOST_IN_A_ROW: u32 = 50;

struct State {
    times: AtomicU32,
    of: AtomicU32,
    errors: AtomicU32,
    in_a_row: AtomicU32,
}

struct Injector {
    armed: AtomicBool,
    draws: AtomicU64,
    states: [State; CALLS.len()],
    /// At this point, less one, this process stops; 0: nowhere. When it comes there so often.
    stops: AtomicU32,
    stops_after: AtomicU32,
    /// Where it counts.
    injected: OnceLock<&'static AtomicU64>,
}

static INJECTOR: Injector = Injector {
    armed: AtomicBool::new(false),
    draws: AtomicU64::new(0),
    states: [const {
        State {
            times: AtomicU32::new(0),
            of: AtomicU32::new(1),
            errors: AtomicU32::new(0),
            in_a_row: AtomicU32::new(0),
        }
    }; CALLS.len()],
    stops: AtomicU32::new(0),
    stops_after: AtomicU32::new(0),
    injected: OnceLock::new(),
};

/// Begins; `injected` tells how often a call was not made. Before the process has threads.
pub fn arm(plan: &Plan, injected: &'static AtomicU64) {
    let all = &INJECTOR;
    let _ = all.injected.set(injected);
    all.draws.store(plan.seed.wrapping_mul(0x5851_f42d_4c95_7f2d), Relaxed);
    for (state, rule) in all.states.iter().zip(plan.rules) {
        state.times.store(rule.times, Relaxed);
        state.of.store(rule.of.max(1), Relaxed);
        state.errors.store(u32::from(rule.errors), Relaxed);
    }
    if let Some((point, times)) = plan.stop {
        all.stops_after.store(times, Relaxed);
        all.stops.store(point as u32 + 1, Relaxed);
    }
    all.armed.store(plan.rules.iter().any(|r| r.times > 0 && r.errors != 0), Relaxed);
}

/// The error that `call` shall answer this time, if it shall not be made. `whole`: it is of one
/// unit, and cannot be cut short.
#[inline]
pub fn draw(call: Call, whole: bool) -> Option<Error> {
    if INJECTOR.armed.load(Relaxed) { draw_armed(call, whole) } else { None }
}

#[cold]
#[inline(never)]
fn draw_armed(call: Call, whole: bool) -> Option<Error> {
    let state = &INJECTOR.states[call as usize];
    let mut errors = state.errors.load(Relaxed);
    if whole {
        errors &= !(1 << Error::Short as u32);
    }
    let random = mix(INJECTOR.draws.fetch_add(1, Relaxed));
    let (times, of) = (u64::from(state.times.load(Relaxed)), u64::from(state.of.load(Relaxed)));
    if errors == 0 || (random >> 32) % of >= times {
        state.in_a_row.store(0, Relaxed);
        return None;
    }
    let nth = (random as u32) % errors.count_ones();
    let (error, ..) = ERRORS.iter().filter(|e| errors >> e.0 as u32 & 1 != 0).nth(nth as usize)?;
    // A caller that is told these tries again until it is otherwise.
    let transient = CALLS[call as usize].patient
        || matches!((call, error), (Call::Copy | Call::Zeropage, Error::Again | Error::NoMem));
    if transient && state.in_a_row.fetch_add(1, Relaxed) >= MOST_IN_A_ROW {
        state.in_a_row.store(0, Relaxed);
        return None;
    }
    INJECTOR.injected.get().inspect(|count| add(count, 1));
    Some(*error)
}

/// This process has come to `point`.
#[inline]
pub fn point(point: Point) {
    if INJECTOR.stops.load(Relaxed) == point as u32 + 1 {
        stop();
    }
}

#[cold]
#[inline(never)]
fn stop() {
    if INJECTOR.stops_after.fetch_sub(1, Relaxed) == 1 {
        INJECTOR.stops.store(0, Relaxed);
        let process = rustix::process::getpid().as_raw_pid() as usize;
        let thread = rustix::thread::gettid().as_raw_pid() as usize;
        let (number, signal) = (libc::SYS_tgkill as usize, libc::SIGSTOP as usize);
        // SAFETY: a call with numbers. (To this thread, so that it goes no further.)
        unsafe { syscall4(number, process, thread, signal, 0) };
    }
}

/// splitmix64's last step.
fn mix(n: u64) -> u64 {
    let z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Its number, as rustix has it.
pub fn errno(error: Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

/// Whether `call` may be made.
///
/// # Errors
/// The error that a test asked for.
#[inline]
pub fn check(call: Call) -> Result<(), Errno> {
    match draw(call, true) {
        Some(error) => Err(errno(error)),
        None => Ok(()),
    }
}
