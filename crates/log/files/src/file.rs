//! An open file of the program's, by however many descriptors it has it.

use crate::guarded::Guarded;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};
use std::sync::Arc;
use uncopy_kernel::critical;
use uncopy_kernel::lock::Lock;
use uncopy_log_book::timing::Timing;
use uncopy_log_share::layout::ONCE;

/// The way that its calls go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// They are the kernel's; it may be held later.
    Plain = 0,
    /// It is about to be held: calls wait.
    Beginning = 1,
    /// Appends go to memory.
    Held = 2,
    /// They are the kernel's for good.
    Never = 3,
    /// This process has it from its parent, which may hold it: the service is asked before the
    /// first call.
    Inherited = 4,
}

impl State {
    fn of(word: u32) -> Self {
        match word {
            0 => Self::Plain,
            1 => Self::Beginning,
            2 => Self::Held,
            4 => Self::Inherited,
            _ => Self::Never,
        }
    }
}

/// [`File::slot`]: it was never held.
pub(crate) const NEVER: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub struct File {
    state: AtomicU32,
    /// Calls of the kernel's that are under way.
    plain: AtomicU32,
    /// Held by who appends, and by who changes what it is.
    lock: Lock,
    pub(crate) fds: AtomicU32,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// Each write goes to the end (O_APPEND).
    pub(crate) appends: AtomicBool,
    /// Where it is held, and by which number in records.
    pub(crate) slot: AtomicU32,
    pub(crate) index: AtomicU32,
    /// How far it is durable in the log.
    pub(crate) logged: AtomicU64,
    /// The last flush of its bytes failed; its bytes were not in it.
    pub(crate) log_failed: AtomicBool,
    pub(crate) left_out: AtomicBool,
    /// It is no file that is appended to only.
    pub(crate) not_appended: AtomicBool,
    /// One of this process's syncs of it by the kernel at a time, while it is held.
    pub(crate) kernels: Guarded<()>,
    /// Since when its bytes could not come home: ns of the monotonic clock; 0: they could.
    pub(crate) refused: AtomicU64,
    /// The error that its next sync says: `Entry::lost`.
    pub(crate) lost: AtomicU32,
    /// Mode, owner and links when it was last synced by the kernel.
    pub(crate) signature: AtomicU64,
    /// Its length at the last sync; how often it had grown since the one before.
    pub(crate) length: AtomicU64,
    pub(crate) grown: AtomicU32,
    /// The time that its syncs took.
    pub(crate) timing: Guarded<Timing>,
    /// Its number among those whose syncs have returned early; 0: none has. By which descriptor the
    /// last one was made.
    pub(crate) number: AtomicU32,
    pub(crate) promised_by: AtomicI32,
    /// When it may be held again, and how long that was put off: ns of the monotonic clock.
    pub(crate) after: AtomicU64,
    pub(crate) pause: AtomicU64,
}

impl File {
    pub(crate) fn new(state: State, (device, inode): (u64, u64), appends: bool, fds: u32) -> Self {
        Self {
            state: AtomicU32::new(state as u32),
            plain: AtomicU32::new(0),
            lock: Lock::new(),
            fds: AtomicU32::new(fds),
            device,
            inode,
            appends: AtomicBool::new(appends),
            slot: AtomicU32::new(NEVER),
            index: AtomicU32::new(0),
            logged: AtomicU64::new(0),
            log_failed: AtomicBool::new(false),
            left_out: AtomicBool::new(false),
            not_appended: AtomicBool::new(false),
            kernels: Guarded::new(()),
            refused: AtomicU64::new(0),
            lost: AtomicU32::new(0),
            signature: AtomicU64::new(0),
            length: AtomicU64::new(0),
            grown: AtomicU32::new(0),
            timing: Guarded::new(Timing::default()),
            number: AtomicU32::new(0),
            promised_by: AtomicI32::new(-1),
            after: AtomicU64::new(0),
            pause: AtomicU64::new(0),
        }
    }

    pub(crate) fn state(&self) -> State {
        State::of(self.state.load(SeqCst))
    }

    pub(crate) fn become_(&self, state: State) {
        self.state.store(state as u32, SeqCst);
    }

    /// A sync of it says that bytes were lost: once, or for good.
    pub(crate) fn says_loss(&self) -> bool {
        self.lost.compare_exchange(ONCE, 0, SeqCst, SeqCst) != Err(0)
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot.load(SeqCst) as usize
    }

    pub(crate) fn index(&self) -> u32 {
        self.index.load(SeqCst)
    }

    /// It is held by this number.
    pub(crate) fn is_held_by(&self, index: u32) -> bool {
        self.state() == State::Held && self.index() == index
    }

    /// One call of the kernel's, if that is what its calls are now.
    pub(crate) fn plainly(self: &Arc<Self>) -> Option<Plain> {
        // (Counted first, then looked: a thread that wants to hold it says so first, then looks at
        // the count.)
        self.plain.fetch_add(1, SeqCst);
        let plain = Plain { file: self.clone(), placed: false };
        matches!(self.state(), State::Plain | State::Never).then_some(plain)
    }

    /// The same, of a call that writes: at this place, or at the position.
    pub(crate) fn writes_plainly(self: &Arc<Self>, at: Option<i64>) -> Option<Plain> {
        let mut plain = self.plainly()?;
        // (Where O_APPEND is set the kernel heeds no place.)
        plain.placed = at.is_some() && !self.appends.load(Relaxed);
        Some(plain)
    }

    pub(crate) fn calls(&self) -> u32 {
        self.plain.load(SeqCst)
    }

    /// `f`, while nobody else appends or changes what it is, and no handler of the program runs on
    /// this thread.
    pub(crate) fn alone<R>(&self, f: impl FnOnce() -> R) -> R {
        critical::within(|| {
            self.lock.lock();
            let result = f();
            self.lock.unlock();
            result
        })
    }
}

/// A call of the kernel's on a file is under way: it is not held before that is dropped.
#[derive(Debug)]
pub struct Plain {
    file: Arc<File>,
    /// It writes at a place that the program names.
    placed: bool,
}

impl Plain {
    /// The call has written `n` bytes. (Told before the program is.)
    pub fn wrote(&self, n: isize) {
        // (A program that says where it writes is no log's writer: it will read what it adds, or
        // write over it, and then wants it in the page cache.)
        if self.placed && n > 0 {
            self.file.not_appended.store(true, Relaxed);
        }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.file.plain.fetch_sub(1, SeqCst);
    }
}
