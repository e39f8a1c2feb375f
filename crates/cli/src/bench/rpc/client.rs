//! The client: closed loops. Each connection has one message under way, of one request or of several; every answer is compared.

use std::io::{self, BufRead};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command};
use hdrhistogram::Histogram;

use super::args::Way;
use super::ends::{End, Ends, context, make_room};
use super::one_way;
use super::over::{self, Over};
use super::plan::{EACH_ADDRESS, Hello, Order, Plan, Ready, Told, Turned};
use super::server::answer;
use crate::Outcome;
use crate::bench::stats::round;

/// The hidden subcommand that is the client.
pub const NAME: &str = "__rpc-client";

/// The hidden subcommand.
pub fn command() -> Command {
    Command::new(NAME)
        .hide(true)
        .arg(Arg::new("plan").required(true))
        .arg(Arg::new("server").required(true))
        .arg(Arg::new("over").long("over"))
}

/// Does what it is told until standard input ends.
pub fn main(matches: &ArgMatches) -> Outcome {
    let word = |name: &str| -> &String { matches.get_one(name).expect("clap demands it") };
    let plan: Plan = serde_json::from_str(word("plan")).map_err(|e| format!("bad plan: {e}"))?;
    let server: Hello =
        serde_json::from_str(word("server")).map_err(|e| format!("bad address: {e}"))?;
    if let Some(over) = matches.get_one::<String>("over") {
        let over: Over = serde_json::from_str(over).map_err(|e| format!("bad wire: {e}"))?;
        over.enter()?;
        if over.ours.is_some() {
            return over::client::run(&plan, &server, &over);
        }
    }
    run(&plan, &server).map_err(|e| format!("RPC client: {e}"))
}

fn run(plan: &Plan, server: &Hello) -> io::Result<()> {
    make_room(plan.connections)?;
    let context = context(plan)?;
    let mut links = (0..plan.connections)
        .map(|i| {
            let socket = TcpStream::connect(server.addresses[i / EACH_ADDRESS])?;
            let end = End::new(socket, plan, context.as_ref())?;
            Ok(Link { end, number: 0, sent: 0, got: 0, began: Instant::now() })
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
        out: vec![0; plan.message()],
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
            Order::Tell => answer(&told(&load.latency, load.verified))?,
        }
    }
    Ok(())
}

/// What came of all turns.
pub fn told(latency: &Histogram<u64>, verified: u64) -> Told {
    let percentile = |p| round(latency.value_at_percentile(p) as f64 / 1000.0, 2);
    Told { verified, p50_us: percentile(50.0), p99_us: percentile(99.0) }
}

struct Link {
    end: End,
    /// Of its message's first request.
    number: u64,
    sent: usize,
    got: usize,
    began: Instant,
}

struct Load<'a> {
    plan: &'a Plan,
    next: u64,
    out: Vec<u8>,
    got: Vec<u8>,
    latency: Histogram<u64>,
    verified: u64,
}

/// Requests of this number and those after it: eight bytes that are unlike every other request's, over and over. Cheap beside what is measured.
pub fn requests(first: u64, size: usize, into: &mut [u8]) {
    for (i, request) in into.chunks_mut(size).enumerate() {
        let word = (first + i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        let mut parts = request.chunks_exact_mut(8);
        for part in &mut parts {
            part.copy_from_slice(&word);
        }
        let rest = parts.into_remainder();
        rest.copy_from_slice(&word[..rest.len()]);
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
            requests(number, self.plan.size, &mut self.out);
            link.end.send_all(&self.out)?;
            let mut got = 0;
            while got < self.got.len() {
                match link.end.receive(&mut self.got[got..], false)? {
                    Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    bytes => got += bytes.unwrap_or(0),
                }
            }
            if self.got != self.out {
                return Err(wrong(0, number, 0));
            }
            now = self.complete(now);
        }
        Ok(())
    }

    /// From a set. What is under way at the end comes to its end.
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
        requests(link.number, self.plan.size, &mut self.out);
        self.push(link)
    }

    /// Sends what is taken; the message is in `out`.
    fn push(&mut self, link: &mut Link) -> io::Result<()> {
        while link.sent < self.out.len() {
            match link.end.send(&self.out[link.sent..], true)? {
                0 => break,
                sent => link.sent += sent,
            }
        }
        Ok(())
    }

    /// Takes what has come; true: the answer is complete.
    fn advance(&mut self, i: usize, link: &mut Link) -> io::Result<bool> {
        let left = (self.out.len() - link.got).min(self.got.len());
        let got = match link.end.receive(&mut self.got[..left], true)? {
            None => return Ok(false),
            Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(got) => got,
        };
        requests(link.number, self.plan.size, &mut self.out);
        if self.got[..got] != self.out[link.got..link.got + got] {
            return Err(wrong(i, link.number, link.got));
        }
        link.got += got;
        if link.sent < self.out.len() {
            self.push(link)?;
        }
        Ok(link.got == self.out.len())
    }
}

/// What came back is not what was sent.
pub fn wrong(connection: usize, number: u64, offset: usize) -> io::Error {
    io::Error::other(format!(
        "WRONG DATA on connection {connection}, request {number}, at or after byte {offset}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_requests_are_alike_and_all_of_their_bytes_are_set() {
        let mut bytes = [0; 3 * 20];
        requests(7, 20, &mut bytes);
        let parts: Vec<&[u8]> = bytes.chunks(20).collect();
        assert!(parts[0] != parts[1] && parts[1] != parts[2]);
        assert_eq!(parts[0][..8], parts[0][8..16]);
        assert_eq!(parts[0][16..], parts[0][..4]);
        let mut second = [0; 20];
        requests(8, 20, &mut second);
        assert_eq!(parts[1], second);
    }
}
