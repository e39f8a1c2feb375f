//! Threads that are cancelled while they wait for a ring. Libc does not know the system calls in
//! which they sleep, so the signal by which it cancels only interrupts them; where they then hold
//! nothing they ask it whether they are to end. And a signal that came just before the sleep is not
//! missed, because the thread that is to end is written down, and all sleepers are woken after.
//!
//! Statics: `pthread_cancel` is given nothing but a thread.
//!
//! unsafe: see the crate.

use crate::process::PROCESS;
use crate::real;
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use core::sync::atomic::{AtomicU64, AtomicUsize};

/// Threads that were cancelled lately and have not heard of it; zero: nobody. (More at once are
/// interrupted too, but for the moment before they sleep.)
static TO_END: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
/// Which of them is the next one's. Threads may end otherwise and stay written down.
static NEXT: AtomicUsize = AtomicUsize::new(0);

fn own() -> u64 {
    // SAFETY: always valid.
    unsafe { libc::pthread_self() as u64 }
}

/// This thread was cancelled, and is to hear of it now.
pub fn is_to_end() -> bool {
    NEXT.load(Relaxed) != 0 && is_written_down(own())
}

#[cold]
fn is_written_down(own: u64) -> bool {
    if !TO_END.iter().any(|thread| thread.load(Relaxed) == own) {
        return false;
    }
    const ENABLED: c_int = 0;
    const DISABLED: c_int = 1;
    let mut state = DISABLED;
    // SAFETY: libc's. (It says what the state was; then that is put back.)
    unsafe {
        real::pthread_setcancelstate(DISABLED, &mut state);
        if state == ENABLED {
            real::pthread_setcancelstate(ENABLED, core::ptr::null_mut());
        }
    }
    if state != ENABLED {
        // It sleeps on, and hears of it where it makes the next call after it has changed its mind.
        strike_out(own);
    }
    state == ENABLED
}

fn strike_out(own: u64) {
    for thread in &TO_END {
        let _ = thread.compare_exchange(own, 0, AcqRel, Relaxed);
    }
}

/// This thread ends here if it was cancelled: nothing of ours may be held.
#[cold]
pub fn point() {
    strike_out(own());
    // SAFETY: libc's. (Where the thread does not want to be cancelled now it comes back.)
    unsafe { real::pthread_testcancel() }
}

/// `pthread_cancel(3)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cancel(thread: libc::pthread_t) -> c_int {
    // SAFETY: the program's own argument.
    let result = unsafe { real::pthread_cancel(thread) };
    // After libc knows: a thread that finds itself here asks it.
    TO_END[NEXT.fetch_add(1, Relaxed) % TO_END.len()].store(thread, SeqCst);
    PROCESS.tcp.thread_cancelled();
    result
}
