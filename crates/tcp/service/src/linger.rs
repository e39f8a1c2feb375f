//! Sockets that programs have registered are closed again at once. If the program has closed its
//! own meanwhile, that close is the last; and where SO_LINGER is set it waits, for as long as that
//! says, until the peer has taken all. The service does not wait with it. Nor does it clear the
//! option, which is the program's, whose socket may be open still.
//!
//! A program can set that also just before the close. So where others would wait with it, a thread
//! of its user's closes what it has lent.

use crate::share::{Share, Taken};
use rustix::net::{SendFlags, sockopt};
use std::collections::VecDeque;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// At once, each on a thread of its own. Those beyond are closed one after the other.
const MOST: usize = 64;
/// So many wait for that. Each is a descriptor, of which others want some too.
const QUEUED: usize = 256;

/// Closes the sockets that one user's programs have registered and lent.
#[derive(Debug)]
pub(crate) struct Closer {
    own_thread: bool,
    /// Of descriptors; those that wait to be closed are of it.
    share: Share,
    /// Held once more by each socket whose close takes its time.
    waiting: Arc<()>,
    left: Mutex<Left>,
}

#[derive(Debug, Default)]
struct Left {
    sockets: VecDeque<(OwnedFd, Option<Taken>)>,
    /// A thread closes them.
    runs: bool,
}

impl Closer {
    /// `own_thread`: a thread of its own closes what was lent, whatever the sockets say.
    pub fn new(own_thread: bool, share: Share) -> Self {
        Self { own_thread, share, waiting: Arc::default(), left: Mutex::default() }
    }

    /// Nothing is left to be closed.
    pub fn is_idle(&self) -> bool {
        let left = self.left();
        !left.runs && left.sockets.is_empty() && Arc::strong_count(&self.waiting) == 1
    }

    /// Closes it for the thread of its user: now, unless it says that this takes its time.
    pub fn close_now(self: &Arc<Self>, socket: OwnedFd) {
        let lingers =
            sockopt::socket_linger(&socket).ok().flatten().is_some_and(|time| !time.is_zero());
        if !lingers {
            return;
        }
        if Arc::strong_count(&self.waiting) > MOST {
            return self.queue(socket);
        }
        let waiting = self.waiting.clone();
        // (Without a thread it waits here after all.)
        let _ = std::thread::Builder::new().name("uncopy-linger".into()).spawn(move || {
            drop(socket);
            drop(waiting);
        });
    }

    fn queue(self: &Arc<Self>, socket: OwnedFd) {
        let room = self.left().sockets.len() < QUEUED;
        if let Some(taken) = room.then(|| self.share.take(1)).flatten() {
            return self.leave(socket, Some(taken));
        }
        // A user that has that many does not want to close connections, or would leave no
        // descriptor to others.
        let _ = sockopt::set_socket_linger(&socket, None);
    }

    /// Closes it, now or soon.
    pub fn close(self: &Arc<Self>, socket: OwnedFd, taken: Option<Taken>) {
        if self.own_thread { self.leave(socket, taken) } else { self.close_now(socket) }
    }

    /// To be closed by a thread, after those that are there.
    fn leave(self: &Arc<Self>, socket: OwnedFd, taken: Option<Taken>) {
        let mut left = self.left();
        left.sockets.push_back((socket, taken));
        if std::mem::replace(&mut left.runs, true) {
            return;
        }
        drop(left);
        let closer = self.clone();
        let thread = std::thread::Builder::new().name("uncopy-close".into());
        if thread.spawn(move || closer.close_all()).is_err() {
            // (It is closed with the next one.)
            self.left().runs = false;
        }
    }

    fn close_all(&self) {
        loop {
            let mut left = self.left();
            let Some(next) = left.sockets.pop_front() else {
                left.runs = false;
                return;
            };
            drop(left);
            drop(next);
        }
    }

    fn left(&self) -> std::sync::MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Descriptors that came with a message. Those that are not taken are closed as above, for the
/// thread of their user.
#[derive(Debug)]
pub(crate) struct Came {
    fds: Vec<OwnedFd>,
    closer: Arc<Closer>,
}

impl Came {
    /// These.
    pub fn new(fds: Vec<OwnedFd>, closer: &Arc<Closer>) -> Self {
        Self { fds, closer: closer.clone() }
    }

    /// All of them.
    pub fn take(mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds)
    }

    /// All, if there are so many.
    pub fn these<const N: usize>(mut self) -> Option<[OwnedFd; N]> {
        let fds = std::mem::take(&mut self.fds).try_into();
        fds.map_err(|others| self.fds = others).ok()
    }
}

impl Deref for Came {
    type Target = [OwnedFd];
    fn deref(&self) -> &[OwnedFd] {
        &self.fds
    }
}

impl Drop for Came {
    fn drop(&mut self) {
        self.fds.drain(..).for_each(|fd| self.closer.close_now(fd));
    }
}

/// A program's socket that is kept for a while.
#[derive(Debug)]
pub struct Lent {
    /// Until it is dropped.
    socket: Option<(OwnedFd, Taken)>,
    closer: Arc<Closer>,
}

impl Lent {
    pub(crate) fn new(socket: OwnedFd, taken: Taken, closer: Arc<Closer>) -> Self {
        Self { socket: Some((socket, taken)), closer }
    }

    /// Tells the one who waits at its other end for a byte that the request is done.
    pub fn is_done(&self) {
        self.says(&[1]);
    }

    /// Sends the one who waits at its other end these bytes.
    pub fn says(&self, bytes: &[u8]) {
        // (Somebody who has not waited does not hear it.)
        let _ = rustix::net::send(self, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl AsFd for Lent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("it is there until it is dropped").0.as_fd()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some((socket, taken)) = self.socket.take() {
            self.closer.close(socket, Some(taken));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    fn closer() -> Arc<Closer> {
        Arc::new(Closer::new(false, Share::new(usize::MAX)))
    }

    /// One whose peer takes nothing.
    fn full(listener: &TcpListener) -> (TcpStream, TcpStream) {
        sockopt::set_socket_recv_buffer_size(listener, 4096).unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        sockopt::set_socket_send_buffer_size(&socket, 4096).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 1 << 20]).is_ok() {}
        sockopt::set_socket_linger(&socket, Some(Duration::from_secs(60))).unwrap();
        (socket, peer)
    }

    #[test]
    fn where_many_linger_others_that_are_open_elsewhere_keep_their_option() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (closer, begun) = (closer(), Instant::now());
        let mut peers = vec![];
        for _ in 0..=MOST {
            let (socket, peer) = full(&listener);
            closer.close_now(socket.into());
            peers.push(peer);
        }
        let (socket, peer) = full(&listener);
        closer.close_now(socket.try_clone().unwrap().into());
        assert!(begun.elapsed() < Duration::from_secs(50), "it waited");
        assert_eq!(sockopt::socket_linger(&socket), Ok(Some(Duration::from_secs(60))));
        drop((socket, peer, peers));
        while !closer.is_idle() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it waits still");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_close_that_lingers_keeps_nobody_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 1 << 20]).is_ok() {}
        sockopt::set_socket_linger(&socket, Some(Duration::from_secs(60))).unwrap();
        let (closer, begun) = (closer(), Instant::now());
        closer.close_now(socket.into());
        assert!(begun.elapsed() < Duration::from_secs(10), "it waited");
        assert_eq!(Arc::strong_count(&closer.waiting), 2, "somebody else does");
        // A reset ends it.
        drop(peer);
        while !closer.is_idle() {
            assert!(begun.elapsed() < Duration::from_secs(30), "it waits still");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
