//! Whether this kernel has SMC, Linux' own way past TCP within a host (SMC-D over its loopback
//! device): what is missing, in a line.

// unsafe: a socket of a family that nix does not know.

use std::io::Error;
use std::os::fd::{FromRawFd, OwnedFd};

/// linux/socket.h.
const AF_SMC: libc::c_int = 43;

/// Whether it is there, in words. (The kernel loads the module for this call, where it has it.)
pub fn words() -> String {
    // SAFETY: it makes a descriptor, of nobody's.
    match unsafe { libc::socket(AF_SMC, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) } {
        -1 => format!(
            "SMC-D, Linux' own way through shared memory, is not beside it. socket(AF_SMC, \
             SOCK_STREAM, 0) fails here:\n\
             {}. That takes a kernel with CONFIG_SMC, its module smc, and a loopback device \
             (CONFIG_SMC_LO, since 6.18 CONFIG_DIBS_LO).",
            Error::last_os_error()
        ),
        socket => {
            // SAFETY: it is new, and ours.
            drop(unsafe { OwnedFd::from_raw_fd(socket) });
            "SMC-D, Linux' own way through shared memory, is not beside it, though this kernel has \
             AF_SMC: nothing here measures it yet."
                .into()
        }
    }
}
