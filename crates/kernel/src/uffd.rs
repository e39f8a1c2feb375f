//! userfaultfd: the calls and structures of `linux/userfaultfd.h`, declared here because
//! distributions' headers are older than the kernels (UFFDIO_MOVE is Linux 6.8).
//!
//! unsafe: ioctls on the process's own memory map. Each wrapper moves, maps or protects whole
//! pages of addresses given as numbers; that no live Rust object lies there is the caller's
//! promise, kept by only ever naming pool pages and pages of the program under test.
//!
//! System calls are made directly (rustix), never through libc: `errno` belongs to the program.
//!
//! A static: whether the call by which one is made would end the program. Makers of them are made
//! where nothing else is in hand.

use crate::descriptors::{OwnFd, duplicate};
use crate::inject;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use uncopy_inject::{Call, Error};
use uncopy_ranges::span::{PAGE, Span};

/// Pages that were moved can be moved: Linux 6.8.
pub const FEATURE_MOVE: u64 = 1 << 16;
/// The kernel reports mremap, madvise(DONTNEED, FREE, REMOVE) and munmap of registered memory,
/// by whomever it is called.
pub const FEATURE_EVENTS: u64 = (1 << 2) | (1 << 3) | (1 << 6);

const API: u64 = 0xaa;
const UFFDIO_API: u32 = 0xc018_aa3f;
const UFFDIO_REGISTER: u32 = 0xc020_aa00;
const UFFDIO_UNREGISTER: u32 = 0x8010_aa01;
const UFFDIO_WAKE: u32 = 0x8010_aa02;
const UFFDIO_COPY: u32 = 0xc028_aa03;
const UFFDIO_ZEROPAGE: u32 = 0xc020_aa04;
const UFFDIO_MOVE: u32 = 0xc028_aa05;
const USERFAULTFD_IOC_NEW: u32 = 0xaa00;

/// See [`call_ends`].
pub(crate) static CALL_ENDS: AtomicBool = AtomicBool::new(false);

/// Whether a filter would end the program for userfaultfd(2), as far as it was found out.
pub fn call_ends() -> bool {
    CALL_ENDS.load(Relaxed)
}

/// The device's request for one.
pub(crate) const NEW: u32 = USERFAULTFD_IOC_NEW;
/// The requests to one that are made here.
pub(crate) const REQUESTS: [u32; 7] = [
    UFFDIO_API,
    UFFDIO_REGISTER,
    UFFDIO_UNREGISTER,
    UFFDIO_WAKE,
    UFFDIO_COPY,
    UFFDIO_ZEROPAGE,
    UFFDIO_MOVE,
];

const REGISTER_MODE_MISSING: u64 = 1;
const MOVE_MODE_DONTWAKE: u64 = 1;
const MOVE_MODE_ALLOW_SRC_HOLES: u64 = 2;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RangeMode {
    start: u64,
    len: u64,
    mode: u64,
    out: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Transfer {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    out: i64,
}

/// `struct uffd_msg`: one thing that the kernel reports.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Msg {
    event: u8,
    reserved: [u8; 7],
    args: [u64; 3],
}

/// A report, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A thread waits for the missing page at this address.
    Fault(usize),
    /// A mapping was moved: from, to, length.
    Remap(usize, usize, usize),
    /// Pages are about to be dropped.
    Remove(Span),
    /// A mapping was removed.
    Unmap(Span),
    /// Something that was not asked for.
    Other(u8),
}

impl Msg {
    /// Takes the message apart.
    pub fn event(&self) -> Event {
        let [a, b, c] = self.args;
        match self.event {
            // pagefault: flags, address, thread
            0x12 => Event::Fault(b as usize),
            0x14 => Event::Remap(a as usize, b as usize, c as usize),
            0x15 => Event::Remove(Span::new(a as usize, b as usize)),
            0x16 => Event::Unmap(Span::new(a as usize, b as usize)),
            other => Event::Other(other),
        }
    }
}

/// Why userfaultfd cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Neither the device nor the system call is permitted.
    Permission,
    /// The kernel has no userfaultfd, or none with UFFDIO_MOVE (before 6.8).
    Kernel,
    /// Something else (no descriptors left, ...).
    Other(Errno),
}

/// A place that makes userfaultfds: the device, kept open so that a process that drops its
/// privileges can still serve its forked children, or the system call.
#[derive(Debug)]
pub enum Maker {
    /// An open `/dev/userfaultfd`.
    Device(OwnFd),
    /// `userfaultfd(2)`.
    SystemCall,
}

impl Maker {
    /// The device if it may be opened, else the system call.
    pub fn open() -> Self {
        use rustix::fs::{Mode, OFlags};
        let open = || {
            inject::check(Call::Device)?;
            rustix::fs::open(c"/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        };
        match open() {
            Ok(fd) => Self::Device(fd.into()),
            Err(_) => Self::SystemCall,
        }
    }

    /// A userfaultfd of the calling process that also reports faults taken inside the kernel,
    /// with `features`.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn make(&self, features: u64) -> Result<Uffd, Refusal> {
        let flags = rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK;
        let fd = inject::check(Call::Userfaultfd).and_then(|()| match self {
            Self::Device(device) => {
                let made = raw_ioctl(
                    device.as_fd(),
                    USERFAULTFD_IOC_NEW,
                    flags.bits() as usize as *mut (),
                );
                made.map(|fd| {
                    use std::os::fd::FromRawFd;
                    // SAFETY: the ioctl returned a new descriptor that nobody else owns.
                    unsafe { OwnedFd::from_raw_fd(fd as i32) }
                })
            }
            Self::SystemCall if call_ends() => Err(Errno::PERM),
            Self::SystemCall => {
                use rustix::mm::{UserfaultfdFlags, userfaultfd};
                // SAFETY: creates a descriptor; registers nothing.
                unsafe { userfaultfd(UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK) }
            }
        });
        let fd = fd.map_err(|e| match e {
            Errno::PERM | Errno::ACCESS => Refusal::Permission,
            Errno::NOSYS => Refusal::Kernel,
            e => Refusal::Other(e),
        })?;
        let uffd = Uffd(fd.into());
        let mut api = Api { api: API, features, ioctls: 0 };
        inject::check(Call::Api)
            .and_then(|()| uffd.ioctl(UFFDIO_API, &mut api))
            .map_err(|_| Refusal::Kernel)?;
        Ok(uffd)
    }
}

/// An open userfaultfd.
#[derive(Debug)]
pub struct Uffd(OwnFd);

fn raw_ioctl(fd: BorrowedFd<'_>, op: u32, arg: *mut ()) -> Result<usize, Errno> {
    struct Raw(u32, *mut ());
    // SAFETY: `Raw` passes the operation and its argument as they are; the wrappers below pair
    // each operation with the structure that the kernel expects.
    unsafe impl rustix::ioctl::Ioctl for Raw {
        type Output = usize;
        const IS_MUTATING: bool = true;
        fn opcode(&self) -> rustix::ioctl::Opcode {
            self.0 as rustix::ioctl::Opcode
        }
        fn as_ptr(&mut self) -> *mut core::ffi::c_void {
            self.1.cast()
        }
        unsafe fn output_from_ptr(
            out: rustix::ioctl::IoctlOutput,
            _: *mut core::ffi::c_void,
        ) -> rustix::io::Result<usize> {
            Ok(out as usize)
        }
    }
    // SAFETY: see above; the structures are plain data on the caller's stack.
    unsafe { rustix::ioctl::ioctl(fd, Raw(op, arg)) }
}

impl Uffd {
    fn ioctl<T>(&self, op: u32, arg: &mut T) -> Result<usize, Errno> {
        raw_ioctl(self.0.as_fd(), op, core::ptr::from_mut(arg).cast())
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The userfaultfd at descriptor `fd`.
    ///
    /// # Safety
    /// It is open in the calling thread's table, and nobody else closes it.
    pub unsafe fn from_raw(fd: i32) -> Self {
        use std::os::fd::FromRawFd;
        // SAFETY: the caller's promise.
        Self(unsafe { OwnedFd::from_raw_fd(fd) }.into())
    }

    /// Puts the descriptor where programs that count or close low ones do not meet it.
    ///
    /// # Errors
    /// When no descriptor is free there; it stays where it was.
    pub fn lift(&mut self, least: i32) -> Result<(), Errno> {
        self.0 = duplicate(&self.0, least)?;
        Ok(())
    }

    /// `UFFDIO_REGISTER` for missing pages.
    ///
    /// # Errors
    /// EINVAL for memory that has no such faults, EBUSY for another owner's, ENOMEM, ...
    pub fn register(&self, span: Span) -> Result<(), Errno> {
        let mut r = RangeMode {
            start: span.start as u64,
            len: span.len() as u64,
            mode: REGISTER_MODE_MISSING,
            out: 0,
        };
        inject::check(Call::Register)?;
        self.ioctl(UFFDIO_REGISTER, &mut r).map(drop)
    }

    /// `UFFDIO_UNREGISTER`; wakes whoever waits in the range.
    ///
    /// # Errors
    /// EINVAL where a part is not mapped.
    pub fn unregister(&self, span: Span) -> Result<(), Errno> {
        let mut r = Range { start: span.start as u64, len: span.len() as u64 };
        inject::check(Call::Unregister)?;
        self.ioctl(UFFDIO_UNREGISTER, &mut r).map(drop)
    }

    /// `UFFDIO_WAKE`. Returns whether it could be done; else somebody may still be waiting.
    #[must_use]
    pub fn wake(&self, span: Span) -> bool {
        let mut r = Range { start: span.start as u64, len: span.len() as u64 };
        let done = inject::check(Call::Wake).and_then(|()| self.ioctl(UFFDIO_WAKE, &mut r));
        done.is_ok()
    }

    /// `UFFDIO_COPY`: fills missing pages from `src`. Returns the bytes filled and, if not all
    /// were, why.
    pub fn copy(&self, dst: Span, src: usize) -> (usize, Option<Errno>) {
        transfer(Call::Copy, dst.len(), |len| {
            let mut c = Transfer {
                dst: dst.start as u64,
                src: src as u64,
                len: len as u64,
                ..Transfer::default()
            };
            let result = self.ioctl(UFFDIO_COPY, &mut c);
            (c.out.max(0) as usize, result.err())
        })
    }

    /// `UFFDIO_ZEROPAGE`. Returns the bytes filled and, if not all were, why.
    pub fn zero(&self, dst: Span) -> (usize, Option<Errno>) {
        transfer(Call::Zeropage, dst.len(), |len| self.plain_zero(Span::sized(dst.start, len)))
    }

    fn plain_zero(&self, dst: Span) -> (usize, Option<Errno>) {
        let mut z =
            RangeMode { start: dst.start as u64, len: dst.len() as u64, ..RangeMode::default() };
        let result = self.ioctl(UFFDIO_ZEROPAGE, &mut z);
        (z.out.max(0) as usize, result.err())
    }

    /// `UFFDIO_MOVE`: moves pages of `src` to the missing pages from `dst` on, which must be
    /// registered with this descriptor. Returns the bytes moved and, if not all were, why.
    pub fn move_pages(&self, dst: usize, src: Span, holes_allowed: bool) -> (usize, Option<Errno>) {
        let mode = if holes_allowed { MOVE_MODE_ALLOW_SRC_HOLES } else { 0 };
        self.make_move(Call::Move, dst, src, mode)
    }

    /// The same, to fill a missing page of the program's with the page `src`.
    pub fn move_in(&self, dst: usize, src: Span) -> (usize, Option<Errno>) {
        self.make_move(Call::MoveIn, dst, src, 0)
    }

    /// As [`Uffd::move_pages`], but a thread that waits for the pages goes on waiting until
    /// [`Uffd::wake`].
    pub fn move_without_waking(&self, dst: usize, src: Span) -> (usize, Option<Errno>) {
        self.make_move(Call::Move, dst, src, MOVE_MODE_DONTWAKE)
    }

    fn make_move(&self, call: Call, dst: usize, src: Span, mode: u64) -> (usize, Option<Errno>) {
        transfer(call, src.len(), |len| {
            let mut m =
                Transfer { dst: dst as u64, src: src.start as u64, len: len as u64, mode, out: 0 };
            let result = self.ioctl(UFFDIO_MOVE, &mut m);
            (m.out.max(0) as usize, result.err())
        })
    }

    /// Whether a change of the memory map is under way whose report nobody has read. `None`: the
    /// kernel does not say.
    pub fn map_changing(&self) -> Option<bool> {
        let asked = inject::check(Call::Probe);
        // The kernel looks at that before it refuses the empty range.
        match asked.err().or_else(|| self.plain_zero(Span::new(0, 0)).1) {
            Some(Errno::INVAL) => Some(false),
            Some(Errno::AGAIN) => Some(true),
            _ => None,
        }
    }

    /// Whether the descriptor is closed, or another file's: the program did that past us.
    pub fn is_gone(&self) -> bool {
        matches!(self.plain_zero(Span::new(0, 0)).1, Some(Errno::BADF | Errno::NOTTY))
    }

    /// Reads reports without waiting; returns those that were read.
    pub fn read<'a>(&self, buffer: &'a mut [Msg; 32]) -> &'a [Msg] {
        let size = size_of::<Msg>();
        // SAFETY: `Msg` is plain data without padding; any bytes make a valid one.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast::<u8>(), size * buffer.len())
        };
        let most = match inject::draw(Call::Read, false) {
            None => bytes.len(),
            Some(Error::Short) => size,
            Some(_) => return &[],
        };
        let n = rustix::io::read(&self.0, &mut bytes[..most]).unwrap_or(0);
        &buffer[..n / size]
    }
}

/// The two userfaultfds of a process.
#[derive(Debug)]
pub struct Fds {
    /// The one for the program's pages.
    pub program: Uffd,
    /// The one for the pool.
    pub pool: Uffd,
}

impl Fds {
    /// Makes both for the calling process.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn make(maker: &Maker) -> Result<Self, Refusal> {
        Ok(Self {
            program: maker.make(FEATURE_MOVE | FEATURE_EVENTS)?,
            pool: maker.make(FEATURE_MOVE)?,
        })
    }

    /// Their numbers.
    pub fn numbers(&self) -> [i32; 2] {
        [self.program.fd().as_raw_fd(), self.pool.fd().as_raw_fd()]
    }

    /// Whether these numbers are closed, or other files': the program did that past us.
    pub fn are_gone(&self) -> bool {
        self.program.is_gone() || self.pool.is_gone()
    }

    /// Puts both at descriptors from `least` on.
    ///
    /// # Errors
    /// Where that is not possible: then one or both are where they were.
    pub fn lift(&mut self, least: i32) -> Result<(), Errno> {
        self.program.lift(least)?;
        self.pool.lift(least)
    }
}

/// Makes a transfer of `len` bytes, or of a part of it, or none where a test says so.
#[inline]
fn transfer(
    call: Call,
    len: usize,
    make: impl Fn(usize) -> (usize, Option<Errno>),
) -> (usize, Option<Errno>) {
    match inject::draw(call, len <= PAGE) {
        None => make(len),
        // As the kernel says it when it did a part.
        Some(Error::Short) => match make(len / PAGE / 2 * PAGE) {
            (done, None) => (done, Some(Errno::AGAIN)),
            other => other,
        },
        // A thread that finds a page there must find it filled: somebody else was faster.
        Some(Error::Exist) if call != Call::Move => match make(PAGE.min(len)) {
            (_, None) => (0, Some(Errno::EXIST)),
            other => other,
        },
        Some(error) => (0, Some(inject::errno(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_that_the_operation_numbers_say() {
        assert_eq!(size_of::<Api>(), (UFFDIO_API >> 16 & 0x3fff) as usize);
        assert_eq!(size_of::<RangeMode>(), (UFFDIO_REGISTER >> 16 & 0x3fff) as usize);
        assert_eq!(size_of::<Range>(), (UFFDIO_WAKE >> 16 & 0x3fff) as usize);
        assert_eq!(size_of::<Transfer>(), (UFFDIO_MOVE >> 16 & 0x3fff) as usize);
        assert_eq!(size_of::<Msg>(), 32);
    }
}
