//! A network of this thread's own: a pair of devices, `inner` and `outer`, and sockets that see
//! whole frames.
//!
//! unsafe: a namespace for the calling thread, packet sockets.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;
pub use uncopy_tests::verdict::leave_out;

/// Gives the calling thread a network namespace of its own. Returns false, and says why, where that
/// cannot be had.
pub fn own_network() -> bool {
    // SAFETY: changes this thread's namespace only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        leave_out(format!("a network namespace is refused ({})", io::Error::last_os_error()));
        return false;
    }
    // SAFETY: a call without arguments.
    if unsafe { libc::geteuid() } != 0 {
        leave_out("only root may load XDP programs and make devices");
        return false;
    }
    if Command::new("ip").arg("-V").output().is_err() {
        leave_out("ip (iproute2) is not installed");
        return false;
    }
    true
}

/// Runs `ip ARGUMENTS` in the calling thread's namespace.
pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip runs");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes the two devices; IPv6 is off, so that nobody speaks unasked.
pub fn pair_of_devices() {
    ip("link add inner type veth peer name outer");
    for name in ["inner", "outer"] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        ip(&format!("link set {name} arp off up"));
    }
}

/// The device's index.
pub fn index_of(device: &str) -> u32 {
    let name = CString::new(device).unwrap();
    // SAFETY: reads the name.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// Sends and receives whole frames on a device, beside whoever else does.
pub struct Frames(OwnedFd);

impl Frames {
    /// On this device.
    pub fn on(device: &str) -> Self {
        let all = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: makes a socket; binds it to an address that lives here.
        unsafe {
            let fd =
                libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(all));
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            let fd = OwnedFd::from_raw_fd(fd);
            let mut address: libc::sockaddr_ll = core::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = all;
            address.sll_ifindex = index_of(device) as i32;
            let length = size_of_val(&address) as u32;
            assert_eq!(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length), 0);
            let size: libc::c_int = 64 << 20;
            let length = size_of_val(&size) as u32;
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVBUFFORCE,
                (&raw const size).cast(),
                length,
            );
            // Frames that it sends itself do not come back.
            let one: libc::c_int = 1;
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_IGNORE_OUTGOING,
                (&raw const one).cast(),
                length,
            );
            Self(fd)
        }
    }

    pub fn send(&self, frame: &[u8]) {
        // SAFETY: reads the frame.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }

    /// The next frame, unless none comes in a while.
    pub fn receive(&self, wait: Duration) -> Option<Vec<u8>> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, which lives here.
        if unsafe { libc::poll(&mut poll, 1, wait.as_millis() as i32) } != 1 {
            return None;
        }
        let mut frame = vec![0; 70_000];
        // SAFETY: writes into the buffer.
        let length =
            unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
        frame.truncate(usize::try_from(length).expect("received"));
        Some(frame)
    }
}
