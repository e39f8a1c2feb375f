//! A TAP device. The kernel segments what is sent and joins what arrives, as for a virtual machine
//! (`TUN_F_TSO4`): a frame may be 64 KB.
//!
//! unsafe: the device's ioctls; a payload where it lies, which only the kernel reads.

use crate::{Offload, PIECES, Piece, Wire, too_long};
use libc::{
    IFF_NO_PI, IFF_TAP, IFF_VNET_HDR, SIOCSIFFLAGS, SIOCSIFTXQLEN, TUN_F_CSUM, TUN_F_TSO_ECN,
    TUN_F_TSO4, TUNSETIFF, TUNSETOFFLOAD, TUNSETOWNER,
};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read, write};
use rustix::net::{AddressFamily, SocketType};
use std::io;

/// Before each frame: `struct virtio_net_hdr` of linux/virtio_net.h: flags, gso_type, hdr_len,
/// gso_size, csum_start, csum_offset.
const HEADER: usize = 10;
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_TCPV4: u8 = 1;
const GSO_ECN: u8 = 0x80;

/// The longest frame: what an IPv4 packet can hold, and Ethernet's header.
const FRAME_MAX: usize = 65_535 + 14;
/// Where the TCP header begins in a frame of IPv4 without options, and its checksum in it.
const TCP_AT: u16 = 34;
const CHECKSUM_AT: u16 = 16;
/// The flag by which a sender says that it has slowed down.
const CWR: u8 = 0x80;

/// See the module.
#[derive(Debug)]
pub struct Tap {
    fd: OwnedFd,
    name: String,
    buffer: Box<[u8]>,
}

impl Tap {
    /// Makes the device `name`, or attaches to it if it is there and persistent. It is up to the
    /// caller to give it an address and to set it up. It goes away with the returned value.
    ///
    /// # Errors
    /// No `/dev/net/tun`, or no right to use it (CAP_NET_ADMIN); a name that the kernel does not
    /// take.
    pub fn open(name: &str) -> io::Result<Self> {
        Self::open_queue(name, 0)
    }

    /// Makes the device `name` with so many queues, each a wire of its own. The kernel chooses one
    /// for each connection. A `%d` in the name becomes the first number that is free.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn open_queues(name: &str, queues: usize) -> io::Result<Vec<Self>> {
        let first = Self::open_queue(name, libc::IFF_MULTI_QUEUE)?;
        // (Else anybody could attach to it, and see and send all that is carried.)
        // SAFETY: takes a number.
        check(unsafe { libc::ioctl(first.fd.as_raw_fd(), TUNSETOWNER, 0) })?;
        let name = first.name.clone();
        let others = (1..queues).map(|_| Self::open_queue(&name, libc::IFF_MULTI_QUEUE));
        core::iter::once(Ok(first)).chain(others).collect()
    }

    fn open_queue(name: &str, more: libc::c_int) -> io::Result<Self> {
        let (fd, name) = attach(name, IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | more)?;
        // SAFETY: takes a number.
        check(unsafe {
            libc::ioctl(fd.as_raw_fd(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO_ECN)
        })?;
        Ok(Self { fd, name, buffer: vec![0; HEADER + FRAME_MAX].into() })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the device up, without ARP and multicast: it is spoken through, not to. Of what Linux
    /// sends by it, so many frames wait at each queue.
    ///
    /// # Errors
    /// No right; the device has been taken away.
    pub fn set_up(&self, room: u32) -> io::Result<()> {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        let mut request = request(&self.name)?;
        // (`ifr_qlen`: a number in the same place.)
        request.ifr_ifru.ifru_metric = room.cast_signed();
        // SAFETY: reads the request, which lives here.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCSIFTXQLEN, &request) })?;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_NOARP) as libc::c_short;
        // SAFETY: as above.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCSIFFLAGS, &request) })
    }
}

impl Tap {
    /// Lets `fill` write the first `filled` bytes of a frame of `length` behind what the kernel is
    /// told of it. False: it is not to leave.
    fn fill(
        &mut self,
        length: usize,
        filled: usize,
        offload: Offload,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> io::Result<bool> {
        if length > FRAME_MAX {
            return Err(too_long(length, FRAME_MAX));
        }
        let (header, frame) = self.buffer.split_at_mut(HEADER);
        header.fill(0);
        if offload.checksum {
            header[0] = NEEDS_CSUM;
            header[6..8].copy_from_slice(&TCP_AT.to_ne_bytes());
            header[8..10].copy_from_slice(&CHECKSUM_AT.to_ne_bytes());
        }
        if !fill(&mut frame[..filled]) {
            return Ok(false);
        }
        if let Some(segment) = offload.segment {
            header[1] = GSO_TCPV4;
            // (Only the first segment says that.)
            if frame[usize::from(TCP_AT) + 13] & CWR != 0 {
                header[1] |= GSO_ECN;
            }
            // Ethernet's, IPv4's, and TCP's with its options.
            let headers = TCP_AT + u16::from(frame[usize::from(TCP_AT) + 12] >> 4) * 4;
            header[2..4].copy_from_slice(&headers.to_ne_bytes());
            header[4..6].copy_from_slice(&segment.to_ne_bytes());
        }
        Ok(true)
    }

    /// It leaves, or is lost.
    fn leave(&self, write: impl Fn(&Self) -> Result<usize, Errno>) -> io::Result<bool> {
        loop {
            match write(self) {
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                // There is no memory (nor for a page of a payload that lies elsewhere), or the
                // device is down, and may come up again.
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::IO | Errno::FAULT) => {
                    return Ok(false);
                }
                Err(e) => return Err(e.into()),
            }
        }
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

impl Wire for Tap {
    fn frame_max(&self) -> usize {
        FRAME_MAX
    }

    fn offers(&self) -> Offload {
        // An IPv4 packet holds its own header and TCP's of 60 bytes each at most.
        Offload { checksum: true, segment: Some(65_535 - 120) }
    }

    fn receive(&mut self, max: usize, mut each: impl FnMut(&[u8], Offload)) -> io::Result<usize> {
        for received in 0..max {
            match read(&self.fd, &mut *self.buffer) {
                Ok(length) if length > HEADER => {
                    let (header, frame) = self.buffer[..length].split_at(HEADER);
                    let several = header[1] & !GSO_ECN == GSO_TCPV4;
                    let segment = several.then(|| u16::from_ne_bytes([header[4], header[5]]));
                    each(
                        frame,
                        Offload { checksum: header[0] & (NEEDS_CSUM | DATA_VALID) != 0, segment },
                    );
                }
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR) => return Ok(received),
                // One is lost for which there is no memory, or which a driver has joined without
                // saying how.
                Err(Errno::NOBUFS | Errno::NOMEM | Errno::INVAL) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(max)
    }

    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> io::Result<bool> {
        if !self.fill(length, length, offload, fill)? {
            return Ok(false);
        }
        self.leave(|tap| write(&tap.fd, &tap.buffer[..HEADER + length]))
    }

    fn gathers(&self) -> bool {
        true
    }

    fn gather(
        &mut self,
        headers: usize,
        payload: &[Piece<'_>; PIECES],
        offload: Offload,
        fill: impl FnOnce(&mut [u8]),
    ) -> io::Result<bool> {
        let length = headers + payload.iter().map(Piece::bytes).sum::<usize>();
        let fill = |frame: &mut [u8]| {
            fill(frame);
            true
        };
        self.fill(length, headers, offload, fill)?;
        self.leave(|tap| {
            let piece = |at, bytes| libc::iovec { iov_base: at, iov_len: bytes };
            let mut parts = [piece(core::ptr::null_mut(), 0); 1 + PIECES];
            parts[0] = piece(tap.buffer.as_ptr().cast_mut().cast(), HEADER + headers);
            let mut count = 1;
            for one in payload.iter().filter(|one| one.bytes > 0) {
                parts[count] = piece(one.at.cast_mut().cast(), one.bytes);
                count += 1;
            }
            // SAFETY: the kernel only reads them: our buffer, and what is mapped by their promise.
            let left = unsafe { libc::writev(tap.fd.as_raw_fd(), parts.as_ptr(), count as i32) };
            usize::try_from(left).map_err(|_| last_error())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        // Each frame left by itself.
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Makes the device `name`, of this kind, or attaches to it; where the name has a `%d`, the first
/// number that is free takes its place. With the name that it has got.
pub(crate) fn attach(name: &str, kind: libc::c_int) -> io::Result<(OwnedFd, String)> {
    let fd =
        open("/dev/net/tun", OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = kind as libc::c_short;
    // SAFETY: reads and writes the request, which lives here.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF, &mut request) })?;
    let made = request.ifr_name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0);
    Ok((fd, String::from_utf8_lossy(&made.collect::<Vec<u8>>()).into_owned()))
}

/// A request about the device `name`.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: plain old data, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} names no device: 1 to 15 characters do"),
        ));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
