//! No descriptor is left where a region comes, and then there are some again. (A process of its
//! own: the limit is the process'.)

#![allow(missing_docs)]

mod common;

use common::{End, connection, end, program, service, shared, wait_until};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uncopy_tcp_service::protocol::StayReason;

#[test]
fn a_region_that_found_no_room_comes_again_with_the_next_connection() {
    let service = service();
    let (a, b) = (program(&service.name), program(&service.name));
    let (x, y) = connection();
    let x = end(&a, x);
    wait_until("the service has seen the first end", || {
        a.pump();
        let state = uncopy_tcp_service::tell(&service.name).unwrap();
        state.programs.iter().any(|program| program.waiting == 1)
    });
    let y = end(&b, y);
    wait_until("the other end attaches", || {
        b.pump();
        !y.flow.is_undecided()
    });
    // `a` learns of it where no descriptor is left.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), maximum }).unwrap();
    let mut used: Vec<OwnedFd> = vec![];
    while let Ok(fd) = eventfd(0, EventfdFlags::CLOEXEC) {
        used.push(fd);
    }
    wait_until("the answer", || {
        a.pump();
        !x.flow.is_undecided()
    });
    assert_eq!(x.flow.reason(), Some(StayReason::NoMemory));
    used.clear();
    let (p, q) = shared(&a, &b);
    // And the slot that was in vain is given back when both have closed it.
    [x, y, p, q].into_iter().for_each(End::close);
    wait_until("no connection is left", || {
        uncopy_tcp_service::tell(&service.name).unwrap().flows.is_empty()
    });
}
