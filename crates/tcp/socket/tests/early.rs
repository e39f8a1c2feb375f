//! Connections that are closed before their program has heard what becomes of them.

#![allow(missing_docs)]

mod common;

use common::{connection, end, looks, program, service, wait_until};
use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use uncopy_tcp_service::tell;

#[test]
fn one_that_both_close_before_they_hear_of_their_slot_is_none_also_while_both_sleep() {
    let service = service();
    let (a, b) = (program(&service.name), program(&service.name));
    let (x, y) = connection();
    let (x, y) = (end(&a, x), end(&b, y));
    let flows = || tell(&service.name).unwrap().flows.len();
    wait_until("it has a slot", || flows() == 1);
    // (Neither makes another call.)
    for mut end in [x, y] {
        end.flow.closes(end.flow.number());
        drop(end.socket.take());
        end.flow.closed();
    }
    wait_until("it is gone", || flows() == 0);
    // The slot is another's, and the late answers do it no harm.
    let (x, y) = common::at_rings(&a, &b);
    assert_eq!(flows(), 1);
    x.send(b"1").unwrap();
    assert_eq!(y.receive(&mut [0]), Ok(1));
}

#[test]
fn one_that_is_closed_while_its_other_end_is_not_shown_does_not_wait_any_more() {
    let service = service();
    let program = program(&service.name);
    let (x, _y) = connection();
    let mut end = end(&program, x);
    let waiting = || tell(&service.name).unwrap().programs.iter().map(|p| p.waiting).sum::<u64>();
    wait_until("it waits", || waiting() == 1);
    end.flow.closes(end.flow.number());
    drop(end.socket.take());
    end.flow.closed();
    wait_until("it does not", || waiting() == 0);
}

#[test]
fn one_that_has_ended_its_stream_before_it_has_a_slot_has_not_died() {
    let service = service();
    let (a, b) = (program(&service.name), program(&service.name));
    let (mut x, y) = connection();
    // (More than there is room for: so the end does not arrive before somebody reads.)
    x.set_nonblocking(true).unwrap();
    let full = loop {
        if let Err(error) = x.write(&[0; 100_000]) {
            break error.kind();
        }
    };
    assert_eq!(full, ErrorKind::WouldBlock);
    x.set_nonblocking(false).unwrap();
    x.shutdown(Shutdown::Write).unwrap();
    let (x, y) = (end(&a, x), end(&b, y));
    wait_until("both ends attach", || x.flow.is_shared() & y.flow.is_shared());
    looks(&x);
    y.send(b"unread").unwrap();
    let mut all = vec![0; 100_000];
    while y.receive(&mut all).unwrap() > 0 {}
    assert_eq!(y.flow.take_error(), None);
    assert_eq!(x.receive(&mut all), Ok(6));
}
