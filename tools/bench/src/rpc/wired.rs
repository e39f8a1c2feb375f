//! The service that brings the two programs together, and whether all their connections are on rings: else what was measured is Linux.

use std::collections::BTreeMap;

use uncopy_measure::Outcome;
use uncopy_tcp_service::{Options, Service, tell};

/// The service.
pub struct Wired {
    /// Its name.
    pub service: String,
}

impl Wired {
    /// One of our own, which ends with us.
    pub fn new() -> Outcome<Self> {
        let user = Options::of_this_user();
        let service = format!("{}-bench-{}", user.name, std::process::id());
        let options = Options { name: service.clone(), ends_idle: None, ..user };
        let bound =
            Service::bind(options).map_err(|e| format!("cannot start the TCP service ({e})"))?;
        std::thread::spawn(move || bound.run());
        Ok(Self { service })
    }

    /// All connections between these two processes go through rings, both ways.
    pub fn check(&self, pids: [u32; 2], connections: usize) -> Outcome {
        let state =
            tell(&self.service).map_err(|e| format!("the TCP service does not answer ({e})"))?;
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
        Err(format!(
            "{by_ring} of {connections} connections went through rings, so this is no measurement of them ({why})"
        ))
    }
}
