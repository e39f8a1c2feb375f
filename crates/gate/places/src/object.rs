//! An object as it is loaded.

use crate::bytes::possible_bytes;

/// A part of an object, where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The address of its first byte.
    pub at: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// It is text.
    pub executable: bool,
}

impl Segment<'_> {
    /// The address behind it.
    pub const fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// The words of eight bytes in it.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        let skip = (self.at.next_multiple_of(8) - self.at) as usize;
        let words = self.bytes.get(skip..).unwrap_or_default().chunks_exact(8);
        words.map(|it| u64::from_le_bytes(it.try_into().expect("eight bytes")))
    }

    const fn contains(&self, at: u64) -> bool {
        self.at <= at && at < self.end()
    }
}

/// As [`Object::has_no_bytes_of_a_call`], of some text.
#[must_use]
pub fn has_no_bytes_of_a_call(text: &[u8]) -> bool {
    possible_bytes(text).is_none()
}

/// An object: its segments do not overlap.
#[derive(Clone, Debug, Default)]
pub struct Object<'a> {
    /// All that is loaded of it.
    pub segments: Vec<Segment<'a>>,
    /// Where functions begin that others call by their names (`.dynsym`).
    pub symbols: Vec<u64>,
    /// Where its `.eh_frame_hdr` is (`PT_GNU_EH_FRAME`), if it has one.
    pub frames: Option<u64>,
}

impl<'a> Object<'a> {
    /// Its text has no bytes that could be a system call: there is none. (Nor bytes that could be
    /// one below a breakpoint of a debugger or of `perf`.)
    #[must_use]
    pub fn has_no_bytes_of_a_call(&self) -> bool {
        self.text().all(|it| has_no_bytes_of_a_call(it.bytes))
    }

    /// From `at` to the end of the segment that has it.
    pub(crate) fn rest(&self, at: u64) -> Option<&'a [u8]> {
        let segment = self.segments.iter().find(|it| it.contains(at))?;
        segment.bytes.get((at - segment.at) as usize..)
    }

    /// So many bytes of text.
    pub(crate) fn text_at(&self, at: u64, length: usize) -> Option<&'a [u8]> {
        if self.is_text(at) { self.rest(at)?.get(..length) } else { None }
    }

    pub(crate) fn text(&self) -> impl Iterator<Item = Segment<'a>> + '_ {
        self.segments.iter().filter(|it| it.executable).copied()
    }

    pub(crate) fn data(&self) -> impl Iterator<Item = Segment<'a>> + '_ {
        self.segments.iter().filter(|it| !it.executable).copied()
    }

    pub(crate) fn is_text(&self, at: u64) -> bool {
        self.text().any(|it| it.contains(at))
    }
}
