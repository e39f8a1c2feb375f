//! The program's signal handlers are wrapped, so that none runs while its thread holds the
//! tracker's lock (see `uncopy_vm::critical`). The program sees its own handlers everywhere.
//!
//! unsafe: see the crate; calls the handlers that the program installed, with the kernel's own
//! arguments.

use crate::real;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use libc::{
    SA_RESETHAND, SIG_DFL, SIG_ERR, SIG_IGN, sigaction as Sigaction, siginfo_t, ucontext_t,
};
use uncopy_vm::{critical, lend};

const SIGNALS: usize = 65;
/// Handlers that are to be called once: the kernel would reset them before we know whether the
/// signal has to be put off.
static ONCE: [AtomicBool; SIGNALS] = [const { AtomicBool::new(false) }; SIGNALS];
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];

unsafe extern "C" fn wrapper(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: called by the kernel, with its arguments; the handler was installed for this signal
    // by the program and takes one or three of them.
    unsafe {
        let context = context.cast::<ucontext_t>();
        let mask = (&raw mut (*context).uc_sigmask).cast::<u64>();
        if critical::inside() {
            critical::put_off(signal, info, &mut *mask);
            return;
        }
        let interrupted = lend::interrupted(signal, || *mask);
        let handler = HANDLERS[signal as usize].load(Ordering::Acquire);
        if ONCE[signal as usize].swap(false, Ordering::AcqRel) {
            let mut default: Sigaction = core::mem::zeroed();
            default.sa_sigaction = SIG_DFL;
            real::sigaction(signal, &default, core::ptr::null_mut());
        }
        let handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
            core::mem::transmute(handler);
        let before = critical::handler_begins();
        handler(signal, info, context.cast());
        critical::handler_ends(before);
        lend::resumed(interrupted);
    }
}

/// `sigaction(2)`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const Sigaction,
    old: *mut Sigaction,
) -> c_int {
    // SAFETY: the program's own arguments; the copy differs in the handler only.
    unsafe {
        let known = (1..SIGNALS as c_int).contains(&signal);
        if !known {
            return real::sigaction(signal, new, old);
        }
        let slot = &HANDLERS[signal as usize];
        let before = slot.load(Ordering::Acquire);
        let once = ONCE[signal as usize].load(Ordering::Acquire);
        let result = if new.is_null() || matches!((*new).sa_sigaction, SIG_DFL | SIG_IGN) {
            real::sigaction(signal, new, old)
        } else {
            let mut wrapped = *new;
            wrapped.sa_sigaction = wrapper as *const () as usize;
            // Known before the kernel can call it.
            slot.store((*new).sa_sigaction, Ordering::Release);
            ONCE[signal as usize].store(wrapped.sa_flags & SA_RESETHAND != 0, Ordering::Release);
            wrapped.sa_flags &= !SA_RESETHAND;
            let result = real::sigaction(signal, &wrapped, old);
            if result != 0 {
                slot.store(before, Ordering::Release);
                ONCE[signal as usize].store(once, Ordering::Release);
            }
            result
        };
        if result == 0 && !old.is_null() && (*old).sa_sigaction == wrapper as *const () as usize {
            (*old).sa_sigaction = before;
            (*old).sa_flags |= if once { SA_RESETHAND } else { 0 };
        }
        result
    }
}

/// `__sigaction`: another name of it.
///
/// # Safety
/// As for [`sigaction`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction(
    signal: c_int,
    new: *const Sigaction,
    old: *mut Sigaction,
) -> c_int {
    // SAFETY: the same function.
    unsafe { sigaction(signal, new, old) }
}

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

/// `signal(2)`, with glibc's (BSD) meaning.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the program's own arguments.
    unsafe { install(signal, handler, libc::SA_RESTART, true) }
}

/// `bsd_signal`: the same.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsd_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the program's own arguments.
    unsafe { install(signal, handler, libc::SA_RESTART, true) }
}

/// `ssignal`: the same.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssignal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the program's own arguments.
    unsafe { install(signal, handler, libc::SA_RESTART, true) }
}

/// `sysv_signal`: one shot, not blocking itself.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the program's own arguments.
    unsafe { install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER, false) }
}

/// `__sysv_signal`: the same.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the program's own arguments.
    unsafe { sysv_signal(signal, handler) }
}
