//! Sockets that programs have shown are closed again at once. If the program has closed its own meanwhile, that close is the last; and where SO_LINGER is set it waits, for as
//! long as that says, until the peer has taken all. The service does not wait with it.
//!
//! A program can set that also just before the close. So where others would wait with it, a thread of its user's closes what it has lent.

use crate::share::Taken;
use rustix::net::sockopt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// At once; who has more of them does not want to close connections.
const MOST: usize = 64;

/// Closes it. `waiting` is held once more by each that takes its time.
fn close(socket: OwnedFd, waiting: &Arc<()>) {
    let lingers =
        sockopt::socket_linger(&socket).ok().flatten().is_some_and(|time| !time.is_zero());
    if !lingers {
        return;
    }
    if Arc::strong_count(waiting) > MOST {
        let _ = sockopt::set_socket_linger(&socket, None);
        return;
    }
    let waiting = waiting.clone();
    // (Without a thread it waits here after all.)
    let _ = std::thread::Builder::new().name("uncopy-linger".into()).spawn(move || {
        drop(socket);
        drop(waiting);
    });
}

/// Who closes what one user's programs have shown and lent.
#[derive(Debug)]
pub(crate) struct Closer {
    apart: bool,
    /// Held once more by each socket whose close takes its time.
    waiting: Arc<()>,
    left: Mutex<Left>,
}

#[derive(Debug, Default)]
struct Left {
    sockets: Vec<(OwnedFd, Option<Taken>)>,
    /// A thread closes them.
    runs: bool,
}

impl Closer {
    /// `apart`: a thread of its own closes what was lent, whatever the sockets say.
    pub fn new(apart: bool) -> Self {
        Self { apart, waiting: Arc::default(), left: Mutex::default() }
    }

    /// Nothing is left to be closed.
    pub fn is_idle(&self) -> bool {
        !self.left().runs && Arc::strong_count(&self.waiting) == 1
    }

    /// Closes it for the thread of its user: now, unless it says that this takes its time.
    pub fn close_now(&self, socket: OwnedFd) {
        close(socket, &self.waiting);
    }

    /// Closes it, now or soon.
    pub fn close(self: &Arc<Self>, socket: OwnedFd, taken: Option<Taken>) {
        if !self.apart {
            return self.close_now(socket);
        }
        let mut left = self.left();
        left.sockets.push((socket, taken));
        if std::mem::replace(&mut left.runs, true) {
            return;
        }
        drop(left);
        let closer = self.clone();
        let thread = std::thread::Builder::new().name("uncopy-close".into());
        if thread.spawn(move || closer.close_all()).is_err() {
            // (With the next one.)
            self.left().runs = false;
        }
    }

    fn close_all(&self) {
        loop {
            let mut left = self.left();
            let sockets = std::mem::take(&mut left.sockets);
            if sockets.is_empty() {
                left.runs = false;
                return;
            }
            drop(left);
            drop(sockets);
        }
    }

    fn left(&self) -> std::sync::MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn a_close_that_lingers_keeps_nobody_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 1 << 20]).is_ok() {}
        sockopt::set_socket_linger(&socket, Some(Duration::from_secs(60))).unwrap();
        let (waiting, begun) = (Arc::new(()), Instant::now());
        close(socket.into(), &waiting);
        assert!(begun.elapsed() < Duration::from_secs(10), "it waited");
        assert_eq!(Arc::strong_count(&waiting), 2, "somebody else does");
        // A reset ends it.
        drop(peer);
        while Arc::strong_count(&waiting) > 1 {
            assert!(begun.elapsed() < Duration::from_secs(30), "it waits still");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
