//! Connections that are closed before their program has heard what becomes of them.

#![allow(missing_docs)]

mod common;

use common::{connection, end, program, service, wait_until};
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
