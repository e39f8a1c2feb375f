//! TCP sockets of which, where both ends are programs under uncopy on one host, the bytes go
//! through shared memory. Everything else stays Linux's: the connection is a real one, and says who
//! died, who closed and how. Each direction goes to the ring and back to Linux by itself, whenever
//! it likes.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`context`], [`settings`] | a process: its doors, the service, the regions that it shares |
//! | `mapped` | such a region, and the connections in it |
//! | [`flow`] | a connection |
//! | [`way`] | whose a call is, and when a connection is registered |
//! | `lengths` | after how many calls that is worth while |
//! | `registered` | it becomes Linux's for good, or gets a slot |
//! | `asks` | when Linux is asked whether the peer lives |
//! | `attached` | the slot, as one of its sides |
//! | `batch` | which stores large copies are made by, and what they have cost |
//! | [`blocks`] | large messages in memory that the receiver maps: given, received, given back |
//! | `buffers` | through which files are streamed |
//! | `door` | what sleepers listen at |
//! | `knocks` | wakes that are made together |
//! | `signals` | knocks that wait for nobody |
//! | [`counts`] | what went by the ring |
//! | [`fork`], `holders` | children share connections |
//! | `errors`, `kept_error` | errors that Linux tells once, kept for the call that is to be told |
//! | `dying` | connections of a program that has ended, until Linux knows |
//! | `source` | what is to be sent: the program's buffers, or a file |
//! | [`send`] | the sender's half, and its way to the ring and back |
//! | [`receive`] | the receiver's half |
//! | [`lent`] | the ring's bytes used where they lie, and received later |
//! | [`mod@reference`] | receiving without a copy |
//! | [`wait`] | what a blocking call does until there is something: spin, then sleep |
//! | `full` | how long a ring has been full |
//! | [`spinning`] | whether spinning pays |
//! | [`sleepers`], `sleeping` | what threads sleep in |
//! | [`ready`] | what poll says of a connection |
//! | `watcher` | who looks at a connection when there is news |
//! | [`set`] | epoll over connections and everything else |
//! | `offering` | a peer is given the arena of blocks |
//! | `order` | what was sent first is told first |
//! | [`ending`] | shutdown, close |
//! | [`leaving`] | back to Linux for good: before exec, SCM_RIGHTS, io_uring |
//! | `active_open` | sockets that connect to other hosts |
//! | [`queued`] | how much waits: SIOCINQ, SIOCOUTQ |
//! | [`ends`] | a process' own state of its ends, which its children share |
//! | [`lock`] | locks, also between processes, whose holder may be killed |
//! | [`kernel`] | the connection's calls of Linux |

#[cfg(test)]
extern crate self as uncopy_tcp_socket;

pub mod active_open;
mod asks;
mod attached;
mod batch;
pub mod blocks;
mod buffers;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
pub mod context;
pub mod counts;
mod door;
mod dying;
pub mod ending;
pub mod ends;
mod errors;
pub mod flow;
pub mod fork;
mod full;
mod holders;
mod kept_error;
pub mod kernel;
mod knocks;
pub mod leaving;
mod lengths;
pub mod lent;
pub mod lock;
mod mapped;
mod offering;
mod order;
pub mod own;
pub mod queued;
pub mod ready;
pub mod receive;
pub mod reference;
mod registered;
pub mod send;
pub mod set;
pub mod settings;
pub mod settling;
mod signals;
pub mod sleepers;
mod sleeping;
mod source;
pub mod spinning;
pub mod views;
pub mod wait;
mod watcher;
pub mod way;

pub use active_open::Carrier;
pub use blocks::{Blocks, Keeps, Peer};
pub use context::Context;
pub use counts::stayed;
pub use flow::Flow;
pub use libc::iovec;
pub use own::{Own, Settling};
pub use reference::{Forward, GIVEN_ON, Taken};
pub use rustix::io::Errno;
pub use send::InRing;
pub use set::Set;
pub use settings::Settings;
pub use spinning::Waiting;
pub use uncopy_tcp_service::ends::{is_stand_in, listens, listens_at};
pub use uncopy_tcp_service::protocol::StayReason;
pub use uncopy_tcp_service::{Rendezvous, Wired};
pub use views::Views;
pub use way::{Bypass, Way};
