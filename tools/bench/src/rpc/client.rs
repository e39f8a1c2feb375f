//! The client: closed loops. Each connection has one message under way, of one request or of
//! several; every answer is compared.

use std::io::{self, BufRead};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use uncopy_measure::medians::round;
use uncopy_measure::{Failure, failure};

use super::choices::Way;
use super::ends::{End, Ends, context, make_room};
use super::one_way;
use super::over::{self, Over};
use super::plan::{EACH_ADDRESS, Hello, Order, Plan, Ready, RpcSummary, Turned};
use super::requests::{are_requests, requests, wrong};
use super::server::answer;

/// The hidden subcommand that is the client.
pub const NAME: &str = "__rpc-client";

/// The client's options.
#[derive(clap::Args)]
pub struct ClientArgs {
    #[arg(value_parser = uncopy_measure::words::told::<Plan>)]
    plan: Plan,
    #[arg(value_parser = uncopy_measure::words::told::<Hello>)]
    server: Hello,
    #[arg(long, value_parser = uncopy_measure::words::told::<Over>)]
    over: Option<Over>,
}

/// Does what it is told until standard input ends.
pub fn main(args: &ClientArgs) -> Result<(), Failure> {
    let (plan, server) = (&args.plan, &args.server);
    if let Some(over) = &args.over {
        over.enter()?;
        if over.ours.is_some() {
            return over::client::run(plan, server, over);
        }
    }
    run(plan, server).map_err(|e| failure!("RPC client: {e}"))
}

fn run(plan: &Plan, server: &Hello) -> io::Result<()> {
    make_room(plan.connections)?;
    let context = context(plan)?;
    let mut links = (0..plan.connections)
        .map(|i| {
            let socket = TcpStream::connect(server.addresses[i / EACH_ADDRESS])?;
            let end = End::new(socket, plan, context.as_ref())?;
            let out = vec![0; plan.message()];
            Ok(Link { end, number: 0, out, sent: 0, got: 0, began: Instant::now() })
        })
        .collect::<io::Result<Vec<_>>>()?;
    let set = Ends::new(plan, context.as_ref())?;
    if !plan.is_alone() {
        for (i, link) in links.iter().enumerate() {
            set.add(&link.end, i as u64)?;
        }
    }
    answer(&Ready { connections: links.len() })?;
    let mut load = Load {
        plan,
        next: 0,
        got: vec![0; plan.message().min(64 << 10)],
        latency: Histogram::new_with_bounds(1, 120_000_000_000, 3).map_err(io::Error::other)?,
        verified: 0,
    };
    let ends: Vec<End> = match plan.way {
        Way::Both => vec![],
        Way::In | Way::Out => std::mem::take(&mut links).into_iter().map(|l| l.end).collect(),
    };
    let mut one_way = match plan.way {
        Way::Both => None,
        Way::In | Way::Out => Some(one_way::Load::new(plan, ends.iter())?),
    };
    for line in io::stdin().lock().lines() {
        match serde_json::from_str(&line?)? {
            Order::Turn { seconds, anew } => {
                if anew {
                    load.latency.reset();
                    one_way.iter_mut().for_each(one_way::Load::anew);
                }
                let begun = Instant::now();
                let length = Duration::from_secs_f64(seconds);
                let before = load.verified;
                if let Some(one_way) = &mut one_way {
                    one_way.turn(&set, length)?;
                    load.verified = one_way.verified;
                } else if plan.is_alone() {
                    load.alone(&mut links[0], length)?;
                } else {
                    load.many(&mut links, &set, length)?;
                }
                let seconds = begun.elapsed().as_secs_f64();
                answer(&Turned { rpcs: load.verified - before, seconds })?;
            }
            Order::Tell => {
                let waited_share = one_way.as_ref().and_then(one_way::Load::waited_share);
                answer(&RpcSummary { waited_share, ..told(&load.latency, load.verified) })?;
            }
        }
    }
    Ok(())
}

/// The result of all turns.
pub fn told(latency: &Histogram<u64>, verified: u64) -> RpcSummary {
    let percentile = |p| round(latency.value_at_percentile(p) as f64 / 1000.0, 2);
    RpcSummary { verified, p50_us: percentile(50.0), p99_us: percentile(99.0), waited_share: None }
}

struct Link {
    end: End,
    /// Of its message's first request.
    number: u64,
    /// The message. (Each has its own: it is made once, however many pieces it is sent in.)
    out: Vec<u8>,
    sent: usize,
    got: usize,
    began: Instant,
}

struct Load<'a> {
    plan: &'a Plan,
    next: u64,
    got: Vec<u8>,
    latency: Histogram<u64>,
    verified: u64,
}

impl Link {
    /// Sends what is taken.
    fn push(&mut self) -> io::Result<()> {
        while self.sent < self.out.len() {
            match self.end.send(&self.out[self.sent..], true)? {
                0 => break,
                sent => self.sent += sent,
            }
        }
        Ok(())
    }
}

impl Load<'_> {
    fn complete(&mut self, began: Instant) -> Instant {
        let now = Instant::now();
        let took = u64::try_from((now - began).as_nanos()).unwrap_or(u64::MAX);
        self.latency.saturating_record_n(took, self.plan.pipeline as u64);
        self.verified += self.plan.pipeline as u64;
        now
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += self.plan.pipeline as u64;
        number
    }

    /// By calls that wait for this one connection.
    fn alone(&mut self, link: &mut Link, length: Duration) -> io::Result<()> {
        let begun = Instant::now();
        let mut now = begun;
        while now - begun < length {
            let number = self.number();
            requests(number, self.plan.size, &mut link.out);
            link.end.send_all(&link.out)?;
            let mut got = 0;
            while got < self.got.len() {
                match link.end.receive(&mut self.got[got..], false)? {
                    Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    bytes => got += bytes.unwrap_or(0),
                }
            }
            if !are_requests(number, self.plan.size, 0, &self.got) {
                return Err(wrong(0, number, 0));
            }
            now = self.complete(now);
        }
        Ok(())
    }

    /// From a set. Calls under way at the end come to their end.
    fn many(&mut self, links: &mut [Link], set: &Ends, length: Duration) -> io::Result<()> {
        let begun = Instant::now();
        for link in links.iter_mut() {
            self.begin(link, begun)?;
        }
        let (mut open, mut ready) = (links.len(), vec![]);
        let (mut last, mut now) = (begun, begun);
        while open > 0 {
            set.wait(&mut ready)?;
            if ready.is_empty() {
                // (A clock is read where nothing was ready: for answers it is read anyway.)
                now = Instant::now();
                if now - last > Duration::from_secs(10) {
                    return Err(io::Error::other("nothing has come back for 10 s"));
                }
                continue;
            }
            last = now;
            for &i in &ready {
                let link = &mut links[i];
                if !self.advance(i, link)? {
                    continue;
                }
                now = self.complete(link.began);
                if now - begun < length {
                    self.begin(link, now)?;
                } else {
                    open -= 1;
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, link: &mut Link, now: Instant) -> io::Result<()> {
        link.number = self.number();
        (link.sent, link.got, link.began) = (0, 0, now);
        requests(link.number, self.plan.size, &mut link.out);
        link.push()
    }

    /// Takes what has come; true: the answer is complete.
    fn advance(&mut self, i: usize, link: &mut Link) -> io::Result<bool> {
        let left = (link.out.len() - link.got).min(self.got.len());
        let got = match link.end.receive(&mut self.got[..left], true)? {
            None => return Ok(false),
            Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(got) => got,
        };
        if !are_requests(link.number, self.plan.size, link.got, &self.got[..got]) {
            return Err(wrong(i, link.number, link.got));
        }
        link.got += got;
        link.push()?;
        Ok(link.got == link.out.len())
    }
}
