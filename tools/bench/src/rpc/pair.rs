//! A server and a client as processes of their own, on one side, seen from outside: started, given
//! turns, and their processor time counted.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use uncopy_measure::Failure;
use uncopy_measure::facts::Facts;
use uncopy_measure::medians::{quotient, round};
use uncopy_measure::server_process::ServerProcess;
use uncopy_measure::side::Side;

use super::choices::Wait;
use super::over::Over;
use super::plan::{Hello, Order, Ready, RpcSummary, Turned};

/// The result of a pair's turns.
#[derive(Clone, Debug)]
pub struct Sample<T = RpcSummary> {
    /// RPCs a second.
    pub rpc_per_s: f64,
    /// Processor time of both for one, and of the service.
    pub cpu_us_per_rpc: f64,
    /// Of it, the service's.
    pub service_us_per_rpc: f64,
    /// The facts of both programs, and the work that they were given.
    pub facts: Facts,
    /// Memory of both programs; what they share counts once.
    pub memory: u64,
    /// Latencies, and how many answers were compared.
    pub told: T,
}

/// Which two they are, as hidden subcommands of ours, and what both are told.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The server's.
    pub server: &'static str,
    /// The client's.
    pub client: &'static str,
    /// Their plan.
    pub plan: String,
    /// How both wait.
    pub wait: Wait,
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
    /// Load before the timed turns, and in them.
    warmed: Duration,
    timed: Duration,
}

impl Pair {
    /// Starts both. All connections are open then. `environment` is the uncopy side's own.
    pub fn start(
        programs: &Programs,
        side: Side,
        library: &Path,
        environment: &[(&str, &str)],
        cores: &[usize],
    ) -> Result<Self, Failure> {
        Self::start_over(programs, side, library, environment, cores, None)
    }

    /// The same, with each end where it is said to be: the server's first.
    pub fn start_over(
        programs: &Programs,
        side: Side,
        library: &Path,
        environment: &[(&str, &str)],
        cores: &[usize],
        ends: Option<&[Over; 2]>,
    ) -> Result<Self, Failure> {
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
            // A program that spins has a core of its own; where both sleep, the kernel places them.
            let own = [cores[core % cores.len()]];
            let cores = if programs.wait == Wait::Spin { &own[..] } else { cores };
            ServerProcess::launch(command, side, what, cores)
        };
        let plan = &programs.plan;
        let mut server = start(programs.server, "RPC server", 0, std::slice::from_ref(plan))?;
        let hello: Hello = server.answer()?;
        let hello = serde_json::to_string(&hello).expect("addresses can be written");
        let mut client = start(programs.client, "RPC client", 1, &[plan.clone(), hello])?;
        client.answer::<Ready>()?;
        server.answer::<Ready>()?;
        let both = ends.is_some_and(|ends| ends.iter().any(|end| end.ours.is_some()));
        let (warmed, timed) = (Duration::ZERO, Duration::ZERO);
        let pair = Self { server, client, both, rpcs: 0, seconds: 0.0, cpu_ns: 0, warmed, timed };
        pair.pause()?;
        Ok(pair)
    }

    /// Load that is not timed.
    pub fn warm(&mut self, length: Duration) -> Result<(), Failure> {
        self.warmed += length;
        self.turn(length, true)?;
        self.timed = Duration::ZERO;
        Ok(())
    }

    /// How much of it there was.
    pub fn warmed(&self) -> Duration {
        self.warmed
    }

    /// Load for so long. Results of earlier turns are forgotten, if so.
    pub fn turn(&mut self, length: Duration, anew: bool) -> Result<(), Failure> {
        self.signal(Signal::SIGCONT)?;
        let before = self.cpu_ns()?;
        self.order(&Order::Turn { seconds: length.as_secs_f64(), anew })?;
        let turned: Turned = self.client.answer().map_err(|e| self.server.explain(e))?;
        let used = self.cpu_ns()?.saturating_sub(before);
        self.pause()?;
        if anew {
            (self.rpcs, self.seconds, self.cpu_ns) = (0, 0.0, 0);
            self.timed = Duration::ZERO;
        }
        self.timed += length;
        self.rpcs += turned.rpcs;
        self.seconds += turned.seconds;
        self.cpu_ns += used;
        Ok(())
    }

    /// The processes.
    pub fn pids(&self) -> [u32; 2] {
        [self.server.pid(), self.client.pid()]
    }

    /// Ends both, and tells what the turns came to. `service_ns`: what the service took for them.
    pub fn end<T: DeserializeOwned>(mut self, service_ns: u64) -> Result<Sample<T>, Failure> {
        self.signal(Signal::SIGCONT)?;
        let facts = self.facts();
        let memory = self.memory()?;
        self.order(&Order::Tell)?;
        let told = self.client.answer()?;
        if self.rpcs == 0 {
            return Err(Failure::new("no request was answered within the timed window")
                .advise("make it longer with --seconds"));
        }
        self.client.stop()?;
        self.server.stop()?;
        let each = |ns: u64| quotient(ns as f64 / 1000.0, self.rpcs as f64);
        Ok(Sample {
            rpc_per_s: round(quotient(self.rpcs as f64, self.seconds), 1),
            cpu_us_per_rpc: round(each(self.cpu_ns + service_ns), 4),
            service_us_per_rpc: round(each(service_ns), 4),
            facts,
            memory,
            told,
        })
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        for (name, program) in [("server", &self.server), ("client", &self.client)] {
            let own = program.facts().into_iter();
            facts.extend(own.map(|(fact, value)| (format!("{name}: {fact}"), value)));
        }
        for (name, time) in [("not timed", self.warmed), ("timed", self.timed)] {
            facts.insert(format!("load, {name}, s"), format!("{:.2}", time.as_secs_f64()));
        }
        facts
    }

    /// A server that spins would take the others' core while it is not its turn.
    fn pause(&self) -> Result<(), Failure> {
        self.signal(Signal::SIGSTOP)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pids = [self.server.pid(), self.client.pid()];
        pids[..1 + usize::from(self.both)].iter().try_for_each(|&pid| {
            kill(Pid::from_raw(pid.cast_signed()), signal).map_err(|e| {
                Failure::new("cannot stop or continue the RPC server").because(e.desc())
            })
        })
    }

    fn order(&mut self, order: &Order) -> Result<(), Failure> {
        self.client.tell(&serde_json::to_string(order).expect("an order can be written"))
    }

    /// The memory of both: of a page that several processes have each its part (PSS).
    fn memory(&self) -> Result<u64, Failure> {
        let of = |pid: u32| -> Option<u64> {
            let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
            Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
        };
        let all = self.pids().map(of).into_iter().sum::<Option<u64>>();
        all.ok_or_else(|| Failure::new("cannot tell how much memory the programs use"))
    }

    /// User and system time of both, with all their threads.
    fn cpu_ns(&self) -> Result<u64, Failure> {
        Ok(self.server.cpu_ns()? + self.client.cpu_ns()?)
    }
}
