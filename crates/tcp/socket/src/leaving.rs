//! Going back to Linux for good, for what rings do not carry: another program after exec, another
//! process that is sent the descriptor, io_uring. Sending goes back at once. What lies unread in
//! the ring that is received from is the sender's again, who sends it by Linux: so no byte is lost,
//! and they stay in order, whoever reads them then. See `uncopy_tcp_shared::phase`.

use crate::attached::Attached;
use crate::ends::{Locked, Receiving, Sending};
use crate::flow::{Flow, ROUNDS};
use crate::kernel;
use crate::mapped::Registered;
use rustix::event::PollFlags;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};
use uncopy_tcp_shared::file;
use uncopy_tcp_shared::phase::{At, PhaseWord};
use uncopy_tcp_shared::ring::{BY_LINUX, FINISHED};

/// How often it looks whether the other side has answered: a wake-up there takes about 5 us.
const LOOK: Duration = Duration::from_micros(20);

/// What the other side has taken back Linux has a moment later, unless that was interrupted.
const ARRIVES: Duration = Duration::from_millis(100);
/// So long a call that receives waits for it: a thread that is preempted there goes on after some
/// milliseconds.
const MOMENT: Duration = Duration::from_millis(5);

/// What becomes of the unread bytes of a side that gives its ring back to a peer that does not
/// answer.
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
        // (What is taken back comes behind this.)
        let before = attached.has_bytes().then(|| kernel::unread(self.fd()));
        inward.consumed.flags.fetch_or(BY_LINUX, Release);
        let given = phase.give_back();
        // Either FINISHED is seen below, or the other side sees this before it ends the stream.
        fence(SeqCst);
        // (What was only offered may have been withdrawn meanwhile.)
        own.reader.forget();
        own.look(&inward.produced).or_else(|_| self.poison(&mut own.poisoned))?;
        let unread = own.reader.filled() > 0;
        own.reader.forget();
        let Some(given) = given else {
            // (What was withdrawn just before that Linux may not have yet.)
            waits_while(ARRIVES, || attached.is_under_way() && !kernel::hung_up(self.fd()));
            return Ok(true);
        };
        if !unread && given != At::Leaving {
            // Whoever sends next, or is sending, sees it.
            return Ok(true);
        }
        attached.ask();
        let mut taken = None;
        loop {
            match phase.at() {
                Ok(At::Linux) => {
                    let since = *taken.get_or_insert_with(Instant::now);
                    let comes = attached.is_under_way()
                        || before.is_some_and(|before| kernel::unread(self.fd()) == before)
                            && !self.is_told_of();
                    if comes && since.elapsed() < ARRIVES {
                        std::thread::sleep(LOOK);
                        continue;
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

    /// Linux' queue was found empty, after this offer: waits for a moment for what was taken back
    /// and is on its way there. True: the queue is to be looked at again. (For a sender that stops
    /// there one call waits.)
    #[cold]
    pub(crate) fn comes_now(
        &self,
        attached: &Attached,
        own: &mut Locked<Receiving>,
        found: PhaseWord,
    ) -> bool {
        if own.awaited == Some(found) || !attached.is_under_way() {
            return false;
        }
        own.awaited = Some(found);
        waits_while(MOMENT, || attached.is_under_way())
    }

    /// The other side has ended the stream or died: it sends nothing any more, whatever is asked of
    /// it.
    fn has_ended(&self, attached: &Attached) -> bool {
        attached.inward().produced.flags.load(Acquire) & FINISHED != 0 || kernel::hung_up(self.fd())
    }

    /// What lies unread in the ring, where the other side does not take it back: the only copy, for
    /// whoever makes an end of it. Only where no other process holds this end.
    pub fn take_unread(&self) -> Result<Vec<u8>, Errno> {
        let Some(attached) = self.attached() else { return Ok(vec![]) };
        let mut all = vec![];
        let mut piece = vec![0u8; 64 << 10];
        let part = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() };
        let inward = attached.inward();
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

    /// What stands in for the socket in a program that this process is about to execute, where
        let mut rounds = 0;
    /// [`Flow::by_linux`] said no: it brings what lies unread in the ring, then what the socket
    /// brings, and takes what goes there. EBUSY: another process, too, holds this end, and may want
    /// to read the ring. Where the service does not do that, nothing has been taken out of the
    /// ring.
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

    /// As above, before this process ends or executes another program: there is no next call. (What
    /// Linux does not take now is lost.)
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
            self.counts.leaves.fetch_add(1, Relaxed);
            // Room is Linux's matter from now on. (Told after Linux has got what it takes.)
            let flushed = self.flush(attached, own);
            self.tell_sets(true);
            return flushed;
        }
        self.flush(attached, own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Waiting;
    use crate::common::{program_that, service, shared, wait_until};
    use rustix::net::Shutdown;
    use std::io::Write;

    #[test]
    fn what_is_given_back_to_who_has_ended_the_stream_stays_behind_linuxs_bytes() {
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
    fn who_finds_nothing_waits_for_what_was_taken_back_just_now() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = shared(&program(), &program());
        let receives = || b.receive_with(&mut [0; 20], libc::MSG_DONTWAIT);
        assert_eq!(a.send(b"by the ring"), Ok(11));
        let attached = a.flow.attached().unwrap();
        let process = a.flow.context.process();
        let mut own = attached.mapped.ends.sending(attached.slot, process);
        assert!(attached.out().switch.phase.withdraw());
        let begun = Instant::now();
        assert_eq!(receives(), Err(Errno::AGAIN));
        assert!(begun.elapsed() >= MOMENT);
        a.flow.withdrawn(attached, &mut own).unwrap();
        a.flow.flush(attached, &mut own).unwrap();
        drop(own);
        wait_until("it has come", || kernel::unread(b.flow.fd()) == Ok(11));
        assert_eq!(receives(), Ok(11));
        // Most of the time that is long enough.
        let comes = || {
            wait_until("all has arrived", || kernel::all_arrived(a.flow.fd()));
            assert_eq!(a.send(b"by the ring"), Ok(11));
            let mut own = attached.mapped.ends.sending(attached.slot, process);
            assert!(attached.out().switch.phase.withdraw());
            std::thread::scope(|scope| {
                let received = scope.spawn(receives);
                std::thread::sleep(Duration::from_millis(1));
                a.flow.withdrawn(attached, &mut own).unwrap();
                a.flow.flush(attached, &mut own).unwrap();
                let came = received.join().unwrap() == Ok(11);
                assert!(came || receives() == Ok(11));
                came
            })
        };
        assert!((0..20).any(|_| comes()));
    }
}
