//! The timer's signal, whose handler receives, copies and sends buffers of its own while all goes
//! on; and the handler of SIGSEGV.

use super::{calls, raw};
use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use uncopy_torture::bytes;

const SIZE: usize = 40 << 10;
/// From the end of a handler to the timer's next signal, in microseconds. (A period would, on a
/// machine with other work, leave no time for anything but the handler.)
const PAUSE: i64 = 1000;

struct Own {
    process: isize,
    file: RawFd,
    turn: u64,
    content: [u8; SIZE],
    received: [u8; SIZE],
    copied: [u8; SIZE],
}

thread_local! {
    static OWN: Cell<*mut Own> = const { Cell::new(core::ptr::null_mut()) };
    /// Pages that this thread expects to fault on.
    static GUARD: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Whether a handler found a wrong byte.
pub static WRONG: AtomicBool = AtomicBool::new(false);

/// Installs the handlers.
pub fn install() {
    // SAFETY: the handlers are written for it; the mask is empty.
    unsafe {
        let mut act: libc::sigaction = core::mem::zeroed();
        act.sa_sigaction = on_segv as *const () as usize;
        act.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &act, core::ptr::null_mut());
        act.sa_sigaction = on_timer as *const () as usize;
        act.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &act, core::ptr::null_mut());
    }
}

/// Whether the timer is to go on.
static ON: AtomicBool = AtomicBool::new(false);

/// Starts the timer of this process, or stops it.
pub fn timer(on: bool) {
    ON.store(on, Relaxed);
    set_timer(if on { PAUSE } else { 0 });
}

fn set_timer(pause: i64) {
    let never = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let once = libc::timeval { tv_sec: 0, tv_usec: pause };
    let value = libc::itimerval { it_interval: never, it_value: once };
    // SAFETY: a timer of this process.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &value, core::ptr::null_mut()) };
}

/// Gives this thread what the timer's handler works with (again, in a child): buffers, and `file`,
/// which is empty.
pub fn prepare(file: OwnedFd) {
    let own = OWN.get();
    let file = file.into_raw_fd();
    if own.is_null() {
        let (content, received, copied) = ([0; SIZE], [0; SIZE], [0; SIZE]);
        let process = raw::pid();
        OWN.set(Box::into_raw(Box::new(Own { process, file, turn: 0, content, received, copied })));
    } else {
        // SAFETY: this thread's own; the handler leaves it alone while the process is another.
        unsafe {
            libc::close((*own).file);
            (*own).file = file;
            (*own).process = raw::pid();
        }
    }
}

/// Runs `f` with the timer's signal blocked: threads made by it take none.
pub fn blocked<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: changes this thread's mask, and changes it back.
    unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        let mut old: libc::sigset_t = core::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGALRM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut old);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, core::ptr::null_mut());
        result
    }
}

extern "C" fn on_timer(_: c_int) {
    // SAFETY: this thread's own buffers and file, which nobody else uses; errno is restored.
    unsafe {
        let errno = *libc::__errno_location();
        let own = OWN.get();
        if !own.is_null() && (*own).process == raw::pid() {
            work(&mut *own);
        }
        if ON.load(Relaxed) {
            set_timer(PAUSE);
        }
        *libc::__errno_location() = errno;
    }
}

fn work(own: &mut Own) {
    own.turn += 1;
    let n = SIZE - (bytes::mix(own.turn) % 3000) as usize;
    bytes::fill(own.turn, 0, &mut own.content[..n]);
    let bad = |got: isize| got != n as isize;
    // SAFETY: the buffers are as long as is said.
    unsafe {
        let (content, received) = (own.content.as_mut_ptr(), own.received.as_mut_ptr());
        let mut wrong = bad(libc::pwrite(own.file, content.cast(), n, 0));
        wrong |= bad(libc::pread(own.file, received.cast(), n, 0));
        calls::memcpy(own.copied.as_mut_ptr().cast(), received.cast(), n);
        own.received[n / 2] ^= 1;
        wrong |= bad(libc::pwrite(own.file, own.copied.as_ptr().cast(), n, 0));
        wrong |= bad(libc::pread(own.file, received.cast(), n, 0));
        wrong |= own.received[..n] != own.content[..n] || own.copied[..n] != own.content[..n];
        if wrong {
            WRONG.store(true, Relaxed);
        }
    }
}

/// Runs `f`, which touches pages that may not be: the handler permits them. Returns whether it had
/// to.
pub fn guarded(start: usize, len: usize, f: impl FnOnce()) -> bool {
    GUARD.set((start, len));
    f();
    let faulted = GUARD.get().1 == 0;
    GUARD.set((0, 0));
    faulted
}

unsafe extern "C" fn on_segv(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes the information; the pages are the operation's own.
    unsafe {
        let errno = *libc::__errno_location();
        let at = (*info).si_addr() as usize;
        let (start, len) = GUARD.get();
        if at >= start && at - start < len {
            GUARD.set((start, 0));
            libc::mprotect(start as *mut c_void, len, libc::PROT_READ | libc::PROT_WRITE);
        } else {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        }
        *libc::__errno_location() = errno;
    }
}
