//! A wire opened, and a service with a lane for each of its queues, in this program.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use uncopy_measure::{Failure, failure};
use uncopy_tcp_fast::{Applications, Service};
use uncopy_tcp_proto::wire::Link;
use uncopy_tcp_proto::{Config, FlowOptions};
use uncopy_tcp_wire::queues;
use uncopy_tcp_wire::steer::Steer;
use uncopy_tcp_wire::tap::Tap;
use uncopy_tcp_wire::xsk::Xsk;

use super::Over;
use crate::rpc::choices::{Wait, Wire};
use crate::rpc::plan::Plan;

/// Messages that a buffer holds: one that is taken while the next comes, and what is not
/// acknowledged.
const MESSAGES: usize = 2;
/// The smallest buffer.
const SMALLEST: usize = 1 << 10;

/// An open wire.
pub enum Opened {
    /// AF_XDP sockets, and the program that steers to them.
    Xdp(Arc<Steer>, Vec<Xsk>),
    /// A device's own.
    Tap(Vec<Tap>),
}

impl Opened {
    /// The wire of this end.
    pub fn new(over: &Over, plan: &Plan) -> Result<Self, Failure> {
        match over.ours {
            Some(Wire::Tap) => {
                let tap = Tap::open(&over.device).map_err(|e| {
                    failure!("cannot open the TAP device {}", over.device).because(e)
                })?;
                Ok(Self::Tap(vec![tap]))
            }
            _ => {
                let (steer, wires) = queues::open(&over.device, config(plan).flows as u32, 1024)
                    .map_err(|e| failure!("cannot have {} by AF_XDP", over.device).because(e))?;
                Ok(Self::Xdp(Arc::new(steer), wires))
            }
        }
    }

    /// Connections to this address are the service's.
    pub fn listens(&self, address: SocketAddrV4) -> Result<(), Failure> {
        match self {
            Self::Xdp(steer, _) => steer
                .listen(address)
                .map_err(|e| Failure::new("cannot steer connections").because(e)),
            Self::Tap(_) => Ok(()),
        }
    }

    /// A lane for each of its queues.
    pub fn lanes(&self) -> usize {
        match self {
            Self::Xdp(_, wires) => wires.len(),
            Self::Tap(wires) => wires.len(),
        }
    }

    /// The service of `applications`, whose lanes sleep after so long without work, and what runs
    /// it until it is stopped.
    pub fn service<A: Applications + Send + Sync + 'static>(
        self,
        plan: &Plan,
        quiet: Duration,
        applications: A,
    ) -> Result<Arc<Service<A>>, Failure> {
        let service = Service::new(&config(plan), self.lanes(), applications)
            .map_err(|e| Failure::new("cannot start the service").because(e))?
            .waits(uncopy_tcp_fast::Wait::For(quiet));
        match self {
            Self::Xdp(steer, wires) => {
                let service = Arc::new(service.steered_by(steer));
                let running = service.clone();
                std::thread::spawn(move || end(running.run(wires)));
                Ok(service)
            }
            Self::Tap(wires) => {
                let service = Arc::new(service);
                let running = service.clone();
                std::thread::spawn(move || end(running.run(wires)));
                Ok(service)
            }
        }
    }
}

/// After so long without work lanes sleep that wait like this.
pub fn quiet(wait: Wait) -> Duration {
    match wait {
        Wait::Spin => Duration::MAX,
        Wait::Sleep => Duration::ZERO,
    }
}

/// Without its wire a program has nothing to do.
fn end(result: std::io::Result<()>) {
    if let Err(e) = result {
        eprintln!("the wire failed: {e}");
        std::process::exit(1);
    }
}

/// The hardware addresses of the way to the other end.
pub fn link(over: &Over) -> Link {
    let [local, peer] = over.hardware;
    Link { local, peer }
}

/// The settings for so many connections.
pub fn config(plan: &Plan) -> Config {
    Config {
        flows: plan.connections + 64,
        apps: 1,
        secret: std::array::from_fn(|_| fastrand::u8(..)),
        stamp_offset: fastrand::u32(..),
        // Others are Linux'.
        reset_strangers: false,
        ..Config::default()
    }
}

/// Bytes of each buffer, as a power of two.
pub fn bits(plan: &Plan) -> u8 {
    (MESSAGES * plan.message()).max(SMALLEST).next_power_of_two().ilog2() as u8
}

/// How a connection is to be.
pub fn options(plan: &Plan) -> FlowOptions {
    let bits = bits(plan);
    FlowOptions { rcv_bits: bits, snd_bits: bits, nagle: false, ..FlowOptions::default() }
}
