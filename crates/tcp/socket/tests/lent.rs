//! Bytes of the ring that are used where they lie: every one, once, in order, and as it was for as
//! long as it is lent. A failing seed is printed.

#![allow(missing_docs)]

mod common;

use common::{End, at_rings, program_that, service, shared, wait_until};
use rustix::event::epoll;
use rustix::net::Shutdown;
use std::time::Duration;
use uncopy_tcp_socket::lent::{HELD, Lent};
use uncopy_tcp_socket::set::Event;
use uncopy_tcp_socket::{Errno, Set, Waiting};

/// The stream's byte at a position: no two neighbourhoods are alike.
fn byte(seed: u64, at: u64) -> u8 {
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(seed) >> 56) as u8
}

fn stream(seed: u64, at: u64, bytes: u64) -> Vec<u8> {
    (at..at + bytes).map(|at| byte(seed, at)).collect()
}

fn sends(end: &End, seed: u64, total: u64) {
    let mut rng = fastrand::Rng::with_seed(seed ^ 1);
    let mut at = 0;
    while at < total {
        let most = if rng.u32(0..10) == 0 { 300_000 } else { 3_000 };
        let message = stream(seed, at, rng.u64(1..most).min(total - at));
        match end.send_with(&message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) {
            Ok(sent) => at += sent as u64,
            Err(Errno::AGAIN) => std::thread::yield_now(),
            Err(error) => panic!("send at {at}: {error}"),
        }
        match rng.u32(0..30) {
            0 => match end.flow.send_by_linux(false) {
                Ok(()) | Err(Errno::AGAIN) => {}
                Err(error) => panic!("{error}"),
            },
            1 => std::thread::sleep(Duration::from_micros(rng.u64(0..300))),
            _ => {}
        }
    }
    end.flow.shutdown(Shutdown::Write).unwrap();
}

/// As a relay does: what is lent is looked at when it is, and again later, and received at last.
/// Says how many bytes were lent.
fn relays(end: &End, seed: u64, total: u64) -> u64 {
    let mut rng = fastrand::Rng::with_seed(seed ^ 2);
    let (mut at, mut lent, mut all_lent) = (0, 0u32, 0);
    let check = |at: u64, skip: u32, bytes: u32, lent: u32| {
        let mut got = vec![0; bytes as usize];
        assert!(end.flow.copy_lent(skip, &mut got), "{skip} and {bytes} of {lent}");
        assert!(got == stream(seed, at - u64::from(lent - skip), bytes.into()), "before {at}");
    };
    let mut held = false;
    loop {
        match end.flow.lend(rng.u32(1..70_000)) {
            Lent::More(bytes) => {
                (at, lent) = (at + u64::from(bytes), lent + bytes);
                all_lent += u64::from(bytes);
                check(at, lent - bytes, bytes, lent);
            }
            Lent::Nothing | Lent::Elsewhere => {
                let mut buffer = vec![0; rng.usize(1..70_000)];
                match end.receive_with(&mut buffer, libc::MSG_DONTWAIT) {
                    Ok(0) => break,
                    Ok(got) => {
                        assert_eq!(lent, 0, "they came before what is lent");
                        assert!(buffer[..got] == stream(seed, at, got as u64), "at {at}");
                        at += got as u64;
                    }
                    Err(Errno::AGAIN) => std::thread::yield_now(),
                    Err(HELD) => {
                        assert!(lent > 0);
                        held = true;
                    }
                    Err(error) => panic!("receive at {at}: {error}"),
                }
            }
        }
        if lent > 0 {
            let skip = rng.u32(0..lent);
            check(at, skip, rng.u32(0..=lent - skip), lent);
            assert!(!end.flow.copy_lent(skip, &mut vec![0; (lent - skip + 1) as usize]));
        }
        if lent > 0 && (held || rng.u32(0..3) == 0) {
            let bytes = if held { lent } else { rng.u32(1..=lent) };
            end.flow.receives_lent(bytes);
            lent -= bytes;
            held = false;
        }
    }
    assert_eq!(at, total);
    if lent > 0 {
        check(at, 0, lent, lent);
        end.flow.receives_lent(lent);
    }
    assert_eq!(end.receive(&mut [0]), Ok(0), "nothing comes after the end");
    all_lent
}

#[test]
fn random_streams_are_lent_with_switches_in_between() {
    let service = service();
    let seeds: Vec<u64> = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..8).map(|_| fastrand::u64(..)).collect(),
    };
    let mut all_lent = 0;
    for seed in seeds {
        println!("seed {seed}");
        let of = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = shared(&of(), &of());
        let total = 3_000_000;
        all_lent += std::thread::scope(|scope| {
            scope.spawn(|| sends(&a, seed, total));
            relays(&b, seed, total)
        });
        a.close();
        b.close();
    }
    println!("{all_lent} bytes lent");
    assert!(all_lent > 1_000_000);
}

#[test]
fn a_set_tells_of_what_comes_behind_what_is_lent_and_not_of_that() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let (program, relay) = (of(), of());
    let (a, b) = at_rings(&program, &relay);
    let set = Set::new(relay, epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()).unwrap();
    set.add(b.flow.number(), Some(b.flow.clone()), libc::EPOLLIN as u32, 7).unwrap();
    let mut events = [Event::default(); 4];
    let mut told =
        |timeout: u64| set.wait(&mut events, Some(Duration::from_millis(timeout))).unwrap();
    a.send(b"one").unwrap();
    assert_eq!(told(5000), 1);
    assert_eq!(b.flow.lend(100), Lent::More(3));
    assert_eq!((b.flow.lend(100), told(50)), (Lent::Nothing, 0), "it was lent already");
    a.send(b"two").unwrap();
    assert_eq!(told(5000), 1);
    assert_eq!(b.receive_with(&mut [0; 9], libc::MSG_DONTWAIT), Err(Errno::AGAIN));
    assert_eq!(b.flow.lend(2), Lent::More(2));
    assert_eq!(told(5000), 1, "a part was left");
    assert_eq!(b.flow.lend(2), Lent::More(1));
    assert_eq!(told(50), 0);
    let mut all = [0; 6];
    assert!(b.flow.copy_lent(0, &mut all));
    assert_eq!(&all, b"onetwo");
    // The end is told while bytes are lent.
    a.flow.shutdown(Shutdown::Write).unwrap();
    assert_eq!(told(5000), 1);
    assert_eq!((b.flow.lend(9), b.receive(&mut [0])), (Lent::Nothing, Ok(0)));
    b.flow.receives_lent(6);
    assert_eq!(b.receive(&mut [0]), Ok(0));
}

#[test]
fn bytes_by_linux_wait_until_nothing_is_lent() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let (a, b) = at_rings(&of(), &of());
    a.send(b"ring").unwrap();
    assert_eq!(b.flow.lend(100), Lent::More(4));
    a.flow.send_by_linux(false).unwrap();
    a.send(b"linux").unwrap();
    let mut got = [0; 9];
    wait_until("it has come", || b.flow.unread() == Ok(9));
    assert_eq!(b.flow.lend(100), Lent::Nothing);
    assert_eq!(b.receive_with(&mut got, libc::MSG_DONTWAIT), Err(HELD));
    b.flow.receives_lent(3);
    assert_eq!(b.receive_with(&mut got, libc::MSG_DONTWAIT), Err(HELD));
    b.flow.receives_lent(1);
    assert_eq!(b.receive_with(&mut got, libc::MSG_DONTWAIT), Ok(5));
    assert_eq!(&got[..5], b"linux");
}
