//! The program's memory, read and written where its pointer may lead nowhere: what the kernel
//! answers with EFAULT must not crash us. As the kernel does it: a fault in the few instructions
//! here is known by where it happened, and goes on elsewhere. That costs no system call.
//!
//! The handler of SIGSEGV and SIGBUS that does it is the preload library's (`hooks::signals`),
//! because the program's own are called from there too. It is put in place by the first access.
//! Where it cannot be (the program ignores these signals, which programs that it executes must find
//! ignored) the bytes go through the kernel, by a system call.
//!
//! A static: a process has one handler for each signal, and the entry of that handler asks, which
//! has nothing in hand.
//!
//! unsafe: the instructions, and what their callers may be given.

use crate::own_memory::own_memory;
use core::arch::global_asm;
use core::ffi::c_char;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use uncopy_ranges::span::PAGE;

// (to, from, bytes) -> whether all of them were copied. Words first: a list of buffers is nothing
// else.
global_asm!(
    ".pushsection .text.uncopy_user_access, \"ax\", @progbits",
    ".globl uncopy_user_access",
    ".hidden uncopy_user_access",
    ".type uncopy_user_access, @function",
    ".globl uncopy_user_access_begins",
    ".hidden uncopy_user_access_begins",
    ".globl uncopy_user_access_ends",
    ".hidden uncopy_user_access_ends",
    ".globl uncopy_user_access_failed",
    ".hidden uncopy_user_access_failed",
    ".balign 16",
    "uncopy_user_access:",
    ".cfi_startproc",
    "mov rcx, rdx",
    "shr rcx, 3",
    "jz 3f",
    "uncopy_user_access_begins:",
    "2:",
    "mov rax, qword ptr [rsi]",
    "mov qword ptr [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "dec rcx",
    "jnz 2b",
    "3:",
    "and edx, 7",
    // (Copying no bytes so takes 11 ns on an Intel Xeon.)
    "jz 4f",
    "mov ecx, edx",
    "rep movsb",
    "uncopy_user_access_ends:",
    "4:",
    "mov eax, 1",
    "ret",
    "uncopy_user_access_failed:",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".size uncopy_user_access, . - uncopy_user_access",
    ".popsection",
);

unsafe extern "C" {
    fn uncopy_user_access(to: *mut u8, from: *const u8, bytes: usize) -> bool;
    fn uncopy_user_access_begins();
    fn uncopy_user_access_ends();
    fn uncopy_user_access_failed();
}

/// Where a fault at `rip` goes on, if it is one of ours.
pub fn goes_on(rip: usize) -> Option<usize> {
    let of = |f: unsafe extern "C" fn()| f as *const () as usize;
    (of(uncopy_user_access_begins)..of(uncopy_user_access_ends))
        .contains(&rip)
        .then(|| of(uncopy_user_access_failed))
}

/// One of the two signals by which the kernel tells of a bad address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGSEGV.
    Segv = 1,
    /// SIGBUS.
    Bus = 2,
}

/// The handlers that are in place: the [`Fault`]s that they are for, a mask. (A static of its own:
/// entries in assembly compare with it.)
pub static CAUGHT: AtomicU8 = AtomicU8::new(0);
/// [`CAUGHT`] where a fault of ours is caught.
pub const BOTH: u8 = Fault::Segv as u8 | Fault::Bus as u8;

struct Handlers {
    /// The function that puts them in place, a `fn() -> bool`; 0 before it is known.
    catcher: AtomicUsize,
    asked: AtomicBool,
    no_calls: AtomicBool,
}

static HANDLERS: Handlers = Handlers {
    catcher: AtomicUsize::new(0),
    asked: AtomicBool::new(false),
    no_calls: AtomicBool::new(false),
};

/// Our handler of `fault` is in place from now on, or (told before) is not any more.
pub fn is_caught(fault: Fault, caught: bool) {
    if caught {
        CAUGHT.fetch_or(fault as u8, Relaxed);
    } else {
        CAUGHT.fetch_and(!(fault as u8), Relaxed);
    }
}

/// `catch` puts our handlers in place; called at the first access, and at the next where it
/// returns false.
pub fn caught_by(catch: fn() -> bool) {
    HANDLERS.catcher.store(catch as usize, Relaxed);
}

/// From now on no system call is made for it: a sandbox may kill for that. (Nor is anything elided,
/// so little is read.)
pub fn no_calls() {
    HANDLERS.no_calls.store(true, Relaxed);
}

/// Whether that is so.
pub fn without_calls() -> bool {
    HANDLERS.no_calls.load(Relaxed)
}

/// Whether a fault of ours is caught.
#[inline]
fn ready() -> bool {
    CAUGHT.load(Relaxed) == BOTH || make_ready()
}

#[cold]
fn make_ready() -> bool {
    let h = &HANDLERS;
    let catch = h.catcher.load(Relaxed);
    if catch != 0 && !without_calls() && !h.asked.swap(true, Relaxed) {
        // SAFETY: stored by `caught_by`.
        let catch: fn() -> bool = unsafe { core::mem::transmute(catch) };
        h.asked.store(catch(), Relaxed);
    }
    CAUGHT.load(Relaxed) == BOTH
}

/// Copies `bytes` of them; false where not all could be read and written.
///
/// # Safety
/// The memory of `to` may be overwritten.
#[inline]
unsafe fn copy(to: usize, from: usize, bytes: usize) -> bool {
    if ready() {
        // SAFETY: faults are caught; the caller's promise.
        unsafe { uncopy_user_access(to as *mut u8, from as *const u8, bytes) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { copy_by_kernel(to, from, bytes) }
    }
}

#[cold]
unsafe fn copy_by_kernel(to: usize, from: usize, bytes: usize) -> bool {
    let piece = |addr: usize| libc::iovec { iov_base: addr as *mut _, iov_len: bytes };
    let (here, there) = (piece(to), piece(from));
    // SAFETY: whatever is not there is answered with EFAULT; the caller's promise.
    unsafe {
        let n = if without_calls() {
            -(libc::EPERM as isize)
        } else {
            own_memory(libc::SYS_process_vm_readv, &here, core::slice::from_ref(&there))
        };
        if n >= 0 || n == -(libc::EFAULT as isize) {
            return n == bytes as isize;
        }
        // A sandbox forbids that: then as if all were well.
        uncopy_user_access(to as *mut u8, from as *const u8, bytes)
    }
}

/// A type of which any bytes are a valid value.
///
/// # Safety
/// That.
pub unsafe trait Plain: Copy {}
// SAFETY: plain words, or structures of such and of raw pointers, from the kernel's interface.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for i16 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for i64 {}
// SAFETY: as above.
unsafe impl Plain for usize {}
// SAFETY: as above.
unsafe impl Plain for libc::iovec {}
// SAFETY: as above.
unsafe impl Plain for libc::msghdr {}
// SAFETY: as above.
unsafe impl Plain for libc::mmsghdr {}
// SAFETY: as above.
unsafe impl Plain for libc::stack_t {}
// SAFETY: as above.
unsafe impl<T> Plain for *const T {}
// SAFETY: as above.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Fills `to` from the program's memory; false where it cannot be read.
#[inline]
pub fn read_all<T: Plain>(from: *const T, to: &mut [MaybeUninit<T>]) -> bool {
    // SAFETY: `to` is ours to be written to.
    unsafe { copy(to.as_mut_ptr() as usize, from as usize, size_of_val(to)) }
}

/// The value that the program's pointer points to; `None` where it cannot be read.
#[inline]
pub fn read<T: Plain>(from: *const T) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let there = read_all(from, core::slice::from_mut(&mut value));
    // SAFETY: filled, with what may be any bytes.
    there.then(|| unsafe { value.assume_init() })
}

/// Whether the program's string begins so; `None` where it cannot be read that far.
pub fn begins_with(string: *const c_char, prefix: &[u8]) -> Option<bool> {
    let mut at = string as usize;
    let mut rest = prefix;
    let mut here = [MaybeUninit::<u8>::uninit(); SHORT];
    while !rest.is_empty() {
        // (Memory beyond the end of the string, on another page, need not be there.)
        let n = rest.len().min(SHORT).min(PAGE - at % PAGE);
        if !read_all(at as *const u8, &mut here[..n]) {
            return None;
        }
        // SAFETY: just filled.
        let same = here[..n].iter().zip(rest).all(|(h, r)| unsafe { h.assume_init() } == *r);
        if !same {
            return Some(false);
        }
        at += n;
        rest = &rest[n..];
    }
    Some(true)
}

/// The program's string, without its end; `None` where it cannot be read.
pub fn string(from: *const c_char) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut here = [MaybeUninit::<u8>::uninit(); SHORT];
    loop {
        let at = from as usize + text.len();
        let n = SHORT.min(PAGE - at % PAGE);
        if !read_all(at as *const u8, &mut here[..n]) {
            return None;
        }
        // SAFETY: just filled.
        let bytes = here[..n].iter().map(|h| unsafe { h.assume_init() });
        let before = text.len();
        text.extend(bytes.take_while(|b| *b != 0));
        if text.len() < before + n {
            return Some(text);
        }
    }
}

/// Bytes of a string that are read at once.
const SHORT: usize = 64;

/// Writes to where the program's pointer points to; false where that cannot be.
///
/// # Safety
/// The program wants it written.
#[inline]
pub unsafe fn write<T: Plain>(to: *mut T, value: &T) -> bool {
    // SAFETY: the caller's promise.
    unsafe { copy(to as usize, core::ptr::from_ref(value) as usize, size_of::<T>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_handler_the_kernel_is_asked() {
        let value = [0x1234_5678_9abc_def0u64, 7, u64::MAX];
        assert_eq!(read(&raw const value), Some(value));
        assert_eq!(read(0x10 as *const u64), None);
        assert_eq!(read(usize::MAX as *const u8), None);
        let mut there = 0u32;
        // SAFETY: a variable of ours.
        assert!(unsafe { write(&raw mut there, &5) });
        assert_eq!(there, 5);
        // SAFETY: nothing is there.
        assert!(!unsafe { write(8 as *mut u32, &5) });
    }

    #[test]
    fn strings() {
        let text = [b'x'; 5000];
        let mut long = text.to_vec();
        long.push(0);
        assert_eq!(string(long.as_ptr().cast()).as_deref(), Some(&text[..]));
        assert_eq!(string(8 as *const _), None);
        assert_eq!(begins_with(c"LD_PRELOAD=x".as_ptr(), b"LD_PRELOAD="), Some(true));
        assert_eq!(begins_with(c"LD_".as_ptr(), b"LD_PRELOAD="), Some(false));
        assert_eq!(begins_with(long.as_ptr().cast(), &text[..200]), Some(true));
        assert_eq!(begins_with(8 as *const _, b"a"), None);
    }

    #[test]
    fn all_lengths() {
        let from: [u8; 40] = core::array::from_fn(|i| i as u8 + 1);
        for n in 0..=40 {
            let mut to = [0u8; 41];
            // SAFETY: arrays of ours.
            let copied = unsafe { uncopy_user_access(to.as_mut_ptr(), from.as_ptr(), n) };
            assert!(copied && to[..n] == from[..n] && to[n..].iter().all(|b| *b == 0));
        }
    }
}
