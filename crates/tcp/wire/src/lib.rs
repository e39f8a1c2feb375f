//! How the TCP service's frames leave and enter.
//!
//! A [`Wire`] carries Ethernet frames in batches: what is sent leaves with [`Wire::flush`], so that
//! one system call serves many. None of them blocks; a thread that has nothing to do polls
//! [`Wire::descriptor`].
//!
//! | module | one idea |
//! | --- | --- |
//! | [`tap`] | a TAP device: wherever `/dev/net/tun` is; the kernel cuts and sums |
//! | [`xsk`] | AF_XDP on one queue of a device |
//! | [`queues`] | all queues of a device by AF_XDP |
//! | [`beside`] | a TAP device beside another one, where XDP is refused |
//! | [`steer`] | which segments are the service's, by an XDP program or a classifier |
//! | [`over`] | a wire of either kind |
//! | `program` | that program, instruction by instruction |
//! | `bpf` | the system call that loads it |
//!
//! Taken, and compared: for AF_XDP the crate `xdp` (no C, no dependency, MIT or Apache; `xsk-rs`
//! and `libxdp-sys` want libxdp and a C compiler, `xdpilone` is under the EUPL). For the program
//! none: `aya` and `libbpf-rs` load object files, which only a nightly compiler or clang makes;
//! ninety instructions and four commands of `bpf(2)` are less.

use core::marker::PhantomData;
use rustix::fd::BorrowedFd;
use std::ffi::CString;
use std::io;
use xdp::nic::NicIndex;

pub mod beside;
mod bpf;
pub mod over;
mod program;
pub mod queues;
pub mod steer;
pub mod tap;
pub mod tun;
pub mod xsk;

/// The wire's work for frames, asked for or done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Sending: the TCP checksum field holds the pseudo header's sum alone, and the wire completes
    /// it. Receiving: the checksum need not be looked at.
    pub checksum: bool,
    /// The frame holds several segments of this many bytes of payload each (the last may be
    /// shorter).
    pub segment: Option<u16>,
}

/// Bytes of somebody's memory, which the kernel alone reads: they may change meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    at: *const u8,
    bytes: usize,
    of: PhantomData<&'a [u8]>,
}

impl<'a> Piece<'a> {
    /// No bytes.
    pub const NONE: Self = Self { at: core::ptr::null(), bytes: 0, of: PhantomData };

    /// So many from there on.
    ///
    /// # Safety
    /// They are mapped for as long as `'a`.
    pub unsafe fn new(at: *const u8, bytes: usize) -> Self {
        Self { at, bytes, of: PhantomData }
    }

    /// How many.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<'a> From<&'a [u8]> for Piece<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { at: bytes.as_ptr(), bytes: bytes.len(), of: PhantomData }
    }
}

/// Of a frame's payload so many pieces may lie apart.
pub const PIECES: usize = 4;

/// Carries Ethernet frames.
pub trait Wire {
    /// The longest frame that it carries, in bytes.
    fn frame_max(&self) -> usize;

    /// The work that may be asked of it in [`Wire::send`]; [`Offload::segment`] is its longest
    /// payload.
    fn offers(&self) -> Offload;

    /// Hands frames that have arrived to `each` until `max` were handed on, or none is left. (A
    /// batch that has been taken from the device at once is handed on whole.) Returns their number.
    ///
    /// # Errors
    /// Those of the device: it is gone, or down.
    fn receive(&mut self, max: usize, each: impl FnMut(&[u8], Offload)) -> io::Result<usize>;

    /// Lets `fill` write a frame of `length` bytes, which leaves with the next [`Wire::flush`] at
    /// the latest, unless `fill` says false: then nothing leaves. Returns false where nothing does;
    /// where there is no room now `fill` is not called.
    ///
    /// # Errors
    /// Those of the device; a frame longer than [`Wire::frame_max`] is `InvalidInput`.
    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> io::Result<bool>;

    /// It takes payloads where they lie: [`Wire::gather`].
    fn gathers(&self) -> bool {
        false
    }

    /// As [`Wire::send`], of a frame whose headers, so many bytes, are what `fill` writes, and
    /// whose payload lies elsewhere. Its checksum is the wire's to complete.
    ///
    /// # Errors
    /// As above. A wire that does not gather: `Unsupported`.
    fn gather(
        &mut self,
        _headers: usize,
        _payload: &[Piece<'_>; PIECES],
        _offload: Offload,
        _fill: impl FnOnce(&mut [u8]),
    ) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sends what is left to be sent. Frames that find no room at the device are dropped by it, as
    /// wires do.
    ///
    /// # Errors
    /// Those of the device.
    fn flush(&mut self) -> io::Result<()>;

    /// Readable when a frame has arrived.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// Fills a frame with a copy of this one: for [`Wire::send`].
pub fn copied(frame: &[u8]) -> impl FnOnce(&mut [u8]) -> bool {
    |to| {
        to.copy_from_slice(frame);
        true
    }
}

/// Queues of a device that are served at most: each has a lane of its own.
pub const QUEUES: u32 = 64;

/// The device of this name.
fn device(name: &str) -> io::Result<NicIndex> {
    let text = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    NicIndex::lookup_by_name(&text)?.ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("no device is called {name}"))
    })
}

/// Says at which step it failed.
fn at(step: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |e| io::Error::new(e.kind(), format!("{step}: {e}"))
}

/// A frame that does not fit.
fn too_long(length: usize, max: usize) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("a frame of {length} bytes, where {max} fit"),
    )
}
