//! epoll over rings and Linux' sockets at once.

#![allow(missing_docs)]

mod common;

use common::{End, FULL, at_rings, connection, end, program_that, service, shared, wait_until};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::time::{ClockId, clock_gettime};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};
use uncopy_tcp_service::protocol::StayReason;
use uncopy_tcp_shared::wanted::{DOORS, Doors};
use uncopy_tcp_socket::set::Event;
use uncopy_tcp_socket::{Context, Errno, Set, Waiting};

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const EDGE: u32 = libc::EPOLLET as u32;

/// (A wait that comes to its end looks once more.)
const TIMEOUT: Duration = Duration::from_secs(5);

fn set(program: &Arc<Context>) -> Set {
    Set::new(program.clone(), epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()).unwrap()
}

fn echo_over_a_set(waiting: Waiting, flags: u32) {
    let service = service();
    let (server, client) =
        (program_that(&service.name, waiting), program_that(&service.name, waiting));
    let done = AtomicBool::new(false);
    let echoed = AtomicU64::new(0);
    let mut pairs: Vec<_> = (0..300).map(|_| shared(&client, &server)).collect();
    // One of Linux' in between, registered by one side only.
    let (plain, other) = connection();
    pairs.push((end(&program_that("uncopy-tcp-test-nobody", waiting), plain), end(&server, other)));
    let (clients, servers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let set = set(&server);
            for (i, end) in servers.iter().enumerate() {
                end.flow.set_nonblocking(true);
                set.add(end.flow.number(), Some(end.flow.clone()), IN | flags, i as u64).unwrap();
            }
            let mut events = [Event::default(); 32];
            while !done.load(Relaxed) {
                let count = set.wait(&mut events, Some(Duration::from_millis(100))).unwrap();
                for event in &events[..count] {
                    let end = &servers[event.data as usize];
                    let mut buffer = [0; 500];
                    loop {
                        match end.receive_with(&mut buffer, libc::MSG_DONTWAIT) {
                            Ok(got) => {
                                assert_eq!(end.send(&buffer[..got]), Ok(got));
                                echoed.fetch_add(got as u64, Relaxed);
                            }
                            Err(Errno::AGAIN) => break,
                            Err(error) => panic!("{error}"),
                        }
                        if flags & EDGE == 0 {
                            break;
                        }
                    }
                }
            }
        });
        let mut rng = fastrand::Rng::with_seed(7);
        for round in 0..3000u32 {
            let which = rng.usize(0..clients.len());
            let message = [round as u8; 100];
            let mut got = [0; 100];
            let client = &clients[which];
            if client.flow.is_linux() {
                use std::io::{Read, Write};
                let mut socket = client.socket.as_ref().unwrap();
                socket.write_all(&message).unwrap();
                socket.read_exact(&mut got).unwrap();
            } else {
                client.send(&message).unwrap();
                assert_eq!(client.receive_with(&mut got, libc::MSG_WAITALL), Ok(100));
            }
            assert_eq!(got, message, "round {round}, connection {which}");
        }
        done.store(true, Relaxed);
    });
    assert_eq!(echoed.load(Relaxed), 300_000);
}

#[test]
fn an_echo_server_over_a_level_triggered_set() {
    echo_over_a_set(Waiting::Adaptive, 0);
}

#[test]
fn an_echo_server_over_an_edge_triggered_set_that_sleeps() {
    echo_over_a_set(Waiting::Sleep, EDGE);
}

#[test]
fn level_edge_and_oneshot_report_as_linux_does() {
    let service = service();
    let (x, y) =
        (program_that(&service.name, Waiting::Sleep), program_that(&service.name, Waiting::Sleep));
    let (a, b) = shared(&x, &y);
    let set = set(&y);
    let mut events = [Event::default(); 4];
    let now = Some(Duration::ZERO);
    let late = Some(Duration::from_secs(5));
    a.send(b"first").unwrap();
    b.send(b"x").unwrap();
    set.add(b.flow.number(), Some(b.flow.clone()), IN, 42).unwrap();
    for _ in 0..3 {
        assert_eq!(set.wait(&mut events, now), Ok(1));
        assert_eq!(events[0], Event { events: IN, data: 42 });
    }
    b.receive(&mut [0; 100]).unwrap();
    assert_eq!(set.wait(&mut events, now), Ok(0));

    set.modify(b.flow.number(), IN | EDGE, 43).unwrap();
    a.send(b"second").unwrap();
    assert_eq!(set.wait(&mut events, late), Ok(1));
    assert_eq!(set.wait(&mut events, now), Ok(0), "it was told of that");
    a.send(b"third").unwrap();
    assert_eq!(set.wait(&mut events, late), Ok(1));
    assert_eq!(events[0].data, 43);

    set.modify(b.flow.number(), IN | libc::EPOLLONESHOT as u32, 44).unwrap();
    assert_eq!(set.wait(&mut events, late), Ok(1));
    a.send(b"fourth").unwrap();
    assert_eq!(set.wait(&mut events, Some(Duration::from_millis(30))), Ok(0));
    b.receive(&mut [0; 100]).unwrap();

    // Room: not while the ring is full, although the kernel's connection has plenty.
    set.modify(b.flow.number(), OUT, 45).unwrap();
    assert_eq!(set.wait(&mut events, late), Ok(1));
    b.flow.set_nonblocking(true);
    b.send(&vec![0; 2 * FULL]).unwrap();
    // Level-triggered sets report once more what was queued; then not.
    let _ = set.wait(&mut events, now);
    assert_eq!(set.wait(&mut events, Some(Duration::from_millis(30))), Ok(0));
    a.receive_with(&mut vec![0; FULL / 2], libc::MSG_WAITALL).unwrap();
    assert_eq!(set.wait(&mut events, late), Ok(1));
    assert_eq!(events[0], Event { events: OUT, data: 45 });

    set.modify(b.flow.number(), IN | libc::EPOLLRDHUP as u32, 46).unwrap();
    assert_eq!(set.wait(&mut events, Some(Duration::from_millis(30))), Ok(0));
    a.close();
    assert_eq!(set.wait(&mut events, late), Ok(1));
    assert!(events[0].events & IN != 0);
    set.remove(b.flow.number()).unwrap();
    assert_eq!(set.wait(&mut events, now), Ok(0));
}

#[test]
fn poll_waits_over_rings_and_linux_at_once() {
    use rustix::event::PollFlags;
    use uncopy_tcp_socket::ready::Item;
    let service = service();
    let (x, y) =
        (program_that(&service.name, Waiting::Sleep), program_that(&service.name, Waiting::Sleep));
    let (a, b) = shared(&x, &y);
    a.send(b"1").unwrap();
    b.receive(&mut [0]).unwrap();
    let (plain, other) = connection();
    use std::os::fd::AsFd;
    let poll = |timeout| {
        let mut items = [
            Item {
                fd: b.flow.fd(),
                flow: Some(&b.flow),
                events: PollFlags::IN,
                revents: PollFlags::empty(),
            },
            Item {
                fd: other.as_fd(),
                flow: None,
                events: PollFlags::IN,
                revents: PollFlags::empty(),
            },
        ];
        let count = y.poll(&mut items, timeout).unwrap();
        (count, items.map(|item| item.revents.bits()))
    };
    assert_eq!(poll(Some(Duration::from_millis(20))), (0, [0, 0]));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            a.send(b"2").unwrap();
        });
        assert_eq!(poll(None), (1, [1, 0]));
    });
    std::io::Write::write_all(&mut &plain, b"3").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(poll(None), (2, [1, 1]));
}

/// Two sets share a door. A set that takes the other's notices wakes it; and one that is awake does
/// not say so for both.
#[test]
fn of_two_sets_that_share_a_door_each_is_woken() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let (server, client) = (of(), of());
    let pairs: Vec<_> = (0..=DOORS).map(|_| shared(&client, &server)).collect();
    let sets: Vec<_> = pairs.iter().map(|_| set(&server)).collect();
    for (set, (_, y)) in sets.iter().zip(&pairs) {
        set.add(y.flow.number(), Some(y.flow.clone()), IN, 0).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The first and the last have one door. The first wakes by itself.
        scope.spawn(|| {
            while !done.load(Relaxed) {
                let soon = Some(Duration::from_micros(200));
                assert_eq!(sets[0].wait(&mut [Event::default(); 4], soon), Ok(0));
            }
        });
        let (x, y) = &pairs[DOORS];
        scope.spawn(|| {
            while !done.load(Relaxed) {
                let begun = Instant::now();
                assert_eq!(sets[DOORS].wait(&mut [Event::default(); 4], Some(TIMEOUT)), Ok(1));
                assert!(begun.elapsed() < TIMEOUT, "nobody woke it");
                if y.receive_with(&mut [0; 8], libc::MSG_DONTWAIT) == Ok(2) {
                    y.send(b"34").unwrap();
                }
            }
        });
        let mut rng = fastrand::Rng::new();
        for round in 0..2000 {
            done.store(round == 1999, Relaxed);
            x.send(b"12").unwrap();
            assert_eq!(x.receive(&mut [0; 8]), Ok(2));
            std::thread::sleep(Duration::from_micros(rng.u64(..400)));
        }
    });
}

/// A thread that sleeps in the set could not know that there would be no room.
#[test]
fn room_is_told_to_who_sleeps_in_an_edge_triggered_set_while_another_thread_sends() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let (x, y) = {
        let (client, server) = (of(), of());
        at_rings(&client, &server)
    };
    // Already at the ring: where there is room nobody arms for it.
    x.flow.set_nonblocking(true);
    let set = set(x.flow.context());
    set.add(x.flow.number(), Some(x.flow.clone()), OUT | EDGE, 7).unwrap();
    let mut events = [Event::default(); 4];
    assert_eq!(set.wait(&mut events, Some(Duration::ZERO)).unwrap(), 1, "there is room");
    std::thread::scope(|scope| {
        let begun = Instant::now();
        let told = scope.spawn(|| set.wait(&mut [Event::default(); 4], Some(TIMEOUT)));
        std::thread::sleep(Duration::from_millis(50));
        while x.send(&[0; 50_000]).is_ok() {}
        std::thread::sleep(Duration::from_millis(20));
        assert!(!told.is_finished());
        y.receive(&mut vec![0; FULL / 2]).unwrap();
        assert_eq!(told.join().unwrap(), Ok(1));
        assert!(begun.elapsed() < TIMEOUT, "nobody woke it");
    });
}

/// The door is an event of the kernel's set too, but none of the program's.
#[test]
fn a_call_with_room_for_one_event_that_does_not_wait_is_told_although_a_door_was_knocked_at() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let (client, server) = (of(), of());
    let (_x, y) = shared(&client, &server);
    let (plain, other) = connection();
    let set = set(&server);
    set.add(y.flow.number(), Some(y.flow.clone()), IN, 1).unwrap();
    set.add(other.as_raw_fd(), None, IN, 2).unwrap();
    let mut event = [Event::default()];
    for _ in 0..3 {
        while set.wait(&mut event, Some(Duration::ZERO)) != Ok(0) {}
        set.wake();
        std::io::Write::write_all(&mut &plain, b"1").unwrap();
        let arrived = Instant::now();
        while rustix::io::ioctl_fionread(&other) == Ok(0) {
            assert!(arrived.elapsed() < TIMEOUT);
        }
        assert_eq!(set.wait(&mut event, Some(Duration::ZERO)), Ok(1));
        assert_eq!(event[0], Event { events: IN, data: 2 });
        std::io::Read::read(&mut &other, &mut [0]).unwrap();
    }
}

#[test]
fn a_thread_that_sleeps_is_woken_once_knocks_that_were_put_off_are_made() {
    let service = service();
    let asleep = |_| program_that(&service.name, Waiting::Sleep);
    let [server, client] = [0, 1].map(asleep);
    let (clients, servers): (Vec<_>, Vec<_>) = (0..3).map(|_| shared(&client, &server)).unzip();
    let (done, got) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let set = set(&server);
            for (i, end) in servers.iter().enumerate() {
                set.add(end.flow.number(), Some(end.flow.clone()), IN, i as u64).unwrap();
            }
            let mut events = [Event::default(); 8];
            while !done.load(Relaxed) {
                let count = set.wait(&mut events, Some(TIMEOUT)).unwrap();
                for event in &events[..count] {
                    let end = &servers[event.data as usize];
                    let received = end.receive_with(&mut [0; 8], libc::MSG_DONTWAIT);
                    got.fetch_add(received.map_or(0, |bytes| bytes as u64), Relaxed);
                }
            }
        });
        let send_all = || clients.iter().for_each(|end| assert_eq!(end.send(b"x"), Ok(1)));
        // (The first go by Linux, or offer the rings.)
        for round in 1..=3 {
            send_all();
            wait_until("all arrive", || got.load(Relaxed) == 3 * round);
        }
        std::thread::sleep(Duration::from_millis(100));
        client.knocks_later();
        send_all();
        std::thread::sleep(Duration::from_millis(200));
        let before = got.load(Relaxed);
        done.store(true, Relaxed);
        client.knocks_now();
        wait_until("all arrive", || got.load(Relaxed) == 12);
        assert_eq!(before, 9, "it was woken before");
    });
}

/// An answer is offered, and the side that asked has ended its stream and has not looked for it
/// yet.
fn an_offered_answer_arrives(hears: impl FnOnce(&Arc<Context>, &common::End)) {
    let service = service();
    let program = || program_that(&service.name, Waiting::Sleep);
    let (client, server) = (program(), program());
    let (a, b) = shared(&client, &server);
    b.send(b"the answer").unwrap();
    assert_eq!(b.flow.counts.sent_by_ring.load(Relaxed), 10);
    a.flow.shutdown(rustix::net::Shutdown::Write).unwrap();
    hears(&server, &b);
    let mut got = [0; 20];
    // (Sent it was long ago.)
    assert_eq!(a.receive_with(&mut got, libc::MSG_DONTWAIT), Ok(10));
    assert_eq!(&got[..10], b"the answer");
}

#[test]
fn an_answer_that_was_offered_arrives_though_the_set_that_heard_the_end_asks_for_room() {
    for flags in [EDGE, 0] {
        an_offered_answer_arrives(|server, end| {
            let set = set(server);
            let asked = IN | OUT | flags;
            set.add(end.flow.number(), Some(end.flow.clone()), asked, 7).unwrap();
            let mut events = [Event::default(); 4];
            for _ in 0..10 {
                set.wait(&mut events, Some(Duration::from_millis(20))).unwrap();
            }
        });
    }
}

#[test]
fn an_answer_that_was_offered_arrives_though_the_poll_that_heard_the_end_asks_for_room() {
    an_offered_answer_arrives(|server, end| {
        use rustix::event::PollFlags;
        let mut items = [uncopy_tcp_socket::ready::Item {
            fd: end.flow.fd(),
            flow: Some(&end.flow),
            events: PollFlags::IN | PollFlags::OUT,
            revents: PollFlags::empty(),
        }];
        for _ in 0..10 {
            server.poll(&mut items, Some(Duration::from_millis(20))).unwrap();
        }
    });
}

/// A UNIX socket takes the place of `end`'s. Both of its ends.
fn another_at_its_number(end: &mut End) -> (UnixStream, UnixStream) {
    let unix = UnixStream::pair().unwrap();
    let mut socket: OwnedFd = end.socket.take().unwrap().into();
    rustix::io::dup2(&unix.0, &mut socket).unwrap();
    end.socket = Some(socket.into());
    unix
}

#[test]
fn a_file_with_the_number_and_data_of_a_removed_connection_is_told_of() {
    let service = service();
    let program = program_that(&service.name, Waiting::Sleep);
    let (mut a, b) = at_rings(&program, &program);
    let set = set(&program);
    let number = a.flow.number();
    // (One more, so that the set has connections.)
    set.add(b.flow.number(), Some(b.flow.clone()), IN, 8).unwrap();
    set.add(number, Some(a.flow.clone()), IN, 7).unwrap();
    set.remove(number).unwrap();
    a.flow.closes(number);
    let unix = another_at_its_number(&mut a);
    a.flow.closed();
    set.add(number, None, IN | EDGE, 7).unwrap();
    std::io::Write::write_all(&mut &unix.1, b"x").unwrap();
    let mut events = [Event::default(); 4];
    let count = set.wait(&mut events, Some(TIMEOUT)).unwrap();
    let told = events[..count].iter().any(|event| event.data == 7 && event.events & IN != 0);
    assert!(told, "{:?}", &events[..count]);
}

#[test]
fn a_connection_that_was_closed_is_in_no_set_any_more_whether_it_was_removed_or_has_news() {
    for (removed, news, others) in
        [(true, false, false), (false, false, true), (false, true, true), (false, true, false)]
    {
        let service = service();
        let program = program_that(&service.name, Waiting::Sleep);
        let (a, b) = at_rings(&program, &program);
        let set = set(&program);
        let number = a.flow.number();
        if others {
            set.add(b.flow.number(), Some(b.flow.clone()), IN, 8).unwrap();
        }
        set.add(number, Some(a.flow.clone()), IN, 7).unwrap();
        if news {
            b.send(b"x").unwrap();
            // (Level-triggered: it is to be looked at again.)
            assert_eq!(set.wait(&mut [Event::default()], Some(TIMEOUT)), Ok(1));
        }
        if removed {
            set.remove(number).unwrap();
        }
        let flow = Arc::downgrade(&a.flow);
        closes(a);
        while set.wait(&mut [Event::default(); 4], Some(Duration::ZERO)).unwrap() > 0 {
            assert!(others, "the set has nothing else");
            let _ = b.receive_with(&mut [0; 8], libc::MSG_DONTWAIT);
            set.remove(b.flow.number()).unwrap();
        }
        assert!(flow.upgrade().is_none(), "removed {removed}, news {news}, others {others}");
    }
}

/// As the program closes it, sets included.
fn closes(mut end: End) {
    end.flow.closes(end.flow.number());
    drop(end.socket.take());
    end.flow.closed();
}

/// The last one of the set, which had news.
fn closes_what_has_news(program: &Arc<Context>, set: &Set) {
    let (a, b) = at_rings(program, program);
    set.add(a.flow.number(), Some(a.flow.clone()), IN, 7).unwrap();
    b.send(b"x").unwrap();
    assert_eq!(set.wait(&mut [Event::default()], Some(TIMEOUT)), Ok(1));
    closes(a);
}

#[test]
fn a_set_that_is_itself_waited_for_has_nothing_once_what_had_news_was_closed() {
    let service = service();
    let program = program_that(&service.name, Waiting::Sleep);
    let set = set(&program);
    set.nest();
    closes_what_has_news(&program, &set);
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let before = used();
    assert_eq!(set.wait(&mut [Event::default()], Some(Duration::from_millis(200))), Ok(0));
    assert!(used() - before < Duration::from_millis(100), "it sleeps");
    let mut outer = [PollFd::from_borrowed_fd(set.descriptor(), PollFlags::IN)];
    assert_eq!(poll(&mut outer, Some(&Timespec::default())), Ok(0));
}

#[test]
fn a_thread_that_waits_elsewhere_may_sleep_once_what_had_news_was_closed() {
    let service = service();
    let program = program_that(&service.name, Waiting::Sleep);
    let set = set(&program);
    closes_what_has_news(&program, &set);
    assert_eq!(set.look_now(&mut [Event::default()], &[], true), Ok(0));
    assert!(set.falls_asleep());
    set.is_awake();
}

#[test]
fn a_caller_that_asks_linux_elsewhere_is_told_of_rings_though_linuxs_news_came_before() {
    let service = service();
    let (server, client) =
        (program_that(&service.name, Waiting::Sleep), program_that(&service.name, Waiting::Sleep));
    let (a, b) = at_rings(&client, &server);
    let set = set(&server);
    set.add(b.flow.number(), Some(b.flow.clone()), IN | EDGE, 7).unwrap();
    let mut event = [Event::default()];
    for asks in [true, false, false] {
        let _ = set.look_now(&mut event, &[], asks).unwrap();
        let (plain, _other) = connection();
        let _linuxs = end(&client, plain);
        a.send(b"x").unwrap();
        assert_eq!(set.look_now(&mut event, &[], asks), Ok(1));
    }
}

#[test]
fn a_set_that_was_closed_keeps_no_connection_that_had_news() {
    let service = service();
    let program = program_that(&service.name, Waiting::Sleep);
    let (a, b) = at_rings(&program, &program);
    let set = set(&program);
    set.add(a.flow.number(), Some(a.flow.clone()), IN, 7).unwrap();
    b.send(b"x").unwrap();
    assert_eq!(set.wait(&mut [Event::default()], Some(TIMEOUT)), Ok(1));
    drop(set);
    let flow = Arc::downgrade(&a.flow);
    a.close();
    assert!(flow.upgrade().is_none());
}

/// It has another number, and is still told of.
#[test]
fn a_number_that_one_of_several_had_is_the_next_files() {
    for was_removed in [true, false] {
        let service = service();
        let program = program_that(&service.name, Waiting::Sleep);
        let (mut a, b) = at_rings(&program, &program);
        let set = set(&program);
        let number = a.flow.number();
        set.add(b.flow.number(), Some(b.flow.clone()), IN, 8).unwrap();
        set.add(number, Some(a.flow.clone()), IN, 7).unwrap();
        if was_removed {
            set.remove(number).unwrap();
        }
        let other = rustix::io::dup(a.socket.as_ref().unwrap()).unwrap();
        a.flow.set_number(other.as_raw_fd());
        a.flow.loses(number);
        let unix = another_at_its_number(&mut a);
        let mut events = [Event::default(); 4];
        let soon = Some(Duration::from_millis(100));
        if was_removed {
            set.add(number, None, IN, 9).unwrap();
            // Linux has news of the connection, which was removed.
            std::io::Write::write_all(&mut b.socket.as_ref().unwrap(), b"x").unwrap();
            assert_eq!(set.wait(&mut events, soon), Ok(0));
        } else {
            // It has the connection's data, and is asked for nothing; then for what the connection
            // was asked for.
            set.add(number, None, EDGE, 9).unwrap();
            set.modify(number, IN, 7).unwrap();
            b.send(b"x").unwrap();
            let count = set.wait(&mut events, Some(TIMEOUT)).unwrap();
            assert_eq!(events[..count], [Event { events: IN, data: 7 }], "of the connection");
            a.receive(&mut [0]).unwrap();
            assert_eq!(set.wait(&mut events, soon), Ok(0));
        }
        std::io::Write::write_all(&mut &unix.1, b"x").unwrap();
        let count = set.wait(&mut events, Some(TIMEOUT)).unwrap();
        let data = if was_removed { 9 } else { 7 };
        assert_eq!(events[..count], [Event { events: IN, data }], "removed: {was_removed}");
    }
}

/// The kernel tells of a death even where nothing is asked.
#[test]
fn a_thread_that_waits_sleeps_over_a_death_that_nobody_is_armed_for() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let (a, b) = {
        let (x, y) = (of(), of());
        at_rings(&x, &y)
    };
    let set = set(b.flow.context());
    let mut events = [Event::default(); 4];
    let once = IN | libc::EPOLLONESHOT as u32;
    set.add(b.flow.number(), Some(b.flow.clone()), once, 1).unwrap();
    a.send(b"1").unwrap();
    assert_eq!(set.wait(&mut events, Some(TIMEOUT)), Ok(1));
    b.send(b"unread").unwrap();
    a.close();
    assert_eq!(set.wait(&mut events, Some(Duration::from_millis(50))), Ok(0));
    let kernel = set.descriptor();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&kernel, PollFlags::IN)], Some(&now)), Ok(0), "it spins");
    set.modify(b.flow.number(), once, 1).unwrap();
    assert_eq!(set.wait(&mut events, Some(TIMEOUT)), Ok(1));
    assert!(events[0].events & libc::EPOLLHUP as u32 != 0);
}

/// As a server does it whose threads hand a connection on: the kernel tells a thread of it before
/// the call that armed it is back.
#[test]
fn an_entry_that_one_thread_arms_while_another_waits_is_told_of() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let (a, b) = {
        let (x, y) = (of(), of());
        shared(&x, &y)
    };
    // By Linux: only the kernel knows.
    std::io::Write::write_all(&mut a.socket.as_ref().unwrap(), b"1").unwrap();
    let set = set(b.flow.context());
    let once = IN | libc::EPOLLONESHOT as u32;
    set.add(b.flow.number(), Some(b.flow.clone()), once, 1).unwrap();
    let (told, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut events = [Event::default(); 4];
            while !done.load(Relaxed) {
                let count = set.wait(&mut events, Some(Duration::from_millis(100))).unwrap();
                told.fetch_add(count as u64, Relaxed);
            }
        });
        for turn in 1..=30_000 {
            let begun = Instant::now();
            while told.load(Relaxed) < turn && begun.elapsed() < TIMEOUT {
                std::hint::spin_loop();
            }
            if told.load(Relaxed) != turn {
                done.store(true, Relaxed);
                panic!("turn {turn}: told {} times", told.load(Relaxed));
            }
            set.modify(b.flow.number(), once, 1).unwrap();
        }
        done.store(true, Relaxed);
    });
}

/// The data of what is told of first.
fn first_of_two(set: &Set) -> u64 {
    let mut events = [Event::default(); 4];
    let count = set.wait(&mut events, Some(TIMEOUT)).unwrap();
    assert!(count > 0, "something was sent");
    events[0].data
}

#[test]
fn a_sleeper_that_is_woken_at_a_sets_door_does_not_change_what_comes_first() {
    let service = service();
    let (server, client) =
        (program_that(&service.name, Waiting::Sleep), program_that(&service.name, Waiting::Sleep));
    let (from, to) = at_rings(&client, &server);
    // Somebody else's, who is woken at all doors.
    let (wakes, woken) = at_rings(&client, &server);
    let own_doors = (0..DOORS).map(Doors::wake).fold(Doors::default(), Doors::and);
    // Connections that go by Linux, to the set and past it.
    let plain = |program| {
        let (by, at) = connection();
        let by = end(program, by);
        by.flow.leave_to_linux(StayReason::NotConnected);
        (by, at)
    };
    let ((linux, at), (elsewhere, _other)) = (plain(&client), plain(&client));
    let set = set(&server);
    set.add(to.flow.number(), Some(to.flow.clone()), IN, 7).unwrap();
    set.add(at.as_raw_fd(), None, IN, 8).unwrap();
    for ring_first in [true, false] {
        assert_eq!(set.wait(&mut [Event::default()], Some(Duration::from_millis(1))), Ok(0));
        woken.flow.arm(PollFlags::IN, own_doors);
        elsewhere.send(b"e").unwrap();
        let first = if ring_first { &from } else { &linux };
        first.send(b"1").unwrap();
        wakes.send(b"w").unwrap();
        let second = if ring_first { &linux } else { &from };
        second.send(b"2").unwrap();
        assert_eq!(first_of_two(&set), if ring_first { 7 } else { 8 });
        assert_eq!(to.receive(&mut [0; 4]), Ok(1));
        assert_eq!((&at).read(&mut [0; 4]).unwrap(), 1);
    }
}

#[test]
fn a_set_may_find_its_connection_attached_while_the_program_changes_it() {
    let service = service();
    let (server, client) =
        (program_that(&service.name, Waiting::Sleep), program_that(&service.name, Waiting::Sleep));
    for changes in [true, false] {
        let (a, b) = connection();
        let (a, b) = (end(&client, a), end(&server, b));
        let set = set(&server);
        set.nest();
        set.add(b.flow.number(), Some(b.flow.clone()), 0, 7).unwrap();
        wait_until("the service has answered", || a.flow.is_attached());
        // (Both are told at once; this side has not asked.)
        std::thread::sleep(Duration::from_millis(5));
        let changed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                match changes {
                    true => set.modify(b.flow.number(), IN, 7).unwrap(),
                    false => set.remove(b.flow.number()).unwrap(),
                }
                changed.store(true, Relaxed);
            });
            wait_until("it is changed", || changed.load(Relaxed));
        });
    }
}
