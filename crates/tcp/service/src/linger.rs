//! Sockets that programs have shown are closed again at once. If the program has closed its own meanwhile, that close is the last; and where SO_LINGER is set it waits, for as
//! long as that says, until the peer has taken all. The service does not wait with it. Nor does it clear the option, which is the program's, whose socket may be open still.

use rustix::net::sockopt;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// At once, each on a thread of its own. Those beyond are closed one after the other.
const MOST: usize = 64;
/// So many wait for that. Each is a descriptor, of which others want some too.
const QUEUED: usize = 256;

/// Closes that take their time.
#[derive(Debug, Default)]
pub struct Lingering {
    /// Held once more by each thread.
    waiting: Arc<()>,
    queue: Mutex<Option<SyncSender<OwnedFd>>>,
}

impl Lingering {
    /// Closes it.
    pub fn close(&self, socket: OwnedFd) {
        let lingers =
            sockopt::socket_linger(&socket).ok().flatten().is_some_and(|time| !time.is_zero());
        if !lingers {
            return;
        }
        if Arc::strong_count(&self.waiting) > MOST {
            return self.queue(socket);
        }
        self.thread(move || drop(socket));
    }

    fn queue(&self, socket: OwnedFd) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let to = queue.get_or_insert_with(|| {
            let (to, from) = sync_channel(QUEUED);
            self.thread(move || from.iter().for_each(drop));
            to
        });
        let Err(TrySendError::Full(socket) | TrySendError::Disconnected(socket)) =
            to.try_send(socket)
        else {
            return;
        };
        // Who has that many does not want to close connections, or would leave no descriptor to others.
        let _ = sockopt::set_socket_linger(&socket, None);
    }

    /// (Without a thread it waits here after all.)
    fn thread(&self, closes: impl FnOnce() + Send + 'static) {
        let waiting = self.waiting.clone();
        let _ = std::thread::Builder::new().name("uncopy-linger".into()).spawn(move || {
            closes();
            drop(waiting);
        });
    }
}

/// Descriptors that came with a message. Those that are not taken are closed as above.
#[derive(Debug)]
pub struct Came {
    fds: Vec<OwnedFd>,
    lingering: Arc<Lingering>,
}

impl Came {
    /// These.
    pub fn new(fds: Vec<OwnedFd>, lingering: &Arc<Lingering>) -> Self {
        Self { fds, lingering: lingering.clone() }
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
        self.fds.drain(..).for_each(|fd| self.lingering.close(fd));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

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
        let (lingering, begun) = (Lingering::default(), Instant::now());
        let mut peers = vec![];
        for _ in 0..=MOST {
            let (socket, peer) = full(&listener);
            lingering.close(socket.into());
            peers.push(peer);
        }
        let (socket, peer) = full(&listener);
        lingering.close(socket.try_clone().unwrap().into());
        assert!(begun.elapsed() < Duration::from_secs(50), "it waited");
        assert_eq!(sockopt::socket_linger(&socket), Ok(Some(Duration::from_secs(60))));
        drop((socket, peer, peers));
        let Lingering { waiting, queue } = lingering;
        drop(queue);
        while Arc::strong_count(&waiting) > 1 {
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
        let (lingering, begun) = (Lingering::default(), Instant::now());
        lingering.close(socket.into());
        assert!(begun.elapsed() < Duration::from_secs(10), "it waited");
        let waiting = lingering.waiting;
        assert_eq!(Arc::strong_count(&waiting), 2, "somebody else does");
        // A reset ends it.
        drop(peer);
        while Arc::strong_count(&waiting) > 1 {
            assert!(begun.elapsed() < Duration::from_secs(30), "it waits still");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
