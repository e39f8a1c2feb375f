//! Numbers as bytes. A program goes round with a few buffers, lengths and call sites: a number that
//! was met lately is one byte.

/// How many numbers are remembered. (Found again, one takes one byte: seven bits, of which one says
/// that it was.)
const KNOWN: usize = 64;

/// The state that writer and reader both remember.
#[derive(Debug)]
pub(crate) struct Known {
    words: [u64; KNOWN],
    /// The next place to be overwritten.
    next: usize,
    /// The last number that was not found.
    last: u64,
}

impl Known {
    pub(crate) const fn new() -> Self {
        Self { words: [0; KNOWN], next: 0, last: 0 }
    }

    fn add(&mut self, word: u64) {
        self.words[self.next] = word;
        self.next = (self.next + 1) % KNOWN;
        self.last = word;
    }

    /// Writes `word`.
    pub(crate) fn put(&mut self, word: u64, mut put: impl FnMut(u8)) {
        if let Some(i) = self.words.iter().position(|w| *w == word) {
            return put_plain((i as u64) << 1 | 1, put);
        }
        // (Of 65 bits, which the distance would have, one is lost: far ones come as they are.)
        let far = zigzag(word.wrapping_sub(self.last) as i64);
        match far < 1 << 61 {
            true => put_plain(far << 2, &mut put),
            false => {
                put_plain(2, &mut put);
                put_plain(word, &mut put);
            }
        }
        self.add(word);
    }

    /// Reads what [`Known::put`] has written.
    pub(crate) fn get(&mut self, bytes: &mut &[u8]) -> Option<u64> {
        let coded = get_plain(bytes)?;
        if coded & 1 != 0 {
            return self.words.get((coded >> 1) as usize).copied();
        }
        let word = match coded & 2 {
            0 => self.last.wrapping_add(unzigzag(coded >> 2) as u64),
            _ => get_plain(bytes)?,
        };
        self.add(word);
        Some(word)
    }
}

fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

/// Seven bits in each byte, the lowest first.
pub(crate) fn put_plain(mut word: u64, mut put: impl FnMut(u8)) {
    while word >= 0x80 {
        put(word as u8 | 0x80);
        word >>= 7;
    }
    put(word as u8);
}

pub(crate) fn get_plain(bytes: &mut &[u8]) -> Option<u64> {
    let mut word = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        word |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(word);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_numbers_come_back_and_those_met_lately_take_one_byte() {
        let words =
            [0, 7, u64::MAX, 1 << 63, 0x7fff_1234_5000, 0x7fff_1234_6000, 7, u64::MAX, 1 << 62];
        let (mut writes, mut reads) = (Known::new(), Known::new());
        for _ in 0..2 {
            for word in words {
                let mut bytes = Vec::new();
                writes.put(word, |b| bytes.push(b));
                let mut left = &bytes[..];
                assert_eq!((reads.get(&mut left), left.len()), (Some(word), 0));
            }
        }
        let mut bytes = Vec::new();
        words.iter().for_each(|w| writes.put(*w, |b| bytes.push(b)));
        assert_eq!(bytes.len(), words.len());
    }

    #[test]
    fn a_number_that_does_not_end_is_none() {
        assert_eq!(get_plain(&mut &[0x80; 20][..]), None);
        assert_eq!(get_plain(&mut &[0x80, 0x80][..]), None);
    }
}
