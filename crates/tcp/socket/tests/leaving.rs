//! Going back to Linux for good: with both busy, with the other side asleep, computing, dead or
//! finished, and with both at once. Afterwards every byte comes out of the bare socket, or of the
//! ring, once and in order.

#![allow(missing_docs)]

mod common;

use common::{
    End, FULL, at_rings, handle_interruptions, interrupt, program_that, service, wait_until,
};
use rustix::event::PollFlags;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;
use uncopy_tcp_socket::{Context, Errno, Waiting, Way};

const TIMEOUT: Duration = Duration::from_secs(5);

fn both(service: &str) -> (Arc<Context>, Arc<Context>) {
    (program_that(service, Waiting::Sleep), program_that(service, Waiting::Sleep))
}

/// As another program does it: by the socket alone.
fn read_bare(end: &End, bytes: usize) -> Vec<u8> {
    let mut got = vec![0; bytes];
    end.socket.as_ref().unwrap().set_read_timeout(Some(TIMEOUT)).unwrap();
    end.socket.as_ref().unwrap().read_exact(&mut got).unwrap();
    got
}

#[test]
fn a_receiver_that_has_read_everything_needs_nobody() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    assert_eq!(a.flow.by_linux(Duration::ZERO), Ok(true));
    // Now the bare socket is all there is.
    a.socket.as_ref().unwrap().write_all(b"plain").unwrap();
    let mut got = [0; 10];
    assert_eq!(b.receive(&mut got), Ok(5));
    b.send(b"plain too").unwrap();
    assert_eq!(read_bare(&a, 9), b"plain too");
    assert_eq!(b.flow.counts.sent_by_ring.load(Relaxed), 4);
}

#[test]
fn a_ring_that_was_left_empty_has_nothing_to_read_until_linux_has() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    assert_eq!(a.flow.by_linux(Duration::ZERO), Ok(true));
    // (A call that does not wait would be told to try again.)
    assert!(!b.flow.ready().now.contains(PollFlags::IN));
    a.socket.as_ref().unwrap().write_all(b"plain").unwrap();
    assert_eq!(b.receive(&mut [0; 10]), Ok(5));
}

#[test]
fn a_receiver_that_never_looked_for_bytes_has_nothing_to_give_back() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = {
        let (p, q) = common::connection();
        (common::end(&x, p), common::end(&y, q))
    };
    wait_until("both ends attach", || a.flow.is_shared() & b.flow.is_shared());
    a.send(b"a request, for another program to read").unwrap();
    assert_eq!(a.flow.counts.sent_by_ring.load(Relaxed), 0);
    // Without any call: not even exec has to be seen.
    assert_eq!(read_bare(&b, 38), b"a request, for another program to read");
}

#[test]
fn unread_bytes_are_taken_back_by_a_peer_that_sleeps_over_the_connection() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    b.send(&[7; 100_000]).unwrap();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut got = [0; 5];
            b.receive(&mut got).map(|_| got)
        });
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(a.flow.by_linux(TIMEOUT), Ok(true));
        assert_eq!(read_bare(&a, 100_000), vec![7; 100_000]);
        a.socket.as_ref().unwrap().write_all(b"woken").unwrap();
        assert_eq!(sleeper.join().unwrap(), Ok(*b"woken"));
    });
}

#[test]
fn unread_bytes_are_taken_back_by_a_peer_that_sleeps_in_a_set() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    let (other, another) = at_rings(&x, &y);
    b.send(b"in the ring").unwrap();
    let set = {
        use rustix::event::epoll;
        let kernel = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        uncopy_tcp_socket::Set::new(y.clone(), kernel).unwrap()
    };
    // Over another connection: requests are for the whole program.
    set.add(another.flow.number(), Some(another.flow.clone()), libc::EPOLLIN as u32, 1).unwrap();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut events = [uncopy_tcp_socket::set::Event::default(); 4];
            set.wait(&mut events, Some(TIMEOUT))
        });
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(a.flow.by_linux(TIMEOUT), Ok(true));
        assert_eq!(read_bare(&a, 11), b"in the ring");
        other.send(b"x").unwrap();
        assert_eq!(sleeper.join().unwrap(), Ok(1));
    });
}

#[test]
fn a_peer_that_computes_takes_it_back_by_the_thread_that_attends_or_at_its_next_call() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    b.send(b"first").unwrap();
    let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| y.attend(stop.as_fd()).unwrap());
        assert_eq!(a.flow.by_linux(TIMEOUT), Ok(true));
        rustix::io::write(&stop, &1u64.to_ne_bytes()).unwrap();
    });
    assert_eq!(read_bare(&a, 5), b"first");

    let (a, b) = at_rings(&x, &y);
    b.send(b"first").unwrap();
    std::thread::scope(|scope| {
        let leaver = scope.spawn(|| a.flow.by_linux(TIMEOUT));
        std::thread::sleep(Duration::from_millis(30));
        b.send(b" and second").unwrap();
        assert_eq!(leaver.join().unwrap(), Ok(true));
    });
    assert_eq!(read_bare(&a, 16), b"first and second");
}

#[test]
fn a_close_gives_linux_all_that_was_taken_back_whatever_signals_and_timeouts_say() {
    gives_linux_all_that_was_taken_back(End::close);
}

#[test]
fn a_shutdown_gives_linux_all_that_was_taken_back_whatever_signals_and_timeouts_say() {
    gives_linux_all_that_was_taken_back(|b| {
        b.flow.shutdown(rustix::net::Shutdown::Write).unwrap();
    });
}

/// A call that ends the stream does so after all bytes, and sleeps until Linux has room for them.
fn gives_linux_all_that_was_taken_back(ends: impl FnOnce(End) + Send) {
    handle_interruptions();
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    // It takes a part at a time.
    let lowest: i32 = 16 << 10;
    // SAFETY: tcp(7): an int.
    let set = unsafe {
        let (level, option) = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
        let (at, size) = ((&raw const lowest).cast(), size_of::<i32>() as libc::socklen_t);
        libc::setsockopt(b.socket.as_ref().unwrap().as_raw_fd(), level, option, at, size)
    };
    assert_eq!(set, 0);
    assert_eq!(b.send(&vec![7; FULL]), Ok(FULL));
    let id = AtomicU64::new(0);
    let spent = std::thread::scope(|scope| {
        let leaver = scope.spawn(|| a.flow.by_linux(TIMEOUT));
        std::thread::sleep(Duration::from_millis(30));
        let ender = scope.spawn(|| {
            // SAFETY: a question.
            id.store(unsafe { libc::pthread_self() }, Relaxed);
            let socket = b.socket.as_ref().unwrap();
            socket.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
            b.flow.refresh_timeouts();
            ends(b);
            rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime)
        });
        wait_until("it ends", || id.load(Relaxed) != 0);
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(20));
            interrupt(&id);
        }
        assert!(!ender.is_finished(), "it did not wait for room");
        assert_eq!(leaver.join().unwrap(), Ok(true));
        assert_eq!(read_bare(&a, FULL), vec![7; FULL]);
        ender.join().unwrap()
    });
    assert!((spent.tv_sec, spent.tv_nsec) < (0, 100_000_000), "it did not sleep: {spent:?}");
    assert_eq!(a.socket.as_ref().unwrap().read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_peer_that_does_not_answer_leaves_the_ring_as_it_was() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    b.send(b"unread").unwrap();
    assert_eq!(a.flow.by_linux(Duration::from_millis(50)), Ok(false));
    // It goes on as before.
    b.send(b" and more").unwrap();
    let mut got = [0; 15];
    assert_eq!(a.receive_with(&mut got, libc::MSG_WAITALL), Ok(15));
    assert_eq!(&got, b"unread and more");
    // Now it can.
    assert_eq!(a.flow.by_linux(Duration::ZERO), Ok(true));
    b.send(b"plain").unwrap();
    assert_eq!(read_bare(&a, 5), b"plain");
}

#[test]
fn a_peer_that_has_finished_or_gone_cannot_take_back_and_its_bytes_stay() {
    let service = service();
    let (x, y) = both(&service.name);
    for closes in [false, true] {
        let (a, b) = at_rings(&x, &y);
        b.send(b"the last").unwrap();
        if closes {
            b.close();
        } else {
            b.flow.shutdown(rustix::net::Shutdown::Write).unwrap();
        }
        // At once, whatever the timeout.
        let begun = std::time::Instant::now();
        assert_eq!(a.flow.by_linux(TIMEOUT), Ok(false));
        assert!(begun.elapsed() < TIMEOUT / 2);
        if closes {
            assert_eq!(a.flow.take_unread().unwrap(), b"the last");
        } else {
            let mut got = [0; 100];
            assert_eq!(a.receive(&mut got), Ok(8));
            assert_eq!(a.receive(&mut got), Ok(0));
        }
    }
}

#[test]
fn a_stand_in_for_the_socket_brings_what_nobody_takes_back_and_takes_what_goes_there() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    b.send(&[3; 100_000]).unwrap();
    b.flow.shutdown(rustix::net::Shutdown::Write).unwrap();
    assert_eq!(a.flow.by_linux(TIMEOUT), Ok(false));
    let mut program = std::os::unix::net::UnixStream::from(a.flow.stand_in().unwrap());
    let mut got = vec![];
    program.read_to_end(&mut got).unwrap();
    assert_eq!(got, vec![3; 100_000]);
    program.write_all(b"answer").unwrap();
    let mut got = [0; 6];
    assert_eq!(b.receive_with(&mut got, libc::MSG_WAITALL), Ok(6));
    assert_eq!(&got, b"answer");
    a.close();
    drop(program);
    assert_eq!(b.receive(&mut got), Ok(0));

    // A process that shares it with a child leaves the ring to the process that reads it by the
    // library.
    let (a, b) = at_rings(&x, &y);
    b.send(b"unread").unwrap();
    a.flow.before_fork();
    assert_eq!(a.flow.stand_in().unwrap_err(), Errno::BUSY);
}

#[test]
fn where_nothing_can_stand_in_for_the_socket_what_is_unread_stays_in_the_ring() {
    let mut service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    b.send(b"the last").unwrap();
    b.flow.shutdown(rustix::net::Shutdown::Write).unwrap();
    assert_eq!(a.flow.by_linux(TIMEOUT), Ok(false));
    service.end();
    assert!(a.flow.stand_in().is_err());
    let mut got = [0; 100];
    assert_eq!(a.receive(&mut got), Ok(8));
    assert_eq!(&got[..8], b"the last");
    assert_eq!(a.receive(&mut got), Ok(0));
}

#[test]
fn both_may_leave_at_once_with_bytes_unread_both_ways() {
    let service = service();
    let (x, y) = both(&service.name);
    for _ in 0..30 {
        let (a, b) = at_rings(&x, &y);
        a.send(&[1; 50_000]).unwrap();
        b.send(&[2; 60_000]).unwrap();
        std::thread::scope(|scope| {
            let (a, b) = (&a, &b);
            let timeout = Duration::from_millis(50);
            let leaver = scope.spawn(move || a.flow.by_linux(timeout));
            let first = b.flow.by_linux(timeout);
            let second = leaver.join().unwrap();
            // A side that was asked after it had answered and gone has left its bytes in the ring.
            for (ok, end, byte, bytes) in [(first, b, 1, 50_000), (second, a, 2, 60_000)] {
                if ok.unwrap() {
                    assert_eq!(read_bare(end, bytes), vec![byte; bytes]);
                } else {
                    let mut got = vec![0; bytes];
                    assert_eq!(end.receive_with(&mut got, libc::MSG_WAITALL), Ok(bytes));
                    assert_eq!(got, vec![byte; bytes]);
                }
            }
        });
        a.close();
        b.close();
    }
}

#[test]
fn bytes_by_linux_after_the_ring_come_after_it_whoever_leaves() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    b.send(b"by ring ").unwrap();
    b.flow.send_by_linux(true).unwrap();
    b.send(b"by linux").unwrap();
    // It would come too late: the ring has to be read.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(10));
            b.flow.serve().unwrap();
        });
        assert_eq!(a.flow.by_linux(TIMEOUT), Ok(false));
    });
    let mut got = [0; 8];
    assert_eq!(a.receive(&mut got), Ok(8));
    assert_eq!(&got, b"by ring ");
    assert_eq!(a.flow.by_linux(Duration::ZERO), Ok(true));
    assert_eq!(read_bare(&a, 8), b"by linux");
}

/// Sends past the ring by `bypass`, while what it has sent by the ring is unread; then the other
/// side wants everything by Linux.
fn comes_after_the_ring(bypass: impl FnOnce(&End)) {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    b.send(b"by ring ").unwrap();
    bypass(&b);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(10));
            b.flow.serve().unwrap();
        });
        assert_eq!(a.flow.by_linux(TIMEOUT), Ok(false), "it would come too late");
    });
    let mut got = [0; 8];
    assert_eq!(a.receive(&mut got), Ok(8));
    assert_eq!(&got, b"by ring ");
    assert_eq!(a.flow.by_linux(Duration::ZERO), Ok(true));
    assert_eq!(read_bare(&a, 8), b"by linux");
}

#[test]
fn bytes_of_a_connection_that_has_gone_back_come_after_what_is_unread_in_its_ring() {
    comes_after_the_ring(|end| {
        assert_eq!(end.flow.by_linux(Duration::ZERO), Ok(true));
        assert!(matches!(end.flow.way(true), Way::LinuxSends(_)));
        end.socket.as_ref().unwrap().write_all(b"by linux").unwrap();
    });
}

#[test]
fn bytes_that_are_sent_past_the_ring_come_after_what_is_unread_there() {
    comes_after_the_ring(|end| {
        let bypass = end.flow.bypasses_to_send(0).unwrap();
        end.socket.as_ref().unwrap().write_all(b"by linux").unwrap();
        drop(bypass);
    });
}

#[test]
fn a_connection_that_has_gone_back_and_only_receives_can_still_take_back() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    b.send(b"by ring ").unwrap();
    assert_eq!(b.flow.by_linux(Duration::ZERO), Ok(true));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(matches!(b.flow.way(false), Way::Linux));
            std::thread::sleep(Duration::from_millis(10));
            assert!(matches!(b.flow.way(false), Way::Linux));
        });
        assert_eq!(a.flow.by_linux(TIMEOUT), Ok(true));
    });
    b.socket.as_ref().unwrap().write_all(b"by linux").unwrap();
    assert_eq!(read_bare(&a, 16), b"by ring by linux");
}

/// The byte at a position.
fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

#[test]
fn both_busy_every_byte_comes_once_and_in_order_through_the_switch() {
    let service = service();
    let (x, y) = both(&service.name);
    for round in 0..40 {
        let (a, b) = at_rings(&x, &y);
        let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rng = fastrand::Rng::with_seed(round);
                let mut at = 0;
                while !stop.load(Relaxed) {
                    let bytes = rng.u64(1..5000);
                    let message: Vec<u8> = (at..at + bytes).map(byte).collect();
                    assert_eq!(b.send(&message), Ok(bytes as usize));
                    at += bytes;
                    sent.store(at, Relaxed);
                }
                b.flow.shutdown(rustix::net::Shutdown::Write).unwrap();
            });
            let mut got = vec![0; 3000];
            let mut at = 0;
            let check = |got: &[u8], at: &mut u64| {
                for &got in got {
                    assert_eq!(got, byte(*at), "at {at}");
                    *at += 1;
                }
            };
            while at < 20_000 * (round % 5) {
                let bytes = a.receive(&mut got).unwrap();
                check(&got[..bytes], &mut at);
            }
            let left = a.flow.by_linux(TIMEOUT).unwrap();
            assert!(left, "the other side calls all the time");
            let mut socket = a.socket.as_ref().unwrap();
            for _ in 0..100 {
                let bytes = socket.read(&mut got).unwrap();
                check(&got[..bytes], &mut at);
            }
            stop.store(true, Relaxed);
            loop {
                match socket.read(&mut got).unwrap() {
                    0 => break,
                    bytes => check(&got[..bytes], &mut at),
                }
            }
            assert_eq!(at, sent.load(Relaxed));
        });
        a.close();
        b.close();
    }
}

#[test]
fn waiting_bytes_are_counted_wherever_they_are() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    assert_eq!((a.flow.unread(), b.flow.unsent()), (Ok(0), Ok(0)));
    b.send(&[1; 1000]).unwrap();
    assert_eq!((a.flow.unread(), b.flow.unsent()), (Ok(1000), Ok(0)));
    b.flow.send_by_linux(true).unwrap();
    b.send(&[2; 500]).unwrap();
    assert_eq!(a.flow.unread(), Ok(1500));
    let mut got = [0; 1200];
    assert_eq!(a.receive_with(&mut got, libc::MSG_WAITALL), Ok(1200));
    assert_eq!(a.flow.unread(), Ok(300));
}

#[test]
fn urgent_data_while_the_other_side_reads_goes_by_linux_and_the_rest_stays_in_order() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    a.send(b"before ").unwrap();
    assert_eq!(a.send_with(b"!", libc::MSG_OOB), Ok(1));
    a.send(b"after").unwrap();
    let mut all = vec![];
    while all.len() < 12 {
        let mut got = [0; 20];
        match b.receive(&mut got) {
            Ok(bytes) => all.extend_from_slice(&got[..bytes]),
            Err(Errno::AGAIN) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(all, b"before after");
}

/// A program that waits for room has asked the ring for it: that ends with the ring, where Linux
/// had room all the time.
#[test]
fn a_sender_that_waits_for_room_in_a_set_hears_of_linuxs_once_the_ring_is_taken_back() {
    use uncopy_tcp_socket::set::Event;
    const OUT: u32 = libc::EPOLLOUT as u32;
    let (edge, once) = (libc::EPOLLET as u32, libc::EPOLLONESHOT as u32);
    for flags in [0, edge, once, edge | once] {
        let service = service();
        let (x, y) = both(&service.name);
        let (a, b) = at_rings(&x, &y);
        let set = {
            use rustix::event::epoll;
            let kernel = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            uncopy_tcp_socket::Set::new(y.clone(), kernel).unwrap()
        };
        b.flow.set_nonblocking(true);
        let mut events = [Event::default(); 4];
        set.add(b.flow.number(), Some(b.flow.clone()), OUT | flags, 1).unwrap();
        assert_eq!(set.wait(&mut events, Some(Duration::ZERO)), Ok(1));
        let mut sent = 0;
        while let Ok(bytes) = b.send(&[7; 50_000]) {
            sent += bytes;
        }
        if flags & once != 0 {
            set.modify(b.flow.number(), OUT | flags, 1).unwrap();
        }
        // (By level it is looked at once more.)
        while set.wait(&mut events, Some(Duration::ZERO)) == Ok(1) {}
        std::thread::scope(|scope| {
            let begun = std::time::Instant::now();
            let told = scope.spawn(|| set.wait(&mut [Event::default(); 4], Some(TIMEOUT)));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!told.is_finished());
            assert_eq!(a.flow.by_linux(TIMEOUT), Ok(true));
            assert_eq!(told.join().unwrap(), Ok(1), "flags {flags:#x}");
            assert!(begun.elapsed() < TIMEOUT, "flags {flags:#x}: nobody woke it");
        });
        assert_eq!(read_bare(&a, sent), vec![7; sent]);
    }
}

/// SIOCOUTQNSD: what Linux holds back.
fn held_back(end: &End) -> i32 {
    type NotSent = rustix::ioctl::Getter<0x894b, i32>;
    // SAFETY: linux/sockios.h: writes an int.
    unsafe { rustix::ioctl::ioctl(end.flow.fd(), NotSent::new()) }.unwrap()
}

/// Nagle's algorithm would keep it until the peer has acknowledged what came before. A peer that
/// answers by the ring acknowledges nothing for 40 ms.
#[test]
fn bytes_by_linux_beside_a_ring_are_not_held_back() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    a.flow.send_by_linux(true).unwrap();
    for _ in 0..10 {
        a.send(b"a small one").unwrap();
        assert_eq!(held_back(&a), 0);
    }
    let mut got = [0; 110];
    assert_eq!(b.receive_with(&mut got, libc::MSG_WAITALL), Ok(110));
    // The program's option is as it was.
    assert_eq!(rustix::net::sockopt::tcp_nodelay(a.flow.fd()), Ok(false));
}

/// It was there for the receiver while it lay in the ring.
#[test]
fn bytes_that_are_taken_back_are_not_held_back_by_a_cork() {
    use rustix::net::sockopt::{set_tcp_cork, set_tcp_nodelay, tcp_nodelay};
    let service = service();
    let (x, y) = both(&service.name);
    for nodelay in [false, true] {
        let (a, b) = common::shared(&x, &y);
        // (As a program does before it connects.)
        set_tcp_nodelay(a.flow.fd(), nodelay).unwrap();
        set_tcp_cork(a.flow.fd(), true).unwrap();
        assert_eq!(a.send(b"offered"), Ok(7));
        assert!(b.flow.ready().now.contains(PollFlags::IN));
        a.flow.send_by_linux(true).unwrap();
        assert_eq!(held_back(&a), 0, "TCP_NODELAY {nodelay}");
        assert_eq!(read_bare(&b, 7), b"offered");
        assert_eq!(tcp_nodelay(a.flow.fd()), Ok(nodelay));
    }
}

/// They were sent while the connection was Linux's alone, and acknowledged with the peer's next
/// answer.
#[test]
fn bytes_held_back_before_a_connection_got_its_ring_are_sent() {
    let service = service();
    let (x, y) = both(&service.name);
    let (p, q) = common::connection();
    for _ in 0..3 {
        (&p).write_all(b"a small one").unwrap();
    }
    let (a, b) = (common::end(&x, p), common::end(&y, q));
    common::wait_until("both ends attach", || a.flow.is_shared() & b.flow.is_shared());
    assert_eq!(held_back(&a), 0);
}

/// Its process is about to become another program's, and does not wait.
#[test]
fn bytes_left_to_a_peer_that_computes_come_by_linux_with_its_next_call() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    b.send(b"unread").unwrap();
    assert_eq!(a.flow.by_linux_later(), Ok(true));
    assert_eq!(a.flow.unread(), Ok(0));
    b.send(b" and more").unwrap();
    assert_eq!(read_bare(&a, 15), b"unread and more");
    // A peer that has finished makes no further call.
    let (a, b) = at_rings(&x, &y);
    b.send(b"the last").unwrap();
    b.flow.shutdown(rustix::net::Shutdown::Write).unwrap();
    assert_eq!(a.flow.by_linux_later(), Ok(false));
    assert_eq!(a.receive(&mut [0; 10]), Ok(8));
}

/// Bytes that it sent by Linux would come before those that lie in the ring.
#[test]
fn a_ring_is_not_left_to_a_sender_that_has_sent_by_linux_since() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    b.send(b"by the ring").unwrap();
    b.flow.send_by_linux(true).unwrap();
    b.send(b" and by Linux").unwrap();
    assert_eq!(a.flow.by_linux_later(), Ok(false));
    let mut got = [0; 24];
    assert_eq!(a.receive_with(&mut got, libc::MSG_WAITALL), Ok(24));
    assert_eq!(&got, b"by the ring and by Linux");
}

/// It makes no further call on the connection.
#[test]
fn bytes_left_to_a_peer_are_sent_before_it_ends() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    b.send(b"unread").unwrap();
    assert_eq!(a.flow.by_linux_later(), Ok(true));
    b.flow.serve_before_end();
    assert_eq!(read_bare(&a, 6), b"unread");
}

/// SHUT_RD on a socket that a forked process holds too is not the peer's end.
#[test]
fn a_sender_whose_other_holder_has_shut_receiving_down_goes_on() {
    let service = service();
    let (x, y) = both(&service.name);
    let (a, b) = at_rings(&x, &y);
    rustix::net::shutdown(a.flow.fd(), rustix::net::Shutdown::Read).unwrap();
    for _ in 0..200 {
        a.send(b"x").unwrap();
    }
    let mut got = [0; 200];
    assert_eq!(b.receive_with(&mut got, libc::MSG_WAITALL), Ok(200));
}
