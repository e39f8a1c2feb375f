//! Where the bytes of a call that sends come from: the program's buffers, or a file.
//!
//! unsafe: the program's buffers; a file's bytes are read into the ring's memory.

use crate::attached::Attached;
use crate::blocks::{NUMBER, OWN, Place, Whose};
use crate::buffers;
use crate::context::Context;
use crate::ends::{Locked, Sending};
use crate::flow::Flow;
use crate::kernel;
use crate::reference::{Forward, GIVEN_ON, There};
use libc::iovec;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use uncopy_tcp_shared::ring::Spans;
use uncopy_tcp_shared::runs::Run;
use uncopy_tcp_shared::stores::Stores;

/// Blocks are wanted for what has so many bytes and more.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub from: usize,
    pub context: &'a Context,
}

/// The bytes that are left to be sent.
pub(crate) trait Source {
    /// How many bytes. (None may be sent, too.)
    fn left(&self) -> usize;
    /// Some of them lie in arenas already.
    fn lies_in_arenas(&self) -> bool {
        false
    }
    /// Puts into the ring what fits, and publishes it; EAGAIN: nothing fits. It goes in `blocks`
    /// where these are wanted.
    fn put(
        &mut self,
        attached: &Attached,
        own: &mut Locked<Sending>,
        blocks: Option<Wanted>,
    ) -> Result<usize, Errno>;
    /// Gives Linux what it takes now.
    fn by_linux(&mut self, fd: BorrowedFd, flags: i32) -> Result<usize, Errno>;
}

/// The program's buffers.
pub(crate) struct Buffers<'a> {
    from: &'a [iovec],
    /// The same, once some of it was sent.
    rest: Option<Vec<iovec>>,
    /// So many parts of `from` are left out there.
    sent_parts: usize,
    /// The parts of it that may be given on.
    forward: Option<&'a Forward>,
    /// Some of it was.
    gave_on: bool,
}

/// The next run.
enum Next<'a> {
    /// So many bytes that are copied.
    Copied(usize),
    /// So many at this place of an arena, which the receiver knows by this number.
    There(&'a There, u16, u32, usize),
}

impl<'a> Buffers<'a> {
    /// # Safety
    /// The buffers are the program's: whatever it named.
    pub unsafe fn new(from: &'a [iovec], forward: Option<&'a Forward>) -> Self {
        Self { from, rest: None, sent_parts: 0, forward, gave_on: false }
    }

    fn parts(&self) -> &[iovec] {
        self.rest.as_deref().unwrap_or(self.from)
    }

    /// The next run. Bytes before, between and behind those that are given on are copied; for a
    /// receiver that takes blocks into some, however few they are: it views all of it, or nothing.
    fn next(&self, context: &Context, attached: &Attached) -> Next<'a> {
        let left = self.left();
        let Some(forward) = self.forward else { return Next::Copied(left) };
        let arenas = &attached.out().consumed.arenas;
        let known = |(number, generation): (u16, u32)| {
            arenas[usize::from(number)].load(Acquire) == generation
        };
        let there = forward.parts.get(self.sent_parts..).unwrap_or(&[]);
        let mut before = 0;
        for (part, there) in self.parts().iter().zip(there) {
            if let Some(there) = there
                && let Some(number) = Self::number(context, attached, &there.whose)
                && known(number)
            {
                if before > 0 {
                    return Next::Copied(before);
                }
                let at = there.whose.offset(part.iov_base as usize);
                return Next::There(there, number.0, at, part.iov_len);
            }
            before += part.iov_len;
        }
        Next::Copied(before)
    }

    /// By which number the receiver is to know this arena, and which it is of those that had it. A
    /// peer's arena is offered to it where it has none.
    fn number(context: &Context, attached: &Attached, whose: &Whose) -> Option<(u16, u32)> {
        let mapped = &attached.mapped;
        match whose {
            Whose::Own(own) => mapped.exchange.gives(own).then_some((NUMBER, OWN)),
            Whose::Peer(peer) => {
                let number = mapped.exchange.number_of(peer);
                if number.is_none() {
                    context.offers_onward(mapped, peer);
                }
                number
            }
        }
    }

    /// Publishes bytes of an arena where they are. `None`: they are to be copied.
    fn put_there(
        &mut self,
        (context, attached): (&Context, &Attached),
        own: &mut Locked<Sending>,
        (there, number, at, bytes): (&There, u16, u32, u32),
    ) -> Option<usize> {
        let mapped = &attached.mapped;
        let returns = mapped.region.returns(mapped.side);
        let (forward, There { whose, keeps }) = (self.forward?, there);
        let (slot, position) = (attached.slot, own.writer.tail());
        let sole = || attached.is_sole();
        // (What settles keeps something, as what is given on does.)
        context.gives_on.store(true, Relaxed);
        let which = (number, whose);
        let handle = mapped.exchange.give_on(returns, (slot, at, bytes), which, keeps, sole)?;
        let run = Run { position, bytes, at, arena: number, handle };
        let produced = &attached.out().produced;
        own.runs.push(attached.slot().queue(mapped.side), produced, run);
        own.given_on += u64::from(bytes);
        own.commit(produced, bytes);
        forward.gives(bytes as usize);
        self.gave_on = true;
        Some(self.sent(bytes as usize))
    }

    /// Publishes the next bytes: where they lie in an arena, or in a block that they are copied
    /// into. What is copied for a receiver that takes no blocks goes by the ring. `None`: all that
    /// is left is to go by the ring.
    fn put_block(
        &mut self,
        attached: &Attached,
        own: &mut Locked<Sending>,
        blocks: Wanted,
    ) -> Option<usize> {
        let (left, mapped) = (self.left(), &attached.mapped);
        let takes_blocks = Flow::takes_blocks(attached);
        // (A receiver that reads by buffers of a round size is not to find the end of a full ring
        // and the end of a buffer in one: see `Writer::FULL`.)
        let free = match takes_blocks {
            true => own.writer.free_for_run(left),
            false => own.writer.free(),
        };
        let head = own.writer.head();
        own.runs.look(head);
        if free == 0 || !own.runs.has_room() {
            return None;
        }
        let (mut bytes, least) = match self.next(blocks.context, attached) {
            Next::There(there, number, at, bytes) => {
                let (context, fits) = ((blocks.context, attached), free.min(bytes as u32));
                if !takes_blocks && (fits as usize) < bytes.min(GIVEN_ON) {
                    // (A run for each gap that the receiver makes would use up the queue.)
                    return self.put_first(attached, own, fits as usize).ok();
                }
                let returns = mapped.region.returns(mapped.side);
                if !takes_blocks
                    && matches!(there.whose, Whose::Own(_))
                    && mapped.exchange.is_slow(returns, attached.slot)
                {
                    return None;
                }
                match self.put_there(context, own, (there, number, at, fits)) {
                    Some(sent) => return Some(sent),
                    None if !takes_blocks => {
                        own.short_of_blocks = true;
                        return None;
                    }
                    None => (left, blocks.from),
                }
            }
            Next::Copied(bytes) if !takes_blocks && bytes == left => return None,
            Next::Copied(bytes) if !takes_blocks => {
                // (The ring tells the error with all that is left.)
                return self.put_first(attached, own, bytes).ok();
            }
            Next::Copied(bytes) if bytes < left || self.gave_on => (bytes, 1),
            Next::Copied(bytes) => (bytes, blocks.from),
        };
        // (Nobody copies it meanwhile: so it is published whole.)
        bytes = bytes.min(free as usize);
        if bytes < least {
            return None;
        }
        let returns = mapped.region.returns(mapped.side);
        let room = |bytes: usize| mapped.exchange.room(returns, attached.slot, bytes as u32);
        let mut place = room(bytes);
        if place.is_none() && bytes > STEP {
            bytes = STEP;
            place = room(bytes);
        }
        own.short_of_blocks |= place.is_none();
        let Place { own: arena, at, handle } = place?;
        let mut done = 0;
        for part in self.parts() {
            let part_bytes = part.iov_len.min(bytes - done);
            let to = at + done as u32;
            // SAFETY: the promise of `new`; nobody has been given the block.
            let put = unsafe { arena.memory.put(to, part.iov_base.cast(), part_bytes as u32) };
            if put.is_err() {
                break;
            }
            done += part_bytes;
            if done == bytes {
                break;
            }
        }
        if done < bytes && bytes <= TOGETHER {
            done = 0;
        }
        if done < bytes {
            // (The rest of the block is nobody's.)
            returns.done(handle, (bytes - done) as u32);
        }
        if done == 0 {
            // (The ring says whether it is the program's buffer that is not there, or memory for
            // the block.)
            return None;
        }
        let position = own.writer.tail();
        let run = Run { position, bytes: done as u32, at, arena: NUMBER, handle };
        let produced = &attached.out().produced;
        own.runs.push(attached.slot().queue(mapped.side), produced, run);
        own.in_blocks += done as u64;
        own.commit(produced, done as u32);
        Some(self.sent(done))
    }

    /// As [`Source::put`], in blocks, as far as there are any: so many bytes.
    #[inline(never)]
    fn put_blocks(
        &mut self,
        attached: &Attached,
        own: &mut Locked<Sending>,
        blocks: Wanted,
    ) -> usize {
        let mut sent = 0;
        while self.left() > 0
            && let Some(bytes) = self.put_block(attached, own, blocks)
        {
            sent += bytes;
        }
        sent
    }

    /// Several parts that Linux would copy before it sends any: all of them into the ring, or none,
    /// where one is not there. `None`: they are more, or there is not that much room.
    fn put_together(
        &mut self,
        attached: &Attached,
        own: &mut Locked<Sending>,
    ) -> Option<Result<usize, Errno>> {
        let all = self.left();
        if self.parts().len() < 2 || all > TOGETHER {
            return None;
        }
        let spans = own.writer.reserve(all);
        if spans.bytes() as usize != all {
            return None;
        }
        let (side, copy) =
            (attached.mapped.side, own.batch.copy(&attached.mapped.prices, attached.out(), all));
        let mut put = 0;
        for part in self.parts() {
            let (room, from) = (spans.part(put, part.iov_len as u32), part.iov_base.cast());
            // SAFETY: the promise of `new`.
            if unsafe { attached.slot().put(side, room, from, copy.stores) }.is_err() {
                return Some(Err(Errno::FAULT));
            }
            put += part.iov_len as u32;
        }
        own.batch.wrote(&copy, all, copy.stores);
        own.commit(&attached.out().produced, put);
        Some(Ok(self.sent(all)))
    }

    /// As [`Source::put`], in the ring, of the first `bytes`.
    fn put_first(
        &mut self,
        attached: &Attached,
        own: &mut Locked<Sending>,
        bytes: usize,
    ) -> Result<usize, Errno> {
        let mut left = bytes;
        let cut = |part: &iovec| {
            let iov_len = part.iov_len.min(left);
            left -= iov_len;
            iovec { iov_len, ..*part }
        };
        let first: Vec<iovec> =
            self.parts().iter().map(cut).filter(|part| part.iov_len > 0).collect();
        // SAFETY: the promise of `new`.
        let sent = unsafe { Buffers::new(&first, None) }.put_ring(attached, own)?;
        Ok(self.sent(sent))
    }

    /// As [`Source::put`], in the ring.
    #[inline]
    fn put_ring(&mut self, attached: &Attached, own: &mut Locked<Sending>) -> Result<usize, Errno> {
        if let Some(put) = self.put_together(attached, own) {
            return put;
        }
        let (side, out) = (attached.mapped.side, attached.out());
        let mut sent = 0;
        'parts: for part in self.parts() {
            let (mut from, mut left) = (part.iov_base.cast::<u8>(), part.iov_len);
            while left > 0 {
                let spans = own.writer.reserve(left.min(STEP));
                let bytes = spans.bytes() as usize;
                if bytes == 0 {
                    break 'parts;
                }
                let copy = own.batch.copy(&attached.mapped.prices, attached.out(), bytes);
                // SAFETY: the promise of `new`.
                let put = unsafe { attached.slot().put(side, spans, from, copy.stores) };
                if put.is_err() {
                    return if sent > 0 { Ok(self.sent(sent)) } else { Err(Errno::FAULT) };
                }
                own.batch.wrote(&copy, bytes, copy.stores);
                own.commit(&out.produced, bytes as u32);
                (from, left) = (from.wrapping_add(bytes), left - bytes);
                sent += bytes;
                if left > 0 {
                    attached.tell(out.consumed.data.take());
                }
            }
        }
        if sent == 0 && self.left() > 0 { Err(Errno::AGAIN) } else { Ok(self.sent(sent)) }
    }

    fn sent(&mut self, bytes: usize) -> usize {
        if bytes < self.left() {
            let rest = self.rest.get_or_insert_with(|| self.from.to_vec());
            self.sent_parts += advance(rest, bytes);
        } else {
            self.from = &[];
            self.rest = None;
        }
        bytes
    }
}

impl Source for Buffers<'_> {
    #[inline]
    fn left(&self) -> usize {
        self.parts().iter().map(|part| part.iov_len).sum()
    }

    #[inline]
    fn lies_in_arenas(&self) -> bool {
        self.forward.is_some()
    }

    #[inline]
    fn put(
        &mut self,
        attached: &Attached,
        own: &mut Locked<Sending>,
        blocks: Option<Wanted>,
    ) -> Result<usize, Errno> {
        let Some(blocks) = blocks else { return self.put_ring(attached, own) };
        let sent = self.put_blocks(attached, own, blocks);
        if sent > 0 && self.left() == 0 {
            return Ok(sent);
        }
        match self.put_ring(attached, own) {
            Err(_) if sent > 0 => Ok(sent),
            rest => Ok(sent + rest?),
        }
    }

    fn by_linux(&mut self, fd: BorrowedFd, flags: i32) -> Result<usize, Errno> {
        // SAFETY: the promise of `new`.
        let sent = unsafe { kernel::send(fd, self.parts(), flags) }?;
        Ok(self.sent(sent))
    }
}

/// Linux copies into buffers of this size, and sends none that it could not fill.
const TOGETHER: usize = 32 << 10;

/// A message that is larger is published by so much: the receiver copies one part while the next is
/// written, and gets no less than this by a call.
const STEP: usize = 256 << 10;

/// A [`FilePart`]'s answer where nothing of it goes by the ring now.
pub(crate) const ELSEWHERE: Errno = Errno::NOSYS;

/// A part of a file. The kernel reads what it has of it in memory, straight into the ring where no
/// streaming stores are wanted: the direction's lock is held meanwhile, so nothing waits for a
/// device.
pub(crate) struct FilePart<'a> {
    pub file: BorrowedFd<'a>,
    /// Where it goes on.
    pub at: u64,
    pub left: usize,
}

impl FilePart<'_> {
    /// Has the kernel read what it can into the ring. 0: nothing at hand, a file that cannot tell,
    /// the end of the file, an error; the call that sends it otherwise learns which.
    fn read(&self, attached: &Attached, room: Spans) -> usize {
        let parts = attached
            .slot()
            .room(attached.mapped.side, room)
            .map(|(at, bytes)| iovec { iov_base: at.cast(), iov_len: bytes });
        // SAFETY: room in the ring that is nobody's yet.
        unsafe { kernel::read_at_hand(self.file, &parts, self.at).unwrap_or(0) }
    }

    /// The same by way of a buffer that stays in this core's caches, and from there by streaming
    /// stores: the kernel has none. `None`: there is no buffer.
    fn stream(&self, attached: &Attached, room: Spans) -> Option<usize> {
        buffers::with(|buffer| {
            let mut put = 0;
            while put < room.bytes() {
                let wanted = (buffers::SIZE as u32).min(room.bytes() - put);
                let to = [iovec { iov_base: buffer.as_ptr().cast(), iov_len: wanted as usize }];
                let from = self.at + u64::from(put);
                // SAFETY: the buffer is ours meanwhile.
                let read = unsafe { kernel::read_at_hand(self.file, &to, from) };
                let Ok(read @ 1..) = read else { break };
                let (side, spans) = (attached.mapped.side, room.part(put, read as u32));
                let from = buffer.as_ptr().cast_const();
                // SAFETY: as above.
                let done = unsafe { attached.slot().put(side, spans, from, Stores::Streaming) };
                if done.is_err() {
                    break;
                }
                put += read as u32;
            }
            put as usize
        })
    }
}

impl Source for FilePart<'_> {
    fn left(&self) -> usize {
        self.left
    }

    fn put(
        &mut self,
        attached: &Attached,
        own: &mut Locked<Sending>,
        _: Option<Wanted>,
    ) -> Result<usize, Errno> {
        let room = own.writer.reserve(self.left);
        if room.bytes() == 0 {
            return Err(Errno::AGAIN);
        }
        let copy = own.batch.copy(&attached.mapped.prices, attached.out(), room.bytes() as usize);
        let streamed = match copy.stores {
            Stores::Ordinary => None,
            Stores::Streaming => self.stream(attached, room),
        };
        let (bytes, by) = match streamed {
            Some(bytes) => (bytes, Stores::Streaming),
            None => (self.read(attached, room), Stores::Ordinary),
        };
        if bytes == 0 {
            return Err(ELSEWHERE);
        }
        own.batch.wrote(&copy, bytes, by);
        own.commit(&attached.out().produced, bytes as u32);
        self.at += bytes as u64;
        self.left -= bytes;
        Ok(bytes)
    }

    fn by_linux(&mut self, _: BorrowedFd, _: i32) -> Result<usize, Errno> {
        Err(ELSEWHERE)
    }
}

/// Leaves the first `bytes` out. How many parts less there are.
pub(crate) fn advance(parts: &mut Vec<iovec>, mut bytes: usize) -> usize {
    let mut whole = 0;
    for part in parts.iter_mut() {
        if bytes < part.iov_len {
            part.iov_base = part.iov_base.cast::<u8>().wrapping_add(bytes).cast();
            part.iov_len -= bytes;
            break;
        }
        bytes -= part.iov_len;
        whole += 1;
    }
    parts.drain(..whole);
    whole
}
