//! The stack that handlers run on.
//!
//! unsafe: see the crate.

use crate::process::PROCESS;
use crate::real;
use core::ffi::c_int;
use libc::stack_t;
use uncopy_kernel::user_access;
use uncopy_ranges::span::Span;
use uncopy_stack::buffers::HIGHEST_ADDRESS;

/// `sigaltstack(2)`: the kernel writes to it also while the tracker's lock is held, so nothing of
/// it is ever unmapped.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int {
    if new.is_null() || !PROCESS.space.wanted() {
        // SAFETY: the program's own arguments.
        return unsafe { real::sigaltstack(new, old) };
    }
    let span = |s: &stack_t| {
        let memory = (s.ss_sp as usize).saturating_add(s.ss_size) < HIGHEST_ADDRESS;
        match s.ss_flags & libc::SS_DISABLE {
            0 if memory => Span::sized(s.ss_sp as usize, s.ss_size).covering_pages(),
            _ => Span::sized(0, 0),
        }
    };
    // SAFETY: the program's own arguments; what the kernel has read and written is there.
    unsafe {
        let serving = PROCESS.space.serving();
        if serving && let Some(given) = user_access::read(new) {
            PROCESS.space.keep_resident(span(&given));
        }
        if serving {
            return real::sigaltstack(new, old);
        }
        // Nothing is unmapped yet: what is asked of the kernel first need not be read with care.
        // (The two may be the same.)
        let mut before: stack_t = core::mem::zeroed();
        let same = core::ptr::addr_eq(old, new);
        let result = real::sigaltstack(new, if same { &raw mut before } else { old });
        if result == 0 {
            PROCESS.space.keep_resident(span(&*new));
            if same {
                *old = before;
            }
        }
        result
    }
}
