//! Shutdown and close.

use crate::attached::Attached;
use crate::ends::{Locked, Receiving, Sending};
use crate::flow::Flow;
use crate::kernel;
use crate::mapped::Registered;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown, sockopt};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;
use uncopy_counters::add;
use uncopy_tcp_shared::phase::At;
use uncopy_tcp_shared::ring::{FINISHED, GONE};

impl Flow {
    /// As shutdown(2). Bytes that were sent stay sent: the end of the stream comes after them.
    /// EAGAIN: the program may not wait ([`Settings::may_wait`](crate::Settings::may_wait)), and
    /// Linux has no room now for what goes before the end. It is to be called again when Linux has
    /// some.
    pub fn shutdown(&self, how: Shutdown) -> Result<(), Errno> {
        if let Some(attached) = self.attached() {
            // (Linux refuses it where the peer has reset the connection.)
            self.sees_end(attached);
        }
        // (Either this sees the slot, or who attaches it sees these.)
        if !matches!(how, Shutdown::Write) {
            self.shut.store(true, SeqCst);
        }
        if !matches!(how, Shutdown::Read) {
            self.finishes.store(true, SeqCst);
        }
        fence(SeqCst);
        let sends_no_more = |attached: &Attached| {
            attached.out().produced.flags.load(Relaxed) & FINISHED != 0
                || !matches!(how, Shutdown::Read)
        };
        if let Some(attached) = self.attached() {
            if !matches!(how, Shutdown::Write) {
                attached.mapped.ends.shut(attached.slot).store(true, Relaxed);
            }
            if attached.is_shut() && sends_no_more(attached) {
                self.enters_what_is_offered(attached);
            }
        }
        if let Some(attached) = self.attached()
            && !matches!(how, Shutdown::Read)
        {
            let done = loop {
                self.flush_all()?;
                match self.finish(attached, how) {
                    // (It waits for that, or says so.)
                    Err(Errno::AGAIN) => {}
                    done => break done,
                }
            };
            attached.tell(attached.out().consumed.data.take());
            self.ask.store(true, Relaxed);
            // Room is Linux's matter from now on: there always is some.
            self.tell_sets(true);
            self.context.by_linux.sent();
            return done;
        }
        self.ask.store(true, Relaxed);
        let done = shutdown(self.fd(), how);
        self.context.by_linux.sent();
        done
    }

    /// The bytes that were given back before are with Linux. EAGAIN: those that were given back
    /// since are not, and the stream goes on.
    fn finish(&self, attached: &Attached, how: Shutdown) -> Result<(), Errno> {
        // Later calls of ours are the kernel's to refuse, and none comes between: it would go by
        // Linux.
        let mut own = attached.mapped.ends.sending(attached.slot, self.context.process());
        attached.out().produced.flags.fetch_or(FINISHED, Release);
        self.serve_at_the_end(attached, &mut own)?;
        own.finished = true;
        shutdown(self.fd(), how)
    }

    /// The program receives no more, and ends its stream: Linux answers what comes from now on with
    /// a reset, but keeps what came before. So what the ring has is not for the sender to take back
    /// and to send by Linux. Linux' bytes come before the ring's: while the ring is offered no
    /// others come there, so they can be counted. (But not past an urgent byte.)
    fn enters_what_is_offered(&self, attached: &Attached) {
        let mut own = attached.mapped.ends.receiving(attached.slot, self.context.process());
        let phase = &attached.inward().switch.phase;
        if let Ok((At::Offered, found)) = phase.found()
            && let Ok(unread) = kernel::unread(self.fd())
            && own.before_mark == 0
            && !kernel::has_mark(self.fd())
        {
            own.reader.forget();
            if phase.enter(found) {
                own.stands_at_mark = false;
                own.before_ring = unread;
            }
        }
    }

    /// As above: what comes by Linux from now on is answered by a reset. So what the ring has is
    /// not given back, either.
    pub(crate) fn resets_what_comes(&self, attached: &Attached) -> bool {
        attached.is_shut() && attached.out().produced.flags.load(Relaxed) & FINISHED != 0
    }

    /// Bytes that were withdrawn or given back are with Linux, whatever it takes: the stream ends
    /// after them. EAGAIN: they are not, and the program may not wait.
    fn flush_all(&self) -> Result<(), Errno> {
        let Some(attached) = self.attached() else { return Ok(()) };
        loop {
            let mut own = attached.mapped.ends.sending(attached.slot, self.context.process());
            let flushed = self.serve_locked(attached, &mut own);
            drop(own);
            if flushed != Err(Errno::AGAIN) {
                return Ok(());
            }
            if !self.context.settings.may_wait {
                return Err(Errno::AGAIN);
            }
            // The program's signals and SO_SNDTIMEO do not count here: the calls that sent these
            // bytes have returned.
            kernel::wait_for_room(self.fd());
        }
    }

    /// Before the program's last close of the socket in this process. Where it leaves bytes unread,
    /// the close that follows resets the connection, as Linux does.
    pub fn close(&self) {
        self.ends_here();
        self.context.sleepers.forget(self.fd(), self.number());
        let Some(attached) = self.attached() else { return };
        let ends = &attached.mapped.ends;
        if !ends.is_let_go_by(attached.slot, self.context.process(), self.context.is_in_its_place())
        {
            // Another process still has it.
            return;
        }
        self.closed_for_all.store(true, Relaxed);
        // (A call that may not wait has ended the stream before, or resets the connection now.)
        let _ = self.flush_all();
        let unread = {
            let mut own = ends.receiving(attached.slot, self.context.process());
            let inward = attached.inward();
            let at_ring = !matches!(inward.switch.phase.at(), Ok(At::Linux | At::Returned));
            at_ring && own.look(&inward.produced).is_ok() && own.reader.filled() > 0
        };
        if unread {
            add(&self.context.settings.counters.tcp_closed_unread, 1);
            let _ = sockopt::set_socket_linger(self.fd(), Some(Duration::ZERO));
        }
        attached.out().produced.flags.fetch_or(FINISHED, Release);
        let mut own = ends.sending(attached.slot, self.context.process());
        let served = self.serve_at_the_end(attached, &mut own);
        drop(own);
        if served.is_err() {
            let _ = self.flush_all();
        }
        attached.inward().consumed.flags.fetch_or(GONE, Release);
        self.gives_unread_blocks_back(attached);
    }

    /// Nobody here sends or reads any more. Both sides know of each other whether they have done
    /// this: so each block that is unread comes back once.
    fn gives_unread_blocks_back(&self, attached: &Attached) {
        let (mapped, inward) = (&attached.mapped, attached.inward());
        let mut own = mapped.ends.sending(attached.slot, self.context.process());
        // (So nothing is taken back any more: what is given back to us from here on is refused.)
        own.finished = true;
        if own.withdrawn.take().is_some() {
            // (Linux takes it no more.)
            self.take_back(attached, &mut own);
        }
        if let Some(at) = attached.out().switch.closed.producer_closes() {
            self.take_blocks_back(attached, &mut own, at);
        }
        drop(own);
        let mut own = mapped.ends.receiving(attached.slot, self.context.process());
        let at = give_back_unread(attached, &mut own, false);
        if inward.switch.closed.consumer_closes(at) {
            give_back_unread(attached, &mut own, true);
        }
    }

    /// The program has closed it past us: no block stays out because of that.
    pub(crate) fn was_closed_past(&self, attached: &Attached) {
        let (names, process) = (self.context.is_in_its_place(), self.context.process());
        // (A child of vfork closes numbers of its own.)
        if process == std::process::id()
            && attached.mapped.ends.is_let_go_by(attached.slot, process, names)
        {
            attached.inward().consumed.flags.fetch_or(GONE, Release);
            self.gives_unread_blocks_back(attached);
        }
    }

    /// FINISHED has been said: a side that left its ring to this one before it could see that is
    /// served, any other reclaims it. EAGAIN: Linux has no room now for what was given back, here
    /// or by another thread meanwhile.
    fn serve_at_the_end(
        &self,
        attached: &Attached,
        own: &mut Locked<Sending>,
    ) -> Result<(), Errno> {
        fence(SeqCst);
        // (Any other error: nobody gets it.)
        self.serve_locked(attached, own)
            .or_else(|e| if e == Errno::AGAIN { Err(e) } else { Ok(()) })
    }

    /// After it: tells the other side, and gives the slot back.
    pub fn closed(&self) {
        self.context.by_linux.sent();
        let Some(attached) = self.attached() else { return };
        if self.closed_for_all.load(Relaxed) {
            attached.tell(attached.out().consumed.data.take());
            attached.tell(attached.inward().produced.room.take());
            attached.detach();
        }
        self.context.has_ended_in(&attached.mapped);
    }

    /// In the parent, before fork: the child will hold the end too. (Nobody asks the service now:
    /// what it answers may have to wait for this very fork.)
    pub fn before_fork(&self) {
        if let Some(Some(attached)) = self.attached.get() {
            attached.mapped.ends.processes(attached.slot).fetch_add(1, AcqRel);
        }
    }

    /// The kernel's connection has ended, or is about to.
    pub fn hung_up(&self) -> bool {
        kernel::hung_up(self.fd())
    }
}

/// Gives back what lies unread in blocks: also what is offered, or was given back to the sender, if
/// `all`: else that is the sender's to take back. Up to where.
fn give_back_unread(attached: &Attached, own: &mut Locked<Receiving>, all: bool) -> u32 {
    let (inward, side) = (attached.inward(), 1 - attached.mapped.side);
    let gives = match inward.switch.phase.at() {
        Ok(At::Ring | At::Leaving) => true,
        Ok(At::Offered | At::Returned) if all => {
            own.reader.forget();
            true
        }
        _ => false,
    };
    let head = own.reader.head();
    if !gives || own.look(&inward.produced).is_err() {
        return head;
    }
    let unread = own.reader.filled();
    if !own.runs.is_empty() {
        let (queue, returns) = (attached.slot().queue(side), attached.mapped.region.returns(side));
        own.runs.consume(queue, head, unread, |run| returns.done(run.handle, run.bytes));
    }
    head.wrapping_add(unread)
}

#[cfg(test)]
mod tests {
    use crate::common::{FULL, at_rings, fills_both, program_that, service, shared, wait_until};
    use crate::{Context, Errno, Settings, Waiting, kernel};
    use libc::MSG_PEEK;
    use rustix::net::Shutdown;
    use std::io::{Read, Write};
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    #[test]
    fn a_stream_does_not_end_before_what_was_given_back_just_now() {
        let service = service();
        let name = &*service.name;
        for may_wait in [false, true] {
            let waiting = Waiting::Sleep;
            let ours = Settings { waiting, may_wait, asks: false, ..Settings::new(name) };
            let ours = Context::new(ours).unwrap();
            let (a, mut b) = at_rings(&ours, &program_that(name, waiting));
            let before = fills_both(&a);
            // As a shutdown does in which the thread is preempted.
            a.flow.flush_all().unwrap();
            assert_eq!(b.flow.by_linux_later(), Ok(true));
            let attached = a.flow.attached().unwrap();
            assert_eq!(a.flow.finish(attached, Shutdown::Write), Err(Errno::AGAIN));
            let mut socket = b.socket.take().unwrap();
            let reads = std::thread::spawn(move || {
                let mut got = vec![];
                socket.read_to_end(&mut got).map(|_| got.len())
            });
            if may_wait {
                assert_eq!(a.flow.shutdown(Shutdown::Write), Ok(()));
            }
            while a.flow.shutdown(Shutdown::Write) == Err(Errno::AGAIN) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            assert_eq!(reads.join().unwrap().unwrap(), before + FULL);
        }
    }

    #[test]
    fn a_side_that_shuts_both_ways_keeps_what_the_ring_has_behind_linuxs_bytes() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        for resets in [false, true] {
            let (a, b) = shared(&program(), &program());
            a.socket.as_ref().unwrap().write_all(b"by Linux ").unwrap();
            wait_until("it has come", || kernel::all_arrived(a.flow.fd()));
            assert_eq!(a.send(b"by the ring"), Ok(11));
            assert_eq!(a.flow.counts.sent_by_ring.load(Relaxed), 11);
            b.flow.shutdown(Shutdown::Both).unwrap();
            assert_eq!(b.flow.by_linux(Duration::ZERO), Ok(false));
            if resets {
                // That Linux answers with a reset.
                assert_eq!(a.send(b"more"), Ok(4));
                wait_until("the reset", || kernel::is_over(a.flow.fd()));
                assert_eq!(a.send(b"more"), Err(Errno::PIPE));
            }
            let mut got = [0; 30];
            assert_eq!(b.flow.unread(), Ok(20));
            assert_eq!(b.receive_with(&mut got, MSG_PEEK), Ok(20));
            assert_eq!(&got[..20], b"by Linux by the ring");
            assert_eq!(b.receive(&mut got[..4]), Ok(4));
            assert_eq!(b.receive_with(&mut got[4..], MSG_PEEK), Ok(16));
            assert_eq!(b.receive(&mut got[4..]), Ok(16));
            assert_eq!(&got[..20], b"by Linux by the ring");
            if resets {
                assert_eq!(b.receive(&mut got), Err(Errno::CONNRESET));
            }
            assert_eq!(b.receive(&mut got), Ok(0));
        }
    }
}
