//! The quantities that are measured, and their values on the reference machine.

use serde::Serialize;

/// Sizes that are measured, in bytes.
pub const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 512 << 10, 1 << 20];

/// A piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Copying what is in the cache.
    CopyHot,
    /// Copying what is not.
    CopyCold,
    /// First touch of fresh pages.
    FirstTouch,
    /// `madvise(MADV_DONTNEED)`.
    Discard,
    /// `UFFDIO_MOVE`.
    Move,
    /// `UFFDIO_COPY` into missing pages.
    Fill,
    /// `UFFDIO_REGISTER` of a part of a mapping.
    Register,
    /// `UFFDIO_UNREGISTER` of it.
    Unregister,
    /// A touch that a thread on the same core answers; bytes: what it fills.
    FaultSameCore,
    /// A touch that a thread on another core answers.
    FaultOtherCore,
    /// A system call that does nothing.
    SystemCall,
    /// Sending to a peer on this host: the sender's CPU time.
    Send,
    /// The same by reference.
    SendByReference,
    /// The tracker alone, on simulated memory: a copy like the last one.
    BooksAgain,
    /// The same: another copy that is elided.
    BooksElide,
    /// The same: a copy that is looked at in vain.
    BooksLook,
    /// The same: an input into an extent.
    BooksInput,
    /// The same: an output from an extent.
    BooksOutput,
}

impl Work {
    /// The work in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::CopyHot => "memcpy, all in cache",
            Self::CopyCold => "memcpy, cold",
            Self::FirstTouch => "first touch of fresh pages",
            Self::Discard => "MADV_DONTNEED",
            Self::Move => "UFFDIO_MOVE",
            Self::Fill => "UFFDIO_COPY into unmapped pages",
            Self::Register => "UFFDIO_REGISTER",
            Self::Unregister => "UFFDIO_UNREGISTER",
            Self::FaultSameCore => "a fault, thread on the same core",
            Self::FaultOtherCore => "a fault, thread on another core",
            Self::SystemCall => "a system call",
            Self::Send => "sending within the host, CPU time",
            Self::SendByReference => "the same by reference",
            Self::BooksAgain => "books: a copy like the last one",
            Self::BooksElide => "books: another copy",
            Self::BooksLook => "books: a look in vain",
            Self::BooksInput => "books: an input",
            Self::BooksOutput => "books: an output",
        }
    }

    /// The time that the reference machine took for `bytes`, in ns.
    pub fn reference(self, bytes: usize) -> Option<f64> {
        let by_size =
            |values: [f64; 5]| SIZES.iter().position(|size| *size == bytes).map(|i| values[i]);
        match self {
            Self::CopyHot => by_size([20.0, 70.0, 1_300.0, 10_000.0, 30_000.0]),
            Self::CopyCold => by_size([560.0, 2_100.0, 8_600.0, 72_000.0, 144_000.0]),
            Self::FirstTouch => by_size([1_100.0, 4_400.0, 19_000.0, 154_000.0, 303_000.0]),
            Self::Discard => by_size([1_000.0, 1_700.0, 4_300.0, 12_000.0, 23_000.0]),
            Self::Fill => by_size([1_100.0, 3_800.0, 16_000.0, 124_000.0, 247_000.0]),
            Self::Move => by_size([900.0, 1_300.0, 2_900.0, 4_800.0, 9_800.0]),
            // 16 pages: 1,150 and 1,650 ns a page.
            Self::FaultSameCore => by_size([3_700.0, 0.0, 18_400.0, 0.0, 0.0]),
            Self::FaultOtherCore => by_size([11_600.0, 0.0, 26_400.0, 0.0, 0.0]),
            Self::BooksAgain => Some(BOOKS[0]),
            Self::BooksElide => Some(BOOKS[1]),
            Self::BooksLook => Some(BOOKS[2]),
            Self::BooksInput => Some(BOOKS[3]),
            Self::BooksOutput => Some(BOOKS[4]),
            Self::Register | Self::Unregister | Self::SystemCall => None,
            Self::Send | Self::SendByReference => None,
        }
    }
}

/// The tracker alone on the reference machine, in ns.
const BOOKS: [f64; 5] = [65.0, 340.0, 180.0, 130.0, 45.0];

/// The time of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The work.
    pub work: Work,
    /// On how many bytes; 0 where that has no meaning.
    pub bytes: usize,
    /// Its median time, in ns.
    pub ns: f64,
}

/// The time of `work` on `bytes` among `results`.
pub fn find(results: &[Measured], work: Work, bytes: usize) -> Option<f64> {
    results.iter().find(|m| m.work == work && m.bytes == bytes).map(|m| m.ns)
}
