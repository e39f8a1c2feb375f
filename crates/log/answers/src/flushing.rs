//! The thread that makes syncs durable, and then sends what may leave. A flush answers for the
//! numbers that were given before it began.
//!
//! It is a thread of ours: all that it does is a critical section, and no signal comes to it.
//!
//! unsafe: a thread's argument; the process's end.

use crate::outputs::{FAILED, NONE, Outputs, RUNS};
use crate::sockets::{self, Sent};
use core::sync::atomic::Ordering::SeqCst;
use rustix::time::Timespec;
use uncopy_inject::Point;
use uncopy_kernel::call::syscall4;
use uncopy_kernel::inject;
use uncopy_kernel::thread::Kind;
use uncopy_log_book::as_ever::AsEver;

/// So long, in ns, is waited where the kernel has no room for what may leave.
const RETRY_SLEEP: i64 = 1_000_000;

/// Runs on that thread.
extern "C" fn run(outputs: usize) {
    // SAFETY: the thread's maker hands a value over that is never freed.
    let outputs = unsafe { &*(outputs as *const Outputs) };
    outputs.flushes();
}

fn naps(ns: i64) {
    let time = Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
    let _ = rustix::thread::nanosleep(&time);
}

impl Outputs {
    /// Says something on standard error, if that is what it was at the start, and takes it at once.
    /// (The number may be that of the program's data by now.)
    fn complains(&self, text: &str) {
        if self.errors.is_none() || sockets::known(2) != self.errors || !sockets::takes_bytes(2) {
            return;
        }
        let (call, at) = (libc::SYS_write as usize, text.as_ptr() as usize);
        // SAFETY: bytes of ours.
        unsafe { syscall4(call, 2, at, text.len(), 0) };
    }

    /// It runs, from the first sync on that returns early.
    pub(crate) fn has_thread(&'static self) -> bool {
        if self.state.load(SeqCst) == RUNS {
            return true;
        }
        let runs = self.with(|_| {
            if self.state.load(SeqCst) == NONE {
                // (It has the rights that the program has now.)
                let kind = Kind { inside: true, own_table: false };
                let at = core::ptr::from_ref(self) as usize;
                let made = self.thread.spawn(run, at, kind);
                self.state.store(if made { RUNS } else { FAILED }, SeqCst);
            }
            self.state.load(SeqCst) == RUNS
        });
        if !runs {
            self.off(AsEver::NoThread);
        }
        runs
    }

    fn flushes(&self) {
        while !self.ends.load(SeqCst) {
            let work = self.work.load(SeqCst);
            let begun = self.with(|inner| inner.book.waits().map(|_| inner.book.begin()));
            if let Some((number, files)) = begun {
                inject::point(Point::Flushing);
                self.makes_durable(&files);
                self.with(|inner| inner.book.flushed(number));
                inject::point(Point::Flushed);
            }
            let all_left = self.sends_what_may();
            let waits = self.with(|inner| {
                self.says(inner);
                inner.book.waits().is_some()
            });
            self.turn.fetch_add(1, SeqCst);
            self.turn.wake_all();
            if waits {
                continue;
            }
            if !all_left {
                naps(RETRY_SLEEP);
                continue;
            }
            self.sleeps.store(true, SeqCst);
            self.work.wait(work);
            self.sleeps.store(false, SeqCst);
        }
    }

    /// The bytes of `files` that were synced become durable, or the program ends: it was told that
    /// they are.
    fn makes_durable(&self, files: &[u32]) {
        if self.settings.trial.slow > 0 {
            naps(self.settings.trial.slow as i64 * 1_000_000);
        }
        if !(self.settings.flush)(files) {
            self.with(|inner| inner.book.fails());
            self.complains(
                "uncopy: a sync that had returned early could not be made durable: the program is \
                  killed\n",
            );
            let process = rustix::process::getpid().as_raw_nonzero().get() as usize;
            loop {
                // SAFETY: a signal to this process, which it cannot catch.
                unsafe { syscall4(libc::SYS_kill as usize, process, libc::SIGKILL as usize, 0, 0) };
            }
        }
        if self.settings.trial.slow > 0 {
            self.complains("durable\n");
        }
    }

    /// Sends what of the queues may leave. False: the kernel had no room for some of it.
    fn sends_what_may(&self) -> bool {
        let (mut all, mut bytes) = (true, Vec::new());
        for stream in 0..self.with(|inner| inner.streams.len() as u32) {
            loop {
                let next = self.with(|inner| {
                    bytes.clear();
                    bytes.extend_from_slice(inner.book.next_of(stream)?);
                    inner.streams.get(stream as usize).copied()
                });
                let Some(to) = next else { break };
                match sockets::sends(to.fd, to.cookie, &bytes) {
                    Sent::Bytes(n) => self.with(|inner| inner.book.left(stream, n)),
                    Sent::Later => {
                        all = false;
                        break;
                    }
                    Sent::Gone => self.with(|inner| inner.book.gone(stream)),
                }
                inject::point(Point::Sent);
            }
        }
        all
    }
}
