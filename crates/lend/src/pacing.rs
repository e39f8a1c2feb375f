//! Connections over the loopback device are not paced: where BBR would be their congestion control, Reno is.
//!
//! BBR arms a timer for each segment that comes before its time. Within a host the sender is as fast as memory, so nearly every
//! segment does; sending by reference makes it faster still, and the timers cost more than the copies did (1 MB values of
//! memcached, redis, varnish gain 1.6 to 2.8 with Reno and nothing with BBR). There is no network between the two ends whose
//! congestion could be controlled. It is done before the connection begins: what BBR has begun the kernel paces for good
//! (`sk_pacing_status` never goes back). A listener hands its own to what it accepts; so only one that is bound to the loopback
//! device's addresses is looked at, which no other host can reach.
//!
//! unsafe: asks the kernel about a descriptor of the program's, and sets it.

use crate::ask::ask;
use uncopy_kernel::call::{syscall4, syscall6};

/// Large enough for an IPv6 address.
const ADDRESS: usize = core::mem::size_of::<libc::sockaddr_in6>();

/// Before the program listens with `fd`.
pub fn before_listen(fd: i32) {
    let (mut name, mut len) = ([0u8; ADDRESS], ADDRESS as u32);
    let (to, length) = (name.as_mut_ptr() as usize, core::ptr::from_mut(&mut len) as usize);
    // SAFETY: the kernel writes at most so many bytes, and how many there are.
    let result = unsafe { syscall4(libc::SYS_getsockname as usize, fd as usize, to, length, 0) };
    if result == 0 {
        before_connect(fd, &name[..ADDRESS.min(len as usize)]);
    }
}

/// Before the program connects `fd` to `address` (a `sockaddr`).
pub fn before_connect(fd: i32, address: &[u8]) {
    if is_loopback(address) && is_bbrs(fd) {
        let name = b"reno";
        let at = name.as_ptr() as usize;
        let (call, level, option) = (libc::SYS_setsockopt, libc::SOL_TCP, libc::TCP_CONGESTION);
        // SAFETY: the kernel reads the name. Where it refuses, all is as it was.
        unsafe {
            syscall6(
                call as usize,
                [fd as usize, level as usize, option as usize, at, name.len(), 0],
            )
        };
    }
}

/// Whether BBR controls its congestion, of any version.
pub(crate) fn is_bbrs(fd: i32) -> bool {
    ask(fd, libc::SOL_TCP, libc::TCP_CONGESTION)
        .is_some_and(|(name, _)| name.to_le_bytes().starts_with(b"bbr"))
}

/// Whether this `sockaddr` is one of the loopback device's own: 127.0.0.0/8, ::1, or the first written as IPv6.
fn is_loopback(address: &[u8]) -> bool {
    let family = |f: i32| address.starts_with(&(f as u16).to_ne_bytes());
    let v6 = address.get(8..24);
    let mapped = |a: &[u8]| a.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127]);
    if family(libc::AF_INET) {
        address.len() >= 8 && address[4] == 127
    } else {
        family(libc::AF_INET6)
            && v6.is_some_and(|a| a == core::net::Ipv6Addr::LOCALHOST.octets() || mapped(a))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_loopback_device_are_known_in_each_family() {
        let v4 = |a: [u8; 4]| {
            [&(libc::AF_INET as u16).to_ne_bytes()[..], &[0, 80], &a, &[0; 8]].concat()
        };
        let v6 = |a: &str| {
            let a: core::net::Ipv6Addr = a.parse().unwrap();
            [&(libc::AF_INET6 as u16).to_ne_bytes()[..], &[0, 80, 0, 0, 0, 0], &a.octets(), &[0; 4]]
                .concat()
        };
        for own in [v4([127, 0, 0, 1]), v4([127, 1, 2, 3]), v6("::1"), v6("::ffff:127.0.0.1")] {
            assert!(is_loopback(&own), "{own:?}");
        }
        for other in [
            v4([0; 4]),
            v4([10, 0, 0, 1]),
            v6("::"),
            v6("::ffff:10.0.0.1"),
            v6("fe80::1"),
            vec![2, 0],
            vec![],
            vec![1, 0, 47],
        ] {
            assert!(!is_loopback(&other), "{other:?}");
        }
    }
}
