//! A service of all users: each is served apart from the others, and none can take, see or hold up
//! what is another's.
//!
//! The programs are threads of this test, each as another user; the service is a process of its
//! own, or a thread where the test looks into it. As root.

#![allow(missing_docs)]

// Unsafe: a thread's user is changed past libc, which would change that of all.

mod common;

use common::doors;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use rustix::process::{Pid, Signal};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uncopy_tcp_service::diag::DiagSocket;
use uncopy_tcp_service::protocol::{self, DOOR_COUNT, Message, StayReason};
use uncopy_tcp_service::rendezvous::is_running;
use uncopy_tcp_service::state::State;
use uncopy_tcp_service::{
    Client, Lent, Limits, Listening, Options, Owner, Serves, Service, Wires, ends, tell, trace,
};
use uncopy_tests::verdict::leave_out;

const ALICE: u32 = 61_001;
const BOB: u32 = 61_002;

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        leave_out("only root can be several users");
    }
    root
}

/// The calling thread runs `does` as this user.
fn as_user<T>(uid: u32, does: impl FnOnce() -> T) -> T {
    let become_user = |uid: u32| {
        let same = u32::MAX;
        // SAFETY: numbers only. This thread alone is another user.
        let failed = unsafe { libc::syscall(libc::SYS_setresuid, same, uid, same) };
        assert_eq!(failed, 0);
    };
    become_user(uid);
    let done = does();
    become_user(0);
    done
}

/// A service in a process of its own.
struct Running(Child, String);

impl Running {
    fn new(what: &str, across: bool, flows: usize, descriptors: u64) -> Self {
        let name = format!("uncopy-tcp-test-users-{what}-{}", std::process::id());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_service", "--ignored"])
            .env("NAME", &name)
            .env("ACROSS", if across { "yes" } else { "" })
            .env("FLOWS", flows.to_string())
            .env("DESCRIPTORS", descriptors.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the service", || is_running(&name));
        Self(child, name)
    }

    fn usual(what: &str) -> Self {
        Self::new(what, false, 1000, 1000)
    }

    fn program(&self, uid: u32) -> Program {
        Program::new(&self.1, uid).unwrap()
    }

    fn is_sent(&self, signal: Signal) {
        let process = Pid::from_child(&self.0);
        rustix::process::kill_process(process, signal).unwrap();
    }

    fn tells(&self, uid: u32) -> State {
        as_user(uid, || tell(&self.1)).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "it is what the others start"]
fn the_service() {
    let Ok(name) = std::env::var("NAME") else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse().unwrap();
    let most = Some(number("DESCRIPTORS"));
    let limit = rustix::process::Rlimit { current: most, maximum: most };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let limits = Limits { flows: number("FLOWS") as usize, bytes: 1 << 30 };
    let serves = Serves::All { across: !std::env::var("ACROSS").unwrap().is_empty() };
    let refuses = name.contains("-refused-");
    let mut service = Service::bind(Options { name, limits, ends_idle: None }).unwrap();
    if refuses {
        let wire = Wire::default();
        wire.0.lock().unwrap().refused = (1..=64).map(|program| (program, program)).collect();
        service = service.listening(wire);
    }
    service.serving(serves).run().unwrap();
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A program, by its messages.
struct Program {
    client: Client,
    user: u32,
    _doors: Vec<OwnedFd>,
}

impl Program {
    fn new(name: &str, uid: u32) -> Result<Self, Errno> {
        let doors = doors();
        let borrowed: Vec<BorrowedFd> = doors.iter().map(AsFd::as_fd).collect();
        let client = as_user(uid, || Client::connect(name, &borrowed))?;
        Ok(Self { client, user: uid, _doors: doors })
    }

    fn says(&self) -> (Message, usize) {
        let mut said = None;
        wait_until("an answer", || {
            said = self.client.next().map(|(message, fds)| (message, fds.len()));
            said.is_some()
        });
        said.unwrap()
    }

    /// One of its user's.
    fn registers(&self, token: u64, socket: &TcpStream) {
        std::os::unix::fs::fchown(socket, Some(self.user), None).unwrap();
        self.shows_as_it_is(token, socket);
    }

    fn shows_as_it_is(&self, token: u64, socket: &TcpStream) {
        self.client.register(token, socket.as_fd(), ends::name(socket).unwrap()).unwrap();
    }
}

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    (a, b)
}

/// Says what no client would, as this user.
fn raw(name: &str, uid: u32) -> OwnedFd {
    let kind = SocketType::SEQPACKET;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    let address = rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    as_user(uid, || rustix::net::connect(&socket, &address)).unwrap();
    socket
}

fn greeted(name: &str, uid: u32) -> OwnedFd {
    let socket = raw(name, uid);
    let doors = doors();
    let doors: Vec<BorrowedFd> = doors.iter().map(AsFd::as_fd).collect();
    protocol::send(socket.as_fd(), Message::Hello(protocol::VERSION), &doors).unwrap();
    let hello = protocol::receive(socket.as_fd(), rustix::net::RecvFlags::empty()).unwrap();
    assert!(matches!(hello.0, Message::Welcome { .. }));
    socket
}

fn stays(program: &Program, of: u64) -> StayReason {
    match program.says().0 {
        Message::Stays { token, reason } if token == of => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ends_of_one_user_meet_and_those_of_two_stay_with_linux() {
    if !is_root() {
        return;
    }
    let service = Running::usual("meet");
    let [alice, other, bob, root] = [ALICE, ALICE, BOB, 0].map(|uid| service.program(uid));
    let (x, y) = connection();
    alice.registers(1, &x);
    other.registers(2, &y);
    assert!(matches!(alice.says(), (Message::Matched { token: 1, .. }, 6)));
    assert!(matches!(other.says(), (Message::Matched { token: 2, .. }, 6)));
    for (token, strangers) in [(3, &bob), (4, &root)] {
        let (x, y) = connection();
        alice.registers(token, &x);
        strangers.registers(token, &y);
        assert_eq!(stays(&alice, token), StayReason::OtherUser);
        assert_eq!(stays(strangers, token), StayReason::OtherUser);
    }
    let told = service.tells(ALICE);
    let counts =
        told.programs.iter().map(|program| program.stayed[StayReason::OtherUser as usize - 1]);
    assert_eq!(counts.sum::<u64>(), 2);
}

/// A number that proves a socket comes again after some billions of others: another user's may have
/// it then.
#[test]
fn a_socket_that_another_user_has_made_stays_linuxs_but_for_root() {
    if !is_root() {
        return;
    }
    let service = Running::new("given", true, 1000, 1000);
    let [alice, bob, root] = [ALICE, BOB, 0].map(|uid| service.program(uid));
    let (x, y) = connection();
    alice.registers(1, &x);
    bob.shows_as_it_is(2, &x);
    assert_eq!(stays(&bob, 2), StayReason::OtherUser);
    root.shows_as_it_is(3, &y);
    assert!(matches!(alice.says(), (Message::Matched { token: 1, .. }, 6)));
    assert!(matches!(root.says(), (Message::Matched { token: 3, .. }, 6)));
}

#[test]
fn where_that_was_said_ends_of_two_users_meet() {
    if !is_root() {
        return;
    }
    let service = Running::new("across", true, 1000, 1000);
    let (alice, bob) = (service.program(ALICE), service.program(BOB));
    let (x, y) = connection();
    alice.registers(1, &x);
    bob.registers(2, &y);
    assert!(matches!(alice.says(), (Message::Matched { token: 1, .. }, 6)));
    assert!(matches!(bob.says(), (Message::Matched { token: 2, .. }, 6)));
    // Each is told of the connection, and of its own program.
    for uid in [ALICE, BOB] {
        let told = service.tells(uid);
        assert_eq!(told.flows.len(), 1);
        assert_eq!(told.programs.iter().map(|program| program.uid).collect::<Vec<_>>(), [uid]);
    }
}

#[test]
fn a_user_is_told_of_its_own_and_root_of_all() {
    if !is_root() {
        return;
    }
    let service = Running::usual("tell");
    let [alice, other, bob] = [ALICE, ALICE, BOB].map(|uid| service.program(uid));
    let (pair, half) = (connection(), connection());
    alice.registers(1, &pair.0);
    other.registers(2, &pair.1);
    alice.registers(3, &half.0);
    alice.says();
    let (nothing, _end) = connection();
    bob.registers(4, &nothing);
    wait_until("both wait", || service.tells(0).stayed.len() == 2);
    let of = |told: &State| (told.programs.len(), told.flows.len(), told.stayed.len());
    assert_eq!(of(&service.tells(ALICE)), (2, 1, 1));
    assert_eq!(of(&service.tells(BOB)), (1, 0, 1));
    assert_eq!(of(&service.tells(0)), (3, 1, 2));
    assert_eq!(of(&service.tells(BOB + 1)), (0, 0, 0));
    let bobs = service.tells(BOB).stayed[0].addresses;
    assert_eq!(bobs[0], nothing.local_addr().unwrap());
}

#[test]
fn connections_that_programs_did_not_get_are_told_to_their_user_and_root() {
    if !is_root() {
        return;
    }
    let service = Running::usual("refused");
    let _programs = [ALICE, ALICE, BOB].map(|uid| service.program(uid));
    // (Of each program it says as many as its number.)
    let of = |uid| {
        let programs = service.tells(uid).programs;
        let over = |of: &uncopy_tcp_service::state::Program| {
            (of.uid, of.stayed[StayReason::OverLimit as usize - 1] == of.id)
        };
        let mut all: Vec<_> = programs.iter().map(over).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(of(ALICE), [(ALICE, true); 2]);
    assert_eq!(of(BOB), [(BOB, true)]);
    assert_eq!(of(0), [(ALICE, true), (ALICE, true), (BOB, true)]);
    assert!(of(BOB + 1).is_empty());
}

#[test]
fn an_end_with_its_listeners_filter_stays_linuxs() {
    if !is_root() {
        return;
    }
    let service = Running::usual("filter");
    let (alice, other) = (service.program(ALICE), service.program(ALICE));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut all = libc::sock_filter { code: 6, jt: 0, jf: 0, k: u32::MAX };
    let filter = libc::sock_fprog { len: 1, filter: &raw mut all };
    // SAFETY: reads both, which live here.
    let failed = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of_val(&filter) as libc::socklen_t,
        )
    };
    assert_eq!(failed, 0);
    let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    alice.registers(1, &connected);
    other.registers(2, &accepted);
    assert_eq!(stays(&other, 2), StayReason::Filtered);
    // Its other end waits in vain, and hears that.
    assert_eq!(stays(&alice, 1), StayReason::PeerNotHere);
}

#[test]
fn frames_are_written_for_root_alone() {
    if !is_root() {
        return;
    }
    let service = Running::usual("trace");
    let file = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
    let ask = || trace(&service.1, (None, None), file.as_fd()).map(drop);
    assert_eq!(as_user(ALICE, ask), Err(Errno::PERM));
    // (There is no wire.)
    assert_eq!(ask(), Err(Errno::OPNOTSUPP));
}

#[test]
fn words_of_a_user_on_anothers_connections_have_no_effect() {
    if !is_root() {
        return;
    }
    let service = Running::usual("others");
    let (alice, other) = (service.program(ALICE), service.program(ALICE));
    let (x, y) = connection();
    alice.registers(1, &x);
    other.registers(2, &y);
    let Message::Matched { region, slot, generation, .. } = alice.says().0 else { panic!() };
    other.says();
    let (half, end) = connection();
    alice.registers(3, &half);
    let bob = greeted(&service.1, BOB);
    let door = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    for side in [0, 1] {
        let missing = Message::Missing { region, slot, side, generation };
        protocol::send(bob.as_fd(), missing, &[]).unwrap();
        let message = Message::Door { region, slot, side, generation };
        protocol::send(bob.as_fd(), message, &[door.as_fd()]).unwrap();
    }
    for token in 1..4 {
        protocol::send(bob.as_fd(), Message::Forget { token }, &[]).unwrap();
    }
    // It is still there, and nobody's region comes again, nor did a door.
    wait_until("all was said", || service.tells(BOB).programs.len() == 1);
    other.registers(4, &end);
    for program in [&alice, &other] {
        let said = program.says();
        assert!(
            matches!(said, (Message::Matched { region: same, .. }, 0) if same == region),
            "{said:?}"
        );
    }
    assert_eq!(service.tells(ALICE).flows.len(), 2);
}

#[test]
fn one_user_has_at_most_its_share_of_connections_and_another_has_its_own() {
    if !is_root() {
        return;
    }
    let service = Running::new("flows", false, 3, 1000);
    let programs = [ALICE, ALICE, BOB].map(|uid| service.program(uid));
    let ends: Vec<_> = (0..5).map(|_| connection()).collect();
    // By two programs, none of which has as many.
    programs[0].registers(0, &ends[0].0);
    programs[0].registers(1, &ends[1].0);
    programs[1].registers(2, &ends[2].0);
    wait_until("three wait", || service.tells(ALICE).stayed.len() == 3);
    programs[1].registers(3, &ends[3].0);
    assert_eq!(stays(&programs[1], 3), StayReason::OverLimit);
    programs[2].registers(4, &ends[4].0);
    wait_until("another's waits", || service.tells(BOB).stayed.len() == 1);
    // A place that is given back can be had again.
    programs[0].client.forgets(0).unwrap();
    wait_until("one less", || service.tells(ALICE).stayed.len() == 3);
    programs[1].registers(5, &ends[3].0);
    wait_until("one more", || {
        let waits = |s: &&uncopy_tcp_service::state::Stayed| s.reason == StayReason::Waiting;
        service.tells(ALICE).stayed.iter().filter(waits).count() == 3
    });
}

#[test]
fn one_user_has_programs_for_at_most_half_of_the_descriptors() {
    if !is_root() {
        return;
    }
    let service = Running::new("programs", false, 1000, 100);
    let mut programs = vec![];
    let refused = loop {
        match Program::new(&service.1, ALICE) {
            Ok(program) => programs.push(program),
            Err(error) => break error,
        }
        assert!(programs.len() < 50, "as many as there are descriptors");
    };
    assert!(matches!(refused, Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN), "{refused}");
    assert!(programs.len() >= 5, "{}", programs.len());
    let _bob = service.program(BOB);
    programs.pop();
    wait_until("room again", || Program::new(&service.1, ALICE).is_ok());
}

/// A socket whose close waits: nobody takes what was sent, and the last process to close it is to
/// wait for that.
fn that_lingers() -> (TcpStream, TcpStream) {
    let (mut socket, peer) = connection();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 1 << 20]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    sockopt::set_socket_linger(&socket, Some(Duration::from_secs(60))).unwrap();
    (socket, peer)
}

#[test]
fn a_user_whose_descriptors_take_long_to_close_keeps_nobody_else_waiting() {
    if !is_root() {
        return;
    }
    let service = Running::usual("lingers");
    let bob = greeted(&service.1, BOB);
    // (Stopped, so that it has the last copy of each.)
    service.is_sent(Signal::STOP);
    // As doors of a program that is sent away for that; beside a message that has none; unread by
    // who is sent away.
    let peers: Vec<TcpStream> = (0..3)
        .map(|what| {
            let (socket, peer) = that_lingers();
            match what {
                0 => {
                    let doors = [socket.as_fd(); DOOR_COUNT];
                    let new = raw(&service.1, BOB);
                    protocol::send(new.as_fd(), Message::Hello(protocol::VERSION), &doors).unwrap();
                }
                1 => {
                    let message = Message::Forget { token: 1 };
                    protocol::send(bob.as_fd(), message, &[socket.as_fd()]).unwrap();
                }
                _ => {
                    let new = raw(&service.1, BOB);
                    protocol::send(new.as_fd(), Message::Hello(0), &[]).unwrap();
                    protocol::send(new.as_fd(), Message::Tell, &[socket.as_fd()]).unwrap();
                }
            }
            peer
        })
        .collect();
    service.is_sent(Signal::CONT);
    std::thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    let (alice, other) = (service.program(ALICE), service.program(ALICE));
    let (x, y) = connection();
    alice.registers(1, &x);
    other.registers(2, &y);
    assert!(matches!(alice.says(), (Message::Matched { .. }, _)));
    assert!(begun.elapsed() < Duration::from_secs(1), "it waited");
    drop(peers);
}

/// Bytes that the service, which is root, would write to another's socket would be believed to be
/// root's.
#[test]
fn bytes_are_relayed_to_a_socket_of_the_user_itself_only_and_from_memory_only() {
    if !is_root() {
        return;
    }
    let service = Running::usual("relays");
    let alice = greeted(&service.1, ALICE);
    let told_by = |user, stand_in: &UnixStream, first: &OwnedFd| {
        let (socket, peer) = connection();
        let flags = SocketFlags::CLOEXEC;
        let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let (own, theirs) = as_user(user, pair);
        let with = [socket.as_fd(), stand_in.as_fd(), first.as_fd(), theirs.as_fd()];
        protocol::send(alice.as_fd(), Message::Relay, &with).unwrap();
        drop(theirs);
        // (It says that it is ready, or goes.)
        let got = rustix::net::recv(&own, &mut [0], rustix::net::RecvFlags::empty());
        if got.unwrap().0 == 1 {
            let flags = rustix::net::SendFlags::NOSIGNAL;
            rustix::net::send(&own, &5u64.to_ne_bytes(), flags).unwrap();
        }
        peer
    };
    let relay = |stand_in: &UnixStream, first: &OwnedFd| told_by(ALICE, stand_in, first);
    let memory = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
    rustix::io::pwrite(&memory, b"bytes", 0).unwrap();
    let pair = || as_user(ALICE, || UnixStream::pair().unwrap());
    let read = |mut from: UnixStream, _peer: TcpStream| {
        let mut got = [0; 5];
        from.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        from.read(&mut got).map(|count| got[..count].to_vec())
    };
    let (program, stand_in) = pair();
    let peer = relay(&stand_in, &memory);
    drop(stand_in);
    assert_eq!(read(program, peer).unwrap(), b"bytes");
    let (program, stand_in) = pair();
    let peer = told_by(BOB, &stand_in, &memory);
    drop(stand_in);
    assert_eq!(read(program, peer).unwrap(), b"", "told by another's");
    let directory = std::env::temp_dir().join(format!("uncopy-relay-{}", std::process::id()));
    let _ = std::fs::remove_file(&directory);
    let roots = UnixListener::bind(&directory).unwrap();
    let stand_in = UnixStream::connect(&directory).unwrap();
    let peer = relay(&stand_in, &memory);
    drop(stand_in);
    assert_eq!(read(roots.accept().unwrap().0, peer).unwrap(), b"", "root's");
    let file: OwnedFd = std::fs::File::open("/proc/self/stat").unwrap().into();
    let (program, stand_in) = pair();
    let peer = relay(&stand_in, &file);
    drop(stand_in);
    assert_eq!(read(program, peer).unwrap(), b"", "no memory");
    std::fs::remove_file(&directory).unwrap();
}

/// The calls that a wire has got.
#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    listens: Vec<(Owner, SocketAddrV4)>,
    withdrawn: Vec<SocketAddrV4>,
    closes: Vec<(u64, u64)>,
    connects: Vec<u64>,
    refused: Vec<(u64, u64)>,
}

impl Listening for Wire {
    fn listens(&self, (_, owner): (u64, Owner), at: SocketAddrV4, _: &DiagSocket) {
        self.0.lock().unwrap().listens.push((owner, at));
    }

    fn withdraws(&self, at: SocketAddrV4, answer: Lent) {
        self.0.lock().unwrap().withdrawn.push(at);
        answer.is_done();
    }

    fn gone(&self, _: u64) {}

    fn trace(&self, _: u64, _: (Option<Ipv4Addr>, Option<u16>), _: OwnedFd) -> Result<(), Errno> {
        Ok(())
    }

    fn end_trace(&self, _: u64) -> Result<u64, Errno> {
        Ok(0)
    }

    fn wired(&self) -> Wires {
        Wires { flows: vec![], refused: self.0.lock().unwrap().refused.clone() }
    }

    fn info(&self, _: [SocketAddrV4; 2], _: Lent) {}

    fn carries_connects(&self) -> bool {
        true
    }

    fn connects(&self, program: (u64, Owner), _: SocketAddrV4, _: Lent, answer: OwnedFd) {
        self.0.lock().unwrap().connects.push(program.0);
        rustix::net::send(&answer, &[1], rustix::net::SendFlags::empty()).unwrap();
    }

    fn closes(&self, program: u64, cookie: u64) {
        self.0.lock().unwrap().closes.push((program, cookie));
    }
}

fn set_of(socket: &TcpListener) -> OwnedFd {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&set, socket, epoll::EventData::new_u64(0), epoll::EventFlags::empty()).unwrap();
    set
}

fn place(socket: &TcpListener) -> (u64, u64) {
    let std::net::SocketAddr::V4(at) = socket.local_addr().unwrap() else { panic!() };
    (at.ip().to_bits().into(), at.port().into())
}

/// A user's own, and one that it was given; not another's.
#[test]
fn a_wire_is_told_of_a_listener_by_who_has_it_alone() {
    if !is_root() {
        return;
    }
    let name = format!("uncopy-tcp-test-users-listeners-{}", std::process::id());
    let (limits, wire) = (Limits::default(), Wire::default());
    let service = Service::bind(Options { name: name.clone(), limits, ends_idle: None }).unwrap();
    let stop = service.stop();
    let service = service.serving(Serves::ItsUser).listening(wire.clone());
    let runs = std::thread::spawn(|| service.run());
    let program = greeted(&name, 0);
    let told = || wire.0.lock().unwrap().listens.clone();
    let [own, given, others] = [0, ALICE, ALICE].map(|user| {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        std::os::unix::fs::fchown(&socket, Some(user), None).unwrap();
        socket
    });
    for (listener, registration) in [(&own, &own), (&given, &given), (&others, &own)] {
        let (address, port) = place(listener);
        let (message, proof) = (Message::Listen { address, port }, set_of(registration));
        protocol::send(program.as_fd(), message, &[proof.as_fd()]).unwrap();
    }
    // (The answer to this request comes in its turn, so it comes behind the others.)
    let kind = SocketType::SEQPACKET;
    let (end, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    let ((address, port), proof) = (place(&own), set_of(&own));
    let with = [proof.as_fd(), theirs.as_fd()];
    protocol::send(program.as_fd(), Message::Withdraw { address, port }, &with).unwrap();
    assert_eq!(rustix::net::recv(&end, &mut [0], rustix::net::RecvFlags::empty()), Ok((1, 1)));
    let ports: Vec<_> = told().iter().map(|(_, at)| u64::from(at.port())).collect();
    assert_eq!(ports, [place(&own).1, place(&given).1]);
    stop.stop();
    runs.join().unwrap().unwrap();
}

#[test]
fn a_wire_is_told_whose_words_are_and_of_this_hosts_listeners_alone() {
    if !is_root() {
        return;
    }
    let name = format!("uncopy-tcp-test-users-wire-{}", std::process::id());
    let limits = Limits::default();
    let wire = Wire::default();
    let service = Service::bind(Options { name: name.clone(), limits, ends_idle: None }).unwrap();
    let stop = service.stop();
    let service = service.serving(Serves::All { across: false }).listening(wire.clone());
    let runs = std::thread::spawn(|| service.run());
    let (alice, bob) = (greeted(&name, ALICE), greeted(&name, BOB));
    let told = || wire.0.lock().unwrap();
    // A listener of this network namespace, and one of another, where its port is nobody's.
    let here = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = here.local_addr().unwrap().port();
    let there = std::thread::spawn(|| {
        // SAFETY: this thread's alone, which ends with it.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        TcpListener::bind("0.0.0.0:0").unwrap()
    });
    let there = there.join().unwrap();
    for socket in [&there, &here] {
        let (address, port) = place(socket);
        let (message, proof) = (Message::Listen { address, port }, set_of(socket));
        protocol::send(alice.as_fd(), message, &[proof.as_fd()]).unwrap();
    }
    wait_until("it listens", || !told().listens.is_empty());
    let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    assert_eq!(told().listens, [(Owner::Service, at)]);
    // It is to be Linux's again. Where nothing is taken that is so already; and without a socket it
    // is not said.
    let flags = SocketFlags::CLOEXEC;
    let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let answered = |own: OwnedFd| {
        let got = rustix::net::recv(&own, &mut [0], rustix::net::RecvFlags::empty());
        got.map(|(count, _)| count == 1)
    };
    for socket in [&there, &here] {
        let (own, theirs) = pair();
        let ((address, port), proof) = (place(socket), set_of(socket));
        let with = [proof.as_fd(), theirs.as_fd()];
        protocol::send(alice.as_fd(), Message::Withdraw { address, port }, &with).unwrap();
        drop(theirs);
        assert_eq!(answered(own), Ok(true));
    }
    let elsewhere = there.local_addr().unwrap().port();
    let both = [SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, elsewhere), at];
    assert_eq!(told().withdrawn, both);
    for theirs_are_bobs in [false, true] {
        let (own, theirs) = if theirs_are_bobs { as_user(BOB, pair) } else { pair() };
        let ((address, port), proof) = (place(&here), set_of(&here));
        let with = [proof.as_fd(), theirs.as_fd()];
        let with = if theirs_are_bobs { &with[..] } else { &with[1..] };
        protocol::send(alice.as_fd(), Message::Withdraw { address, port }, with).unwrap();
        drop(theirs);
        assert_eq!(answered(own), Ok(false));
    }
    assert_eq!(told().withdrawn, both);
    // The program does not say whose the closed socket is.
    for program in [&alice, &bob] {
        protocol::send(program.as_fd(), Message::Closes { cookie: 7 }, &[]).unwrap();
    }
    wait_until("both are told", || told().closes.len() == 2);
    let closes = told().closes.clone();
    assert!(closes[0].0 != closes[1].0 && closes.iter().all(|(_, cookie)| *cookie == 7));
    // (All programs of this process are the service's own here: root made what they send.)
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Message::Connect { address: 1, port: 1 };
    for (answers, (own, theirs)) in [(false, as_user(BOB, pair)), (true, pair())] {
        protocol::send(alice.as_fd(), to, &[socket.as_fd(), theirs.as_fd()]).unwrap();
        drop(theirs);
        let mut byte = [0];
        let got = rustix::net::recv(&own, &mut byte, rustix::net::RecvFlags::empty());
        assert_eq!(got.map(|(count, _)| count == 1), Ok(answers));
    }
    stop.stop();
    runs.join().unwrap().unwrap();
}
