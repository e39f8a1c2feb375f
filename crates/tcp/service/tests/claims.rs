//! An end of a connection belongs to a process that has a descriptor of it, and to nobody else; and
//! nothing that is sent to the service holds it.

#![allow(missing_docs)]

mod common;

use common::{answer, doors};
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use uncopy_tcp_service::protocol::{self, Message, StayReason, VERSION};
use uncopy_tcp_service::{Client, Limits, Options, Service, ends};

fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (a, listener.accept().unwrap().0)
}

fn service(what: &str) -> (String, Service) {
    let name = format!("uncopy-tcp-test-claims-{what}-{}", std::process::id());
    let limits = Limits::default();
    let options = Options { name: name.clone(), limits, ends_idle: None };
    (name, Service::bind(options).unwrap())
}

#[test]
fn a_program_that_claims_an_end_of_anothers_does_not_get_it_and_the_other_does() {
    let (name, service) = service("others");
    let stop = service.stop();
    let runs = std::thread::spawn(|| service.run());
    let doors = doors();
    let doors: Vec<BorrowedFd> = doors.iter().map(AsFd::as_fd).collect();
    let [one, other, thief] = [(); 3].map(|()| Client::connect(&name, &doors).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (x, y) = connection(&listener);
    let (own, _peer) = connection(&listener);
    let of = |socket: &TcpStream| ends::name(socket).unwrap();
    let unconnected = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // By a socket of its own; by the other end of the connection, which it may have; by no
    // connection.
    for (token, socket, claim) in [
        (1, own.as_fd(), of(&x)),
        (2, own.as_fd(), of(&own).other()),
        (3, y.as_fd(), of(&x)),
        (4, listener.as_fd(), of(&x)),
        (5, unconnected.as_fd(), of(&x)),
    ] {
        thief.register(token, socket, claim).unwrap();
        assert_eq!(answer(&thief), Message::Stays { token, reason: StayReason::NotConnected });
    }
    // By the listener, of a connection that it had.
    let (gone, accepted) = connection(&listener);
    let name_of_gone = of(&accepted);
    for end in [gone, accepted] {
        sockopt::set_socket_linger(&end, Some(Duration::ZERO)).unwrap();
    }
    thief.register(9, listener.as_fd(), name_of_gone).unwrap();
    assert_eq!(answer(&thief), Message::Stays { token: 9, reason: StayReason::NotConnected });
    // A claim by nothing but its name.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&x));
    let path = rustix::fs::open(path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
    assert!(thief.register(6, path.unwrap().as_fd(), of(&x)).is_err());
    one.register(7, x.as_fd(), of(&x)).unwrap();
    other.register(8, y.as_fd(), of(&y)).unwrap();
    assert!(matches!(answer(&one), Message::Matched { token: 7, .. }));
    assert!(matches!(answer(&other), Message::Matched { token: 8, .. }));
    assert!(thief.next().is_none());
    stop.stop();
    runs.join().unwrap().unwrap();
}

/// As a service that is stopped.
#[test]
fn a_socket_registered_with_a_service_that_does_not_look_ends_when_it_is_closed() {
    let (name, service) = service("stopped");
    let (unix, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let program = rustix::net::socket_with(unix, kind, SocketFlags::CLOEXEC, None).unwrap();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::connect(&program, &address).unwrap();
    let (doors, set) = (doors(), epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
    let with: Vec<BorrowedFd> = doors.iter().map(AsFd::as_fd).collect();
    protocol::send(program.as_fd(), Message::Hello(VERSION), &with).unwrap();
    // An address that nobody else uses: of another, anybody may take the port that becomes free.
    let listener = TcpListener::bind("127.77.99.1:0").unwrap();
    let (mut y, x) = connection(&listener);
    drop(listener);
    let (data, nothing) = (epoll::EventData::new_u64(1), epoll::EventFlags::empty());
    epoll::add(&set, &x, data, nothing).unwrap();
    let register = Message::Register { token: 1, name: ends::name(&x).unwrap(), filtered: false };
    protocol::send(program.as_fd(), register, &[set.as_fd()]).unwrap();
    let port = x.local_addr().unwrap();
    sockopt::set_socket_linger(&x, Some(Duration::ZERO)).unwrap();
    drop(x);
    y.set_nonblocking(true).unwrap();
    let read = y.read(&mut [0]).unwrap_err();
    assert_eq!(read.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(TcpListener::bind(port).is_ok(), "its port is free");
    // And the service finds nothing of it.
    let stop = service.stop();
    let runs = std::thread::spawn(|| service.run());
    let receives = || protocol::receive(program.as_fd(), rustix::net::RecvFlags::empty());
    assert!(matches!(receives().unwrap().0, Message::Welcome { .. }));
    let stays = Message::Stays { token: 1, reason: StayReason::NotConnected };
    assert_eq!(receives().unwrap().0, stays);
    stop.stop();
    runs.join().unwrap().unwrap();
}
