//! Going back to Linux for good, for what rings do not carry: another program after exec, another
//! process that is sent the descriptor, io_uring. Sending goes back at once. Bytes that lie unread
//! in the ring that is received from are the sender's again, who sends them by Linux: so no byte is
//! lost, and they stay in order, whoever reads them then. See `uncopy_tcp_shared::phase`.

use crate::attached::Attached;
use crate::ends::{Locked, Receiving, Sending};
use crate::flow::{Flow, ROUNDS};
use crate::kernel;
use rustix::event::PollFlags;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};
use uncopy_tcp_shared::file;
use uncopy_tcp_shared::phase::At;
use uncopy_tcp_shared::ring::{BY_LINUX, FINISHED};

/// How often it looks whether the other side has answered: a wake-up there takes about 5 us.
const LOOK: Duration = Duration::from_micros(20);

/// Bytes that the other side has taken back are with Linux a moment later, unless that was
/// interrupted.
const ARRIVES: Duration = Duration::from_millis(100);
/// So long a call that receives waits for it: a thread that is preempted there goes on after some
/// milliseconds.
const MOMENT: Duration = Duration::from_millis(5);
/// So long all calls of a connection together do: a peer that means harm has no more than this.
const MOMENTS: Duration = Duration::from_millis(100);

/// The fate of the unread bytes of a side that gives its ring back to a peer that does not answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unanswered {
    /// They are this side's again, who reads them here.
    Reclaimed,
    /// They stay the peer's.
    Left,
}

/// False: it is so for longer than that.
fn waits_while(patience: Duration, mut is: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while is() {
        if begun.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

impl Flow {
    /// Both directions are Linux's from now on, for good. False: the other side did not take back
    /// in time what lies unread in the ring, or could not, because it has ended the stream or died.
    /// Then the rest of the ring is to be received here, as before; sending is Linux's all the
    /// same. (A peer that sleeps in a call of ours or has a thread in `Context::attend` answers at
    /// once; another at its next call.)
    pub fn by_linux(&self, timeout: Duration) -> Result<bool, Errno> {
        self.goes_to_linux(timeout, Unanswered::Reclaimed)
    }

    /// As [`Flow::by_linux`], of a side that cannot read the ring any more and does not wait: what
    /// lies unread there stays the other side's, which sends it by Linux at its next call. False:
    /// it will not, because it has ended the stream or died, or might not, because it had left the
    /// ring before.
    pub fn by_linux_later(&self) -> Result<bool, Errno> {
        self.goes_to_linux(Duration::ZERO, Unanswered::Left)
    }

    fn goes_to_linux(&self, timeout: Duration, unanswered: Unanswered) -> Result<bool, Errno> {
        let Some(attached) = self.attached() else { return Ok(true) };
        // (A peer that has died with bytes unread in its ring: they are not sent once more.)
        self.sees_end(attached);
        let deadline = Instant::now() + timeout;
        loop {
            match self.send_by_linux(true) {
                Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(LOOK),
                Err(Errno::AGAIN) => return Ok(false),
                // Nobody reads what we send.
                Err(Errno::PIPE | Errno::CONNRESET) => break,
                other => break other?,
            }
        }
        let mut own = attached.mapped.ends.receiving(attached.slot, self.context.process());
        let left = self.receive_by_linux(attached, &mut own, deadline, unanswered);
        if left == Ok(true) {
            self.left.store(true, Relaxed);
        }
        left
    }

    /// It is wanted at Linux now, by who cannot wait for the ring. False: it is not there yet.
    pub(crate) fn gives_way(&self) -> bool {
        if self.attached().is_none() {
            return self.is_linux() || self.stays_linuxs();
        }
        self.left.load(Relaxed) || self.by_linux(Duration::ZERO) == Ok(true)
    }

    fn receive_by_linux(
        &self,
        attached: &Attached,
        own: &mut Locked<Receiving>,
        deadline: Instant,
        unanswered: Unanswered,
    ) -> Result<bool, Errno> {
        let inward = attached.inward();
        let phase = &inward.switch.phase;
        own.look(&inward.produced).or_else(|_| self.poison(&mut own.poisoned))?;
        if phase.at() == Ok(At::Leaving) && own.reader.filled() == 0 {
            phase.left();
        }
        if self.resets_what_comes(attached) && attached.has_bytes() {
            return Ok(false);
        }
        let patience = || deadline.saturating_duration_since(Instant::now()).min(ARRIVES);
        // (Bytes that are taken back come behind this.)
        let before = attached.has_bytes().then(|| kernel::unread(self.fd()));
        inward.consumed.flags.fetch_or(BY_LINUX, Release);
        let mut given = phase.give_back();
        if given.is_none() {
            // Linux may not have yet what was withdrawn just before. A sender that had not seen
            // this withdraws at once what it offers.
            let patience = if unanswered == Unanswered::Left { Duration::ZERO } else { patience() };
            waits_while(patience, || {
                (attached.is_under_way() || phase.at() == Ok(At::Offered))
                    && !kernel::hung_up(self.fd())
            });
            given = phase.give_back();
        }
        // Either FINISHED is seen below, or the other side sees this before it ends the stream.
        fence(SeqCst);
        // (Bytes that were only offered may have been withdrawn meanwhile.)
        own.reader.forget();
        own.look(&inward.produced).or_else(|_| self.poison(&mut own.poisoned))?;
        let unread = own.reader.filled() > 0;
        own.reader.forget();
        let Some(given) = given else { return Ok(true) };
        if !unread && given != At::Leaving {
            // The next call that sends, or one that is sending, sees it.
            return Ok(true);
        }
        attached.ask();
        loop {
            match phase.at() {
                Ok(At::Linux) => {
                    if unanswered == Unanswered::Reclaimed {
                        // (At a mark Linux' count ends, and what comes behind it changes nothing.)
                        let counts = own.before_mark == 0 && !kernel::is_at_mark(self.fd());
                        let before = before.filter(|_| counts);
                        waits_while(patience(), || {
                            attached.is_under_way()
                                || before.is_some_and(|before| kernel::unread(self.fd()) == before)
                                    && !attached.other_owes()
                                    && !self.is_told_of()
                        });
                    }
                    return Ok(true);
                }
                Ok(At::Returned) => {}
                Ok(_) => break,
                Err(_) => return self.poison(&mut own.poisoned),
            }
            let ended = self.has_ended(attached);
            if ended || Instant::now() >= deadline {
                // A sender that has left may have sent by Linux since: then it refuses.
                if !ended && unanswered == Unanswered::Left && given != At::Leaving {
                    return Ok(true);
                }
                if phase.reclaim(given) {
                    break;
                }
                continue;
            }
            // The other side may wait for the same of us.
            let ends = &attached.mapped.ends;
            let mut sending = ends.sending(attached.slot, self.context.process());
            // (An error: it has gone. The kernel says so above.)
            let _ = self.serve_locked(attached, &mut sending);
            drop(sending);
            std::thread::sleep(LOOK);
        }
        inward.consumed.flags.fetch_and(!BY_LINUX, Release);
        Ok(false)
    }

    /// Linux has something to tell besides bytes, or a byte that it does not count.
    fn is_told_of(&self) -> bool {
        !kernel::poll_now(self.fd(), PollFlags::PRI | PollFlags::RDHUP).is_empty()
    }

    /// Linux' queue was found empty by a call that does not block: waits for a moment for what was
    /// taken back and is on its way there. True: the queue is to be looked at again. (For a sender
    /// that stops there one call waits. A call that blocks sleeps over Linux' socket anyway.)
    #[cold]
    pub(crate) fn comes_now(
        &self,
        attached: &Attached,
        own: &mut Locked<Receiving>,
        flags: i32,
    ) -> bool {
        let settings = &self.context.settings;
        if own.awaited >= MOMENTS
            || !settings.may_wait
            || settings.wary
            || !attached.is_under_way()
            || flags & libc::MSG_DONTWAIT == 0 && !self.is_nonblocking()
        {
            return false;
        }
        let begun = Instant::now();
        let comes = waits_while(MOMENT, || attached.is_under_way());
        own.awaited += begun.elapsed();
        if !comes {
            own.waits_no_more();
        }
        comes
    }

    /// The other side has ended the stream or died: it sends nothing any more, whatever is asked of
    /// it.
    fn has_ended(&self, attached: &Attached) -> bool {
        attached.inward().produced.flags.load(Acquire) & FINISHED != 0 || kernel::hung_up(self.fd())
    }

    /// The bytes that lie unread in the ring, where the other side does not take them back: the
    /// only copy, for the stand-in that is made. Only where no other process holds this end.
    pub fn take_unread(&self) -> Result<Vec<u8>, Errno> {
        let Some(attached) = self.attached() else { return Ok(vec![]) };
        let mut all = vec![];
        let mut piece = vec![0u8; 64 << 10];
        let part = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() };
        let inward = attached.inward();
        let mut rounds = 0;
        while !matches!(inward.switch.phase.at(), Ok(At::Linux | At::Returned)) {
            // Linux's part comes first, and is read too where it stands before the ring's.
            // SAFETY: our own buffer.
            match unsafe { self.receive(&[part], libc::MSG_DONTWAIT) } {
                Ok(bytes @ 1..) => all.extend_from_slice(&piece[..bytes]),
                Ok(_) => break,
                Err(Errno::AGAIN) => {
                    inward.consumed.flags.fetch_or(BY_LINUX, Release);
                    let given = inward.switch.phase.give_back();
                    rounds += 1;
                    let unread = given.filter(|_| self.has_bytes() && rounds < ROUNDS);
                    let Some(given) = unread else { break };
                    // (False: the other side was first, and the phase says how.)
                    inward.switch.phase.reclaim(given);
                }
                Err(error) if all.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(all)
    }

    /// The stand-in for the socket in a program that this process is about to execute, where
    /// [`Flow::by_linux`] said no: it brings the bytes that lie unread in the ring, then those that
    /// the socket brings, and takes those that go there. EBUSY: another process, too, holds this
    /// end, and may want to read the ring. Where the service does not do that, nothing has been
    /// taken out of the ring.
    pub fn stand_in(&self) -> Result<OwnedFd, Errno> {
        let attached = self.attached().ok_or(Errno::NOTCONN)?;
        let holders = attached.mapped.ends.processes(attached.slot).load(Acquire);
        let process = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
        // (After vfork the memory is the parent's, and so is the end.)
        if holders != 1 || process != self.context.process() {
            return Err(Errno::BUSY);
        }
        let client = self.context.any_client().ok_or(Errno::NOTCONN)?;
        let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
        let (program, stand_in) = socketpair(unix, stream, SocketFlags::CLOEXEC, None)?;
        // (Before anything is taken: it is lost where it cannot be written.)
        let by_linux = kernel::unread(self.fd()).unwrap_or(0);
        file::may_be_of(u64::from(attached.unread()) + by_linux as u64)?;
        let memory = rustix::fs::memfd_create("uncopy-tcp-unread", MemfdFlags::CLOEXEC)?;
        let relaying = client.relay(self.fd(), stand_in.as_fd(), memory.as_fd())?;
        drop(stand_in);
        let unread = self.take_unread()?;
        let mut done = 0;
        while done < unread.len() {
            done += rustix::io::pwrite(&memory, &unread[done..], done as u64)?;
        }
        relaying.goes_on(unread.len() as u64)?;
        rustix::io::ioctl_fionbio(&program, self.is_nonblocking())?;
        Ok(program)
    }

    /// The inward ring holds bytes.
    pub fn has_bytes(&self) -> bool {
        self.attached().is_some_and(|attached| attached.unread() > 0)
    }

    /// The other side has asked for its ring, or given it back: one or two loads.
    #[inline]
    pub(crate) fn is_asked(&self, attached: &Attached) -> bool {
        let out = attached.out();
        out.consumed.flags.load(Relaxed) & BY_LINUX != 0
            || out.switch.phase.at() == Ok(At::Returned)
    }

    /// Gives the other side by Linux what it has not read of the ring, if it has asked for that.
    /// Done by every call that sends, and by every one that has slept.
    pub fn serve(&self) -> Result<(), Errno> {
        let Some(attached) = self.attached() else { return Ok(()) };
        let mut own = attached.mapped.ends.sending(attached.slot, self.context.process());
        let served = self.serve_locked(attached, &mut own);
        if served == Err(Errno::AGAIN) { Ok(()) } else { served }
    }

    /// As above, before this process ends or executes another program: there is no next call.
    /// (Bytes that Linux does not take now are lost.)
    pub fn serve_before_end(&self) {
        if self.attached().is_some_and(|attached| self.is_asked(attached)) {
            let _ = self.serve();
        }
    }

    pub(crate) fn serve_locked(
        &self,
        attached: &Attached,
        own: &mut Locked<Sending>,
    ) -> Result<(), Errno> {
        let out = attached.out();
        let asked = out.consumed.flags.load(Acquire) & BY_LINUX != 0;
        let mine = match out.switch.phase.at().or_else(|_| self.poison(&mut own.poisoned))? {
            // It would come too late: after what went by Linux since.
            At::Returned if own.too_late => {
                out.switch.phase.refuse();
                false
            }
            // Or after the end of the stream. (The receiver may have bytes of Linux' that come
            // first.)
            At::Returned if own.finished => {
                out.switch.phase.offers_again();
                false
            }
            At::Returned => out.switch.phase.taken_back(),
            At::Offered if asked && !own.finished => {
                out.switch.phase.withdraw() || out.switch.phase.taken_back()
            }
            _ => false,
        };
        if mine {
            self.withdrawn(attached, own)?;
            self.has_left_ring(attached);
            // (Told after Linux has got what it takes.)
            let flushed = self.flush(attached, own);
            self.tell_of_room(attached);
            return flushed;
        }
        self.flush(attached, own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::{End, at_rings, fills_both, program_that, service, shared, wait_until};
    use crate::{Context, Settings, Waiting};
    use rustix::net::Shutdown;
    use std::io::Write;

    #[test]
    fn bytes_given_back_to_a_sender_that_has_ended_stay_behind_linuxs_bytes() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = shared(&program(), &program());
        a.socket.as_ref().unwrap().write_all(b"by Linux ").unwrap();
        wait_until("it has come", || kernel::all_arrived(a.flow.fd()));
        assert_eq!(a.send(b"by the ring"), Ok(11));
        a.flow.shutdown(Shutdown::Write).unwrap();
        // As a program does that is preempted there.
        let attached = b.flow.attached().unwrap();
        assert_eq!(attached.inward().switch.phase.give_back(), Some(At::Offered));
        a.flow.serve().unwrap();
        let mut got = [0; 30];
        assert_eq!(b.receive(&mut got), Ok(20));
        assert_eq!(&got[..20], b"by Linux by the ring");
        assert_eq!(b.receive(&mut got), Ok(0));
    }

    #[test]
    fn it_is_linuxs_once_all_that_was_taken_back_is_there() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = shared(&program(), &program());
        a.socket.as_ref().unwrap().write_all(b"by Linux ").unwrap();
        wait_until("it has come", || kernel::all_arrived(a.flow.fd()));
        assert_eq!(a.send(b"by the ring"), Ok(11));
        let left = std::thread::scope(|scope| {
            let leaves = scope.spawn(|| {
                let left = b.flow.by_linux(Duration::from_secs(10));
                (left, kernel::unread(b.flow.fd()))
            });
            let attached = a.flow.attached().unwrap();
            let mut own = attached.mapped.ends.sending(attached.slot, a.flow.context.process());
            let phase = &attached.out().switch.phase;
            wait_until("it is given back", || phase.at() == Ok(At::Returned));
            // As a sender does that is preempted there.
            assert!(phase.taken_back());
            std::thread::sleep(Duration::from_millis(20));
            a.flow.withdrawn(attached, &mut own).unwrap();
            a.flow.flush(attached, &mut own).unwrap();
            leaves.join().unwrap()
        });
        assert_eq!(left, (Ok(true), Ok(20)));
    }

    #[test]
    fn bytes_that_are_offered_while_the_receiver_leaves_go_by_linux_too() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = shared(&program(), &program());
        assert_eq!(a.send(b"by the ring"), Ok(11));
        let phase = &a.flow.attached().unwrap().out().switch.phase;
        assert!(phase.withdraw());
        std::thread::scope(|scope| {
            let leaves = scope.spawn(|| b.flow.by_linux(Duration::from_secs(10)));
            std::thread::sleep(Duration::from_millis(20));
            // As a sender does that is preempted there.
            phase.offer();
            wait_until("it is given back", || phase.at() == Ok(At::Returned));
            a.flow.serve().unwrap();
            assert_eq!(leaves.join().unwrap(), Ok(true));
        });
        assert_eq!(kernel::unread(b.flow.fd()), Ok(11));
    }

    /// Whether it is done sooner than in `time`, now and then.
    fn is_done_within(time: Duration, mut done: impl FnMut()) -> bool {
        (0..20).any(|_| {
            let begun = Instant::now();
            done();
            begun.elapsed() < time
        })
    }

    #[test]
    fn a_call_that_does_not_wait_does_not_wait_for_what_is_taken_back_either() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = shared(&program(), &program());
        assert_eq!(a.send(b"by the ring"), Ok(11));
        assert!(a.flow.attached().unwrap().out().switch.phase.withdraw());
        assert!(is_done_within(ARRIVES, || assert_eq!(b.flow.by_linux_later(), Ok(true))));
        let at_once = || assert_eq!(b.flow.by_linux(Duration::ZERO), Ok(true));
        assert!(is_done_within(ARRIVES, at_once));
    }

    #[test]
    fn bytes_behind_a_mark_are_not_waited_for() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        assert!((0..5).any(|_| {
            let (a, b) = shared(&program(), &program());
            a.socket.as_ref().unwrap().write_all(b"ab").unwrap();
            assert_eq!(a.send_with(b"!", libc::MSG_OOB), Ok(1));
            wait_until("it has come", || b.receive_with(&mut [0], libc::MSG_OOB) == Ok(1));
            wait_until("all has", || kernel::all_arrived(a.flow.fd()));
            assert_eq!(a.send(b"by the ring"), Ok(11));
            std::thread::scope(|scope| {
                let leaves = scope.spawn(|| {
                    let begun = Instant::now();
                    assert_eq!(b.flow.by_linux(Duration::from_secs(10)), Ok(true));
                    begun.elapsed()
                });
                let phase = &a.flow.attached().unwrap().out().switch.phase;
                wait_until("it is given back", || phase.at() == Ok(At::Returned));
                a.flow.serve().unwrap();
                leaves.join().unwrap() < ARRIVES
            })
        }));
    }

    #[test]
    fn bytes_that_linux_has_no_room_for_are_not_waited_for() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        assert!((0..5).any(|_| {
            let (a, b) = at_rings(&program(), &program());
            fills_both(&a);
            std::thread::scope(|scope| {
                let leaves = scope.spawn(|| {
                    let begun = Instant::now();
                    assert_eq!(b.flow.by_linux(Duration::from_secs(10)), Ok(true));
                    begun.elapsed()
                });
                let phase = &a.flow.attached().unwrap().out().switch.phase;
                wait_until("it is given back", || phase.at() == Ok(At::Returned));
                a.flow.serve().unwrap();
                assert!(a.flow.owes());
                leaves.join().unwrap() < ARRIVES
            })
        }));
    }

    fn awaited(end: &End) -> Duration {
        let attached = end.flow.attached().unwrap();
        attached.mapped.ends.receiving(attached.slot, end.flow.context.process()).awaited
    }

    /// As a sender does that is preempted after it, what Linux is to have still to be sent.
    fn withdraws(a: &End) {
        assert_eq!(a.send(b"by the ring"), Ok(11));
        let attached = a.flow.attached().unwrap();
        assert!(attached.out().switch.phase.withdraw());
    }

    fn goes_on(a: &End) {
        let attached = a.flow.attached().unwrap();
        let mut own = attached.mapped.ends.sending(attached.slot, a.flow.context.process());
        a.flow.withdrawn(attached, &mut own).unwrap();
        a.flow.flush(attached, &mut own).unwrap();
    }

    fn receives_now(b: &End) -> Result<usize, Errno> {
        b.receive_with(&mut [0; 20], libc::MSG_DONTWAIT)
    }

    #[test]
    fn a_call_that_finds_nothing_waits_for_what_was_taken_back_just_now() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        // Most of the time that is long enough.
        assert!((0..20).any(|_| {
            let (a, b) = shared(&program(), &program());
            withdraws(&a);
            std::thread::scope(|scope| {
                let received = scope.spawn(|| receives_now(&b));
                std::thread::sleep(Duration::from_millis(1));
                goes_on(&a);
                let came = received.join().unwrap() == Ok(11);
                assert!(came || receives_now(&b) == Ok(11));
                came && awaited(&b) > Duration::ZERO && awaited(&b) < MOMENTS
            })
        }));
    }

    #[test]
    fn a_peer_that_takes_back_without_end_is_waited_for_once() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = shared(&program(), &program());
        withdraws(&a);
        let begun = Instant::now();
        assert_eq!(receives_now(&b), Err(Errno::AGAIN));
        assert!(begun.elapsed() >= MOMENT);
        assert_eq!(awaited(&b), Duration::MAX);
        let phase = &a.flow.attached().unwrap().out().switch.phase;
        let again = || {
            phase.offer();
            assert!(phase.withdraw());
            assert_eq!(receives_now(&b), Err(Errno::AGAIN));
        };
        assert!(is_done_within(MOMENT, again));
        goes_on(&a);
        wait_until("it has come", || receives_now(&b) == Ok(11));
    }

    #[test]
    fn a_peer_that_says_it_has_sent_and_has_not_is_waited_for_once() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = shared(&program(), &program());
        withdraws(&a);
        let tail = &a.flow.attached().unwrap().out().produced.tail;
        let ahead = tail.load(Relaxed);
        wait_until("it was waited for", || {
            tail.store(ahead, Release);
            std::thread::scope(|scope| {
                let received = scope.spawn(|| receives_now(&b));
                std::thread::sleep(Duration::from_millis(1));
                tail.store(ahead - 11, Release);
                assert_eq!(received.join().unwrap(), Err(Errno::AGAIN));
            });
            awaited(&b) > Duration::ZERO
        });
        assert_eq!(awaited(&b), Duration::MAX);
    }

    #[test]
    fn a_lane_and_a_call_that_blocks_do_not_wait_for_what_is_taken_back() {
        let service = service();
        let program = program_that(&service.name, Waiting::Sleep);
        let lane = Settings { may_wait: false, asks: false, ..Settings::new(&*service.name) };
        let wary = Settings { wary: true, ..Settings::new(&*service.name) };
        for settings in [lane, wary] {
            let (a, b) = shared(&program, &Context::new(settings).unwrap());
            withdraws(&a);
            assert_eq!(receives_now(&b), Err(Errno::AGAIN));
            assert_eq!(awaited(&b), Duration::ZERO);
            goes_on(&a);
            wait_until("it has come", || receives_now(&b) == Ok(11));
        }
        let (a, b) = shared(&program, &program_that(&service.name, Waiting::Sleep));
        withdraws(&a);
        std::thread::scope(|scope| {
            let received = scope.spawn(|| b.receive(&mut [0; 20]));
            std::thread::sleep(Duration::from_millis(20));
            goes_on(&a);
            assert_eq!(received.join().unwrap(), Ok(11));
        });
        assert_eq!(awaited(&b), Duration::ZERO);
    }
}
