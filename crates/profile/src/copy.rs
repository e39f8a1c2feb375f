//! memcpy and its kin: a compare and a jump for small copies.
//!
//! unsafe: assembly, as in `libuncopy.so`: small copies must reach libc's routine with nothing but
//! that, and before the constructor has found it a plain `rep movsb` serves.

use crate::sites::site;
use crate::state::{self, FILTER, Program};
use core::arch::naked_asm;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed, Ordering::Release};
use uncopy_flow::layout::{Call, header};
use uncopy_kernel::early;
use uncopy_ranges::span::Span;

/// Copies of fewer bytes are not looked at.
static LEAST: AtomicUsize = AtomicUsize::new(usize::MAX);
static MEMCPY: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static MEMMOVE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static MEMPCPY: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static MEMSET: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Looks libc's routines up.
pub fn find() {
    let all: [(&CStr, _); 4] = [
        (c"memset", &MEMSET),
        (c"memmove", &MEMMOVE),
        (c"mempcpy", &MEMPCPY),
        (c"memcpy", &MEMCPY),
    ];
    for (name, cell) in all {
        // SAFETY: a plain lookup.
        cell.store(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }, Relaxed);
    }
}

/// From now on copies of `least` bytes and more are followed: behind what [`find`] has found.
pub fn follow_from(least: usize) {
    LEAST.store(least, Release);
}

/// See [`follow_from`].
pub fn least() -> usize {
    LEAST.load(Relaxed)
}

macro_rules! entry {
    ($name:ident, $real:ident, $large:ident, $early:ident, $doc:literal) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// The caller keeps the contract of the man page.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(a: *mut c_void, b: *const c_void, n: usize) -> *mut c_void {
            naked_asm!(
                "cmp rdx, qword ptr [rip + {least}]",
                "jae 3f",
                "mov rax, qword ptr [rip + {real}]",
                "test rax, rax",
                "jz 4f",
                "jmp rax",
                "3:",
                "mov rcx, qword ptr [rsp]",
                "jmp {large}",
                "4:",
                "jmp {early}",
                least = sym LEAST,
                real = sym $real,
                large = sym $large,
                early = sym early::$early,
            )
        }
    };
}

entry!(memcpy, MEMCPY, large_memcpy, copy, "`memcpy(3)`.");
entry!(memmove, MEMMOVE, large_memmove, copy, "`memmove(3)`.");
entry!(mempcpy, MEMPCPY, large_mempcpy, copy_to_end, "`mempcpy(3)`.");
entry!(memset, MEMSET, large_memset, set, "`memset(3)`.");

macro_rules! checked {
    ($name:ident, $unchecked:ident, $doc:literal) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// As for the function without the check.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            a: *mut c_void,
            b: *const c_void,
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
                failed = sym overflows,
            )
        }
    };
}

checked!(__memcpy_chk, memcpy, "`memcpy` with a known destination size (`_FORTIFY_SOURCE`).");
checked!(__memmove_chk, memmove, "`memmove` with a known destination size.");
checked!(__mempcpy_chk, mempcpy, "`mempcpy` with a known destination size.");
checked!(__memset_chk, memset, "`memset` with a known destination size.");

unsafe extern "C" {
    fn __chk_fail() -> !;
}

/// Says that a destination is too small, and aborts.
pub(crate) unsafe extern "C" fn overflows() -> ! {
    // SAFETY: libc's own report, which aborts.
    unsafe { __chk_fail() }
}

/// `bcopy(3)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcopy(src: *const c_void, dst: *mut c_void, n: usize) {
    naked_asm!("xchg rdi, rsi", "jmp {memmove}", memmove = sym memmove)
}

type Copying = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

macro_rules! large {
    ($name:ident, $real:ident, $call:ident) => {
        unsafe extern "C" fn $name(
            dst: *mut c_void,
            src: *const c_void,
            n: usize,
            caller: usize,
        ) -> *mut c_void {
            // SAFETY: the caller's promise; followed only once the constructor has found the
            // routine.
            unsafe {
                let real: Copying = core::mem::transmute($real.load(Relaxed));
                followed(dst as usize, src as usize, n, Call::$call, caller, || real(dst, src, n))
            }
        }
    };
}

large!(large_memcpy, MEMCPY, memcpy);
large!(large_memmove, MEMMOVE, memmove);
large!(large_mempcpy, MEMPCPY, mempcpy);

unsafe fn followed<R>(
    dst: usize,
    src: usize,
    n: usize,
    call: Call,
    caller: usize,
    copy: impl FnOnce() -> R,
) -> R {
    if state::idle() || !(FILTER.perhaps_tracked(src, n) || FILTER.perhaps_tracked(dst, n)) {
        return copy();
    }
    let site = site(call, caller);
    let (to, from) = (Span::sized(dst, n), Span::sized(src, n));
    let again = state::with(|s| {
        let watched = s.watch.release(&mut s.follower, &[to, from]);
        let before = s.follower.book().head(header::COPIED_BYTES);
        s.follower.copied(dst, src, n, site, &Program);
        let tagged = s.follower.book().head(header::COPIED_BYTES) != before;
        if tagged {
            FILTER.track(to);
        }
        s.was_tagged(tagged);
        watched
    });
    let result = copy();
    if again == Some(true) {
        state::with(|s| s.watch.take(&mut s.follower, &[to, from]));
    }
    result
}

unsafe extern "C" fn large_memset(to: *mut c_void, byte: c_int, n: usize) -> *mut c_void {
    let span = Span::sized(to as usize, n);
    if !state::idle() && FILTER.perhaps_tracked(span.start, n) {
        crate::blocks::ended(span);
    }
    // SAFETY: the caller's promise.
    unsafe {
        let real: unsafe extern "C" fn(*mut c_void, c_int, usize) -> *mut c_void =
            core::mem::transmute(MEMSET.load(Relaxed));
        real(to, byte, n)
    }
}
