//! The one value of a process: which syncs have returned that are not durable, what waits for them,
//! and who.
//!
//! A thread that waits holds no lock. With the lock held no signal comes to its thread, not libc's
//! own either, by which it cancels threads.
//!
//! Static: the value, for a judge that is given nothing but a call.
//!
//! unsafe: what the lock guards is used with it held.

use crate::gate;
use crate::mappings::{self, Mapped};
use crate::sockets::{self, Known};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};
use uncopy_kernel::lock::Lock;
use uncopy_kernel::sync::Futex;
use uncopy_kernel::thread::ThreadSlot;
use uncopy_kernel::{critical, procfs, thread};
use uncopy_log_book::answers::{Answers, Number};
use uncopy_log_book::as_ever::AsEver;

/// Bytes that wait in queues, at most, of all streams together.
pub const MOST: usize = 4 << 20;
/// So many streams are known, and as many more as have queues.
const STREAMS: usize = 256;
/// The length that `/proc/self/smaps` has, at most, in bytes.
const SMAPS: usize = 16 << 20;

/// In the gate's word: calls are judged, because something that is to be seen may come at any time.
const ON: u64 = 1;
/// In the gate's word: something waits.
const BUSY: u64 = 2;

/// For tests: what is to be seen early is let through.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// So many ms more each flush takes; it then says `durable` on standard error.
    pub slow: u64,
    /// Numbers of system calls that do not wait.
    pub through: Vec<u64>,
}

impl Trial {
    /// Reads `slow=MS` and `through=NUMBER:NUMBER..`, separated by commas.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut trial = Self::default();
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("slow", ms)) => trial.slow = ms.parse().unwrap_or(0),
                Some(("through", all)) => {
                    trial.through = all.split(':').filter_map(|n| n.parse().ok()).collect();
                }
                _ => {}
            }
        }
        trial
    }
}

/// The functions that make syncs durable, and that are told.
#[derive(Debug)]
pub struct Settings {
    /// Makes durable what was synced of these files. False: it cannot be, and the program was told
    /// that it is. Called by a thread of ours.
    pub flush: fn(&[u32]) -> bool,
    /// Syncs are as ever from now on.
    pub told: fn(AsEver),
    /// For tests.
    pub trial: Trial,
}

/// A stream that has a queue, or had one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) cookie: u64,
    pub(crate) fd: u64,
}

/// The state that the lock guards.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) book: Answers,
    /// The book's number of a stream is its place.
    pub(crate) streams: Vec<Stream>,
    /// Where files were mapped.
    pub(crate) mapped: Mapped,
    /// Mounts of file systems that the kernel has by itself.
    mounts: Vec<u64>,
}

impl Inner {
    fn new() -> Self {
        let book = Answers::new(MOST);
        Self { book, streams: Vec::new(), mapped: Mapped::default(), mounts: Vec::new() }
    }

    /// It was found to be a stream.
    pub(crate) fn knows(&self, cookie: u64) -> bool {
        self.streams.iter().any(|stream| stream.cookie == cookie)
    }

    /// The book's number of this stream, which `fd` is one of the descriptors of.
    pub(crate) fn stream(&mut self, cookie: u64, fd: u64) -> u32 {
        let known = self.streams.iter().position(|stream| stream.cookie == cookie);
        let count = self.streams.len();
        let free = || (0..count).find(|at| count >= STREAMS && self.book.queued(*at as u32) == 0);
        let at = known.or_else(free).unwrap_or(count);
        match self.streams.get_mut(at) {
            // (A queue leaves by the descriptor of the latest send: a thread that closes that one
            // waits for all that was sent before. An earlier one may be closed while later bytes
            // wait.)
            Some(stream) => *stream = Stream { cookie, fd },
            None => self.streams.push(Stream { cookie, fd }),
        }
        at as u32
    }
}

/// [`Outputs::state`] of the thread that flushes: not made yet; made; it could not be made.
pub(crate) const NONE: u32 = 0;
pub(crate) const RUNS: u32 = 1;
pub(crate) const FAILED: u32 = 2;

/// See the module. It is never freed.
#[derive(Debug)]
pub struct Outputs {
    pub(crate) settings: Settings,
    /// The process whose it is. (A child of vfork has the same memory.)
    process: u32,
    lock: Lock,
    inner: UnsafeCell<Inner>,
    /// Changes with each flush: threads that wait sleep on it.
    pub(crate) turn: Futex,
    /// Changes with whatever there is to do for the thread that flushes, which sleeps on it.
    pub(crate) work: Futex,
    pub(crate) sleeps: AtomicBool,
    /// So many want that no sync returns early.
    early: AtomicU32,
    /// Why syncs are as ever: the number of an [`AsEver`]; 0: they are not.
    off: AtomicU32,
    /// How often code has come, and after how many of them all was looked through.
    pub(crate) loads: AtomicU32,
    looked: AtomicU32,
    /// Some stream has a protocol over it.
    pub(crate) wraps: AtomicBool,
    pub(crate) thread: ThreadSlot,
    pub(crate) state: AtomicU32,
    /// The thread is to end.
    pub(crate) ends: AtomicBool,
    /// Standard error, as it was at the start.
    pub(crate) errors: Option<Known>,
}

// SAFETY: `inner` is used with the lock held.
unsafe impl Sync for Outputs {}
// SAFETY: nothing of it is a thread's.
unsafe impl Send for Outputs {}

static THE: AtomicPtr<Outputs> = AtomicPtr::new(core::ptr::null_mut());

/// This process's, if syncs return early, or did.
pub(crate) fn the() -> Option<&'static Outputs> {
    // SAFETY: made once, never freed.
    unsafe { THE.load(SeqCst).as_ref() }
}

/// (Past libc, whose calls are judged.)
fn own_process() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().cast_unsigned()
}

/// Whether this process shares memory that it can write to: asked before uncopy shares any.
#[must_use]
pub fn is_mapped() -> bool {
    // (Where that is not told nobody can promise it.)
    procfs::whole(c"/proc/self/smaps", SMAPS).is_none_or(|text| mappings::is_shared(&text))
}

impl Outputs {
    fn new(settings: Settings) -> Self {
        Self {
            settings,
            process: own_process(),
            lock: Lock::new(),
            inner: UnsafeCell::new(Inner::new()),
            turn: Futex::new(0),
            work: Futex::new(0),
            sleeps: AtomicBool::new(false),
            early: AtomicU32::new(0),
            off: AtomicU32::new(0),
            loads: AtomicU32::new(0),
            looked: AtomicU32::new(0),
            wraps: AtomicBool::new(false),
            thread: ThreadSlot::new(),
            state: AtomicU32::new(NONE),
            ends: AtomicBool::new(false),
            errors: sockets::known(2),
        }
    }

    /// This process's.
    pub(crate) fn made(settings: Settings) -> &'static Self {
        let outputs: &'static Self = Box::leak(Box::new(Self::new(settings)));
        THE.store(core::ptr::from_ref(outputs).cast_mut(), SeqCst);
        outputs.with(|inner| outputs.says(inner));
        outputs
    }

    /// Without a gate: calls are judged by who makes them.
    #[cfg(test)]
    pub(crate) fn for_tests(settings: Settings, process: u32) -> &'static Self {
        let outputs = Self { process, ..Self::new(settings) };
        let outputs: &'static Self = Box::leak(Box::new(outputs));
        outputs.with(|inner| outputs.says(inner));
        outputs
    }

    /// In a forked child: its syncs are as ever, and nothing waits.
    pub fn gone_in_child() {
        THE.store(core::ptr::null_mut(), SeqCst);
        uncopy_gate::pending().store(0, SeqCst);
        uncopy_gate::after_fork_in_child();
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        critical::within(|| {
            // (To a thread of ours no signal comes.)
            let mask = (!thread::is_ours()).then(critical::block_signals);
            self.lock.lock();
            // SAFETY: the lock is held.
            let result = f(unsafe { &mut *self.inner.get() });
            self.lock.unlock();
            if let Some(mask) = mask {
                critical::restore_signals(mask);
            }
            result
        })
    }

    /// Tells the gate whether something waits. With the lock held, after each change.
    pub(crate) fn says(&self, inner: &Inner) {
        let busy = if inner.book.is_busy() { BUSY } else { 0 };
        let on = if self.off.load(SeqCst) == 0 { ON } else { 0 };
        uncopy_gate::pending().store(on | busy, SeqCst);
    }

    /// Something waits.
    #[inline]
    pub fn is_busy(&self) -> bool {
        uncopy_gate::pending().load(SeqCst) & BUSY != 0
    }

    /// It is the calling process's: its descriptors are those of the thread that flushes.
    pub(crate) fn is_own(&self) -> bool {
        self.process == own_process()
    }

    /// Nobody wants that syncs are as ever.
    pub(crate) fn is_early(&self) -> bool {
        self.early.load(SeqCst) == 0
    }

    /// A sync is about to return: true, once it has a number. All that it answers for was
    /// published, and a process that opens the file waits until it is durable. `file` says which
    /// one it is, while none is [forgotten](Self::forgets); `None`: it is closed.
    pub fn gives(&'static self, file: impl FnOnce() -> Option<u32>) -> bool {
        if !self.is_early() || !self.is_own() || !self.knows_code() || !self.has_thread() {
            return false;
        }
        let given = self.with(|inner| {
            // (A thread that wants none says so, then takes the lock.)
            let file = if self.is_early() { file() } else { None };
            let given = file.is_some_and(|file| inner.book.give(file).is_some());
            self.says(inner);
            given
        });
        if given {
            self.works();
        }
        given
    }

    /// `forget` makes that nobody gives a number for `file` any more. It is called once none waits
    /// that was given for it.
    pub fn forgets(&self, file: u32, forget: impl FnOnce()) {
        let mut forget = Some(forget);
        loop {
            let waits = self.with(|inner| {
                let waits = inner.book.waits_for(file);
                if !waits && let Some(forget) = forget.take() {
                    forget();
                }
                waits
            });
            if !waits {
                return;
            }
            self.wait_for_all();
        }
    }

    /// There is something to do for the thread that flushes.
    pub(crate) fn works(&self) {
        self.work.fetch_add(1, SeqCst);
        if self.sleeps.load(SeqCst) {
            self.work.wake_one();
        }
    }

    /// All that was loaded makes its calls by libc.
    fn knows_code(&'static self) -> bool {
        let loads = self.loads.load(SeqCst);
        if self.looked.load(SeqCst) == loads {
            return true;
        }
        // (Others look, too, until one has.)
        match gate::looks_at_code() {
            Ok(()) => {
                self.looked.fetch_max(loads, SeqCst);
                true
            }
            Err(reason) => {
                self.off(reason);
                false
            }
        }
    }

    /// Whether the thread that flushes was made.
    pub(crate) fn has_begun(&self) -> bool {
        self.state.load(SeqCst) == RUNS
    }

    /// Returns once all is durable that was synced before, and what was queued has left.
    pub fn wait_for_all(&self) {
        if self.is_busy() {
            let number = self.with(|inner| inner.book.given());
            self.wait_for(number);
        }
    }

    /// As [`wait_for_all`](Self::wait_for_all), before the file of a program is looked at that is
    /// to be executed.
    pub fn wait_to_execute(&self) {
        if !self.lets_through(libc::SYS_execve) {
            self.wait_for_all();
        }
    }

    /// As [`wait_for_all`](Self::wait_for_all), if the process that serves the file system of `fd`
    /// is told what is asked about it.
    pub(crate) fn wait_for_asking(&self, fd: u64) {
        if !self.is_busy() {
            return;
        }
        let Some(mount) = sockets::known(fd).and_then(|known| known.mount) else {
            return self.wait_for_all();
        };
        if self.with(|inner| inner.mounts.contains(&mount)) {
            return;
        }
        self.wait_for_all();
        if sockets::is_of_the_kernel(fd) {
            self.with(|inner| inner.mounts.push(mount));
        }
    }

    /// As [`wait_for_all`](Self::wait_for_all), if another file than this one is to become durable:
    /// before bytes go where a process that opens `file` sees them.
    pub fn wait_but_for(&self, file: u32) {
        if !self.is_busy() || self.lets_through(libc::SYS_write) {
            return;
        }
        let number =
            self.with(|inner| inner.book.waits_for_another(file).then(|| inner.book.given()));
        if let Some(number) = number {
            self.wait_for(number);
        }
    }

    /// The same of what was given up to `number`. Handlers run meanwhile.
    pub(crate) fn wait_for(&self, number: Number) {
        loop {
            let turn = self.turn.load(SeqCst);
            if self.with(|inner| inner.book.has_left(number)) {
                return;
            }
            self.turn.wait(turn);
        }
    }

    /// No sync returns early, and no message is queued, until [`resumes`](Self::resumes): once this
    /// returns nothing waits.
    pub fn pauses(&self) {
        self.early.fetch_add(1, SeqCst);
        if self.lets_through(libc::SYS_clone) {
            return;
        }
        // (A sync that has found that it may return early has given its number by then.)
        let number = self.with(|inner| inner.book.given());
        self.wait_for(number);
    }

    /// A test wants to see that this call is an answer.
    pub(crate) fn lets_through(&self, number: i64) -> bool {
        self.settings.trial.through.contains(&(number as u64))
    }

    /// See [`pauses`](Self::pauses).
    pub fn resumes(&self) {
        self.early.fetch_sub(1, SeqCst);
    }

    /// While `f` runs no sync returns early, if it is this process that calls: a child that shares
    /// its memory waits in its calls.
    pub fn paused<R>(&self, f: impl FnOnce() -> R) -> R {
        if !self.is_own() || self.lets_through(libc::SYS_execve) {
            return f();
        }
        self.pauses();
        let result = f();
        self.resumes();
        result
    }

    /// Syncs are as ever from now on, for this reason, which is what a call is about to do. Returns
    /// once nothing waits.
    pub fn off(&'static self, reason: AsEver) {
        self.pauses();
        let first = self.off.compare_exchange(0, reason as u32, SeqCst, SeqCst).is_ok();
        self.with(|inner| self.says(inner));
        // (A process of one thread may do what others may not.)
        if self.is_own() && self.has_begun() && !self.ends.swap(true, SeqCst) {
            self.works();
            self.thread.await_end();
        }
        if first {
            (self.settings.told)(reason);
        }
    }

    /// Why syncs are as ever. `None`: they return early.
    #[must_use]
    pub fn reason(&self) -> Option<AsEver> {
        AsEver::of(self.off.load(SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_says_what_is_let_through() {
        let trial = Trial::parse("slow=300,through=1:44");
        assert_eq!((trial.slow, trial.through), (300, vec![1, 44]));
        let none = Trial::parse("");
        assert_eq!((none.slow, none.through), (0, vec![]));
    }

    #[test]
    fn streams_keep_their_numbers_while_they_have_queues() {
        let mut inner = Inner { book: Answers::new(100), ..Inner::new() };
        inner.book.give(0);
        let a = inner.stream(7, 3);
        inner.book.sends(a, &[b"a"]);
        assert_eq!(inner.stream(7, 5), a, "another descriptor of the same");
        assert_eq!(inner.streams[a as usize].fd, 5, "its queue leaves by the latest");
        let b = inner.stream(8, 4);
        assert_ne!(a, b);
        assert!(inner.knows(7) && inner.knows(8) && !inner.knows(9));
        for cookie in 9..300 {
            inner.stream(cookie, 6);
        }
        // (Nothing was queued for those: their places are free.)
        assert_eq!(inner.streams.len(), STREAMS);
        assert!(inner.knows(7) && !inner.knows(8) && inner.stream(7, 3) == a);
    }
}
