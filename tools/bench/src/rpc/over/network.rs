//! Two network namespaces, and the devices between them: a pair for Linux, and one of the same kind
//! for uncopy, so that neither has to live with what the other needs.

use std::net::Ipv4Addr;
use std::process::Command;

use uncopy_measure::{Failure, failure};

use super::Over;
use crate::rpc::choices::Wire;

/// The prefix of the namespaces' names; a process and an end follow.
const NAME: &str = "uncopy-bench-";

/// Removes what processes have left that were killed.
fn remove_left() {
    let Ok(names) = std::fs::read_dir("/run/netns") else { return };
    for name in names.flatten().filter_map(|name| name.file_name().into_string().ok()) {
        let process = name.strip_prefix(NAME).and_then(|rest| rest.strip_suffix(['a', 'b']));
        let gone = process.is_some_and(|process| {
            process.parse::<u32>().is_ok() && !std::path::Path::new("/proc").join(process).exists()
        });
        if gone {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

/// See the module. It goes with this value.
pub struct Network {
    namespaces: [String; 2],
    wire: Wire,
    queues: usize,
}

/// Which pair of devices.
#[derive(Clone, Copy)]
enum Pair {
    Linux,
    Uncopy,
}

impl Pair {
    fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Uncopy => "uncopy",
        }
    }

    fn address(self, end: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self as u8 + 1, end as u8 + 1)
    }

    fn hardware(self, end: usize) -> [u8; 6] {
        [2, 0, 0, 77, self as u8 + 1, end as u8 + 1]
    }
}

fn text(hardware: [u8; 6]) -> String {
    hardware.map(|byte| format!("{byte:02x}")).join(":")
}

impl Network {
    /// Makes it, with devices of so many queues. Only root may.
    pub fn new(wire: Wire, queues: usize) -> Result<Self, Failure> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Failure::new(
                "--wire xdp and --wire tap make network namespaces and devices",
            )
            .advise("run it as root"));
        }
        remove_left();
        let names = ["a", "b"].map(|end| format!("{NAME}{}{end}", std::process::id()));
        let network = Self { namespaces: names, wire, queues };
        for namespace in &network.namespaces {
            ip(&format!("netns add {namespace}"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
            // (Linux' connections ask for marks, as uncopy's do.)
            set(namespace, "tcp_ecn", "1")?;
        }
        for pair in [Pair::Linux, Pair::Uncopy] {
            network.connect(pair)?;
        }
        Ok(network)
    }

    fn connect(&self, pair: Pair) -> Result<(), Failure> {
        let [a, b] = &self.namespaces;
        let name = pair.name();
        let queues = format!("numrxqueues {0} numtxqueues {0}", self.queues);
        ip(&format!(
            "-n {a} link add {name} {queues} type veth peer name {name} {queues} netns {b}"
        ))?;
        for (end, namespace) in self.namespaces.iter().enumerate() {
            let ip = |words: &str| ip(&format!("-n {namespace} {words}"));
            ip(&format!("link set {name} up"))?;
            // The device that has the address: the device itself, or the bridge on which a TAP
            // device is.
            let device = match (self.wire, pair) {
                (Wire::Tap, _) => {
                    let bridge = format!("{name}br");
                    ip(&format!("link add {bridge} type bridge stp_state 0 forward_delay 0"))?;
                    ip(&format!("link set {name} master {bridge}"))?;
                    bridge
                }
                _ => name.to_owned(),
            };
            let (own, peer) = (pair.hardware(end), pair.hardware(1 - end));
            if matches!((self.wire, pair), (Wire::Tap, Pair::Uncopy)) {
                ip(&format!("tuntap add dev {name}tap mode tap vnet_hdr"))?;
                ip(&format!("link set {name}tap master {device} up"))?;
                // (The address is of who is behind the TAP device.)
                ip(&format!("link set {device} up"))?;
                continue;
            }
            ip(&format!("link set {device} address {} up", text(own)))?;
            ip(&format!("addr add {}/24 dev {device}", pair.address(end)))?;
            ip(&format!(
                "neigh replace {} lladdr {} dev {device}",
                pair.address(1 - end),
                text(peer)
            ))?;
        }
        Ok(())
    }

    /// The ends, the server's first: uncopy's, or Linux'.
    pub fn ends(&self, uncopy: bool) -> [Over; 2] {
        let pair = if uncopy { Pair::Uncopy } else { Pair::Linux };
        [0, 1].map(|end| Over {
            namespace: self.namespaces[end].clone(),
            device: match self.wire {
                Wire::Tap => format!("{}tap", pair.name()),
                _ => pair.name().to_owned(),
            },
            address: pair.address(end),
            hardware: [pair.hardware(end), pair.hardware(1 - end)],
            ours: uncopy.then_some(self.wire),
        })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            let _ = ip(&format!("netns del {namespace}"));
        }
    }
}

/// A namespace's own setting of TCP: whose file of `/proc/sys/net` it is, the thread that opens it
/// decides.
fn set(namespace: &str, name: &'static str, value: &'static str) -> Result<(), Failure> {
    let namespace = namespace.to_owned();
    let thread = std::thread::spawn(move || {
        super::enter(&namespace)?;
        std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value)
            .map_err(|e| failure!("cannot set net.ipv4.{name} to {value}").because(e))
    });
    thread.join().map_err(|_| Failure::new("a thread panicked"))?
}

fn ip(words: &str) -> Result<(), Failure> {
    run(&words.split(' ').collect::<Vec<_>>())
}

fn run(words: &[&str]) -> Result<(), Failure> {
    let output = Command::new("ip")
        .args(words)
        .output()
        .map_err(|e| failure!("--wire xdp and --wire tap need 'ip' (iproute2): {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(failure!("'ip {}' was refused: {}", words.join(" "), why.trim()))
}
