//! A failure, said so that its reader knows what to do.

use core::fmt;
use rustix::io::Errno;

/// A call on a log's file that did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The call, as the middle of a sentence: "open", "map with MAP_SYNC".
    pub what: &'static str,
    /// The kernel's answer.
    pub why: Errno,
    /// The advice; empty: nothing that we know of.
    pub hint: &'static str,
}

impl Failed {
    pub(crate) fn to(what: &'static str) -> impl Fn(Errno) -> Self {
        move |why| Self { what, why, hint: hint(why) }
    }
}

/// The hint that helps against an error of the kernel's.
fn hint(why: Errno) -> &'static str {
    match why {
        Errno::NOSPC => "make room on the file system, or name a smaller --log-size",
        Errno::DQUOT => "the user's quota is used up: make room, or name a smaller --log-size",
        Errno::ROFS => "name a directory that can be written: --log=DIR",
        Errno::ACCESS | Errno::PERM => "name a directory of this user's: --log=DIR",
        Errno::NOENT => "make the directory, or name another one: --log=DIR",
        _ => "",
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = std::io::Error::from(self.why);
        write!(f, "cannot {} ({why})", self.what)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}

impl std::error::Error for Failed {}
