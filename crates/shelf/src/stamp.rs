//! Which file it is, and which content it has.

/// A file, and which content it has: as far as `stat` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Last change of the content: seconds and ns.
    pub mtime: (i64, i64),
    /// Last change of anything.
    pub ctime: (i64, i64),
}

impl Stamp {
    pub(crate) const NONE: Self = Self { dev: 0, ino: 0, size: 0, mtime: (0, 0), ctime: (0, 0) };

    pub(crate) fn same_file(&self, other: &Self) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }
}
