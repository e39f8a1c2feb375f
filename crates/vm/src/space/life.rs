//! How the space begins and ends: made before the program runs, started at the first copy worth eliding, stood down where the program
//! forbids itself what we need.
//!
//! unsafe: fills the static that holds it, before the program has threads, and reaches it under the lock to start.

use super::alive::{alive, heed_unknown_fork, plant_alive, set_forget_locks};
use super::descriptors::{descriptor_floor, in_own_process, lift, publish_descriptors};
use super::hold::{Hold, with_space_after_fork};
use super::rights::note_ids;
use super::{
    Books, COPY_PRICES, COUNTERS, FILTER, GATE, GLOBAL, PAUSES, Settings, Space, materialize_all,
    running,
};
use crate::gate::{IDLE, OFF};
use crate::pages::{Fds, Pages};
use crate::uffd::{Maker, Refusal};
use crate::{clock, critical, files, lend, monitor, place, procfs, stats};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use uncopy_core::excluded::Excluded;
use uncopy_core::tracker::{Limits, Tracker};
use uncopy_decide::Policy;
use uncopy_ranges::span::PAGE;

const VIEWS_MAX: usize = 1 << 20;
/// `vm.max_map_count` where it cannot be read.
const MAP_COUNT: usize = 65530;

/// Makes the userfaultfds (now, before the program drops privileges or enters a sandbox) and
/// becomes idle.
///
/// # Errors
/// [`Refusal`]; the space stays off.
pub fn init(settings: Settings) -> Result<(), Refusal> {
    let made = make(settings);
    if let Err(why) = made {
        off_because(why);
    }
    made
}

/// Writes down why there is no userfaultfd.
pub(super) fn off_because(why: Refusal) {
    off(match why {
        Refusal::Permission => &COUNTERS.off_permission,
        Refusal::Kernel => &COUNTERS.off_kernel,
        Refusal::Other(_) => &COUNTERS.off_resources,
    });
}

/// Writes down why nothing more is elided.
pub(super) fn off(why: &AtomicU64) {
    heed_unknown_fork();
    why.store(1, Ordering::Relaxed);
}

fn make(settings: Settings) -> Result<(), Refusal> {
    let maker = Maker::open();
    let mut fds = Fds::make(&maker)?;
    let _ = fds.lift(descriptor_floor());
    let maker = match maker {
        Maker::Device(fd) => Maker::Device(lift(&fd).unwrap_or(fd)),
        other => other,
    };
    set_forget_locks(settings.forget_locks);
    plant_alive().map_err(Refusal::Other)?;
    monitor::prepare();
    publish_descriptors(Some(&fds), &maker);
    // SAFETY: called once, by the library's constructor, before the program has threads.
    unsafe {
        *GLOBAL.0.get() =
            Some(Space { settings, maker, fds: Some(fds), books: None, excluded: Excluded::new() });
    }
    GATE.set_state(IDLE);
    Ok(())
}

/// Set for good, children included, once anything may have been registered.
static HAS_RUN: AtomicBool = AtomicBool::new(false);

/// Whether mappings of the program may be in more parts than it knows of: they stay so in a child that
/// goes on without us, and after the end of all tracking.
pub fn may_have_split_mappings() -> bool {
    HAS_RUN.load(Ordering::Relaxed)
}

/// Threads that are in [`start`].
pub(super) static STARTS: AtomicU32 = AtomicU32::new(0);

/// Starts the monitor, if this is the first copy worth eliding. Returns whether it runs.
pub fn start() -> bool {
    if GATE.state() != IDLE || critical::inside() {
        return running();
    }
    // A thread that a child of vfork made would be its own, and end with it: the copy is made plainly there.
    if !in_own_process() {
        return false;
    }
    // No handler of the program runs on this thread until the start is done: it might fork, which
    // waits for that.
    let mask = critical::block_signals();
    critical::enter();
    STARTS.fetch_add(1, Ordering::SeqCst);
    let claimed = GATE.begin_start();
    let lives = claimed && alive();
    let mut tell: Option<fn()> = None;
    let ready = lives && {
        // SAFETY: the lock is held.
        let space = unsafe { &mut *GLOBAL.0.get() }.as_mut();
        space.is_some_and(|space| {
            tell = Some(space.settings.started);
            space.prepare()
        })
    };
    if claimed {
        GATE.unlock();
    }
    critical::leave();
    if claimed {
        note_ids();
        let started = ready && monitor::spawn();
        HAS_RUN.fetch_or(started, Ordering::Relaxed);
        if started {
            stats::publish();
            tell.into_iter().for_each(|tell| tell());
        }
        if lives && !started {
            off(if ready { &COUNTERS.off_thread } else { &COUNTERS.off_resources });
            close_books();
        }
        critical::within(|| GATE.end_start(started));
    }
    STARTS.fetch_sub(1, Ordering::SeqCst);
    critical::restore_signals(mask);
    running()
}

/// Stops tracking anything new, for good: the program enters a sandbox, or locks its memory. What is
/// tracked is put in place, and our threads end; what cannot be put in place stays served.
pub fn stand_down() {
    off(&COUNTERS.off_sandbox);
    lend::close();
    files::stop();
    with_space_after_fork(|_| {
        place::forbid();
        GATE.stand_down();
    });
    materialize_all();
    stats::close();
    let page = with_space_after_fork(|space| {
        let tracked = |b: &Books| b.everything().is_some();
        if space.books.as_ref().is_some_and(tracked) {
            return None;
        }
        GATE.set_state(OFF);
        space.books.as_ref().map(|b| b.memory.wake_page())
    });
    // (The thread of a child of vfork's parent is not the child's to end.)
    if let Some(page) = page.flatten().filter(|_| in_own_process()) {
        monitor::dismiss(page);
        with_space_after_fork(Space::close_userfaultfds);
    }
}

/// [`stand_down`] before a call that the kernel refuses to, or makes otherwise in, a process of several
/// threads, if the second one is ours.
pub fn stand_down_if_alone() {
    if monitor::runs() && in_own_process() && monitor::alone_with_program() {
        stand_down();
    }
}

/// Nothing was ever tracked, nothing will be: memory, addresses and descriptors go back.
fn close_books() {
    let mut hold = Hold::take();
    let Some(space) = hold.space() else { return };
    publish_descriptors(None, &Maker::SystemCall);
    space.maker = Maker::SystemCall;
    space.fds = None;
    if let Some(mut books) = space.books.take() {
        books.memory.abandon_pool();
    }
}

impl Space {
    /// Userfaultfds and books, where there are none yet, or none any more (in a forked child).
    fn prepare(&mut self) -> bool {
        let fds = match &self.books {
            Some(books) => &books.memory.fds,
            None => &self.fds,
        };
        (fds.is_some() || self.make_userfaultfds()) && (self.books.is_some() || self.open_books())
    }

    fn open_books(&mut self) -> bool {
        let s = self.settings;
        let memory = rustix::system::sysinfo().totalram as usize;
        let extent_bytes = if s.extent_bytes == 0 { memory / 8 } else { s.extent_bytes };
        let ranges = if s.ranges == 0 { max_map_count() / 4 } else { s.ranges };
        let Some(fds) = self.fds.take() else {
            return false;
        };
        let Ok(pages) = Pages::new(fds, extent_bytes, s.copy_bytes) else {
            return false;
        };
        let shape = pages.shape();
        let limits = Limits {
            extent_bytes: extent_bytes.min((shape.pages - shape.boundary) * PAGE),
            ranges,
            views: VIEWS_MAX,
        };
        let policy = Policy::new(s.threshold, s.backoff, s.costs, PAUSES)
            .recording(&stats::SHARED.records)
            .priced_by(COPY_PRICES)
            .timed_by(clock::times);
        let mut books = Tracker::new(pages, shape, limits, policy, &FILTER, COUNTERS);
        *books.excluded() = core::mem::take(&mut self.excluded);
        self.books = Some(books);
        true
    }
}

fn max_map_count() -> usize {
    let mut room = [0; 32];
    let text = procfs::read(c"/proc/sys/vm/max_map_count", &mut room);
    let text = text.and_then(|text| core::str::from_utf8(text).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(MAP_COUNT)
}
