//! The older calls that install handlers, each by `sigaction`; as they are, where handlers do not
//! go through us.
//!
//! A static: libc keeps the same word for `siginterrupt`.
//!
//! unsafe: see the crate.

use super::action::sigaction;
use super::table::entered;
use crate::real;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use libc::{SIG_ERR, SIG_IGN, sigaction as Sigaction};

unsafe fn install(signal: c_int, handler: usize, flags: c_int, block_itself: bool) -> usize {
    // SAFETY: plain data; the program's handler.
    unsafe {
        let mut new: Sigaction = core::mem::zeroed();
        let mut old: Sigaction = core::mem::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = flags;
        if block_itself {
            libc::sigaddset(&mut new.sa_mask, signal);
        }
        if handler == SIG_ERR {
            *libc::__errno_location() = libc::EINVAL;
            return SIG_ERR;
        }
        if sigaction(signal, &new, &mut old) == 0 { old.sa_sigaction } else { SIG_ERR }
    }
}

unsafe fn bsd(signal: c_int, handler: usize) -> usize {
    let interrupts =
        INTERRUPTING.load(Ordering::Relaxed).unbounded_shr((signal as u32).wrapping_sub(1)) & 1;
    let flags = if interrupts != 0 { 0 } else { libc::SA_RESTART };
    // SAFETY: the program's own arguments.
    unsafe { install(signal, handler, flags, true) }
}

/// Signals after which `signal`'s handlers are to interrupt calls.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// `siginterrupt(3)`: whether a signal interrupts calls, now and after a later `signal`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(signal: c_int, interrupt: c_int) -> c_int {
    if !entered() {
        // SAFETY: the program's own arguments.
        return unsafe { real::siginterrupt(signal, interrupt) };
    }
    // SAFETY: plain data.
    unsafe {
        let mut action: Sigaction = core::mem::zeroed();
        if sigaction(signal, core::ptr::null(), &mut action) != 0 {
            return -1;
        }
        // (A signal's number is one of 1 to 64 here.)
        let bit = 1 << (signal - 1);
        if interrupt != 0 {
            INTERRUPTING.fetch_or(bit, Ordering::Relaxed);
            action.sa_flags &= !libc::SA_RESTART;
        } else {
            INTERRUPTING.fetch_and(!bit, Ordering::Relaxed);
            action.sa_flags |= libc::SA_RESTART;
        }
        sigaction(signal, &action, core::ptr::null_mut())
    }
}

/// `signal(2)`, with glibc's (BSD) meaning.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    if !entered() {
        // SAFETY: the program's own arguments.
        return unsafe { real::signal(signal, handler) };
    }
    // SAFETY: the program's own arguments.
    unsafe { bsd(signal, handler) }
}

/// `bsd_signal`: the same.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsd_signal(signal: c_int, handler: usize) -> usize {
    if !entered() {
        // SAFETY: the program's own arguments.
        return unsafe { real::bsd_signal(signal, handler) };
    }
    // SAFETY: the program's own arguments.
    unsafe { bsd(signal, handler) }
}

/// `ssignal`: the same.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssignal(signal: c_int, handler: usize) -> usize {
    if !entered() {
        // SAFETY: the program's own arguments.
        return unsafe { real::ssignal(signal, handler) };
    }
    // SAFETY: the program's own arguments.
    unsafe { bsd(signal, handler) }
}

/// `sysv_signal`: one shot, not blocking itself.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(signal: c_int, handler: usize) -> usize {
    if !entered() {
        // SAFETY: the program's own arguments.
        return unsafe { real::sysv_signal(signal, handler) };
    }
    // SAFETY: the program's own arguments.
    unsafe { install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER, false) }
}

/// `__sysv_signal`: the same.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: usize) -> usize {
    if !entered() {
        // SAFETY: the program's own arguments.
        return unsafe { real::__sysv_signal(signal, handler) };
    }
    // SAFETY: the program's own arguments.
    unsafe { sysv_signal(signal, handler) }
}

/// X/Open's `sigset`, with glibc's meaning.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigset(signal: c_int, handler: usize) -> usize {
    const SIG_HOLD: usize = 2;
    if !entered() {
        // SAFETY: the program's own arguments.
        return unsafe { real::sigset(signal, handler) };
    }
    // SAFETY: sets and actions of ours; the program's handler.
    unsafe {
        let mut this: libc::sigset_t = core::mem::zeroed();
        let mut blocked: libc::sigset_t = core::mem::zeroed();
        if libc::sigaddset(&mut this, signal) != 0 {
            return SIG_ERR;
        }
        let hold = handler == SIG_HOLD;
        let mut before: Sigaction = core::mem::zeroed();
        if hold {
            if sigaction(signal, core::ptr::null(), &mut before) != 0 {
                return SIG_ERR;
            }
        } else {
            before.sa_sigaction = install(signal, handler, 0, false);
            if before.sa_sigaction == SIG_ERR {
                return SIG_ERR;
            }
        }
        let how = if hold { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
        if libc::sigprocmask(how, &this, &mut blocked) != 0 {
            return SIG_ERR;
        }
        if libc::sigismember(&blocked, signal) == 1 { SIG_HOLD } else { before.sa_sigaction }
    }
}

/// X/Open's `sigignore`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigignore(signal: c_int) -> c_int {
    if !entered() {
        // SAFETY: the program's own arguments.
        return unsafe { real::sigignore(signal) };
    }
    // SAFETY: no handler.
    if unsafe { install(signal, SIG_IGN, 0, false) } == SIG_ERR { -1 } else { 0 }
}
