//! RPCs over a wire: each of the two programs in a network namespace of its own, with Linux'
//! sockets, or with lanes of uncopy's in the program itself (the interface below sockets: TAS,
//! 3.2.3), over the same kind of device.
//!
//! | file | one idea |
//! | --- | --- |
//! | `network` | the namespaces and the devices between them |
//! | `stack` | a wire opened, and a service over it, in this program |
//! | `link` | a connection's buffers |
//! | `server`, `client` | the two programs, as applications of a lane |

pub mod client;
mod link;
pub mod network;
pub mod server;
mod stack;

use std::fs::File;
use std::net::Ipv4Addr;

use nix::sched::{CloneFlags, setns};
use serde::{Deserialize, Serialize};
use uncopy_measure::{Failure, failure};

use super::choices::Wire;

/// Where an end is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Over {
    /// Its network namespace.
    pub namespace: String,
    /// The device in it, and its address.
    pub device: String,
    /// See `device`.
    pub address: Ipv4Addr,
    /// The device's hardware address, and that of the other end.
    pub hardware: [[u8; 6]; 2],
    /// The TCP: uncopy's over this wire; or Linux'.
    pub ours: Option<Wire>,
}

impl Over {
    /// The calling thread, and what it starts from now on, is there.
    pub fn enter(&self) -> Result<(), Failure> {
        enter(&self.namespace)
    }
}

/// The calling thread, and what it starts from now on, is in this network namespace.
fn enter(namespace: &str) -> Result<(), Failure> {
    let path = format!("/run/netns/{namespace}");
    let namespace = File::open(&path).map_err(|e| failure!("cannot open {path}").because(e))?;
    setns(namespace, CloneFlags::CLONE_NEWNET)
        .map_err(|e| Failure::new("cannot enter the network namespace").because(e.desc()))
}
