//! Two contexts, and connections between them, over either stack; and with a program at the other
//! end that knows nothing of it.

#![allow(missing_docs)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use uncopy_tcp_events::{Context, Event, Id, Listen, Settings, Waiting, What};
use uncopy_tcp_service::server::Stop;
use uncopy_tcp_service::{Limits, Options, Service};

/// A service of this test's own.
struct Running(String, Stop);

impl Running {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("uncopy-events-test-{}-{number}", std::process::id());
        let options = Options { name: name.clone(), limits: Limits::default(), ends_idle: None };
        let service = Service::bind(options).unwrap();
        let stop = service.stop();
        std::thread::spawn(|| service.run().unwrap());
        Self(name, stop)
    }

    fn settings(&self) -> Settings {
        Settings { waiting: Waiting::Sleep, ..Settings::by_service(self.0.clone()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.1.stop();
    }
}

/// Over rings, and over Linux' sockets.
fn both(test: impl Fn(Settings)) {
    let running = Running::new();
    test(running.settings());
    test(Settings { waiting: Waiting::Sleep, ..Settings::sockets() });
}

const HERE: &str = "127.0.0.1:0";
const MOMENT: Option<Duration> = Some(Duration::from_millis(5));

struct Two {
    server: Context,
    client: Context,
    /// The connection, as each of them knows it.
    accepted: Id,
    connected: Id,
}

impl Two {
    fn new(settings: &Settings) -> Self {
        let mut server = Context::new(settings.clone()).unwrap();
        let mut client = Context::new(settings.clone()).unwrap();
        let (_, address) =
            server.listen(HERE.parse().unwrap(), Listen { data: 7, ..Listen::default() }).unwrap();
        let connected = client.connect(address, 9).unwrap();
        let event = until(&mut client, What::CONNECTED);
        assert_eq!((event.connection, event.data), (connected, 9));
        let event = until(&mut server, What::ACCEPTED);
        assert_eq!(event.data, 7);
        Self { server, client, accepted: event.connection, connected }
    }
}

/// The next event of this kind; there is no other one before.
fn until(context: &mut Context, what: What) -> Event {
    let begun = Instant::now();
    loop {
        if context.poll(MOMENT).unwrap() > 0 {
            let event = context.event(0);
            assert!(event.what.has(what), "{event:?} instead of {what:?}");
            return event;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "no event {what:?}");
    }
}

fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9E37_79B9) >> 13) as u8
}

#[test]
fn all_bytes_arrive_in_order_whatever_is_taken_at_a_time() {
    both(|settings| {
        let mut two = Two::new(&settings);
        let total = 4 << 20;
        let bytes: Vec<u8> = (0..total).map(byte).collect();
        let mut random = fastrand::Rng::with_seed(1);
        let (mut sent, mut echoed) = (0, 0);
        let begun = Instant::now();
        while echoed < total {
            assert!(begun.elapsed() < Duration::from_secs(60), "{sent} sent, {echoed} came back");
            if sent < total {
                let piece = random.usize(1..100_000).min(total - sent);
                sent += two.client.send(two.connected, &bytes[sent..sent + piece]).unwrap();
            }
            for i in 0..two.server.poll(MOMENT).unwrap() {
                // (An echo that takes what goes out, and sometimes leaves the rest for later.)
                let gone = two.server.send_bytes_of(i).unwrap();
                two.server.take(i, gone);
            }
            for i in 0..two.client.poll(Some(Duration::ZERO)).unwrap() {
                let came = two.client.bytes(i);
                let taken = random.usize(0..=came.len());
                assert!(came[..taken] == bytes[echoed..echoed + taken], "wrong at {echoed}");
                two.client.take(i, taken);
                echoed += taken;
                two.client.again(two.connected);
            }
        }
        assert_eq!(sent, total);
    });
}

#[test]
fn bytes_that_are_not_taken_come_again_in_front_of_what_follows() {
    both(|settings| {
        let Two { mut server, mut client, accepted, connected } = Two::new(&settings);
        assert_eq!(client.send(connected, b"first").unwrap(), 5);
        until(&mut server, What::RECEIVED);
        assert_eq!(server.bytes(0), b"first");
        server.take(0, 2);
        assert_eq!(server.bytes(0), b"rst");
        // Nothing happens: nothing is told.
        assert_eq!(server.poll(MOMENT).unwrap(), 0);
        client.send(connected, b"second").unwrap();
        until(&mut server, What::RECEIVED);
        assert_eq!(server.bytes(0), b"rstsecond");
        server.again(accepted);
        until(&mut server, What::RECEIVED);
        assert_eq!(server.bytes(0), b"rstsecond");
        server.take(0, 9);
        assert_eq!(server.poll(MOMENT).unwrap(), 0);
    });
}

#[test]
fn no_more_than_the_window_is_received_until_something_is_taken() {
    both(|settings| {
        let window = 10_000;
        let Two { mut server, mut client, accepted, connected } =
            Two::new(&Settings { window, ..settings });
        let bytes: Vec<u8> = (0..3 * window).map(byte).collect();
        assert_eq!(client.send(connected, &bytes).unwrap(), bytes.len());
        let mut seen = 0;
        let begun = Instant::now();
        while seen < window {
            assert!(begun.elapsed() < Duration::from_secs(10));
            for i in 0..server.poll(MOMENT).unwrap() {
                seen = server.bytes(i).len();
            }
        }
        assert_eq!(seen, window);
        assert_eq!(server.poll(MOMENT).unwrap(), 0, "the window is full");
        let mut got = 0;
        server.again(accepted);
        while got < bytes.len() {
            assert!(begun.elapsed() < Duration::from_secs(10));
            for i in 0..server.poll(MOMENT).unwrap() {
                let came = server.bytes(i);
                assert_eq!(came, &bytes[got..got + came.len()]);
                got += came.len();
                server.take(i, came.len());
            }
        }
    });
}

#[test]
fn the_end_is_told_once_after_all_bytes_and_the_other_way_goes_on() {
    both(|settings| {
        let Two { mut server, mut client, accepted, connected } = Two::new(&settings);
        for round in 0..20 {
            client.send(connected, b"request").unwrap();
            until(&mut server, What::RECEIVED);
            server.take(0, 7);
            server.send(accepted, b"answer").unwrap();
            until(&mut client, What::RECEIVED);
            assert_eq!(client.bytes(0), b"answer", "{round}");
            client.take(0, 6);
        }
        client.send(connected, b"last").unwrap();
        client.finish(connected).unwrap();
        until(&mut server, What::RECEIVED);
        assert_eq!(server.bytes(0), b"last");
        let event = until(&mut server, What::ENDED);
        assert!(server.is_over(accepted) && event.error == 0);
        assert_eq!(server.bytes(0), b"last", "not taken: so it comes again");
        server.take(0, 4);
        assert_eq!(server.poll(MOMENT).unwrap(), 0, "the end is told once");
        server.send(accepted, b"goodbye").unwrap();
        until(&mut client, What::RECEIVED);
        assert_eq!(client.bytes(0), b"goodbye");
        server.close(accepted);
        until(&mut client, What::ENDED);
        assert!(server.send(accepted, b"x").is_err());
    });
}

#[test]
fn a_connection_that_is_refused_fails_with_the_reason() {
    both(|settings| {
        let mut context = Context::new(settings).unwrap();
        let nobody = TcpListener::bind(HERE).unwrap().local_addr().unwrap();
        // (Linux says so at once, or later.)
        match context.connect(nobody, 1) {
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused),
            Ok(id) => {
                let event = until(&mut context, What::FAILED);
                assert_eq!((event.connection, event.error), (id, libc::ECONNREFUSED));
                assert_eq!(context.poll(MOMENT).unwrap(), 0, "it is told once");
            }
        }
    });
}

#[test]
fn a_reset_is_told_as_a_failure() {
    both(|settings| {
        let Two { mut server, mut client, accepted, connected } = Two::new(&settings);
        client.send(connected, b"unread").unwrap();
        until(&mut server, What::RECEIVED);
        server.send(accepted, b"unread too").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        // It was received, and the other end's answer was not.
        client.close(connected);
        let event = until(&mut server, What::FAILED);
        assert_eq!((event.connection, event.error), (accepted, libc::ECONNRESET));
        assert_eq!(server.poll(MOMENT).unwrap(), 0, "it is told once");
    });
}

#[test]
fn connections_between_two_contexts_come_to_their_rings() {
    let running = Running::new();
    let Two { mut server, mut client, accepted, connected } = Two::new(&running.settings());
    let begun = Instant::now();
    while !client.is_by_ring(connected) || !server.is_by_ring(accepted) {
        assert!(begun.elapsed() < Duration::from_secs(10), "they stay with Linux");
        client.send(connected, b"ping").unwrap();
        until(&mut server, What::RECEIVED);
        assert_eq!(server.bytes(0), b"ping");
        server.take(0, 4);
        server.send(accepted, b"pong").unwrap();
        until(&mut client, What::RECEIVED);
        client.take(0, 4);
    }
}

#[test]
fn a_peer_that_knows_nothing_of_it_is_served_by_linux() {
    both(|settings| {
        let mut server = Context::new(settings).unwrap();
        let (_, address): (Id, SocketAddr) =
            server.listen(HERE.parse().unwrap(), Listen::default()).unwrap();
        let peer = std::thread::spawn(move || {
            let mut peer = TcpStream::connect(address).unwrap();
            for round in 0..50u8 {
                let sent = [round; 1000];
                peer.write_all(&sent).unwrap();
                let mut got = [0; 1000];
                peer.read_exact(&mut got).unwrap();
                assert_eq!(sent, got);
            }
            peer.shutdown(Shutdown::Write).unwrap();
            assert_eq!(peer.read(&mut [0]).unwrap(), 0);
        });
        let mut open = true;
        while open {
            for i in 0..server.poll(MOMENT).unwrap() {
                let connection = server.event(i).connection;
                let sent = server.send_bytes_of(i).unwrap();
                server.take(i, sent);
                if server.is_over(connection) && server.bytes(i).is_empty() {
                    server.close(connection);
                    open = false;
                }
            }
        }
        peer.join().unwrap();
    });
}
