//! One client: requests that are due at fixed times, each on a connection that waits for nothing
//! else. Latency counts from when a request was due, so that one that had to wait for others is not
//! taken for a fast one.

use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::rpc::ends::End;
use crate::rpc::requests::{requests, wrong};

/// A connection.
struct Link {
    end: End,
    /// The number of the request under way.
    number: u64,
    due: Instant,
    got: usize,
}

/// See the module.
pub struct Caller {
    links: Vec<Link>,
    /// Links that wait for nothing.
    free: Vec<usize>,
    begun: Instant,
    /// Between two requests.
    every: Duration,
    /// Requests that were due.
    pub due: u64,
    /// Requests that were sent.
    sent: u64,
    /// No further one is sent.
    goes: bool,
}

/// The results that all clients write into.
pub struct Results {
    /// Numbers of requests.
    pub next: u64,
    /// Of the interval, ns.
    pub latency: Histogram<u64>,
    /// Answers of the interval.
    pub answered: u64,
    /// A request, and what came.
    pub out: Vec<u8>,
    /// See above.
    pub came: Vec<u8>,
}

impl Caller {
    /// Over these connections, from now on.
    pub fn new(ends: Vec<End>, rate: usize) -> Self {
        let now = Instant::now();
        let links: Vec<Link> =
            ends.into_iter().map(|end| Link { end, number: 0, due: now, got: 0 }).collect();
        Self {
            free: (0..links.len()).collect(),
            links,
            begun: now,
            every: Duration::from_secs(1) / rate as u32,
            due: 0,
            sent: 0,
            goes: false,
        }
    }

    /// Its connections.
    pub fn ends(&self) -> impl Iterator<Item = &End> {
        self.links.iter().map(|link| &link.end)
    }

    /// It asks for nothing more.
    pub fn leaves(&mut self) {
        (self.goes, self.due) = (true, self.sent);
    }

    /// See above.
    pub fn leaves_already(&self) -> bool {
        self.goes
    }

    /// It has left, and nothing of it is under way.
    pub fn is_gone(&self) -> bool {
        self.goes && self.free.len() == self.links.len()
    }

    /// Requests that were due and are not answered.
    pub fn waiting(&self) -> u64 {
        self.due - self.sent + (self.links.len() - self.free.len()) as u64
    }

    /// When request number `n` is due.
    fn at(&self, n: u64) -> Instant {
        self.begun + Duration::from_nanos(self.every.as_nanos() as u64 * n)
    }

    /// Sends what is due, as far as connections are free.
    pub fn send(&mut self, now: Instant, results: &mut Results) -> io::Result<()> {
        while !self.goes && self.at(self.due) <= now {
            self.due += 1;
        }
        while self.sent < self.due
            && let Some(i) = self.free.pop()
        {
            let due = self.at(self.sent);
            let link = &mut self.links[i];
            (link.number, link.due, link.got) = (results.next, due, 0);
            results.next += 1;
            let size = results.out.len();
            requests(link.number, size, &mut results.out);
            if link.end.send(&results.out, true)? < size {
                // (Nothing else is under way on it.)
                return Err(io::Error::other("a request did not fit"));
            }
            self.sent += 1;
        }
        Ok(())
    }

    /// When its next request is due. None: it can send none before an answer comes.
    pub fn next(&self) -> Option<Instant> {
        (!self.goes && !self.free.is_empty()).then(|| self.at(self.due))
    }

    /// Takes and compares what has come on connection `i`.
    pub fn take(&mut self, i: usize, results: &mut Results) -> io::Result<()> {
        let size = results.out.len();
        let link = &mut self.links[i];
        let got = match link.end.receive(&mut results.came[..size - link.got], true)? {
            None => return Ok(()),
            Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(got) => got,
        };
        requests(link.number, size, &mut results.out);
        if results.came[..got] != results.out[link.got..link.got + got] {
            return Err(wrong(i, link.number, link.got));
        }
        link.got += got;
        if link.got == size {
            results.latency.saturating_record(link.due.elapsed().as_nanos() as u64);
            results.answered += 1;
            self.free.push(i);
        }
        Ok(())
    }
}
