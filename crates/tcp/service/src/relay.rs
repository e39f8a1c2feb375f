//! A program executes another one, which is to read a socket of which bytes lie in a ring, and whoever sent them does not take them back: it has ended its
//! stream, died, or does not answer. Nobody can put them into the socket. So another socket stands in for it, and the service, which
//! outlives both programs, hands on what comes: the ring's bytes first.

use crate::ends::is_of_user;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{ipproto, sockopt};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// At once. Each is two threads; a program that asks for more than this is not one that executes others.
pub const MOST: usize = 256;

/// They are what a program of this user sends: its socket, the other end of a pair, and memory. Of anything else the service's reading or writing might wait, or mean more than the
/// program's would.
fn may_be([socket, stand_in, first]: &[OwnedFd; 3], uid: u32) -> bool {
    let is_tcp = sockopt::socket_protocol(socket) == Ok(Some(ipproto::TCP));
    // (Only memory has seals.)
    is_tcp && is_of_user(stand_in, uid) && rustix::fs::fcntl_get_seals(first).is_ok()
}

/// Relays for a program of this user until both directions have ended, or the program has gone, on threads of its own. `alive` is dropped then.
pub fn start(fds: [OwnedFd; 3], bytes: u64, uid: u32, alive: impl Send + 'static) {
    if !may_be(&fds, uid) {
        return;
    }
    let [socket, stand_in, first] = fds;
    let name = std::thread::Builder::new().name("uncopy-relay".into());
    // (Without a thread the stand-in is closed, and so is the connection.)
    let _ = name.spawn(move || {
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
        let inward = io::copy(&mut first, &mut &*stand_in).and_then(|_| bring(socket, stand_in));
        let _ = stand_in.shutdown(Shutdown::Write);
        inward
    })
}

/// From the socket to the program, until the stream ends, or nobody is left who would take it: a peer that says nothing more must not keep the connection.
fn bring(mut socket: &TcpStream, mut program: &UnixStream) -> io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    loop {
        let gone = {
            let nothing = PollFlags::empty();
            let mut both = [PollFd::new(socket, PollFlags::IN), PollFd::new(program, nothing)];
            match poll(&mut both, None) {
                Err(Errno::INTR) => continue,
                polled => polled?,
            };
            !both[1].revents().is_empty()
        };
        if gone {
            return Ok(());
        }
        match socket.read(&mut piece)? {
            0 => return Ok(()),
            bytes => program.write_all(&piece[..bytes])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Seek;
    use std::net::TcpListener;
    use std::sync::Arc;

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
        start([socket.into(), stand_in.into(), memory.into()], 6, own(), alive.clone());
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

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (peer, listener.accept().unwrap().0)
    }

    fn until_alone(alive: &Arc<()>) {
        let begun = std::time::Instant::now();
        while Arc::strong_count(alive) > 1 {
            assert!(begun.elapsed().as_secs() < 20, "it goes on");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn it_ends_with_its_program_although_the_peer_says_nothing() {
        let (peer, socket) = connection();
        let (program, stand_in) = UnixStream::pair().unwrap();
        let memory = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let alive = Arc::new(());
        start([socket.into(), stand_in.into(), memory], 0, own(), alive.clone());
        drop(program);
        until_alone(&alive);
        // It was closed, not only shut: what is sent there now is refused.
        let begun = std::time::Instant::now();
        while (&peer).write(b"x").is_ok() {
            assert!(begun.elapsed().as_secs() < 20, "somebody has it still");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn what_lay_in_the_ring_is_not_waited_for() {
        let (_peer, socket) = connection();
        let (mut program, stand_in) = UnixStream::pair().unwrap();
        let (pipe, _never) = std::io::pipe().unwrap();
        let alive = Arc::new(());
        start([socket.into(), stand_in.into(), pipe.into()], 1, own(), alive.clone());
        assert_eq!(program.read(&mut [0]).unwrap(), 0);
        until_alone(&alive);
    }
}
