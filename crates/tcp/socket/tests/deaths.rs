//! kill -9 of either end and of the service; and a peer that writes nonsense wherever it can.

#![allow(missing_docs)]

mod common;

use common::{
    End, connection, counted, end, forks, program_that, service, service_of, shared, wait_until,
};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use uncopy_counters::Counters;
use uncopy_tcp_service::protocol::{DOOR_COUNT, Message};
use uncopy_tcp_shared::layout::{REGION, slot_at};
use uncopy_tcp_socket::lent::HELD;
use uncopy_tcp_socket::{Context, Errno, Waiting};

/// Another process: this very test, as what `ROLE` says.
fn other(role: &str, service: &str, port: u16) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
        .env("ROLE", role)
        .env("SERVICE", service)
        .env("PORT", port.to_string())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "it is what the others start"]
fn the_other_process() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let service = std::env::var("SERVICE").unwrap();
    if role == "service" {
        let options = uncopy_tcp_service::Options {
            name: service,
            limits: uncopy_tcp_service::Limits::default(),
            ends_idle: None,
        };
        uncopy_tcp_service::Service::bind(options).unwrap().run().unwrap();
        return;
    }
    let port: u16 = std::env::var("PORT").unwrap().parse().unwrap();
    let program = program_that(&service, Waiting::Adaptive);
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let end = end(&program, socket);
    wait_until("attached", || end.flow.is_shared());
    common::looks(&end);
    match role.as_str() {
        "echo" => {
            let mut buffer = vec![0; 100_000];
            while let Ok(got @ 1..) = end.receive(&mut buffer) {
                end.send(&buffer[..got]).unwrap();
            }
        }
        "silent" => {
            end.send(b"ready").unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        _ => panic!("{role}"),
    }
}

fn with_other(role: &str, service: &str) -> (End, Child) {
    with_other_of(&program_that(service, Waiting::Adaptive), role, service)
}

fn with_other_of(program: &Arc<Context>, role: &str, service: &str) -> (End, Child) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let child = other(role, service, listener.local_addr().unwrap().port());
    let (socket, _) = listener.accept().unwrap();
    let end = end(program, socket);
    wait_until("attached", || end.flow.is_shared());
    common::looks(&end);
    (end, child)
}

#[test]
fn two_processes_echo_through_the_ring() {
    let service = service();
    let (end, mut child) = with_other("echo", &service.name);
    let mut got = vec![0; 100_000];
    for round in 0..2000u32 {
        let bytes = if round % 100 == 0 { 100_000 } else { 64 };
        let message = vec![round as u8; bytes];
        assert_eq!(end.send(&message), Ok(bytes));
        assert_eq!(end.receive_with(&mut got[..bytes], libc::MSG_WAITALL), Ok(bytes));
        assert_eq!(got[..bytes], message);
    }
    let by_ring = end.flow.counts.sent_by_ring.load(Ordering::Relaxed);
    assert!(by_ring > 1_000_000, "{by_ring}");
    end.close();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_killed_peer_is_an_error_for_who_sleeps_and_for_who_sends() {
    let service = service();
    let (program, counters) = counted(&service.name);
    for sends in [false, true] {
        let (end, mut child) = with_other_of(&program, "silent", &service.name);
        assert_eq!(end.receive(&mut [0; 5]), Ok(5));
        end.send(b"never read").unwrap();
        let outcome = std::thread::scope(|scope| {
            let end = &end;
            let blocked = scope.spawn(move || {
                if sends {
                    // Fills the ring, sleeps, and then learns.
                    loop {
                        if let Err(error) = end.send(&[0; 10_000]) {
                            break Err(error);
                        }
                    }
                } else {
                    end.receive(&mut [0; 5])
                }
            });
            std::thread::sleep(Duration::from_millis(100));
            child.kill().unwrap();
            child.wait().unwrap();
            blocked.join().unwrap()
        });
        let error = outcome.unwrap_err();
        assert!([Errno::CONNRESET, Errno::PIPE].contains(&error), "{error}");
        if !sends {
            assert_eq!(counters.snapshot().tcp_died_unread, 1);
        }
        end.close();
    }
}

#[test]
fn a_close_with_unread_bytes_is_a_reset_and_counted_by_the_side_that_closed() {
    let service = service();
    let ((x, closes), (y, hears)) = (counted(&service.name), counted(&service.name));
    let (a, b) = shared(&x, &y);
    b.send(b"12").unwrap();
    assert_eq!(a.receive(&mut [0]), Ok(1));
    a.close();
    assert_eq!(b.receive(&mut [0]), Err(Errno::CONNRESET));
    assert_eq!(b.receive(&mut [0]), Ok(0), "it is told once");
    let of = |c: &Counters| (c.snapshot().tcp_closed_unread, c.snapshot().tcp_died_unread);
    assert_eq!((of(closes), of(hears)), ((1, 0), (0, 0)));
}

/// A reset is of a side that died, or closed with bytes unread: one that only finishes sending may
/// read on.
#[test]
fn a_stream_that_ends_while_its_other_direction_is_unread_is_no_reset() {
    let service = service();
    let ((x, _), (y, counters)) = (counted(&service.name), counted(&service.name));
    let (a, b) = shared(&x, &y);
    b.send(b"1").unwrap();
    assert_eq!(a.receive(&mut [0]), Ok(1));
    b.send(b"2").unwrap();
    a.flow.shutdown(rustix::net::Shutdown::Write).unwrap();
    assert_eq!(b.receive(&mut [0]), Ok(0));
    assert_eq!(a.receive(&mut [0; 2]), Ok(1));
    assert_eq!(counters.snapshot().tcp_died_unread, 0);
}

#[test]
fn connections_outlive_a_killed_service_and_new_ones_are_linux() {
    let name = format!("uncopy-tcp-test-killed-{}", std::process::id());
    let mut child = other("service", &name, 0);
    wait_until("service", || uncopy_tcp_service::rendezvous::is_running(&name));
    let (x, y) = (program_that(&name, Waiting::Sleep), program_that(&name, Waiting::Sleep));
    let (a, b) = shared(&x, &y);
    let again = uncopy_tcp_service::Service::bind(uncopy_tcp_service::Options {
        name: name.clone(),
        ..uncopy_tcp_service::Options::of_this_user()
    });
    let refused = again.unwrap_err().to_string();
    assert!(refused.contains("a service already runs here"), "{refused}");
    child.kill().unwrap();
    child.wait().unwrap();
    let mut got = [0; 5];
    for _ in 0..1000 {
        a.send(b"still").unwrap();
        b.receive(&mut got).unwrap();
    }
    let (p, q) = connection();
    let (p, q) = (end(&x, p), end(&y, q));
    p.send(b"linux").unwrap();
    assert_eq!(q.receive(&mut got), Ok(5));
    assert!(!p.flow.is_shared() && !q.flow.is_attached());
    assert!(!uncopy_tcp_service::rendezvous::is_running(&name), "nothing is left of it");
}

/// It was the service over a device: of three connections to a program that had seen an earlier
/// service, one was reset and one hung.
#[test]
fn a_service_that_is_started_anew_gives_no_region_the_name_of_an_older_one() {
    let mut first = service();
    let (x, y) =
        (program_that(&first.name, Waiting::Sleep), program_that(&first.name, Waiting::Sleep));
    let older = shared(&x, &y);
    first.end();
    let _second = service_of(first.name.clone());
    // They learn with these that the first one has gone.
    let (p, q) = connection();
    let _lost = (end(&x, p), end(&y, q));
    let z = program_that(&first.name, Waiting::Sleep);
    let newer = [shared(&x, &z), shared(&x, &z), shared(&x, &z)];
    for (i, (a, b)) in std::iter::once(&older).chain(&newer).enumerate() {
        let mut got = [0];
        for byte in 0..100 {
            a.send(&[byte ^ i as u8]).unwrap();
            assert_eq!((b.receive(&mut got), got), (Ok(1), [byte ^ i as u8]));
            b.send(&[byte]).unwrap();
            assert_eq!((a.receive(&mut got), got), (Ok(1), [byte]));
        }
        assert!(a.flow.counts.sent_by_ring.load(Ordering::Relaxed) > 0, "by the ring");
    }
}

#[test]
fn a_service_that_has_nobody_left_ends() {
    let name = format!("uncopy-tcp-test-idle-{}", std::process::id());
    let service = uncopy_tcp_service::Service::bind(uncopy_tcp_service::Options {
        name: name.clone(),
        limits: uncopy_tcp_service::Limits::default(),
        ends_idle: Some(Duration::from_millis(100)),
    })
    .unwrap();
    let thread = std::thread::spawn(|| service.run());
    let ends = shared(&program_that(&name, Waiting::Sleep), &program_that(&name, Waiting::Sleep));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!thread.is_finished(), "two programs are there");
    drop(ends);
    thread.join().unwrap().unwrap();
}

#[test]
fn limits_keep_a_connection_with_linux() {
    let name = format!("uncopy-tcp-test-limits-{}", std::process::id());
    let service = uncopy_tcp_service::Service::bind(uncopy_tcp_service::Options {
        name: name.clone(),
        limits: uncopy_tcp_service::Limits { flows: 3, bytes: u64::MAX },
        ends_idle: Some(Duration::from_millis(100)),
    })
    .unwrap();
    let thread = std::thread::spawn(|| service.run());
    let (x, y) = (program_that(&name, Waiting::Sleep), program_that(&name, Waiting::Sleep));
    let kept: Vec<_> = (0..3).map(|_| shared(&x, &y)).collect();
    let (p, q) = connection();
    let (p, q) = (end(&x, p), end(&y, q));
    wait_until("refused", || {
        x.pump();
        p.flow.is_linux()
    });
    assert_eq!(p.flow.reason(), Some(uncopy_tcp_service::protocol::StayReason::OverLimit));
    p.send(b"all the same").unwrap();
    assert_eq!(q.receive(&mut [0; 20]), Ok(12));
    drop((kept, p, q, x, y));
    thread.join().unwrap().unwrap();
}

#[test]
fn a_child_goes_on_with_its_parents_connection() {
    let service = service();
    let (x, y) =
        (program_that(&service.name, Waiting::Sleep), program_that(&service.name, Waiting::Sleep));
    let (a, b) = shared(&x, &y);
    a.send(b"to the parent").unwrap();
    assert_eq!(b.receive(&mut [0; 100]), Ok(13));
    b.flow.before_fork();
    // SAFETY: the child only uses what is here, and ends by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        y.after_fork_in_child();
        let mut got = [0; 100];
        let mut rounds = 0;
        while let Ok(got_bytes @ 1..) = b.receive(&mut got) {
            if b.send(&got[..got_bytes]).is_err() {
                break;
            }
            rounds += 1;
        }
        // SAFETY: ends the child.
        unsafe { libc::_exit(if rounds >= 100 { 0 } else { 1 }) };
    }
    b.close();
    let mut got = [0; 10];
    for _ in 0..200 {
        assert_eq!(a.send(b"0123456789"), Ok(10));
        assert_eq!(a.receive_with(&mut got, libc::MSG_WAITALL), Ok(10));
    }
    a.flow.shutdown(rustix::net::Shutdown::Write).unwrap();
    let mut status = 0;
    // SAFETY: our child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(a.receive(&mut got), Ok(0));
}

/// It does not matter what the other side has read.
#[test]
fn a_way_that_a_program_has_shut_down_itself_has_ended_for_it() {
    use rustix::net::Shutdown;
    let service = service();
    for how in [Shutdown::Read, Shutdown::Both] {
        let ((x, _), (y, counters)) = (counted(&service.name), counted(&service.name));
        let (a, b) = common::at_rings(&x, &y);
        b.send(b"unread").unwrap();
        b.flow.shutdown(how).unwrap();
        assert_eq!(b.receive(&mut [0]), Ok(0));
        assert_eq!(a.receive(&mut [0; 10]), Ok(6));
        assert_eq!(counters.snapshot().tcp_died_unread, 0);
    }
}

#[test]
fn a_parents_close_is_the_last_one_where_its_child_ended_without_and_not_while_it_lives() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let places = || uncopy_tcp_service::client::tell(&service.name).unwrap().flows.len();
    for lives in [false, true] {
        let (x, y) = (of(), of());
        let (a, mut b) = common::at_rings(&x, &y);
        assert_eq!(places(), 1);
        let (flow, socket) = (b.flow.clone(), b.socket.as_ref().unwrap().as_raw_fd());
        let (mut goes_on, told) = std::io::pipe().unwrap();
        let child = forks(&y, &b, || {
            if lives {
                let _ = std::io::Read::read(&mut goes_on, &mut [0]);
                flow.close();
                // SAFETY: the child's.
                unsafe { libc::close(socket) };
                flow.closed();
            }
        });
        let ended = |flags| {
            // SAFETY: ours.
            unsafe {
                let mut how = std::mem::zeroed();
                libc::waitid(libc::P_PID, child as u32, &raw mut how, libc::WEXITED | flags)
            }
        };
        if !lives {
            // (Nobody has waited for it yet.)
            assert_eq!(ended(libc::WNOWAIT), 0);
        }
        b.flow.close();
        drop(b.socket.take());
        b.flow.closed();
        if lives {
            assert_eq!(a.receive_with(&mut [0], libc::MSG_DONTWAIT), Err(Errno::AGAIN));
            std::io::Write::write_all(&mut &told, b"!").unwrap();
        }
        assert_eq!(a.receive(&mut [0]), Ok(0));
        assert_eq!(ended(0), 0);
        a.close();
        wait_until("its place is free", || places() == 0);
    }
}

/// An offer may be taken back while it is looked at. (The other one speaks the protocol by itself.)
#[test]
fn nonsense_in_an_offer_that_is_only_looked_at_costs_nothing() {
    use std::io::Write;
    use uncopy_tcp_shared::layout::home;
    use uncopy_tcp_shared::ring::{RING, Writer};
    use uncopy_tcp_shared::runs::{Outgoing, Run};
    let service = service();
    let (honest, counters) = counted(&service.name);
    let doors: Vec<_> = (0..DOOR_COUNT)
        .map(|_| rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap())
        .collect();
    let doors: Vec<_> = doors.iter().map(std::os::fd::AsFd::as_fd).collect();
    let other = uncopy_tcp_service::Client::connect(&service.name, &doors).unwrap();
    let (x, mut y) = connection();
    let end = end(&honest, x);
    let name = uncopy_tcp_service::ends::name(&y).unwrap();
    other.register(1, std::os::fd::AsFd::as_fd(&y), name).unwrap();
    let mut matched = None;
    wait_until("matched", || {
        matched = matched.take().or_else(|| other.next());
        matched.is_some()
    });
    let Some((Message::Matched { slot, side, .. }, fds)) = matched else { panic!() };
    wait_until("attached", || end.flow.is_attached());
    let region = uncopy_tcp_shared::region::SharedRegion::map(0, &fds[0]).unwrap();
    let (slot, side) = (region.slot(slot as usize), side as usize);
    let direction = &slot.header.directions[side];
    y.write_all(b"abc").unwrap();
    let (mut writer, mut runs) = (Writer::<RING>::new(home(side)), Outgoing::new());
    let run = Run { position: 0, bytes: 5, at: 0, arena: 7, handle: 0 };
    runs.push(slot.queue(side), &direction.produced, run);
    writer.commit(&direction.produced, 5);
    direction.switch.phase.offer();
    let mut got = [0; 10];
    assert_eq!(end.receive_with(&mut got, libc::MSG_PEEK), Ok(3));
    assert!(direction.switch.phase.withdraw());
    runs.take_back(slot.queue(side), 0, |_| {});
    writer.take_back(&direction.produced);
    for word in [b"abc", b"def"] {
        assert_eq!(end.receive(&mut got), Ok(3));
        assert_eq!(got[..3], word[..]);
        y.write_all(b"def").unwrap();
    }
    assert_eq!(counters.snapshot().tcp_poisoned, 0);
}

/// The hostile one speaks the protocol by itself, and then writes random words over all of the
/// region, with the honest one's next words more often than others.
#[test]
fn a_peer_that_scribbles_over_everything_costs_that_connection_only() {
    let service = service();
    let seed =
        std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut resets = 0;
    let mut counted_ones = 0;
    for _ in 0..40 {
        let (honest, counters) = counted(&service.name);
        let doors: Vec<_> = (0..DOOR_COUNT)
            .map(|_| rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap())
            .collect();
        let doors: Vec<_> = doors.iter().map(std::os::fd::AsFd::as_fd).collect();
        let hostile = uncopy_tcp_service::Client::connect(&service.name, &doors).unwrap();
        let (x, y) = connection();
        let end = end(&honest, x);
        let name = uncopy_tcp_service::ends::name(&y).unwrap();
        hostile.register(1, std::os::fd::AsFd::as_fd(&y), name).unwrap();
        let mut matched = None;
        wait_until("matched", || {
            matched = matched.take().or_else(|| hostile.next());
            matched.is_some()
        });
        let Some((Message::Matched { slot, .. }, fds)) = matched else { panic!() };
        let memory = &fds[0];
        // SAFETY: a new mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                REGION,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                memory.as_raw_fd(),
                0,
            )
        }
        .cast::<u32>();
        assert!(!at.is_null());
        end.socket.as_ref().unwrap().set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        end.socket.as_ref().unwrap().set_write_timeout(Some(Duration::from_millis(1))).unwrap();
        let begun = Instant::now();
        end.flow.refresh_timeouts();
        let header = (slot_at(slot as usize) + uncopy_tcp_shared::layout::header_at()) / 4;
        // All attached, so that the rings are used at all.
        // SAFETY: within the mapping.
        unsafe {
            for line in 0..2 {
                let generation = at.add(header + (384 + 64 * line) / 4);
                generation.write_volatile(
                    generation.read_volatile().max(at.add(header + 96).read_volatile()),
                );
            }
        }
        let mut buffer = vec![0; 50_000];
        while begun.elapsed() < Duration::from_millis(60) {
            for _ in 0..rng.u32(1..20) {
                let word = match rng.u32(0..10) {
                    0 => rng.usize(0..1024),
                    1 => rng.usize(0..REGION / 4),
                    _ => header + rng.usize(0..96),
                };
                let value = match rng.u32(0..6) {
                    0 => rng.u32(..),
                    1 => rng.u32(0..4),
                    2 => 1 << rng.u32(0..32),
                    3 => 0,
                    _ => rng.u32(0..300_000),
                };
                // SAFETY: within the mapping.
                unsafe { at.add(word).write_volatile(value) };
            }
            let size = rng.usize(1..buffer.len());
            let sent = end.send(&buffer[..size]);
            let got = end.receive(&mut buffer[..size]);
            let _ = end.flow.ready();
            let _ = end.flow.lend(size as u32);
            let skip = rng.u32(0..100_000);
            let _ = end.flow.copy_lent(skip, &mut buffer[..size]);
            if rng.bool() {
                end.flow.receives_lent(rng.u32(0..100_000));
            }
            for outcome in [sent, got] {
                match outcome {
                    Ok(bytes) => assert!(bytes <= size),
                    Err(Errno::CONNRESET) => resets += 1,
                    Err(Errno::AGAIN | Errno::PIPE | HELD) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        end.close();
        counted_ones += counters.snapshot().tcp_poisoned;
        // SAFETY: ours.
        unsafe { libc::munmap(at.cast(), REGION) };
    }
    assert!(resets > 0 && counted_ones > 0, "{resets} resets, of which {counted_ones} counted");
    // Others go on.
    let (a, b) = shared(
        &program_that(&service.name, Waiting::Sleep),
        &program_that(&service.name, Waiting::Sleep),
    );
    a.send(b"fine").unwrap();
    assert_eq!(b.receive(&mut [0; 10]), Ok(4));
}
