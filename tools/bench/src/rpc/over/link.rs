//! A connection's two circular buffers, as its application has them. Positions count bytes from the
//! beginning, as the flow's do.

use uncopy_tcp_proto::FlowId;
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::RingRange;

/// See the module.
pub struct Link {
    /// Its name.
    pub id: FlowId,
    rx: Box<[u8]>,
    tx: Box<[u8]>,
    arrived: u64,
    taken: u64,
    put: u64,
    acked: u64,
    /// It is in a list of those with something to do.
    pub queued: bool,
}

impl Link {
    /// Of buffers of so many bytes (a power of two).
    pub fn new(id: FlowId, size: usize) -> Self {
        let buffer = || vec![0; size].into_boxed_slice();
        Self {
            id,
            rx: buffer(),
            tx: buffer(),
            arrived: 0,
            taken: 0,
            put: 0,
            acked: 0,
            queued: false,
        }
    }

    /// The lane has a segment's payload.
    pub fn place(&mut self, place: Place, payload: &[u8]) {
        let mut at = place.skip as usize;
        for piece in place.to.pieces(self.rx.len()) {
            let bytes = piece.len();
            self.rx[piece].copy_from_slice(&payload[at..at + bytes]);
            at += bytes;
        }
    }

    /// The lane wants payload for a segment.
    pub fn fetch(&self, range: RingRange, to: &mut [u8]) {
        let mut at = 0;
        for piece in range.pieces(self.tx.len()) {
            let bytes = piece.len();
            to[at..at + bytes].copy_from_slice(&self.tx[piece]);
            at += bytes;
        }
    }

    /// So many more bytes have come.
    pub fn arrived(&mut self, bytes: u32) {
        self.arrived += u64::from(bytes);
    }

    /// So many more of those that were put are the peer's.
    pub fn acked(&mut self, bytes: u32) {
        self.acked += u64::from(bytes);
    }

    /// Bytes that [`Link::put`] takes.
    pub fn room(&self) -> usize {
        self.tx.len() - (self.put - self.acked) as usize
    }

    /// Takes what has come, as much as fits. The flow is to be told.
    pub fn take(&mut self, into: &mut [u8]) -> usize {
        let bytes = into.len().min((self.arrived - self.taken) as usize);
        let start = (self.taken % self.rx.len() as u64) as u32;
        let mut at = 0;
        for piece in (RingRange { start, len: bytes as u32 }).pieces(self.rx.len()) {
            let part = piece.len();
            into[at..at + part].copy_from_slice(&self.rx[piece]);
            at += part;
        }
        self.taken += bytes as u64;
        bytes
    }

    /// Puts bytes to be sent, as many as have room. The flow is to be told.
    pub fn put(&mut self, from: &[u8]) -> usize {
        let bytes = from.len().min(self.room());
        let start = (self.put % self.tx.len() as u64) as u32;
        let mut at = 0;
        for piece in (RingRange { start, len: bytes as u32 }).pieces(self.tx.len()) {
            let part = piece.len();
            self.tx[piece].copy_from_slice(&from[at..at + part]);
            at += part;
        }
        self.put += bytes as u64;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_around_the_end_of_the_buffers_come_out_as_they_went_in() {
        let mut link = Link::new(FlowId { slot: 0, generation: 0 }, 16);
        let (mut at, mut next) = (0_u32, 0_u8);
        for bytes in [5_u32, 9, 16, 3, 11, 16] {
            let message: Vec<u8> = (0..bytes).map(|i| next.wrapping_add(i as u8)).collect();
            next = next.wrapping_add(bytes as u8);
            let range = RingRange { start: at % 16, len: bytes };
            link.place(Place { to: range, skip: 0, ahead: 0 }, &message);
            link.arrived(bytes);
            let mut got = [0; 20];
            assert_eq!(link.take(&mut got), message.len());
            assert_eq!(got[..message.len()], message);
            assert_eq!(link.put(&message), message.len());
            let mut sent = vec![0; message.len()];
            link.fetch(range, &mut sent);
            assert_eq!(sent, message);
            assert_eq!(link.room(), 16 - message.len());
            link.acked(bytes);
            at += bytes;
        }
    }
}
