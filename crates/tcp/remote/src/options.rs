//! Options of sockets that rustix does not know.
//!
//! unsafe: `setsockopt` and `getsockopt`.

use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use uncopy_tcp_proto::Algorithm;

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

/// The option's value, up to the buffer's length.
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

/// How the program that has this socket wants it to slow down, where it has said so: what is not
/// the system's own choice is the program's.
pub fn congestion(socket: impl AsFd) -> Option<Algorithm> {
    // (TCP_CA_NAME_MAX of include/net/tcp.h.)
    let mut name = [0; 16];
    let length = get(socket, libc::SOL_TCP, libc::TCP_CONGESTION, &mut name).ok()?;
    chosen(name[..length].split(|byte| *byte == 0).next()?)
}

/// This name's, where it is not the system's own choice.
pub fn chosen(name: &[u8]) -> Option<Algorithm> {
    let wanted = match name {
        b"reno" => Algorithm::Reno,
        b"cubic" => Algorithm::Cubic,
        b"dctcp" => Algorithm::Dctcp,
        b"bbr" => Algorithm::Bbr,
        _ => return None,
    };
    let usual = std::fs::read("/proc/sys/net/ipv4/tcp_congestion_control").ok()?;
    (usual.trim_ascii() != name).then_some(wanted)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_choice_counts_and_the_systems_does_not() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(congestion(&socket), None);
        let usual = std::fs::read("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
        let (name, algorithm) = match usual.trim_ascii() {
            b"reno" => (b"cubic".as_slice(), Algorithm::Cubic),
            _ => (b"reno".as_slice(), Algorithm::Reno),
        };
        set_bytes(&socket, libc::SOL_TCP, libc::TCP_CONGESTION, name).unwrap();
        assert_eq!(congestion(&socket), Some(algorithm));
        set_bytes(&socket, libc::SOL_TCP, libc::TCP_CONGESTION, usual.trim_ascii()).unwrap();
        assert_eq!(congestion(&socket), None);
    }
}
