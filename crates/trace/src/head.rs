//! The first bytes of the file, which say how much of it counts: a program that is killed leaves a
//! file that can be read.

/// Bytes of it.
pub const HEAD: usize = 32;
const MAGIC: &[u8; 8] = b"uncopytr";
/// Another one where entries are written otherwise.
const VERSION: u32 = 3;
/// The oldest version that is read still: since then only a kind of entry was added.
const OLDEST: u32 = 2;

/// Whether a file that begins with these bytes is a recording, of whatever version.
pub fn is_recording(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// All numbers are little-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Bytes of text behind it.
    pub text: u32,
    /// Bytes of entries behind that.
    pub used: u64,
    /// Whether there was no room for what came then.
    pub full: bool,
}

impl Head {
    /// Where [`Head::used`] stands, which grows as entries are written.
    pub const USED_AT: usize = 16;
    /// Where [`Head::full`] stands, a word that is 0 or 1.
    pub const FULL_AT: usize = 24;

    /// The bytes of the head.
    pub fn bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.text.to_le_bytes());
        bytes[Self::USED_AT..Self::FULL_AT].copy_from_slice(&self.used.to_le_bytes());
        bytes[Self::FULL_AT..].copy_from_slice(&u64::from(self.full).to_le_bytes());
        bytes
    }

    /// From the beginning of a file: what is wrong with it, if anything is.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, &'static str> {
        let head: &[u8; HEAD] =
            bytes.first_chunk().ok_or("it is shorter than a recording's head")?;
        if &head[..8] != MAGIC {
            return Err("it is no recording of uncopy's");
        }
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| head[at + i]));
        if !(OLDEST..=VERSION).contains(&(word(8) as u32)) {
            return Err("it was recorded by another version of uncopy");
        }
        let text = (word(8) >> 32) as u32;
        Ok(Self { text, used: word(Self::USED_AT), full: word(Self::FULL_AT) != 0 })
    }
}
