//! Bytes: each call on a connection is either Linux's, made as it is, or the ring's.
//!
//! unsafe: buffers and numbers of the program's, which are handed on; `errno`.

use crate::numbers::What;
use crate::tcp::{Connection, Tcp};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use libc::iovec;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use uncopy_tcp_socket::{Flow, Way};

/// Flags that ask for what rings do not have: errors beside the data, bytes with the connection request, pages sent by reference. The call is made
/// as it is, with its direction back at Linux.
const SENDS_OTHERWISE: c_int = libc::MSG_ZEROCOPY | libc::MSG_FASTOPEN;
const RECEIVES_OTHERWISE: c_int = libc::MSG_ERRQUEUE;

/// What libc's function returns.
pub fn answer(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(bytes) => bytes as isize,
        Err(error) => {
            // SAFETY: errno's address is always valid.
            unsafe { *libc::__errno_location() = error.raw_os_error() };
            -1
        }
    }
}

impl Tcp {
    /// A call that sends `parts` over `fd`; `plain` makes it by Linux.
    ///
    /// # Safety
    /// The buffers are the program's: whatever it named.
    #[inline]
    pub unsafe fn send<const N: usize>(
        &self,
        fd: c_int,
        flags: c_int,
        parts: impl FnOnce() -> Option<Parts<N>>,
        plain: impl FnOnce() -> isize,
    ) -> isize {
        // (Most programs have no connection of ours.)
        if !self.in_use() {
            return plain();
        }
        let parts = |connection: &Connection| {
            if flags & SENDS_OTHERWISE != 0 {
                let _ = self.by_linux(connection, core::time::Duration::ZERO);
                return None;
            }
            parts()
        };
        // SAFETY: the caller's promise.
        let call = |flow: &Flow, parts: &[iovec]| unsafe { flow.send(parts, flags) };
        let plain = || match flags & SENDS_OTHERWISE {
            0 => plain(),
            _ => self.sending_past(fd, flags, plain),
        };
        self.made(fd, true, parts, call, plain)
    }

    /// A call that receives `parts` from `fd`; `plain` makes it by Linux.
    ///
    /// # Safety
    /// The buffers are the program's: whatever it named.
    #[inline]
    pub unsafe fn receive<const N: usize>(
        &self,
        fd: c_int,
        flags: c_int,
        parts: impl FnOnce() -> Option<Parts<N>>,
        plain: impl FnOnce() -> isize,
    ) -> isize {
        if !self.in_use() {
            return plain();
        }
        let parts = |_: &Connection| if flags & RECEIVES_OTHERWISE != 0 { None } else { parts() };
        // SAFETY: the caller's promise.
        let call = |flow: &Flow, parts: &[iovec]| unsafe { flow.receive(parts, flags) };
        self.made(fd, false, parts, call, plain)
    }

    /// A call that waits for room, or for bytes: by `call` where `fd` is a connection whose calls are made here and has `parts` for it, else by `plain`.
    #[inline(never)]
    fn made<const N: usize>(
        &self,
        fd: c_int,
        room: bool,
        parts: impl FnOnce(&Connection) -> Option<Parts<N>>,
        call: impl Fn(&Flow, &[iovec]) -> Result<usize, Errno>,
        plain: impl FnOnce() -> isize,
    ) -> isize {
        let (mut parts, mut listed) = (Some(parts), None);
        loop {
            self.thread_may_end();
            let Some(found) = self.numbers.find(fd) else { return plain() };
            let What::Connection(connection) = &*found else { return plain() };
            let flow = &connection.flow;
            match flow.way(room) {
                Way::Linux => return plain(),
                Way::Past(_past) => return plain(),
                Way::Here => {}
            }
            if let Some(parts) = parts.take() {
                listed = parts(connection);
            }
            // (A list that the kernel refuses; or flags for it.)
            let Some(parts) = &listed else { return plain() };
            let called =
                self.interrupted(|| call(flow, parts.as_slice()), || flow.has_timeout(room));
            // Nothing is held where a thread may end.
            drop(found);
            if let Ok(outcome) = called {
                return answer(outcome);
            }
        }
    }

    /// Makes a call. `Err`: a handler has interrupted it that does not want that (SA_RESTART), or the thread was cancelled: it is to sleep again.
    /// With a timeout the kernel does not.
    fn interrupted(
        &self,
        call: impl FnOnce() -> Result<usize, Errno>,
        has_timeout: impl FnOnce() -> bool,
    ) -> Result<Result<usize, Errno>, Interrupted> {
        let Some(settings) = self.settings() else { return Ok(call()) };
        (settings.sleeps)();
        match call() {
            Err(Errno::INTR)
                if (settings.is_to_end)() || (settings.goes_on)() && !has_timeout() =>
            {
                Err(Interrupted)
            }
            other => Ok(other),
        }
    }

    /// A thread that was cancelled ends here: nothing may be held. Where a call begins, and after it was interrupted.
    #[inline]
    pub fn thread_may_end(&self) {
        if self.cancels.load(Relaxed)
            && let Some(settings) = self.settings()
        {
            (settings.ends)();
        }
    }

    /// Whether `fd` is a connection whose bytes do not go through Linux alone.
    #[inline]
    pub fn is_connection(&self, fd: c_int) -> bool {
        self.find(fd).is_some_and(|found| match &*found {
            What::Connection(connection) => !connection.flow.is_linux(),
            What::Set(_) => false,
        })
    }

    /// Whether `fd` is a connection whose other end is at the rings too.
    pub fn is_at_ring(&self, fd: c_int) -> bool {
        self.connection(fd).is_some_and(|connection| connection.flow.is_shared())
    }

    /// The program has set O_NONBLOCK, or cleared it.
    pub fn set_nonblocking(&self, fd: c_int, nonblocking: bool) {
        if let Some(connection) = self.connection(fd) {
            connection.flow.set_nonblocking(nonblocking);
        }
    }

    /// The program has set SO_RCVTIMEO or SO_SNDTIMEO.
    pub fn timeouts_changed(&self, fd: c_int) {
        if let Some(connection) = self.connection(fd) {
            connection.flow.refresh_timeouts();
        }
    }

    /// Bytes that rings hold beside what the kernel says of FIONREAD and SIOCOUTQ.
    pub fn queued(&self, fd: c_int) -> (u32, u32) {
        self.connection(fd).map_or((0, 0), |connection| connection.flow.queued())
    }

    /// Whether a ring has bytes ahead of the mark of urgent data that SIOCATMARK asks for.
    pub fn mark_is_behind(&self, fd: c_int) -> bool {
        self.connection(fd).is_some_and(|connection| connection.flow.mark_is_behind())
    }

    /// shutdown(2). `None`: it is Linux's.
    pub fn shutdown(&self, fd: c_int, how: c_int) -> Option<isize> {
        use rustix::net::Shutdown;
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return None,
        };
        let connection = self.connection(fd)?;
        Some(answer(connection.flow.shutdown(how).map(|()| 0)))
    }

    /// Sends `bytes` of a file over `fd` by the ring, from `at` on, as far as that can be had ([`Flow::send_file`]). `None`: nothing was sent.
    pub fn send_file(&self, fd: c_int, file: c_int, at: u64, bytes: usize) -> Option<isize> {
        loop {
            self.thread_may_end();
            let found = self.numbers.find(fd)?;
            let What::Connection(connection) = &*found else { return None };
            let flow = &connection.flow;
            if file < 0 || !flow.is_attached() {
                return None;
            }
            // SAFETY: the program's number, for the kernel, which checks it.
            let file = unsafe { BorrowedFd::borrow_raw(file) };
            let mut is_elsewhere = false;
            let send = || {
                let sent = flow.send_file(file, at, bytes)?;
                is_elsewhere = sent.is_none();
                Ok(sent.unwrap_or(0))
            };
            let sent = self.interrupted(send, || flow.has_timeout(true));
            drop(found);
            if let Ok(sent) = sent {
                return (!is_elsewhere).then(|| answer(sent));
            }
        }
    }

    /// Receives from `fd` by `put` ([`Flow::receive_by`]). `None`: it is no connection that has a ring.
    pub fn receive_by(
        &self,
        fd: c_int,
        room: &mut [u8],
        flags: c_int,
        mut put: impl FnMut(&[u8]) -> Result<usize, Errno>,
    ) -> Option<Result<usize, Errno>> {
        loop {
            self.thread_may_end();
            let connection =
                self.connection(fd).filter(|connection| connection.flow.is_attached())?;
            let flow = &connection.flow;
            let receive = || flow.receive_by(room, flags, &mut put);
            if let Ok(received) = self.interrupted(receive, || flow.has_timeout(false)) {
                return Some(received);
            }
        }
    }

    /// A call that sends past the ring (sendfile, splice), with these flags: until it returns nothing is sent otherwise. It is made when Linux has what was taken back from
    /// the ring: where it may not wait for that, or is interrupted, it fails.
    #[inline]
    pub fn sending_past<R: From<i8>>(
        &self,
        fd: c_int,
        flags: c_int,
        call: impl FnOnce() -> R,
    ) -> R {
        if self.in_use() { self.past_the_ring(fd, flags, call) } else { call() }
    }

    #[inline(never)]
    fn past_the_ring<R: From<i8>>(&self, fd: c_int, flags: c_int, call: impl FnOnce() -> R) -> R {
        loop {
            let Some(connection) = self.connection(fd) else { return call() };
            let mut past = None;
            let begins = || {
                past = Some(connection.flow.sends_past(flags)?);
                Ok(0)
            };
            match self.interrupted(begins, || connection.flow.has_timeout(true)) {
                Ok(Ok(_)) => return call(),
                Ok(Err(error)) => {
                    answer(Err(error));
                    return R::from(-1);
                }
                Err(Interrupted) => {}
            }
            drop(past);
            drop(connection);
            self.thread_may_end();
        }
    }
}

/// A call is to be made again.
struct Interrupted;

/// The buffers of a call.
#[derive(Debug)]
pub enum Parts<const N: usize> {
    /// A few.
    Few([iovec; N]),
    /// Many.
    Many(Vec<iovec>),
}

impl Parts<1> {
    /// One.
    #[inline]
    pub fn one(at: *const core::ffi::c_void, bytes: usize) -> Option<Self> {
        Some(Self::Few([iovec { iov_base: at.cast_mut(), iov_len: bytes }]))
    }
}

impl<const N: usize> Parts<N> {
    #[inline]
    fn as_slice(&self) -> &[iovec] {
        match self {
            Self::Few(few) => few,
            Self::Many(many) => many,
        }
    }
}
