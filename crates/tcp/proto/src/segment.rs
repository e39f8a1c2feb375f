//! A segment as the protocol sees it: numbers and flags; where its payload lies, but not the
//! payload.

use crate::seq::Seq;
use core::net::Ipv4Addr;

/// The flags of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Opens a connection.
    pub const SYN: Flags = Flags(0x02);
    /// Ends it at once.
    pub const RST: Flags = Flags(0x04);
    /// To be handed to the application now.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgement counts.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer counts.
    pub const URG: Flags = Flags(0x20);
    /// Congestion was met on the way here.
    pub const ECE: Flags = Flags(0x40);
    /// The window was reduced because of it.
    pub const CWR: Flags = Flags(0x80);

    /// Has one of `other`'s.
    #[inline]
    pub const fn any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets together.
    #[inline]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// This set without `other`.
    #[inline]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

/// The two ends of a connection, seen from here. IPv6 would be a second variant of this type:
/// nothing but [`crate::wire`], the hash of [`crate::table`] and four fields of
/// [`crate::flow::Flow`] look into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Tuple {
    /// Our address.
    pub local_ip: Ipv4Addr,
    /// Our port.
    pub local_port: u16,
    /// The peer's address.
    pub peer_ip: Ipv4Addr,
    /// The peer's port.
    pub peer_port: u16,
}

/// Up to four blocks of selective acknowledgement: what the option has room for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Blocks {
    blocks: [(Seq, Seq); 4],
    len: u8,
}

impl Blocks {
    /// Adds a block, where there is room.
    pub fn push(&mut self, start: Seq, end: Seq) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.len)) {
            *place = (start, end);
            self.len += 1;
        }
    }

    /// The blocks, each from its first byte to behind its last.
    #[inline]
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        &self.blocks[..usize::from(self.len)]
    }
}

/// The options of a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SynOptions {
    /// The largest payload that the sender wants to receive.
    pub mss: Option<u16>,
    /// By how many bits its windows are to be shifted.
    pub shift: Option<u8>,
    /// It understands selective acknowledgements.
    pub sack: bool,
}

/// A segment that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Which connection it is for.
    pub tuple: Tuple,
    /// The number of its first byte.
    pub seq: Seq,
    /// The number that the peer expects next, if ACK is set.
    pub ack: Seq,
    /// Its window, unscaled.
    pub window: u16,
    /// Its flags.
    pub flags: Flags,
    /// A router marked it: congestion experienced.
    pub marked: bool,
    /// The length of its payload.
    pub payload: u32,
    /// Its timestamp and the echo of ours.
    pub stamp: Option<(u32, u32)>,
    /// The runs that arrived out of order at the peer.
    pub sack: Blocks,
    /// The options that only a SYN has.
    pub syn: SynOptions,
}

impl Segment {
    /// How many sequence numbers it takes.
    pub fn length(&self) -> u32 {
        self.payload + u32::from(self.flags.any(Flags::SYN)) + u32::from(self.flags.any(Flags::FIN))
    }
}

/// A run of bytes of a circular buffer. It may go around the end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RingRange {
    /// Where it begins: less than the buffer's size.
    pub start: u32,
    /// How long it is: at most the buffer's size.
    pub len: u32,
}

impl RingRange {
    /// The one or two straight pieces of it in a buffer of `size` bytes.
    pub fn pieces(self, size: usize) -> [core::ops::Range<usize>; 2] {
        let (start, len) = (self.start as usize, self.len as usize);
        let first = len.min(size - start);
        [start..start + first, 0..len - first]
    }
}

/// A segment to be sent: [`crate::wire::emit`] makes its headers, the caller adds the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Its connection.
    pub tuple: Tuple,
    /// The caller's number for the way to the peer (device, neighbour).
    pub route: u16,
    /// The number of its first byte.
    pub seq: Seq,
    /// The number that we expect next.
    pub ack: Seq,
    /// Our window, unscaled.
    pub window: u16,
    /// Its flags.
    pub flags: Flags,
    /// Routers may mark it instead of dropping it.
    pub markable: bool,
    /// Our timestamp and the echo of the peer's.
    pub stamp: Option<(u32, u32)>,
    /// The runs that arrived out of order here.
    pub sack: Blocks,
    /// The options of our SYN.
    pub syn: Option<SynOptions>,
    /// Where in the send buffer its payload lies.
    pub payload: RingRange,
    /// Where the payload is longer than this, the wire (or the device) cuts it into segments of
    /// this length.
    pub mss: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_goes_around_the_end_has_two_pieces() {
        assert_eq!(RingRange { start: 6, len: 4 }.pieces(8), [6..8, 0..2]);
        assert_eq!(RingRange { start: 2, len: 4 }.pieces(8), [2..6, 0..0]);
        assert_eq!(RingRange { start: 0, len: 8 }.pieces(8), [0..8, 0..0]);
    }
}
