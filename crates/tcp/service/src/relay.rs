//! A program executes another one, which is to read a socket of which bytes lie in a ring, and the
//! sender does not take them back: it has ended its stream, died, or does not answer. Nobody can
//! put them into the socket. So another socket stands in for it, and the service, which outlives
//! both programs, hands on what comes: the ring's bytes first.

use crate::ends::is_of_user;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, ipproto, recv, send, sockopt};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// At once. Each is two threads; a program that asks for more than this is not one that executes
/// others.
pub const MOST: usize = 256;

/// They are what a program of this user sends: its socket, the other end of a pair, memory, and the
/// end of another pair. Of anything else the service's reading or writing might wait, or mean more
/// than the program's would.
fn may_be([socket, stand_in, first, program]: &[OwnedFd; 4], uid: u32) -> bool {
    let is_tcp = sockopt::socket_protocol(socket) == Ok(Some(ipproto::TCP));
    // (Only memory has seals.)
    let is_memory = rustix::fs::fcntl_get_seals(first).is_ok();
    is_tcp && is_memory && is_of_user(stand_in, uid) && is_of_user(program, uid)
}

/// Relays for a program of this user until both directions have ended, or the program has gone, on
/// threads of its own. `alive` is dropped then. It says that it is ready, so that the program takes
/// nothing out of the ring for nobody, and is told how much that was.
pub fn start(fds: [OwnedFd; 4], uid: u32, alive: impl Send + 'static) {
    if !may_be(&fds, uid) {
        return;
    }
    let [socket, stand_in, first, program] = fds;
    let name = std::thread::Builder::new().name("uncopy-relay".into());
    // (Without a thread the stand-in is closed, and so is the connection.)
    let _ = name.spawn(move || {
        if let Some(bytes) = is_told(&program) {
            drop(program);
            let _ = run(&socket.into(), &stand_in.into(), File::from(first).take(bytes));
        }
        drop(alive);
    });
}

/// How many bytes come first. `None`: the program has gone, or goes on without this.
fn is_told(program: &OwnedFd) -> Option<u64> {
    send(program, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL).ok()?;
    let mut bytes = [0; 8];
    loop {
        match recv(program, &mut bytes, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            got => return (got.ok()?.0 == bytes.len()).then(|| u64::from_ne_bytes(bytes)),
        }
    }
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

/// From the socket to the program, until the stream ends, or nobody is left who would take it: a
/// peer that says nothing more must not keep the connection.
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
    fn unread_bytes_come_first_and_each_direction_ends_by_itself() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let (mut program, stand_in) = UnixStream::pair().unwrap();
        let memory = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut memory = File::from(memory);
        memory.write_all(b"first ").unwrap();
        memory.rewind().unwrap();
        let alive = Arc::new(());
        begin([socket.into(), stand_in.into(), memory.into()], Some(6), alive.clone());
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

    /// As a program does it, which says how many bytes come first, or goes.
    fn begin(fds: [OwnedFd; 3], bytes: Option<u64>, alive: Arc<()>) {
        let (own, theirs) = UnixStream::pair().unwrap();
        let [socket, stand_in, first] = fds;
        let own_user = rustix::process::geteuid().as_raw();
        start([socket, stand_in, first, theirs.into()], own_user, alive);
        if let (Ok(1), Some(bytes)) = ((&own).read(&mut [0]), bytes) {
            (&own).write_all(&bytes.to_ne_bytes()).unwrap();
        }
    }

    #[test]
    fn a_program_that_goes_on_without_it_is_not_waited_for() {
        let (mut peer, socket) = connection();
        let (mut program, stand_in) = UnixStream::pair().unwrap();
        let memory = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let alive = Arc::new(());
        let kept = socket.try_clone().unwrap();
        peer.write_all(b"for the program").unwrap();
        begin([socket.into(), stand_in.into(), memory], None, alive.clone());
        until_alone(&alive);
        // It has what it had.
        assert_eq!(program.read(&mut [0]).unwrap(), 0);
        let mut got = [0; 15];
        (&kept).read_exact(&mut got).unwrap();
        assert_eq!(&got, b"for the program");
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
        begin([socket.into(), stand_in.into(), memory], Some(0), alive.clone());
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
    fn bytes_that_lay_in_the_ring_are_not_waited_for() {
        let (_peer, socket) = connection();
        let (mut program, stand_in) = UnixStream::pair().unwrap();
        let (pipe, _never) = std::io::pipe().unwrap();
        let alive = Arc::new(());
        begin([socket.into(), stand_in.into(), pipe.into()], Some(1), alive.clone());
        assert_eq!(program.read(&mut [0]).unwrap(), 0);
        until_alone(&alive);
    }
}
