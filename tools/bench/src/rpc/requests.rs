//! The bytes of requests: made, and compared without being made again. So comparing takes as long
//! for an answer that comes in many pieces as for one that comes whole, and the two sides of a
//! measurement, whose pieces differ, have the same work.

use std::io;

/// The word that a request repeats: eight bytes that are unlike every other request's. Cheap beside
/// what is measured.
fn word(number: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Requests of this number and those after it, of `size` bytes each.
pub fn requests(first: u64, size: usize, into: &mut [u8]) {
    for (i, request) in into.chunks_mut(size).enumerate() {
        let word = word(first + i as u64).to_le_bytes();
        let mut parts = request.chunks_exact_mut(8);
        for part in &mut parts {
            part.copy_from_slice(&word);
        }
        let rest = parts.into_remainder();
        rest.copy_from_slice(&word[..rest.len()]);
    }
}

/// Whether `came` is what [`requests`] makes, from byte `at` on.
pub fn are_requests(first: u64, size: usize, at: usize, mut came: &[u8]) -> bool {
    let (mut number, mut seen) = (first + (at / size) as u64, at % size);
    while !came.is_empty() {
        let (piece, others) = came.split_at(came.len().min(size - seen));
        // As it lies there: the first byte is the lowest.
        let word = word(number).rotate_right(8 * (seen as u32 % 8));
        let (parts, rest) = piece.as_chunks::<8>();
        // (No early end: so the compiler takes several at once.)
        let different = parts.iter().fold(0, |all, part| all | (u64::from_le_bytes(*part) ^ word));
        if different != 0 || *rest != word.to_le_bytes()[..rest.len()] {
            return false;
        }
        (number, seen, came) = (number + 1, 0, others);
    }
    true
}

/// The error of an answer that is not what was sent.
pub fn wrong(connection: usize, number: u64, offset: usize) -> io::Error {
    io::Error::other(format!(
        "WRONG DATA on connection {connection}, request {number}, at or after byte {offset}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_requests_are_alike_and_all_of_their_bytes_are_set() {
        let mut bytes = [0; 3 * 20];
        requests(7, 20, &mut bytes);
        let parts: Vec<&[u8]> = bytes.chunks(20).collect();
        assert!(parts[0] != parts[1] && parts[1] != parts[2]);
        assert_eq!(parts[0][..8], parts[0][8..16]);
        assert_eq!(parts[0][16..], parts[0][..4]);
        let mut second = [0; 20];
        requests(8, 20, &mut second);
        assert_eq!(parts[1], second);
    }

    #[test]
    fn pieces_from_any_byte_on_are_what_was_made_and_any_other_byte_is_not() {
        for size in [1, 7, 8, 20, 64] {
            let mut bytes = vec![0; 4 * size];
            requests(7, size, &mut bytes);
            for from in 0..bytes.len() {
                for to in from..=bytes.len() {
                    let piece = &mut bytes[from..to];
                    assert!(are_requests(7, size, from, piece), "{size} {from} {to}");
                    for i in 0..piece.len() {
                        piece[i] ^= 1;
                        assert!(!are_requests(7, size, from, piece), "{size} {from} {to} {i}");
                        piece[i] ^= 1;
                    }
                }
            }
        }
    }

    #[test]
    fn another_request_and_another_place_are_told_from_it() {
        let mut bytes = [0; 64];
        requests(7, 64, &mut bytes);
        assert!(!are_requests(8, 64, 0, &bytes));
        assert!(!are_requests(7, 64, 3, &bytes[..20]));
    }
}
