//! Bytes that both sides of a transfer can make: content number `id`.

use uncopy_measure::{Failure, failure};

/// A constant without pattern, so that neighbouring words differ in all bytes.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fills `bytes` with content `id`.
pub fn fill(bytes: &mut [u8], id: u64) {
    let start = (id + 1).wrapping_mul(0xd1b5_4a32_d192_ed03).rotate_left(29);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    let count = words.len() as u64;
    for (i, word) in (0..).zip(&mut *words) {
        *word = start.wrapping_add(STEP.wrapping_mul(i)).to_le_bytes();
    }
    let last = start.wrapping_add(STEP.wrapping_mul(count)).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

/// Compares a stream of contents with what it should be, piece by piece.
pub struct Expected {
    size: usize,
    /// Content of the message of this number.
    of: Option<u64>,
    bytes: Vec<u8>,
}

impl Expected {
    /// Contents of `size` bytes each.
    pub fn new(size: usize) -> Self {
        Self { size, of: None, bytes: Vec::new() }
    }

    /// Compares `piece`, which begins at byte `at` of the stream whose message number `n` has the
    /// content `id(n)`.
    ///
    /// # Errors
    /// Where the first wrong byte is.
    pub fn compare(
        &mut self,
        mut at: u64,
        mut piece: &[u8],
        id: impl Fn(u64) -> u64,
    ) -> Result<(), Failure> {
        while !piece.is_empty() {
            let number = at / self.size as u64;
            let offset = (at % self.size as u64) as usize;
            if self.of != Some(id(number)) {
                self.bytes.resize(self.size, 0);
                fill(&mut self.bytes, id(number));
                self.of = Some(id(number));
            }
            let len = piece.len().min(self.size - offset);
            let expected = &self.bytes[offset..offset + len];
            if piece[..len] != *expected {
                let wrong = piece.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
                return Err(failure!(
                    "WRONG DATA in message {number}, offset {}: expected {:#04x}, got {:#04x}",
                    offset + wrong,
                    expected[wrong],
                    piece[wrong]
                ));
            }
            piece = &piece[len..];
            at += len as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_length_are_compared_and_a_wrong_byte_is_named() {
        let mut stream = vec![0; 3 * 1003];
        for (message, id) in stream.chunks_mut(1003).zip([0, 7, 0]) {
            fill(message, id);
        }
        let id = |n: u64| if n == 1 { 7 } else { 0 };
        for step in [1, 10, 1000, 5000] {
            let mut expected = Expected::new(1003);
            for (i, piece) in stream.chunks(step).enumerate() {
                expected.compare((i * step) as u64, piece, id).unwrap();
            }
        }
        stream[1500] ^= 4;
        let error = Expected::new(1003).compare(0, &stream, id).unwrap_err();
        assert!(
            error.to_string().starts_with("WRONG DATA in message 1, offset 497: expected"),
            "{error}"
        );
    }
}
