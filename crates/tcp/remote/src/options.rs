//! Options of sockets that rustix does not know.
//!
//! unsafe: `setsockopt` and `getsockopt`.

use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

fn failed() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Sets a number.
///
/// # Errors
/// Those of setsockopt(2).
pub fn set(socket: impl AsFd, level: i32, option: i32, value: i32) -> Result<(), Errno> {
    set_bytes(socket, level, option, &value.to_ne_bytes())
}

/// Sets some bytes.
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_bytes(socket: impl AsFd, level: i32, option: i32, value: &[u8]) -> Result<(), Errno> {
    let length = value.len() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: reads the bytes, which live here.
    let done =
        unsafe { libc::setsockopt(socket, level, option, value.as_ptr().cast(), length) } == 0;
    if done { Ok(()) } else { Err(failed()) }
}

/// What is set, up to the buffer's length.
///
/// # Errors
/// Those of getsockopt(2).
pub fn get(socket: impl AsFd, level: i32, option: i32, value: &mut [u8]) -> Result<usize, Errno> {
    let mut length = value.len() as libc::socklen_t;
    let (socket, to) = (socket.as_fd().as_raw_fd(), value.as_mut_ptr().cast());
    // SAFETY: writes to the buffer, as far as it goes.
    let done = unsafe { libc::getsockopt(socket, level, option, to, &raw mut length) } == 0;
    if done { Ok(length as usize) } else { Err(failed()) }
}

/// A number that is set.
///
/// # Errors
/// Those of getsockopt(2).
pub fn number(socket: impl AsFd, level: i32, option: i32) -> Result<i32, Errno> {
    let mut value = [0; 4];
    get(socket, level, option, &mut value)?;
    Ok(i32::from_ne_bytes(value))
}
