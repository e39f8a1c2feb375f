//! The output of a command: results on standard output, what is wrong on standard error.

use std::io::{ErrorKind, Write};

use crate::failure::Failure;
use crate::printable::printable;

/// Prints to standard output; a reader that has gone away is no error.
///
/// # Errors
/// Standard output cannot be written to.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::new("cannot print").because(e)),
        _ => Ok(()),
    }
}

/// Says on standard error, in one line, what is wrong. Names and paths in it are somebody else's.
pub fn complain(failure: impl Into<Failure>) {
    eprintln!("uncopy: {}", printable(failure.into().to_string()));
}
