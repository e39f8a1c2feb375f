//! One direction of a link, with the queue before it.
//!
//! The queue is first in, first out; so when a packet comes, it is known when it will have left. No
//! event is needed for that, and the length of the queue is the time until the link is free, in
//! bytes.

/// Bytes on a link around an Ethernet frame: preamble, checksum, the gap behind it.
pub const FRAMING: u32 = 8 + 4 + 12;

/// The least length of an Ethernet frame, its checksum included.
const SHORTEST: u32 = 64;

/// Bits a second, delay and queue of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The rate in bits a second.
    pub rate: u64,
    /// Nanoseconds from the last bit sent to the last bit received.
    pub delay: u64,
    /// A packet that meets more bytes than this in the queue is marked (DCTCP's K).
    pub mark: u64,
    /// Bytes that may wait; what comes on top is lost.
    pub room: u64,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives at the other end, at this time in nanoseconds; perhaps marked.
    Arrives(u64, bool),
    /// No room.
    Lost,
}

/// Counts since they were reset.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent, framing included.
    pub bytes: u64,
    /// Packets marked.
    pub marked: u64,
    /// Packets lost.
    pub lost: u64,
    /// Bytes times the nanoseconds that they waited: over a time it is the mean length of the
    /// queue.
    pub waited: f64,
    /// The longest queue that a packet met, in bytes.
    pub longest: u64,
}

/// The link's end at the sender.
#[derive(Clone, Debug)]
pub struct Port {
    link: Link,
    /// When all that is queued will have left, in picoseconds.
    free: u64,
    /// Counts.
    pub counts: Counts,
}

/// The bytes that a packet takes of a link: `frame` is Ethernet's header and what follows.
pub fn on_link(frame: u32) -> u32 {
    frame.max(SHORTEST - 4) + FRAMING
}

impl Port {
    /// An idle one.
    pub fn new(link: Link) -> Port {
        Port { link, free: 0, counts: Counts::default() }
    }

    /// The link.
    pub fn link(&self) -> Link {
        self.link
    }

    /// Bytes that wait, with what is left of the packet that is being sent.
    #[inline]
    pub fn queue(&self, now: u64) -> u64 {
        let left = self.free.saturating_sub(now * 1000);
        (u128::from(left) * u128::from(self.link.rate) / 8_000_000_000_000) as u64
    }

    /// A packet of so many bytes on the link comes at `now` (nanoseconds).
    #[inline]
    pub fn send(&mut self, now: u64, bytes: u32, markable: bool) -> Fate {
        let queue = self.queue(now);
        let bytes = u64::from(bytes);
        if queue + bytes > self.link.room {
            self.counts.lost += 1;
            return Fate::Lost;
        }
        let marked = markable && queue > self.link.mark;
        let start = self.free.max(now * 1000);
        self.free = start + bytes * 8_000_000_000_000 / self.link.rate;
        self.counts.packets += 1;
        self.counts.bytes += bytes;
        self.counts.marked += u64::from(marked);
        self.counts.waited += bytes as f64 * (start - now * 1000) as f64 / 1000.0;
        self.counts.longest = self.counts.longest.max(queue);
        Fate::Arrives(self.free.div_ceil(1000) + self.link.delay, marked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 byte a nanosecond.
    const LINK: Link = Link { rate: 8_000_000_000, delay: 10_000, mark: 2500, room: 4000 };

    #[test]
    fn packets_leave_one_after_another_and_arrive_after_the_delay() {
        let mut port = Port::new(LINK);
        assert_eq!(port.send(100, 1000, true), Fate::Arrives(11_100, false));
        assert_eq!(port.send(100, 1000, true), Fate::Arrives(12_100, false));
        assert_eq!(port.queue(100), 2000);
        assert_eq!(port.queue(1600), 500);
        assert_eq!(port.send(5000, 500, true), Fate::Arrives(15_500, false));
        // Only the second one waited: a microsecond.
        assert_eq!(port.counts.waited, 1_000_000.0);
    }

    #[test]
    fn a_packet_at_a_long_queue_is_marked_if_it_may_be_and_lost_where_no_room_is_left() {
        let mut port = Port::new(LINK);
        for _ in 0..3 {
            assert!(matches!(port.send(0, 1000, true), Fate::Arrives(_, false)));
        }
        assert_eq!(port.send(0, 500, true), Fate::Arrives(13_500, true));
        assert_eq!(port.send(0, 500, false), Fate::Arrives(14_000, false));
        assert_eq!(port.send(0, 1, true), Fate::Lost);
        assert_eq!(port.send(1000, 1000, true), Fate::Arrives(15_000, true));
        let counts = port.counts;
        assert_eq!((counts.packets, counts.marked, counts.lost, counts.longest), (6, 2, 1, 3500));
    }
}
