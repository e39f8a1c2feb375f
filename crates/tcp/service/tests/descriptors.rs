//! No descriptor is left: the service goes on with those that it has, and uses no processor time
//! for those that come.

#![allow(missing_docs)]

mod common;

use common::answer;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use uncopy_tcp_service::protocol::{self, DOOR_COUNT, Message, StayReason, VERSION};
use uncopy_tcp_service::{Client, Limits, Options, Service, ends};

#[test]
fn where_no_descriptor_is_left_programs_that_are_here_stay_and_others_are_sent_away() {
    let name = format!("uncopy-tcp-test-descriptors-{}", std::process::id());
    let limits = Limits::default();
    let service = Service::bind(Options { name: name.clone(), limits, ends_idle: None }).unwrap();
    let stop = service.stop();
    let service = std::thread::spawn(|| service.run());
    let doors: Vec<OwnedFd> =
        (0..DOOR_COUNT).map(|_| eventfd(0, EventfdFlags::CLOEXEC).unwrap()).collect();
    let doors: Vec<BorrowedFd> = doors.iter().map(AsFd::as_fd).collect();
    let client = Client::connect(&name, &doors).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let register = |token, socket: &TcpStream| {
        client.register(token, socket.as_fd(), ends::name(socket).unwrap()).unwrap();
    };
    // A program that speaks for itself: what is made for a message is there before.
    let (unix, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let program = rustix::net::socket_with(unix, kind, SocketFlags::CLOEXEC, None).unwrap();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::connect(&program, &address).unwrap();
    protocol::send(program.as_fd(), Message::Hello(VERSION), &doors).unwrap();
    let receives = || protocol::receive(program.as_fd(), RecvFlags::empty()).unwrap().0;
    assert!(matches!(receives(), Message::Welcome { .. }));
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let nothing = epoll::EventFlags::empty();
    epoll::add(&set, &socket, epoll::EventData::new_u64(0), nothing).unwrap();
    // Others use all that are left, but for one: that of a program that comes.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), maximum }).unwrap();
    let mut used: Vec<OwnedFd> = vec![];
    while let Ok(fd) = eventfd(0, EventfdFlags::CLOEXEC) {
        used.push(fd);
    }
    // One that is here.
    let registration =
        Message::Register { token: 7, name: ends::name(&socket).unwrap(), filtered: false };
    protocol::send(program.as_fd(), registration, &[set.as_fd()]).unwrap();
    assert_eq!(receives(), Message::Stays { token: 7, reason: StayReason::NoMemory });
    // One that comes.
    used.pop();
    let begun = Instant::now();
    assert!(Client::connect(&name, &doors).is_err());
    assert!(begun.elapsed() < Duration::from_millis(900), "it waited for an answer");
    let before = clock_gettime(ClockId::ProcessCPUTime);
    std::thread::sleep(Duration::from_millis(500));
    let after = clock_gettime(ClockId::ProcessCPUTime);
    let spent = (after.tv_sec - before.tv_sec) * 1_000_000_000 + after.tv_nsec - before.tv_nsec;
    assert!(spent < 100_000_000, "{spent} ns of half a second");
    // With descriptors again, all is as before.
    used.clear();
    register(8, &socket);
    let (other, _) = listener.accept().unwrap();
    register(9, &other);
    assert!(matches!(answer(&client), Message::Matched { token: 8, .. }));
    stop.stop();
    service.join().unwrap().unwrap();
}
