//! AF_XDP on one queue of a device. Frames lie in memory that the kernel shares; four rings say
//! whose they are.
//!
//! Frames that the service sends, and those that wait to be received into, come from one [`Umem`]:
//! half of it is given to the kernel for receiving.
//!
//! unsafe: `Umem`'s packets must not outlive it. They live in calls of [`Wire`], and in rings and
//! slabs beside it. And `xdp`'s types hold addresses of memory that they share with the kernel, so
//! the compiler does not know that they may change threads.

use crate::{Offload, Wire, device, too_long};
use rustix::fd::BorrowedFd;
use std::io;
use std::os::fd::AsRawFd;
use xdp::slab::{HeapSlab, Slab};
use xdp::socket::{SocketError, XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, UmemCfgBuilder};
use xdp::{RingConfigBuilder, Umem, WakableRings};

/// Of each ring, in frames, where nobody says otherwise.
const RING: u32 = 2048;
/// Of the send ring: what a lane sends in several turns.
const LEAVING: u32 = 2048;
/// The frames that are handed to the kernel, or taken from it, at once.
const BATCH: usize = 64;
/// Frames that the kernel sends in one call (`TX_BATCH_SIZE` of net/xdp/xsk.c): then it says
/// EAGAIN, and wants to be called again.
const KERNELS_BATCH: usize = 32;

/// How the device's driver carries frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Out of our memory and into it, if the driver can.
    ZeroCopy,
    /// The kernel copies the frames.
    Copy,
}

/// See the module.
pub struct Xsk {
    // Dropped in this order: the socket and its rings before the memory.
    socket: XdpSocket,
    rings: WakableRings,
    arrived: HeapSlab,
    leaving: HeapSlab,
    umem: Umem,
    frame_max: usize,
    /// Frames that the kernel has to receive into.
    given: usize,
    /// Frames that it is to have at most.
    most: usize,
    /// Frames in the send ring that the kernel may not have sent yet.
    waiting: usize,
}

// SAFETY: the addresses are of mappings that it owns, which are the process' and end with it;
// nothing of it is bound to a thread, and its holder has all of it.
unsafe impl Send for Xsk {}

impl Xsk {
    /// Binds to queue `queue` of the device `name`. Frames arrive once
    /// [`crate::steer::Steer::serve`] has been told of it.
    ///
    /// # Errors
    /// No such device; no right (CAP_NET_RAW); the queue has an owner (`EBUSY`: also for a moment
    /// after its last one ended); the driver cannot [`Mode::ZeroCopy`] (`EOPNOTSUPP`).
    pub fn bind(name: &str, queue: u32, mode: Mode) -> io::Result<Self> {
        Self::bind_with_room(name, queue, mode, RING)
    }

    /// The same, with room for so many frames that have arrived (a power of two) before more are
    /// dropped.
    ///
    /// # Errors
    /// As of [`bind`](Self::bind).
    pub fn bind_with_room(name: &str, queue: u32, mode: Mode, room: u32) -> io::Result<Self> {
        let device = device(name)?;
        let config = UmemCfgBuilder {
            frame_size: FrameSize::TwoK,
            frame_count: room + 2 * LEAVING,
            ..UmemCfgBuilder::default()
        };
        let umem = Umem::map(config.build().map_err(io::Error::other)?)?;
        let rings = RingConfigBuilder {
            rx_count: room,
            tx_count: LEAVING,
            fill_count: room,
            completion_count: LEAVING,
        };
        let rings = rings.build().map_err(io::Error::other)?;
        let mut builder = XdpSocketBuilder::new().map_err(plainly)?;
        let (rings, mut flags) = builder.build_wakable_rings(&umem, rings).map_err(plainly)?;
        match mode {
            Mode::ZeroCopy => flags.force_zerocopy(),
            Mode::Copy => flags.force_copy(),
        }
        let socket = builder.bind(device, queue, flags).map_err(plainly)?;
        let mut xsk = Self {
            socket,
            rings,
            arrived: HeapSlab::with_capacity(BATCH),
            leaving: HeapSlab::with_capacity(BATCH),
            frame_max: 0,
            umem,
            given: 0,
            most: room as usize,
            waiting: 0,
        };
        // SAFETY: given back at once.
        let packet = unsafe { xsk.umem.alloc() }.ok_or(io::ErrorKind::OutOfMemory)?;
        xsk.frame_max = packet.capacity();
        xsk.umem.free_packet(packet);
        xsk.give()?;
        Ok(xsk)
    }

    /// Its number in this process, for [`crate::steer::Steer::serve`].
    pub fn socket(&self) -> BorrowedFd<'_> {
        // SAFETY: open for as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }

    /// Lets the kernel have frames to receive into, up to half of all.
    fn give(&mut self) -> io::Result<()> {
        let wanted = self.most - self.given;
        if wanted >= BATCH {
            // SAFETY: the memory outlives the socket: see the order of the fields.
            self.given += unsafe { self.rings.fill_ring.enqueue(&mut self.umem, wanted, false) }?;
            self.wake()?;
        }
        Ok(())
    }

    /// Tells a driver that sleeps that there are frames again to receive into.
    fn wake(&self) -> io::Result<()> {
        let (fd, none) = (self.socket.as_raw_fd(), core::ptr::null_mut());
        // SAFETY: a call without data.
        let result = unsafe {
            libc::recvfrom(
                fd,
                none,
                0,
                libc::MSG_DONTWAIT,
                core::ptr::null_mut(),
                core::ptr::null_mut(),
            )
        };
        if result >= 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        match e.raw_os_error() {
            // The device is down, and may come up again: then it looks by itself.
            Some(libc::EAGAIN | libc::EINTR | libc::EBUSY | libc::ENOBUFS | libc::ENETDOWN) => {
                Ok(())
            }
            _ => Err(e),
        }
    }

    /// Puts what is leaving into the send ring. Returns whether all of it found room.
    fn queue(&mut self) -> io::Result<bool> {
        self.rings.completion_ring.dequeue(&mut self.umem, LEAVING as usize);
        if self.leaving.is_empty() {
            return Ok(true);
        }
        let ring = self.rings.tx_ring.as_mut().expect("made with one");
        // SAFETY: the memory outlives the socket: see the order of the fields.
        let sent = unsafe { ring.send(&mut self.leaving, false) }?;
        self.waiting += sent;
        Ok(self.leaving.is_empty())
    }

    /// Calls the kernel until it has sent what is in the ring, or has no room for it now.
    fn announce(&mut self) -> io::Result<()> {
        // One call more than it needs: a lane that comes here for frames that found no room may
        // find that it has some now.
        for _ in 0..=self.waiting.div_ceil(KERNELS_BATCH) {
            // SAFETY: a call without data.
            let result = unsafe {
                libc::sendto(
                    self.socket.as_raw_fd(),
                    core::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    core::ptr::null(),
                    0,
                )
            };
            if result == 0 {
                self.waiting = 0;
                return Ok(());
            }
            let e = io::Error::last_os_error();
            match e.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => {
                    // Those that it has sent make room for others.
                    self.rings.completion_ring.dequeue(&mut self.umem, LEAVING as usize);
                }
                // The device has no room, or is down, and may come up again: the frames stay for
                // the next flush.
                Some(libc::EBUSY | libc::ENOBUFS | libc::ENETDOWN) => return Ok(()),
                _ => return Err(e),
            }
        }
        Ok(())
    }
}

impl Wire for Xsk {
    fn frame_max(&self) -> usize {
        self.frame_max
    }

    fn offers(&self) -> Offload {
        Offload::default()
    }

    fn receive(&mut self, max: usize, mut each: impl FnMut(&[u8], Offload)) -> io::Result<usize> {
        let mut received = 0;
        while received < max {
            let ring = self.rings.rx_ring.as_mut().expect("made with one");
            // SAFETY: the packets go back to `umem` below.
            let count = unsafe { ring.recv(&self.umem, &mut self.arrived) };
            while let Some(packet) = self.arrived.pop_back() {
                each(&packet, Offload::default());
                self.umem.free_packet(packet);
            }
            self.given -= count;
            received += count;
            if count < BATCH {
                break;
            }
        }
        self.give()?;
        Ok(received)
    }

    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> io::Result<bool> {
        if length > self.frame_max || offload != Offload::default() {
            return Err(too_long(length, self.frame_max));
        }
        if self.leaving.available() == 0 && !self.queue()? {
            self.announce()?;
            if !self.queue()? {
                return Ok(false);
            }
        }
        // SAFETY: it goes into the slab, and from there into the ring.
        let Some(mut packet) = (unsafe { self.umem.alloc() }) else { return Ok(false) };
        if packet.adjust_tail(length as i32).is_err() {
            self.umem.free_packet(packet);
            return Err(too_long(length, self.frame_max));
        }
        if !fill(&mut packet[..length]) {
            self.umem.free_packet(packet);
            return Ok(false);
        }
        let refused = self.leaving.push_front(packet);
        debug_assert!(refused.is_none(), "there was room");
        Ok(true)
    }

    fn flush(&mut self) -> io::Result<()> {
        let all = self.queue()?;
        if self.waiting > 0 {
            self.announce()?;
        }
        // A frame that found no room in the ring may find some now.
        if !all && self.queue()? {
            self.announce()?;
        }
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket()
    }
}

/// The kernel's own error, where there is one.
fn plainly(e: SocketError) -> io::Error {
    let text = e.to_string();
    match e {
        SocketError::SocketCreation(e) | SocketError::Bind(e) => e,
        SocketError::SetSockOpt { inner, .. }
        | SocketError::GetSockOpt { inner, .. }
        | SocketError::RingMap { inner, .. } => io::Error::new(inner.kind(), text),
    }
}
