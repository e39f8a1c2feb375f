//! Becoming another program.

// Unsafe: `execve` itself. The standard library's `exec` is not used because it resets SIGPIPE
// and, through `execvp`, hands programs of other architectures to a shell.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use uncopy_measure::elf;

use super::environment::Environment;
use crate::startup;

/// Executes `file` with `arguments` (the first one is its name) in `environment`; comes back
/// only with the error.
pub fn exec(file: &Path, arguments: &[OsString], environment: &Environment) -> io::Error {
    let mut variables = Vec::new();
    for (name, value) in environment.iter() {
        let mut entry = name.as_bytes().to_vec();
        entry.push(b'=');
        entry.extend_from_slice(value.as_bytes());
        variables.push(entry);
    }
    startup::restore();
    let error =
        execve(file.as_os_str(), arguments.iter().map(|a| a.as_bytes().to_vec()), &variables);
    if error.raw_os_error() != Some(libc::ENOEXEC) || !matches!(elf::read(file), Ok(None)) {
        return error;
    }
    // A script without a #! line: the shell's, by the rules of execvp.
    let shell = OsStr::new("/bin/sh");
    let words =
        [shell, file.as_os_str()].into_iter().chain(arguments.iter().skip(1).map(AsRef::as_ref));
    execve(shell, words.map(|w| w.as_bytes().to_vec()), &variables)
}

fn execve(
    file: &OsStr,
    arguments: impl Iterator<Item = Vec<u8>>,
    variables: &[Vec<u8>],
) -> io::Error {
    let strings =
        |words: Vec<Vec<u8>>| words.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
    let (Ok(file), Ok(arguments), Ok(variables)) =
        (CString::new(file.as_bytes()), strings(arguments.collect()), strings(variables.to_vec()))
    else {
        return io::Error::from_raw_os_error(libc::EINVAL);
    };
    let pointers = |words: &[CString]| {
        words.iter().map(|w| w.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    // SAFETY: both lists end with a null pointer, and their strings outlive the call.
    unsafe {
        libc::execve(file.as_ptr(), pointers(&arguments).as_ptr(), pointers(&variables).as_ptr());
    }
    io::Error::last_os_error()
}
