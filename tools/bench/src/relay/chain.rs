//! A chain of processes on one side, seen from outside: started, given turns, and their processor
//! time counted.

use std::path::Path;
use std::time::Duration;

use uncopy_measure::Failure;
use uncopy_measure::medians::quotient;
use uncopy_measure::server_process::ServerProcess;
use uncopy_measure::side::Side;

use super::plan::{Plan, Touch, Way};
use super::program::NAME;
use crate::rpc::plan::{Hello, Order, Ready, Turned};

/// The case that is measured.
#[derive(Clone, Copy, Debug)]
pub struct Of {
    /// Relays.
    pub hops: usize,
    /// Bytes of a message.
    pub size: usize,
    /// The bytes that the sink looks at.
    pub touch: Touch,
    /// Copies that each relay makes of a message.
    pub copies: usize,
}

/// The result of one chain's turns.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The side.
    pub way: Way,
    /// Messages.
    pub messages: u64,
    /// A second.
    pub per_s: f64,
    /// Processor time of all programs for one.
    pub cpu_us: f64,
}

/// The processes; the source is the last.
pub struct Chain {
    /// The side.
    pub way: Way,
    programs: Vec<ServerProcess>,
    messages: u64,
    seconds: f64,
    cpu_ns: u64,
}

impl Chain {
    /// Starts them, the sink first.
    pub fn start(
        of: &Of,
        way: Way,
        library: &Path,
        service: &str,
        cores: &[usize],
    ) -> Result<Self, Failure> {
        let side = if way.is_uncopys() { Side::Uncopy } else { Side::Plain };
        let mut to = None;
        let mut programs = vec![];
        for program in 0..of.hops + 2 {
            let listens = program <= of.hops;
            let plan = Plan { size: of.size, touch: of.touch, copies: of.copies, listens, to };
            let mut command = side.own_command(NAME, library)?;
            command.arg(serde_json::to_string(&plan).expect("a plan can be written"));
            if way.is_uncopys() {
                command.env("UNCOPY_TCP", "yes").env(uncopy_options::TCP_SERVICE, service);
            }
            if way == Way::Rings {
                command.env("UNCOPY_ELIDE", "no");
            }
            let references = if way == Way::Copied { "no" } else { "yes" };
            command.env("UNCOPY_TCP_REFERENCES", references);
            let mut started = ServerProcess::launch(command, side, "chain", cores)?;
            if listens {
                to = started.answer::<Hello>()?.addresses.first().copied();
            } else {
                started.answer::<Ready>()?;
            }
            programs.push(started);
        }
        Ok(Self { way, programs, messages: 0, seconds: 0.0, cpu_ns: 0 })
    }

    /// Load for so long.
    pub fn turn(&mut self, length: Duration) -> Result<(), Failure> {
        let before = self.cpu_ns()?;
        let order = Order::Turn { seconds: length.as_secs_f64(), anew: false };
        let source = self.programs.last_mut().expect("a chain has a source");
        source.tell(&serde_json::to_string(&order).expect("an order can be written"))?;
        let turned: Turned = source.answer().map_err(|e| self.programs[0].explain(e))?;
        self.cpu_ns += self.cpu_ns()?.saturating_sub(before);
        self.messages += turned.rpcs;
        self.seconds += turned.seconds;
        Ok(())
    }

    /// Forgets the results so far.
    pub fn forget(&mut self) {
        (self.messages, self.seconds, self.cpu_ns) = (0, 0.0, 0);
    }

    /// The processes, in their order.
    pub fn pids(&self) -> Vec<u32> {
        self.programs.iter().map(ServerProcess::pid).collect()
    }

    /// Ends them.
    pub fn end(mut self) -> Result<Sample, Failure> {
        while let Some(program) = self.programs.pop() {
            program.stop()?;
        }
        Ok(Sample {
            way: self.way,
            messages: self.messages,
            per_s: quotient(self.messages as f64, self.seconds),
            cpu_us: quotient(self.cpu_ns as f64 / 1000.0, self.messages as f64),
        })
    }

    fn cpu_ns(&self) -> Result<u64, Failure> {
        self.programs.iter().map(ServerProcess::cpu_ns).sum()
    }
}
