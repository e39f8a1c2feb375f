//! A server and a client as processes of their own, on one side, seen from outside: started, given turns, and their processor time counted.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use super::args::Wait;
use super::over::Over;
use super::plan::{Hello, Order, Plan, Ready, Told, Turned};
use super::{client, server};
use crate::Outcome;
use crate::bench::server_process::ServerProcess;
use crate::bench::side::Side;
use crate::bench::stats::{quotient, round};

/// What came of a pair's turns.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// RPCs a second.
    pub rpc_per_s: f64,
    /// Processor time of both for one.
    pub cpu_us_per_rpc: f64,
    /// Latencies, and how many answers were compared.
    pub told: Told,
}

/// The two processes.
pub struct Pair {
    server: ServerProcess,
    client: ServerProcess,
    /// The client spins between turns too: it is stopped as well.
    both: bool,
    rpcs: u64,
    seconds: f64,
    cpu_ns: u64,
}

impl Pair {
    /// Starts both. All connections are open then. `environment` is the uncopy side's own.
    pub fn start(
        plan: &Plan,
        side: Side,
        library: &Path,
        environment: &[(&str, &str)],
        cores: &[usize],
    ) -> Outcome<Self> {
        Self::start_over(plan, side, library, environment, cores, None)
    }

    /// The same, with each end where it is said to be: the server's first.
    pub fn start_over(
        plan: &Plan,
        side: Side,
        library: &Path,
        environment: &[(&str, &str)],
        cores: &[usize],
        ends: Option<&[Over; 2]>,
    ) -> Outcome<Self> {
        let start = |name, what, core: usize, words: &[String]| {
            let mut command = side.own_command(name, library)?;
            command.args(words);
            if let Some(ends) = ends {
                let over = serde_json::to_string(&ends[core]).expect("it can be written");
                command.args(["--over", &over]);
            }
            if side.preloads() {
                command.envs(environment.iter().copied());
            }
            // Who spins has a core of its own; where both sleep, the kernel places them.
            let own = [cores[core % cores.len()]];
            let cores = if plan.wait == Wait::Spin { &own[..] } else { cores };
            ServerProcess::launch(command, side, what, cores)
        };
        let plan_text = serde_json::to_string(plan).expect("a plan can be written");
        let mut server = start(server::NAME, "RPC server", 0, std::slice::from_ref(&plan_text))?;
        let hello: Hello = server.answer()?;
        let hello = serde_json::to_string(&hello).expect("addresses can be written");
        let mut client = start(client::NAME, "RPC client", 1, &[plan_text, hello])?;
        client.answer::<Ready>()?;
        server.answer::<Ready>()?;
        let both = ends.is_some_and(|ends| ends.iter().any(|end| end.ours.is_some()));
        let pair = Self { server, client, both, rpcs: 0, seconds: 0.0, cpu_ns: 0 };
        pair.pause()?;
        Ok(pair)
    }

    /// Load for so long. What came of earlier turns is forgotten, if so.
    pub fn turn(&mut self, length: Duration, anew: bool) -> Outcome {
        self.signal(Signal::SIGCONT)?;
        let before = self.cpu_ns()?;
        self.order(&Order::Turn { seconds: length.as_secs_f64(), anew })?;
        let turned: Turned = self.client.answer().map_err(|e| self.server.explain(e))?;
        let used = self.cpu_ns()?.saturating_sub(before);
        self.pause()?;
        if anew {
            (self.rpcs, self.seconds, self.cpu_ns) = (0, 0.0, 0);
        }
        self.rpcs += turned.rpcs;
        self.seconds += turned.seconds;
        self.cpu_ns += used;
        Ok(())
    }

    /// The processes.
    pub fn pids(&self) -> [u32; 2] {
        [self.server.pid(), self.client.pid()]
    }

    /// Ends both, and tells what the turns came to.
    pub fn end(mut self) -> Outcome<Sample> {
        self.signal(Signal::SIGCONT)?;
        self.order(&Order::Tell)?;
        let told = self.client.answer()?;
        if self.rpcs == 0 {
            return Err(
                "no request was answered within the timed window; make it longer with --seconds"
                    .into(),
            );
        }
        self.client.stop()?;
        self.server.stop()?;
        let each = |ns: u64| quotient(ns as f64 / 1000.0, self.rpcs as f64);
        Ok(Sample {
            rpc_per_s: round(quotient(self.rpcs as f64, self.seconds), 1),
            cpu_us_per_rpc: round(each(self.cpu_ns), 4),
            told,
        })
    }

    /// A server that spins would take the others' core while it is not its turn.
    fn pause(&self) -> Outcome {
        self.signal(Signal::SIGSTOP)
    }

    fn signal(&self, signal: Signal) -> Outcome {
        let pids = [self.server.pid(), self.client.pid()];
        pids[..1 + usize::from(self.both)].iter().try_for_each(|&pid| {
            kill(Pid::from_raw(pid.cast_signed()), signal)
                .map_err(|e| format!("cannot stop or continue the RPC server ({})", e.desc()))
        })
    }

    fn order(&mut self, order: &Order) -> Outcome {
        self.client.tell(&serde_json::to_string(order).expect("an order can be written"))
    }

    /// User and system time of both, with all their threads.
    fn cpu_ns(&self) -> Outcome<u64> {
        let of = |pid: u32| -> nix::Result<u64> {
            let time = clock_gettime(clock_getcpuclockid(Pid::from_raw(pid.cast_signed()))?)?;
            let seconds = time.tv_sec().cast_unsigned();
            Ok(seconds * 1_000_000_000 + time.tv_nsec().cast_unsigned())
        };
        let all = self.pids().map(of).into_iter().sum::<nix::Result<u64>>();
        all.map_err(|e| format!("cannot tell the CPU time ({})", e.desc()))
    }
}
