//! `getsockopt`: SO_ERROR where Linux has told its error to a call that did not report it; and
//! TCP_INFO of a connection that the service carries to another host. Linux tells of the stand-in,
//! whose way is the loopback device; what belongs to the way to the peer is put in its place.

use crate::tcp::Tcp;
use core::ffi::c_int;
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, RawFd};
use uncopy_tcp_socket::Wired;

/// Where a field of `struct tcp_info` (linux/tcp.h) begins. The others stay as Linux has them: what
/// the program has done with its socket.
mod at {
    pub const OPTIONS: usize = 5;
    pub const SND_MSS: usize = 16;
    pub const UNACKED: usize = 24;
    pub const RTT: usize = 68;
    pub const RTTVAR: usize = 72;
    pub const SND_CWND: usize = 80;
    pub const TOTAL_RETRANS: usize = 100;
    pub const PACING_RATE: usize = 104;
    pub const BYTES_ACKED: usize = 120;
    pub const NOTSENT_BYTES: usize = 144;
    pub const MIN_RTT: usize = 148;
    pub const DELIVERY_RATE: usize = 160;
    pub const DELIVERED: usize = 192;
    pub const DELIVERED_CE: usize = 196;
    pub const BYTES_SENT: usize = 200;
    pub const SND_WND: usize = 228;
}

/// `TCPI_OPT_TIMESTAMPS`, `TCPI_OPT_SACK`, `TCPI_OPT_ECN`.
const AGREED: [u8; 3] = [1, 2, 8];
/// As Linux says while it has measured none.
const NO_RTT: u32 = u32::MAX;

/// Puts it where the caller has room for it.
fn put<const BYTES: usize>(info: &mut [u8], at: usize, value: [u8; BYTES]) {
    if let Some(to) = info.get_mut(at..at + BYTES) {
        to.copy_from_slice(&value);
    }
}

/// Puts what is known of the way to the peer into Linux' answer.
fn tell(info: &mut [u8], of: &Wired) {
    let mss = of.mss.max(1);
    let segments = |bytes: u32| bytes.div_ceil(mss.into());
    let whole = |bytes: u64| u32::try_from(bytes / u64::from(mss)).unwrap_or(u32::MAX);
    // (Bytes that Linux has not sent are still between the program and the service.)
    let unsent = info.get(at::NOTSENT_BYTES..).and_then(|at| at.first_chunk());
    let unsent = unsent.map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    if let Some(options) = info.get_mut(at::OPTIONS) {
        for (bit, agreed) in AGREED.into_iter().zip(of.agreed) {
            *options = *options & !bit | if agreed { bit } else { 0 };
        }
    }
    for (at, value) in [
        (at::SND_MSS, of.mss.into()),
        (at::UNACKED, segments(of.in_flight)),
        (at::RTT, of.rtt.0),
        (at::RTTVAR, of.rtt.1),
        (at::SND_CWND, segments(of.window)),
        (at::TOTAL_RETRANS, of.again[0].saturating_add(of.again[1])),
        (at::NOTSENT_BYTES, of.unacked.saturating_sub(of.in_flight).saturating_add(unsent)),
        (at::MIN_RTT, NO_RTT),
        (at::DELIVERED, whole(of.delivered)),
        (at::DELIVERED_CE, whole(of.marked)),
        (at::SND_WND, of.peer_window),
    ] {
        put(info, at, u32::to_ne_bytes(value));
    }
    // (A connection that is slowed down by a window has no rate, and none is measured.)
    let paced = if of.rate == 0 { u64::MAX } else { of.rate };
    let sent = of.delivered.saturating_add(of.in_flight.into());
    for (at, value) in [
        (at::PACING_RATE, paced),
        (at::BYTES_ACKED, of.delivered),
        (at::BYTES_SENT, sent),
        (at::DELIVERY_RATE, 0),
    ] {
        put(info, at, value.to_ne_bytes());
    }
}

impl Tcp {
    /// Linux' answer to this may be told better here: [`option_told`](Self::option_told).
    #[inline]
    pub fn tells(&self, level: c_int, name: c_int) -> bool {
        match (level, name) {
            (libc::IPPROTO_TCP, libc::TCP_INFO) => self.begun() && !self.is_stopped(),
            (libc::SOL_SOCKET, libc::SO_ERROR) => self.in_use(),
            _ => false,
        }
    }

    /// Linux has answered so what the program has asked of its socket.
    #[cold]
    pub fn option_told(&self, fd: RawFd, name: c_int, told: &mut [u8]) {
        if name == libc::SO_ERROR { self.error_told(fd, told) } else { self.info_told(fd, told) }
    }

    /// An error that Linux has told to a call which did not report it is the program's to hear.
    fn error_told(&self, fd: RawFd, told: &mut [u8]) {
        let Some(said) = told.first_chunk_mut() else { return };
        let Some(connection) = self.connection(fd) else { return };
        match c_int::from_ne_bytes(*said) {
            0 => {
                if let Some(error) = connection.flow.take_error() {
                    *said = error.raw_os_error().to_ne_bytes();
                }
            }
            error => connection.flow.error_told(Errno::from_raw_os_error(error)),
        }
    }

    /// The peer of `fd` may have been killed: what Linux says of the connection is so from then on.
    #[inline]
    pub fn looks_for_death(&self, fd: RawFd) {
        if self.in_use()
            && let Some(connection) = self.connection(fd)
        {
            connection.flow.looks_for_death();
        }
    }

    /// The error of `fd`, once, where Linux has told it to a call that did not report it.
    #[cold]
    pub fn take_error(&self, fd: RawFd) -> Option<Errno> {
        self.connection(fd)?.flow.take_error()
    }

    /// A call on `fd` has sent or received a part before it met the error in errno.
    #[cold]
    pub fn keeps_error(&self, fd: RawFd) {
        if let Some(connection) = self.connection(fd) {
            connection.flow.keeps(Errno::from_raw_os_error(
                std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
            ));
        }
    }

    /// A call on `fd` that has received something ends here: what Linux has next is an error that
    /// could not be kept ([`uncopy_tcp_socket::Flow::would_lose_error`]). One that `waits` for more
    /// does so here as long as it could not be, and ends where it may wait no longer.
    #[cold]
    pub fn would_lose_error(&self, fd: RawFd, waits: bool) -> bool {
        let Some(connection) = self.connection(fd) else { return false };
        let flow = &connection.flow;
        if waits && !flow.is_attached() && !flow.is_nonblocking() {
            let mut news = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
            let waited = self.poll(&mut news, flow.receive_timeout(), None);
            if matches!(waited, Some(Ok(0) | Err(_))) {
                return true;
            }
        }
        flow.would_lose_error()
    }

    /// (Up to a second, where the service is behind; then this is Linux' answer.)
    fn info_told(&self, fd: RawFd, told: &mut [u8]) {
        if !self.is_own() || self.is_nobody_there() {
            return;
        }
        // SAFETY: the program's; only asked.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        if uncopy_tcp_socket::is_stand_in(socket)
            && let Some(context) = self.context()
        {
            match context.wired(socket) {
                Ok(Some(wired)) => tell(told, &wired),
                Ok(None) => {}
                // It is stopped, or behind, or gone: the next question does not wait for it again.
                Err(_) => self.nobody_is_there(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wired() -> Wired {
        let end = "10.0.0.1:80".parse().unwrap();
        Wired {
            addresses: [end, end],
            state: 3,
            control: 3,
            lane: 0,
            rtt: (150, 30),
            mss: 1448,
            window: 14_480,
            rate: 0,
            in_flight: 1449,
            peer_window: 65_535,
            unread: 0,
            unacked: 2000,
            delivered: 1 << 40,
            marked: 2896,
            again: [3, 1, 9],
            agreed: [true, false, true],
        }
    }

    #[test]
    fn fields_stand_where_linux_has_them() {
        let mut info = [0xff; 240];
        info[at::NOTSENT_BYTES..][..4].copy_from_slice(&[1, 0, 0, 0]);
        tell(&mut info, &wired());
        let word = |at: usize| u32::from_ne_bytes(*info[at..].first_chunk().unwrap());
        // SAFETY: as long as it is, and all bytes are values.
        let known: libc::tcp_info =
            unsafe { info.as_ptr().cast::<libc::tcp_info>().read_unaligned() };
        assert_eq!((known.tcpi_rtt, known.tcpi_rttvar, known.tcpi_snd_mss), (150, 30, 1448));
        assert_eq!((known.tcpi_unacked, known.tcpi_snd_cwnd, known.tcpi_total_retrans), (2, 10, 4));
        assert_eq!(known.tcpi_options, !2);
        assert_eq!(
            (word(at::NOTSENT_BYTES), word(at::SND_WND), word(at::DELIVERED_CE)),
            (552, 65_535, 2)
        );
        assert_eq!(word(at::BYTES_ACKED + 4), 1 << 8);
        // The program's own part (its state, when it sent last) is Linux' to tell.
        assert_eq!((known.tcpi_state, known.tcpi_last_data_sent), (0xff, u32::MAX));
    }

    #[test]
    fn no_more_is_written_than_was_asked_for() {
        for length in 0..240 {
            let mut info = [0xff; 240];
            tell(&mut info[..length], &wired());
            assert!(info[length..].iter().all(|byte| *byte == 0xff), "{length}");
        }
    }
}
