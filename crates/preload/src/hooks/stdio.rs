//! stdio, and asynchronous requests, over connections: libc reads, writes and closes by functions
//! of its own there, which nobody interposes.
//!
//! unsafe: see the crate; the variadic functions are entered in assembly, because Rust (stable)
//! cannot define them.

use super::files::used_past;
use crate::process::PROCESS;
use crate::real;
use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use rustix::io::Errno;
use uncopy_kernel::user_access;
use uncopy_tcp_calls::data::answer;

unsafe extern "C" {
    fn fileno(stream: *mut c_void) -> c_int;
}

/// `fdopen(3)`: the connection is Linux's from then on. EBUSY: it cannot be.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
    if PROCESS.tcp.in_use() {
        used_past(fd);
        if !PROCESS.tcp.is_used_past(fd) {
            answer(Err(Errno::BUSY));
            return core::ptr::null_mut();
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { real::fdopen(fd, mode) }
}

/// Makes a call that closes a stream's number, and reports the closing if the number is something
/// of ours.
unsafe fn closing<R>(stream: *mut c_void, call: impl FnOnce() -> R) -> R {
    if !PROCESS.tcp.in_use() || stream.is_null() {
        return call();
    }
    // SAFETY: the program's own stream; errno's address is always valid. (A stream may have no
    // number.)
    let closing = unsafe {
        let errno = *libc::__errno_location();
        let fd = fileno(stream);
        *libc::__errno_location() = errno;
        PROCESS.log.closes(fd);
        (fd >= 0).then(|| PROCESS.tcp.closes(fd))
    };
    let result = call();
    if let Some(closing) = closing {
        PROCESS.tcp.closed(closing);
    }
    result
}

/// `fclose(3)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut c_void) -> c_int {
    // SAFETY: the program's own argument.
    unsafe { closing(stream, || real::fclose(stream)) }
}

/// `freopen(3)`: what the stream had is closed.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: the program's own arguments.
    unsafe { closing(stream, || real::freopen(path, mode, stream)) }
}

/// `freopen64`: on x86-64 the same.
///
/// # Safety
/// As for [`freopen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: the same function.
    unsafe { freopen(path, mode, stream) }
}

/// `print`, which writes to `fd` past us.
fn printing_past(fd: c_int, print: impl FnOnce() -> c_int) -> c_int {
    if !PROCESS.tcp.in_use() {
        return print();
    }
    used_past(fd);
    PROCESS.tcp.sending_past(fd, 0, print)
}

/// `vdprintf(3)`: what it sends goes by Linux.
///
/// # Safety
/// The caller keeps the contract of the man page. (On x86-64 a `va_list` that is passed is its
/// address.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vdprintf(
    fd: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    // SAFETY: the program's own arguments.
    printing_past(fd, || unsafe { real::vdprintf(fd, format, arguments) })
}

/// `vdprintf(3)` that refuses `%n` in memory that can be written.
///
/// # Safety
/// As for [`vdprintf`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    // SAFETY: the program's own arguments.
    printing_past(fd, || unsafe { real::__vdprintf_chk(fd, flag, format, arguments) })
}

/// Defines a variadic function by the one that takes a `va_list`, whose address goes in `list`; so
/// many bytes of registers hold what stands before the variable arguments. (The list is that of the
/// System V ABI: two offsets, what came on the stack, and the registers as they came.)
macro_rules! variadic_printf {
    ($name:ident, $to:ident, $list:literal, $named:literal, $doc:literal) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// The caller keeps the contract of the man page.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> c_int {
            naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 208",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "movaps [rsp + 48], xmm0",
                "movaps [rsp + 64], xmm1",
                "movaps [rsp + 80], xmm2",
                "movaps [rsp + 96], xmm3",
                "movaps [rsp + 112], xmm4",
                "movaps [rsp + 128], xmm5",
                "movaps [rsp + 144], xmm6",
                "movaps [rsp + 160], xmm7",
                concat!("mov dword ptr [rsp + 176], ", $named),
                "mov dword ptr [rsp + 180], 48",
                "lea rax, [rbp + 16]",
                "mov [rsp + 184], rax",
                "mov [rsp + 192], rsp",
                concat!("lea ", $list, ", [rsp + 176]"),
                "call {to}",
                "leave",
                "ret",
                to = sym $to,
            )
        }
    };
}

variadic_printf!(dprintf, vdprintf, "rdx", "16", "`dprintf(3)`: as [`vdprintf`].");
variadic_printf!(
    __dprintf_chk,
    __vdprintf_chk,
    "rcx",
    "24",
    "`dprintf(3)`: as [`__vdprintf_chk`]."
);

/// Requests name their descriptor first (`aiocb`). False: it is a connection that cannot be
/// Linux's.
fn is_used(request: *mut c_void) -> bool {
    !PROCESS.tcp.in_use()
        || user_access::read(request.cast::<c_int>()).is_none_or(|fd| {
            used_past(fd);
            PROCESS.tcp.is_used_past(fd)
        })
}

/// Defines a request that libc's own threads carry out.
macro_rules! request {
    ($( $name:ident, $same:ident, $doc:literal; )*) => { $(
        #[doc = $doc]
        ///
        /// # Safety
        /// The caller keeps the contract of the man page.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(request: *mut c_void) -> c_int {
            if !is_used(request) {
                return answer(Err(Errno::BUSY)) as c_int;
            }
            // SAFETY: the program's own argument.
            unsafe { real::$name(request) }
        }

        /// On x86-64 the same.
        ///
        /// # Safety
        /// The caller keeps the contract of the man page.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $same(request: *mut c_void) -> c_int {
            // SAFETY: the same function.
            unsafe { $name(request) }
        }
    )* };
}

request! {
    aio_read, aio_read64, "`aio_read(3)`: the connection is Linux's from then on. EBUSY: it cannot be.";
    aio_write, aio_write64, "`aio_write(3)`: as [`aio_read`].";
}

/// `aio_fsync(3)`: as [`aio_read`].
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_fsync(operation: c_int, request: *mut c_void) -> c_int {
    if !is_used(request) {
        return answer(Err(Errno::BUSY)) as c_int;
    }
    // SAFETY: the program's own arguments.
    unsafe { real::aio_fsync(operation, request) }
}

/// On x86-64 the same.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_fsync64(operation: c_int, request: *mut c_void) -> c_int {
    // SAFETY: the same function.
    unsafe { aio_fsync(operation, request) }
}

/// `lio_listio(3)`: as [`aio_read`].
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lio_listio(
    mode: c_int,
    list: *const *mut c_void,
    count: c_int,
    event: *mut c_void,
) -> c_int {
    for i in 0..usize::try_from(count).unwrap_or(0) {
        if let Some(request) = user_access::read(list.cast::<*const c_void>().wrapping_add(i))
            && !request.is_null()
            && !is_used(request.cast_mut())
        {
            return answer(Err(Errno::BUSY)) as c_int;
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { real::lio_listio(mode, list, count, event) }
}

/// `lio_listio64`: on x86-64 the same.
///
/// # Safety
/// As for [`lio_listio`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lio_listio64(
    mode: c_int,
    list: *const *mut c_void,
    count: c_int,
    event: *mut c_void,
) -> c_int {
    // SAFETY: the same function.
    unsafe { lio_listio(mode, list, count, event) }
}
