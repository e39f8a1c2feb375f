//! Reads bytes one after the other, with their address.

/// See the module.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    /// The address of the next byte.
    pub at: u64,
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub const fn new(at: u64, bytes: &'a [u8]) -> Self {
        Self { at, bytes }
    }

    pub const fn is_done(&self) -> bool {
        self.bytes.is_empty()
    }

    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(n)?;
        self.bytes = rest;
        self.at += n as u64;
        Some(taken)
    }

    /// The next `n` bytes, apart.
    pub fn part(&mut self, n: u64) -> Option<Self> {
        let at = self.at;
        let bytes = self.take(usize::try_from(n).ok()?)?;
        Some(Self { at, bytes })
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|it| it[0])
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// A number of seven bits a byte.
    pub fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Bytes up to a zero, without it.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        let n = self.bytes.iter().position(|&it| it == 0)?;
        let text = self.take(n)?;
        self.take(1)?;
        Some(text)
    }

    /// A value of the unwinder's tables, encoded as `how` says (`DW_EH_PE_...`); as it stands there
    /// if `how` does not say what it is relative to.
    pub fn encoded(&mut self, how: u8) -> Option<u64> {
        let at = self.at;
        let value = match how & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64()?,
            0x03 => u64::from(self.u32()?),
            0x0b => self.u32()? as i32 as u64,
            0x01 => self.uleb()?,
            _ => return None,
        };
        match how & 0xf0 {
            0x00 => Some(value),
            // (Zero stands for none.)
            0x10 if value == 0 => Some(0),
            0x10 => Some(at.wrapping_add(value)),
            _ => None,
        }
    }
}
