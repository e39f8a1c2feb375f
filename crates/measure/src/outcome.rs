//! What went wrong, and what is said: one line for the user.

use std::io::{ErrorKind, Write};

use crate::printable::printable;

/// What went wrong, as one line for the user.
pub type Outcome<T = ()> = Result<T, String>;

/// Prints to standard output; a reader that has gone away is no error.
///
/// # Errors
/// Standard output cannot be written to.
pub fn print(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("cannot print ({e})")),
        _ => Ok(()),
    }
}

/// Says on standard error, in one line, what is wrong. Names and paths in it are somebody else's.
pub fn complain(message: &str) {
    eprintln!("uncopy: {}", printable(message));
}
