//! One connection: what has come by the wire goes to the stand-in, and what the program sends to
//! the wire. Both buffers are the protocol's: a byte's place follows from its number, so that a
//! lane puts payload where it belongs, and takes from there what it sends. What lies in the
//! program's ring is sent from there, and is the program's again once it was acknowledged.
//!
//! unsafe: that ring's bytes, for the kernel to read.

use crate::parts::Part;
use crate::stand_in;
use libc::{EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP};
use rustix::io::Errno;
use rustix::net::{getpeername, sockopt};
use std::net::SocketAddrV4;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use uncopy_tcp_events::line::Line;
use uncopy_tcp_proto::FlowId;
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::RingRange;
use uncopy_tcp_socket::lent::{HELD, Lent};
use uncopy_tcp_wire::{PIECES, Piece};

const IN: u32 = EPOLLIN as u32;
const OUT: u32 = EPOLLOUT as u32;
const ENDS: u32 = (EPOLLRDHUP | EPOLLHUP | EPOLLERR) as u32;
/// A stand-in that was not shut down itself was reset.
const DEAD: u32 = (EPOLLHUP | EPOLLERR) as u32;

/// A payload of so many bytes goes straight to the program's ring. Smaller ones wait in the buffer
/// for the lane's turn: their copies cost little, and a program that was given requests one by one
/// would answer them so.
const STRAIGHT: u32 = 4096;

/// After the peer's end, what a program has given back unread goes by Linux, as far as Linux has
/// room. A program that has ended its stream too, and takes none of what came for so long, has its
/// connection reset. (Linux would wait without end; but here the service has its buffers.)
const UNREAD_FOR: Duration = Duration::from_secs(60 * 60);

/// A circular buffer, and how many bytes ever went in and out.
#[derive(Debug)]
struct Buffer {
    bytes: Box<[u8]>,
    came: u64,
    went: u64,
}

impl Buffer {
    fn new(bits: u8) -> Self {
        Self { bytes: vec![0; 1 << bits].into(), came: 0, went: 0 }
    }

    fn piece(&self, from: u64, length: u64) -> core::ops::Range<usize> {
        let at = from as usize & (self.bytes.len() - 1);
        at..at + (self.bytes.len() - at).min(length as usize)
    }

    /// The next bytes in it, up to its memory's end.
    fn filled(&self) -> core::ops::Range<usize> {
        self.piece(self.went, self.came - self.went)
    }

    /// How many bytes more may come where 2^`most` may be there: in it, or elsewhere.
    fn left(&self, most: u8) -> u32 {
        (1 << most) - (self.came - self.went) as u32
    }

    /// The next room in it, likewise.
    fn room(&self) -> core::ops::Range<usize> {
        self.piece(self.came, (self.bytes.len() as u64).saturating_sub(self.came - self.went))
    }
}

/// What the lane has done, and the protocol has yet to hear.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unreported {
    /// Bytes that were taken out of the receive buffer.
    pub read: u32,
    /// Bytes that were put into the send buffer.
    pub written: u32,
    /// The slow path has something to do for it ([`Bridge::wants`]).
    pub slow: bool,
}

/// A job for the slow path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Nothing.
    Nothing,
    /// The program sends no more: [`uncopy_tcp_proto::Endpoint::shutdown`].
    Shutdown,
    /// The program has gone, and what it has sent is still to arrive:
    /// [`uncopy_tcp_proto::Endpoint::close`].
    Close,
    /// The program has gone, or its connection has failed: [`uncopy_tcp_proto::Endpoint::abort`].
    Abort,
}

/// News of a stand-in, from its lane's set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing that others need know.
    Nothing,
    /// It is connected now, after it had to wait, to a listener of this address.
    Connected(Option<SocketAddrV4>),
    /// Nobody listens any more where it was to be connected.
    Refused,
}

/// The state of the connection over the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wire {
    /// It goes on.
    #[default]
    Open,
    /// It has ended in order: what is there is still the program's.
    Closed,
    /// It was reset.
    Reset,
}

/// See the module.
#[derive(Debug)]
pub struct Bridge {
    /// The name by which its lane's set knows it.
    pub key: u64,
    line: Option<Line>,
    connecting: bool,
    /// From the wire to the program.
    inward: Buffer,
    /// How many of the next bytes in order the program has already.
    straight: u32,
    outward: Buffer,
    /// How much may be on that way, as a power of two: what is lent takes none of the buffer.
    most: u8,
    /// How many of the last bytes on that way are not in the buffer: they lie in the
    /// program's ring, and are sent from there. Those of them that were acknowledged may be its
    /// first.
    lent: u32,
    /// The next bytes are copied, once nothing is lent and the buffer has room.
    waits: bool,
    /// Bytes to and from the program of which the protocol has not heard yet.
    unreported: Unreported,
    /// Bytes may wait at the stand-in.
    readable: bool,
    /// There was no room there.
    stuck: bool,
    wire: Wire,
    /// The peer sends no more; the program was told.
    peer_closed: bool,
    finished: bool,
    /// Linux has no room for what goes before that end, and so long it is waited for some.
    unread_until: Option<Instant>,
    /// Bytes that the program had still to take at the last look.
    untaken: Option<usize>,
    /// The program sends no more; the protocol was told.
    ended: bool,
    shut: bool,
    /// The program reads no more either, and not all has arrived that it has sent; the protocol was
    /// told.
    left: bool,
    closed: bool,
    /// The program's connection has failed; the protocol was told.
    failed: bool,
    aborted: bool,
    /// The events that its lane's set was asked for.
    asked: Option<u32>,
    fin_timeout: Duration,
}

/// A connection: its bridge, and whether its lane knows that there is something to do.
#[derive(Debug)]
pub struct Connection {
    /// The connection over the wire.
    pub id: FlowId,
    /// The bridge.
    pub bridge: std::sync::Mutex<Bridge>,
    /// It is in its lane's list.
    pub queued: AtomicBool,
    /// Its lane.
    pub lane: usize,
    /// The part of its user, once that is known.
    pub part: OnceLock<Part>,
}

impl Connection {
    /// Its user is known from now on.
    pub fn is_part_of(&self, part: Part) {
        let _ = self.part.set(part);
    }

    /// Locks the bridge.
    pub fn lock(&self) -> std::sync::MutexGuard<'_, Bridge> {
        self.bridge.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Bridge {
    /// A bridge with buffers of 2^`bits` bytes; up to 2^`most` may go outward at once.
    pub fn new(key: u64, bits: u8, most: u8) -> Self {
        Self {
            key,
            line: None,
            connecting: false,
            inward: Buffer::new(bits),
            straight: 0,
            outward: Buffer::new(bits),
            most,
            lent: 0,
            waits: false,
            unreported: Unreported::default(),
            readable: false,
            stuck: false,
            wire: Wire::Open,
            peer_closed: false,
            finished: false,
            unread_until: None,
            untaken: None,
            ended: false,
            shut: false,
            left: false,
            closed: false,
            failed: false,
            aborted: false,
            asked: None,
            fin_timeout: Duration::ZERO,
        }
    }

    /// Its stand-in, which is connected, or will be. A program that has closed it, and not only
    /// sends no more, is found out after so long.
    pub fn stands_in(&mut self, line: Line, connected: bool, fin_timeout: Duration) {
        self.connecting = !connected;
        self.fin_timeout = fin_timeout;
        self.line = Some(line);
    }

    /// A segment's payload. `straight`: if it is large, in order, and nothing is before it, it goes
    /// to the program's ring, as far as that has room; it comes by [`came`](Self::came) next.
    pub fn place(&mut self, place: Place, payload: &[u8], straight: bool) {
        let mut to = place.to;
        let mut at = place.skip as usize;
        let next = self.inward.came as u32 & (self.inward.bytes.len() as u32 - 1);
        if straight && to.len >= STRAIGHT && to.start == next && self.goes_straight() {
            let gone = self.sends(&payload[at..at + to.len as usize]);
            at += gone;
            self.straight = gone as u32;
            let start = (next + self.straight) & (self.inward.bytes.len() as u32 - 1);
            to = RingRange { start, len: to.len - self.straight };
        }
        for piece in to.pieces(self.inward.bytes.len()) {
            let length = piece.len();
            self.inward.bytes[piece].copy_from_slice(&payload[at..at + length]);
            at += length;
        }
    }

    /// The program's ring is where the next byte belongs, and has had room.
    fn goes_straight(&self) -> bool {
        let is_open = self.wire == Wire::Open && !self.connecting && !self.failed && !self.left;
        is_open
            && !self.stuck
            && !self.finished
            && self.inward.came == self.inward.went
            && self.line.as_ref().is_some_and(Line::sends_by_ring)
    }

    /// Sends these bytes to the program. Returns how many it took.
    fn sends(&mut self, bytes: &[u8]) -> usize {
        let sent = match self.line.as_ref().map(|line| line.send(bytes)) {
            Some(Ok(sent)) => sent,
            Some(Err(Errno::AGAIN | Errno::INTR)) | None => 0,
            Some(Err(_)) => {
                self.failed = true;
                0
            }
        };
        self.stuck = sent < bytes.len();
        sent
    }

    /// Copies bytes that are to be sent. False: the program has made its ring unreadable; the
    /// connection fails.
    pub fn fetch(&mut self, range: RingRange, to: &mut [u8]) -> bool {
        let (here, lent) = self.parts(range);
        let (mut first, second) = to.split_at_mut(here.len as usize);
        for piece in here.pieces(self.outward.bytes.len()) {
            let (part, rest) = first.split_at_mut(piece.len());
            part.copy_from_slice(&self.outward.bytes[piece]);
            first = rest;
        }
        let fetched = lent.is_empty()
            || self.line.as_ref().is_some_and(|line| line.copy_lent(lent.start, second));
        self.failed |= !fetched;
        fetched
    }

    /// The same, where it lies.
    pub fn lend(&self, range: RingRange, with: &mut dyn FnMut(&[Piece<'_>; PIECES])) -> bool {
        let (here, lent) = self.parts(range);
        let mut pieces = [Piece::NONE; PIECES];
        for (to, piece) in pieces.iter_mut().zip(here.pieces(self.outward.bytes.len())) {
            *to = self.outward.bytes[piece].into();
        }
        if !lent.is_empty() {
            let bytes = lent.end - lent.start;
            let found = self.line.as_ref().and_then(|line| line.lent(lent.start, bytes));
            let Some(found) = found else { return false };
            for (to, (at, bytes)) in pieces[2..].iter_mut().zip(found) {
                // SAFETY: the line has the region mapped, and is not dropped meanwhile.
                *to = unsafe { Piece::new(at, bytes) };
            }
        }
        with(&pieces);
        true
    }

    /// The part of a range that lies in the buffer, and the lent bytes that follow it.
    fn parts(&self, range: RingRange) -> (RingRange, core::ops::Range<u32>) {
        let Buffer { bytes, came, went } = &self.outward;
        // (All of it has come, and none of it was acknowledged.)
        let ahead = u64::from(range.start).wrapping_sub(*went) & ((1 << self.most) - 1);
        let first_lent = came - u64::from(self.lent);
        let from = went + ahead;
        let here = first_lent.saturating_sub(from).min(range.len.into()) as u32;
        let skip = (from + u64::from(here)).saturating_sub(first_lent) as u32;
        let start = from as u32 & (bytes.len() as u32 - 1);
        (RingRange { start, len: here }, skip..skip + (range.len - here))
    }

    /// More bytes have come in order: this many.
    pub fn came(&mut self, bytes: u32) {
        let straight = core::mem::take(&mut self.straight).min(bytes);
        self.inward.came += u64::from(bytes);
        self.inward.went += u64::from(straight);
        self.unreported.read += straight;
    }

    /// More bytes were acknowledged: this many. True: there is something to do for it. (There was
    /// no room, and now there is; or the program has its ring back, which it may wait for.)
    pub fn acked(&mut self, bytes: u32) -> bool {
        let waited = self.waits || self.outward.left(self.most) == 0;
        self.outward.went += u64::from(bytes);
        waited || self.done_with() > 0 && self.outward.filled().is_empty()
    }

    /// How many of the lent bytes were acknowledged.
    fn done_with(&self) -> u32 {
        let waiting = self.outward.came - self.outward.went;
        self.lent.saturating_sub(waiting as u32)
    }

    /// Gives acknowledged bytes of the lent ones back to the program.
    fn gives_back(&mut self, bytes: u32) {
        if bytes > 0
            && let Some(line) = &self.line
        {
            line.receives_lent(bytes);
            self.lent -= bytes;
        }
        if self.waits && self.lent == 0 && !self.outward.room().is_empty() {
            (self.waits, self.readable) = (false, true);
        }
    }

    /// The peer sends no more.
    pub fn peer_closed(&mut self) {
        self.peer_closed = true;
    }

    /// The connection over the wire is over: in order, or not.
    pub fn over(&mut self, reset: bool) {
        self.wire = if reset { Wire::Reset } else { Wire::Closed };
        self.unreported = Unreported::default();
    }

    /// The lane's set says this of the stand-in.
    pub fn hears(&mut self, says: u32) -> Heard {
        let mut heard = Heard::Nothing;
        if self.connecting && says & (OUT | ENDS) != 0 {
            self.connecting = false;
            let line = self.line.as_ref().map(Line::descriptor);
            heard = match line.map(|line| (sockopt::socket_error(line), getpeername(line))) {
                Some((Ok(Ok(())), to)) => {
                    let to = to.ok().flatten().and_then(|to| SocketAddrV4::try_from(to).ok());
                    Heard::Connected(to)
                }
                Some((Ok(Err(Errno::CONNREFUSED)), _)) => Heard::Refused,
                _ => Heard::Nothing,
            };
            self.failed |= !matches!(heard, Heard::Connected(_));
        }
        if self.ended && !self.finished && says & DEAD != 0 {
            // Linux, too, would go on until the peer has what was sent before the close.
            let arrived = self.outward.filled().is_empty();
            self.left |= !arrived;
            self.failed |= arrived && !self.left;
        }
        self.readable |= says & (IN | ENDS) != 0;
        self.stuck &= says & (OUT | ENDS) == 0;
        heard
    }

    /// Moves what can be moved. The protocol is to be told what
    /// [`take_unreported`](Self::take_unreported) says, once the bridge is not locked any more.
    pub fn advance(&mut self) {
        if self.wire == Wire::Reset {
            // (Closed by its lane, with a reset.)
            return;
        }
        self.gives_back(self.done_with());
        let Some(line) =
            self.line.as_ref().filter(|_| !self.connecting && !self.failed && !self.left)
        else {
            return;
        };
        let moved = (|| {
            while !self.stuck && !self.inward.filled().is_empty() {
                let piece = self.inward.filled();
                let length = piece.len();
                let sent = match line.send(&self.inward.bytes[piece]) {
                    Err(Errno::AGAIN | Errno::INTR) => 0,
                    sent => sent?,
                };
                self.inward.went += sent as u64;
                self.unreported.read += sent as u32;
                self.stuck = sent < length;
            }
            if self.peer_closed && !self.finished && !self.stuck && self.inward.filled().is_empty()
            {
                // (Tried again where Linux has taken something: that begins anew.)
                self.finished = match line.finish() {
                    Err(Errno::AGAIN) => false,
                    finished => finished.map(|()| true)?,
                };
                self.stuck = !self.finished;
                self.unread_until = self.stuck.then(|| Instant::now() + UNREAD_FOR);
            }
            while self.readable && !self.ended && self.wire == Wire::Open {
                if self.outward.left(self.most) == 0 {
                    break;
                }
                match line.lend(self.outward.left(self.most)) {
                    Lent::More(bytes) => {
                        self.lent += bytes;
                        self.outward.came += u64::from(bytes);
                        self.unreported.written += bytes;
                        continue;
                    }
                    Lent::Elsewhere if self.lent > 0 => {
                        (self.waits, self.readable) = (true, false);
                        break;
                    }
                    Lent::Nothing | Lent::Elsewhere => {}
                }
                let room = self.outward.room();
                if self.lent == 0 && room.is_empty() {
                    (self.waits, self.readable) = (true, false);
                    break;
                }
                match line.receive(&mut self.outward.bytes[room]) {
                    Ok(0) => {
                        self.ended = true;
                        // (Refused, the connection stays until its peer ends it.)
                        let _ = stand_in::asks(line.descriptor(), self.fin_timeout);
                    }
                    Ok(bytes) => {
                        self.outward.came += bytes as u64;
                        self.unreported.written += bytes as u32;
                    }
                    Err(Errno::AGAIN | Errno::INTR) => self.readable = false,
                    Err(HELD) => (self.waits, self.readable) = (true, false),
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })();
        self.failed |= moved.is_err();
    }

    /// What the protocol has yet to hear. What it refuses comes back by
    /// [`refused`](Self::refused).
    pub fn take_unreported(&mut self) -> Unreported {
        if self.wire != Wire::Open {
            return Unreported::default();
        }
        let slow = self.wants() != Wants::Nothing;
        Unreported { slow, ..core::mem::take(&mut self.unreported) }
    }

    /// The protocol did not take this now: the slow path is to report it.
    pub fn refused(&mut self, unreported: &Unreported) {
        self.unreported.read += unreported.read;
        self.unreported.written += unreported.written;
    }

    /// What the slow path is to do, once it has reported what is unreported.
    pub fn wants(&self) -> Wants {
        match (self.wire, self.failed, self.ended) {
            (Wire::Open, true, _) if !self.aborted => Wants::Abort,
            (Wire::Open, false, _) if self.left && !self.closed => Wants::Close,
            (Wire::Open, false, true) if !self.shut => Wants::Shutdown,
            _ => Wants::Nothing,
        }
    }

    /// The slow path has done this job.
    pub fn done(&mut self, what: Wants) {
        match what {
            Wants::Nothing => {}
            Wants::Shutdown => self.shut = true,
            Wants::Close => (self.shut, self.closed) = (true, true),
            Wants::Abort => self.aborted = true,
        }
    }

    /// The program's end cannot go on.
    pub fn fails(&mut self) {
        self.failed = true;
    }

    /// Until when the program has time to take the bytes before the peer's end, while it must.
    pub fn unread_until(&self) -> Option<Instant> {
        self.unread_until.filter(|_| self.stuck && !self.failed && self.line.is_some())
    }

    /// A lane looks at that from time to time. True: it was waited for long enough. While the
    /// program may send, or has taken anything since the last look, that begins anew. (Linux tells
    /// of room when there is much: who reads slowly has taken something long before.)
    pub fn was_unread_for_too_long(&mut self, now: Instant) -> bool {
        let Some(until) = self.unread_until() else { return false };
        let flow = self.line.as_ref().and_then(Line::flow);
        let untaken = flow.and_then(|flow| flow.unsent().ok());
        let before = core::mem::replace(&mut self.untaken, untaken);
        if self.wire != Wire::Closed || untaken != before {
            self.unread_until = Some(now + UNREAD_FOR);
            return false;
        }
        until <= now
    }

    /// Both ends are done with: it can go.
    pub fn is_over(&self) -> bool {
        match self.wire {
            Wire::Open => false,
            Wire::Reset => true,
            Wire::Closed => self.failed || self.left || self.line.is_none() || self.finished,
        }
    }

    /// The stand-in's line, and what its set is to be asked for where that has changed (what it
    /// was, what it is to be).
    pub fn wanted(&mut self) -> Option<(&Line, Option<u32>, Option<u32>)> {
        self.line.as_ref()?;
        // (The set would report one that has gone again and again.)
        let wanted = if self.failed || self.left {
            None
        } else if self.connecting {
            Some(OUT)
        } else {
            let receives = !self.ended
                && !self.waits
                && self.wire == Wire::Open
                && self.outward.left(self.most) > 0;
            let events = if receives { IN } else { 0 } | if self.stuck { OUT } else { 0 };
            // (The end of a program that sends no more is still to be heard.)
            let stays = self.ended && !self.finished && self.wire == Wire::Open;
            Some(events).filter(|events| *events != 0 || stays)
        };
        let before = core::mem::replace(&mut self.asked, wanted);
        (before != wanted).then_some(())?;
        Some((self.line.as_ref()?, before, wanted))
    }

    /// The stand-in is to be closed: with a reset, unless the connection has ended in order.
    pub fn take_line(&mut self) -> Option<Line> {
        // (The program would take unread bytes of its ring for lost.)
        self.gives_back(self.done_with());
        let line = self.line.take()?;
        if self.wire == Wire::Closed && !self.failed {
            let _ = stand_in::resets(line.descriptor(), false);
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bridge() -> Bridge {
        Bridge::new(1, 4, 4)
    }

    #[test]
    fn what_comes_and_goes_wraps_around_the_buffers_end() {
        let mut bridge = bridge();
        bridge.inward.came = 14;
        bridge.inward.went = 14;
        bridge.place(Place { skip: 1, to: RingRange { start: 14, len: 4 } }, b"xabcd", true);
        bridge.came(4);
        assert_eq!(bridge.inward.bytes[bridge.inward.filled()], *b"ab");
        bridge.inward.went += 2;
        assert_eq!(bridge.inward.bytes[bridge.inward.filled()], *b"cd");
        bridge.inward.went += 2;
        assert_eq!(bridge.inward.filled().len(), 0);
        (bridge.outward.went, bridge.outward.came) = (14, 18);
        bridge.outward.bytes[14..].copy_from_slice(b"ef");
        bridge.outward.bytes[..2].copy_from_slice(b"gh");
        let mut sent = [0; 4];
        assert!(bridge.fetch(RingRange { start: 14, len: 4 }, &mut sent));
        assert_eq!(sent, *b"efgh");
    }

    #[test]
    fn room_is_what_is_not_acknowledged_yet() {
        let mut bridge = bridge();
        bridge.outward.came = 16;
        assert!(bridge.outward.room().is_empty());
        assert!(bridge.acked(4));
        assert_eq!(bridge.outward.room(), 0..4);
        assert!(!bridge.acked(4));
        assert_eq!(bridge.outward.room(), 0..8);
    }

    #[test]
    fn what_is_lent_follows_what_was_copied_wherever_the_buffer_wraps() {
        // The first 20 bytes were acknowledged, 4 more were copied, and then some are lent.
        let mut bridge = bridge();
        (bridge.outward.went, bridge.outward.came, bridge.lent) = (20, 34, 10);
        let range = |from: u64, len| RingRange { start: (from % 16) as u32, len };
        let at = |from, len| RingRange { start: from, len };
        assert_eq!(bridge.parts(range(20, 14)), (at(4, 4), 0..10));
        assert_eq!(bridge.parts(range(22, 2)), (at(6, 2), 0..0));
        assert_eq!(bridge.parts(range(23, 2)), (at(7, 1), 0..1));
        assert_eq!(bridge.parts(range(24, 10)), (at(8, 0), 0..10));
        assert_eq!(bridge.parts(range(31, 3)), (at(15, 0), 7..10));
        assert_eq!(bridge.parts(range(33, 1)), (at(1, 0), 9..10));
        // Of what is lent the first was acknowledged, and is not the program's again yet.
        assert_eq!(bridge.done_with(), 0);
        bridge.acked(7);
        assert_eq!((bridge.done_with(), bridge.lent), (3, 10));
        assert_eq!(bridge.parts(range(27, 7)), (at(11, 0), 3..10));
        bridge.gives_back(0);
        assert!(bridge.acked(7), "all of it was acknowledged");
        assert_eq!(bridge.done_with(), 10);
    }

    #[test]
    fn a_ring_that_cannot_be_read_ends_its_connection_with_a_reset_and_sends_nothing() {
        let mut bridge = bridge();
        bridge.outward.bytes.fill(b'x');
        (bridge.outward.came, bridge.lent) = (6, 4);
        let mut frame = [0; 2];
        assert!(bridge.fetch(RingRange { start: 0, len: 2 }, &mut frame), "these were copied");
        assert_eq!((frame, bridge.wants()), (*b"xx", Wants::Nothing));
        let all = RingRange { start: 0, len: 6 };
        assert!(!bridge.lend(all, &mut |_| panic!("it is not there")));
        assert!(!bridge.fetch(all, &mut [0; 6]));
        assert_eq!(bridge.wants(), Wants::Abort);
    }

    #[test]
    fn a_program_that_has_failed_is_told_to_the_peer_once() {
        let mut bridge = bridge();
        assert_eq!(bridge.wants(), Wants::Nothing);
        bridge.ended = true;
        assert_eq!(bridge.wants(), Wants::Shutdown);
        bridge.fails();
        assert_eq!(bridge.wants(), Wants::Abort);
        bridge.done(Wants::Abort);
        assert_eq!(bridge.wants(), Wants::Nothing);
        assert!(!bridge.is_over());
        bridge.over(true);
        assert!(bridge.is_over());
    }

    #[test]
    fn a_program_that_has_gone_is_told_to_the_peer_once_that_has_what_it_sent() {
        let mut bridge = bridge();
        bridge.outward.came = 3;
        bridge.ended = true;
        assert_eq!(bridge.wants(), Wants::Shutdown);
        bridge.done(Wants::Shutdown);
        bridge.hears(DEAD);
        bridge.hears(DEAD);
        assert_eq!(bridge.wants(), Wants::Close);
        bridge.done(Wants::Close);
        bridge.acked(3);
        bridge.hears(DEAD);
        assert_eq!(bridge.wants(), Wants::Nothing);
        bridge.over(false);
        assert!(bridge.is_over());
        // Where the peer has everything, nothing is to be waited for.
        let mut bridge = self::bridge();
        bridge.ended = true;
        bridge.hears(DEAD);
        assert_eq!(bridge.wants(), Wants::Abort);
    }

    #[test]
    fn after_an_end_in_order_the_program_still_gets_what_came() {
        let mut bridge = bridge();
        bridge.came(3);
        bridge.peer_closed();
        bridge.over(false);
        assert_eq!(bridge.take_unreported(), Unreported::default());
        assert!(bridge.is_over(), "nobody is there to get it");
    }
}
