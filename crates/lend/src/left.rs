//! A send by reference that is left in the middle: by a handler that does not come back
//! (`longjmp`), or because its thread is cancelled. The send's changes to its thread and the
//! socket (SIGPIPE blocked, a cork), and the pipe that it holds, are written down here meanwhile.
//! The note costs no system call.
//!
//! - A handler of the program begins with all of it undone, so that it may leave, and with the mask
//!   that it would have found. Where it returns, the kernel restores the interrupted mask; the cork
//!   is not set again.
//! - libc runs our cleanup handler where the thread is cancelled, before the program's own. While a
//!   handler runs it is not registered: nothing of ours would be left in libc's list if the handler
//!   leaves.
//!
//! A thread's own: the send that is under way.
//!
//! unsafe: libc's list of cleanup handlers, with an entry that lives as long as its thread; system
//! calls on the signals of this thread.

use crate::ask::cork;
use crate::slot::Slot;
use core::cell::{Cell, UnsafeCell};
use core::ffi::{c_int, c_void};
use uncopy_kernel::{critical, sigpipe};

/// libc's `struct _pthread_cleanup_buffer`.
#[repr(C)]
struct Cleanup {
    routine: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
    cancel_type: c_int,
    previous: *mut Cleanup,
}

impl Cleanup {
    const fn new() -> Self {
        let null = core::ptr::null_mut();
        Self { routine: None, argument: null, cancel_type: 0, previous: core::ptr::null_mut() }
    }
}

unsafe extern "C" {
    fn _pthread_cleanup_push(
        entry: *mut Cleanup,
        routine: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(entry: *mut Cleanup, execute: c_int);
}

struct UnderWay {
    active: Cell<bool>,
    corked: Cell<Option<i32>>,
    pipe: Cell<Option<&'static Slot>>,
    entry: UnsafeCell<Cleanup>,
}

thread_local! {
    static UNDER_WAY: UnderWay = const {
        UnderWay {
            active: Cell::new(false),
            corked: Cell::new(None),
            pipe: Cell::new(None),
            entry: UnsafeCell::new(Cleanup::new()),
        }
    };
}

impl UnderWay {
    fn activate(&self, active: bool) {
        self.active.set(active);
        critical::attend(active);
    }

    /// Whether libc's list begins with our entry.
    fn registered(&self) -> bool {
        let mut probe = Cleanup::new();
        // SAFETY: put in and taken out at once.
        unsafe {
            _pthread_cleanup_push(&mut probe, cancelled, core::ptr::null_mut());
            let first = probe.previous == self.entry.get();
            _pthread_cleanup_pop(&mut probe, 0);
            first
        }
    }

    fn register(&self) {
        if !self.registered() {
            // SAFETY: the entry lives as long as the thread, and is in the list once.
            unsafe { _pthread_cleanup_push(self.entry.get(), cancelled, core::ptr::null_mut()) };
        }
    }

    fn unregister(&self) {
        if self.registered() {
            // SAFETY: it is the first of the list.
            unsafe { _pthread_cleanup_pop(self.entry.get(), 0) };
        }
    }
}

/// A send by reference, until it is dropped.
pub(crate) struct Sending;

impl Sending {
    pub(crate) fn begin() -> Self {
        UNDER_WAY.with(|u| {
            u.corked.set(None);
            u.pipe.set(None);
            sigpipe::forget();
            u.activate(true);
            u.register();
        });
        Self
    }

    /// It is about to cork `fd`, or has taken the cork out.
    pub(crate) fn corks(fd: Option<i32>) {
        UNDER_WAY.with(|u| u.corked.set(fd));
    }

    /// It has this pipe, or has given it back.
    pub(crate) fn holds(pipe: Option<&'static Slot>) {
        UNDER_WAY.with(|u| u.pipe.set(pipe));
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        UNDER_WAY.with(|u| {
            u.unregister();
            u.activate(false);
        });
    }
}

/// The thread ends in the middle of its send.
unsafe extern "C" fn cancelled(_: *mut c_void) {
    UNDER_WAY.with(|u| {
        sigpipe::undo(None);
        if let Some(fd) = u.corked.take() {
            cork(fd, 0);
        }
        if let Some(pipe) = u.pipe.take() {
            pipe.abandon();
        }
        u.activate(false);
    });
}

/// The state that [`resumed`] puts back.
#[derive(Debug)]
pub struct Interrupted(Option<Before>);

#[derive(Debug)]
struct Before {
    mask: u64,
    corked: Option<i32>,
    pipe: Option<&'static Slot>,
}

/// A handler of the program for `signal` begins on this thread; `mask` tells that of what it
/// interrupted.
#[inline]
pub fn interrupted(signal: c_int, mask: impl FnOnce() -> u64) -> Interrupted {
    Interrupted(UNDER_WAY.with(|u| u.active.get().then(|| undo(u, signal, mask()))))
}

#[cold]
fn undo(u: &UnderWay, signal: c_int, mask: u64) -> Before {
    u.unregister();
    let before = Before {
        mask: sigpipe::undo(Some((signal, mask))),
        corked: u.corked.take(),
        pipe: u.pipe.take(),
    };
    if let Some(fd) = before.corked {
        cork(fd, 0);
    }
    // (At the end: a handler that interrupts this one here does all of it by itself, and sets it
    // back.)
    u.activate(false);
    before
}

/// It returned.
#[inline]
pub fn resumed(interrupted: Interrupted) {
    if let Some(before) = interrupted.0 {
        UNDER_WAY.with(|u| {
            sigpipe::again(before.mask);
            u.corked.set(before.corked);
            u.pipe.set(before.pipe);
            u.activate(true);
            u.register();
        });
    }
}
