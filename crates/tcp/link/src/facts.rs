//! Facts of the connections of a side, as data: what the threads that fill and take are, what the
//! sockets say of themselves, and what the link sees of their handshakes. Two sides are compared by
//! it: a difference that is no name of the row is a comparison that is not fair.
//!
//! unsafe: the kernel is asked for a thread's place in its schedule.

use crate::frame::Offer;
use rustix::net::sockopt::{tcp_congestion, tcp_nodelay};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};

/// Facts by their names. (Of flows that differ, all values.)
pub type Facts = BTreeMap<&'static str, String>;

/// The sender, or the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The sender.
    From,
    /// The receiver.
    To,
}

/// The facts of both ends that are known so far.
#[derive(Debug, Default)]
pub struct Known([Mutex<BTreeMap<&'static str, BTreeSet<String>>>; 2]);

impl Known {
    /// One more fact of an end.
    pub fn tell(&self, end: End, fact: &'static str, value: impl Into<String>) {
        let mut facts = self.0[end as usize].lock().unwrap_or_else(PoisonError::into_inner);
        facts.entry(fact).or_default().insert(value.into());
    }

    /// Enters what a socket of Linux' says of itself, and its thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn tell_of(&self, end: End, socket: &TcpStream) -> io::Result<()> {
        self.tell(end, CONGESTION, tcp_congestion(socket)?);
        self.tell(end, SMALL, small(!tcp_nodelay(socket)?));
        self.tell(end, SCHEDULED, scheduled());
        Ok(())
    }

    /// Enters the offer of a handshake.
    pub fn tell_offer(&self, end: End, offer: &Offer) {
        let yes = |is: bool| if is { "yes" } else { "no" };
        self.tell(end, "marks", yes(offer.ecn));
        self.tell(end, "timestamps", yes(offer.stamps));
        self.tell(end, "selective acknowledgements", yes(offer.sack));
        self.tell(end, "scaled windows", yes(offer.scale));
        self.tell(end, "segment, bytes", offer.segment.to_string());
    }

    /// All of them.
    pub fn all(&self) -> [Facts; 2] {
        [0, 1].map(|end| {
            let facts = self.0[end].lock().unwrap_or_else(PoisonError::into_inner);
            let joined = |values: &BTreeSet<String>| -> String {
                values.iter().map(String::as_str).collect::<Vec<_>>().join(" or ")
            };
            facts.iter().map(|(&fact, values)| (fact, joined(values))).collect()
        })
    }
}

/// The congestion control.
pub const CONGESTION: &str = "congestion control";
/// Whether small segments wait.
pub const SMALL: &str = "small segments";
/// The place in the kernel's schedule of the thread that fills or takes.
pub const SCHEDULED: &str = "scheduled";

/// The word for whether small segments wait.
pub fn small(nagle: bool) -> &'static str {
    if nagle { "wait" } else { "go at once" }
}

/// Class and priority of the calling thread.
pub fn scheduled() -> String {
    let mut how = libc::sched_param { sched_priority: 0 };
    // SAFETY: writes the parameter, which lives here; 0 is the calling thread.
    let class = unsafe {
        libc::sched_getparam(0, &raw mut how);
        libc::sched_getscheduler(0)
    };
    let name = match class & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_FIFO => "first in, first out",
        libc::SCHED_OTHER => "ordinary",
        _ => "another class",
    };
    format!("{name}, {}", how.sched_priority)
}
