//! Calls that carry bytes.

use super::{Said, errno};
use core::ffi::{c_int, c_void};
use core::str::FromStr;
use libc::{iovec, mmsghdr, msghdr};
use uncopy_differ::op::{RecvBy, SendBy};
use uncopy_differ::stream::{self, Digest};

/// So long a stream waits for room, longer than any script: whether it should have had some is the
/// driver's to say, which makes the other side receive.
const TIMEOUT: c_int = 100_000;

/// A thread that makes calls.
#[derive(Debug, Default)]
pub struct Worker {
    buffer: Vec<u8>,
}

fn to<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("the driver said {word}"))
}

/// A buffer cut into pieces, of which one may be empty.
fn cut(buffer: &mut [u8], pieces: usize) -> Vec<iovec> {
    let at = buffer.as_mut_ptr();
    let piece = buffer.len().div_ceil(pieces.max(1)).max(1);
    let mut all: Vec<iovec> = buffer
        .chunks_mut(piece)
        .map(|part| iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() })
        .collect();
    if pieces > 2 || all.is_empty() {
        all.insert(all.len() / 2, iovec { iov_base: at.cast(), iov_len: 0 });
    }
    all
}

fn header(parts: &mut [iovec]) -> msghdr {
    // SAFETY: plain data.
    let mut header: msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = parts.len();
    header
}

fn pipe() -> [c_int; 2] {
    let mut ends = [-1; 2];
    // SAFETY: writes two numbers.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0, "no pipe");
    ends
}

fn close(fds: &[c_int]) {
    for fd in fds {
        // SAFETY: our own descriptor.
        unsafe { libc::close(*fd) };
    }
}

impl Worker {
    /// `send fd by len flags key from pieces`
    pub fn send(&mut self, words: &[&str]) -> Said {
        let (fd, by, len): (c_int, SendBy, usize) = (to(words[1]), to(words[2]), to(words[3]));
        let (flags, key, from): (c_int, u64, u64) = (to(words[4]), to(words[5]), to(words[6]));
        self.buffer.resize(len, 0);
        stream::fill(key, from, &mut self.buffer);
        let start: *const c_void = self.buffer.as_ptr().cast();
        let mut parts = cut(&mut self.buffer, to(words[7]));
        let count = parts.len() as c_int;
        // SAFETY: our own buffer and lists; numbers of the script's.
        unsafe {
            Said::of(match by {
                SendBy::Write => libc::write(fd, start, len) as i64,
                SendBy::Writev => libc::writev(fd, parts.as_ptr(), count) as i64,
                SendBy::Send => libc::send(fd, start, len, flags) as i64,
                SendBy::Sendto => libc::sendto(fd, start, len, flags, core::ptr::null(), 0) as i64,
                SendBy::Sendmsg => libc::sendmsg(fd, &header(&mut parts), flags) as i64,
                SendBy::Sendmmsg => {
                    let (one, other) = self.buffer.split_at_mut(len / 2);
                    let mut parts = [cut(one, 1), cut(other, 2)];
                    let mut messages: Vec<mmsghdr> = parts
                        .iter_mut()
                        .map(|parts| mmsghdr { msg_hdr: header(parts), msg_len: 0 })
                        .collect();
                    let sent = libc::sendmmsg(fd, messages.as_mut_ptr(), 2, flags);
                    let taken = usize::try_from(sent).unwrap_or(0);
                    let bytes = messages.iter().take(taken).map(|m| i64::from(m.msg_len)).sum();
                    if sent < 0 { -1 } else { bytes }
                }
                SendBy::Sendfile => {
                    let file = libc::memfd_create(c"differ".as_ptr(), libc::MFD_CLOEXEC);
                    assert_eq!(libc::write(file, start, len), len as isize, "a file in memory");
                    let mut at = 0;
                    let said = Said::of(libc::sendfile(fd, file, &mut at, len) as i64);
                    close(&[file]);
                    return said;
                }
                SendBy::Splice => {
                    let [read, write] = pipe();
                    let len = libc::write(write, start, len.min(1 << 16)).max(0) as usize;
                    let more = if flags & libc::MSG_MORE != 0 { libc::SPLICE_F_MORE } else { 0 };
                    let none = core::ptr::null_mut();
                    let said = Said::of(libc::splice(read, none, fd, none, len, more) as i64);
                    close(&[read, write]);
                    return said;
                }
            })
        }
    }

    /// `recv fd by len flags pieces`
    pub fn receive(&mut self, words: &[&str]) -> Said {
        let (fd, by, len): (c_int, RecvBy, usize) = (to(words[1]), to(words[2]), to(words[3]));
        let flags: c_int = to(words[4]);
        self.buffer.clear();
        self.buffer.resize(len, 0xee);
        let start: *mut c_void = self.buffer.as_mut_ptr().cast();
        let mut parts = cut(&mut self.buffer, to(words[5]));
        let count = parts.len() as c_int;
        // SAFETY: as above.
        let mut said = unsafe {
            Said::of(match by {
                RecvBy::Read => libc::read(fd, start, len) as i64,
                RecvBy::Readv => libc::readv(fd, parts.as_ptr(), count) as i64,
                RecvBy::Recv => libc::recv(fd, start, len, flags) as i64,
                RecvBy::Recvfrom => {
                    let none = core::ptr::null_mut();
                    libc::recvfrom(fd, start, len, flags, none, core::ptr::null_mut()) as i64
                }
                RecvBy::Recvmsg => libc::recvmsg(fd, &mut header(&mut parts), flags) as i64,
                RecvBy::Recvmmsg => {
                    let mut message = mmsghdr { msg_hdr: header(&mut parts), msg_len: 0 };
                    match libc::recvmmsg(fd, &mut message, 1, flags, core::ptr::null_mut()) {
                        1 => i64::from(message.msg_len),
                        other => i64::from(other),
                    }
                }
                RecvBy::Splice => return self.receive_by_pipe(fd, len),
            })
        };
        let got = usize::try_from(said.result).unwrap_or(0).min(len);
        said.digest = Digest::of(&self.buffer[..got]);
        said
    }

    fn receive_by_pipe(&mut self, fd: c_int, len: usize) -> Said {
        let [read, write] = pipe();
        let none = core::ptr::null_mut();
        // SAFETY: numbers, and our own buffer, which is large enough.
        unsafe {
            let mut said = Said::of(libc::splice(fd, none, write, none, len, 0) as i64);
            let mut got = 0;
            while (got as i64) < said.result {
                let left = said.result as usize - got;
                let at = self.buffer.as_mut_ptr().add(got).cast();
                let more = libc::read(read, at, left);
                assert!(more > 0, "the pipe has less than was spliced");
                got += more as usize;
            }
            said.digest = Digest::of(&self.buffer[..got]);
            close(&[read, write]);
            said
        }
    }

    /// `stream fd len chunk fill edge key from`: all of it, or (`fill`) as much as there is room
    /// for.
    pub fn stream(&mut self, words: &[&str]) -> Said {
        let (fd, len, chunk): (c_int, usize, usize) = (to(words[1]), to(words[2]), to(words[3]));
        let (fill, edge) = (words[4] == "true", words[5] == "true");
        let (key, from): (u64, u64) = (to(words[6]), to(words[7]));
        self.buffer.resize(len, 0);
        stream::fill(key, from, &mut self.buffer);
        let mut event =
            libc::epoll_event { events: (libc::EPOLLOUT | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: our own buffer, set and lists; a number of the script's.
        let (mut said, sent) = unsafe {
            let set = if edge { libc::epoll_create1(libc::EPOLL_CLOEXEC) } else { -1 };
            if edge {
                libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &mut event);
            }
            let mut sent = 0;
            let said = loop {
                if sent == len {
                    break Said::of(0);
                }
                let piece = chunk.min(len - sent);
                let wait = if fill { libc::MSG_DONTWAIT } else { 0 };
                let at = self.buffer.as_ptr().add(sent).cast();
                let n = libc::send(fd, at, piece, libc::MSG_NOSIGNAL | wait);
                if n >= 0 {
                    sent += n as usize;
                } else if errno() == libc::EAGAIN && fill {
                    break Said::of(0);
                } else if errno() == libc::EAGAIN {
                    let mut asked = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
                    let ready = match edge {
                        true => libc::epoll_wait(set, &mut event, 1, TIMEOUT),
                        false => libc::poll(&mut asked, 1, TIMEOUT),
                    };
                    if ready == 0 {
                        break Said { result: -1, errno: libc::ETIMEDOUT, ..Said::default() };
                    }
                } else if errno() != libc::EINTR {
                    break Said::of(-1);
                }
            };
            if edge {
                close(&[set]);
            }
            (said, sent)
        };
        said.more = vec![sent as u64];
        said
    }
}
