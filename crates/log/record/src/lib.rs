//! The bytes of the log file: what lies where, how records are written, how they are found again.
//!
//! Nothing here makes a system call, allocates or panics. Programs encode in their own process,
//! into a buffer of theirs; the service and recovery scan.
//!
//! ```text
//!  0          32 KB      64 KB                    + segment                 + segment
//!  | super    | super    | header | flush | flush.. | header | flush | ..     | ..
//! ```
//!
//! | module | one idea |
//! | --- | --- |
//! | [`superblock`] | whose log this is, and which epoch of it |
//! | [`log`] | where segments lie, and where the next flush goes |
//! | [`record`] | one record: what it says, and whether its bytes are sound |
//! | [`flush`] | records of one write to the disk, encoded into a buffer |
//! | [`scan`] | the records of an epoch in order, and exactly where and why they end |
//!
//! # What holds
//!
//! - A flush begins a new block. So nothing that was acknowledged is ever rewritten.
//! - A flush is written once its predecessor is durable, or its segment was abandoned
//!   ([`Cursor::next_segment`]). So what follows a hole proves that the hole was whole before.
//! - A segment is entered anew only when nothing in it is live. A `HOME` is younger than the `DATA`
//!   it ends, so it outlives it in the log.
//! - A segment names (`NAME`) each inode of which it has `DATA`, before that. So each stands alone.
//! - An epoch begins with a durable superblock; nothing of an earlier one counts any more.
#![forbid(unsafe_code)]

mod fields;
pub mod flush;
pub mod log;
pub mod record;
pub mod scan;
pub mod superblock;

pub use flush::{Flush, Full, Written};
pub use log::{
    BLOCK, Cursor, HEAD, Log, NO_SEGMENT, NoRoom, NoSegment, Purpose, SECTOR, SEGMENT, Segment,
};
pub use record::{Body, Data, Name, Range, Record, Unsound};
pub use scan::{End, Gap, Scan, ScanItem, Why};
pub use superblock::{Here, Origin, Superblock, Unusable, VERSION};
