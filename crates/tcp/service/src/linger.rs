//! Sockets that programs have shown are closed again at once. If the program has closed its own meanwhile, that close is the last; and where SO_LINGER is set it waits, for as
//! long as that says, until the peer has taken all. The service does not wait with it.

use rustix::net::sockopt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// At once; who has more of them does not want to close connections.
const MOST: usize = 64;

/// Closes it. `waiting` is held once more by each that takes its time.
pub fn close(socket: OwnedFd, waiting: &Arc<()>) {
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
