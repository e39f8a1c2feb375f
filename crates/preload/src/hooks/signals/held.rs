//! Signals of which our entry stands in the kernel whatever the program has for them.
//!
//! unsafe: see the crate.

use super::entry::{entry, stop_holding};
use super::table;
use super::table::{
    ADDRESS, DUMPING, ENDING, HANDLERS, HELD, MARKED, ONCE, bit, borrowed, entered, fault_of,
    locked, note, set_mask,
};
use crate::real;
use core::ffi::c_int;
use core::sync::atomic::{Ordering, Ordering::Relaxed};
use libc::{
    SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_SIGINFO, SIG_DFL, SIG_IGN, sigaction as Sigaction,
};
use uncopy_kernel::critical::SIGNALS;
use uncopy_kernel::user_access;

/// Our entry, where the program says `said`: what stands in our table, and what the kernel gets.
pub(in crate::hooks) fn through_us(said: &Sigaction, held: bool) -> (usize, Sigaction) {
    let mut action = *said;
    action.sa_sigaction = entry as *const () as usize;
    if said.sa_sigaction == SIG_DFL {
        // On the alternate stack, as a stack that is used up has no room; and nothing comes
        // between.
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        set_mask(&mut action, !0);
        return (SIG_DFL, action);
    }
    if held {
        // The signal's cause must be known, and our entry stay.
        action.sa_flags |= SA_SIGINFO;
        action.sa_flags &= !SA_RESETHAND;
    }
    // (One that may be interrupted by the same signal must be counted.)
    let marks = match said.sa_flags {
        f if f & SA_RESETHAND != 0 => MARKED | ONCE,
        f if f & SA_NODEFER != 0 => MARKED,
        _ => 0,
    };
    (said.sa_sigaction | marks, action)
}

/// Holds the signals of `mask`. Returns false where that is not for us to do.
fn hold(mask: u64) -> bool {
    if !entered() || borrowed() {
        return false;
    }
    locked(|| {
        for signal in (1..SIGNALS as c_int).filter(|s| mask & bit(*s) != 0) {
            if HELD.load(Relaxed) & bit(signal) == 0 {
                // SAFETY: with the lock held; a signal that there is.
                unsafe { hold_one(signal) };
            }
        }
    });
    true
}

unsafe fn hold_one(signal: c_int) {
    // SAFETY: what the kernel has, entered through us.
    unsafe {
        let mut now: Sigaction = core::mem::zeroed();
        if real::of_libc::sigaction(signal, core::ptr::null(), &mut now) != 0 {
            return;
        }
        if now.sa_sigaction == SIG_IGN {
            HELD.fetch_or(bit(signal), Relaxed);
            return;
        }
        let word = &HANDLERS[signal as usize];
        if now.sa_sigaction == entry as *const () as usize {
            now.sa_sigaction = word.load(Relaxed) & ADDRESS;
        } else if now.sa_sigaction != SIG_DFL {
            // Installed past us: the program's own, and ours to be left alone.
            return;
        }
        note(signal, &now, false);
        let (handler, action) = through_us(&now, true);
        word.store(handler, Ordering::Release);
        HELD.fetch_or(bit(signal), Ordering::SeqCst);
        if real::of_libc::sigaction(signal, &action, core::ptr::null_mut()) == 0
            && let Some(fault) = fault_of(signal)
        {
            user_access::is_caught(fault, true);
        }
    }
}

/// The program's pointers are going to be read. Returns false where this process cannot prepare for
/// that.
pub fn catch_faults() -> bool {
    hold(bit(libc::SIGSEGV) | bit(libc::SIGBUS))
}

/// From now on pages may be unmapped, which a core would lack.
pub fn hold_dumping() {
    hold(DUMPING.iter().fold(0, |mask, signal| mask | bit(*signal)));
}

/// There is something to be said when the program is ended by a signal. (Not where it is the first
/// process of its namespace: the kernel ends that one by no signal with a default action.)
pub fn hold_ending() {
    // SAFETY: a plain question.
    if unsafe { libc::getpid() } != 1 {
        hold(ENDING.iter().fold(0, |mask, signal| mask | bit(*signal)));
    }
}

/// Gives all default actions back to the kernel: the program enters a sandbox, which may forbid
/// what ours takes.
pub fn let_all_go() {
    if borrowed() {
        return;
    }
    user_access::no_calls();
    locked(|| {
        for signal in (1..SIGNALS as c_int).filter(|s| HELD.load(Relaxed) & bit(*s) != 0) {
            if HANDLERS[signal as usize].load(Relaxed) == SIG_DFL {
                fault_of(signal).into_iter().for_each(|f| user_access::is_caught(f, false));
                // SAFETY: with the lock held.
                unsafe { stop_holding(signal) };
                HELD.fetch_and(!bit(signal), Relaxed);
            }
        }
    });
    table::disown();
}
