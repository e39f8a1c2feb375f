//! memcpy and its kin: what their entries ([`super::entries`]) do not hand on. Copies that libc's
//! routine is slow at go to ours ([`uncopy_copies`]).
//!
//! unsafe: see the crate; and assembly for the functions that check a size before, because the
//! compiler may turn a body of `memcpy` into a call of `memcpy`.

pub use super::own::{memcpy, memmove, mempcpy, memset};
use super::rows::LOOK;
use crate::facts::GLIBC_STACK_END;
use crate::process::PROCESS;
use crate::real;
use core::arch::{asm, naked_asm};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use uncopy_core::tracker::ADOPT_MIN;
use uncopy_counters::add;
use uncopy_decide::Operation;
use uncopy_kernel::critical;
use uncopy_stack::copy::{Source, copy};
use uncopy_stack::stack::Host;

/// How far above the stack pointer an address may still be the caller's own stack.
const STACK_REACH: usize = 8 << 20;

/// Copies bytes: with libc's own routine, or with ours where that is slow.
///
/// # Safety
/// As `memmove`.
pub unsafe extern "C" fn copy_bytes(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    let ours = PROCESS.copies.ours(dst as usize, src as usize, n);
    // SAFETY: as the caller promises.
    unsafe { ours.unwrap_or_else(real::libcs_copy)(dst, src, n) }
}

macro_rules! checked {
    ($name:ident, $from:ty, $unchecked:ident, $failed:ident, $doc:literal) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// As for the function without the check.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            dst: *mut c_void,
            from: $from,
            n: usize,
            room: usize,
        ) -> *mut c_void {
            naked_asm!(
                "cmp rcx, rdx",
                "jb 2f",
                "jmp {unchecked}",
                "2:",
                "jmp {failed}",
                unchecked = sym $unchecked,
                failed = sym $failed,
            )
        }

        unsafe extern "C" fn $failed(
            dst: *mut c_void,
            from: $from,
            n: usize,
            room: usize,
        ) -> *mut c_void {
            // SAFETY: libc's own check, which reports the overflow and aborts.
            unsafe { real::$name(dst, from, n, room) }
        }
    };
}

checked!(
    __memcpy_chk,
    *const c_void,
    memcpy,
    memcpy_overflows,
    "`memcpy` with a known destination size (`_FORTIFY_SOURCE`)."
);
checked!(
    __memmove_chk,
    *const c_void,
    memmove,
    memmove_overflows,
    "`memmove` with a known destination size."
);
checked!(
    __mempcpy_chk,
    *const c_void,
    mempcpy,
    mempcpy_overflows,
    "`mempcpy` with a known destination size."
);
checked!(__memset_chk, c_int, memset, memset_overflows, "`memset` with a known destination size.");

/// `bcopy(3)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcopy(src: *const c_void, dst: *mut c_void, n: usize) {
    naked_asm!("xchg rdi, rsi", "jmp {memmove}", memmove = sym memmove)
}

/// A near copy, and nothing is elided.
pub(super) unsafe extern "C" fn near_copy(
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise to memcpy or memmove, which the routine keeps too.
    unsafe {
        match PROCESS.copies.routine() {
            Some(ours) => ours(dst.cast(), src.cast(), n).cast(),
            None => copy_bytes(dst.cast(), src.cast(), n).cast(),
        }
    }
}

pub(super) unsafe extern "C" fn near_copy_end(
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
) -> *mut c_void {
    // SAFETY: as above; the result is one past the destination.
    unsafe { near_copy(dst, src, n).byte_add(n) }
}

pub(super) unsafe extern "C" fn large(
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    caller: usize,
) -> *mut c_void {
    if n >= PROCESS.space.threshold() {
        PROCESS.space.copies(n);
    }
    // SAFETY: the caller's own promise.
    unsafe { uncounted(dst, src, n, caller) }
}

/// Moves what a block holds to another one, as `memcpy` does, but not as the program's own work:
/// how often it has to be done depends on us. Its account is that of all callers of `realloc`, and
/// bears that name.
///
/// # Safety
/// As for `memcpy`.
pub unsafe fn move_block(to: *mut c_void, from: *const c_void, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if n < LOOK || !PROCESS.space.wanted() {
            copy_bytes(to.cast(), from.cast(), n);
        } else {
            uncounted(to, from, n, super::own::realloc as *const () as usize + 1);
        }
    }
}

unsafe fn uncounted(dst: *mut c_void, src: *const c_void, n: usize, caller: usize) -> *mut c_void {
    if n >= PROCESS.space.threshold() {
        PROCESS.space.large_seen();
    }
    // SAFETY: the caller's promise to memcpy or memmove; libc's memmove serves both, and returns
    // the destination as they do.
    unsafe {
        let done = elided(dst as usize, src as usize, n, caller);
        if done == Done::Elided {
            return dst;
        }
        if n >= ADOPT_MIN {
            PROCESS.space.repeats.changed(dst as usize, n);
        }
        if done == Done::Rests {
            let (to, from) = (dst as usize, src as usize);
            PROCESS.space.rests(Operation::Copy { to, from, len: n, caller, input: true });
        }
        copy_bytes(dst.cast(), src.cast(), n).cast()
    }
}

pub(super) unsafe extern "C" fn large_end(
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    caller: usize,
) -> *mut c_void {
    // SAFETY: as above; the result is one past the destination.
    unsafe { large(dst, src, n, caller).byte_add(n) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    /// The copy was done as views.
    Elided,
    /// It is to be executed: of input, untracked, and its site rests.
    Rests,
    /// It is to be executed.
    Not,
}

#[inline(always)]
unsafe fn elided(dst: usize, src: usize, n: usize, caller: usize) -> Done {
    let tracked = PROCESS.space.running()
        && (PROCESS.space.filter.perhaps_tracked(src, n)
            || PROCESS.space.filter.perhaps_tracked(dst, n));
    // (A copy that overlaps is not elided; untracked, it needs no more than libc.)
    let apart = dst.abs_diff(src) >= n;
    let input = apart && n >= PROCESS.space.threshold() && PROCESS.space.filter.is_input(src, n);
    if !tracked {
        if !input {
            return Done::Not;
        }
        if PROCESS.space.pauses().rests_copies(caller, n) && !PROCESS.space.may_pay() {
            return Done::Rests;
        }
    }
    // SAFETY: the caller's promise.
    if unsafe { try_elide(dst, src, n, caller, input) } { Done::Elided } else { Done::Not }
}

#[cold]
unsafe fn try_elide(dst: usize, src: usize, n: usize, caller: usize, input: bool) -> bool {
    if critical::inside() {
        return false;
    }
    if on_own_stack(dst) || on_own_stack(src) {
        add(&PROCESS.space.counters().stack_copies, 1);
        return false;
    }
    // Starting makes a thread, which takes locks of libc that an interrupted call may hold.
    if !PROCESS.space.running() && (critical::in_handler() || !PROCESS.space.start()) {
        return false;
    }
    let source = if input { Source::Input } else { Source::Other };
    // SAFETY: the caller's promise to memcpy.
    unsafe { copy(&PROCESS, dst, src, n, caller, source, copy_bytes) }
}

/// The functions of the process that stacks need.
#[inline(always)]
pub fn host() -> Host {
    Host { process: &PROCESS, copy_bytes, on_own_stack }
}

/// Whether `addr` is on the running thread's stack, which is never unmapped. A thread's stack ends
/// below its thread pointer, the first thread's at libc's mark.
pub fn on_own_stack(addr: usize) -> bool {
    let (sp, tp): (usize, usize);
    // SAFETY: reads the stack pointer and the thread control block's own address.
    unsafe {
        asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags));
        asm!("mov {}, fs:0", out(reg) tp, options(nostack, preserves_flags, readonly));
    }
    let main_end = GLIBC_STACK_END.load(Ordering::Relaxed);
    let top = if sp < tp && tp - sp < (1 << 30) { tp } else { main_end.max(sp) + (1 << 20) };
    addr >= sp.saturating_sub(4096) && addr < top && addr - sp.min(addr) < STACK_REACH
}
