//! Helpers that the tests of the service share.

#![allow(dead_code)]

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use uncopy_tcp_service::Client;
use uncopy_tcp_service::protocol::{DOOR_COUNT, Message};

/// A program's doors.
pub fn doors() -> Vec<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    (0..DOOR_COUNT).map(|_| eventfd(0, flags).unwrap()).collect()
}

/// The service's next message.
pub fn answer(client: &Client) -> Message {
    let begun = Instant::now();
    loop {
        if let Some((message, _)) = client.next() {
            return message;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "no answer");
        std::thread::sleep(Duration::from_millis(1));
    }
}
