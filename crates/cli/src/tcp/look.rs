//! The service's own report, with what `/proc` says of the processes.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use procfs::net::TcpState;
use uncopy_measure::{Failure, failure};
use uncopy_tcp_service::state::{FlowReport, Program, State};
use uncopy_tcp_service::{Rendezvous, tell};

use crate::stat::process;

/// A look at a service.
#[derive(Clone, Debug)]
pub struct Look {
    /// The service's name.
    pub name: String,
    /// The report.
    pub state: State,
    /// When.
    pub now: SystemTime,
    commands: HashMap<u32, String>,
}

impl Look {
    /// Asks this service.
    pub fn at(which: &Rendezvous) -> Result<Self, Failure> {
        let name = which.name();
        let state = tell(&name).map_err(|error| explain(&name, error.raw_os_error()))?;
        let mut look = Self { name, state, now: SystemTime::now(), commands: HashMap::new() };
        for program in &look.state.programs {
            if let Some(command) = process::command(program.pid) {
                look.commands.insert(program.pid, command);
            }
        }
        look.forget_closed(&sockets());
        Ok(look)
    }

    /// For tests and screens: as if it had been asked.
    #[cfg(test)]
    pub fn of(state: State, now: SystemTime, commands: &[(u32, &str)]) -> Self {
        let commands = commands.iter().map(|(pid, name)| (*pid, (*name).to_owned())).collect();
        Self { name: "uncopy-tcp-1000".into(), state, now, commands }
    }

    /// The service is not told when a connection that stayed Linux's is closed; the kernel knows.
    /// (Nothing is left out where it does not say.)
    fn forget_closed(&mut self, open: &Option<BTreeSet<[SocketAddr; 2]>>) {
        if let Some(open) = open {
            self.state.stayed.retain(|stayed| open.contains(&stayed.addresses));
        }
    }

    /// Leaves out what is not this process'.
    pub fn only(&mut self, pid: u32) {
        let its: BTreeSet<u64> =
            self.state.programs.iter().filter(|p| p.pid == pid).map(|p| p.id).collect();
        self.state.flows.retain(|flow| flow.programs.iter().any(|id| its.contains(id)));
        self.state.stayed.retain(|stayed| its.contains(&stayed.program));
        // (Of a connection over the wire the program's end is among the others, with its
        // stand-in's.)
        let ends: BTreeSet<[SocketAddr; 2]> = self
            .state
            .flows
            .iter()
            .flat_map(|flow| [flow.addresses, [flow.addresses[1], flow.addresses[0]]])
            .collect();
        self.state.wired.retain(|of| ends.contains(&of.addresses));
    }

    /// A program by its number.
    pub fn program(&self, id: u64) -> Option<&Program> {
        self.state.programs.iter().find(|program| program.id == id)
    }

    /// Its process.
    pub fn pid(&self, id: u64) -> u32 {
        self.program(id).map_or(0, |program| program.pid)
    }

    /// Its command's name.
    pub fn command(&self, id: u64) -> &str {
        self.commands.get(&self.pid(id)).map_or("?", String::as_str)
    }

    /// How long something has been so.
    pub fn age(&self, since: SystemTime) -> Duration {
        self.now.duration_since(since).unwrap_or_default()
    }
}

/// The key that names a flow as long as it lives.
pub fn key(flow: &FlowReport) -> ((u64, u64), SystemTime) {
    (flow.place, flow.since)
}

/// Why a service could not be asked.
pub fn explain(name: &str, errno: i32) -> Failure {
    match Errno::from_raw(errno) {
        Errno::ECONNREFUSED => failure!("no TCP service runs here under the name @{name}")
            .advise("'uncopy run --tcp' starts one, and so does 'uncopy tcp serve'"),
        Errno::ECONNRESET | Errno::EACCES => failure!(
            "the TCP service @{name} is another user's, or was started in a network namespace of \
             another"
        )
        .advise("ask as its own user, in that namespace"),
        Errno::EPROTO | Errno::EBADMSG => {
            failure!("the TCP service @{name} is of another build of uncopy than this command")
                .advise("use that one's")
        }
        Errno::ETIMEDOUT => {
            failure!("the TCP service @{name} does not answer").advise("is it stopped?")
        }
        other => failure!("cannot ask the TCP service @{name}").because(other.desc()),
    }
}

/// All TCP connections of this network namespace that some program has: their address and their
/// peer's.
fn sockets() -> Option<BTreeSet<[SocketAddr; 2]>> {
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let v4 = procfs::net::tcp().ok()?;
    let v6 = procfs::net::tcp6().unwrap_or_default();
    let all = v4.into_iter().chain(v6).filter(|socket| socket.state != TcpState::TimeWait);
    Some(all.map(|s| [plain(s.local_address), plain(s.remote_address)]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_has_is_explained() {
        let error = Look::at(&"uncopy-tcp-test-nobody".into()).unwrap_err().to_string();
        assert!(
            error.contains("no TCP service runs here under the name @uncopy-tcp-test-nobody"),
            "{error}"
        );
    }

    #[test]
    fn the_kernels_list_has_both_ends_of_a_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let a = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let all = sockets().unwrap();
        let ends = [a.local_addr().unwrap(), a.peer_addr().unwrap()];
        assert!(all.contains(&ends) && all.contains(&[ends[1], ends[0]]));
    }
}
