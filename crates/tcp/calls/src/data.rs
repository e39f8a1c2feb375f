//! Bytes: each call on a connection is either Linux's, made as it is, or the ring's.
//!
//! unsafe: buffers and numbers of the program's, which are handed on; `errno`.

use crate::connection::Connection;
use crate::entry::Entry;
use crate::tcp::{Settings, Tcp};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use libc::iovec;
use rustix::io::Errno;
use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use uncopy_kernel::fd_table::FdGuard;
use uncopy_tcp_socket::{Bypass, Flow, Forward, Peer, Settling, Taken, Way};

/// Flags that ask for what rings do not have: errors beside the data, bytes with the connection
/// request, pages sent by reference. The call is made as it is, with its direction back at Linux.
pub const SENDS_OTHERWISE: c_int = libc::MSG_ZEROCOPY | libc::MSG_FASTOPEN;
/// The same of a call that receives.
pub const RECEIVES_OTHERWISE: c_int = libc::MSG_ERRQUEUE;

/// The return value of libc's function.
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
    /// The connection `fd`, for one call that moves bytes, also where it is Linux' for good.
    #[inline]
    pub fn ring(&self, fd: c_int) -> Option<Ring<'_>> {
        // (Most programs have no connection of ours.)
        if self.in_use() { self.found_ring(fd) } else { None }
    }

    #[inline]
    fn found_ring(&self, fd: c_int) -> Option<Ring<'_>> {
        self.thread_may_end();
        let found = self.table.find(fd)?;
        match &*found {
            Entry::Connection(_) => {
                Some(Ring { tcp: self, fd, found: Some(found), begun: self.call_begins() })
            }
            Entry::Set(_) => None,
        }
    }

    /// A call of the program's begins.
    #[inline]
    fn call_begins(&self) -> Begun<'_> {
        Begun(self.settings().map(|settings| (settings, (settings.sleeps)())))
    }

    /// Makes a call. `Err`: as of [`ended`](Self::ended).
    fn interrupted(
        &self,
        call: impl FnOnce() -> Result<usize, Errno>,
        has_timeout: impl FnOnce() -> bool,
    ) -> Result<Result<usize, Errno>, Interrupted> {
        let _begun = self.call_begins();
        self.ended(call(), has_timeout)
    }

    /// The result of a call. `Err`: a handler has interrupted it that does not want that
    /// (SA_RESTART), or the thread was cancelled: it is to sleep again. With a timeout the kernel
    /// does not.
    #[inline]
    fn ended(
        &self,
        called: Result<usize, Errno>,
        has_timeout: impl FnOnce() -> bool,
    ) -> Result<Result<usize, Errno>, Interrupted> {
        match (called, self.settings()) {
            (Err(Errno::INTR), Some(settings))
                if (settings.is_to_end)() || (settings.goes_on)() && !has_timeout() =>
            {
                Err(Interrupted)
            }
            _ => Ok(called),
        }
    }

    /// Makes a call that waits for descriptors: any handler ends it.
    pub(crate) fn waits<R>(&self, call: impl FnOnce() -> R) -> R {
        let _begun = self.call_begins();
        call()
    }

    /// A thread that was cancelled ends here: nothing may be held. Where a call begins, and after
    /// it was interrupted.
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
            Entry::Connection(connection) => !connection.flow.is_linux(),
            Entry::Set(_) => false,
        })
    }

    /// Whether `fd` is a connection whose other end is at the rings too.
    pub fn is_at_ring(&self, fd: c_int) -> bool {
        self.connection(fd).is_some_and(|connection| connection.flow.is_shared())
    }

    /// Whether `fd` is such a connection on which no call waits: O_NONBLOCK is set.
    pub fn is_at_ring_and_never_waits(&self, fd: c_int) -> bool {
        self.connection(fd).is_some_and(|connection| {
            connection.flow.is_shared() && connection.flow.is_nonblocking()
        })
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
        self.connection(fd).is_some_and(|connection| connection.flow.is_not_at_mark())
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
        let connection = self.any_connection(fd)?;
        let flow = &connection.flow;
        if flow.is_linux() {
            // (Bytes that go by a ring after it are told of after it.)
            let _sends = flow.way(true);
            // SAFETY: the program's number, for the kernel, which checks it.
            let socket = unsafe { BorrowedFd::borrow_raw(fd) };
            return Some(answer(rustix::net::shutdown(socket, how).map(|()| 0)));
        }
        Some(answer(flow.shutdown(how).map(|()| 0)))
    }

    /// Sends `bytes` of a file over `fd` by the ring, from `at` on, as far as that can be had
    /// ([`Flow::send_file`]). `None`: nothing was sent.
    pub fn send_file(&self, fd: c_int, file: c_int, at: u64, bytes: usize) -> Option<isize> {
        loop {
            self.thread_may_end();
            let found = self.table.find(fd)?;
            let Entry::Connection(connection) = &*found else { return None };
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

    /// Receives from `fd` by `put` ([`Flow::receive_by`]). `None`: it is no connection that has a
    /// ring.
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

    /// A call that sends past the ring (sendfile, splice), with these flags: until it returns
    /// nothing is sent otherwise. It is made when Linux has what was taken back from the ring:
    /// where it may not wait for that, or is interrupted, it fails.
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
            let Some(connection) = self.any_connection(fd) else { return call() };
            if connection.flow.is_linux() {
                let _sends = connection.flow.way(true);
                return call();
            }
            let mut bypass = None;
            let begins = || {
                bypass = Some(connection.flow.bypasses_to_send(flags)?);
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
            drop(bypass);
            drop(connection);
            self.thread_may_end();
        }
    }
}

/// A call is to be made again.
struct Interrupted;

/// A call of the program's, which handlers interrupt that run from its beginning on: also while its
/// connection is registered, for which the service may have to be started. (Handlers that ran
/// before are of the call that the calling handler has interrupted.)
#[derive(Debug)]
struct Begun<'a>(Option<(&'a Settings, u64)>);

impl Drop for Begun<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((settings, before)) = self.0 {
            (settings.has_slept)(before);
        }
    }
}

/// A connection during one call that moves bytes. It was looked up once, and is looked up again
/// only where a handler has interrupted the call.
#[derive(Debug)]
pub struct Ring<'a> {
    tcp: &'a Tcp,
    fd: c_int,
    /// `None`: the number is no connection any more.
    found: Option<FdGuard<'a, Entry>>,
    begun: Begun<'a>,
}

impl<'a> Ring<'a> {
    #[inline]
    fn connection(&self) -> Option<&Arc<Connection>> {
        match &**self.found.as_ref()? {
            Entry::Connection(connection) => Some(connection),
            Entry::Set(_) => None,
        }
    }

    /// It is Linux' for good: every call on it is made as it is.
    #[inline]
    pub fn is_linux(&self) -> bool {
        self.connection().is_none_or(|connection| connection.flow.is_linux())
    }

    /// The way of a call, one that `sends` or not.
    #[inline]
    pub fn way(&self, sends: bool) -> Way<'_> {
        self.connection().map_or(Way::Linux, |connection| connection.flow.way(sends))
    }

    /// A call of Linux' has received the urgent byte ([`Flow::urgent_is_received`]).
    #[cold]
    pub fn urgent_is_received(&self) {
        if let Some(connection) = self.connection() {
            connection.flow.urgent_is_received();
        }
    }

    /// Sends `parts` by the ring. `None`: the call was interrupted, and goes on; its
    /// [way](Self::way) is to be asked again.
    ///
    /// # Safety
    /// The buffers are the program's: whatever it named.
    #[inline]
    pub unsafe fn send(&mut self, parts: &[iovec], flags: c_int) -> Option<Result<usize, Errno>> {
        // SAFETY: the caller's promise.
        self.call(true, |flow| unsafe { flow.send(parts, flags) })
    }

    /// Whether the receiver may be given what others have given us ([`Flow::gives_on`]).
    #[inline]
    pub fn gives_on(&self, bytes: usize) -> bool {
        self.connection().is_some_and(|connection| connection.flow.gives_on(bytes))
    }

    /// From how many bytes on a message that is sent again may move to this process' own arena
    /// ([`Flow::settles_from`]).
    #[inline]
    pub fn settles_from(&self) -> usize {
        self.connection().map_or(usize::MAX, |connection| connection.flow.settles_from())
    }

    /// Whether so many bytes more may ([`Flow::may_settle`]).
    pub fn may_settle(&self, bytes: usize) -> bool {
        self.connection().is_some_and(|connection| connection.flow.may_settle(bytes))
    }

    /// A block of that arena ([`Flow::settling`]).
    pub fn settling(&self, bytes: usize) -> Option<Settling> {
        self.connection()?.flow.settling(bytes)
    }

    /// Where that lies which has settled and makes room ([`Flow::unused`]).
    pub fn unused(&self) -> Option<(usize, usize)> {
        self.connection()?.flow.unused()
    }

    /// From how many bytes on a part of a kept file may go by the ring ([`Flow::files_from`]).
    pub fn files_from(&self) -> usize {
        self.connection().map_or(usize::MAX, |connection| connection.flow.files_from())
    }

    /// Whether one that is kept goes so ([`Flow::takes_file`]).
    pub fn takes_file(&self) -> bool {
        self.connection().is_some_and(|connection| connection.flow.takes_file())
    }

    /// Some of it was given where it lies ([`Flow::gives_file`]).
    pub fn gives_file(&self) {
        if let Some(connection) = self.connection() {
            connection.flow.gives_file();
        }
    }

    /// Such a part goes so ([`Flow::sends_file`]).
    pub fn sends_file(&self) {
        if let Some(connection) = self.connection() {
            connection.flow.sends_file();
        }
    }

    /// The parts of these that may be given on ([`Flow::forward`]).
    pub fn forward<K>(&self, parts: &[iovec], kept: &mut [Option<K>]) -> Option<Forward>
    where
        K: Any + Send + Sync,
    {
        self.connection()?.flow.forward(parts, kept)
    }

    /// As [`send`](Self::send), and gives on what it can.
    ///
    /// # Safety
    /// The contract is that of the call above.
    pub unsafe fn send_on(
        &mut self,
        parts: &[iovec],
        flags: c_int,
        forward: &Forward,
    ) -> Option<Result<usize, Errno>> {
        // SAFETY: the caller's promise.
        self.call(true, |flow| unsafe { flow.send_on(parts, flags, forward) })
    }

    /// Receives `parts` by the ring. `None`: as for [`send`](Self::send).
    ///
    /// # Safety
    /// The buffers are the program's: whatever it named.
    #[inline]
    pub unsafe fn receive(
        &mut self,
        parts: &[iovec],
        flags: c_int,
    ) -> Option<Result<usize, Errno>> {
        // SAFETY: the caller's promise.
        self.call(false, |flow| unsafe { flow.receive(parts, flags) })
    }

    /// Some call has received as much as may come in a block ([`Flow::brings_much`]).
    #[inline]
    pub fn brings_much(&self) -> bool {
        self.connection().is_some_and(|connection| connection.flow.brings_much())
    }

    /// The other side's arena, of which blocks come here.
    pub fn peer(&self) -> Option<Arc<Peer>> {
        self.connection()?.flow.peer()
    }

    /// How many of the next bytes lie in blocks ([`Flow::await_blocks`]). `None`: the call is to be
    /// made as any other.
    pub fn await_blocks(
        &mut self,
        sizes: (usize, usize),
        flags: c_int,
    ) -> Option<Result<usize, Errno>> {
        self.call(false, |flow| flow.await_blocks(sizes, flags)).filter(|there| *there != Ok(0))
    }

    /// Takes them ([`Flow::take_blocks`]). `None`: as above.
    pub fn take_blocks(&self, room: usize) -> Option<Taken> {
        self.connection()?.flow.take_blocks(room)
    }

    /// The bytes that were taken so are viewed, or were copied ([`Flow::views_blocks`]).
    pub fn views_blocks(&self, bytes: usize, viewed: bool) {
        if let Some(connection) = self.connection() {
            connection.flow.views_blocks(bytes, viewed);
        }
    }

    /// Receives what is there behind what the call has received already ([`Flow::receive_more`]).
    ///
    /// # Safety
    /// As for [`receive`](Self::receive).
    pub unsafe fn receive_more(&mut self, parts: &[iovec], flags: c_int) -> usize {
        // SAFETY: the caller's promise.
        let more = self.call(false, |flow| Ok(unsafe { flow.receive_more(parts, flags) }));
        more.and_then(Result::ok).unwrap_or(0)
    }

    #[inline]
    fn call(
        &mut self,
        room: bool,
        call: impl Fn(&Flow) -> Result<usize, Errno>,
    ) -> Option<Result<usize, Errno>> {
        let connection = self.connection()?;
        let flow = &connection.flow;
        let called = self.tcp.ended(call(flow), || flow.has_timeout(room));
        if called.is_err() {
            self.look_again();
        }
        called.ok()
    }

    /// After the call was interrupted: its thread may end here, and its number may be another's.
    #[cold]
    pub fn look_again(&mut self) {
        // Nothing is held where a thread may end.
        self.found = None;
        self.begun = Begun(None);
        *self = match self.tcp.found_ring(self.fd) {
            Some(ring) => ring,
            None => Self { tcp: self.tcp, fd: self.fd, found: None, begun: Begun(None) },
        };
    }

    /// The call sends what rings do not carry ([`SENDS_OTHERWISE`]): its direction goes back to
    /// Linux, if that can be at once.
    pub fn sends_otherwise(&self) {
        if let Some(connection) = self.connection() {
            let _ = self.tcp.by_linux(connection, Duration::ZERO);
        }
    }

    /// The call sends past the ring, with these flags. Sending is Linux's until what is returned is
    /// dropped; `Ok(None)`: it is so anyway. `None`: the call was interrupted, and goes on after
    /// [`look_again`](Self::look_again).
    pub fn bypass(&self, flags: c_int) -> Option<Result<Option<Bypass<'_>>, Errno>> {
        let Some(connection) = self.connection() else { return Some(Ok(None)) };
        let flow = &connection.flow;
        let mut bypass = None;
        let mut begins = || {
            bypass = Some(flow.bypasses_to_send(flags)?);
            Ok(0)
        };
        match self.tcp.ended(begins(), || flow.has_timeout(true)) {
            Ok(begun) => Some(begun.map(|_| bypass)),
            Err(Interrupted) => None,
        }
    }
}
