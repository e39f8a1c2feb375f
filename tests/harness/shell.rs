//! A command line of the shell, for tests that make devices and namespaces.

use std::io;
use std::process::Command;

/// Runs it to its end.
///
/// # Errors
/// Returns its standard error, where it fails.
pub fn shell(command: &str) -> io::Result<()> {
    let output = Command::new("sh").args(["-c", command]).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim()))
}
