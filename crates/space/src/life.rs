//! How the space begins and ends: made before the program runs, started at the first copy worth
//! eliding, stood down where the program forbids itself what we need.
//!
//! unsafe: fills the cell that holds it, before the program has threads, and reaches it under the
//! lock to start.

use crate::descriptors::made_by;
use crate::gate::{IDLE, OFF};
use crate::pages::{Means, Pages};
use crate::space::{Books, Inner, Settings, Space};
use crate::work::TOLD_EVERY;
use core::sync::atomic::{AtomicU64, Ordering};
use uncopy_core::excluded::Excluded;
use uncopy_core::tracker::{Limits, Tracker};
use uncopy_decide::Basis;
use uncopy_kernel::descriptors::lift;
use uncopy_kernel::uffd::{Maker, Refusal};
use uncopy_kernel::{critical, procfs};
use uncopy_ranges::span::PAGE;

const VIEWS_MAX: usize = 1 << 20;
/// `vm.max_map_count` where it cannot be read.
const MAP_COUNT: usize = 65530;

impl Space {
    /// Makes the userfaultfds (now, before the program drops privileges or enters a sandbox) and
    /// becomes idle. From then on copies of `threshold` bytes and more may be elided.
    ///
    /// # Errors
    /// [`Refusal`]; the space stays off.
    pub fn init(&'static self, threshold: usize, settings: Settings) -> Result<(), Refusal> {
        let made = self.make(threshold, settings);
        if let Err(why) = made {
            self.off_because(why);
        }
        made
    }

    /// Writes down why there is no userfaultfd.
    pub(crate) fn off_because(&self, why: Refusal) {
        self.off(match why {
            Refusal::Permission => &self.counters().off_permission,
            Refusal::Kernel => &self.counters().off_kernel,
            Refusal::Other(_) => &self.counters().off_resources,
        });
    }

    /// Writes down why nothing more is elided.
    pub fn off(&self, why: &AtomicU64) {
        self.own.detect_unknown_fork();
        why.store(1, Ordering::Relaxed);
    }

    fn make(&'static self, threshold: usize, settings: Settings) -> Result<(), Refusal> {
        let maker = Maker::open();
        let fds = made_by(&maker)?;
        let maker = match maker {
            Maker::Device(fd) => Maker::Device(lift(&fd).unwrap_or(fd)),
            other => other,
        };
        self.own.plant(settings.alone).map_err(Refusal::Other)?;
        self.monitor.whereabouts.threads.prepare();
        self.publish_descriptors(Some(&fds), &maker);
        // SAFETY: called once, by the library's constructor, before the program has threads.
        unsafe {
            self.inner.make(Inner {
                settings,
                maker,
                fds: Some(fds),
                books: None,
                excluded: Excluded::new(),
            });
        }
        // (A recording has all copies.)
        let none =
            settings.controller.begins_with_none(settings.backoff) && settings.record.is_none();
        self.pauses().none_elides.store(u32::from(none), Ordering::Relaxed);
        self.threshold.store(!threshold, Ordering::Relaxed);
        self.track_input_above(threshold);
        self.gate.set_state(IDLE);
        Ok(())
    }

    /// Whether the program has copied so much that it may be worth finding out whether eliding
    /// pays, and nothing has started.
    #[inline]
    pub fn may_pay(&self) -> bool {
        self.gate.state() == IDLE && self.copied.load(Ordering::Relaxed) >= TOLD_EVERY
    }

    /// Starts the monitor, if this is the first copy worth eliding. Returns whether it runs.
    pub fn start(&'static self) -> bool {
        if self.gate.state() != IDLE || critical::inside() {
            return self.running();
        }
        // A thread that a child of vfork made would be its own, and end with it: the copy is made
        // plainly there.
        if !self.own.in_own_process() {
            return false;
        }
        // No handler of the program runs on this thread until the start is done: it might fork,
        // which waits for that.
        let mask = critical::block_signals();
        critical::enter();
        self.starts.fetch_add(1, Ordering::SeqCst);
        let claimed = !self.lacks_room() && self.gate.begin_start();
        let lives = claimed && self.own.alive();
        let mut tell: Option<fn()> = None;
        let ready = lives && {
            // SAFETY: the lock is held.
            let inner = unsafe { self.inner.get() };
            inner.is_some_and(|inner| {
                tell = Some(inner.settings.started);
                self.prepare(inner)
            })
        };
        if claimed {
            self.gate.unlock();
        }
        critical::leave();
        if claimed {
            // (From here on whoever is in the book of blocks keeps the monitor out. Nobody is: this
            // is his thread, or there are several.)
            self.visited.store(true, Ordering::Relaxed);
            self.ids.note();
            let started = ready && self.monitor.spawn(self);
            self.has_run.fetch_or(started, Ordering::Relaxed);
            if started {
                self.statistics.publish();
                tell.into_iter().for_each(|tell| tell());
            }
            if lives && !started {
                self.off(if ready {
                    &self.counters().off_thread
                } else {
                    &self.counters().off_resources
                });
                self.close_books();
            }
            critical::within(|| self.gate.end_start(started));
        }
        self.starts.fetch_sub(1, Ordering::SeqCst);
        critical::restore_signals(mask);
        self.running()
    }

    /// Stops tracking anything new, for good: the program enters a sandbox, or locks its memory.
    /// Tracked memory is put in place, and the monitor ends; views that cannot be put in place stay
    /// served.
    pub fn stand_down(&'static self) {
        self.end_recording();
        self.with_inner_after_fork(|_| {
            self.monitor.whereabouts.forbid();
            self.gate.stand_down();
        });
        self.make_all_ordinary();
        self.statistics.close();
        let page = self.with_inner_after_fork(|inner| {
            let tracked = |b: &Books| b.everything().is_some();
            if inner.books.as_ref().is_some_and(tracked) {
                return None;
            }
            self.gate.set_state(OFF);
            inner.books.as_ref().map(|b| b.memory.wake_page())
        });
        // (The thread of a child of vfork's parent is not the child's to end.)
        if let Some(page) = page.flatten().filter(|_| self.own.in_own_process()) {
            self.monitor.dismiss(page);
            self.with_inner_after_fork(|inner| self.close_userfaultfds(inner));
        }
    }

    /// Nothing was ever tracked, nothing will be: memory, addresses and descriptors go back.
    fn close_books(&'static self) {
        let mut hold = self.hold();
        let Some(inner) = hold.inner() else { return };
        self.publish_descriptors(None, &Maker::SystemCall);
        inner.maker = Maker::SystemCall;
        inner.fds = None;
        if let Some(mut books) = inner.books.take() {
            books.memory.abandon_pool();
        }
    }

    /// Userfaultfds and books, where there are none yet, or none any more (in a forked child).
    fn prepare(&'static self, inner: &mut Inner) -> bool {
        let ready = (inner.fds().is_some() || self.make_userfaultfds(inner))
            && (inner.books.is_some() || self.open_books(inner));
        if ready {
            self.record(inner);
        }
        ready
    }

    fn open_books(&'static self, inner: &mut Inner) -> bool {
        let s = inner.settings;
        let default = || self.default_extent_bytes();
        let extent_bytes = if s.extent_bytes == 0 { default() } else { s.extent_bytes };
        let ranges = if s.ranges == 0 { max_map_count() / 4 } else { s.ranges };
        let Some(fds) = inner.fds.take() else {
            return false;
        };
        let means = Means {
            copy_bytes: s.copy_bytes,
            books_short: s.books_short,
            counters: self.counters(),
            addresses: &self.pool,
            allowance: &self.allowance,
            lazily_freed: &self.lazily_freed,
        };
        let Ok(pages) = Pages::new(fds, extent_bytes, means) else {
            return false;
        };
        let shape = pages.shape();
        let limits = Limits {
            extent_bytes: extent_bytes.min((shape.pages - shape.boundary) * PAGE),
            ranges,
            views: VIEWS_MAX,
        };
        let shared = &self.statistics.shared;
        let control = s.controller.control(Basis {
            threshold: self.threshold(),
            backoff: s.backoff,
            costs: s.costs,
            pauses: &shared.pauses,
            records: &shared.records,
        });
        let control = control.timed_by(s.times);
        let mut books = Tracker::new(pages, shape, limits, control, &self.filter, self.counters());
        *books.excluded() = core::mem::take(&mut inner.excluded);
        inner.books = Some(books);
        true
    }
}

fn max_map_count() -> usize {
    let mut room = [0; 32];
    let text = procfs::read(c"/proc/sys/vm/max_map_count", &mut room);
    let text = text.and_then(|text| core::str::from_utf8(text).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(MAP_COUNT)
}
