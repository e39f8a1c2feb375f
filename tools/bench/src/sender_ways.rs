//! Ways to send: each with what it takes to know when a buffer may be written again.

// Unsafe: the kernel's calls themselves. Buffers live as long as the process.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use io_uring::{IoUring, cqueue, opcode, types};

use super::receiver::Stream;
use super::send_plan::{SendBuffers, SendMethod, SendPlan};

/// A way to send.
pub trait Transport {
    /// Sends all of `bytes`, buffer number `buffer`.
    fn send(&mut self, buffer: usize, bytes: &[u8]) -> io::Result<()>;

    /// Waits until the buffer may be written again.
    fn release(&mut self, _buffer: usize) -> io::Result<()> {
        Ok(())
    }

    /// Waits until the kernel needs no buffer any more.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Sends that the kernel reported done, and of these the ones that it copied.
    fn by_reference(&self) -> [u64; 2] {
        [0, 0]
    }
}

/// The way that the plan asks for.
pub fn new(
    plan: &SendPlan,
    stream: &Stream,
    memory: &SendBuffers,
) -> io::Result<Box<dyn Transport>> {
    let socket = stream.fd().as_raw_fd();
    Ok(match plan.way {
        SendMethod::Send => Box::new(Plain { socket }),
        SendMethod::Zerocopy => Box::new(Zerocopy::new(socket, plan.buffers)?),
        SendMethod::Sendfile if plan.fresh => {
            let why = "pages that were sent may still be in the receiver's queue: writing to them \
                       would change what was sent";
            return Err(io::Error::other(why));
        }
        SendMethod::Sendfile => {
            let file = memory.file.as_ref().expect("this way has one").as_raw_fd();
            Box::new(Sendfile { socket, file })
        }
        SendMethod::Uring => Box::new(Uring::new(socket, plan.buffers)?),
    })
}

/// The result of a call that moves bytes; interrupted calls moved none.
fn moved(result: isize) -> io::Result<usize> {
    match usize::try_from(result) {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Ok(n) => Ok(n),
        Err(_) => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            e => Err(e),
        },
    }
}

fn send(socket: RawFd, bytes: &[u8], flags: i32) -> isize {
    // SAFETY: the buffer has so many bytes.
    unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags | libc::MSG_NOSIGNAL) }
}

struct Plain {
    socket: RawFd,
}

impl Transport for Plain {
    fn send(&mut self, _: usize, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            bytes = &bytes[moved(send(self.socket, bytes, 0))?..];
        }
        Ok(())
    }
}

struct Sendfile {
    socket: RawFd,
    file: RawFd,
}

impl Transport for Sendfile {
    fn send(&mut self, buffer: usize, bytes: &[u8]) -> io::Result<()> {
        let mut offset = (buffer * bytes.len()) as i64;
        let mut left = bytes.len();
        while left > 0 {
            // SAFETY: both descriptors are ours, and the offset is ours to be written.
            let sent = unsafe { libc::sendfile(self.socket, self.file, &raw mut offset, left) };
            left -= moved(sent)?;
        }
        Ok(())
    }
}

/// Sends that may be under way at once.
const UNDER_WAY: u32 = 256;

struct Zerocopy {
    socket: RawFd,
    /// Sends made, which the kernel numbers from 0.
    made: u32,
    /// Sends done: TCP reports them in their order.
    done: u32,
    copied: u64,
    /// For each buffer the number of sends made when it was sent last.
    last: Vec<u32>,
}

impl Zerocopy {
    fn new(socket: RawFd, buffers: usize) -> io::Result<Self> {
        let one: libc::c_int = 1;
        // SAFETY: an option that is an int.
        let set = unsafe {
            let value = (&raw const one).cast();
            libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, value, 4)
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { socket, made: 0, done: 0, copied: 0, last: vec![0; buffers] })
    }

    /// Takes the reports that are there; waits for the first one if `wait`.
    fn reap(&mut self, mut wait: bool) -> io::Result<()> {
        loop {
            let mut control = [0u64; 16];
            // SAFETY: a header of zeros is valid.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            // SAFETY: the header names memory of ours.
            if unsafe { libc::recvmsg(self.socket, &raw mut message, flags) } < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                if error.kind() != io::ErrorKind::WouldBlock {
                    return Err(error);
                }
                if !wait {
                    return Ok(());
                }
                self.wait()?;
                continue;
            }
            wait = false;
            self.take(&message);
        }
    }

    fn take(&mut self, message: &libc::msghdr) {
        // SAFETY: the header was filled by recvmsg, and its control memory is alive.
        unsafe {
            let mut part = libc::CMSG_FIRSTHDR(message);
            while let Some(header) = part.as_ref() {
                let report: libc::sock_extended_err =
                    libc::CMSG_DATA(header).cast::<libc::sock_extended_err>().read_unaligned();
                if report.ee_errno == 0 && report.ee_origin == SO_EE_ORIGIN_ZEROCOPY {
                    let count = report.ee_data.wrapping_sub(report.ee_info).wrapping_add(1);
                    self.done = self.done.wrapping_add(count);
                    if report.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0 {
                        self.copied += u64::from(count);
                    }
                }
                part = libc::CMSG_NXTHDR(message, header);
            }
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut poll = libc::pollfd { fd: self.socket, events: 0, revents: 0 };
        // SAFETY: one descriptor of ours.
        match unsafe { libc::poll(&raw mut poll, 1, 10_000) } {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    fn until(&mut self, number: u32) -> io::Result<()> {
        while (self.done.wrapping_sub(number) as i32) < 0 {
            self.reap(true)?;
        }
        Ok(())
    }
}

/// Of the kernel's `linux/errqueue.h`.
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

impl Transport for Zerocopy {
    fn send(&mut self, buffer: usize, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match moved(send(self.socket, bytes, libc::MSG_ZEROCOPY)) {
                Ok(0) => {}
                Ok(n) => {
                    bytes = &bytes[n..];
                    self.made = self.made.wrapping_add(1);
                }
                // The memory for reports is used up.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) && self.made != self.done => {
                    self.reap(true)?;
                }
                Err(e) => return Err(e),
            }
        }
        self.last[buffer] = self.made;
        self.reap(false)?;
        self.until(self.made.wrapping_sub(UNDER_WAY))
    }

    fn release(&mut self, buffer: usize) -> io::Result<()> {
        self.until(self.last[buffer])
    }

    fn finish(&mut self) -> io::Result<()> {
        self.until(self.made)
    }

    fn by_reference(&self) -> [u64; 2] {
        [u64::from(self.done), self.copied]
    }
}

struct Uring {
    ring: IoUring,
    socket: RawFd,
    /// For each buffer the sends of which the kernel still needs it.
    needed: Vec<u32>,
    done: u64,
    copied: u64,
}

/// Of the kernel's `linux/io_uring.h`: ask for, and mark, sends that were copied.
const SEND_ZC_REPORT_USAGE: u16 = 1 << 3;
const NOTIF_USAGE_ZC_COPIED: u32 = 1 << 31;

impl Uring {
    fn new(socket: RawFd, buffers: usize) -> io::Result<Self> {
        let ring = IoUring::new(UNDER_WAY)?;
        Ok(Self { ring, socket, needed: vec![0; buffers], done: 0, copied: 0 })
    }

    /// Takes what has completed; the answer to the send itself, if that is among it.
    fn reap(&mut self) -> Option<i32> {
        let mut answer = None;
        for entry in self.ring.completion() {
            let buffer = entry.user_data() as usize;
            if cqueue::notif(entry.flags()) {
                self.needed[buffer] -= 1;
                self.done += 1;
                if entry.result().cast_unsigned() & NOTIF_USAGE_ZC_COPIED != 0 {
                    self.copied += 1;
                }
                continue;
            }
            if !cqueue::more(entry.flags()) {
                self.needed[buffer] -= 1;
            }
            answer = Some(entry.result());
        }
        answer
    }

    fn wait(&mut self) -> io::Result<Option<i32>> {
        match self.ring.submit_and_wait(1) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
            Ok(_) => {}
        }
        Ok(self.reap())
    }
}

impl Transport for Uring {
    fn send(&mut self, buffer: usize, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let len = u32::try_from(bytes.len()).unwrap_or(1 << 30);
            let entry = opcode::SendZc::new(types::Fd(self.socket), bytes.as_ptr(), len)
                .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
                .zc_flags(SEND_ZC_REPORT_USAGE)
                .build()
                .user_data(buffer as u64);
            // SAFETY: the buffer lives as long as the process and is not written before `release`.
            unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
            self.needed[buffer] += 1;
            // One after the other: a stream has an order.
            let answer = loop {
                if let Some(answer) = self.wait()? {
                    break answer;
                }
            };
            match usize::try_from(answer) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(_) if [-libc::EINTR, -libc::EAGAIN].contains(&answer) => {}
                Err(_) => return Err(io::Error::from_raw_os_error(-answer)),
            }
        }
        Ok(())
    }

    fn release(&mut self, buffer: usize) -> io::Result<()> {
        while self.needed[buffer] > 0 {
            self.wait()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        (0..self.needed.len()).try_for_each(|buffer| self.release(buffer))
    }

    fn by_reference(&self) -> [u64; 2] {
        [self.done, self.copied]
    }
}
