//! One connection: what has come by the wire goes to the stand-in, and what the program sends to
//! the wire. Both buffers are the protocol's: a byte's place follows from its number, so that a
//! lane puts payload where it belongs, and takes from there what it sends.

use crate::parts::Part;
use crate::stand_in;
use libc::{EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP};
use rustix::io::Errno;
use rustix::net::{getpeername, sockopt};
use std::net::SocketAddrV4;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use uncopy_tcp_events::line::Line;
use uncopy_tcp_proto::FlowId;
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::RingRange;

const IN: u32 = EPOLLIN as u32;
const OUT: u32 = EPOLLOUT as u32;
const ENDS: u32 = (EPOLLRDHUP | EPOLLHUP | EPOLLERR) as u32;
/// Of a stand-in that was not shut down itself: it was reset.
const DEAD: u32 = (EPOLLHUP | EPOLLERR) as u32;

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

    /// The next room in it, likewise.
    fn room(&self) -> core::ops::Range<usize> {
        self.piece(self.came, self.bytes.len() as u64 - (self.came - self.went))
    }
}

/// What the lane has to tell the protocol, and the set.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Bytes that were taken out of the receive buffer.
    pub read: u32,
    /// Bytes that were put into the send buffer.
    pub written: u32,
    /// The slow path has something to do for it ([`Bridge::wants`]).
    pub slow: bool,
}

/// What is wanted of the slow path.
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

/// What the set has said of a stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing that others need know.
    Nothing,
    /// It is connected now, after it had to wait, to a listener of this address.
    Connected(Option<SocketAddrV4>),
    /// Nobody listens any more where it was to be connected.
    Refused,
}

/// Who is over.
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
    outward: Buffer,
    /// Of what went to the program and came from it, what the protocol was not told yet.
    untold: Told,
    /// Bytes may wait at the stand-in.
    readable: bool,
    /// There was no room there.
    stuck: bool,
    wire: Wire,
    /// The peer sends no more; the program was told.
    peer_closed: bool,
    finished: bool,
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
    /// What its lane's set was asked for.
    asked: Option<u32>,
    patience: Duration,
}

/// A bridge, and whether its lane knows that there is something to do.
#[derive(Debug)]
pub struct Shared {
    /// The connection over the wire.
    pub id: FlowId,
    /// The bridge.
    pub bridge: std::sync::Mutex<Bridge>,
    /// It is in its lane's list.
    pub queued: AtomicBool,
    /// The lane that it is of.
    pub lane: usize,
    /// Its user's, once that is known.
    pub part: OnceLock<Part>,
}

impl Shared {
    /// It is known whose it is.
    pub fn is_part_of(&self, part: Part) {
        let _ = self.part.set(part);
    }

    /// The bridge, to oneself.
    pub fn lock(&self) -> std::sync::MutexGuard<'_, Bridge> {
        self.bridge.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Bridge {
    /// With buffers of so many bytes, as powers of two.
    pub fn new(key: u64, bits: u8) -> Self {
        Self {
            key,
            line: None,
            connecting: false,
            inward: Buffer::new(bits),
            outward: Buffer::new(bits),
            untold: Told::default(),
            readable: false,
            stuck: false,
            wire: Wire::Open,
            peer_closed: false,
            finished: false,
            ended: false,
            shut: false,
            left: false,
            closed: false,
            failed: false,
            aborted: false,
            asked: None,
            patience: Duration::ZERO,
        }
    }

    /// Its stand-in, which is connected, or will be. A program that has closed it, and not only
    /// sends no more, is found out after so long.
    pub fn stands_in(&mut self, line: Line, connected: bool, patience: Duration) {
        self.connecting = !connected;
        self.patience = patience;
        self.line = Some(line);
    }

    /// A segment's payload.
    pub fn place(&mut self, place: Place, payload: &[u8]) {
        let mut at = place.skip as usize;
        for piece in place.to.pieces(self.inward.bytes.len()) {
            let length = piece.len();
            self.inward.bytes[piece].copy_from_slice(&payload[at..at + length]);
            at += length;
        }
    }

    /// What is to be sent.
    pub fn fetch(&self, range: RingRange, to: &mut [u8]) {
        let mut at = 0;
        for piece in range.pieces(self.outward.bytes.len()) {
            let length = piece.len();
            to[at..at + length].copy_from_slice(&self.outward.bytes[piece]);
            at += length;
        }
    }

    /// So many more bytes have come in order.
    pub fn came(&mut self, bytes: u32) {
        self.inward.came += u64::from(bytes);
    }

    /// So many more bytes were acknowledged. True: there was no room, and now there is.
    pub fn acked(&mut self, bytes: u32) -> bool {
        let was_full = self.outward.room().is_empty();
        self.outward.went += u64::from(bytes);
        was_full
    }

    /// The peer sends no more.
    pub fn peer_closed(&mut self) {
        self.peer_closed = true;
    }

    /// The connection over the wire is over: in order, or not.
    pub fn over(&mut self, reset: bool) {
        self.wire = if reset { Wire::Reset } else { Wire::Closed };
        self.untold = Told::default();
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

    /// Moves what can be moved. The protocol is to be told what [`take_untold`](Self::take_untold)
    /// says, once the bridge is not locked any more.
    pub fn advance(&mut self) {
        if self.wire == Wire::Reset {
            // (Closed by its lane, with a reset.)
            return;
        }
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
                self.untold.read += sent as u32;
                self.stuck = sent < length;
            }
            if self.peer_closed && !self.finished && self.inward.filled().is_empty() {
                line.finish()?;
                self.finished = true;
            }
            while self.readable && !self.ended && self.wire == Wire::Open {
                let room = self.outward.room();
                if room.is_empty() {
                    break;
                }
                match line.receive(&mut self.outward.bytes[room]) {
                    Ok(0) => {
                        self.ended = true;
                        // (Refused, the connection stays until its peer ends it.)
                        let _ = stand_in::asks(line.descriptor(), self.patience);
                    }
                    Ok(bytes) => {
                        self.outward.came += bytes as u64;
                        self.untold.written += bytes as u32;
                    }
                    Err(Errno::AGAIN | Errno::INTR) => self.readable = false,
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })();
        self.failed |= moved.is_err();
    }

    /// What the protocol was not told yet. What it refuses comes back by
    /// [`refused`](Self::refused).
    pub fn take_untold(&mut self) -> Told {
        if self.wire != Wire::Open {
            return Told::default();
        }
        let slow = self.wants() != Wants::Nothing;
        Told { slow, ..core::mem::take(&mut self.untold) }
    }

    /// The protocol did not take this now: the slow path is to tell it.
    pub fn refused(&mut self, told: &Told) {
        self.untold.read += told.read;
        self.untold.written += told.written;
    }

    /// What the slow path is to do, once it has told what was not told.
    pub fn wants(&self) -> Wants {
        match (self.wire, self.failed, self.ended) {
            (Wire::Open, true, _) if !self.aborted => Wants::Abort,
            (Wire::Open, false, _) if self.left && !self.closed => Wants::Close,
            (Wire::Open, false, true) if !self.shut => Wants::Shutdown,
            _ => Wants::Nothing,
        }
    }

    /// It has done that.
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
        // (Of one that has gone the set would say so again and again.)
        let wanted = if self.failed || self.left {
            None
        } else if self.connecting {
            Some(OUT)
        } else {
            let receives =
                !self.ended && self.wire == Wire::Open && !self.outward.room().is_empty();
            let events = if receives { IN } else { 0 } | if self.stuck { OUT } else { 0 };
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
        Bridge::new(1, 4)
    }

    #[test]
    fn what_comes_and_goes_wraps_around_the_buffers_end() {
        let mut bridge = bridge();
        bridge.inward.came = 14;
        bridge.inward.went = 14;
        bridge.place(Place { skip: 1, to: RingRange { start: 14, len: 4 } }, b"xabcd");
        bridge.came(4);
        assert_eq!(bridge.inward.bytes[bridge.inward.filled()], *b"ab");
        bridge.inward.went += 2;
        assert_eq!(bridge.inward.bytes[bridge.inward.filled()], *b"cd");
        bridge.inward.went += 2;
        assert_eq!(bridge.inward.filled().len(), 0);
        bridge.outward.bytes[14..].copy_from_slice(b"ef");
        bridge.outward.bytes[..2].copy_from_slice(b"gh");
        let mut sent = [0; 4];
        bridge.fetch(RingRange { start: 14, len: 4 }, &mut sent);
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
        assert_eq!(bridge.take_untold(), Told::default());
        assert!(bridge.is_over(), "nobody is there to get it");
    }
}
