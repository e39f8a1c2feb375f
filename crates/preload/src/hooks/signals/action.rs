//! `sigaction(2)` and its kin: what the program says of a signal, and is told.
//!
//! unsafe: see the crate.

use super::entry::entry;
use super::held::through_us;
use super::table::{
    ADDRESS, HANDLERS, HELD, as_said, bit, borrowed, entered, fault_of, locked, mask_of, note,
    set_mask,
};
use crate::real;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{Ordering, Ordering::Relaxed};
use libc::{SA_RESETHAND, SA_SIGINFO, SIG_DFL, SIG_IGN, sigaction as Sigaction};
use uncopy_kernel::critical::SIGNALS;
use uncopy_kernel::user_access;

/// Changes what is done about `signal`, or tells it. `ask` is the program's own call, with what we
/// have in place of its arguments.
unsafe fn change(
    signal: c_int,
    new: Option<&Sigaction>,
    old: &mut Sigaction,
    by_libc: bool,
    ask: impl Fn(Option<&Sigaction>, &mut Sigaction) -> c_int,
) -> c_int {
    locked(|| {
        let word = &HANDLERS[signal as usize];
        let before = word.load(Ordering::Acquire);
        let said = as_said(signal);
        let held = HELD.load(Relaxed) & bit(signal) != 0;
        let ours = new.and_then(|new| {
            let theirs = new.sa_sigaction == SIG_IGN
                || new.sa_sigaction == SIG_DFL && !held
                || new.sa_sigaction & !ADDRESS != 0;
            let ours = through_us(new, held);
            // (An entry that stands in the table already does nobody harm.)
            (!theirs && (ours.0 == before || !borrowed())).then_some(ours)
        });
        let fault = fault_of(signal).filter(|_| held && new.is_some() && !borrowed());
        let result = match (ours, new) {
            (Some((handler, action)), Some(new)) => {
                // Known before the kernel can call it.
                word.store(handler, Ordering::Release);
                let result = if handler == SIG_DFL {
                    // SAFETY: with a place to return to, which the program need not have given.
                    unsafe { real::sigaction(signal, &action, old) }
                } else {
                    ask(Some(&action), old)
                };
                if result == 0 {
                    note(signal, new, by_libc);
                    fault.into_iter().for_each(|f| user_access::is_caught(f, true));
                } else {
                    word.store(before, Ordering::Release);
                }
                result
            }
            _ => {
                // Every read from now on goes through the kernel.
                fault.into_iter().for_each(|f| user_access::is_caught(f, false));
                ask(new, old)
            }
        };
        if result == 0 && old.sa_sigaction == entry as *const () as usize {
            if before & ADDRESS == SIG_DFL {
                old.sa_sigaction = SIG_DFL;
                old.sa_flags = said.sa_flags;
                set_mask(old, mask_of(&said));
            } else {
                const OURS: c_int = SA_SIGINFO | SA_RESETHAND;
                old.sa_sigaction = before & ADDRESS;
                old.sa_flags = old.sa_flags & !OURS | said.sa_flags & OURS;
            }
        }
        result
    })
}

/// `sigaction(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const Sigaction,
    old: *mut Sigaction,
) -> c_int {
    if !entered() || !(1..SIGNALS as c_int).contains(&signal) {
        // SAFETY: the program's own arguments.
        return unsafe { real::sigaction(signal, new, old) };
    }
    // SAFETY: the program's own arguments, read and written as libc does (which crashes where they
    // lead nowhere), but not while a signal would be put off.
    unsafe {
        let new = new.as_ref().copied();
        let mut was: Sigaction = core::mem::zeroed();
        let result = change(signal, new.as_ref(), &mut was, true, |new, old| {
            real::sigaction(signal, new.map_or(core::ptr::null(), core::ptr::from_ref), old)
        });
        if result == 0 && !old.is_null() {
            *old = was;
        }
        result
    }
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

// SAFETY: plain words.
unsafe impl user_access::Plain for KernelAction {}

impl KernelAction {
    /// libc's action in the kernel's words.
    fn of(action: &Sigaction) -> Self {
        Self {
            handler: action.sa_sigaction,
            flags: action.sa_flags as u32 as u64,
            // SAFETY: a function's address, or none: 0.
            restorer: unsafe {
                core::mem::transmute::<Option<extern "C" fn()>, usize>(action.sa_restorer)
            },
            mask: mask_of(action),
        }
    }

    /// Puts it into libc's words.
    fn put(self, to: &mut Sigaction) {
        to.sa_sigaction = self.handler;
        to.sa_flags = self.flags as c_int;
        // SAFETY: the address of a function that only the kernel has called, or 0.
        to.sa_restorer =
            unsafe { core::mem::transmute::<usize, Option<extern "C" fn()>>(self.restorer) };
        set_mask(to, self.mask);
    }
}

/// `rt_sigaction(2)`, the system call.
///
/// # Safety
/// As for [`sigaction`]; its pointers may lead nowhere.
pub(in crate::hooks) unsafe fn rt_sigaction(
    signal: c_int,
    new: *const c_void,
    old: *mut c_void,
    size: usize,
) -> isize {
    let (new, old) = (new.cast::<KernelAction>(), old.cast::<KernelAction>());
    let call = |new: *const KernelAction, old: *mut KernelAction| {
        // SAFETY: the program's own call.
        unsafe {
            real::syscall(
                libc::SYS_rt_sigaction as isize,
                signal as usize,
                new as usize,
                old as usize,
                size,
                0,
                0,
            )
        }
    };
    if !entered() {
        return call(new, old);
    }
    let given = if new.is_null() { None } else { user_access::read(new) };
    if !(1..SIGNALS as c_int).contains(&signal) || size != 8 || !new.is_null() && given.is_none() {
        return call(new, old);
    }
    // SAFETY: the same, in libc's words.
    unsafe {
        let given = given.map(|asked: KernelAction| {
            let mut action: Sigaction = core::mem::zeroed();
            asked.put(&mut action);
            action
        });
        let mut was: Sigaction = core::mem::zeroed();
        let result = change(signal, given.as_ref(), &mut was, false, |new, old| {
            let new = new.map(KernelAction::of);
            let mut before = KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 };
            let result =
                call(new.as_ref().map_or(core::ptr::null(), core::ptr::from_ref), &mut before);
            before.put(old);
            result as c_int
        });
        let was = KernelAction::of(&was);
        if result == 0 && !old.is_null() && !user_access::write(old, &was) {
            *libc::__errno_location() = libc::EFAULT;
            return -1;
        }
        result as isize
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
