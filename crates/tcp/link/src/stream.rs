//! The bytes of a flow: its name, in a word, and words that follow from it and their place.

/// Bytes of a word.
pub const WORD: usize = 8;

fn word(name: u64, at: u64) -> [u8; WORD] {
    let value = match at {
        0 => name,
        at => at.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ name.wrapping_mul(0xBF58_476D_1CE4_E5B9),
    };
    value.to_le_bytes()
}

/// Those from `at` on.
pub fn fill(name: u64, at: u64, to: &mut [u8]) {
    let (mut number, mut skip) = (at / WORD as u64, (at % WORD as u64) as usize);
    let mut rest = to;
    while !rest.is_empty() {
        let length = (WORD - skip).min(rest.len());
        let (now, later) = rest.split_at_mut(length);
        now.copy_from_slice(&word(name, number)[skip..skip + length]);
        (rest, number, skip) = (later, number + 1, 0);
    }
}

/// The received bytes of a flow.
#[derive(Debug, Default)]
pub struct Received {
    name: [u8; WORD],
    /// Bytes.
    pub bytes: u64,
    expected: Vec<u8>,
}

impl Received {
    /// Compares the next bytes. `Err`: where they are wrong.
    pub fn compare(&mut self, mut came: &[u8]) -> Result<(), u64> {
        while self.bytes < WORD as u64 && !came.is_empty() {
            self.name[self.bytes as usize] = came[0];
            (came, self.bytes) = (&came[1..], self.bytes + 1);
        }
        self.expected.resize(came.len(), 0);
        fill(u64::from_le_bytes(self.name), self.bytes, &mut self.expected);
        if self.expected != came {
            let wrong = self.expected.iter().zip(came).take_while(|(a, b)| a == b).count();
            return Err(self.bytes + wrong as u64);
        }
        self.bytes += came.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_in_any_pieces_is_right_and_one_wrong_byte_is_found() {
        let mut bytes = vec![0; 1000];
        for (at, piece) in (0..1000).step_by(7).zip(bytes.chunks_mut(7)) {
            fill(42, at, piece);
        }
        let mut received = Received::default();
        for piece in bytes.chunks(13) {
            received.compare(piece).unwrap();
        }
        assert_eq!(received.bytes, 1000);
        bytes[500] ^= 1;
        assert_eq!(Received::default().compare(&bytes), Err(500));
    }
}
