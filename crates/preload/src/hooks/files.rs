//! Files whose appends may be held (`run --log`): how they are opened, synced, and what else is
//! done to them. Reads and writes of them come by the shims of input and output.
//!
//! Without `--log` none of this is called: their entries lead to libc's functions
//! (`entries::lead_files`).
//!
//! Static: what `mmap` led to, for a function that is called by its address.
//!
//! unsafe: see the crate; each shim makes the program's own call.

use crate::process::PROCESS;
use crate::real;
use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::{off_t, size_t, ssize_t};
use uncopy_log_service::PlainReason;
use uncopy_stack::buffers::{give, take};

/// A call that the kernel makes on files that are plain meanwhile.
fn plainly<R, const N: usize>(fds: [c_int; N], call: impl FnOnce() -> R) -> R {
    if !PROCESS.log.in_use() {
        return call();
    }
    let plain = fds.map(|fd| PROCESS.log.plainly(fd, PlainReason::NotAppended));
    let result = call();
    drop(plain);
    result
}

/// `open`, once more if it does not wait, and what this process holds may be why.
fn opening(flags: c_int, open: impl Fn() -> c_int) -> c_int {
    let fd = open();
    if fd >= 0 || flags & libc::O_NONBLOCK == 0 || !PROCESS.log.in_use() {
        return fd;
    }
    // SAFETY: errno's address is always valid.
    if unsafe { *libc::__errno_location() } != libc::EWOULDBLOCK {
        return fd;
    }
    PROCESS.log.leave_all(PlainReason::OpenedLater);
    open()
}

fn opened(fd: c_int, flags: c_int) -> c_int {
    if fd >= 0 && PROCESS.log.begun() {
        // SAFETY: errno's address is always valid.
        unsafe {
            let errno = *libc::__errno_location();
            PROCESS.log.opened(fd, flags);
            *libc::__errno_location() = errno;
        }
    }
    fd
}

/// Defines functions that open, with what says how.
macro_rules! opens {
    ($( $doc:literal, $name:ident($($arg:ident: $type:ty),*), $flags:expr; )*) => { $(
        #[doc = $doc]
        ///
        /// # Safety
        /// The caller keeps the contract of the man page. (Where it is variadic in C, what it reads
        /// lies in the same registers.)
                pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: the program's own arguments.
            opened(opening($flags, || unsafe { real::$name($($arg),*) }), $flags)
        }
    )* };
}

opens! {
    "`open(2)`.", open(path: *const c_char, flags: c_int, mode: c_uint), flags;
    "`open64`: on x86-64 the same.", open64(path: *const c_char, flags: c_int, mode: c_uint), flags;
    "`openat(2)`.", openat(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint), flags;
    "`openat64`: on x86-64 the same.", openat64(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint), flags;
    "`creat(2)`.", creat(path: *const c_char, mode: c_uint), libc::O_WRONLY;
    "`creat64`: on x86-64 the same.", creat64(path: *const c_char, mode: c_uint), libc::O_WRONLY;
    "`open(2)` that checks its flags.", __open_2(path: *const c_char, flags: c_int), flags;
    "`open64` that checks its flags.", __open64_2(path: *const c_char, flags: c_int), flags;
    "`openat(2)` that checks its flags.", __openat_2(dir: c_int, path: *const c_char, flags: c_int), flags;
    "`openat64` that checks its flags.", __openat64_2(dir: c_int, path: *const c_char, flags: c_int), flags;
}

/// `fsync(2)`: what is held is durable once it returns.
///
/// # Safety
/// The caller keeps the contract of the man page.
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    // SAFETY: the program's own argument.
    let call = || unsafe { real::fsync(fd) };
    if PROCESS.log.in_use() { PROCESS.log.sync(fd, false, call) } else { call() }
}

/// `fdatasync(2)`: as [`fsync`].
///
/// # Safety
/// The caller keeps the contract of the man page.
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: the program's own argument.
    let call = || unsafe { real::fdatasync(fd) };
    if PROCESS.log.in_use() { PROCESS.log.sync(fd, true, call) } else { call() }
}

/// `lseek(2)`: a held file's position and end are not the kernel's.
///
/// # Safety
/// The caller keeps the contract of the man page.
pub unsafe extern "C" fn lseek(fd: c_int, at: off_t, whence: c_int) -> off_t {
    if PROCESS.log.in_use()
        && let Some(moved) = PROCESS.log.seek(fd, at, whence)
    {
        return moved;
    }
    // SAFETY: the program's own arguments.
    unsafe { real::lseek(fd, at, whence) }
}

/// `lseek64`: on x86-64 the same.
///
/// # Safety
/// As for [`lseek`].
pub unsafe extern "C" fn lseek64(fd: c_int, at: off_t, whence: c_int) -> off_t {
    // SAFETY: the same function.
    unsafe { lseek(fd, at, whence) }
}

/// Puts the length that a held file has where the kernel has written what it knows of.
unsafe fn put_length(fd: c_int, to: *mut i64) {
    if let Some(length) = PROCESS.log.length(fd) {
        // SAFETY: the kernel has just written there.
        unsafe { give(to, length as i64) };
    }
}

/// `fstat(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
pub unsafe extern "C" fn fstat(fd: c_int, to: *mut libc::stat) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let result = real::fstat(fd, to);
        if result == 0 && PROCESS.log.in_use() {
            put_length(fd, &raw mut (*to).st_size);
        }
        result
    }
}

/// `fstat64`: on x86-64 the same.
///
/// # Safety
/// As for [`fstat`].
pub unsafe extern "C" fn fstat64(fd: c_int, to: *mut libc::stat) -> c_int {
    // SAFETY: the same function.
    unsafe { fstat(fd, to) }
}

/// `fstatat(2)`: with AT_EMPTY_PATH and no path as [`fstat`].
///
/// # Safety
/// The caller keeps the contract of the man page.
pub unsafe extern "C" fn fstatat(
    dir: c_int,
    path: *const c_char,
    to: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let result = real::fstatat(dir, path, to, flags);
        if result == 0 && PROCESS.log.in_use() && is_of_number(path, flags) {
            put_length(dir, &raw mut (*to).st_size);
        }
        result
    }
}

/// `fstatat64`: on x86-64 the same.
///
/// # Safety
/// As for [`fstatat`].
pub unsafe extern "C" fn fstatat64(
    dir: c_int,
    path: *const c_char,
    to: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the same function.
    unsafe { fstatat(dir, path, to, flags) }
}

/// Defines what `fstat` and `fstatat` were before glibc 2.33, which older programs call.
macro_rules! older_stats {
    (
        numbers: $( $doc:literal, $name:ident; )*
        paths: $( $path_doc:literal, $path_name:ident; )*
    ) => {
        $(
            #[doc = $doc]
            ///
            /// # Safety
            /// As for [`fstat`].
            pub unsafe extern "C" fn $name(version: c_int, fd: c_int, to: *mut libc::stat) -> c_int {
                // SAFETY: the program's own arguments.
                unsafe {
                    let result = real::$name(version, fd, to);
                    if result == 0 && PROCESS.log.in_use() {
                        put_length(fd, &raw mut (*to).st_size);
                    }
                    result
                }
            }
        )*
        $(
            #[doc = $path_doc]
            ///
            /// # Safety
            /// As for [`fstatat`].
            pub unsafe extern "C" fn $path_name(
                version: c_int,
                dir: c_int,
                path: *const c_char,
                to: *mut libc::stat,
                flags: c_int,
            ) -> c_int {
                // SAFETY: the program's own arguments.
                unsafe {
                    let result = real::$path_name(version, dir, path, to, flags);
                    if result == 0 && PROCESS.log.in_use() && is_of_number(path, flags) {
                        put_length(dir, &raw mut (*to).st_size);
                    }
                    result
                }
            }
        )*
    };
}

older_stats! {
    numbers:
    "`fstat` before glibc 2.33.", __fxstat;
    "`fstat64` before glibc 2.33.", __fxstat64;
    paths:
    "`fstatat` before glibc 2.33.", __fxstatat;
    "`fstatat64` before glibc 2.33.", __fxstatat64;
}

/// Whether a call means its descriptor, and no path from there.
unsafe fn is_of_number(path: *const c_char, flags: c_int) -> bool {
    // SAFETY: the program's own string, which may be nowhere.
    flags & libc::AT_EMPTY_PATH != 0
        && (path.is_null() || unsafe { take(path.cast::<u8>()) } == Some(0))
}

/// `statx(2)`: as [`fstatat`].
///
/// # Safety
/// The caller keeps the contract of the man page.
pub unsafe extern "C" fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut libc::statx,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let result = real::statx(dir, path, flags, mask, to);
        if result == 0 && PROCESS.log.in_use() && is_of_number(path, flags) {
            put_length(dir, (&raw mut (*to).stx_size).cast());
        }
        result
    }
}

/// Defines calls that the kernel makes on files that are plain meanwhile, which are these of their
/// arguments.
macro_rules! made_plainly {
    ($( $doc:literal, $name:ident($($arg:ident: $type:ty),*) -> $result:ty, [$($fd:ident),*]; )*) => { $(
        #[doc = $doc]
        ///
        /// # Safety
        /// The caller keeps the contract of the man page.
                pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            // SAFETY: the program's own arguments.
            plainly([$($fd),*], || unsafe { real::$name($($arg),*) })
        }
    )* };
}

made_plainly! {
    "`ftruncate(2)`.", ftruncate(fd: c_int, to: off_t) -> c_int, [fd];
    "`ftruncate64`: on x86-64 the same.", ftruncate64(fd: c_int, to: off_t) -> c_int, [fd];
    "`fallocate(2)`.", fallocate(fd: c_int, mode: c_int, at: off_t, n: off_t) -> c_int, [fd];
    "`fallocate64`: on x86-64 the same.", fallocate64(fd: c_int, mode: c_int, at: off_t, n: off_t) -> c_int, [fd];
    "`posix_fallocate(3)`.", posix_fallocate(fd: c_int, at: off_t, n: off_t) -> c_int, [fd];
    "`posix_fallocate64`: on x86-64 the same.", posix_fallocate64(fd: c_int, at: off_t, n: off_t) -> c_int, [fd];
    "`sync_file_range(2)`.", sync_file_range(fd: c_int, at: off_t, n: off_t, flags: c_uint) -> c_int, [fd];
    "`copy_file_range(2)`.",
    copy_file_range(from: c_int, at: *mut off_t, to: c_int, there: *mut off_t, n: size_t, flags: c_uint) -> ssize_t,
    [from, to];
}

/// A call that changes what the kernel knows of a file besides its bytes: what is held is home
/// before, since it would be undone by bytes that come later; and the next `fsync` is the kernel's.
fn changing<R>(fd: c_int, call: impl FnOnce() -> R) -> R {
    if !PROCESS.log.in_use() {
        return call();
    }
    let plain = PROCESS.log.changes(fd);
    let result = call();
    drop(plain);
    result
}

/// Defines such calls.
macro_rules! changes {
    ($( $doc:literal, $name:ident($fd:ident: c_int, $($arg:ident: $type:ty),*); )*) => { $(
        #[doc = $doc]
        ///
        /// # Safety
        /// The caller keeps the contract of the man page.
        pub unsafe extern "C" fn $name($fd: c_int, $($arg: $type),*) -> c_int {
            // SAFETY: the program's own arguments.
            changing($fd, || unsafe { real::$name($fd, $($arg),*) })
        }
    )* };
}

changes! {
    "`fchmod(2)`.", fchmod(fd: c_int, mode: c_uint);
    "`fchown(2)`.", fchown(fd: c_int, user: libc::uid_t, group: libc::gid_t);
    "`futimens(3)`.", futimens(fd: c_int, times: *const libc::timespec);
    "`futimes(3)`.", futimes(fd: c_int, times: *const libc::timeval);
    "`fsetxattr(2)`.", fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, n: size_t, flags: c_int);
    "`fremovexattr(2)`.", fremovexattr(fd: c_int, name: *const c_char);
}

/// `utimensat(2)`: without a path it is about its descriptor.
///
/// # Safety
/// The caller keeps the contract of the man page.
pub unsafe extern "C" fn utimensat(
    dir: c_int,
    path: *const c_char,
    times: *const libc::timespec,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real::utimensat(dir, path, times, flags) };
    // SAFETY: as above.
    if path.is_null() || unsafe { is_of_number(path, flags) } {
        changing(dir, call)
    } else {
        call()
    }
}

/// `sync(2)`: all that is held comes home first.
///
/// # Safety
/// The caller keeps the contract of the man page.
pub unsafe extern "C" fn sync() {
    if PROCESS.log.in_use() {
        PROCESS.log.leave_all(PlainReason::NotAppended);
    }
    // SAFETY: the program's own call.
    unsafe { real::sync() }
}

/// `syncfs(2)`: as [`sync`].
///
/// # Safety
/// The caller keeps the contract of the man page.
pub unsafe extern "C" fn syncfs(fd: c_int) -> c_int {
    if PROCESS.log.in_use() {
        PROCESS.log.leave_all(PlainReason::NotAppended);
    }
    // SAFETY: the program's own call.
    unsafe { real::syncfs(fd) }
}

/// Defines calls after which a held file may have another name.
macro_rules! renames {
    ($( $doc:literal, $name:ident($($arg:ident: $type:ty),*); )*) => { $(
        #[doc = $doc]
        ///
        /// # Safety
        /// The caller keeps the contract of the man page.
                pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: the program's own arguments; errno's address is always valid.
            unsafe {
                let result = real::$name($($arg),*);
                if result == 0 && PROCESS.log.in_use() {
                    let errno = *libc::__errno_location();
                    PROCESS.log.renamed();
                    *libc::__errno_location() = errno;
                }
                result
            }
        }
    )* };
}

renames! {
    "`rename(2)`.", rename(old: *const c_char, new: *const c_char);
    "`renameat(2)`.", renameat(from: c_int, old: *const c_char, to: c_int, new: *const c_char);
    "`renameat2(2)`.", renameat2(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_uint);
}

/// The function behind [`over_mmap`].
static MMAP: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// The function behind `real::mmap` where there is a log. A mapping of `fd` shows what the kernel
/// has: all of it, for good.
unsafe extern "C" fn over_mmap(
    addr: *mut c_void,
    n: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    at: off_t,
) -> *mut c_void {
    type Mmap =
        unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
    if fd >= 0 && flags & libc::MAP_ANONYMOUS == 0 && PROCESS.log.in_use() {
        PROCESS.log.plain_for_good(fd, PlainReason::NotAppended);
    }
    // SAFETY: the function that was there, for the program's own arguments.
    unsafe {
        let behind: Mmap = core::mem::transmute(MMAP.load(Ordering::Relaxed));
        behind(addr, n, prot, flags, fd, at)
    }
}

/// There is a log: mappings are watched. For the constructor.
pub fn watch_mappings() {
    MMAP.store(real::cells::mmap.load(Ordering::Relaxed), Ordering::Relaxed);
    real::cells::mmap.store(over_mmap as *const () as *mut c_void, Ordering::Relaxed);
}

/// The program uses `fd` past us from now on: inside libc, or in another process.
pub(super) fn used_past(fd: c_int) {
    if PROCESS.log.in_use() {
        PROCESS.log.handed_over(fd);
    }
}

/// An `ioctl` on `fd` that may be about the file's bytes.
pub(super) fn before_ioctl(fd: c_int, request: u64) -> Option<uncopy_log_files::Plain> {
    /// Of any descriptor: FIONCLEX, FIOCLEX; whether it is a terminal (TCGETS).
    const OTHERS: [u64; 3] = [0x5450, 0x5451, 0x5401];
    if !PROCESS.log.in_use() || OTHERS.contains(&request) {
        return None;
    }
    PROCESS.log.plainly(fd, PlainReason::NotAppended)
}
