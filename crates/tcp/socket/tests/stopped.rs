//! A service that is there and does not answer.

#![allow(missing_docs)]

mod common;

use common::program;
use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use uncopy_tcp_service::protocol::{self, CARRIES, Message, TAKES, VERSION};
use uncopy_tcp_socket::Carrier;

#[test]
fn a_program_that_connects_to_another_host_takes_a_stopped_service_for_none() {
    let name = format!("uncopy-tcp-test-stopped-{}", std::process::id());
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    let socket = |of, kind| rustix::net::socket_with(of, kind, SocketFlags::CLOEXEC, None).unwrap();
    let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    // It says that it has a wire, and then nothing any more.
    let service = std::thread::spawn(move || {
        let program = rustix::net::accept(&listener).unwrap();
        protocol::receive(program.as_fd(), RecvFlags::empty()).unwrap();
        let mailbox = rustix::fs::memfd_create("mailbox", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&mailbox, 4096).unwrap();
        let message = Message::Welcome { version: VERSION, wire: TAKES | CARRIES };
        protocol::send(program.as_fd(), message, &[mailbox.as_fd()]).unwrap();
        (listener, program)
    });
    let program = program(&name);
    let socket = socket(AddressFamily::INET, SocketType::STREAM);
    let begun = Instant::now();
    let to = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 80);
    assert_eq!(program.connects(socket.as_fd(), to), Carrier::Nobody);
    assert!(begun.elapsed() < Duration::from_secs(4));
    drop(service.join().unwrap());
}
