//! The client: each connection is made, has its requests answered one after the other, is closed,
//! and made anew. Every answer is compared.

use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use uncopy_measure::medians::round;
use uncopy_measure::{Failure, failure};
use uncopy_tcp_events::{Context, Id, What};

use super::plan::{Plan, ShortSummary};
use crate::events::{ClientArgs, context, first, orders};
use crate::rpc::plan::Hello;
use crate::rpc::requests::{requests, wrong};

/// The hidden subcommand that is the client.
pub const NAME: &str = "__short-client";

/// Nothing has come for so long: the other end hangs, or has died without a word.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Does what it is told until standard input ends.
pub fn main(args: &ClientArgs<Plan>) -> Result<(), Failure> {
    run(&args.plan, &args.server).map_err(|e| failure!("client of short connections: {e}"))
}

fn run(plan: &Plan, server: &Hello) -> io::Result<()> {
    let histogram = || Histogram::new_with_bounds(1, 120_000_000_000, 3).map_err(io::Error::other);
    let mut client = Client {
        plan,
        server,
        context: context(&plan.base)?,
        links: vec![],
        begun: 0,
        next: 0,
        out: vec![0; plan.size],
        latency: histogram()?,
        connecting: histogram()?,
        verified: 0,
        ended: 0,
    };
    first(plan.base.connections)?;
    let turn = |client: &mut Client, seconds, anew| {
        if anew {
            client.latency.reset();
            client.connecting.reset();
        }
        let before = client.verified;
        client.turn(Duration::from_secs_f64(seconds))?;
        Ok(client.verified - before)
    };
    let tell = |client: &mut Client| {
        let of = |histogram: &Histogram<u64>, p| {
            round(histogram.value_at_percentile(p) as f64 / 1000.0, 2)
        };
        ShortSummary {
            verified: client.verified,
            connections: client.ended,
            p50_us: of(&client.latency, 50.0),
            p99_us: of(&client.latency, 99.0),
            connect_p50_us: (!client.connecting.is_empty()).then(|| of(&client.connecting, 50.0)),
        }
    };
    orders(&mut client, turn, tell)
}

struct Link {
    id: Id,
    /// Requests that were answered on this connection.
    answered: usize,
    number: u64,
    began: Instant,
}

struct Client<'a> {
    plan: &'a Plan,
    server: &'a Hello,
    context: Context,
    links: Vec<Link>,
    /// Connections that were ever begun.
    begun: usize,
    next: u64,
    out: Vec<u8>,
    latency: Histogram<u64>,
    connecting: Histogram<u64>,
    verified: u64,
    ended: u64,
}

impl Client<'_> {
    fn connect(&mut self, link: usize) -> io::Result<Link> {
        let address = self.server.addresses[self.begun % self.server.addresses.len()];
        self.begun += 1;
        let began = Instant::now();
        let id = self.context.connect(address, link as u64)?;
        Ok(Link { id, answered: 0, number: 0, began })
    }

    /// Load for so long. Connections under way at the end come to their end.
    fn turn(&mut self, length: Duration) -> io::Result<()> {
        let begun = Instant::now();
        if self.links.is_empty() {
            for link in 0..self.plan.base.connections {
                let connected = self.connect(link)?;
                self.links.push(connected);
            }
        } else {
            for link in 0..self.links.len() {
                self.ask(link, begun)?;
            }
        }
        let mut open = self.links.len();
        while open > 0 {
            let events = self.context.poll(Some(TIMEOUT))?;
            if events == 0 {
                return Err(io::Error::other("nothing has come back for 10 s"));
            }
            for i in 0..events {
                if let Some(link) = self.advance(i)? {
                    let now = Instant::now();
                    if now - begun < length {
                        self.ask(link, now)?;
                    } else {
                        open -= 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// The connection that waits for its next request after event `i`.
    fn advance(&mut self, i: usize) -> io::Result<Option<usize>> {
        let event = self.context.event(i);
        if event.error != 0 {
            return Err(io::Error::from_raw_os_error(event.error));
        }
        let at = event.data as usize;
        let link = &mut self.links[at];
        if link.id != event.connection {
            // (It was closed.)
            return Ok(None);
        }
        let took = |link: &Link| link.began.elapsed().as_nanos() as u64;
        if event.what.has(What::CONNECTED) {
            self.connecting.saturating_record(took(link));
            return Ok(Some(at));
        }
        if event.what.has(What::ENDED) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let came = self.context.bytes(i);
        requests(link.number, self.plan.size, &mut self.out);
        if came != &self.out[..came.len().min(self.out.len())] {
            return Err(wrong(at, link.number, 0));
        }
        if came.len() < self.out.len() {
            return Ok(None);
        }
        self.latency.saturating_record(took(link));
        self.verified += 1;
        link.answered += 1;
        let (id, answered) = (link.id, link.answered);
        self.context.take(i, self.plan.size);
        if answered < self.plan.rpcs {
            return Ok(Some(at));
        }
        self.context.close(id);
        self.ended += 1;
        self.links[at] = self.connect(at)?;
        Ok(None)
    }

    /// Sends a connection's next request.
    fn ask(&mut self, link: usize, now: Instant) -> io::Result<()> {
        let link = &mut self.links[link];
        (link.number, link.began) = (self.next, now);
        self.next += 1;
        requests(link.number, self.plan.size, &mut self.out);
        if self.context.send(link.id, &self.out)? < self.plan.size {
            // (Nothing else is under way on it.)
            return Err(io::Error::other("a request did not fit"));
        }
        Ok(())
    }
}
