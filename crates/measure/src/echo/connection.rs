//! A connection of the echo server: receives, touches, copies, sums up, sends.
//!
//! `recv`, `memcpy` and `send` are libc's, called as any program calls them.

// Unsafe: the calls and buffers under test are C's own, by intention.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use nix::sys::epoll::EpollFlags;

use super::plan::{Allocation, Checksum, Places, Plan, Touched};

const PAGE: usize = 4096;

/// A buffer of C's allocator; the connection that made it frees it.
type Buffer = *mut u8;

fn allocate(plan: &Plan) -> io::Result<Buffer> {
    let buffer: Buffer = if plan.allocation == Allocation::Aligned {
        let mut buffer = std::ptr::null_mut();
        // SAFETY: `buffer` is ours to be written; 4096 is a valid alignment.
        unsafe { libc::posix_memalign(&raw mut buffer, 4096, plan.size) };
        buffer.cast()
    } else {
        // SAFETY: any size may be asked for.
        unsafe { libc::malloc(plan.size) }.cast()
    };
    if buffer.is_null() { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(buffer) }
}

/// A connection and its buffers.
pub struct Connection {
    /// The socket.
    pub stream: TcpStream,
    received: Buffer,
    copies: Vec<Buffer>,
    /// Messages so far.
    turn: usize,
    state: State,
}

// SAFETY: the buffers belong to the connection alone; it is handed to one thread and stays there.
unsafe impl Send for Connection {}

#[derive(Clone, Copy)]
enum State {
    /// So many bytes of the message are here.
    Receiving(usize),
    /// So many bytes of the last copy are gone.
    Sending(usize),
}

/// The result of a call on a non-blocking socket.
enum Transfer {
    Moved(usize),
    Later,
    Closed,
}

fn transfer(result: isize) -> io::Result<Transfer> {
    match usize::try_from(result) {
        Ok(0) => Ok(Transfer::Closed),
        Ok(n) => Ok(Transfer::Moved(n)),
        Err(_) => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::WouldBlock => Ok(Transfer::Later),
            e if e.kind() == io::ErrorKind::Interrupted => Ok(Transfer::Moved(0)),
            e if e.kind() == io::ErrorKind::ConnectionReset => Ok(Transfer::Closed),
            e => Err(e),
        },
    }
}

impl Connection {
    /// A connection and its buffers.
    pub fn new(stream: TcpStream, plan: &Plan) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let received = allocate(plan)?;
        let kept = if plan.allocation == Allocation::Fresh { 0 } else { plan.copies };
        let copies = (0..kept).map(|_| allocate(plan)).collect::<io::Result<_>>()?;
        Ok(Self { stream, received, copies, turn: 0, state: State::Receiving(0) })
    }

    /// Where its buffers lie within the page.
    pub fn places(&self) -> Places {
        let chain: Vec<usize> =
            [&self.received].into_iter().chain(&self.copies).map(|buffer| buffer.addr()).collect();
        Places {
            received_at: self.received.addr() % PAGE,
            distances: chain.windows(2).map(|two| two[1].wrapping_sub(two[0]) % PAGE).collect(),
        }
    }

    /// The events that it can go on with.
    pub fn waits_for(&self) -> EpollFlags {
        match self.state {
            State::Receiving(_) => EpollFlags::EPOLLIN,
            State::Sending(_) => EpollFlags::EPOLLOUT,
        }
    }

    /// Does what can be done now; `false` when the peer is gone.
    pub fn advance(&mut self, plan: &Plan) -> io::Result<bool> {
        let fd = self.stream.as_raw_fd();
        while let State::Receiving(have) = self.state {
            let wanted = plan.size - have;
            // SAFETY: the buffer has `plan.size` bytes, of which `wanted` follow `have`.
            let result = unsafe { libc::recv(fd, self.received.add(have).cast(), wanted, 0) };
            match transfer(result)? {
                Transfer::Moved(n) if n == wanted => {
                    self.process(plan)?;
                    self.state = State::Sending(0);
                }
                Transfer::Moved(0) => {}
                Transfer::Moved(n) => {
                    // Less than asked for: the socket is empty now.
                    self.state = State::Receiving(have + n);
                    return Ok(true);
                }
                Transfer::Later => return Ok(true),
                Transfer::Closed => return Ok(false),
            }
        }
        let answer = self.copies.last().copied().unwrap_or(self.received);
        while let State::Sending(sent) = self.state {
            let wanted = plan.size - sent;
            // SAFETY: the buffer has `plan.size` bytes, of which `wanted` follow `sent`.
            let result =
                unsafe { libc::send(fd, answer.add(sent).cast(), wanted, libc::MSG_NOSIGNAL) };
            match transfer(result)? {
                Transfer::Moved(n) if n == wanted => {
                    if plan.allocation == Allocation::Fresh {
                        self.release();
                    }
                    self.state = State::Receiving(0);
                }
                Transfer::Moved(n) => self.state = State::Sending(sent + n),
                Transfer::Later => return Ok(true),
                Transfer::Closed => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The application: touches, copies and sums up a whole message.
    fn process(&mut self, plan: &Plan) -> io::Result<()> {
        self.turn = self.turn.wrapping_add(1);
        if plan.touched == Touched::Both {
            touch(self.received, plan, self.turn);
        }
        if plan.allocation == Allocation::Fresh {
            self.copies = (0..plan.copies).map(|_| allocate(plan)).collect::<io::Result<_>>()?;
        }
        let mut source = self.received;
        let mut seen = None;
        for (i, copy) in self.copies.iter().enumerate() {
            // Black boxes, so that it stays a call of libc's memcpy from one buffer to the next.
            let (to, from, size) = std::hint::black_box((*copy, source, plan.size));
            // SAFETY: both are buffers of `size` bytes of their own.
            unsafe { libc::memcpy(to.cast(), from.cast(), size) };
            source = *copy;
            let last = i + 1 == self.copies.len();
            if plan.checksum == Checksum::Every || last && plan.checksum == Checksum::Last {
                let sum = sum(source, plan.size);
                if *seen.get_or_insert(sum) != sum {
                    return Err(io::Error::other(format!("copy {} has another sum", i + 1)));
                }
            }
        }
        if self.copies.is_empty() && plan.checksum != Checksum::None {
            std::hint::black_box(sum(source, plan.size));
        }
        if !self.copies.is_empty() || plan.touched == Touched::Last {
            touch(source, plan, self.turn);
        }
        Ok(())
    }

    fn release(&mut self) {
        for copy in self.copies.drain(..) {
            // SAFETY: it came from the allocator and is not used again.
            unsafe { libc::free(copy.cast()) };
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.release();
        // SAFETY: as in `release`.
        unsafe { libc::free(self.received.cast()) };
    }
}

/// Reads one byte of some pages and writes it back: the first page, the last, then spread evenly;
/// moving ones lie a page further in each message.
fn touch(buffer: Buffer, plan: &Plan, turn: usize) {
    let pages = plan.touch_pages.min(plan.size.div_ceil(4096));
    let moved = if plan.touch_moving { turn % plan.size.div_ceil(4096) * 4096 } else { 0 };
    for i in 0..pages {
        let offset = if pages == 1 { 0 } else { i * (plan.size - 1) / (pages - 1) };
        let offset = (offset + moved) % plan.size;
        // SAFETY: the offset is below the buffer's size.
        unsafe {
            let byte = buffer.add(offset);
            byte.write_volatile(byte.read_volatile());
        }
    }
}

/// The sum of all words of a buffer (and the bytes left over), which reads each once.
fn sum(buffer: Buffer, size: usize) -> u64 {
    // SAFETY: the buffer has `size` bytes, and nobody writes to it meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(std::hint::black_box(buffer), size) };
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    words.chain(rest.iter().map(|b| u64::from(*b))).fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_takes_in_every_byte() {
        let mut bytes = vec![1_u8; 19];
        let before = sum(bytes.as_mut_ptr(), 19);
        for i in 0..19 {
            bytes[i] += 1;
            assert_ne!(sum(bytes.as_mut_ptr(), 19), before, "{i}");
            bytes[i] -= 1;
        }
    }
}
