//! The wait of a blocking call until there is something: it spins for as long as that is cheaper
//! than sleeping, then sleeps, on the ring and on the kernel's connection at once.

use crate::flow::Flow;
use crate::kernel;
use crate::sleepers::Sleeper;
use rustix::event::{PollFd, PollFlags, epoll};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};
use uncopy_tcp_service::ends::is_stand_in;
use uncopy_tcp_shared::phase::At;
use uncopy_tcp_shared::ring::FINISHED;

/// So long a sender waits for room in the ring while the other side takes nothing, in however many
/// calls. One that has a core takes microseconds, and one that waits for a core some milliseconds.
const TIMEOUT: Duration = Duration::from_millis(10);

/// And so long where the other side stands in for another host: there it has taken what the peer
/// has acknowledged, a round trip later.
const TIMEOUT_FOR_HOSTS: Duration = Duration::from_millis(250);

/// How long a call sleeps that waits for more than Linux can tell of.
const RETRY_SLEEP: Duration = Duration::from_millis(1);

/// So long at most, where so much is left to wait.
pub(crate) fn a_moment(left: Option<Duration>) -> Duration {
    left.map_or(RETRY_SLEEP, |left| left.min(RETRY_SLEEP))
}

/// How long it is until then.
pub(crate) fn until(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// The purpose of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Data,
    /// The same, for a call that receives them: it passes an urgent byte that comes.
    Next,
    /// More of it, for a call that has some: it ends at an urgent byte, too.
    Rest,
    /// More than so many bytes, which are there and were looked at.
    More(u32),
    Room,
}

impl For {
    /// Of a call that has received so many bytes, or only looks.
    pub(crate) fn bytes(got: usize, looks: bool) -> Self {
        match got {
            0 if looks => Self::Data,
            0 => Self::Next,
            _ => Self::Rest,
        }
    }
}

impl Flow {
    /// There may be something now, as far as the ring tells.
    #[inline]
    pub(crate) fn has_news(&self, what: For) -> bool {
        let Some(attached) = self.attached() else { return false };
        match what {
            For::Data | For::Next | For::Rest | For::More(_) => {
                let inward = attached.inward();
                let known = if let For::More(bytes) = what { bytes } else { 0 };
                match inward.switch.phase.at() {
                    Ok(At::Linux | At::Returned) => false,
                    Ok(At::Offered | At::Ring) => {
                        let tail = inward.produced.tail.load(Acquire);
                        tail != attached.head().wrapping_add(known)
                    }
                    Ok(At::Leaving) | Err(_) => true,
                }
            }
            For::Room => match attached.out().switch.phase.at() {
                Ok(At::Linux | At::Leaving) => false,
                Ok(At::Offered | At::Ring) => attached.has_room(),
                Ok(At::Returned) | Err(_) => true,
            },
        }
    }

    /// Somebody waits for room, and that is the ring's matter, for which the kernel is not asked:
    /// so long at most until this is asked again. A ring that was full for long enough is left,
    /// here: `None`, as where room is Linux' matter.
    pub(crate) fn waits_for_ring(&self) -> Option<Duration> {
        let head = self.room_of_ring()?;
        if self.attached()?.has_room() {
            return Some(TIMEOUT);
        }
        let most = if is_stand_in(self.fd()) { TIMEOUT_FOR_HOSTS } else { TIMEOUT };
        let left = most.saturating_sub(self.full.found(head));
        if !left.is_zero() {
            return Some(left);
        }
        self.leaves_a_full_ring(head);
        self.room_of_ring().map(|_| TIMEOUT)
    }

    /// As below, for a call of the program's, which may be interrupted otherwise than by a signal.
    pub(crate) fn wait_in_call(
        &self,
        what: For,
        deadline: &mut Option<Option<Instant>>,
    ) -> Result<(), Errno> {
        if (self.context.settings.interrupted)() {
            return Err(Errno::INTR);
        }
        self.wait(what, deadline)
    }

    /// Waits for a moment, for a call that looks ahead over what Linux has: Linux cannot be asked
    /// to tell of more than that.
    pub(crate) fn nap_in_call(&self, deadline: &mut Option<Option<Instant>>) -> Result<(), Errno> {
        if (self.context.settings.interrupted)() {
            return Err(Errno::INTR);
        }
        let deadline = self.deadline(For::Data, deadline)?;
        kernel::ppoll(&mut [], Some(a_moment(until(deadline))), None).map(drop)
    }

    /// Until when a call waits: SO_RCVTIMEO and SO_SNDTIMEO count from its first wait.
    fn deadline(
        &self,
        what: For,
        deadline: &mut Option<Option<Instant>>,
    ) -> Result<Option<Instant>, Errno> {
        let deadline = *deadline.get_or_insert_with(|| {
            let nanoseconds = self.timeout(what == For::Room);
            (nanoseconds != 0).then(|| Instant::now() + Duration::from_nanos(nanoseconds))
        });
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Errno::AGAIN);
        }
        Ok(deadline)
    }

    /// Waits until the call should be tried again. EAGAIN: SO_RCVTIMEO or SO_SNDTIMEO has passed;
    /// EINTR: a signal handler ran.
    pub(crate) fn wait(
        &self,
        what: For,
        deadline: &mut Option<Option<Instant>>,
    ) -> Result<(), Errno> {
        let deadline = self.deadline(what, deadline)?;
        let context = &self.context;
        // Before both are at the ring nothing is to be expected there.
        let at_ring = self.attached().is_some_and(|attached| {
            let inward = attached.inward();
            let direction = if what == For::Room { attached.out() } else { inward };
            direction.switch.phase.at() == Ok(At::Ring)
                && inward.produced.flags.load(Relaxed) & FINISHED == 0
        });
        if at_ring && context.spinning.spin(|| self.has_news(what)) {
            return Ok(());
        }
        // (A program that only makes calls that wait learns here of doors.)
        context.pump();
        let mut sleeper = match self.take_sleeper(true) {
            Err(Errno::MFILE | Errno::NFILE) => return self.sleep_by_linux(what, deadline),
            sleeper => sleeper?,
        };
        let slept = self.sleep(what, deadline, &mut sleeper);
        self.give_back_sleeper(sleeper);
        context.serve_asked();
        slept
    }

    /// There is no descriptor to sleep in: the connection goes by Linux from now on, whose socket
    /// is waited for. Until it does that alone is not enough: a call looks again after a moment.
    #[cold]
    fn sleep_by_linux(&self, what: For, deadline: Option<Instant>) -> Result<(), Errno> {
        let by_linux = self.gives_way();
        let left = until(deadline);
        let mut fds = match what {
            // (Linux would tell of what is known.)
            For::More(_) => vec![],
            For::Room => vec![PollFd::from_borrowed_fd(self.fd(), PollFlags::OUT)],
            For::Data => vec![PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)],
            For::Next | For::Rest => {
                vec![PollFd::from_borrowed_fd(self.fd(), PollFlags::IN | PollFlags::PRI)]
            }
        };
        let left = if by_linux && !fds.is_empty() { left } else { Some(a_moment(left)) };
        kernel::ppoll(&mut fds, left, None)?;
        self.ask.store(true, Relaxed);
        self.context.serve_asked();
        Ok(())
    }

    fn sleep(
        &self,
        what: For,
        deadline: Option<Instant>,
        sleeper: &mut Sleeper,
    ) -> Result<(), Errno> {
        use epoll::EventFlags as E;
        let mut attached = self.attached();
        let counted = attached.is_none();
        if counted {
            // The thread that attaches it knocks.
            self.waiting.fetch_add(1, Relaxed);
            fence(SeqCst);
            attached = self.attached();
        }
        let word = attached.map(|attached| match what {
            For::Data | For::Next | For::Rest | For::More(_) => &attached.inward().consumed.data,
            For::Room => &attached.out().produced.room,
        });
        if let Some(word) = word {
            word.arm(sleeper.doors());
        }
        // For room in the ring the kernel is not asked. Another thread may leave the ring at any
        // moment from here on: so whether it is, and for how long, belong to one look.
        let most = if what == For::Room { self.waits_for_ring() } else { None };
        let events = match what {
            For::Data | For::More(_) => E::IN | E::RDHUP,
            For::Next | For::Rest => E::IN | E::RDHUP | E::PRI,
            For::Room if most.is_some() => E::RDHUP,
            // (By level the end of the peer's stream is told without end, and has nothing to do
            // with room. A death is told in any case.)
            For::Room => E::OUT,
        };
        let events = if self.owes() { events | E::OUT } else { events };
        let slept = (|| {
            sleeper.watch(self.fd(), self.number(), events)?;
            if self.has_news(what) {
                return Ok(());
            }
            let left = until(deadline);
            let left = most.map(|most| left.map_or(most, |left| left.min(most))).or(left);
            let left = self.context.deaths.wake(left);
            let left = if self.context.spinning.only_looks() { Some(Duration::ZERO) } else { left };
            let nothing = epoll::Event { flags: E::empty(), data: epoll::EventData::new_u64(0) };
            let mut events = [nothing; 2];
            let count = kernel::epoll_wait(sleeper.set.as_fd(), &mut events, left, None)?;
            if events[..count].iter().any(|event| event.data.u64() == 1) {
                self.ask.store(true, Relaxed);
                if self.owes() {
                    // (An error: the next send hears of it.)
                    let _ = self.serve();
                }
            }
            Ok(())
        })();
        // (The word stays armed: other threads may wait over it by the same door. One knock in vain
        // is the worst.)
        if counted {
            self.waiting.fetch_sub(1, Relaxed);
        }
        slept
    }
}
