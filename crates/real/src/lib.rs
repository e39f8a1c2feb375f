//! The functions behind ours: what the program would have called without us (libc's, or another
//! preloaded library's), looked up by our constructor. Later lookups would take away the error that
//! the program's own `dlsym` left for its `dlerror`. A function that is called before that, from
//! another library's constructor, is looked up when first needed.
//!
//! Statics: entry points jump to what stands in them, before the constructor too.
//!
//! unsafe: calls through pointers that `dlsym` returned for names whose signatures are written
//! down here once, from their man pages.

mod table;

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulong, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use libc::{
    epoll_event, fd_set, gid_t, iovec, mmsghdr, msghdr, off_t, pid_t, pollfd, rlimit,
    sigaction as Sigaction, sigset_t, size_t, sockaddr, socklen_t, ssize_t, stack_t, timespec,
    timeval, uid_t,
};
use uncopy_copies::routine::Routine;
use uncopy_kernel::imports;

/// Stands for a function that this libc does not have: nobody who linked with it calls it.
extern "C" fn missing() -> isize {
    // SAFETY: errno's address is always valid.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

#[cold]
#[inline(never)]
fn resolve(name: &CStr, cell: &AtomicPtr<c_void>) -> *mut c_void {
    imports::bind();
    // SAFETY: a plain lookup.
    let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        found = missing as *const () as *mut c_void;
    }
    cell.store(found, Ordering::Relaxed);
    found
}

macro_rules! name {
    ($name:ident) => {
        const {
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            }
        }
    };
}

macro_rules! real {
    ($( $name:ident($($arg:ident: $type:ty),*) -> $result:ty $(, else $early:expr)?; )*) => {
        /// The functions behind ours; null before they were looked for.
        #[allow(non_upper_case_globals)]
        pub mod cells {
            use super::{AtomicPtr, c_void};
            pub use super::copies::*;
            pub use self::{fstat as fstat64, fstatat as fstatat64, lseek as lseek64, pread as pread64};
            $(
                #[doc = stringify!($name)]
                pub static $name: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
            )*
        }

        /// The functions that are called while nothing stands in a cell: each looks its own up.
        /// (Apart, and of the same arguments: else all calls would pay for the registers that this
        /// needs.)
        pub mod first {
            use super::*;
            pub use self::{fstat as fstat64, fstatat as fstatat64, lseek as lseek64, pread as pread64};
            pub use uncopy_kernel::early::{
                copy as memcpy, copy as memmove, copy_to_end as mempcpy, set as memset,
            };
            $(
                #[doc = stringify!($name)]
                ///
                /// # Safety
                /// The caller keeps the contract of the man page.
                #[cold]
                #[inline(never)]
                #[allow(clippy::too_many_arguments)]
                pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
                    look_up!($name $(, $early)?);
                    // SAFETY: the caller's promise.
                    unsafe { super::$name($($arg),*) }
                }
            )*
        }

        /// Looks all of them up, but for those of copies.
        pub fn find_all() {
            find_allocators();
            $( if cells::$name.load(Ordering::Relaxed).is_null() { resolve(name!($name), &cells::$name); } )*
            resolve(c"_Fork", &FORK);
            of_libc::find();
        }

        /// Finds the allocator's functions, all at once. The look-up may itself allocate: then it
        /// is answered from [`before_allocators`], as is whatever else comes before the end of it;
        /// and it frees the text of an earlier error: that leaks.
        #[cold]
        fn find_allocators() {
            if !FINDING.swap(true, Ordering::Relaxed) {
                $( of_allocator!($name $(, $early)?); )*
            }
        }
    $(
        /// The real one.
        ///
        /// # Safety
        /// The caller keeps the contract of the man page.
        #[inline]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($arg: $type),*) -> $result {
            let f = cells::$name.load(Ordering::Relaxed);
            // SAFETY: the symbol has this signature; the caller keeps its contract.
            unsafe {
                if f.is_null() {
                    first::$name($($arg),*)
                } else {
                    let f: unsafe extern "C" fn($($type),*) -> $result = core::mem::transmute(f);
                    f($($arg),*)
                }
            }
        }
    )* };
}

/// Looks a function up; one of an allocator's answers `$early` while that is under way.
macro_rules! look_up {
    ($name:ident) => {
        resolve(name!($name), &cells::$name)
    };
    ($name:ident, $early:expr) => {
        find_allocators();
        if cells::$name.load(Ordering::Relaxed).is_null() {
            return $early;
        }
    };
}

macro_rules! of_allocator {
    ($name:ident) => {};
    ($name:ident, $early:expr) => {
        resolve(name!($name), &cells::$name)
    };
}

/// Of each row the function behind it, if it has a signature; and functions that have no row.
macro_rules! of_table {
    ({ $($others:tt)* }
    $( $group:ident $module:ident::$name:ident [$($same:ident)*] [$($other:ident)*]
        $( ($($arg:ident: $type:ty),*) -> $result:ty $(, else $early:expr)? )?;
        $(by $number:ident $( ($($word:literal)*) $(if $guard:ident)? )?)?
        $(not $not:literal)? $(-)?;
        $place:ident, $why:literal;
    )*) => {
        real! {
            $( $( $name($($arg: $type),*) -> $result $(, else $early)?; )? )*
            $($others)*
        }
    };
}

// The rows here are names with other arguments, and functions that only we call.
crate::with_table!(of_table {
    __memset_chk(dst: *mut c_void, byte: c_int, n: size_t, room: size_t) -> *mut c_void;
    __memcpy_chk(dst: *mut c_void, src: *const c_void, n: size_t, room: size_t) -> *mut c_void;
    __memmove_chk(dst: *mut c_void, src: *const c_void, n: size_t, room: size_t) -> *mut c_void;
    __mempcpy_chk(dst: *mut c_void, src: *const c_void, n: size_t, room: size_t) -> *mut c_void;
    __read_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t) -> ssize_t;
    __pread_chk(fd: c_int, buf: *mut c_void, n: size_t, at: off_t, room: size_t) -> ssize_t;
    __recv_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t, flags: c_int) -> ssize_t;
    __recvfrom_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t, flags: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> ssize_t;
    pthread_testcancel() -> ();
    pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    openat64(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    creat64(path: *const c_char, mode: c_uint) -> c_int;
    __open_2(path: *const c_char, flags: c_int) -> c_int;
    __open64_2(path: *const c_char, flags: c_int) -> c_int;
    __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    __fxstat(version: c_int, fd: c_int, to: *mut libc::stat) -> c_int;
    __fxstat64(version: c_int, fd: c_int, to: *mut libc::stat) -> c_int;
    __fxstatat(version: c_int, dir: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int;
    __fxstatat64(version: c_int, dir: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int;
    ftruncate64(fd: c_int, to: off_t) -> c_int;
    fallocate64(fd: c_int, mode: c_int, at: off_t, n: off_t) -> c_int;
    posix_fallocate64(fd: c_int, at: off_t, n: off_t) -> c_int;
    __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    __poll_chk(fds: *mut pollfd, count: c_ulong, timeout: c_int, room: size_t) -> c_int;
    __ppoll_chk(fds: *mut pollfd, count: c_ulong, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int;
    bsd_signal(signal: c_int, handler: size_t) -> size_t;
    ssignal(signal: c_int, handler: size_t) -> size_t;
    __sysv_signal(signal: c_int, handler: size_t) -> size_t;
});

/// libc's own `sigaction`, for what this library does by itself: another library that stands behind
/// us (libjsig, which chains handlers) is to be told of what the program does, and of nothing else.
pub mod of_libc {
    use super::*;

    static SIGACTION: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

    /// Looks it up.
    pub(super) fn find() {
        let found = imports::of_libc(c"sigaction").unwrap_or_default();
        SIGACTION.store(found, Ordering::Relaxed);
    }

    /// Whether it is what [`super::sigaction`] leads to.
    pub fn is_next() -> bool {
        let libcs = SIGACTION.load(Ordering::Relaxed);
        libcs.is_null() || libcs == cells::sigaction.load(Ordering::Relaxed)
    }

    /// `sigaction(2)`.
    ///
    /// # Safety
    /// The caller keeps the contract of the man page.
    pub unsafe fn sigaction(signal: c_int, new: *const Sigaction, old: *mut Sigaction) -> c_int {
        let f = SIGACTION.load(Ordering::Relaxed);
        // SAFETY: the function has this signature; the caller's promise.
        unsafe {
            if f.is_null() {
                return super::sigaction(signal, new, old);
            }
            let f: unsafe extern "C" fn(c_int, *const Sigaction, *mut Sigaction) -> c_int =
                core::mem::transmute(f);
            f(signal, new, old)
        }
    }
}

static FORK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// `_Fork(3)`, the real one.
///
/// # Safety
/// The caller keeps the contract of the man page.
pub unsafe fn plain_fork() -> c_int {
    let mut f = FORK.load(Ordering::Relaxed);
    if f.is_null() {
        f = resolve(c"_Fork", &FORK);
    }
    // SAFETY: the symbol has this signature.
    unsafe {
        let f: unsafe extern "C" fn() -> c_int = core::mem::transmute(f);
        f()
    }
}

/// Set for good by the first allocation of the process, which no second thread can precede.
static FINDING: AtomicBool = AtomicBool::new(false);

/// Bytes for what the dynamic linker allocates while it looks the allocator up.
pub const EARLY_BYTES: usize = 16 << 10;

/// Memory for them.
#[repr(align(16))]
#[derive(Debug)]
pub struct Early(UnsafeCell<[u8; EARLY_BYTES]>);
// SAFETY: handed out piece by piece, each once.
unsafe impl Sync for Early {}
/// See [`is_early`].
pub static EARLY: Early = Early(UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

/// Zeroed memory that is never taken back.
#[cold]
#[inline(never)]
fn before_allocators(n: usize) -> *mut c_void {
    let size = n.min(EARLY_BYTES).next_multiple_of(16);
    let at = EARLY_USED.fetch_add(size, Ordering::Relaxed);
    if n > EARLY_BYTES || at + size > EARLY_BYTES {
        return core::ptr::null_mut();
    }
    // SAFETY: inside the array.
    unsafe { EARLY.0.get().cast::<u8>().add(at).cast() }
}

/// Whether `p` was handed out by `before_allocators`.
pub fn is_early(p: *mut c_void) -> bool {
    (p as usize).wrapping_sub(EARLY.0.get() as usize) < EARLY_BYTES
}

/// The functions behind the copying functions, once the constructor has found them; null before.
#[allow(non_upper_case_globals)]
mod copies {
    use super::{AtomicPtr, c_void};
    /// memcpy
    pub static memcpy: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    /// memmove
    pub static memmove: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    /// mempcpy
    pub static mempcpy: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    /// memset
    pub static memset: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
}

/// Finds the copying functions, and `memset`, which must not be looked up from inside a copy.
pub fn find_copies() {
    resolve(c"memset", &cells::memset);
    resolve(c"memmove", &cells::memmove);
    resolve(c"mempcpy", &cells::mempcpy);
    resolve(c"memcpy", &cells::memcpy);
}

/// libc's own routine, once [`find_copies`] has found it.
pub fn libcs_copy() -> Routine {
    // SAFETY: found before anything is copied by us; `memmove` has this signature.
    unsafe { core::mem::transmute(cells::memmove.load(Ordering::Relaxed)) }
}

/// libc's own `memset`.
///
/// # Safety
/// The caller keeps the contract of the man page, and has called [`find_copies`] before.
pub unsafe fn libcs_set(to: *mut c_void, byte: c_int, n: usize) -> *mut c_void {
    type Set = unsafe extern "C" fn(*mut c_void, c_int, usize) -> *mut c_void;
    // SAFETY: found before anything is set by us; `memset` has this signature.
    let set: Set = unsafe { core::mem::transmute(cells::memset.load(Ordering::Relaxed)) };
    // SAFETY: the caller's promise.
    unsafe { set(to, byte, n) }
}

/// Where the object begins that holds the function behind ours called `name`.
fn origin(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: plain lookups; `info` is written where dladdr succeeds.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let symbol = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        (!symbol.is_null() && libc::dladdr(symbol, &mut info) != 0).then_some(info.dli_fbase)
    }
}

/// Whether `malloc_usable_size` belongs to the allocator that `free` does (an allocator may lack
/// it, and another's would read foreign memory).
pub fn usable_size_fits() -> bool {
    let free = origin(c"free");
    free.is_some() && free == origin(c"malloc_usable_size") && free == origin(c"malloc")
}

/// Whether `free` is glibc's own: its large blocks are mappings that it removes by itself. (Not
/// asked of `dlopen`: our constructor is the first of all, and `dlopen` would run libc's without
/// the environment.)
pub fn glibc_malloc() -> bool {
    let libc = origin(c"gnu_get_libc_version");
    libc.is_some() && libc == origin(c"free")
}
