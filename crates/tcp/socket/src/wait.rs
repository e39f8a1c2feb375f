//! What a blocking call does until there is something: spin for as long as that is cheaper than sleeping, then sleep, on the ring and on the
//! kernel's connection at once.

use crate::context::lock;
use crate::flow::Flow;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, socket_timeout};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, fence};
use std::time::{Duration, Instant};
use uncopy_tcp_shared::phase::At;
use uncopy_tcp_shared::ring::FINISHED;
use uncopy_tcp_shared::wanted::Doors;

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Spins where that has paid lately, then sleeps.
    Adaptive,
    /// Spins.
    Spin,
    /// Sleeps.
    Sleep,
}

/// What for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Data,
    Room,
}

/// Whether spinning pays: it does not where the other side has no core to run on meanwhile, or has nothing to say.
#[derive(Debug)]
pub(crate) struct Spinning {
    waiting: Waiting,
    failures: AtomicU32,
}

/// As long as falling asleep and being woken cost both sides: who spins longer than that wastes no more than as much again.
const PATIENCE: Duration = Duration::from_micros(10);
/// After so many in vain it is left, ...
const FAILURES: u32 = 4;
/// ... and tried once in so many: 10 us in 64 sleeps of 5 us and more.
const AGAIN: u32 = 64;

impl Spinning {
    pub fn new(waiting: Waiting) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let waiting =
            if waiting == Waiting::Adaptive && cores < 2 { Waiting::Sleep } else { waiting };
        Self { waiting, failures: AtomicU32::new(0) }
    }

    /// Until `done`, if that pays. False: sleep.
    #[inline]
    pub fn spin(&self, mut done: impl FnMut() -> bool) -> bool {
        match self.waiting {
            Waiting::Sleep => return false,
            Waiting::Spin => {
                // The kernel's side of the connection is looked at by the sleep that follows.
                for _ in 0..20_000 {
                    if done() {
                        return true;
                    }
                    std::hint::spin_loop();
                }
                return false;
            }
            Waiting::Adaptive => {}
        }
        let failures = self.failures.load(Relaxed);
        if failures >= FAILURES && !failures.is_multiple_of(AGAIN) {
            self.failures.store(failures.wrapping_add(1).max(FAILURES), Relaxed);
            return false;
        }
        let begun = Instant::now();
        loop {
            for _ in 0..16 {
                if done() {
                    if failures != 0 {
                        self.failures.store(0, Relaxed);
                    }
                    return true;
                }
                std::hint::spin_loop();
            }
            if begun.elapsed() > PATIENCE {
                self.failures.store(failures.wrapping_add(1), Relaxed);
                return false;
            }
        }
    }

    /// It never sleeps for longer than it takes to look.
    pub fn only_looks(&self) -> bool {
        self.waiting == Waiting::Spin
    }
}

/// What a thread sleeps in: an epoll set of one door and one socket. Each has a view of its own of the door's edges, so that no sleeper takes
/// another's knock.
#[derive(Debug)]
pub(crate) struct Sleeper {
    pub set: OwnedFd,
    pub door: usize,
    socket: Option<(RawFd, epoll::EventFlags)>,
}

/// As many as threads ever slept at once.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    idle: Mutex<Vec<Sleeper>>,
    made: AtomicU32,
}

impl Sleepers {
    fn take(&self, doors: &[OwnedFd], socket: RawFd) -> Result<Sleeper, Errno> {
        let mut idle = lock(&self.idle);
        let same = |sleeper: &Sleeper| sleeper.socket.is_some_and(|(fd, _)| fd == socket);
        if let Some(i) = idle.iter().position(same) {
            return Ok(idle.swap_remove(i));
        }
        if let Some(sleeper) = idle.pop() {
            return Ok(sleeper);
        }
        drop(idle);
        let door = self.made.fetch_add(1, Relaxed) as usize % doors.len();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, &doors[door], epoll::EventData::new_u64(0), edges)?;
        Ok(Sleeper { set, door, socket: None })
    }

    fn give_back(&self, sleeper: Sleeper) {
        lock(&self.idle).push(sleeper);
    }

    /// The program closes this number.
    pub fn forget(&self, socket: BorrowedFd, number: RawFd) {
        for sleeper in lock(&self.idle).iter_mut() {
            if sleeper.socket.is_some_and(|(fd, _)| fd == number) {
                let _ = epoll::delete(&sleeper.set, socket);
                sleeper.socket = None;
            }
        }
    }

    /// In a forked child: they are the parent's.
    pub fn clear(&self) {
        lock(&self.idle).clear();
    }
}

impl Sleeper {
    fn watch(
        &mut self,
        socket: BorrowedFd,
        number: RawFd,
        events: epoll::EventFlags,
    ) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(1);
        match self.socket {
            Some((fd, now)) if fd == number => {
                if now != events {
                    epoll::modify(&self.set, socket, data, events)?;
                }
            }
            other => {
                if let Some((fd, _)) = other {
                    // SAFETY: only a number for the kernel; `forget` has been called if it is another file's now.
                    let _ = epoll::delete(&self.set, unsafe { BorrowedFd::borrow_raw(fd) });
                }
                epoll::add(&self.set, socket, data, events)?;
            }
        }
        self.socket = Some((number, events));
        Ok(())
    }
}

/// Milliseconds and finer, for the kernel.
pub(crate) fn timespec(left: Duration) -> Timespec {
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
}

impl Flow {
    /// The program has set SO_RCVTIMEO or SO_SNDTIMEO: what the kernel says is what counts, and asking it for each wait is a tenth of one.
    pub fn refresh_timeouts(&self) {
        for (timeout, which) in self.timeouts.iter().zip([Timeout::Recv, Timeout::Send]) {
            let set = socket_timeout(self.fd(), which).ok().flatten();
            timeout.store(set.map_or(0, |set| set.as_nanos() as u64), Relaxed);
        }
    }

    /// There may be something now, as far as the ring tells.
    #[inline]
    pub(crate) fn has_news(&self, what: For) -> bool {
        let Some(attached) = self.attached() else { return false };
        match what {
            For::Data => {
                let inward = attached.inward();
                match inward.switch.phase.at() {
                    Ok(At::Linux) => false,
                    Ok(At::Offered | At::Ring) => {
                        let tail = inward.produced.tail.load(Acquire);
                        tail != inward.consumed.head.load(Relaxed)
                    }
                    Ok(At::Leaving) | Err(_) => true,
                }
            }
            For::Room => match attached.out().switch.phase.at() {
                Ok(At::Linux | At::Leaving) => false,
                Ok(At::Offered | At::Ring) => crate::send::has_room(attached),
                Err(_) => true,
            },
        }
    }

    /// Waits until the call should be tried again. EAGAIN: SO_RCVTIMEO or SO_SNDTIMEO has passed; EINTR: a signal handler ran.
    pub(crate) fn wait(
        &self,
        what: For,
        deadline: &mut Option<Option<Instant>>,
    ) -> Result<(), Errno> {
        let begun = Instant::now();
        let deadline = *deadline.get_or_insert_with(|| {
            let which = usize::from(what == For::Room);
            let nanoseconds = self.timeouts[which].load(Relaxed);
            (nanoseconds != 0).then(|| begun + Duration::from_nanos(nanoseconds))
        });
        if deadline.is_some_and(|deadline| deadline <= begun) {
            return Err(Errno::AGAIN);
        }
        let context = &self.context;
        // Before both are at the ring nothing is to be expected there.
        let at_ring = self.attached().is_some_and(|attached| {
            let inward = attached.inward();
            let direction = if what == For::Data { inward } else { attached.out() };
            direction.switch.phase.at() == Ok(At::Ring)
                && inward.produced.flags.load(Relaxed) & FINISHED == 0
        });
        if at_ring && context.spinning.spin(|| self.has_news(what)) {
            return Ok(());
        }
        let mut sleeper = context.sleepers.take(&context.doors, self.number())?;
        let slept = self.sleep(what, deadline, &mut sleeper);
        context.sleepers.give_back(sleeper);
        slept
    }

    fn sleep(
        &self,
        what: For,
        deadline: Option<Instant>,
        sleeper: &mut Sleeper,
    ) -> Result<(), Errno> {
        use epoll::EventFlags as E;
        self.waiting.fetch_add(1, Relaxed);
        fence(SeqCst);
        let attached = self.attached();
        let word = attached.map(|attached| match what {
            For::Data => &attached.inward().consumed.data,
            For::Room => &attached.out().produced.room,
        });
        let doors = Doors::wake(sleeper.door);
        if let Some(word) = word {
            word.arm(doors);
        }
        let events = match what {
            For::Data => E::IN | E::RDHUP,
            For::Room => match attached.map(|attached| attached.out().switch.phase.at()) {
                Some(Ok(At::Offered | At::Ring)) => E::RDHUP,
                _ => E::RDHUP | E::OUT,
            },
        };
        let slept = (|| {
            sleeper.watch(self.fd(), self.number(), events)?;
            if self.has_news(what) {
                return Ok(());
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = if self.context.spinning.only_looks() { Some(Duration::ZERO) } else { left };
            let nothing = epoll::Event { flags: E::empty(), data: epoll::EventData::new_u64(0) };
            let mut events = [nothing; 2];
            let count = epoll::wait(&sleeper.set, &mut events, left.map(timespec).as_ref())?;
            if events[..count].iter().any(|event| event.data.u64() == 1) {
                self.ask.store(true, Relaxed);
            }
            Ok(())
        })();
        if let Some(word) = word {
            word.disarm(doors);
        }
        self.waiting.fetch_sub(1, Relaxed);
        slept
    }
}

impl crate::Context {
    /// Wakes all of this process' own sleepers.
    pub(crate) fn knock_here(&self) {
        for door in &self.doors {
            let _ = rustix::io::write(door.as_fd(), &1u64.to_ne_bytes());
        }
    }
}
