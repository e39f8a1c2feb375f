//! A program's side: says hello, registers sockets, and learns what became of them without a system
//! call while nothing has.
//!
//! unsafe: the mailbox's mapping; a question that rustix does not know.

use crate::ends::{self, EndName};
use crate::owner::is_somebody;
use crate::proof::Proof;
use crate::protocol::{self, CARRIES, GIVERS, Message, TAKES, VERSION};
use crate::state::State;
use crate::wired::Wired;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Uid;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use uncopy_kernel::descriptors::Kept;
use uncopy_kernel::placement;
use uncopy_tcp_shared::layout::PAGE;

/// So long an answer is waited for. A service that has a core takes microseconds.
const TIMEOUT: Duration = Duration::from_secs(1);

/// So long for the whole state, for which no program waits: of 64,000 connections it takes a
/// quarter of a second of a core, and 3.5 s where eight busy servers share that core.
const TELLING: Duration = Duration::from_secs(10);

/// Bytes that tell of one connection over the wire, at most.
pub(crate) const INFO: usize = 512;

/// The connection to the service.
#[derive(Debug)]
pub struct Client {
    socket: Kept,
    mailbox: NonNull<AtomicU32>,
    seen: AtomicU32,
    wire: u64,
    user: Uid,
}

// SAFETY: the mapping belongs to no thread, and is an atomic.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl Client {
    /// Says hello. `doors` are eventfds by which this program wants to be woken. EACCES: the name
    /// belongs to another user's process; EPROTO: it speaks another version.
    pub fn connect(name: &str, doors: &[BorrowedFd]) -> Result<Self, Errno> {
        let (socket, user) = (open(name)?, rustix::process::geteuid());
        protocol::send(socket.as_fd(), Message::Hello(VERSION), doors)?;
        let (message, fds) = answer(&socket, TIMEOUT)?;
        let (Message::Welcome { version: VERSION, wire }, [mailbox]) = (message, fds.as_slice())
        else {
            return Err(Errno::PROTO);
        };
        let at = placement::SMALL.next(PAGE) as *mut _;
        // SAFETY: a new mapping. It is the service's, which we have to trust not to shorten it: it
        // is of our user, or root's.
        let mailbox =
            unsafe { rustix::mm::mmap(at, PAGE, ProtFlags::READ, MapFlags::SHARED, mailbox, 0) }?;
        let mailbox = NonNull::new(mailbox.cast()).ok_or(Errno::NOMEM)?;
        let (socket, seen) = (Kept::new(socket)?, AtomicU32::new(0));
        Ok(Self { socket, mailbox, seen, wire, user })
    }

    /// This process may still be the user as whom the service knows it.
    pub fn is_users(&self) -> bool {
        let [mut real, mut effective, mut saved] = [0; 3];
        // SAFETY: written to.
        let failed = unsafe { libc::getresuid(&mut real, &mut effective, &mut saved) };
        failed != 0 || [real, effective, saved].contains(&self.user.as_raw())
    }

    /// Registers a socket, which is this end of a connection. The answer comes later, or never. The
    /// socket itself stays here.
    pub fn register(&self, token: u64, socket: BorrowedFd, name: EndName) -> Result<(), Errno> {
        let message = Message::Register { token, name, filtered: ends::has_filter(socket) };
        protocol::send(self.socket.as_fd(), message, &[Proof::of(socket)?.as_fd()])
    }

    /// The socket that was registered by this name is closed, and no answer has come. (One may
    /// still come.)
    pub fn forgets(&self, token: u64) -> Result<(), Errno> {
        protocol::send(self.socket.as_fd(), Message::Forget { token }, &[])
    }

    /// Registers a socket that [listens](ends::listens) here, to a service that
    /// [takes](Self::takes) connections for it.
    pub fn listens(&self, socket: BorrowedFd, at: SocketAddrV4) -> Result<(), Errno> {
        let message = Message::Listen { address: at.ip().to_bits().into(), port: at.port().into() };
        protocol::send(self.socket.as_fd(), message, &[Proof::of(socket)?.as_fd()])
    }

    /// Says that a socket that listens here is to be Linux's again, and waits until it is. False:
    /// the service could not be told; or it has gone.
    pub fn withdraws(&self, socket: BorrowedFd, at: SocketAddrV4) -> Result<bool, Errno> {
        let ((own, theirs), proof) = (pair()?, Proof::of(socket)?);
        let message =
            Message::Withdraw { address: at.ip().to_bits().into(), port: at.port().into() };
        protocol::send(self.socket.as_fd(), message, &[proof.as_fd(), theirs.as_fd()])?;
        drop(theirs);
        wait(&own, TIMEOUT)?;
        let (got, _) = rustix::net::recv(&own, &mut [0], RecvFlags::DONTWAIT)?;
        Ok(got == 1)
    }

    /// The service takes connections from other hosts.
    pub fn takes(&self) -> bool {
        self.wire & TAKES != 0
    }

    /// The service carries connections to other hosts.
    pub fn carries(&self) -> bool {
        self.wire & CARRIES != 0
    }

    /// The service has ended.
    pub fn is_over(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
        poll(&mut fds, Some(&now)) == Ok(1)
    }

    /// Says that a socket is about to connect to another host, and waits for the answer. True: it
    /// is to connect, and the service has made it so that its segments come to it. Not longer than
    /// a service needs that has a core: then the connection is Linux's.
    pub fn connects(&self, socket: BorrowedFd, to: SocketAddrV4) -> Result<bool, Errno> {
        let (own, theirs) = pair()?;
        let message =
            Message::Connect { address: to.ip().to_bits().into(), port: to.port().into() };
        protocol::send(self.socket.as_fd(), message, &[socket, theirs.as_fd()])?;
        drop(theirs);
        wait(&own, TIMEOUT)?;
        let mut byte = [0];
        let (got, _) = rustix::net::recv(&own, &mut byte, RecvFlags::DONTWAIT)?;
        Ok(got == 1)
    }

    /// The service's knowledge of the connection of this socket, which it carries over its wire.
    /// None: it carries none.
    pub fn info(&self, socket: BorrowedFd) -> Result<Option<Wired>, Errno> {
        let (own, theirs) = pair()?;
        protocol::send(self.socket.as_fd(), Message::Info, &[socket, theirs.as_fd()])?;
        drop(theirs);
        wait(&own, TIMEOUT)?;
        let mut bytes = [0; INFO];
        let (got, _) = rustix::net::recv(&own, &mut bytes, RecvFlags::DONTWAIT)?;
        Ok(Wired::of_bytes(&bytes[..got]))
    }

    /// Says that such a socket is closed before it was connected.
    pub fn closes(&self, cookie: u64) -> Result<(), Errno> {
        protocol::send(self.socket.as_fd(), Message::Closes { cookie }, &[])
    }

    /// Gives the other side of a connection a door of its own for it.
    pub fn door(
        &self,
        (region, side): (u64, usize),
        (slot, generation): (usize, u32),
        door: BorrowedFd,
    ) -> Result<(), Errno> {
        let (side, slot, generation) = (side as u64, slot as u64, generation.into());
        let message = Message::Door { region, slot, side, generation };
        protocol::send(self.socket.as_fd(), message, &[door])
    }

    /// Lets the other side of a region map an arena of blocks, which runs name by this number, and
    /// which is this one of all that ever had it. It came `by` these regions.
    pub fn arena(
        &self,
        (region, side): (u64, usize),
        (number, generation): (u16, u32),
        memory: BorrowedFd,
        by: [u64; GIVERS],
    ) -> Result<(), Errno> {
        let (side, number) = (side as u64, number.into());
        let message = Message::Arena { region, side, number, generation, by };
        protocol::send(self.socket.as_fd(), message, &[memory])
    }

    /// Says that the arena of this number is an ended program's: nothing names it any more, and
    /// then nothing does that is unread.
    pub fn arena_ends(
        &self,
        (region, side): (u64, usize),
        (number, generation): (u16, u32),
        done: bool,
    ) -> Result<(), Errno> {
        let (side, number, done) = (side as u64, number.into(), done.into());
        let message = Message::ArenaEnds { region, side, number, generation, done };
        protocol::send(self.socket.as_fd(), message, &[])
    }

    /// A region's memory did not come with the slot that was given.
    pub fn misses(&self, region: u64, side: u64, slot: u64, generation: u64) -> Result<(), Errno> {
        let message = Message::Missing { region, slot, side, generation };
        protocol::send(self.socket.as_fd(), message, &[])
    }

    /// Has a socket relayed to what stands in for it: what is in `first` comes before what the
    /// socket still brings. Begins when it is told how much that is. An error: the service does not
    /// do that, and nothing has happened.
    pub fn relay(
        &self,
        socket: BorrowedFd,
        stand_in: BorrowedFd,
        first: BorrowedFd,
    ) -> Result<Relaying, Errno> {
        let (own, theirs) = pair()?;
        let with = [socket, stand_in, first, theirs.as_fd()];
        protocol::send(self.socket.as_fd(), Message::Relay, &with)?;
        drop(theirs);
        wait(&own, TIMEOUT)?;
        match rustix::net::recv(&own, &mut [0], RecvFlags::DONTWAIT)? {
            (1, _) => Ok(Relaying(own)),
            _ => Err(Errno::CONNREFUSED),
        }
    }

    /// There may be messages: one load.
    #[inline]
    pub fn has_news(&self) -> bool {
        // SAFETY: mapped as long as `self` lives.
        let count = unsafe { self.mailbox.as_ref() }.load(Ordering::Acquire);
        count != self.seen.load(Ordering::Relaxed)
    }

    /// The next message, if there is one.
    pub fn next(&self) -> Option<(Message, Vec<OwnedFd>)> {
        // SAFETY: as above. Read before the socket: what is counted then was sent before.
        let count = unsafe { self.mailbox.as_ref() }.load(Ordering::Acquire);
        let got = protocol::receive(self.socket.as_fd(), RecvFlags::DONTWAIT).ok();
        if got.is_none() {
            self.seen.store(count, Ordering::Relaxed);
        }
        got
    }
}

/// A relay that the service has begun, as long as this is kept.
#[derive(Debug)]
pub struct Relaying(OwnedFd);

impl Relaying {
    /// So many bytes come first. Now it goes on by itself.
    pub fn goes_on(self, bytes: u64) -> Result<(), Errno> {
        rustix::net::send(&self.0, &bytes.to_ne_bytes(), SendFlags::NOSIGNAL).map(drop)
    }
}

/// A pair of sockets, for the answer to one message.
fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (unix, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socketpair(unix, kind, SocketFlags::CLOEXEC, None)
}

/// Connects. ECONNREFUSED: there is no service of this name; EACCES: the name belongs to another
/// user's process; EAGAIN: it does not take those that have come already, and is not waited for.
pub(crate) fn open(name: &str) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (unix, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(unix, kind, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    let (_, owner) = ends::peer(&socket).ok_or(Errno::NOTCONN)?;
    if ![0, rustix::process::geteuid().as_raw()].contains(&owner) || !is_somebody(owner) {
        return Err(Errno::ACCESS);
    }
    Ok(socket)
}

/// See [`answer`]. Signals do not make it longer.
fn wait(socket: &OwnedFd, timeout: Duration) -> Result<(), Errno> {
    let end = Instant::now() + timeout;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            Ok(0) => return Err(Errno::TIMEDOUT),
            polled => return polled.map(drop),
        }
    }
}

/// It answers at once. Somebody who has stopped it shall not stop us.
fn answer(socket: &OwnedFd, timeout: Duration) -> Result<(Message, Vec<OwnedFd>), Errno> {
    wait(socket, timeout)?;
    protocol::receive(socket.as_fd(), RecvFlags::DONTWAIT)
}

/// Asks a service for its state. ECONNREFUSED: there is none; ECONNRESET: it is another user's;
/// EPROTO: it is of another build.
pub fn tell(name: &str) -> Result<State, Errno> {
    let socket = open(name)?;
    protocol::send(socket.as_fd(), Message::Tell, &[])?;
    match answer(&socket, TELLING)? {
        (Message::Told { words }, fds) if fds.len() == 1 => State::read(&fds[0], words),
        _ => Err(Errno::PROTO),
    }
}

/// Frames that a service writes to a file, until this is dropped.
#[derive(Debug)]
pub struct Tracing(OwnedFd);

/// Has a service's frames written to a file, of connections with this end, as far as it matters.
/// ECONNREFUSED: there is no service; EOPNOTSUPP: it has no wire; EPERM: it serves several users,
/// and this is not its own; EBUSY: somebody else has this.
pub fn trace(
    name: &str,
    (address, port): (Option<Ipv4Addr>, Option<u16>),
    file: BorrowedFd,
) -> Result<Tracing, Errno> {
    let socket = open(name)?;
    let message = Message::Trace {
        address: address.map_or(0, Ipv4Addr::to_bits).into(),
        port: port.unwrap_or(0).into(),
    };
    protocol::send(socket.as_fd(), message, &[file])?;
    traced(&socket)?;
    Ok(Tracing(socket))
}

fn traced(socket: &OwnedFd) -> Result<u64, Errno> {
    match answer(socket, TIMEOUT)? {
        (Message::Traced { frames, error: 0 }, _) => Ok(frames),
        (Message::Traced { error, .. }, _) => Err(Errno::from_raw_os_error(error as i32)),
        _ => Err(Errno::PROTO),
    }
}

impl Tracing {
    /// Ends it. How many frames are in the file.
    ///
    /// # Errors
    /// The error that kept a frame from being written; ECONNRESET: the service has ended.
    pub fn end(self) -> Result<u64, Errno> {
        match protocol::send(self.0.as_fd(), Message::EndTrace, &[]) {
            Err(Errno::PIPE) => Err(Errno::CONNRESET),
            sent => sent.and_then(|()| traced(&self.0)),
        }
    }
}

impl AsFd for Tracing {
    /// Readable when the service has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: ours.
        let _ = unsafe { rustix::mm::munmap(self.mailbox.as_ptr().cast(), PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// As a timer of the program's does it.
    #[test]
    fn signals_that_come_all_the_time_do_not_make_it_wait_for_longer() {
        extern "C" fn nothing(_: i32) {}
        // SAFETY: a handler that does nothing, and does not have calls begun again.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        }
        let (own, _theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        // SAFETY: asks only.
        let (thread, done) = (unsafe { libc::gettid() }, AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let begun = Instant::now();
                while !done.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(5) {
                    let process = std::process::id();
                    // SAFETY: a signal that is handled, to a thread that waits for this one.
                    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
            let begun = Instant::now();
            assert_eq!(wait(&own, TIMEOUT), Err(Errno::TIMEDOUT));
            done.store(true, Ordering::Relaxed);
            assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        });
    }

    #[test]
    fn a_service_that_takes_nobody_is_not_waited_for() {
        let name = format!("uncopy-tcp-test-full-{}", std::process::id());
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let socket = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .unwrap()
        };
        let listener = socket();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let mut waiting = vec![];
        loop {
            let socket = socket();
            match rustix::net::connect(&socket, &address) {
                Err(Errno::AGAIN) => break,
                connected => connected.unwrap(),
            }
            waiting.push(socket);
        }
        let begun = Instant::now();
        std::thread::spawn(move || {
            // (Or the test would wait without end.)
            std::thread::sleep(Duration::from_secs(5));
            drop(listener);
        });
        assert_eq!(Client::connect(&name, &[]).unwrap_err(), Errno::AGAIN);
        assert!(!crate::rendezvous::is_running(&name));
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
}
