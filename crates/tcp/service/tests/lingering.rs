//! Sockets that come with messages which the service does not take are closed, and it does not wait
//! for that: not even where SO_LINGER is set, and theirs is the last close.

#![allow(missing_docs)]

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use uncopy_tcp_service::protocol::{self, DOOR_COUNT, Message, VERSION};
use uncopy_tcp_service::{Client, Limits, Options, Service, ends, tell};

/// One whose peer takes nothing, and whose close waits for that.
fn full(listener: &TcpListener) -> (TcpStream, TcpStream) {
    sockopt::set_socket_recv_buffer_size(listener, 4096).unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    sockopt::set_socket_send_buffer_size(&socket, 4096).unwrap();
    let (peer, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 1 << 20]).is_ok() {}
    sockopt::set_socket_linger(&socket, Some(Duration::from_secs(30))).unwrap();
    (socket, peer)
}

/// A program that speaks without having said hello.
fn stranger(name: &str) -> OwnedFd {
    let (unix, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(unix, kind, SocketFlags::CLOEXEC, None).unwrap();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    socket
}

#[test]
fn sockets_of_messages_that_are_not_taken_keep_nobody_waiting() {
    let name = format!("uncopy-tcp-test-lingering-{}", std::process::id());
    let limits = Limits::default();
    let service = Service::bind(Options { name: name.clone(), limits, ends_idle: None }).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let doors: Vec<OwnedFd> =
        (0..DOOR_COUNT).map(|_| eventfd(0, EventfdFlags::CLOEXEC).unwrap()).collect();
    let doors: Vec<BorrowedFd> = doors.iter().map(AsFd::as_fd).collect();
    let mut kept = vec![];
    let (end, _peer) = full(&listener);
    let register = Message::Register { token: 1, name: ends::name(&end).unwrap(), filtered: false };
    let unknown = [register, Message::Hello(0), Message::Tell];
    // Of one that is known: in place of a set, without a wire, and with too few.
    let known = [register, Message::Connect { address: 1, port: 1 }, Message::Relay];
    let says_hello = [false, true].into_iter();
    let all = says_hello.zip([&unknown, &known]).flat_map(|(of, all)| all.map(|one| (of, one)));
    for (is_known, message) in all {
        let program = stranger(&name);
        if is_known {
            protocol::send(program.as_fd(), Message::Hello(VERSION), &doors).unwrap();
        }
        let (full, peer) = full(&listener);
        protocol::send(program.as_fd(), message, &[full.as_fd()]).unwrap();
        // (The service is not there yet: so its close is the last.)
        drop(full);
        kept.push((program, peer));
    }
    let stop = service.stop();
    let service = std::thread::spawn(|| service.run());
    let begun = Instant::now();
    while tell(&name).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it waits");
    }
    // (It has come to all of them.)
    let _client = Client::connect(&name, &doors).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "it waits");
    stop.stop();
    drop(kept);
    service.join().unwrap().unwrap();
}
