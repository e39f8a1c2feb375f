//! Fresh echo servers side by side, plain and under uncopy: verified, warmed up, timed in short
//! turns, verified.
//!
//! Other work on a shared machine comes in bursts of a second and more; turns of a fraction of that
//! meet it alike.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::args::EchoArgs;
use super::load::{Load, Timed};
use super::plan::{Hello, Places, Plan, Report};
use super::rows::{EchoFigures, Sample};
use super::server;
use crate::facts::Facts;
use crate::failure;
use crate::failure::Failure;
use crate::medians::{quotient, round};
use crate::server_process::ServerProcess;
use crate::side::Side;

/// About how long a turn is.
const TURN: Duration = Duration::from_millis(150);

/// One of the servers that take turns, what drives it, and what came of its turns.
pub struct Contender {
    server: ServerProcess,
    load: Load,
    side: Side,
    timed: Timed,
    cpu_ns: u64,
    rss_kb: u64,
    counters: BTreeMap<String, u64>,
    preloaded: bool,
    places: Places,
    /// Load that was not timed.
    warmed: Duration,
}

impl Contender {
    /// A fresh server: verified and warmed up.
    pub fn start(
        args: &EchoArgs,
        plan: &Plan,
        side: Side,
        library: &Path,
    ) -> Result<Self, Failure> {
        let (mut server, port) = start(plan, side, library, &args.environment)?;
        let load = warm(args, plan, port).map_err(|e| server.explain(e))?;
        Ok(Self {
            server,
            load,
            side,
            timed: Timed::nothing()?,
            cpu_ns: 0,
            rss_kb: 0,
            counters: BTreeMap::new(),
            preloaded: false,
            places: Places::default(),
            warmed: args.warmup,
        })
    }

    /// Its part of the timed window, which all of `contenders` have in turns.
    pub fn race(contenders: &mut [Self], window: Duration) -> Result<(), Failure> {
        let turns = (window.as_secs_f64() / TURN.as_secs_f64()).round().max(1.0) as u32;
        for turn in 0..turns {
            // (Each goes first in turn.)
            for i in 0..contenders.len() {
                let next = (i + turn as usize) % contenders.len();
                contenders[next].turn(window / turns)?;
            }
        }
        Ok(())
    }

    fn turn(&mut self, length: Duration) -> Result<(), Failure> {
        let before = report(&mut self.server)?;
        let timed = self.load.turn(length).map_err(|e| self.server.explain(e))?;
        let after = report(&mut self.server)?;
        self.timed.add(&timed);
        self.used(before, after);
        Ok(())
    }

    fn used(&mut self, before: Report, after: Report) {
        self.cpu_ns += after.cpu_ns.saturating_sub(before.cpu_ns);
        self.rss_kb = after.rss_kb;
        self.preloaded = after.counters.is_some();
        self.places = after.places;
        let earlier = before.counters.unwrap_or_default();
        for (name, n) in after.counters.unwrap_or_default() {
            let since = n.saturating_sub(earlier.get(&name).copied().unwrap_or(0));
            *self.counters.entry(name).or_default() += since;
        }
    }

    /// Verifies again, ends the server, and tells what its turns came to.
    pub fn end(mut self, args: &EchoArgs, library: &Path) -> Result<Sample, Failure> {
        let facts = self.facts(args);
        self.load.verify(args.verify).map_err(|e| self.server.explain(e))?;
        self.server.stop()?;
        if self.side.preloads() && !self.preloaded {
            return Err(failure!(
                "{} was not loaded into the echo server, or has no counters",
                library.display()
            )
            .advise("is it the library of this uncopy?"));
        }
        let requests = self.timed.requests as f64;
        let each = |ns: u64| round(quotient(ns as f64 / 1000.0, requests), 2);
        let percentile = |p| round(self.timed.latency.value_at_percentile(p) as f64 / 1000.0, 1);
        Ok(Sample {
            numbers: EchoFigures {
                req_per_s: round(requests / self.timed.elapsed.as_secs_f64(), 1),
                req_per_s_spread: [0.0; 2],
                cpu_us_per_req: each(self.cpu_ns),
                cpu_us_per_req_spread: [0.0; 2],
                p50_us: percentile(50.0),
                p99_us: percentile(99.0),
                rss_kb: self.rss_kb,
                load_cpu_us_per_req: each(self.timed.cpu_ns),
                places: self.places,
            },
            requests: self.timed.requests,
            counters: self.counters,
            verified: self.load.verified(),
            facts,
        })
    }

    /// The facts of its server, and the work that it was given.
    fn facts(&self, args: &EchoArgs) -> Facts {
        let mut facts = self.server.facts();
        let seconds = |time: Duration| format!("{:.2}", time.as_secs_f64());
        facts.insert("load, not timed, s".to_owned(), seconds(self.warmed));
        facts.insert("messages compared".to_owned(), (2 * args.verify).to_string());
        facts
    }
}

/// Starts a server, and waits until it tells the port of 127.0.0.1 on which it listens.
fn start(
    plan: &Plan,
    side: Side,
    library: &Path,
    environment: &[(&str, &str)],
) -> Result<(ServerProcess, u16), Failure> {
    let plan_of_it = serde_json::to_string(plan).expect("a plan can be written");
    let mut command = side.own_command(server::NAME, library)?;
    command.arg(plan_of_it);
    if side.preloads() {
        command.envs(environment.iter().copied());
    }
    let mut server = ServerProcess::launch(command, side, "echo server", &plan.cores)?;
    let port = server.answer::<Hello>()?.port;
    Ok((server, port))
}

/// The server's use of the machine and its work up to now.
fn report(server: &mut ServerProcess) -> Result<Report, Failure> {
    server.tell("snapshot")?;
    server.answer()
}

/// The same load on all sides.
fn warm(args: &EchoArgs, plan: &Plan, port: u16) -> Result<Load, Failure> {
    let mut load = Load::connect(port, plan.connections, plan.size, fastrand::u64(..))?;
    load.verify(args.verify)?;
    load.turn(args.warmup)?;
    Ok(load)
}
