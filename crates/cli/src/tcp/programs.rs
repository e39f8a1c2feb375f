//! The programs' own reports of their connections, and which of these no service knows: they are
//! there whether a service is or not.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::{FDTarget, Process};
use serde_json::{Value, json};
use uncopy_counters::{Snapshot, connections};
use uncopy_measure::printable::printable;
use uncopy_tcp_service::state::State;

use crate::stat::{files, json::by_linux};

/// Why a connection that no service knows is Linux's, where that can be told from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its other end is not in this network namespace.
    Remote,
    /// Its program counts those that stay because no service answers.
    NoService,
    /// Only its program could tell.
    NotShown,
}

impl Why {
    /// Its short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Remote => "remote",
            Self::NoService => "no-service",
            Self::NotShown => "not-shown",
        }
    }

    /// The text on the screen.
    fn text(self) -> String {
        match self {
            Self::Remote | Self::NoService => super::text::why(self.name()),
            Self::NotShown => format!(
                "{} (used in fewer than four calls so far, or its program keeps it: \
                 that one's counts are below)",
                self.name()
            ),
        }
    }
}

/// An open connection of a program's that no service knows.
#[derive(Clone, Debug)]
pub struct Unknown {
    /// Its process.
    pub pid: u32,
    /// Its own address, and its peer's.
    pub addresses: [SocketAddr; 2],
    /// Why it is Linux's.
    pub why: Why,
}

/// A program under `--tcp` that had connections.
#[derive(Clone, Debug)]
pub struct CountedProgram {
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub command: String,
    /// The program's counters.
    pub counters: Snapshot,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The programs' reports.
    pub told: Vec<CountedProgram>,
    /// Their connections that no service knows.
    pub unknown: Vec<Unknown>,
}

impl Programs {
    /// Those that may be seen; `state`: of the service, where one answers.
    pub fn look(state: Option<&State>) -> Self {
        let programs = files::all().into_iter().map(|program| CountedProgram {
            pid: program.pid,
            command: program.command,
            counters: program.counters,
        });
        let told: Vec<CountedProgram> =
            programs.filter(|told| connections::line(&told.counters).is_some()).collect();
        let all = state.map(known).unwrap_or_default();
        let serves = |pid| state.is_some_and(|of| of.programs.iter().any(|p| p.pid == pid));
        let of = |told: &CountedProgram| unknown(told, serves(told.pid).then_some(&all));
        let unknown = told.iter().flat_map(of).collect();
        Self { told, unknown }
    }

    /// Nobody says anything.
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Leaves out what is not this process'.
    pub fn only(&mut self, pid: u32) {
        self.told.retain(|told| told.pid == pid);
        self.unknown.retain(|unknown| unknown.pid == pid);
    }

    /// The connections, then the programs, for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Unknown { pid, addresses: [own, peer], why } in &self.unknown {
            let told = self.told.iter().find(|told| told.pid == *pid);
            let command = told.map_or("?".to_owned(), |told| printable(&told.command));
            let why = why.text();
            let _ = writeln!(text, "{own} {command}[{pid}] <-> {peer}\n    Linux, {why}");
        }
        for told in &self.told {
            if let Some(line) = connections::line(&told.counters) {
                let _ = writeln!(text, "{}[{}] says: {line}", printable(&told.command), told.pid);
            }
        }
        text
    }

    /// The same for programs.
    pub fn json(&self) -> (Vec<Value>, Vec<Value>) {
        let told = self.told.iter().map(|told| {
            json!({
                "pid": told.pid,
                "command": told.command,
                "by_ring": told.counters.tcp_connections,
                "by_linux": by_linux(&told.counters),
            })
        });
        let unknown = self.unknown.iter().map(|unknown| {
            json!({
                "pid": unknown.pid,
                "address": unknown.addresses[0].to_string(),
                "peer": unknown.addresses[1].to_string(),
                "reason": unknown.why.name(),
            })
        });
        (told.collect(), unknown.collect())
    }
}

/// The ends that a service knows.
fn known(state: &State) -> BTreeSet<[SocketAddr; 2]> {
    let both = |[a, b]: [SocketAddr; 2]| [[a, b], [b, a]];
    let flows = state.flows.iter().flat_map(|flow| both(flow.addresses));
    let stayed = state.stayed.iter().map(|stayed| stayed.addresses);
    flows.chain(stayed).chain(state.wired.iter().map(|of| of.addresses)).collect()
}

fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The open connections of a program that its service does not know, if that was asked. (None where
/// its descriptors may not be seen.)
fn unknown(told: &CountedProgram, known: Option<&BTreeSet<[SocketAddr; 2]>>) -> Vec<Unknown> {
    let open = || -> procfs::ProcResult<Vec<Unknown>> {
        let process = Process::new(told.pid.cast_signed())?;
        let inodes: BTreeSet<u64> = process
            .fd()?
            .flatten()
            .filter_map(|fd| match fd.target {
                FDTarget::Socket(inode) => Some(inode),
                _ => None,
            })
            .collect();
        let all: Vec<TcpNetEntry> =
            process.tcp()?.into_iter().chain(process.tcp6().unwrap_or_default()).collect();
        let ends = |of: &TcpNetEntry| [plain(of.local_address), plain(of.remote_address)];
        let here: BTreeSet<[SocketAddr; 2]> = all.iter().map(ends).collect();
        let connected = [TcpState::Established, TcpState::CloseWait, TcpState::FinWait1];
        let own = all.iter().filter(|of| {
            inodes.contains(&of.inode)
                && connected.contains(&of.state)
                && !known.is_some_and(|known| known.contains(&ends(of)))
        });
        let why = |[own, peer]: [SocketAddr; 2]| match told.counters.tcp_stayed_service {
            _ if !here.contains(&[peer, own]) => Why::Remote,
            1.. => Why::NoService,
            0 => Why::NotShown,
        };
        let unknown = own.map(ends).filter(|ends| {
            // (Which of them have rings only the service could tell.)
            known.is_some() || told.counters.tcp_connections == 0 || why(*ends) == Why::Remote
        });
        Ok(unknown
            .map(|addresses| Unknown { pid: told.pid, addresses, why: why(addresses) })
            .collect())
    };
    open().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn told(counters: Snapshot) -> CountedProgram {
        CountedProgram { pid: std::process::id(), command: "me".into(), counters }
    }

    #[test]
    fn open_connections_that_no_service_knows_are_told_with_why() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _b = listener.accept().unwrap();
        let ends = [a.local_addr().unwrap(), a.peer_addr().unwrap()];
        let why = |counters: Snapshot, known: Option<&BTreeSet<_>>| {
            let all = unknown(&told(counters), known);
            all.iter().find(|of| of.addresses == ends).map(|of| of.why)
        };
        assert_eq!(why(Snapshot::default(), None), Some(Why::NotShown));
        let none = Snapshot { tcp_stayed_service: 1, ..Snapshot::default() };
        assert_eq!(why(none, None), Some(Why::NoService));
        assert_eq!(why(none, Some(&BTreeSet::from([ends]))), None, "the service knows it");
        let rings = Snapshot { tcp_connections: 1, ..Snapshot::default() };
        assert_eq!(why(rings, None), None, "it may be one of these");
    }

    #[test]
    fn words_of_programs_are_there_without_a_service() {
        let counters = Snapshot { tcp_stayed_service: 2, ..Snapshot::default() };
        let addresses = ["127.0.0.1:5000", "127.0.0.1:80"].map(|a| a.parse().unwrap());
        let unknown = vec![Unknown { pid: 7, addresses, why: Why::NoService }];
        let said = Programs { told: vec![CountedProgram { pid: 7, ..told(counters) }], unknown };
        let text = said.text();
        assert!(text.starts_with("127.0.0.1:5000 me[7] <-> 127.0.0.1:80\n    Linux, no-service ("));
        assert!(text.contains("me[7] says: 2 connections: 2 by Linux: 2 no-service ("), "{text}");
        assert!(text.contains("'uncopy run --require --tcp -- true'"), "{text}");
    }
}
