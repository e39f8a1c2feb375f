//! Numbers at places of byte arrays, little-endian.

/// Reads the fields of a record one after the other; `None` once they run out.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (found, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*found)
    }

    /// The next `length` bytes, as they lie.
    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (found, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(found)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Writes fields one after the other. A field that does not fit is left out; the caller has
/// counted.
pub(crate) struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Writer<'a> {
        Writer { bytes, at: 0 }
    }

    pub(crate) fn put(&mut self, what: &[u8]) -> &mut Self {
        if let Some(place) = self.bytes.get_mut(self.at..self.at + what.len()) {
            place.copy_from_slice(what);
            self.at += what.len();
        }
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_le_bytes())
    }
}

/// CRC32C of a structure that holds its own CRC in `place..place + 4`, these bytes taken as zeros.
pub(crate) fn crc(seed: u32, bytes: &[u8], place: usize) -> u32 {
    let (before, rest) = bytes.split_at(place.min(bytes.len()));
    let after = rest.get(4..).unwrap_or_default();
    let sum = crc32c::crc32c_append(seed, before);
    let sum = crc32c::crc32c_append(sum, &[0; 4]);
    crc32c::crc32c_append(sum, after)
}

/// Whether all of it is zeros.
pub(crate) fn zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}
