//! Requests of a client to a key-value store, and exactly what they have to be answered; for every
//! store that speaks this protocol.

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use uncopy_tcp_events::{Context, Id, Settings, What};

/// A client over either stack.
pub struct Client {
    context: Context,
    connection: Id,
}

const TIMEOUT: Duration = Duration::from_secs(20);

impl Client {
    pub fn connect(settings: Settings, server: SocketAddr) -> Self {
        let mut context = Context::new(settings).unwrap();
        let connection = context.connect(server, 0).unwrap();
        assert_eq!(context.poll(Some(TIMEOUT)).unwrap(), 1);
        assert!(context.event(0).what.has(What::CONNECTED), "{:?}", context.event(0));
        Self { context, connection }
    }

    /// Sends all of it, and receives nothing meanwhile.
    pub fn send(&mut self, bytes: &[u8]) {
        let (mut sent, begun) = (0, Instant::now());
        while sent < bytes.len() {
            assert!(begun.elapsed() < TIMEOUT, "{sent} of {} sent", bytes.len());
            sent += self.context.send(self.connection, &bytes[sent..]).unwrap();
            if sent < bytes.len() {
                self.context.poll(Some(Duration::from_millis(10))).unwrap();
            }
        }
    }

    /// Receives just this.
    pub fn expect(&mut self, bytes: &[u8]) {
        let (mut got, begun) = (0, Instant::now());
        self.context.again(self.connection);
        while got < bytes.len() {
            assert!(begun.elapsed() < TIMEOUT, "{got} of {} came", bytes.len());
            for i in 0..self.context.poll(Some(Duration::from_millis(100))).unwrap() {
                let came = self.context.bytes(i);
                let length = came.len().min(bytes.len() - got);
                let expected = &bytes[got..got + length];
                assert!(came[..length] == *expected, "{:?}", String::from_utf8_lossy(came));
                self.context.take(i, length);
                got += length;
                let what = self.context.event(i).what;
                assert!(got == bytes.len() || !what.is_over(), "it ended after {got} bytes");
            }
        }
    }

    /// It ends, and nothing comes before that.
    pub fn expect_end(&mut self) {
        let begun = Instant::now();
        while !self.context.is_over(self.connection) {
            assert!(begun.elapsed() < TIMEOUT, "it goes on");
            for i in 0..self.context.poll(Some(Duration::from_millis(100))).unwrap() {
                assert_eq!(self.context.bytes(i), b"");
            }
        }
    }

    pub fn asks(&mut self, request: &[u8], answer: &[u8]) {
        self.send(request);
        self.expect(answer);
    }

    pub fn is_by_ring(&self) -> bool {
        self.context.is_by_ring(self.connection)
    }
}

fn value(i: usize) -> Vec<u8> {
    (0..30_000usize).map(|at| (at.wrapping_mul(31) ^ i.wrapping_mul(7919)) as u8).collect()
}

/// All of it. Whether the connection came to its ring.
pub fn run(settings: &Settings, server: SocketAddr) -> bool {
    let mut client = Client::connect(settings.clone(), server);
    client.asks(b"get nothing\r\n", b"END\r\n");
    client.asks(b"set key 5 0 5\r\nva\r\nu\r\n", b"STORED\r\n");
    client.asks(b"get key\r\n", b"VALUE key 5 5\r\nva\r\nu\r\nEND\r\n");
    client.asks(b"set key 0 0 0\r\n\r\n", b"STORED\r\n");
    client.asks(b"get key\r\nget key\n", &b"VALUE key 0 0\r\n\r\nEND\r\n".repeat(2));
    client.asks(b"delete key\r\ndelete key\r\n", b"DELETED\r\nNOT_FOUND\r\n");
    client.asks(b"what is this\r\n", b"ERROR\r\n");
    // A request in pieces is answered when it is whole.
    for piece in b"set slow 1 0 3\r\nabc\r".iter() {
        client.send(&[*piece]);
    }
    client.asks(b"\n", b"STORED\r\n");
    // More answers than fit anywhere, while nothing is received: they wait, in order.
    let mut answers = vec![];
    for i in 0..20 {
        let mut request = format!("set big{i} 0 0 30000\r\n").into_bytes();
        request.extend_from_slice(&value(i));
        request.extend_from_slice(b"\r\n");
        client.asks(&request, b"STORED\r\n");
    }
    for round in 0..300 {
        let i = round % 20;
        client.send(format!("get big{i}\r\n").as_bytes());
        answers.extend_from_slice(format!("VALUE big{i} 0 30000\r\n").as_bytes());
        answers.extend_from_slice(&value(i));
        answers.extend_from_slice(b"\r\nEND\r\n");
    }
    client.expect(&answers);
    let by_ring = client.is_by_ring();
    client.send(b"quit\r\n");
    client.expect_end();
    // After what cannot be understood, it ends.
    let mut client = Client::connect(settings.clone(), server);
    client.asks(b"set k 0 0 99999999\r\n", b"SERVER_ERROR object too large for cache\r\n");
    client.expect_end();
    by_ring
}
