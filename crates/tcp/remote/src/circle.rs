//! Places in a circular buffer whose size is a power of two: a byte's place follows from its
//! position in the stream.

use std::ops::Range;

/// Where the bytes from this position on lie in a buffer of so many, up to its end.
pub fn piece(size: usize, from: u64, length: u64) -> Range<usize> {
    let at = from as usize & (size - 1);
    at..at + (size - at).min(length as usize)
}

/// A buffer of another size with these of the bytes, which have room in it.
pub fn moved(bytes: &[u8], these: Range<u64>, size: usize) -> Box<[u8]> {
    let mut other: Box<[u8]> = vec![0; size].into();
    let mut at = these.start;
    while at < these.end {
        // (A piece that does not pass the end of the smaller one does not pass the larger one's.)
        let from = piece(bytes.len(), at, these.end - at);
        let to = piece(size, at, from.len() as u64);
        at += to.len() as u64;
        other[to.clone()].copy_from_slice(&bytes[from.start..from.start + to.len()]);
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_places_of_their_positions_in_a_buffer_of_any_size() {
        let before: Vec<u8> = (0..16).collect();
        // Positions 13 to 20, whose places wrap around.
        let larger = moved(&before, 13..21, 64);
        assert_eq!(larger[13..21], [13, 14, 15, 0, 1, 2, 3, 4]);
        let smaller = moved(&larger, 13..21, 8);
        assert_eq!(smaller[..], [0, 1, 2, 3, 4, 13, 14, 15]);
        assert_eq!(moved(&smaller, 13..21, 16)[..5], before[..5]);
        assert_eq!(piece(8, 13, 100), 5..8);
        assert_eq!(piece(8, 13, 2), 5..7);
    }
}
