//! The client: closed loops, one request under way on each connection; every answer is compared.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fastrand::Rng;
use hdrhistogram::Histogram;
use uncopy_measure::medians::round;
use uncopy_measure::{Failure, failure};
use uncopy_tcp_events::{Context, Id};
use uncopy_tcp_kv::protocol::{END, STORED, get, put, value as answer_of};

use super::history::History;
use super::keys::{self, Order};
use super::plan::{KvSummary, PERCENTILES, Plan};
use crate::events::{ClientArgs, context, first, orders};
use crate::rpc::plan::Hello;

/// The hidden subcommand that is the client.
pub const NAME: &str = "__kv-client";

/// Does what it is told until standard input ends.
pub fn main(args: &ClientArgs<Plan>) -> Result<(), Failure> {
    run(&args.plan, &args.server).map_err(|e| failure!("key-value client: {e}"))
}

/// Pairs that are set by one message, before the load.
const BATCH: usize = 64;
/// Nothing has come for so long: the other end hangs, or has died without a word.
const TIMEOUT: Duration = Duration::from_secs(10);

fn run(plan: &Plan, server: &Hello) -> io::Result<()> {
    let mut client = Client::new(plan)?;
    client.connect(server.addresses[0])?;
    client.fill()?;
    first(plan.base.connections)?;
    let turn = |client: &mut Client, seconds, anew| {
        if anew {
            client.latency.reset();
        }
        let before = client.verified;
        client.turn(Duration::from_secs_f64(seconds))?;
        Ok(client.verified - before)
    };
    let tell = |client: &mut Client| KvSummary {
        verified: client.verified,
        latency_us: PERCENTILES
            .map(|p| round(client.latency.value_at_percentile(p) as f64 / 1000.0, 2))
            .to_vec(),
    };
    orders(&mut client, turn, tell)
}

/// A request under way.
#[derive(Clone, Copy)]
enum Asked {
    /// For this key; what [`History::asks`] said.
    Get(usize, u64),
    /// This set.
    Set(u32),
}

struct Link {
    id: Id,
    asked: Option<Asked>,
    began: Instant,
}

struct Client<'a> {
    plan: &'a Plan,
    context: Context,
    links: Vec<Link>,
    names: Vec<Vec<u8>>,
    order: Order,
    random: Rng,
    history: History,
    /// The request that is sent, and the answer that should come back.
    out: Vec<u8>,
    value: Vec<u8>,
    expected: Vec<u8>,
    latency: Histogram<u64>,
    verified: u64,
}

impl<'a> Client<'a> {
    fn new(plan: &'a Plan) -> io::Result<Self> {
        Ok(Self {
            plan,
            context: context(&plan.base)?,
            links: vec![],
            names: (0..plan.keys).map(|i| keys::name(plan.load, i)).collect(),
            order: Order::new(plan.keys, 1),
            random: Rng::with_seed(2),
            history: History::new(plan.keys),
            out: vec![],
            value: vec![],
            expected: vec![],
            latency: Histogram::new_with_bounds(1, 120_000_000_000, 3).map_err(io::Error::other)?,
            verified: 0,
        })
    }

    fn connect(&mut self, server: SocketAddr) -> io::Result<()> {
        for i in 0..self.plan.base.connections {
            let id = self.context.connect(server, i as u64)?;
            self.links.push(Link { id, asked: None, began: Instant::now() });
        }
        let mut connected = 0;
        while connected < self.links.len() {
            for i in 0..self.events()? {
                let event = self.context.event(i);
                if event.error != 0 {
                    return Err(io::Error::from_raw_os_error(event.error));
                }
                connected += 1;
            }
        }
        Ok(())
    }

    fn events(&mut self) -> io::Result<usize> {
        match self.context.poll(Some(TIMEOUT))? {
            0 => Err(io::Error::other("nothing has come back for 10 s")),
            events => Ok(events),
        }
    }

    /// All keys get values, by the first connection.
    fn fill(&mut self) -> io::Result<()> {
        for begin in (0..self.plan.keys).step_by(BATCH) {
            let end = self.plan.keys.min(begin + BATCH);
            self.out.clear();
            let mut numbers = vec![];
            for key in begin..end {
                numbers.push(self.history.begins(key));
                keys::value(self.plan.load, key, numbers[key - begin], &mut self.value);
                put(&mut self.out, &self.names[key], &self.value);
            }
            let expected = STORED.repeat(end - begin);
            let (mut sent, mut answered) = (0, false);
            while !answered {
                if sent < self.out.len() {
                    sent += self.context.send(self.links[0].id, &self.out[sent..])?;
                }
                for i in 0..self.events()? {
                    let came = self.context.bytes(i);
                    if came != &expected[..came.len().min(expected.len())] {
                        return Err(wrong("a pair was not stored", came));
                    }
                    if came.len() == expected.len() {
                        answered = true;
                        self.context.take(i, expected.len());
                    }
                }
            }
            numbers.into_iter().for_each(|number| self.history.answered(number));
        }
        Ok(())
    }

    /// Load for so long. Requests under way at the end come to their end.
    fn turn(&mut self, length: Duration) -> io::Result<()> {
        let begun = Instant::now();
        for link in 0..self.links.len() {
            self.ask(link, begun)?;
        }
        let mut open = self.links.len();
        while open > 0 {
            for i in 0..self.events()? {
                let Some(link) = self.answered(i)? else { continue };
                let now = Instant::now();
                let took = now - self.links[link].began;
                self.latency.saturating_record(took.as_nanos() as u64);
                self.verified += 1;
                if now - begun < length {
                    self.ask(link, now)?;
                } else {
                    open -= 1;
                }
            }
        }
        Ok(())
    }

    /// Sends a connection's next request.
    fn ask(&mut self, link: usize, now: Instant) -> io::Result<()> {
        let key = self.order.key();
        self.out.clear();
        let asked = if self.random.u32(0..100) < self.plan.sets {
            let set = self.history.begins(key);
            keys::value(self.plan.load, key, set, &mut self.value);
            put(&mut self.out, &self.names[key], &self.value);
            Asked::Set(set)
        } else {
            get(&mut self.out, &self.names[key]);
            Asked::Get(key, self.history.asks(key))
        };
        let link = &mut self.links[link];
        (link.asked, link.began) = (Some(asked), now);
        let sent = self.context.send(link.id, &self.out)?;
        if sent < self.out.len() {
            // (Nothing else is under way on it: there is room for more than one request.)
            return Err(io::Error::other("a request did not fit"));
        }
        Ok(())
    }

    /// Compares what came with event `i`; the connection whose request it completes.
    fn answered(&mut self, i: usize) -> io::Result<Option<usize>> {
        let event = self.context.event(i);
        if event.what.is_over() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let link = event.data as usize;
        let came = self.context.bytes(i);
        let Some(asked) = self.links[link].asked else {
            return Err(wrong("an answer that nobody asked for", came));
        };
        let (_, length) = self.plan.load.sizes();
        let expected = &mut self.expected;
        expected.clear();
        match asked {
            Asked::Set(_) => expected.extend_from_slice(STORED),
            Asked::Get(key, _) => {
                // A value names the key that it belongs to.
                let name = &self.names[key];
                answer_of(expected, name, 0, &[]);
                let begin = expected.len() - 2 + usize::from(length > 9);
                let set = came.get(begin..).and_then(keys::set_of).unwrap_or(u32::MAX);
                keys::value(self.plan.load, key, set, &mut self.value);
                expected.clear();
                answer_of(expected, name, 0, &self.value);
                expected.extend_from_slice(END);
            }
        }
        if came.len() < expected.len() {
            return Ok(None);
        }
        if came != &expected[..] {
            return Err(wrong("WRONG DATA", came));
        }
        match asked {
            Asked::Set(set) => self.history.answered(set),
            Asked::Get(key, asked) => {
                let set = keys::set_of(&self.value).unwrap_or(u32::MAX);
                if !self.history.may_find(key, asked, set) {
                    return Err(wrong("WRONG DATA: a value that was replaced", came));
                }
            }
        }
        self.links[link].asked = None;
        self.context.take(i, self.expected.len());
        Ok(Some(link))
    }
}

fn wrong(what: &str, came: &[u8]) -> io::Error {
    let came = String::from_utf8_lossy(&came[..came.len().min(100)]);
    io::Error::other(format!("{what}: {came:?}"))
}
