//! The sender's half: to the ring when all that went by Linux has arrived, back whenever the ring
//! will not do. See `uncopy_tcp_shared::phase`.
//!
//! unsafe: the program's buffers.

use crate::attached::{Attached, has_room};
use crate::blocks::{NUMBER, OWN};
use crate::ends::{Locked, Sending};
use crate::flow::{Flow, ROUNDS};
use crate::kept_error::is_told_once;
use crate::kernel;
use crate::mapped::Registered;
use crate::reference::{Forward, GIVEN_ON};
use crate::source::{Buffers, ELSEWHERE, FilePart, Source, Wanted};
use crate::wait::For;
use libc::{MSG_DONTWAIT, MSG_MORE, MSG_OOB, iovec};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::mem::take;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use uncopy_counters::add;
use uncopy_tcp_shared::phase::At;
use uncopy_tcp_shared::ring::{
    BY_LINUX, FINISHED, GONE, OWES, READS_ARENAS, RECEIVES, TAKES_BLOCKS,
};
use uncopy_tcp_shared::runs::Piece;
use uncopy_tcp_shared::wanted::DOORS;

/// The bytes of a ring that the other side has not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InRing {
    /// So many bytes.
    pub bytes: u32,
    /// There is room, as poll and epoll tell of it. Where there is none these tell when there is.
    pub has_room: bool,
}

impl Flow {
    /// As send(2), writev(2), sendmsg(2): waits until all is taken, unless the socket or `flags`
    /// say otherwise.
    ///
    /// # Safety
    /// The buffers are the program's: whatever it named.
    pub unsafe fn send(&self, from: &[iovec], flags: i32) -> Result<usize, Errno> {
        // SAFETY: the caller's promise.
        unsafe { self.send_buffers(from, flags, None) }
    }

    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub(crate) unsafe fn send_buffers(
        &self,
        from: &[iovec],
        flags: i32,
        forward: Option<&Forward>,
    ) -> Result<usize, Errno> {
        if self.is_linux() {
            // SAFETY: the caller's promise.
            let sent = unsafe { kernel::send_as_it_is(self.fd(), from, flags) };
            self.context.by_linux.sent();
            return sent;
        }
        // SAFETY: the caller's promise.
        let mut from = unsafe { Buffers::new(from, forward) };
        self.send_all(&mut from, flags)
    }

    /// Sends `bytes` of a file, from `at` on, by the ring, as far as the kernel has them in memory:
    /// then no program's buffer is between. Waits for room, unless the socket says otherwise.
    /// `None`: nothing was sent, and has to be read, or sent by Linux.
    pub fn send_file(
        &self,
        file: BorrowedFd,
        at: u64,
        bytes: usize,
    ) -> Result<Option<usize>, Errno> {
        match self.send_all(&mut FilePart { file, at, left: bytes }, 0) {
            Err(ELSEWHERE) => Ok(None),
            sent => sent.map(Some),
        }
    }

    fn send_all(&self, from: &mut impl Source, flags: i32) -> Result<usize, Errno> {
        let waits = || flags & MSG_DONTWAIT == 0 && !self.is_nonblocking();
        let mut sent = 0;
        let mut deadline = None;
        loop {
            match self.try_send(from, flags) {
                Ok(bytes) => {
                    sent += bytes;
                    if from.left() == 0 {
                        return Ok(sent);
                    }
                    if !waits() {
                        self.lacks_room();
                        return Ok(sent);
                    }
                }
                Err(Errno::AGAIN) if waits() => {
                    let waited = self.wait_in_call(For::Room, &mut deadline);
                    if let Err(error) = waited {
                        return if sent > 0 { Ok(sent) } else { Err(error) };
                    }
                }
                Err(error) if sent > 0 => {
                    self.keeps(error);
                    return Ok(sent);
                }
                Err(error) => {
                    if error == Errno::AGAIN {
                        self.lacks_room();
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Sets that report by edge have told of room before: they look again, and want to be told when
    /// there is some.
    fn lacks_room(&self) {
        if self.is_attached() {
            self.tell_sets(true);
        }
    }

    /// As many bytes are sent as can be taken now.
    fn try_send(&self, from: &mut impl Source, flags: i32) -> Result<usize, Errno> {
        let attached = loop {
            if self.is_closed() {
                return Err(Errno::BADF);
            }
            if let Some(attached) = self.attached() {
                break attached;
            }
            if let Some(_bypass) = self.unattached(true) {
                return from.by_linux(self.fd(), flags);
            }
        };
        let mut own = attached.mapped.ends.sending(attached.slot, self.context.process());
        if self.is_closed() {
            return Err(Errno::BADF);
        }
        let sent = self.send_locked(attached, &mut own, from, flags);
        if own.too_late {
            self.context.by_linux.sent();
        }
        sent
    }

    fn send_locked(
        &self,
        attached: &Attached,
        own: &mut Locked<Sending>,
        from: &mut impl Source,
        flags: i32,
    ) -> Result<usize, Errno> {
        let out = attached.out();
        let mut rounds = 0;
        loop {
            rounds += 1;
            if own.poisoned || rounds > ROUNDS {
                return self.poison(&mut own.poisoned);
            }
            if let Some(error) = attached.error().take() {
                return Err(error);
            }
            if own.finished {
                // (Linux says EPIPE also of a peer that has reset the connection since.)
                self.sees_end(attached);
                if let Some(error) = attached.error().take() {
                    return Err(error);
                }
                // Bytes that were offered stay offered: they come before the end of the stream. The
                // kernel refuses more.
                return attached.tells(from.by_linux(self.fd(), flags));
            }
            let at = out.switch.phase.at().or_else(|_| self.poison(&mut own.poisoned))?;
            if at == At::Returned {
                self.serve_locked(attached, own)?;
                continue;
            }
            if matches!(at, At::Linux | At::Leaving) {
                if at == At::Leaving && self.sees_death() {
                    continue;
                }
                match self.flush(attached, own) {
                    // The kernel says so again, and raises SIGPIPE, or not, as this call wants it.
                    Ok(()) | Err(Errno::PIPE) => {}
                    // It is kept: this call is told of it.
                    Err(error) if is_told_once(error) => continue,
                    Err(error) => return Err(error),
                }
                if at == At::Linux && self.may_offer(attached, own, flags) {
                    own.too_late = false;
                    out.switch.phase.offer();
                    self.counts.offers.fetch_add(1, Relaxed);
                    continue;
                }
                own.too_late = true;
                let sent = attached.tells(from.by_linux(self.fd(), flags));
                if flags & MSG_MORE == 0 && sent.is_ok() && attached.peer_is_here() {
                    self.push();
                }
                return sent;
            }
            if flags & MSG_OOB != 0
                || out.consumed.flags.load(Relaxed) & (GONE | BY_LINUX) != 0
                || attached.inward().produced.flags.load(Relaxed) & FINISHED != 0
                || ((self.is_to_ask(&mut own.asks) || self.take_ask())
                    && self.peer_ended(attached, own))
                || own.stays
            {
                // (This call tells a kept error.)
                self.leave(attached, own).map_err(|e| attached.error().take().unwrap_or(e))?;
                if out.switch.phase.at() == Ok(At::Leaving)
                    && let Some(at) = out.switch.closed.consumer_has()
                {
                    self.take_blocks_back(attached, own, at);
                }
                continue;
            }
            self.sees_head(attached, own)?;
            let blocks = self.blocks(attached, &*from);
            let sent = from.put(attached, own, blocks)?;
            if blocks.is_some() {
                self.counts_blocks(own);
            }
            attached.tell(out.consumed.data.take());
            self.counts.sent(self.context.settings.counters, sent as u64);
            self.counts.streamed.store(own.batch.streamed, Relaxed);
            // The receiver may have given the ring back meanwhile. `take` had a fence: either this
            // is seen here, or it saw the bytes.
            // (Linux takes later what it does not take now. The bytes are sent, whatever comes of
            // that.)
            if self.is_asked(attached) {
                let _ = self.serve_locked(attached, own);
            }
            return Ok(sent);
        }
    }

    /// The bytes that lie in the ring that it sends to. `None`: what is sent next goes by Linux.
    ///
    /// A relay behind a ring that fills lets *its* peer send no more than there is room for. The
    /// other side's word for what it has taken is checked as ever, and can be a lie all the same:
    /// it is between its word before and what was sent, and bytes that come then come in place of
    /// bytes that are the other side's to read.
    ///
    /// # Errors
    /// ECONNRESET: the other side has written nonsense.
    pub fn in_ring(&self) -> Result<Option<InRing>, Errno> {
        let Some(Some(attached)) = self.attached.get() else { return Ok(None) };
        if !matches!(attached.out().switch.phase.at(), Ok(At::Offered | At::Ring)) {
            // (A call that sends finds out what that is.)
            return Ok(None);
        }
        let mut own = attached.mapped.ends.sending(attached.slot, self.context.process());
        if own.poisoned {
            return self.poison(&mut own.poisoned);
        }
        self.sees_head(attached, &mut own)?;
        let bytes = own.writer.used();
        Ok(Some(InRing { bytes, has_room: has_room(bytes) }))
    }

    /// Whether what is left of a call goes in blocks.
    #[inline]
    fn blocks(&self, attached: &Attached, source: &impl Source) -> Option<Wanted<'_>> {
        let mut from = attached.mapped.blocks.from;
        // (The rest of what a receiver copies where it lies.)
        if source.lies_in_arenas() && !Self::takes_blocks(attached) {
            from = from.min(GIVEN_ON);
        }
        if source.left() < from || self.context.gives_nothing.load(Relaxed) {
            return None;
        }
        let takes = || {
            Self::takes_blocks(attached)
                || source.lies_in_arenas() && Self::is_read_in_arenas(attached)
        };
        if takes() && self.gives_blocks(attached) {
            return Some(Wanted { from, context: &self.context });
        }
        add(&self.context.settings.counters.tcp_blocks_unwanted, 1);
        None
    }

    /// The other side would take blocks, or gets them all the same, for tests.
    pub(crate) fn takes_blocks(attached: &Attached) -> bool {
        let asks = || attached.out().consumed.flags.load(Relaxed) & TAKES_BLOCKS != 0;
        attached.mapped.blocks.always || asks()
    }

    /// The other side reads what lies in an arena there. It is given that also where it takes no
    /// blocks: nothing is copied for it, and the receiver copies as much as from the ring.
    pub(crate) fn is_read_in_arenas(attached: &Attached) -> bool {
        let flags = attached.out().consumed.flags.load(Relaxed);
        attached.mapped.blocks.always
            || flags & (TAKES_BLOCKS | READS_ARENAS) != 0
            || Self::has_arena(attached)
    }

    /// The other side has our arena.
    pub(crate) fn has_arena(attached: &Attached) -> bool {
        attached.out().consumed.arenas[usize::from(NUMBER)].load(Relaxed) == OWN
    }

    /// The process' totals know what went in blocks.
    #[inline(never)]
    fn counts_blocks(&self, own: &mut Locked<Sending>) {
        let counters = self.context.settings.counters;
        let (bytes, short) = (take(&mut own.in_blocks), take(&mut own.short_of_blocks));
        add(&counters.tcp_block_bytes, bytes);
        add(&counters.tcp_given_on_bytes, take(&mut own.given_on));
        add(&counters.tcp_blocks_short, short.into());
    }

    /// The other side has our arena: all processes there that hold its end; and no other holds
    /// ours, which would not know what is out. It is offered once.
    pub(crate) fn gives_blocks(&self, attached: &Attached) -> bool {
        let mapped = &attached.mapped;
        let own = mapped.process == self.context.process();
        let has = Self::has_arena(attached);
        if own && !has {
            self.context.offers_arena(&mapped.exchange, (mapped.id, mapped.side));
        }
        own && has && !mapped.exchange.is_another_users() && attached.is_sole()
    }

    /// The kernel says what the peer does not say itself. Then only Linux knows what is right: an
    /// error, or somebody who still reads.
    fn peer_ended(&self, attached: &Attached, own: &mut Locked<Sending>) -> bool {
        if kernel::hung_up(self.fd()) {
            own.stays = true;
            self.sees_end(attached);
        }
        own.stays
    }

    /// Somebody waits for room. True: the kernel says that the other side has ended its stream, or
    /// has died, and perhaps nobody makes room in the ring any more: so sending is Linux's from now
    /// on, and so is the answer.
    pub(crate) fn room_is_linuxs(&self) -> bool {
        let Some(attached) = self.attached() else { return false };
        let mut own = attached.mapped.ends.sending(attached.slot, self.context.process());
        let ended = self.peer_ended(attached, &mut own);
        if ended && !own.finished && !own.poisoned {
            // (An error: the kernel says so to who sends.)
            let _ = self.leave_for_room(attached, &mut own);
        }
        ended
    }

    /// The bytes that are sent next go into the ring, as far as is known without asking.
    pub fn sends_by_ring(&self) -> bool {
        let Some(Some(attached)) = self.attached.get() else { return false };
        matches!(attached.out().switch.phase.at(), Ok(At::Offered | At::Ring))
    }

    /// How far the other side has taken the ring's bytes, while sending goes there: so room is the
    /// ring's matter.
    pub(crate) fn room_of_ring(&self) -> Option<u32> {
        let attached = self.attached()?;
        let at_ring = matches!(attached.out().switch.phase.at(), Ok(At::Offered | At::Ring));
        let is_rings = at_ring && attached.room_is_of_ring();
        is_rings.then(|| attached.out().consumed.head.load(Relaxed))
    }

    /// Where it has taken no more since, and there is no room, Linux takes what follows: its
    /// buffers hold megabytes, and a program that sends so much before it reads the answers relies
    /// on them.
    pub(crate) fn leaves_a_full_ring(&self, since: u32) {
        if self.room_of_ring() == Some(since)
            && let Some(attached) = self.attached()
            && !attached.has_room()
        {
            let mut own = attached.mapped.ends.sending(attached.slot, self.context.process());
            if !own.finished && !own.poisoned {
                // (An error: the next send hears of it.)
                let _ = self.leave_for_room(attached, &mut own);
            }
        }
    }

    /// As [`leave`](Self::leave), while nobody sends: perhaps nobody will, so what was withdrawn
    /// goes now.
    fn leave_for_room(&self, attached: &Attached, own: &mut Locked<Sending>) -> Result<(), Errno> {
        self.leave(attached, own)?;
        self.flush(attached, own)
    }

    /// The bytes that are sent next may go into the ring, which they did not so far.
    pub(crate) fn may_go_by_ring(&self, attached: &Attached) -> bool {
        let own = attached.mapped.ends.sending(attached.slot, self.context.process());
        attached.out().switch.phase.at() == Ok(At::Linux)
            && own.withdrawn.is_none()
            && self.may_offer(attached, &own, 0)
    }

    fn may_offer(&self, attached: &Attached, own: &Locked<Sending>, flags: i32) -> bool {
        !own.stays
            && flags & MSG_OOB == 0
            && attached.peer_is_here()
            && self.nobody_bypasses()
            && attached.out().consumed.flags.load(Relaxed) & (GONE | BY_LINUX | RECEIVES)
                == RECEIVES
            && attached.inward().produced.flags.load(Relaxed) & FINISHED == 0
            && kernel::all_arrived(self.fd())
            && !kernel::hung_up(self.fd())
            // (Its own end may have been shut down before it had a slot.)
            && kernel::is_established(self.fd())
    }

    /// Goes back to Linux, with what nobody has taken of the ring if the receiver is not there yet:
    /// as much of it as Linux has room for.
    ///
    /// # Errors
    /// An error that Linux tells once, which is kept too; so is ECONNRESET: the receiver was killed
    /// and has left bytes unread. They are not sent once more: Linux would answer these with a
    /// reset of its own, and say EPIPE.
    pub(crate) fn leave(
        &self,
        attached: &Attached,
        own: &mut Locked<Sending>,
    ) -> Result<(), Errno> {
        let phase = &attached.out().switch.phase;
        if matches!(phase.at(), Ok(At::Offered | At::Ring)) && self.sees_death() {
            return Err(Errno::CONNRESET);
        }
        let mut flushed = Ok(());
        match phase.at().or_else(|_| self.poison(&mut own.poisoned))? {
            At::Linux | At::Leaving => return Ok(()),
            At::Returned => return self.serve_locked(attached, own),
            At::Offered => {
                if !phase.withdraw() {
                    return Ok(());
                }
                self.withdrawn(attached, own)?;
                // (Before others are told. Linux says again what is not told once.)
                flushed = self.flush(attached, own);
            }
            At::Ring => {
                if !phase.leave() {
                    return Ok(());
                }
                own.too_late = false;
            }
        }
        self.has_left_ring(attached);
        // A receiver that sleeps over the ring has something to see.
        self.tell_of_room(attached);
        attached.tell(attached.out().consumed.data.take());
        flushed.or_else(|error| if is_told_once(error) { Err(error) } else { Ok(()) })
    }

    /// Sending goes by Linux from now on.
    pub(crate) fn has_left_ring(&self, attached: &Attached) {
        self.counts.leaves.fetch_add(1, Relaxed);
        attached.mapped.ends.leaves(attached.slot).fetch_add(1, AcqRel);
    }

    /// Room is Linux's matter from now on: sets look, also those of the other processes that hold
    /// the end. (To them it is as if the other side had news: a notice at each of their doors.)
    pub(crate) fn tell_of_room(&self, attached: &Attached) {
        self.tell_sets(true);
        if !attached.is_sole() {
            let Attached { mapped, slot, .. } = attached;
            for door in 0..DOORS {
                mapped.region.notice(mapped.side, door).post(*slot);
            }
            self.context.wake_sleepers();
        }
    }

    /// How often sending has left the ring.
    pub(crate) fn leaves(&self) -> u64 {
        let of = |attached: &Attached| attached.mapped.ends.leaves(attached.slot).load(Acquire);
        self.attached().map_or(0, of)
    }

    /// Bytes that the receiver has not read are to go by Linux.
    pub(crate) fn withdrawn(
        &self,
        attached: &Attached,
        own: &mut Locked<Sending>,
    ) -> Result<(), Errno> {
        self.sees_head(attached, own)?;
        own.withdrawn = Some(0);
        Ok(())
    }

    /// Looks how far the receiver is. Runs that were passed are forgotten with each look: 2 GB
    /// later they would seem to lie ahead.
    #[inline]
    fn sees_head(&self, attached: &Attached, own: &mut Locked<Sending>) -> Result<(), Errno> {
        own.writer.look(&attached.out().consumed).or_else(|_| self.poison(&mut own.poisoned))?;
        if !own.runs.is_empty() {
            let (head, tail) = (own.writer.head(), own.writer.tail());
            own.runs.look(head);
            own.runs.drop_unpublished(attached.slot().queue(attached.mapped.side), tail);
        }
        Ok(())
    }

    /// Linux had no room for what was withdrawn: a thread that waits, for whatever, is to have it
    /// told of room, and to [`serve`](Self::serve) then. Perhaps nobody sends any more.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.owes.load(Relaxed)
    }

    /// Gives Linux what was withdrawn. An error that Linux tells once is kept for the program.
    pub(crate) fn flush(
        &self,
        attached: &Attached,
        own: &mut Locked<Sending>,
    ) -> Result<(), Errno> {
        let flushed = self.flush_now(attached, own);
        let owes = flushed == Err(Errno::AGAIN);
        let flags = &attached.out().produced.flags;
        if owes {
            flags.fetch_or(OWES, Release);
        } else if flags.load(Relaxed) & OWES != 0 {
            flags.fetch_and(!OWES, Release);
        }
        if self.owes() != owes {
            self.owes.store(owes, Relaxed);
            if owes {
                // (A thread that sleeps over it has not asked for room.)
                self.tell_sets(true);
                self.context.wake_sleepers();
            }
        }
        flushed
    }

    fn flush_now(&self, attached: &Attached, own: &mut Locked<Sending>) -> Result<(), Errno> {
        while let Some(done) = own.withdrawn {
            let left = own.writer.used().saturating_sub(done);
            // (A connection that was reset takes nothing. Its error is the program's to be told.)
            if left == 0 || kernel::is_over(self.fd()) {
                own.withdrawn = None;
                self.take_back(attached, own);
                break;
            }
            let Some(parts) = unread(attached, own, done, left) else {
                // (Nobody has them, and nothing may come in their place.)
                return self.poison(&mut own.poisoned);
            };
            let parts =
                parts.map(|(at, bytes)| iovec { iov_base: at.cast_mut().cast(), iov_len: bytes });
            // SAFETY: memory of the ring or of a block, which only the kernel reads.
            let send = || unsafe { kernel::send(self.fd(), &parts, libc::MSG_NOSIGNAL) };
            let sent = match send() {
                // Nobody may come by here again for long: so the kernel takes all of it now, if it
                // can be had to.
                Err(Errno::AGAIN) => kernel::with_room(self.fd(), send),
                sent => sent,
            };
            let sent = sent.inspect_err(|&error| self.keeps(error))?;
            // (The receiver could have had it from the ring.)
            kernel::push_all(self.fd());
            self.keeps_nodelay();
            own.withdrawn = Some(done + sent as u32);
        }
        Ok(())
    }

    /// Bytes that the other side has not taken were never there.
    pub(crate) fn take_back(&self, attached: &Attached, own: &mut Locked<Sending>) {
        let head = own.writer.head();
        self.take_blocks_back(attached, own, head);
        own.take_back(&attached.out().produced);
        self.full.is_over();
    }

    /// The blocks behind this position nobody gives back.
    pub(crate) fn take_blocks_back(&self, attached: &Attached, own: &mut Locked<Sending>, at: u32) {
        if own.runs.is_empty() {
            return;
        }
        let mapped = &attached.mapped;
        let (queue, returns) =
            (attached.slot().queue(mapped.side), mapped.region.returns(mapped.side));
        own.runs.take_back(queue, at, |run| returns.done(run.handle, run.bytes));
    }

    /// For tests and for calls that the ring does not carry: sending is Linux's from now on;
    /// `stays`: for good.
    pub fn send_by_linux(&self, stays: bool) -> Result<(), Errno> {
        let Some(attached) = self.attached() else { return Ok(()) };
        let mut own = attached.mapped.ends.sending(attached.slot, self.context.process());
        own.stays |= stays;
        self.goes_by_linux(attached, &mut own)
    }

    /// As above, and the program sends there now: what it has left unread in the ring would come
    /// too late after that.
    pub(crate) fn send_before_bypass(&self) -> Result<(), Errno> {
        let Some(attached) = self.attached() else { return Ok(()) };
        let mut own = attached.mapped.ends.sending(attached.slot, self.context.process());
        self.goes_by_linux(attached, &mut own)?;
        own.too_late = true;
        Ok(())
    }

    /// The program has set TCP_NODELAY, or cleared it.
    pub fn sets_nodelay(&self, set: bool) {
        self.nodelay.store(set, SeqCst);
        if let Some(attached) = self.attached() {
            // It is set again with nobody pushing: what that sets and clears in between may have
            // been overtaken.
            let _own = attached.mapped.ends.sending(attached.slot, self.context.process());
            let _ = sockopt::set_tcp_nodelay(self.fd(), set);
        }
    }

    /// Sends what Linux holds back ([`kernel::push`]). The program's option is as it last said.
    pub(crate) fn push(&self) {
        kernel::push(self.fd());
        self.keeps_nodelay();
    }

    fn keeps_nodelay(&self) {
        if self.nodelay.load(SeqCst) {
            let _ = sockopt::set_tcp_nodelay(self.fd(), true);
        }
    }

    fn goes_by_linux(&self, attached: &Attached, own: &mut Locked<Sending>) -> Result<(), Errno> {
        if own.finished {
            return Ok(());
        }
        loop {
            let at =
                attached.out().switch.phase.at().or_else(|_| self.poison(&mut own.poisoned))?;
            if matches!(at, At::Linux | At::Leaving) {
                return self.flush(attached, own);
            }
            self.leave(attached, own)?;
        }
    }
}

/// Where the bytes lie that the other side has not taken, `skip` of them left out: one piece of
/// them. `None`: not here.
fn unread(
    attached: &Attached,
    own: &Locked<Sending>,
    skip: u32,
    left: u32,
) -> Option<[(*const u8, usize); 2]> {
    let mapped = &attached.mapped;
    match own.runs.piece(own.writer.head(), skip, left) {
        Piece::Ring(bytes) => {
            let spans = own.writer.unread(skip).part(0, bytes);
            Some(attached.slot().addresses(mapped.side, spans))
        }
        Piece::Block(run) => {
            let at = mapped.exchange.given(run)?;
            Some([(at, run.bytes as usize), (at, 0)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Waiting;
    use crate::common::{program_that, service, shared};
    use crate::lock::{Guarded, lock};
    use crate::set::events::Added;
    use crate::watcher::Watcher;
    use std::os::fd::{AsFd, OwnedFd, RawFd};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// How much Linux has for a socket where there is news, or will have soon.
    #[derive(Debug)]
    struct Looks {
        socket: OwnedFd,
        found: Guarded<Vec<usize>>,
    }

    impl Watcher for Looks {
        fn news(self: Arc<Self>, _: bool) {
            let begun = Instant::now();
            let unread = || kernel::unread(self.socket.as_fd()).unwrap();
            while unread() == 0 && begun.elapsed() < Duration::from_millis(500) {
                std::thread::yield_now();
            }
            lock(&self.found).push(unread());
        }

        fn settles(&self) {}

        fn gone(&self, _: RawFd) {}

        fn loses(&self, _: RawFd) {}

        fn added(&self) -> Option<Added> {
            None
        }
    }

    #[test]
    fn sets_are_told_of_an_offer_that_was_left_once_linux_has_its_bytes() {
        let service = service();
        let program = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = shared(&program(), &program());
        assert_eq!(a.send(b"by the ring"), Ok(11));
        let attached = a.flow.attached().unwrap();
        assert_eq!(attached.out().switch.phase.at(), Ok(At::Offered));
        let socket = b.socket.as_ref().unwrap().try_clone().unwrap().into();
        let looks = Arc::new(Looks { socket, found: Guarded::default() });
        a.flow.watch(looks.clone());
        let mut own = attached.mapped.ends.sending(attached.slot, a.flow.context.process());
        a.flow.leave(attached, &mut own).unwrap();
        drop(own);
        let found = lock(&looks.found);
        assert!(!found.is_empty() && found.iter().all(|&bytes| bytes == 11), "{:?}", *found);
    }
}
