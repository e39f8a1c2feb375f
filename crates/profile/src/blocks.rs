//! free, realloc, munmap and whatever else ends or moves data; and the calls that copy all memory.
//!
//! unsafe: see the crate; looks at the word that glibc keeps before a block.

use crate::interposed;
use crate::sites::site;
use crate::state::{self, FILTER};
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};
use uncopy_flow::layout::Call;
use uncopy_ranges::span::Span;

static USABLE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static GLIBC: AtomicBool = AtomicBool::new(false);

/// Looks everything up.
pub fn find() {
    find_hooks();
    let lookup = |name: &CStr| {
        // SAFETY: plain lookups; `info` is written where dladdr succeeds.
        unsafe {
            let at = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
            let mut info: libc::Dl_info = core::mem::zeroed();
            let found = !at.is_null() && libc::dladdr(at, &mut info) != 0;
            (at, found.then_some(info.dli_fbase as usize))
        }
    };
    let (usable, of) = lookup(c"malloc_usable_size");
    let (_, free) = lookup(c"free");
    // (Another allocator's would read foreign memory.)
    if of.is_some() && of == free {
        USABLE.store(usable, Relaxed);
    }
    let (_, libc) = lookup(c"__libc_start_main");
    GLIBC.store(free.is_some() && free == libc, Relaxed);
}

/// How large the block at `p` is; 0: nobody knows.
unsafe fn usable(p: usize) -> usize {
    let f = USABLE.load(Relaxed);
    if f.is_null() || p == 0 {
        return 0;
    }
    // SAFETY: the symbol has this signature; `p` is a block of the allocator that it belongs to.
    unsafe {
        let f: unsafe extern "C" fn(usize) -> usize = core::mem::transmute(f);
        f(p)
    }
}

/// Whether the block is a mapping of its own, which `realloc` moves without copying (glibc,
/// malloc/malloc.c, `IS_MMAPPED`).
unsafe fn is_mapping(p: usize) -> bool {
    // SAFETY: glibc keeps a word before each block.
    GLIBC.load(Relaxed) && unsafe { *(p as *const usize).sub(1) } & 2 != 0
}

/// Other bytes are in `span` now, or none.
pub fn ended(span: Span) {
    state::with(|s| {
        s.watch.release(&mut s.follower, &[span]);
        let before = s.follower.pieces();
        s.follower.ended(span);
        s.was_tagged(before != s.follower.pieces());
    });
}

fn perhaps(span: Span) -> bool {
    !state::idle() && !span.is_empty() && FILTER.perhaps_tracked(span.start, span.len())
}

unsafe fn resized(
    from: Span,
    len: usize,
    copied: impl FnOnce(usize) -> Option<u32>,
    real: impl FnOnce() -> usize,
) -> usize {
    let lifted = state::with(|s| {
        s.watch.release_all(&mut s.follower);
        s.follower.lift(from)
    });
    let to = real();
    // A block that could not be resized stays.
    let failed = to == 0 || to == usize::MAX;
    let (at, len) = if failed { (from.start, from.len()) } else { (to, len) };
    let site = if at == from.start { None } else { copied(at) };
    if let Some(lifted) = lifted {
        let span = Span::sized(at, len);
        state::with(|s| {
            if !lifted.is_empty() {
                FILTER.track(span);
            }
            s.follower.put_down(lifted, from.start, span, site);
            s.watch.take_all(&mut s.follower);
        });
    }
    to
}

unsafe fn reallocated(p: usize, n: usize, caller: usize, real: impl FnOnce() -> usize) -> usize {
    // SAFETY: a block of the program's.
    unsafe {
        let from = Span::sized(p, usable(p));
        if !perhaps(from) {
            return real();
        }
        if n == 0 {
            ended(from);
            return real();
        }
        let mapping = is_mapping(p);
        // A new place is a copy, unless both are mappings.
        let copied = |to| (!(mapping && is_mapping(to))).then(|| site(Call::realloc, caller));
        resized(from, n, copied, real)
    }
}

mod tables {
    #![allow(missing_docs, non_snake_case)]
    use super::*;

    interposed! {
        /// `free(3)`.
        free(a, _, real) {
            let block = Span::sized(a[0], usable(a[0]));
            if perhaps(block) {
                ended(block);
            }
            if !real.found() && finding() {
                // Of the dynamic linker's, while it looks `free` up.
                return 0;
            }
            real.call(a)
        }
        /// `realloc(3)`.
        realloc(a, caller, real) { reallocated(a[0], a[1], caller, || real.call(a) as usize) as isize }
        /// `reallocarray(3)`.
        reallocarray(a, caller, real) {
            let n = a[1].saturating_mul(a[2]);
            reallocated(a[0], n, caller, || real.call(a) as usize) as isize
        }
        /// `munmap(2)`.
        munmap(a, _, real) {
            let span = Span::sized(a[0], a[1]);
            if perhaps(span) {
                ended(span);
            }
            real.call(a)
        }
        /// `mmap(2)`.
        mmap(a, _, real) {
            let span = Span::sized(a[0], a[1]);
            if a[3] as i32 & libc::MAP_FIXED != 0 && perhaps(span) {
                ended(span);
            }
            let at = real.call(a);
            let span = Span::sized(at as usize, a[1]);
            if at != -1 && perhaps(span) {
                ended(span);
            }
            at
        }
        /// `mmap64(2)`.
        mmap64(a, _, real) {
            let span = Span::sized(a[0], a[1]);
            if a[3] as i32 & libc::MAP_FIXED != 0 && perhaps(span) {
                ended(span);
            }
            let at = real.call(a);
            let span = Span::sized(at as usize, a[1]);
            if at != -1 && perhaps(span) {
                ended(span);
            }
            at
        }
        /// `mremap(2)`.
        mremap(a, _, real) {
            let from = Span::sized(a[0], a[1]);
            if !perhaps(from) {
                return real.call(a);
            }
            resized(from, a[2], |_| None, || real.call(a) as usize) as isize
        }
        /// `madvise(2)`.
        madvise(a, _, real) {
            let span = Span::sized(a[0], a[1]);
            if perhaps(span) {
                let drops = [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_REMOVE];
                if drops.contains(&(a[2] as i32)) {
                    ended(span);
                } else {
                    state::with(|s| s.watch.end(&mut s.follower));
                }
            }
            real.call(a)
        }
        /// `mprotect(2)`.
        mprotect(a, _, real) {
            if perhaps(Span::sized(a[0], a[1])) {
                state::with(|s| s.watch.end(&mut s.follower));
            }
            real.call(a)
        }
        /// `pkey_mprotect(2)`.
        pkey_mprotect(a, _, real) {
            if perhaps(Span::sized(a[0], a[1])) {
                state::with(|s| s.watch.end(&mut s.follower));
            }
            real.call(a)
        }
        /// `_Fork(3)`: the child goes on without us.
        _Fork(a, _, real) {
            state::before_unknown_fork();
            real.call(a)
        }
        /// `mlockall(2)`.
        mlockall(a, _, real) {
            state::with(|s| s.watch.end(&mut s.follower));
            real.call(a)
        }
    }
}

use tables::find as find_hooks;

/// Whether `free` is being looked up.
fn finding() -> bool {
    static FINDING: AtomicBool = AtomicBool::new(false);
    FINDING.swap(true, Relaxed)
}

static CLONE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static SYSCALL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Defines a function of more arguments than registers hold: `$first` is called before the real
/// one.
macro_rules! before {
    ($name:ident, $first:ident, $doc:literal) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// The caller keeps the contract of the man page.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 56",
                "call {first}",
                "add rsp, 8",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -56",
                // (The address that `first` returned: the real one.)
                "jmp rax",
                ".cfi_endproc",
                first = sym $first,
            )
        }
    };
}

fn behind(cell: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut real = cell.load(Relaxed);
    if real.is_null() {
        // SAFETY: a plain lookup.
        real = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        cell.store(real, Relaxed);
    }
    real
}

extern "C" fn before_clone(_: usize, _: usize, flags: usize) -> *mut c_void {
    if flags as i32 & libc::CLONE_VM == 0 {
        state::before_unknown_fork();
    }
    behind(&CLONE, c"clone")
}

extern "C" fn before_syscall(number: usize) -> *mut c_void {
    let forks = [libc::SYS_fork, libc::SYS_clone, libc::SYS_clone3, libc::SYS_mlockall];
    if forks.contains(&(number as i64)) {
        state::before_unknown_fork();
    }
    behind(&SYSCALL, c"syscall")
}

before!(clone, before_clone, "`clone(2)`, which may copy the memory behind libc's back.");
before!(syscall, before_syscall, "`syscall(2)`, which may do so too.");
