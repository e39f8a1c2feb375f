//! Why bytes that recovery has do not go into their file. They are put aside.

use core::fmt;
use rustix::io::Errno;
use uncopy_log_record::Gap;
use uncopy_log_share::homing::NotHome;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The file was deleted: nobody misses its bytes.
    Deleted,
    /// The file is not where it was.
    Gone,
    /// The kernel says why.
    Kernel(Errno),
    /// The log is damaged: bytes of the file may be missing.
    Damaged(Gap),
    /// A sync of the file failed before.
    SyncFailed,
    /// The file is shorter than it was when its bytes were logged.
    Shorter {
        /// Its length.
        is: u64,
        /// Its length then.
        least: u64,
    },
    /// The file was changed after its bytes were logged.
    Changed,
    /// An earlier version logged the file while it was overwritten.
    Overwritten,
    /// As for bytes that are held in memory.
    NotHome(NotHome),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleted => f.write_str("the file is no more"),
            Self::Gone => f.write_str("the file is not there any more"),
            Self::Kernel(why) => write!(f, "{}", std::io::Error::from(*why)),
            Self::Damaged(gap) => write!(f, "{gap}"),
            Self::SyncFailed => f.write_str("a sync of it failed before"),
            Self::Shorter { is, least } => write!(
                f,
                "somebody else changed the file: it has {is} bytes instead of {least} at least"
            ),
            Self::Changed => f.write_str("somebody else changed the file after the log"),
            Self::Overwritten => {
                f.write_str("an earlier version logged it while it was overwritten")
            }
            Self::NotHome(why) => write!(f, "{why}"),
        }
    }
}

impl From<NotHome> for Refused {
    fn from(why: NotHome) -> Self {
        Self::NotHome(why)
    }
}

impl From<Errno> for Refused {
    fn from(why: Errno) -> Self {
        Self::Kernel(why)
    }
}
