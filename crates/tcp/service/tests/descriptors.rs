//! No descriptor is left: the service goes on with those that it has, and uses no processor time for those that come.

#![allow(missing_docs)]

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use uncopy_tcp_service::protocol::{DOOR_COUNT, Message, Reason};
use uncopy_tcp_service::{Client, Limits, Options, Service};

fn answer(client: &Client) -> Message {
    let begun = Instant::now();
    loop {
        if let Some((message, _)) = client.next() {
            return message;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "no answer");
        std::thread::sleep(Duration::from_millis(1));
    }
}

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
    // Others use all that are left, but for one: that of a program that comes.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), maximum }).unwrap();
    let mut used: Vec<OwnedFd> = vec![];
    while let Ok(fd) = eventfd(0, EventfdFlags::CLOEXEC) {
        used.push(fd);
    }
    // One that is here.
    client.show(7, socket.as_fd()).unwrap();
    assert_eq!(answer(&client), Message::Stays { token: 7, reason: Reason::NoMemory });
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
    // As before.
    used.clear();
    client.show(8, socket.as_fd()).unwrap();
    let (other, _) = listener.accept().unwrap();
    client.show(9, other.as_fd()).unwrap();
    assert!(matches!(answer(&client), Message::Matched { token: 8, .. }));
    stop.stop();
    service.join().unwrap().unwrap();
}
