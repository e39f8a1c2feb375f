//! The contents that a file may have after a crash.

use core::fmt;

/// A state that is not as it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(String);

impl Violation {
    /// Says it.
    pub fn new(what: impl fmt::Display) -> Self {
        Self(what.to_string())
    }

    /// Says of which file it is.
    #[must_use]
    pub fn of(self, file: usize) -> Self {
        Self(format!("file {file}: {self}"))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for Violation {}

/// All versions of a file, as programs and strangers see it.
#[derive(Clone, Debug)]
pub struct History {
    versions: Vec<Vec<u8>>,
    /// The last version whose write has returned.
    returned: usize,
    /// The last version that a sync acknowledged.
    acked: usize,
    /// The disk did not take some of it: where a version has nothing, zeros may be.
    holes: bool,
    /// The disk did not take some of it, and it was said for good.
    lost: bool,
}

impl History {
    /// Of a file that is durable as it is.
    pub fn new(content: &[u8]) -> History {
        History {
            versions: vec![content.to_vec()],
            returned: 0,
            acked: 0,
            holes: false,
            lost: false,
        }
    }

    /// The file's content, with all writes that were made.
    pub fn latest(&self) -> &[u8] {
        self.versions.last().map_or(&[], |bytes| bytes)
    }

    /// Somebody begins to make it this.
    pub fn begin(&mut self, content: Vec<u8>) {
        self.versions.push(content);
    }

    /// The write that was begun has returned.
    pub fn returned(&mut self) {
        self.returned = self.versions.len() - 1;
    }

    /// The write that was begun was not done.
    pub fn failed(&mut self) {
        self.versions.pop();
    }

    /// The last version that a write has returned: what a sync that begins now answers for.
    pub fn at(&self) -> usize {
        self.returned
    }

    /// A sync has answered for this version.
    pub fn acked(&mut self, version: usize) {
        self.acked = self.acked.max(version);
    }

    /// The disk fails now and then.
    pub fn may_have_holes(&mut self) {
        self.holes = true;
    }

    /// Bytes were lost, and syncs said so for good. (One of a stranger's, later, does not know.)
    pub fn is_lost(&mut self) {
        self.lost = true;
    }

    /// The file as the kernel shows it has all that was returned.
    ///
    /// # Errors
    /// Where not, and what is there.
    pub fn is_current(&self, content: &[u8]) -> Result<(), Violation> {
        self.is_since(content, self.returned, "returned")
    }

    /// After a power loss the file has all that was acknowledged, and nothing that never was
    /// written.
    ///
    /// # Errors
    /// Where not, and what is there.
    pub fn is_safe(&self, content: &[u8]) -> Result<(), Violation> {
        if self.lost {
            return Ok(());
        }
        self.is_since(content, self.acked, "acknowledged")
    }

    fn is_since(&self, content: &[u8], oldest: usize, what: &str) -> Result<(), Violation> {
        let allowed = &self.versions[oldest..];
        if allowed.iter().any(|version| version == content) {
            return Ok(());
        }
        let longest = allowed.iter().map(Vec::len).max().unwrap_or(0).max(content.len());
        let shown =
            |byte: Option<&u8>| byte.map_or("nothing".into(), |byte| format!("{byte:#04x}"));
        let absent = |at: usize| allowed.iter().any(|version| version.get(at).is_none());
        let hole = |at: usize| self.holes && absent(at) && content.get(at) == Some(&0);
        let is_wrong =
            |at: &usize| allowed.iter().all(|v| v.get(*at) != content.get(*at)) && !hole(*at);
        match (0..longest).find(is_wrong) {
            None => Ok(()),
            Some(at) => Err(Violation::new(format_args!(
                "byte {at} is {}, and {} was {what}; {} bytes long, {} were {what}",
                shown(content.get(at)),
                shown(allowed[0].get(at)),
                content.len(),
                allowed[0].len()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History {
        let mut history = History::new(b"aa");
        for version in [&b"aab"[..], b"aabc", b"xabc"] {
            history.begin(version.to_vec());
            history.returned();
        }
        history.acked(1);
        history
    }

    #[test]
    fn what_was_acknowledged_must_be_there() {
        assert!(history().is_safe(b"aa").unwrap_err().to_string().contains("byte 2 is nothing"));
        assert!(history().is_safe(b"aab").is_ok());
    }

    #[test]
    fn what_was_not_acknowledged_may_be_there_in_any_part() {
        assert!(history().is_safe(b"xab").is_ok());
        assert!(history().is_safe(b"aabc").is_ok());
        assert!(history().is_current(b"aabc").is_err());
        assert!(history().is_current(b"xabc").is_ok());
    }

    #[test]
    fn what_was_never_written_must_not_be_there() {
        assert!(history().is_safe(b"aab\0").is_err());
        assert!(history().is_safe(b"xabcd").is_err());
        assert!(history().is_safe(b"ayb").is_err());
    }
}
