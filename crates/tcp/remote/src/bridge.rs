//! One connection: what has come by the wire goes to the stand-in, and what the program sends to
//! the wire. Both buffers are the protocol's: a byte's place follows from its number, so that a
//! lane puts payload where it belongs, and takes from there what it sends. Bytes in the program's
//! ring are sent from there, and are the program's again once they were acknowledged.
//!
//! How much the peer may send is what the buffer has by right: what goes on from there is read.
//! That much a near peer sends again and again while it lies in caches. A far one waits a round
//! trip for it each time: so it may send what the program's ring has room for, while what comes
//! goes there. Then the protocol is told that bytes were read when the program has received them.
//! Where what comes goes by Linux (a program that has ended its stream has no ring to receive
//! from), it may send as much until Linux is full once: its buffers hold more than that.
//!
//! unsafe: that ring's bytes, for the kernel to read.

use crate::inward::{Inward, MOST};
use crate::limit::Limit;
use crate::outward::Outward;
use crate::parts::Part;
use crate::spare::Spares;
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
const STRAIGHT: usize = 4096;

/// A peer is far away from such a round trip on: 64 KB in each are 32 MB a second then.
const FAR: Duration = Duration::from_millis(2);

/// How far it is is looked at once so much has come, and again after as much.
const MUCH: u64 = 256 << 10;

/// How far the program is in its ring is looked at where so much of a wide window is in use, a
/// quarter: its word lies in the cache of the program's core.
const LOOKS: u64 = 1 << (MOST - 2);

/// While the buffer has more than by right, all that is in it goes on within such a time. A peer
/// that sends what is missing does so sooner.
const HELD_FOR: Duration = Duration::from_secs(10);

/// A ring holds so many bytes less than its size.
const LINE: u32 = 64;

/// So many bytes are room that a program is told of, in a ring that was full: a third of it.
const ROOM: u32 = (1 << MOST) / 3;

/// After the peer's end, what a program has given back unread goes by Linux, as far as Linux has
/// room. A program that has ended its stream too, and takes none of what came for so long, has its
/// connection reset. (Linux would wait without end; but here the service has its buffers.)
const UNREAD_FOR: Duration = Duration::from_secs(60 * 60);

/// The lane's work that the protocol has yet to hear of.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unreported {
    /// Bytes that were taken out of the receive buffer.
    pub read: u32,
    /// Bytes that were put into the send buffer.
    pub written: u32,
    /// The program was given something.
    pub gave: bool,
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
    /// The way from the wire to the program.
    inward: Inward,
    /// So much may come by right, as a power of two.
    bits: u8,
    /// The buffer has more than by right: up to where bytes were in it, and when.
    grown: Option<(u64, Instant)>,
    /// Of what is told of next as in order the first so many bytes are the program's already.
    straight: u32,
    /// Of what went to the program so many bytes are read.
    received: u64,
    /// The bytes that come go to the program's ring, or Linux has room for them, when that was
    /// looked at last.
    goes_on: bool,
    /// The peer is far away: as much may come as that ring has room for.
    wide: bool,
    /// The protocol was not told of that yet.
    resized: bool,
    /// So many bytes had gone to the program when it was looked at last how far the peer is.
    measured: u64,
    /// That ring has less room than sets tell of.
    full: bool,
    outward: Outward,
    /// As much may be on that way: what is lent takes none of the buffer.
    limit: Limit,
    /// Of what went that way so many of the last bytes are not in the buffer: they lie in the
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
    /// Linux had no room once: what goes by it has no wide window from then on, which would be
    /// closed and opened again and again.
    linux_was_full: bool,
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
    /// With buffers of so many bytes, as powers of two, which may grow by what there is to `spare`
    /// for each of both ways; as much as `limit` says may go outward at once.
    pub fn new(key: u64, bits: u8, limit: Limit, spare: Spares) -> Self {
        Self {
            key,
            line: None,
            connecting: false,
            inward: Inward::new(bits, spare.inward),
            bits,
            grown: None,
            straight: 0,
            received: 0,
            goes_on: false,
            wide: false,
            resized: false,
            measured: 0,
            full: false,
            outward: Outward::new(bits, limit.most(), spare.outward),
            limit,
            lent: 0,
            waits: false,
            unreported: Unreported::default(),
            readable: false,
            stuck: false,
            linux_was_full: false,
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

    /// A segment's payload: how many of its bytes were taken. Bytes that are next in order go to
    /// the program's ring where the buffer has no room for them, as far as the ring has (or to
    /// Linux, where a wide window said so); so does a large payload where nothing is before it and
    /// it is the connection's `own` lane that has received it. Bytes in order come by
    /// [`came`](Self::came) next.
    pub fn place(&mut self, place: Place, payload: &[u8], own: bool) -> u32 {
        let bytes = &payload[place.skip as usize..][..place.to.len as usize];
        let mut gone = 0;
        if place.ahead == 0
            && self.goes_straight(bytes.len(), own)
            && let Some(sent) = self.line.as_ref().map(|line| send(line, bytes))
        {
            gone = self.sent(sent, bytes.len());
            self.straight = gone as u32;
            self.inward.passes(self.straight);
        }
        gone as u32 + self.inward.put(place.ahead, &bytes[gone..])
    }

    /// The buffer has more than by right, which nobody was told of: the lane has to look at it from
    /// time to time ([`has_held_for_too_long`](Self::has_held_for_too_long)) while
    /// [`holds_more`](Self::holds_more).
    pub fn begins_to_hold_more(&mut self) -> bool {
        let begins = self.grown.is_none() && self.inward.has_grown();
        if begins {
            self.grown = Some((self.inward.end(), Instant::now()));
        }
        begins
    }

    /// The buffer has more than by right.
    pub fn holds_more(&mut self) -> bool {
        if !self.inward.has_grown() {
            self.grown = None;
        }
        self.grown.is_some()
    }

    /// For too long not all has gone on that was in it: others may have what this one holds
    /// ([`forgets_early`](Self::forgets_early)).
    pub fn has_held_for_too_long(&mut self, now: Instant) -> bool {
        let (went, last) = (self.inward.went(), self.inward.end());
        let Some((end, since)) = &mut self.grown else { return false };
        if went >= *end {
            (*end, *since) = (last, now);
        }
        now.saturating_duration_since(*since) >= HELD_FOR
    }

    /// Bytes that came before their turn have not come from now on: the protocol was told so, and
    /// nothing has come since.
    pub fn forgets_early(&mut self) {
        self.inward.forgets();
        self.grown = None;
    }

    /// The program's ring is where the next so many bytes are to go, or Linux.
    fn goes_straight(&mut self, bytes: usize, own: bool) -> bool {
        let has_room = self.inward.has_room(bytes);
        let is_large = own && bytes >= STRAIGHT && self.inward.waiting() == 0;
        let is_open = self.wire == Wire::Open && !self.connecting && !self.failed && !self.left;
        let by_ring = || self.line.as_ref().is_some_and(Line::sends_by_ring);
        if has_room && !is_large
            || !is_open
            || self.stuck
            || self.finished
            || !(!has_room && self.wide || by_ring())
        {
            return false;
        }
        // (Bytes that wait are before it.)
        self.pours();
        self.inward.waiting() == 0 && !self.stuck && !self.failed
    }

    /// Moves bytes in order to the program, as far as that has room.
    fn pours(&mut self) {
        let Some(line) = &self.line else { return };
        while !self.stuck && !self.failed && self.inward.waiting() > 0 {
            let bytes = self.inward.front();
            let all = bytes.len();
            match send(line, bytes) {
                Ok(sent) => {
                    self.inward.goes(sent);
                    self.unreported.gave |= sent > 0;
                    self.stuck = sent < all;
                }
                Err(_) => self.failed = true,
            }
        }
    }

    /// Of so many bytes these were sent past the buffer.
    fn sent(&mut self, sent: Result<usize, Errno>, all: usize) -> usize {
        self.failed |= sent.is_err();
        let sent = sent.unwrap_or(0);
        self.unreported.gave |= sent > 0;
        self.stuck = sent < all;
        sent
    }

    /// Copies bytes that are to be sent. False: the program has made its ring unreadable; the
    /// connection fails.
    pub fn fetch(&mut self, range: RingRange, to: &mut [u8]) -> bool {
        let (here, lent) = self.parts(range);
        let (mut first, second) = to.split_at_mut(here.len as usize);
        for piece in here.pieces(self.outward.bytes().len()) {
            let (part, rest) = first.split_at_mut(piece.len());
            part.copy_from_slice(&self.outward.bytes()[piece]);
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
        for (to, piece) in pieces.iter_mut().zip(here.pieces(self.outward.bytes().len())) {
            *to = self.outward.bytes()[piece].into();
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
        let (came, went) = (self.outward.came(), self.outward.went());
        // (All of it has come, and none of it was acknowledged.)
        let ahead = u64::from(range.start).wrapping_sub(went) & ((1 << self.limit.most()) - 1);
        let first_lent = came - u64::from(self.lent);
        let from = went + ahead;
        let here = first_lent.saturating_sub(from).min(range.len.into()) as u32;
        let skip = (from + u64::from(here)).saturating_sub(first_lent) as u32;
        let start = from as u32 & (self.outward.bytes().len() as u32 - 1);
        (RingRange { start, len: here }, skip..skip + (range.len - here))
    }

    /// More bytes have come in order: this many.
    pub fn came(&mut self, bytes: u32) {
        let straight = core::mem::take(&mut self.straight);
        self.inward.comes(bytes.saturating_sub(straight));
    }

    /// Bytes that went to the program are read; of a wide window, those that the program has
    /// received of it. Where such a window is hardly used that is not looked at, unless it `looks`
    /// all the same.
    ///
    /// No wide window stays closed unnoticed. Bytes that come have a lane look. Where it finds less
    /// room than sets tell of, the bridge [wants](Self::wanted) to be told: the set arms the ring's
    /// word for that, and looks once more, so that it sees what the program has received since this
    /// look, or the program sees the word. Where it finds as much room as sets tell of, or has not
    /// looked, the peer may send at least a third of the ring, and has it look again.
    fn has_received(&mut self, looks: bool) {
        self.full = false;
        let unknown = self.inward.went() - self.received;
        let found = match &self.line {
            Some(_) if self.wide && !looks && unknown < LOOKS => return,
            Some(line) if self.wide => line.in_ring(),
            _ => Ok(None),
        };
        let Ok(found) = found else {
            self.failed = true;
            return;
        };
        // (After the peer's end nothing comes.)
        let comes = self.wire == Wire::Open && !self.peer_closed;
        self.full = comes && found.is_some_and(|found| !found.has_room);
        let in_ring = found.map_or(0, |found| found.bytes.into());
        self.reads(unknown.saturating_sub(in_ring));
    }

    /// So many bytes more of what went to the program are read.
    fn reads(&mut self, bytes: u64) {
        self.received += bytes;
        self.unreported.read += bytes as u32;
    }

    /// The program has gone. Whether it has left something of its ring unread its stand-in has
    /// said: that is no matter of the protocol's.
    pub fn has_read_all(&mut self) {
        self.reads(self.inward.went() - self.received);
    }

    /// So many bytes the program has received that the protocol was not told of yet.
    pub fn unreported_read(&mut self) -> u32 {
        self.has_received(true);
        self.unreported.read
    }

    /// The size that the protocol's receive buffer is to have from now on, as a power of two, where
    /// that is another one.
    pub fn take_size(&mut self) -> Option<u8> {
        let resized = core::mem::take(&mut self.resized);
        let size = if self.wide { MOST.max(self.bits) } else { self.bits };
        (resized && self.wire == Wire::Open).then_some(size)
    }

    /// Its lane is to say how far the peer is: [`is_away`](Self::is_away).
    pub fn wants_distance(&mut self) -> bool {
        let much = self.inward.went() - self.measured >= MUCH;
        if much {
            self.measured = self.inward.went();
        }
        much && self.goes_on && !self.wide && self.wire == Wire::Open
    }

    /// So long a round trip to the peer takes.
    pub fn is_away(&mut self, round_trip: Duration) {
        if round_trip >= FAR && self.goes_on && self.has_room_for_all() {
            self.is_wide(true);
        }
    }

    /// The ring and the buffer have room for a wide window. Bytes that lie in the ring now count as
    /// read, and are in no window: they must not be more than the buffer has by right. (The sender
    /// finds out where the program has written nonsense.) Linux has room until it was full once.
    fn has_room_for_all(&self) -> bool {
        match self.line.as_ref().map(Line::in_ring) {
            Some(Ok(Some(found))) => found.bytes.saturating_add(LINE) <= 1 << self.bits,
            Some(Ok(None)) => !self.linux_was_full,
            _ => false,
        }
    }

    fn is_wide(&mut self, wide: bool) {
        self.resized |= wide != self.wide;
        self.wide = wide;
    }

    /// So many more bytes were acknowledged. True: there is something to do for it. (There was no
    /// room, and now there is; or the program has its ring back, or room in it, which it may wait
    /// for.)
    pub fn acked(&mut self, bytes: u32) -> bool {
        let waited = self.waits || self.limit.left(self.outward.on_the_way()) == 0;
        self.outward.goes(bytes);
        self.limit.acknowledged(self.outward.went());
        let done_with = self.done_with();
        waited || done_with >= ROOM || done_with > 0 && self.outward.is_empty()
    }

    /// How many of the lent bytes were acknowledged.
    fn done_with(&self) -> u32 {
        self.lent.saturating_sub(self.outward.on_the_way() as u32)
    }

    /// Gives acknowledged bytes of the lent ones back to the program.
    fn gives_back(&mut self, bytes: u32) {
        if bytes > 0
            && let Some(line) = &self.line
        {
            line.receives_lent(bytes);
            self.lent -= bytes;
        }
        if self.waits && self.lent == 0 && !self.outward.is_full() {
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
            let arrived = self.outward.is_empty();
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
        if self.connecting || self.failed || self.left {
            return;
        }
        self.pours();
        let Some(line) = self.line.as_ref().filter(|_| !self.failed) else { return };
        let moved = (|| {
            if self.peer_closed && !self.finished && !self.stuck && self.inward.waiting() == 0 {
                // (Tried again where Linux has taken something: that begins anew.)
                self.finished = match line.finish() {
                    Err(Errno::AGAIN) => false,
                    finished => finished.map(|()| true)?,
                };
                self.stuck = !self.finished;
                self.unread_until = self.stuck.then(|| Instant::now() + UNREAD_FOR);
            }
            while self.readable && !self.ended && self.wire == Wire::Open {
                let (came, on_the_way) = (self.outward.came(), self.outward.on_the_way());
                let left = self.limit.left_for_more(came, on_the_way);
                if left == 0 {
                    break;
                }
                match line.lend(left) {
                    Lent::More(bytes) => {
                        self.lent += bytes;
                        self.outward.comes(bytes);
                        self.unreported.written += bytes;
                        continue;
                    }
                    Lent::Elsewhere if self.lent > 0 => {
                        (self.waits, self.readable) = (true, false);
                        break;
                    }
                    Lent::Nothing | Lent::Elsewhere => {}
                }
                if self.lent == 0 && !self.outward.makes_room() {
                    (self.waits, self.readable) = (true, false);
                    break;
                }
                match line.receive(self.outward.room(left)) {
                    Ok(0) => {
                        self.ended = true;
                        // (Refused, the connection stays until its peer ends it.)
                        let _ = stand_in::asks(line.descriptor(), self.fin_timeout);
                    }
                    Ok(bytes) => {
                        self.outward.comes(bytes as u32);
                        self.unreported.written += bytes as u32;
                    }
                    Err(Errno::AGAIN | Errno::INTR) => self.readable = false,
                    Err(HELD) => (self.waits, self.readable) = (true, false),
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })();
        let by_ring = line.sends_by_ring();
        self.goes_on = !self.stuck || by_ring;
        self.linux_was_full |= self.stuck && !by_ring;
        self.failed |= moved.is_err();
        if !self.goes_on {
            self.is_wide(false);
        }
        self.has_received(false);
    }

    /// The work that the protocol has yet to hear of. Reports that it refuses come back by
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

    /// The slow path's next work, once it has reported what is unreported.
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
    /// of room when there is much: a program that reads slowly has taken something long before.)
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
                && self.limit.left(self.outward.on_the_way()) > 0;
            let waits_for_room = self.stuck || self.full;
            let events = if receives { IN } else { 0 } | if waits_for_room { OUT } else { 0 };
            // (Of a program that sends no more it is to be heard that it has gone.)
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

/// Gives these bytes to the program: so many it takes now.
fn send(line: &Line, bytes: &[u8]) -> Result<usize, Errno> {
    match line.send(bytes) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        sent => sent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spare::Spare;

    fn bridge() -> Bridge {
        Bridge::new(1, 4, Limit::new(4, 4), Spare::of_both_ways(0))
    }

    /// So many bytes have come from the program and were acknowledged, and so many more have come.
    fn goes(bridge: &mut Bridge, acked: u32, more: u32) {
        bridge.outward.comes(acked);
        bridge.outward.goes(acked);
        let room = bridge.outward.room(more);
        room.fill(b'x');
        bridge.outward.comes(more);
    }

    #[test]
    fn bytes_that_come_and_go_wrap_around_the_buffers_end() {
        let mut bridge = bridge();
        bridge.inward.passes(14);
        let place = Place { skip: 1, to: RingRange { start: 14, len: 4 }, ahead: 0 };
        assert_eq!(bridge.place(place, b"xabcd", true), 4);
        bridge.came(4);
        assert_eq!(bridge.inward.front(), b"ab");
        bridge.inward.goes(2);
        assert_eq!(bridge.inward.front(), b"cd");
        bridge.inward.goes(2);
        assert_eq!(bridge.inward.waiting(), 0);
        goes(&mut bridge, 14, 0);
        for two in [b"ef", b"gh"] {
            bridge.outward.room(2).copy_from_slice(two);
            bridge.outward.comes(2);
        }
        let mut sent = [0; 4];
        assert!(bridge.fetch(RingRange { start: 14, len: 4 }, &mut sent));
        assert_eq!(sent, *b"efgh");
    }

    #[test]
    fn room_is_what_is_not_acknowledged_yet() {
        let mut bridge = bridge();
        goes(&mut bridge, 0, 16);
        assert!(bridge.outward.room(100).is_empty() && !bridge.outward.makes_room());
        assert!(bridge.acked(4));
        assert_eq!(bridge.outward.room(100).len(), 4);
        assert!(!bridge.acked(4));
        assert_eq!((bridge.outward.room(100).len(), bridge.outward.room(3).len()), (8, 3));
    }

    #[test]
    fn lent_bytes_follow_copied_ones_wherever_the_buffer_wraps() {
        // The first 20 bytes were acknowledged, 4 more were copied, and then some are lent.
        let mut bridge = bridge();
        goes(&mut bridge, 20, 14);
        bridge.lent = 10;
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
    fn a_lane_gives_a_ring_back_once_there_is_room_that_the_program_is_told_of() {
        let mut bridge = Bridge::new(1, 4, Limit::new(20, 20), Spare::of_both_ways(0));
        bridge.lent = (1 << 20) - 64;
        bridge.outward.comes(bridge.lent);
        assert!(!bridge.acked(ROOM - 1));
        assert!(bridge.acked(1));
    }

    #[test]
    fn a_ring_that_cannot_be_read_ends_its_connection_with_a_reset_and_sends_nothing() {
        let mut bridge = bridge();
        goes(&mut bridge, 0, 2);
        bridge.outward.comes(4);
        bridge.lent = 4;
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
        bridge.outward.comes(3);
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
