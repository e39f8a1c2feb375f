//! Descriptors that a program holds of another one, once that has gone. A test of its own process:
//! it counts them.

#![allow(missing_docs)]

mod common;

use common::{at_rings, program, service, wait_until};
use std::fs;

/// Doors, ours and those of other programs, are among them.
fn eventfds() -> usize {
    let is_one = |path: &std::path::Path| {
        fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("eventfd"))
    };
    fs::read_dir("/proc/self/fd").unwrap().flatten().filter(|entry| is_one(&entry.path())).count()
}

#[test]
fn nothing_is_held_of_a_program_that_has_gone_once_the_last_connection_with_it_is_closed() {
    let service = service();
    let here = program(&service.name);
    // (The program that is the first to connect begins the conversation with the service.)
    let (x, _y) = at_rings(&here, &here);
    let usual = eventfds();
    for closed_first in [true, false] {
        let other = program(&service.name);
        let (theirs, ours) = at_rings(&other, &here);
        assert!(eventfds() > usual);
        theirs.close();
        if closed_first {
            ours.close();
            drop(other);
        } else {
            drop(other);
            // (Its doors go at once, and those that are known of it here stay until the connection
            // ends.)
            std::thread::sleep(std::time::Duration::from_millis(100));
            here.pump();
            assert!(eventfds() > usual);
            ours.close();
            assert_eq!(eventfds(), usual, "after the last close");
        }
        wait_until("it is heard that the other program has gone", || {
            here.pump();
            eventfds() == usual
        });
    }
    x.close();
}
