//! The log: lines of `KEY TEXT` on standard output, each written in one step, by threads and
//! children alike. Their order means nothing, the keys do.

use super::raw;

/// The report of an operation about itself.
#[derive(Debug)]
pub struct Note(String);

impl Note {
    /// Begins with the key.
    pub fn new(key: impl core::fmt::Display) -> Self {
        Self(key.to_string())
    }

    /// Adds a word.
    pub fn add(&mut self, word: impl core::fmt::Display) {
        self.0.push(' ');
        self.0.push_str(&word.to_string());
    }

    /// Adds the result of a libc call, with errno where there is one. Returns the result.
    pub fn result(&mut self, result: isize) -> isize {
        if result < 0 {
            self.add(format_args!("{result}/{}", errno()));
        } else {
            self.add(result);
        }
        result
    }

    /// Adds a digest.
    pub fn digest(&mut self, value: u64) {
        self.add(format_args!("{value:016x}"));
    }

    /// Writes the line.
    pub fn write(mut self) {
        self.0.push('\n');
        raw::write_all(1, self.0.as_bytes());
    }
}

/// errno.
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
