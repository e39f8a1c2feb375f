//! Many connections at once.

#![allow(missing_docs)]

mod common;

use common::{End, connection, end, program, service, wait_until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More messages than a socket holds (some 270).
const MANY: usize = 400;

fn room_for_descriptors(wanted: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < wanted) {
        assert!(maximum.is_none_or(|maximum| maximum >= wanted), "descriptors");
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).unwrap();
    }
}

/// It was the client of `bench rpc` that had no core while the service answered the server: a dozen
/// of a thousand connections stayed with Linux.
#[test]
fn a_program_that_looks_for_nothing_while_many_are_matched_learns_of_all_of_them() {
    room_for_descriptors(4096);
    let service = service();
    let (a, b) = (program(&service.name), program(&service.name));
    let (xs, ys): (Vec<_>, Vec<_>) = (0..MANY).map(|_| connection()).unzip();
    let all_wait = |ends: &[End]| ends.iter().all(|end| end.flow.is_undecided());
    let xs: Vec<End> = xs.into_iter().map(|x| end(&a, x)).collect();
    wait_until("the service has seen the first ends", || {
        a.pump();
        let state = uncopy_tcp_service::tell(&service.name).unwrap();
        state.programs.iter().any(|program| program.waiting == MANY as u64)
    });
    assert!(all_wait(&xs));
    // `a` makes no call from here on.
    let ys: Vec<End> = ys.into_iter().map(|y| end(&b, y)).collect();
    wait_until("the other ends attach", || {
        b.pump();
        ys.iter().all(|y| !y.flow.is_undecided())
    });
    assert!(all_wait(&xs));
    let shared = |ends: &[End]| ends.iter().filter(|end| end.flow.is_shared()).count();
    wait_until("what it was told meanwhile", || shared(&xs) == MANY);
    assert_eq!(shared(&ys), MANY);
}
