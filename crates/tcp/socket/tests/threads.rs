//! Several threads over one connection, or over one set.

#![allow(missing_docs)]

mod common;

use common::{
    End, at_rings, connection, end, handle_interruptions, interrupt, program_that, service, shared,
    wait_until,
};
use rustix::event::epoll;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};
use uncopy_tcp_shared::wanted::DOORS;
use uncopy_tcp_socket::set::Event;
use uncopy_tcp_socket::{Errno, Set, Waiting};

const IN: u32 = libc::EPOLLIN as u32;
/// (A wait that comes to its end looks once more.)
const TIMEOUT: Duration = Duration::from_secs(3);

const EDGE: u32 = libc::EPOLLET as u32;

/// More threads than doors wait for bytes of one connection. All but the last to come are
/// interrupted; it is woken all the same.
#[test]
fn an_interrupted_thread_leaves_others_their_wake_up() {
    handle_interruptions();
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let (x, y) = {
        let (client, server) = (of(), of());
        at_rings(&client, &server)
    };
    let ids: Vec<AtomicU64> = (0..=2 * DOORS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        let y = &y;
        let wait = |id: &AtomicU64| {
            // SAFETY: a question.
            id.store(unsafe { libc::pthread_self() }, Relaxed);
            y.receive(&mut [0])
        };
        let mut threads = vec![];
        for id in &ids {
            threads.push((id, scope.spawn(move || wait(id))));
            std::thread::sleep(Duration::from_millis(50));
        }
        let (last_id, last) = threads.pop().unwrap();
        for (id, thread) in threads {
            interrupt(id);
            assert_eq!(thread.join().unwrap(), Err(Errno::INTR));
        }
        x.send(b"2").unwrap();
        let begun = Instant::now();
        while !last.is_finished() && begun.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        let woken = last.is_finished();
        if !woken {
            interrupt(last_id);
        }
        let got = last.join().unwrap();
        assert!(woken && got == Ok(1), "nobody woke it: {got:?}");
    });
}

/// Each thread takes one message of those that have come, and no other before all threads have one:
/// a thread that sleeps in a set where something is left is woken.
fn threads_share_a_set(connections: usize, each: usize, flags: u32, by_ring: bool) {
    const THREADS: usize = 4;
    const ROUNDS: usize = 300;
    assert_eq!(connections * each, THREADS);
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let (client, server) = (of(), of());
    let pair = || {
        if by_ring {
            return shared(&client, &server);
        }
        let nobodys = || program_that("uncopy-tcp-test-nobody", Waiting::Sleep);
        let (x, y) = connection();
        (end(&nobodys(), x), end(&nobodys(), y))
    };
    let pairs: Vec<(End, End)> = (0..connections).map(|_| pair()).collect();
    let set =
        Set::new(server.clone(), epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()).unwrap();
    let add = |(i, (_, y)): (usize, &(End, End))| {
        let flow = by_ring.then(|| y.flow.clone());
        set.add(y.flow.number(), flow, IN | flags, i as u64).unwrap();
    };
    for (x, y) in &pairs {
        x.send(b"1").unwrap();
        assert_eq!(y.receive(&mut [0]), Ok(1));
    }
    let mut rng = fastrand::Rng::new();
    let (begun, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let slept_on = AtomicBool::new(false);
    let take_one = || {
        let since = Instant::now();
        while since.elapsed() < TIMEOUT {
            let mut event = [Event::default()];
            if set.wait(&mut event, Some(TIMEOUT)) == Ok(1)
                && pairs[event[0].data as usize].1.receive_with(&mut [0], libc::MSG_DONTWAIT)
                    == Ok(1)
            {
                taken.fetch_add(1, Relaxed);
                return;
            }
        }
        slept_on.store(true, Relaxed);
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    take_one();
                    while begun.load(Relaxed) == round && !slept_on.load(Relaxed) {
                        std::thread::sleep(Duration::from_micros(50));
                    }
                    if slept_on.load(Relaxed) {
                        return;
                    }
                }
            });
        }
        // They sleep before there is a connection.
        std::thread::sleep(Duration::from_millis(20));
        pairs.iter().enumerate().for_each(add);
        for round in 1..=ROUNDS {
            begun.store(round, Relaxed);
            // (Now they all sleep; now they do not.)
            std::thread::sleep(Duration::from_micros(rng.u64(..2000)));
            for (x, _) in &pairs {
                for _ in 0..each {
                    x.send(b"2").unwrap();
                }
            }
            wait_until("each thread has one", || {
                taken.load(Relaxed) == THREADS * round || slept_on.load(Relaxed)
            });
            assert!(!slept_on.load(Relaxed), "round {round}: a thread slept on");
        }
        begun.store(ROUNDS + 1, Relaxed);
    });
}

#[test]
fn of_threads_that_share_a_set_each_gets_a_connection() {
    for by_ring in [false, true] {
        threads_share_a_set(4, 1, 0, by_ring);
    }
}

#[test]
fn of_threads_that_share_an_edge_triggered_set_each_gets_a_connection() {
    for by_ring in [false, true] {
        threads_share_a_set(4, 1, EDGE, by_ring);
    }
}

#[test]
fn threads_that_share_a_set_are_told_of_what_one_of_them_left() {
    for by_ring in [false, true] {
        threads_share_a_set(1, 4, 0, by_ring);
    }
}
