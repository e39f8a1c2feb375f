//! A server of many programs waits for none of them: not for room for what goes before an end, not
//! for a death, and not by news that are none.

#![allow(missing_docs)]

mod common;

use common::{
    End, FULL, at_rings, bytes, connection, end, fills_both, looks, program_that, service, shared,
    wait_until,
};
use rustix::event::{PollFd, PollFlags, epoll};
use rustix::net::Shutdown;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};
use uncopy_tcp_service::Client;
use uncopy_tcp_service::ends::STAND_IN;
use uncopy_tcp_service::protocol::{DOOR_COUNT, Message};
use uncopy_tcp_shared::layout::{Direction, home};
use uncopy_tcp_shared::notice::Notice;
use uncopy_tcp_shared::region::SharedRegion;
use uncopy_tcp_shared::ring::{RECEIVES, RING, Writer};
use uncopy_tcp_shared::wanted::DOORS;
use uncopy_tcp_socket::ready::Item;
use uncopy_tcp_socket::set::Event;
use uncopy_tcp_socket::{Context, Errno, InRing, Set, Settings, Waiting};

fn lane(service: &str) -> Arc<Context> {
    let waiting = Waiting::Sleep;
    let settings = Settings { waiting, may_wait: false, asks: false, ..Settings::new(service) };
    Context::new(settings).unwrap()
}

/// The other side has given a full ring back unread, and Linux is full too: of what stands before
/// the ring's bytes, so many.
fn gives_a_full_ring_back(a: &End, b: &End) -> usize {
    let before = fills_both(a);
    assert_eq!(b.flow.by_linux_later(), Ok(true));
    before
}

#[test]
fn the_end_of_a_stream_comes_after_what_was_given_back_and_is_not_waited_for() {
    let service = service();
    let (lane, program) = (lane(&service.name), program_that(&service.name, Waiting::Sleep));
    let (a, b) = at_rings(&lane, &program);
    let before = gives_a_full_ring_back(&a, &b);
    let (told, says) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (a, b) = (&a, &b);
        scope.spawn(move || told.send(a.flow.shutdown(Shutdown::Write)).unwrap());
        let said = says.recv_timeout(Duration::from_secs(5));
        // (Also where this fails, so that nobody waits for ever.)
        let reader = scope.spawn(move || {
            let mut got = vec![];
            b.socket.as_ref().unwrap().read_to_end(&mut got).map(|_| got)
        });
        assert_eq!(said.expect("it does not wait"), Err(Errno::AGAIN));
        // The rest goes when there is room, and then the end.
        while a.flow.shutdown(Shutdown::Write) == Err(Errno::AGAIN) {
            let mut fds = [PollFd::from_borrowed_fd(a.flow.fd(), PollFlags::OUT)];
            rustix::event::poll(&mut fds, None).unwrap();
        }
        let got = reader.join().unwrap().unwrap();
        assert_eq!(got.len(), before + FULL);
        assert!(got[before..] == bytes(0, FULL));
    });
}

/// Its thread sends nothing any more, and sleeps in this for a moment.
type Sleeps<'a> = &'a (dyn Fn(&End) + Sync);

#[test]
fn bytes_given_back_while_linux_was_full_follow_without_more_sends() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let moment = Duration::from_millis(20);
    let set = |end: &End, events| {
        let kernel = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let set = Set::new(end.flow.context().clone(), kernel).unwrap();
        set.add(end.flow.number(), Some(end.flow.clone()), events as u32, 7).unwrap();
        set
    };
    let by_lane = |end: &End| {
        let set = set(end, libc::EPOLLIN);
        for _ in 0..5 {
            set.look_now(&mut [Event::default(); 8], &[], true).unwrap();
            if set.falls_asleep() {
                let mut fds = [PollFd::from_borrowed_fd(set.descriptor(), PollFlags::IN)];
                let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                rustix::event::poll(&mut fds, Some(&moment)).unwrap();
            }
            set.is_awake();
        }
    };
    let by_set = |end: &End, events| {
        let set = set(end, events);
        for _ in 0..5 {
            assert_eq!(set.wait(&mut [Event::default(); 8], Some(moment)), Ok(0));
        }
    };
    let by_level = |end: &End| by_set(end, libc::EPOLLIN);
    let by_edge = |end: &End| by_set(end, libc::EPOLLIN | libc::EPOLLET);
    let once = |end: &End| by_set(end, libc::EPOLLIN | libc::EPOLLONESHOT);
    let by_poll = |end: &End| {
        let (fd, flow, revents) = (end.flow.fd(), Some(&*end.flow), PollFlags::empty());
        let mut items = [Item { fd, flow, events: PollFlags::IN, revents }];
        assert_eq!(end.flow.context().poll(&mut items, Some(moment)), Ok(0));
    };
    let by_call = |end: &End| {
        end.socket.as_ref().unwrap().set_read_timeout(Some(moment)).unwrap();
        end.flow.refresh_timeouts();
        assert_eq!(end.receive(&mut [0]), Err(Errno::AGAIN));
    };
    let ways: [(bool, Sleeps); 6] = [
        (true, &by_lane),
        (false, &by_level),
        (false, &by_edge),
        (false, &once),
        (false, &by_poll),
        (false, &by_call),
    ];
    for (is_lane, sleeps) in ways {
        let (a, b) = at_rings(&if is_lane { lane(&service.name) } else { of() }, &of());
        let before = gives_a_full_ring_back(&a, &b);
        let over = AtomicBool::new(false);
        let mut got = vec![];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    sleeps(&a);
                }
            });
            std::thread::sleep(3 * moment);
            let mut socket = b.socket.as_ref().unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut buffer = vec![0; 1 << 20];
            while got.len() < before + FULL
                && let Ok(more @ 1..) = socket.read(&mut buffer)
            {
                got.extend_from_slice(&buffer[..more]);
            }
            over.store(true, Relaxed);
        });
        assert_eq!(got.len(), before + FULL);
        assert!(got[before..] == bytes(0, FULL));
    }
}

#[test]
fn a_thread_that_sleeps_already_has_the_rest_follow_that_another_one_took_back() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let long = Duration::from_secs(10);
    let by_poll = |end: &End| {
        let (fd, flow, revents) = (end.flow.fd(), Some(&*end.flow), PollFlags::empty());
        let mut items = [Item { fd, flow, events: PollFlags::IN, revents }];
        assert_eq!(end.flow.context().poll(&mut items, Some(long)), Ok(1));
    };
    let by_call = |end: &End| assert_eq!(end.receive(&mut [0]), Ok(1));
    let ways: [Sleeps; 2] = [&by_poll, &by_call];
    for sleeps in ways {
        let (a, b) = shared(&of(), &of());
        // (Nobody receives it: so it can be taken back.)
        let all = fills_both(&a) + FULL;
        std::thread::scope(|scope| {
            scope.spawn(|| sleeps(&a));
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(a.flow.send_by_linux(false), Err(Errno::AGAIN));
            std::thread::sleep(Duration::from_millis(50));
            let mut socket = b.socket.as_ref().unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let (mut got, mut buffer) = (0, vec![0; 1 << 20]);
            while got < all
                && let Ok(more @ 1..) = socket.read(&mut buffer)
            {
                got += more;
            }
            b.send(b"x").unwrap();
            assert_eq!(got, all);
        });
    }
}

#[test]
fn a_set_asks_for_no_more_room_once_what_was_given_back_has_gone() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let ours = of();
    for same in [false, true] {
        let (a, b) = at_rings(&ours, &of());
        let (other, _its_peer) = at_rings(&ours, &of());
        let set = set(&ours, &a, libc::EPOLLIN);
        // The program may not tell them apart.
        let data = if same { 7 } else { 8 };
        let (number, flow) = (other.flow.number(), Some(other.flow.clone()));
        set.add(number, flow, libc::EPOLLIN as u32, data).unwrap();
        let all = gives_a_full_ring_back(&a, &b) + FULL;
        let mut events = [Event::default(); 4];
        let mut sleeps =
            || assert_eq!(set.wait(&mut events, Some(Duration::from_millis(2))), Ok(0));
        sleeps();
        let mut socket = b.socket.as_ref().unwrap();
        socket.set_nonblocking(true).unwrap();
        let (mut got, mut buffer) = (0, vec![0; 1 << 20]);
        wait_until("all has come", || {
            sleeps();
            got += socket.read(&mut buffer).unwrap_or(0);
            got == all
        });
        wait_until("the kernel has nothing to say", || {
            sleeps();
            let mut fds = [PollFd::from_borrowed_fd(set.descriptor(), PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&Default::default())) == Ok(0)
        });
    }
}

#[test]
fn a_close_does_not_wait_for_room() {
    let service = service();
    let (lane, program) = (lane(&service.name), program_that(&service.name, Waiting::Sleep));
    let (a, b) = at_rings(&lane, &program);
    gives_a_full_ring_back(&a, &b);
    let (told, says) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        a.close();
        told.send(()).unwrap();
    });
    assert_eq!(says.recv_timeout(Duration::from_secs(5)), Ok(()));
}

#[test]
fn the_deaths_of_many_are_looked_for_without_sleeping_and_found_later() {
    const MANY: usize = 200;
    let service = service();
    let (lane, program) = (lane(&service.name), program_that(&service.name, Waiting::Sleep));
    let (mut ours, mut theirs) = (vec![], vec![]);
    for _ in 0..MANY {
        let (a, mut b) = at_rings(&lane, &program);
        a.send(b"never read").unwrap();
        ours.push(a);
        theirs.push(b.socket.take());
    }
    // The program leaves the service, as one does that ends; its sockets are closed later.
    drop(program);
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    while begun.elapsed() < Duration::from_millis(500) {
        let one = Instant::now();
        lane.pump();
        longest = longest.max(one.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(longest < Duration::from_millis(150), "one look took {longest:?}");
    assert!(ours.iter().all(|end| end.flow.take_error().is_none()), "none is dead yet");
    drop(theirs);
    wait_until("all are known to be dead", || {
        lane.pump();
        ours.iter().all(|end| end.flow.has_error())
    });
}

/// Each of the program's connections waits for room of Linux', which cannot tell of its death then.
#[test]
fn the_deaths_of_many_are_found_by_a_program_that_sleeps() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let ours = of();
    let (other, _lives) = at_rings(&ours, &of());
    let kernel = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let set = Set::new(ours.clone(), kernel).unwrap();
    set.add(other.flow.number(), Some(other.flow.clone()), libc::EPOLLIN as u32, 7).unwrap();
    let by_poll = || {
        let (fd, flow, revents) = (other.flow.fd(), Some(&*other.flow), PollFlags::empty());
        let mut items = [Item { fd, flow, events: PollFlags::IN, revents }];
        ours.poll(&mut items, Some(Duration::from_millis(600)))
    };
    let by_set = || set.wait(&mut [Event::default(); 4], Some(Duration::from_millis(600)));
    let by_call = || {
        let socket = other.socket.as_ref().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(600))).unwrap();
        other.flow.refresh_timeouts();
        let got = other.receive(&mut [0]);
        if got == Err(Errno::AGAIN) { Ok(0) } else { got }
    };
    let ways: [&dyn Fn() -> Result<usize, Errno>; 3] = [&by_poll, &by_set, &by_call];
    for sleeps in ways {
        let theirs = of();
        let ends: Vec<_> = (0..20).map(|_| at_rings(&ours, &theirs)).collect();
        let (living, dying): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        for (a, b) in living.iter().zip(&dying) {
            a.send(b"never read").unwrap();
            let mut socket = b.socket.as_ref().unwrap();
            socket.set_nonblocking(true).unwrap();
            while socket.write(&[1; 100_000]).is_ok() {}
        }
        // The program leaves the service, which says so; its sockets are closed later.
        let sockets: Vec<_> = dying.into_iter().map(|mut end| end.socket.take()).collect();
        drop(theirs);
        std::thread::sleep(Duration::from_millis(200));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                drop(sockets);
            });
            assert_eq!(sleeps(), Ok(0));
        });
        let known = living.iter().filter(|end| end.flow.has_error()).count();
        assert_eq!(known, living.len());
    }
}

/// Its peer is on another host. False: it takes a right to say so.
fn is_to_another_host(end: &End) -> bool {
    let mark = STAND_IN;
    let (level, at) = (libc::SOL_SOCKET, (&raw const mark).cast());
    // SAFETY: reads a number, which lives here.
    unsafe { libc::setsockopt(end.flow.number(), level, libc::SO_MARK, at, 4) == 0 }
}

#[test]
fn a_sender_to_another_host_stays_at_its_ring_for_a_round_trip() {
    let service = service();
    for marked in [true, false] {
        let of = || program_that(&service.name, Waiting::Sleep);
        let (a, b) = at_rings(&of(), &of());
        if marked && !is_to_another_host(&a) {
            return;
        }
        let total = FULL + 100_000;
        std::thread::scope(|scope| {
            let sends = scope.spawn(|| a.send(&vec![1; total]));
            std::thread::sleep(Duration::from_millis(40));
            let mut got = 0;
            while got < total {
                got += b.receive(&mut vec![0; total]).unwrap();
            }
            assert_eq!(sends.join().unwrap(), Ok(total));
        });
        assert_eq!(a.flow.counts.leaves.load(Relaxed) == 0, marked);
    }
}

#[test]
fn a_sender_that_asks_for_room_again_and_again_leaves_a_full_ring() {
    let service = service();
    let pipe = std::io::pipe().unwrap();
    // Each call of the program's ends after so many ms; or at once, for something else.
    let cases = [(false, 5, false), (false, 100, false), (false, 100, true), (true, 100, false)];
    for (marked, tick, other) in cases {
        let of = || program_that(&service.name, Waiting::Sleep);
        let (a, _b) = at_rings(&of(), &of());
        if marked && !is_to_another_host(&a) {
            continue;
        }
        while a.send_with(&[1; 100_000], libc::MSG_DONTWAIT).is_ok() {}
        let item = |fd, flow, events| Item { fd, flow, events, revents: PollFlags::empty() };
        // (Of a pipe's end that nobody writes to, this is always so.)
        let else_where = if other { PollFlags::OUT } else { PollFlags::IN };
        let begun = Instant::now();
        wait_until("there is room", || {
            let mut items = [
                item(a.flow.fd(), Some(&*a.flow), PollFlags::OUT),
                item(if other { pipe.1.as_fd() } else { pipe.0.as_fd() }, None, else_where),
            ];
            let tick = Duration::from_millis(tick);
            let count = a.flow.context().poll(&mut items, Some(tick)).unwrap();
            assert_eq!(count > 0, other || !items[0].revents.is_empty());
            items[0].revents.contains(PollFlags::OUT)
        });
        let least = Duration::from_millis(if marked { 240 } else { 9 });
        let took = begun.elapsed();
        assert!((least..Duration::from_secs(3)).contains(&took), "{took:?}, {marked} {tick}");
    }
}

/// Speaks the protocol by itself, to a connection's end that is at its ring.
struct Hostile {
    region: SharedRegion,
    slot: usize,
    side: usize,
    generation: u32,
    _client: Client,
    _socket: TcpStream,
}

impl Hostile {
    fn with(service: &str, honest: &Arc<Context>) -> (Self, End) {
        let doors: Vec<_> = (0..DOOR_COUNT)
            .map(|_| rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap())
            .collect();
        let doors: Vec<_> = doors.iter().map(AsFd::as_fd).collect();
        let client = Client::connect(service, &doors).unwrap();
        let (x, y) = connection();
        let end = end(honest, x);
        let name = uncopy_tcp_service::ends::name(&y).unwrap();
        client.register(1, y.as_fd(), name).unwrap();
        let mut matched = None;
        wait_until("matched", || {
            matched = matched.take().or_else(|| client.next());
            matched.is_some()
        });
        let Some((Message::Matched { slot, side, generation, .. }, fds)) = matched else {
            panic!()
        };
        wait_until("attached", || end.flow.is_attached());
        looks(&end);
        let region = SharedRegion::map(0, &fds[0]).unwrap();
        let (slot, side, generation) = (slot as usize, side as usize, generation as u32);
        (Self { region, slot, side, generation, _client: client, _socket: y }, end)
    }

    /// The notice that the other side looks at.
    fn to_honest(&self, door: usize) -> &Notice {
        self.region.notice(1 - self.side, door)
    }

    /// The direction that it sends by.
    fn out(&self) -> &Direction {
        &self.region.slot(self.slot).header.directions[self.side]
    }

    /// The direction that it receives by; it goes by the ring from now on.
    fn inward(&self) -> &Direction {
        let header = self.region.slot(self.slot).header;
        header.ends[self.side].attached.store(self.generation, Release);
        let inward = &header.directions[1 - self.side];
        inward.consumed.flags.fetch_or(RECEIVES, Release);
        inward
    }
}

fn set(of: &Arc<Context>, end: &End, events: i32) -> Set {
    let kernel = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let set = Set::new(of.clone(), kernel).unwrap();
    set.add(end.flow.number(), Some(end.flow.clone()), events as u32, 7).unwrap();
    set
}

#[test]
fn a_set_tells_of_no_bytes_where_the_other_side_writes_over_what_was_read() {
    let service = service();
    let lane = lane(&service.name);
    let (hostile, end) = Hostile::with(&service.name, &lane);
    let mut writer = Writer::<RING>::new(home(hostile.side));
    writer.reserve(5);
    writer.commit(&hostile.out().produced, 5);
    hostile.out().switch.phase.offer();
    assert_eq!(end.receive(&mut [0; 9]), Ok(5));
    let set = set(&lane, &end, libc::EPOLLIN);
    let mut events = [Event::default(); 4];
    let mut told = || set.wait(&mut events, Some(Duration::from_millis(20))).unwrap();
    assert_eq!(told(), 0);
    for nonsense in [0, 4, 6, 1 << 31, u32::MAX] {
        hostile.out().consumed.head.store(nonsense, Relaxed);
        // (It is looked at.)
        (0..DOORS).for_each(|door| _ = hostile.to_honest(door).post(hostile.slot));
        assert_eq!(told(), 0, "{nonsense}");
        assert_eq!(end.receive_with(&mut [0], libc::MSG_DONTWAIT), Err(Errno::AGAIN));
    }
    // New bytes are still told of, and received.
    writer.reserve(3);
    writer.commit(&hostile.out().produced, 3);
    (0..DOORS).for_each(|door| _ = hostile.to_honest(door).post(hostile.slot));
    assert_eq!(told(), 1);
    assert_eq!(end.receive_with(&mut [0; 9], libc::MSG_DONTWAIT), Ok(3));
}

#[test]
fn a_ring_holds_what_was_sent_at_most_whatever_the_other_side_says_of_it() {
    let service = service();
    let lane = lane(&service.name);
    let lies = |bytes, has_room| Ok::<_, Errno>(Some(InRing { bytes, has_room }));
    let (hostile, end) = Hostile::with(&service.name, &lane);
    let inward = hostile.inward();
    let says = |head| inward.consumed.head.store(head, Release);
    assert_eq!(end.flow.in_ring(), Ok(None), "nothing went there");
    assert_eq!(end.send(&[1; 1000]), Ok(1000));
    assert_eq!(end.flow.in_ring(), lies(1000, true));
    says(400);
    assert_eq!(end.flow.in_ring(), lies(600, true));
    says(1000);
    assert_eq!(end.flow.in_ring(), lies(0, true));
    assert_eq!(end.send(&vec![1; 800_000]), Ok(800_000));
    assert_eq!(end.flow.in_ring(), lies(800_000, false));
    // It goes back, and then on: that is over for good.
    says(999);
    assert_eq!(end.flow.in_ring(), Err(Errno::CONNRESET));
    says(1000);
    assert_eq!(end.flow.in_ring(), Err(Errno::CONNRESET));
    assert_eq!(end.send(&[1]), Err(Errno::CONNRESET));
    for nonsense in [1001, RING, RING + 1, 1 << 31, u32::MAX] {
        let (hostile, end) = Hostile::with(&service.name, &lane);
        let inward = hostile.inward();
        assert_eq!(end.send(&[1; 1000]), Ok(1000));
        inward.consumed.head.store(nonsense, Release);
        assert_eq!(end.flow.in_ring(), Err(Errno::CONNRESET), "{nonsense}");
    }
    // While it changes, too.
    let (hostile, end) = Hostile::with(&service.name, &lane);
    let inward = hostile.inward();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                let tail = inward.produced.tail.load(Relaxed);
                inward.consumed.head.store(tail, Release);
            }
        });
        let mut sent = 0;
        // (Less than the ring holds: nobody tells of room.)
        for _ in 0..5_000 {
            sent += end.send(&[1; 100]).unwrap();
            let found = end.flow.in_ring().unwrap().unwrap();
            assert!(found.bytes as usize <= sent && found.bytes <= RING);
        }
        over.store(true, Relaxed);
    });
}

#[test]
fn a_call_ends_where_the_other_side_offers_its_ring_without_end() {
    let service = service();
    let lane = lane(&service.name);
    let (hostile, end) = Hostile::with(&service.name, &lane);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                hostile.out().switch.phase.offer();
            }
        });
        let begun = Instant::now();
        let mut longest = Duration::ZERO;
        // (As often as they run at the same time.)
        let reset = loop {
            let one = Instant::now();
            let got = end.receive_with(&mut [0], libc::MSG_DONTWAIT);
            longest = longest.max(one.elapsed());
            if got == Err(Errno::CONNRESET) || begun.elapsed() > Duration::from_secs(10) {
                break got;
            }
        };
        over.store(true, Relaxed);
        assert_eq!(reset, Err(Errno::CONNRESET), "the longest call took {longest:?}");
    });
}
