//! A program's view of its calls: the same as of a socket of Linux.

#![allow(missing_docs)]

mod common;

use common::{
    End, FULL, at_rings, connection, end, program, program_that, service, shared, wait_until,
};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use uncopy_tcp_shared::wanted::DOORS;
use uncopy_tcp_socket::{Errno, Waiting, iovec};

#[test]
fn bytes_go_through_the_ring_once_both_ends_are_shown() {
    let service = service();
    let (a, b) = shared(&program(&service.name), &program(&service.name));
    let mut got = [0; 64];
    for message in 0..100u8 {
        assert_eq!(a.send(&[message; 64]), Ok(64));
        assert_eq!(b.receive(&mut got), Ok(64));
        assert_eq!(got, [message; 64]);
        assert_eq!(b.send(&got), Ok(64));
        assert_eq!(a.receive(&mut got), Ok(64));
    }
    assert_eq!(a.flow.counts.sent_by_ring.load(Relaxed), 6400);
    assert_eq!(b.flow.counts.received_by_ring.load(Relaxed), 6400);
    assert_eq!(a.flow.counts.offers.load(Relaxed), 1);
}

#[test]
fn both_ends_may_be_one_programs() {
    let service = service();
    let program = program(&service.name);
    let (a, b) = shared(&program, &program);
    let mut got = [0; 5];
    a.send(b"there").unwrap();
    b.receive(&mut got).unwrap();
    b.send(b"back!").unwrap();
    a.receive(&mut got).unwrap();
    assert_eq!(&got, b"back!");
    assert_eq!(b.flow.counts.sent_by_ring.load(Relaxed), 5);
}

#[test]
fn without_a_service_or_a_peer_under_uncopy_it_stays_linux() {
    let (x, y) = connection();
    let alone = end(&program("uncopy-tcp-test-nobody"), x);
    assert!(alone.flow.is_linux());
    assert_eq!(alone.flow.reason().unwrap().text(), "no answer from the service");
    alone.send(b"as ever").unwrap();
    let mut got = [0; 7];
    std::io::Read::read_exact(&mut &y, &mut got).unwrap();
    assert_eq!(&got, b"as ever");

    let service = service();
    let (x, y) = connection();
    let alone = end(&program(&service.name), x);
    alone.send(b"as ever").unwrap();
    std::io::Read::read_exact(&mut &y, &mut got).unwrap();
    drop(y);
    assert_eq!(alone.receive(&mut got), Ok(0));
}

#[test]
fn the_end_of_the_stream_comes_after_all_bytes() {
    let service = service();
    let (a, b) = shared(&program(&service.name), &program(&service.name));
    a.send(&[7; 100_000]).unwrap();
    a.flow.shutdown(rustix::net::Shutdown::Write).unwrap();
    assert_eq!(a.send(b"more"), Err(Errno::PIPE));
    let mut got = vec![0; 200_000];
    assert_eq!(b.receive_with(&mut got, libc::MSG_WAITALL), Ok(100_000));
    assert_eq!(b.receive(&mut got), Ok(0));
    // The other direction goes on.
    b.send(b"late").unwrap();
    assert_eq!(a.receive(&mut got), Ok(4));
    b.close();
    assert_eq!(a.receive(&mut got), Ok(0));
}

#[test]
fn a_close_with_unread_bytes_resets_the_other_end() {
    let service = service();
    let (a, b) = shared(&program(&service.name), &program(&service.name));
    a.send(b"never read").unwrap();
    b.send(b"the last").unwrap();
    b.close();
    let mut got = [0; 100];
    assert_eq!(a.receive(&mut got), Ok(8), "what came before the reset is still there");
    assert_eq!(a.receive(&mut got), Err(Errno::CONNRESET));
    assert_eq!(a.receive(&mut got), Ok(0));
    assert_eq!(a.send(b"x"), Err(Errno::PIPE));
}

#[test]
fn a_close_after_everything_was_read_ends_the_stream() {
    let service = service();
    let (a, b) = shared(&program(&service.name), &program(&service.name));
    b.send(b"bye").unwrap();
    b.close();
    let mut got = [0; 100];
    assert_eq!(a.receive(&mut got), Ok(3));
    assert_eq!(a.receive(&mut got), Ok(0));
    // Linux answers the first with a reset.
    assert_eq!(a.send(b"x"), Ok(1));
    wait_until("the reset", || a.send(b"x").is_err());
}

#[test]
fn flags_mean_what_they_mean() {
    let service = service();
    let (a, b) = shared(&program(&service.name), &program(&service.name));
    let mut got = [0; 10];
    assert_eq!(b.receive_with(&mut got, libc::MSG_DONTWAIT), Err(Errno::AGAIN));
    a.send(b"0123456789abc").unwrap();
    assert_eq!(b.receive_with(&mut got[..4], libc::MSG_PEEK), Ok(4));
    assert_eq!(b.receive_with(&mut got, libc::MSG_PEEK), Ok(10));
    assert_eq!(&got, b"0123456789");
    assert_eq!(b.receive_with(&mut got[..3], libc::MSG_TRUNC), Ok(3));
    assert_eq!(&got, b"0123456789", "those three were dropped, not stored");
    assert_eq!(b.receive(&mut got), Ok(10));
    assert_eq!(&got, b"3456789abc");
    // Without room Linux waits for data too.
    assert_eq!(b.receive_with(&mut [], libc::MSG_DONTWAIT), Err(Errno::AGAIN));
    a.send(b"d").unwrap();
    assert_eq!(b.receive(&mut []), Ok(0));
    assert_eq!(b.receive(&mut got), Ok(1));
    let late = std::thread::scope(|scope| {
        let late = scope.spawn(|| b.receive_with(&mut [0; 10], libc::MSG_WAITALL));
        for part in [b"12345", b"67890"] {
            std::thread::sleep(Duration::from_millis(20));
            a.send(part).unwrap();
        }
        late.join().unwrap()
    });
    assert_eq!(late, Ok(10));
    b.flow.set_nonblocking(true);
    assert_eq!(b.receive(&mut got), Err(Errno::AGAIN));
}

#[test]
fn a_full_ring_takes_a_part_and_then_nothing_and_is_writable_again_after_a_third() {
    let service = service();
    let (a, b) = shared(&program(&service.name), &program(&service.name));
    a.flow.set_nonblocking(true);
    let sent = a.send(&vec![1; 2 * FULL]).unwrap();
    assert_eq!(sent, FULL);
    assert_eq!(a.send(b"x"), Err(Errno::AGAIN));
    let out = rustix::event::PollFlags::OUT;
    assert!(!a.flow.ready().now.contains(out));
    b.receive(&mut vec![0; 1000]).unwrap();
    assert!(!a.flow.ready().now.contains(out));
    b.receive(&mut vec![0; 400_000]).unwrap();
    assert!(a.flow.ready().now.contains(out));
    assert_eq!(a.send(&vec![2; FULL]), Ok(401_000));
}

#[test]
fn timeouts_end_a_wait() {
    let service = service();
    for waiting in [Waiting::Adaptive, Waiting::Sleep, Waiting::Spin] {
        let of = || program_that(&service.name, waiting);
        let (a, b) = shared(&of(), &of());
        a.send(b"x").unwrap();
        let mut got = [0; 10];
        assert_eq!(b.receive(&mut got), Ok(1));
        b.socket.as_ref().unwrap().set_read_timeout(Some(Duration::from_millis(80))).unwrap();
        b.flow.refresh_timeouts();
        let begun = Instant::now();
        assert_eq!(b.receive(&mut got), Err(Errno::AGAIN));
        assert!(begun.elapsed() >= Duration::from_millis(79));
        a.socket.as_ref().unwrap().set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        a.flow.refresh_timeouts();
        // The ring, and then Linux' queues.
        while a.send(&vec![0; 1 << 20]).is_ok() {}
        let begun = Instant::now();
        assert_eq!(a.send(&[0]), Err(Errno::AGAIN));
        assert!(begun.elapsed() >= Duration::from_millis(49));
    }
}

#[test]
fn bytes_that_linux_carried_before_come_first() {
    let service = service();
    let (a, b) = (program(&service.name), program(&service.name));
    let (x, y) = connection();
    let x = end(&a, x);
    x.send(b"by linux ").unwrap();
    let y = end(&b, y);
    wait_until("both ends attach", || x.flow.is_shared() & y.flow.is_shared());
    assert_eq!(y.receive_with(&mut [0], libc::MSG_PEEK), Ok(1));
    x.send(b"by ring ").unwrap();
    assert_eq!(x.flow.counts.sent_by_ring.load(Relaxed), 8);
    // Taken back: nobody has entered the ring.
    x.flow.send_by_linux(false).unwrap();
    assert_eq!(x.flow.counts.leaves.load(Relaxed), 1);
    x.send(b"by ring again ").unwrap();
    let mut got = [0; 100];
    let mut all = vec![];
    while all.len() < 31 {
        let bytes = y.receive(&mut got).unwrap();
        all.extend_from_slice(&got[..bytes]);
    }
    assert_eq!(all, b"by linux by ring by ring again ");
}

#[test]
fn a_thread_that_sleeps_is_woken_by_bytes_by_the_end_and_by_a_reset() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    for how in 0..3 {
        let (a, b) = shared(&of(), &of());
        a.send(b"x").unwrap();
        b.receive(&mut [0]).unwrap();
        let (woken, sent) = std::thread::scope(|scope| {
            let b = &b;
            let sleeper = scope.spawn(move || b.receive(&mut [0; 8]));
            std::thread::sleep(Duration::from_millis(50));
            match how {
                0 => drop(a.send(b"12")),
                1 => a.flow.shutdown(rustix::net::Shutdown::Both).unwrap(),
                _ => {
                    b.send(b"unread").unwrap();
                    a.close();
                }
            }
            (sleeper.join().unwrap(), how)
        });
        let expected = [Ok(2), Ok(0), Err(Errno::CONNRESET)][sent];
        assert_eq!(woken, expected);
    }
}

/// The fifth slept at a door that nobody knocked at.
#[test]
fn each_of_more_sleepers_than_there_are_doors_is_woken() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let (a, b) = (of(), of());
    let pairs: Vec<_> = (0..2 * DOORS + 2).map(|_| shared(&a, &b)).collect();
    for (x, y) in &pairs {
        x.send(b"x").unwrap();
        y.receive(&mut [0]).unwrap();
        y.socket.as_ref().unwrap().set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        y.flow.refresh_timeouts();
    }
    std::thread::scope(|scope| {
        let sleepers: Vec<_> =
            pairs.iter().map(|(_, y)| scope.spawn(|| y.receive(&mut [0; 8]))).collect();
        std::thread::sleep(Duration::from_millis(100));
        for ((x, _), sleeper) in pairs.iter().zip(sleepers) {
            x.send(b"12").unwrap();
            assert_eq!(sleeper.join().unwrap(), Ok(2));
        }
    });
}

/// With only the process' doors, two others of twelve sleepers are woken each time.
#[test]
fn in_a_crowd_of_sleepers_only_the_one_that_has_bytes_is_woken() {
    const WARM: usize = 50;
    const ROUNDS: usize = 400;
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let (a, b) = (of(), of());
    let pairs: Vec<_> = (0..3 * DOORS).map(|_| shared(&a, &b)).collect();
    let echo = |y: &End| {
        assert_eq!(y.receive(&mut [0; 8]), Ok(2));
        y.send(b"34").unwrap();
    };
    let ask = |x: &End| {
        x.send(b"12").unwrap();
        assert_eq!(x.receive(&mut [0; 8]), Ok(2));
    };
    let most = std::thread::scope(|scope| {
        let quiet: Vec<_> = pairs[1..]
            .iter()
            .map(|(_, y)| {
                scope.spawn(move || {
                    (0..WARM).for_each(|_| echo(y));
                    let before = times_slept();
                    echo(y);
                    times_slept() - before
                })
            })
            .collect();
        scope.spawn(|| (0..WARM + ROUNDS + 1).for_each(|_| echo(&pairs[0].1)));
        for _ in 0..WARM {
            pairs.iter().for_each(|(x, _)| ask(x));
        }
        std::thread::sleep(Duration::from_millis(50));
        (0..ROUNDS).for_each(|_| ask(&pairs[0].0));
        pairs.iter().for_each(|(x, _)| ask(x));
        quiet.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    });
    assert!(most < ROUNDS as i64 / 20, "woken {most} times");
}

fn times_slept() -> i64 {
    // SAFETY: fills what it is given.
    unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw
    }
}

#[test]
fn a_pointer_of_no_buffer_is_not_followed_by_a_full_or_empty_ring() {
    let service = service();
    let (a, b) = shared(&program(&service.name), &program(&service.name));
    a.send(&[]).unwrap();
    let nowhere = [uncopy_tcp_socket::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }];
    // SAFETY: of no bytes.
    let receive = || unsafe { b.flow.receive(&nowhere, libc::MSG_DONTWAIT) };
    assert_eq!(receive(), Err(Errno::AGAIN));
    a.send(&vec![1; 256 << 10]).unwrap();
    assert_eq!(receive(), Ok(0));
}

/// Nothing is there.
fn nowhere() -> iovec {
    iovec { iov_base: std::ptr::without_provenance_mut(8), iov_len: 100 }
}

#[test]
fn a_bad_buffer_is_the_call_s_own_error_and_what_linux_has_still_comes_before_the_ring() {
    let service = service();
    let (a, b) = shared(&program(&service.name), &program(&service.name));
    // By Linux, and then by the ring that is offered.
    std::io::Write::write_all(&mut a.socket.as_ref().unwrap(), b"by linux ").unwrap();
    wait_until("it has arrived", || a.flow.unsent() == Ok(0));
    a.send(b"by ring").unwrap();
    assert_eq!(a.flow.counts.sent_by_ring.load(Relaxed), 7);
    // SAFETY: it is the kernel that looks there.
    let got = unsafe { b.flow.receive(&[nowhere()], libc::MSG_DONTWAIT) };
    assert_eq!(got, Err(Errno::FAULT));
    let mut got = [0; 16];
    assert_eq!(b.receive_with(&mut got, libc::MSG_WAITALL), Ok(16));
    assert_eq!(&got, b"by linux by ring");
    assert_eq!(b.receive_with(&mut got, libc::MSG_DONTWAIT), Err(Errno::AGAIN));
}

#[test]
fn a_bad_second_buffer_is_no_error_of_the_next_call() {
    let service = service();
    let (a, b) = at_rings(&program(&service.name), &program(&service.name));
    // The stream goes on by Linux.
    a.send(b"by ring ").unwrap();
    a.flow.send_by_linux(true).unwrap();
    a.send(b"by linux").unwrap();
    wait_until("it has arrived", || b.flow.unread() == Ok(16));
    let mut first = [0u8; 8];
    let first = iovec { iov_base: first.as_mut_ptr().cast(), iov_len: 8 };
    // SAFETY: the first is ours; nobody but the kernel looks at the other.
    let got = unsafe { b.flow.receive(&[first, nowhere()], libc::MSG_DONTWAIT) };
    assert_eq!(got, Ok(8));
    let mut got = [0; 8];
    assert_eq!(b.receive_with(&mut got, libc::MSG_DONTWAIT), Ok(8));
    assert_eq!(&got, b"by linux");
}

/// Between its look for the mark and what it takes there is a moment.
#[test]
fn a_call_that_waits_for_all_ends_at_an_urgent_byte_that_comes_meanwhile() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let service = service();
    let (a, b) = at_rings(&program(&service.name), &program(&service.name));
    for round in 0..3000 {
        let got = std::thread::scope(|scope| {
            let waits = scope.spawn(|| b.receive_with(&mut [0; 3], libc::MSG_WAITALL));
            let begun = Instant::now();
            let moment = Duration::from_micros(rng.u64(0..100));
            while begun.elapsed() < moment {}
            a.send(b"x").unwrap();
            a.send_with(b"!", libc::MSG_OOB).unwrap();
            while !waits.is_finished() && begun.elapsed() < Duration::from_secs(2) {
                std::thread::yield_now();
            }
            if !waits.is_finished() {
                a.send(b"yz").unwrap();
            }
            waits.join().unwrap()
        });
        assert_eq!(got, Ok(1), "round {round}");
        let mut byte = [0];
        assert_eq!((b.receive_with(&mut byte, libc::MSG_OOB), byte), (Ok(1), *b"!"));
    }
}
