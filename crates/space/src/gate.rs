//! The gate says who may use the books, and when: their lock, the process's state, and the forks
//! under way.
//!
//! The state changes only with the lock held (but for the step into [`STARTING`], which claims the
//! start), and a thread that acts on it looks at it again with the lock held. A fork freezes the
//! books: from [`Gate::freeze`] to [`Gate::thaw`] nobody changes them, and nobody makes them.

use uncopy_kernel::lock::Lock;
use uncopy_kernel::sync::{
    Futex,
    atomic::{AtomicU8, AtomicU32, Ordering, fence},
};

/// Nothing is tracked, and nothing will be.
pub const OFF: u8 = 0;
/// Nothing is tracked yet.
pub const IDLE: u8 = 1;
/// A thread has claimed the start.
pub const STARTING: u8 = 2;
/// Memory that is tracked is served, nothing more is tracked.
pub const SERVING: u8 = 3;
/// As [`RUNNING`], in a child that has not done anything yet with what it got from its parent.
pub const INHERITED: u8 = 4;
/// Tracking.
pub const RUNNING: u8 = 5;

/// See the module.
#[derive(Debug)]
pub struct Gate {
    lock: Lock,
    state: AtomicU8,
    /// Forks under way.
    frozen: Futex,
    /// Threads that wait for their end. (Waking is a system call, which a sandbox may forbid to a
    /// program that needs none.)
    waiting: AtomicU32,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! made_at_compile_time {
    ($($body:tt)*) => {
        #[cfg(not(loom))]
        /// Off.
        pub const fn $($body)*
        #[cfg(loom)]
        /// Off. (loom's atomics are made at run time.)
        pub fn $($body)*
    };
}

// (The entries of copies compare the state with 0, and others with SERVING and INHERITED:
// `preload/src/hooks/entries.rs`.)
const _: () = assert!(OFF == 0);

impl Gate {
    /// Where in a gate its state lies, a byte.
    pub const STATE: usize = core::mem::offset_of!(Self, state);

    made_at_compile_time! {
        new() -> Self {
            Self {
                lock: Lock::new(),
                state: AtomicU8::new(OFF),
                frozen: Futex::new(0),
                waiting: AtomicU32::new(0),
            }
        }
    }

    /// The state, which may be another by now.
    #[inline]
    pub fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    /// Sets the state. Only where no other thread exists, or with the lock held.
    pub fn set_state(&self, state: u8) {
        // For who looks without the lock: what was made before is there.
        self.state.store(state, Ordering::Release);
    }

    /// Takes the lock, whatever the state.
    #[inline]
    pub fn lock(&self) {
        self.lock.lock();
    }

    /// Gives it up.
    #[inline]
    pub fn unlock(&self) {
        self.lock.unlock();
    }

    /// After a call whose change of the memory map was reported: if the report was read while a
    /// fork is under way, its line is in the list when this returns.
    ///
    /// The monitor holds the lock from the reading to the line. (Without it: a thread that comes
    /// back from a call whose report was read after [`Gate::freeze`] sees that, and a report that
    /// was read before it is in the books, for the freezing waited for the lock.)
    #[inline]
    pub fn await_line(&self) {
        if self.frozen() {
            self.lock.lock();
            self.lock.unlock();
        }
    }

    /// Whether a fork is under way; with the lock held, if it is to stay so.
    #[inline]
    pub fn frozen(&self) -> bool {
        self.frozen.load(Ordering::Relaxed) != 0
    }

    /// Takes the lock for something that can be left out. Returns false (and has no lock) where it
    /// has to be: while a fork is under way, and unless we are running.
    #[inline]
    pub fn enter(&self) -> bool {
        self.lock.lock();
        if self.state() >= INHERITED && !self.frozen() {
            return true;
        }
        self.lock.unlock();
        false
    }

    /// Takes the lock for something that must not be left out. `Err`: not now (and no lock);
    /// [`Gate::await_thaw`] waits.
    ///
    /// # Errors
    /// The forks under way.
    #[inline]
    pub fn enter_after_fork(&self) -> Result<(), u32> {
        self.lock.lock();
        match self.frozen.load(Ordering::Relaxed) {
            0 => Ok(()),
            forks => {
                self.lock.unlock();
                Err(forks)
            }
        }
    }

    /// Waits while `forks` are under way.
    pub fn await_thaw(&self, forks: u32) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Either the kernel finds `frozen` changed, or `thaw` finds us.
        fence(Ordering::SeqCst);
        self.frozen.wait(forks);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Claims the start and takes the lock. Returns false (and has no lock) where somebody else has
    /// claimed it, it is not wanted, or a fork is under way (a child would find it half done).
    pub fn begin_start(&self) -> bool {
        let claim =
            self.state.compare_exchange(IDLE, STARTING, Ordering::Relaxed, Ordering::Relaxed);
        if claim.is_err() {
            return false;
        }
        self.lock.lock();
        if !self.frozen() {
            return true;
        }
        // Unless it was stood down meanwhile.
        self.change(STARTING, IDLE);
        self.lock.unlock();
        false
    }

    /// Whether somebody is starting now.
    pub fn starting(&self) -> bool {
        self.state.load(Ordering::Acquire) == STARTING
    }

    /// Ends a start that came to nothing; without the lock. (Unless it was stood down meanwhile.)
    pub fn cancel_start(&self) {
        self.change(STARTING, IDLE);
    }

    /// The start came to its end, well or not; without the lock.
    pub fn end_start(&self, started: bool) {
        self.lock.lock();
        self.change(STARTING, if started { RUNNING } else { OFF });
        self.lock.unlock();
    }

    /// A child makes use of what it got. Returns whether it is the first time.
    pub fn begin_in_child(&self) -> bool {
        self.change(INHERITED, RUNNING)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Nothing more is tracked from here on; with the lock held, after forks.
    pub fn stand_down(&self) {
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |state| {
            Some(if state >= SERVING { SERVING } else { OFF })
        });
    }

    /// The books do not change, and are not made, until [`Gate::thaw`]; `first` is called with the
    /// lock held if no other fork is under way.
    pub fn freeze(&self, first: impl FnOnce(), mut pause: impl FnMut()) {
        self.lock.lock();
        if self.frozen.fetch_add(1, Ordering::Relaxed) == 0 {
            first();
        }
        self.lock.unlock();
        // A thread that claimed the start and has not seen us makes books now.
        while self.starting() {
            pause();
        }
    }

    /// Ends [`Gate::freeze`]; `last` is called with the lock held if no other fork is under way.
    pub fn thaw(&self, last: impl FnOnce()) {
        self.lock.lock();
        if self.frozen.load(Ordering::Relaxed) == 1 {
            last();
        }
        self.frozen.fetch_sub(1, Ordering::Relaxed);
        self.lock.unlock();
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.frozen.wake_all();
        }
    }

    /// In a forked child, where no other thread exists: nobody holds the lock, no fork is under
    /// way. Returns the state.
    pub fn reset(&self) -> u8 {
        self.lock.reset();
        self.frozen.store(0, Ordering::Relaxed);
        self.waiting.store(0, Ordering::Relaxed);
        match self.state() {
            // Claimed by a thread that does not exist here, and then found the books frozen.
            STARTING => IDLE,
            state => state,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn idle() -> Gate {
        let gate = Gate::new();
        gate.set_state(IDLE);
        gate
    }

    #[test]
    fn a_start_that_was_none_leaves_it_idle_for_the_next() {
        let gate = idle();
        assert!(gate.begin_start());
        gate.unlock();
        assert!(!gate.begin_start(), "it is claimed");
        gate.cancel_start();
        assert_eq!(gate.state(), IDLE);
        assert!(gate.begin_start());
        gate.unlock();
        gate.end_start(true);
        assert_eq!(gate.state(), RUNNING);
    }

    #[test]
    fn cancelling_does_not_undo_what_ended_the_start_meanwhile() {
        for (ended, state) in [(OFF, OFF), (RUNNING, RUNNING), (SERVING, SERVING)] {
            let gate = idle();
            assert!(gate.begin_start());
            gate.set_state(ended);
            gate.unlock();
            gate.cancel_start();
            assert_eq!(gate.state(), state);
        }
        // Stood down while it was claimed: nothing was tracked, so nothing is served.
        let gate = idle();
        assert!(gate.begin_start());
        gate.stand_down();
        gate.unlock();
        gate.cancel_start();
        assert_eq!(gate.state(), OFF);
    }

    #[test]
    fn a_fork_waits_for_a_claimed_start_to_be_cancelled() {
        let gate: &'static Gate = Box::leak(Box::new(idle()));
        assert!(gate.begin_start());
        gate.unlock();
        let mut paused = 0;
        gate.freeze(
            || (),
            || {
                paused += 1;
                if paused == 3 {
                    gate.cancel_start();
                }
            },
        );
        assert_eq!(paused, 3);
        assert!(!gate.begin_start(), "not while it is frozen");
        assert_eq!(gate.state(), IDLE);
        gate.thaw(|| ());
        assert!(gate.begin_start());
        gate.unlock();
    }
}

/// Every order of the threads' steps (`make loom`). Each test's comment says which change it was
/// seen to catch.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread::{self, yield_now};
    use uncopy_core::extents::{ExtentId, Extents};

    /// A gate and the books behind it: how often they were changed. fork reads them without the
    /// lock, as it does the memory; loom reports whoever changes them meanwhile.
    struct Process {
        gate: Gate,
        books: UnsafeCell<u32>,
    }

    // SAFETY: loom reports wrong uses of `books`.
    unsafe impl Sync for Process {}
    // SAFETY: as above.
    unsafe impl Send for Process {}

    impl Process {
        fn new(state: u8) -> Arc<Self> {
            let gate = Gate::new();
            gate.set_state(state);
            Arc::new(Self { gate, books: UnsafeCell::new(0) })
        }

        fn change(&self) {
            // SAFETY: the lock is held.
            self.books.with_mut(|b| unsafe { *b += 1 });
        }

        fn read(&self) -> u32 {
            // SAFETY: nobody changes them now, or loom says so.
            self.books.with(|b| unsafe { *b })
        }

        /// As `space::start`: the books are made with the lock held, the monitor comes to life and
        /// changes them, too.
        fn start(&self) {
            if self.gate.begin_start() {
                self.change();
                self.gate.unlock();
                self.gate.lock();
                self.change();
                self.gate.unlock();
                self.gate.end_start(true);
            }
        }

        /// As `space::with`.
        fn call(&self) -> bool {
            let entered = self.gate.enter();
            if entered {
                self.change();
                self.gate.unlock();
            }
            entered
        }

        /// As `space::with_after_fork`.
        fn call_after_fork(&self, f: impl FnOnce()) {
            while let Err(forks) = self.gate.enter_after_fork() {
                self.gate.await_thaw(forks);
            }
            f();
            self.gate.unlock();
        }

        /// Returns what the child gets.
        fn fork(&self) -> (u8, u32) {
            self.gate.freeze(|| {}, yield_now);
            let child = (self.gate.state(), self.read());
            self.gate.thaw(|| {});
            child
        }
    }

    /// Caught: `enter` that does not ask for forks; `freeze` without the lock.
    #[test]
    fn no_call_changes_the_books_during_fork() {
        loom::model(|| {
            let process = Process::new(RUNNING);
            let other = process.clone();
            let caller = thread::spawn(move || {
                other.call();
            });
            process.fork();
            caller.join().unwrap();
        });
    }

    /// Two forks overlap; a call that must not be left out waits for both, and is woken.
    ///
    /// Caught: `thaw` that does not wake; one that wakes before it counts down; one that looks for
    /// sleepers without the fence; `enter_after_fork` that goes on after the first.
    #[test]
    fn what_must_not_be_left_out_is_done_after_all_forks() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let process = Process::new(RUNNING);
            let (caller, forker) = (process.clone(), process.clone());
            let caller = thread::spawn(move || caller.call_after_fork(|| caller.change()));
            let forker = thread::spawn(move || {
                forker.fork();
            });
            process.fork();
            caller.join().unwrap();
            forker.join().unwrap();
            process.gate.lock();
            assert_eq!(process.read(), 1);
            process.gate.unlock();
        });
    }

    /// The child gets books that are not there or whole.
    ///
    /// Caught: `begin_start` that does not ask for forks; `freeze` that does not wait for a start
    /// (as it was: it waited before, but not after freezing).
    #[test]
    fn a_fork_finds_no_start_half_done() {
        loom::model(|| {
            let process = Process::new(IDLE);
            let other = process.clone();
            let starter = thread::spawn(move || other.start());
            let (state, books) = process.fork();
            assert!(books == 0 && state != RUNNING || books == 2 && state == RUNNING);
            starter.join().unwrap();
        });
    }

    /// Memory that is tracked is served after standing down, but nothing more is tracked.
    ///
    /// Caught: `enter` that does not look at the state again (as it was: a call that had found us
    /// running came after all).
    #[test]
    fn after_standing_down_no_call_tracks_anything() {
        loom::model(|| {
            let process = Process::new(RUNNING);
            let other = process.clone();
            let caller = thread::spawn(move || {
                other.call();
            });
            process.call_after_fork(|| process.gate.stand_down());
            // Without the lock: loom reports a call that still changes them.
            process.read();
            assert!(!process.call());
            caller.join().unwrap();
        });
    }

    /// Caught: `end_start` that sets its result whatever happened (as it was).
    #[test]
    fn standing_down_outlives_a_start() {
        loom::model(|| {
            let process = Process::new(IDLE);
            let other = process.clone();
            let starter = thread::spawn(move || other.start());
            process.call_after_fork(|| process.gate.stand_down());
            starter.join().unwrap();
            assert_ne!(process.gate.state(), RUNNING);
            assert!(!process.call());
        });
    }

    /// A start that turns out to be none (a limit is set meanwhile) and a fork: the child finds it
    /// idle, and a thread that starts after it does.
    #[test]
    fn a_cancelled_start_keeps_no_fork_waiting_and_undoes_nothing() {
        loom::model(|| {
            let process = Process::new(IDLE);
            let other = process.clone();
            let limiter = thread::spawn(move || {
                if other.gate.begin_start() {
                    other.gate.unlock();
                    other.gate.cancel_start();
                }
            });
            let (state, books) = process.fork();
            assert!(state != RUNNING && books == 0);
            limiter.join().unwrap();
            process.start();
            assert_eq!((process.gate.state(), process.read()), (RUNNING, 2));
        });
    }

    /// A value that a lock guards; loom reports every change without the lock.
    struct Guarded<T> {
        lock: Lock,
        data: UnsafeCell<T>,
    }

    // SAFETY: `data` is used with the lock held; loom reports where it is not.
    unsafe impl<T> Sync for Guarded<T> {}
    // SAFETY: as above.
    unsafe impl<T> Send for Guarded<T> {}

    impl<T> Guarded<T> {
        fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
            self.lock.lock();
            // SAFETY: the lock is held.
            let result = self.data.with_mut(|data| f(unsafe { &mut *data }));
            self.lock.unlock();
            result
        }
    }

    /// An output call reads an extent's page without the lock, but pinned; meanwhile the last view
    /// of it ends. The page is recycled (written) by whoever lets go last, and only then.
    ///
    /// Caught: `pin` without `hold`.
    #[test]
    fn a_pinned_extent_is_not_recycled() {
        loom::model(|| {
            let mut extents = Extents::new();
            let id = extents.create(0, 1, 4096, 0);
            let books = Arc::new(Guarded { lock: Lock::new(), data: UnsafeCell::new(extents) });
            let page = Arc::new(UnsafeCell::new(1));
            let unpin = |books: &Guarded<Extents>, page: &UnsafeCell<i32>, id: ExtentId| {
                if books.with(|e| e.drop_ref(id)).is_some() {
                    // SAFETY: loom reports a reader.
                    page.with_mut(|p| unsafe { *p = 2 });
                }
            };
            let (b, p) = (books.clone(), page.clone());
            let output = thread::spawn(move || {
                let pinned = b.with(|e| {
                    e.alive(id) && {
                        e.hold(id);
                        true
                    }
                });
                if pinned {
                    // SAFETY: loom reports a writer.
                    assert_eq!(p.with(|p| unsafe { *p }), 1);
                    unpin(&b, &p, id);
                }
            });
            unpin(&books, &page, id);
            output.join().unwrap();
            // SAFETY: nobody else is left.
            assert_eq!(page.with(|p| unsafe { *p }), 2);
        });
    }

    /// A thread drops pages, which waits until the monitor has read the kernel's report, and comes
    /// back while another one forks. If that was before the memory is copied, the books or the list
    /// that come along say so.
    ///
    /// Caught: a dropping thread that does not wait for the line (as it was); a monitor that reads
    /// before it takes the lock.
    #[test]
    fn what_was_dropped_before_the_memory_is_copied_is_written_down() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let process = Process::new(RUNNING);
            let [read, listed, returned] = [(); 3].map(|()| Arc::new(AtomicU8::new(0)));
            let (p, r, l) = (process.clone(), read.clone(), listed.clone());
            let monitor = thread::spawn(move || {
                p.gate.lock();
                r.store(1, Ordering::Release);
                if p.gate.frozen() {
                    l.store(1, Ordering::Release);
                } else {
                    p.change();
                }
                p.gate.unlock();
            });
            let (p, r, back) = (process.clone(), read, returned.clone());
            let dropper = thread::spawn(move || {
                if r.load(Ordering::Acquire) != 0 {
                    p.gate.await_line();
                    back.store(1, Ordering::Release);
                }
            });
            process.gate.freeze(|| {}, yield_now);
            let before = returned.load(Ordering::Acquire) != 0;
            let known = process.read() != 0 || listed.load(Ordering::Acquire) != 0;
            assert!(!before || known, "the child sees what was dropped");
            process.gate.thaw(|| {});
            monitor.join().unwrap();
            dropper.join().unwrap();
        });
    }
}
