//! A program executes another one, which is to read a socket of which bytes lie in a ring, and whoever sent them does not take them back: it has ended its
//! stream, died, or does not answer. Nobody can put them into the socket. So another socket stands in for it, and the service, which
//! outlives both programs, hands on what comes: the ring's bytes first.

use std::fs::File;
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// At once. Each is two threads; a program that asks for more than this is not one that executes others.
pub const MOST: usize = 256;

/// Relays until both directions have ended, on threads of its own. `alive` is dropped then.
pub fn start(fds: [OwnedFd; 3], bytes: u64, alive: Arc<()>) {
    let name = std::thread::Builder::new().name("uncopy-relay".into());
    // (Without a thread the stand-in is closed, and so is the connection.)
    let _ = name.spawn(move || {
        let [socket, stand_in, first] = fds;
        let _ = run(&socket.into(), &stand_in.into(), File::from(first).take(bytes));
        drop(alive);
    });
}

fn run(socket: &TcpStream, stand_in: &UnixStream, mut first: impl Read) -> io::Result<()> {
    // (The program may have set it; its new socket has a flag of its own.)
    socket.set_nonblocking(false)?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::copy(&mut &*stand_in, &mut &*socket);
            let _ = socket.shutdown(Shutdown::Write);
        });
        let inward = io::copy(&mut first, &mut &*stand_in)
            .and_then(|_| io::copy(&mut &*socket, &mut &*stand_in));
        let _ = stand_in.shutdown(Shutdown::Write);
        inward.map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};
    use std::net::TcpListener;

    #[test]
    fn what_was_unread_comes_first_and_each_direction_ends_by_itself() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let (mut program, stand_in) = UnixStream::pair().unwrap();
        let memory = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut memory = File::from(memory);
        memory.write_all(b"first ").unwrap();
        memory.rewind().unwrap();
        let alive = Arc::new(());
        start([socket.into(), stand_in.into(), memory.into()], 6, alive.clone());
        peer.write_all(b"and then").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        let mut all = String::new();
        program.read_to_string(&mut all).unwrap();
        assert_eq!(all, "first and then");
        program.write_all(b"answer").unwrap();
        drop(program);
        let mut all = String::new();
        peer.read_to_string(&mut all).unwrap();
        assert_eq!(all, "answer");
        while Arc::strong_count(&alive) > 1 {
            std::thread::yield_now();
        }
    }
}
