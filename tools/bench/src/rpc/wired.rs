//! The service that brings the two programs together, as a process of its own, whose time is
//! uncopy's; and whether all their connections are on rings: else what was measured is Linux.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use uncopy_measure::server_process::ServerProcess;
use uncopy_measure::side::Side;
use uncopy_measure::{Failure, cores, failure};
use uncopy_tcp_service::{Options, Service, tell};

use super::plan::Ready;
use super::server::answer;

/// The hidden subcommand that is the service.
pub const NAME: &str = "__tcp-service";

/// The service's options.
#[derive(clap::Args)]
pub struct ServiceArgs {
    name: String,
}

/// Serves until standard input ends.
pub fn main(args: &ServiceArgs) -> Result<(), Failure> {
    let options = Options { name: args.name.clone(), ends_idle: None, ..Options::of_this_user() };
    let bound = Service::bind(options)
        .map_err(|e| Failure::new("cannot start the TCP service").because(e))?;
    answer(&Ready { connections: 0 }).map_err(|e| failure!("TCP service: {e}"))?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().lock().read(&mut [0]);
        std::process::exit(0);
    });
    bound.run().map_err(|e| failure!("TCP service: {e}"))
}

/// The service.
pub struct Wired {
    /// Its name.
    pub service: String,
    process: ServerProcess,
}

impl Wired {
    /// One of our own, which ends with us.
    pub fn new() -> Result<Self, Failure> {
        let service = format!("{}-bench-{}", Options::of_this_user().name, std::process::id());
        let mut command = Side::Plain.own_command(NAME, Path::new(""))?;
        command.arg(&service);
        let mut process =
            ServerProcess::launch(command, Side::Plain, "TCP service", &cores::all()?)?;
        process.answer::<Ready>()?;
        Ok(Self { service, process })
    }

    /// User and system time of all its threads.
    pub fn cpu_ns(&self) -> Result<u64, Failure> {
        self.process.cpu_ns()
    }

    /// All connections between these two processes go through rings, both ways.
    pub fn check(&self, pids: [u32; 2], connections: usize) -> Result<(), Failure> {
        let state = tell(&self.service)
            .map_err(|e| Failure::new("the TCP service does not answer").because(e))?;
        let is_one =
            |program: u64| state.programs.iter().any(|p| p.id == program && pids.contains(&p.pid));
        let mut by_linux: BTreeMap<&str, usize> = BTreeMap::new();
        let mut by_ring = 0;
        for flow in state.flows.iter().filter(|flow| flow.programs.into_iter().all(is_one)) {
            match flow.ways.iter().find_map(|way| way.reason) {
                None => by_ring += 1,
                Some(reason) => *by_linux.entry(reason.text()).or_default() += 1,
            }
        }
        for stayed in state.stayed.iter().filter(|stayed| is_one(stayed.program)) {
            *by_linux.entry(stayed.reason.text()).or_default() += 1;
        }
        if by_ring >= connections {
            return Ok(());
        }
        let why: Vec<String> = by_linux.iter().map(|(text, n)| format!("{n}: {text}")).collect();
        let why = if why.is_empty() {
            "the service was shown none of the others; does this libuncopy.so know UNCOPY_TCP?"
                .into()
        } else {
            why.join("; ")
        };
        let what = failure!(
            "{by_ring} of {connections} connections went through rings, so this is no measurement \
             of them"
        );
        Err(what.because(why))
    }
}
