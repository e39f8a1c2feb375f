//! Events, added up.

use uncopy_decide::{Costs, Event, REASONS};

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Copies that the tracker saw, or that rested.
    pub copies: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Copies that were elided, wholly or in part.
    pub elided: u64,
    /// Their bytes.
    pub elided_bytes: u64,
    /// Faults.
    pub faults: u64,
    /// Pages that were moved out or in.
    pub moved: u64,
    /// Page-table calls.
    pub calls: u64,
    /// Copies that were looked at and not elided, in the order of [`REASONS`].
    pub missed: [u64; REASONS.len()],
    /// The cost of all of it, in ns: executing what was not elided, and everything that eliding the
    /// others took.
    pub ns: i64,
    near: bool,
}

impl Tally {
    /// The same copies, all of them executed in `ns`.
    pub(crate) fn of_plain(other: Self, ns: i64) -> Self {
        Self { copies: other.copies, bytes: other.bytes, ns, ..Self::default() }
    }

    pub(crate) fn copy(&mut self, costs: &Costs, len: usize) {
        self.copies += 1;
        self.bytes += len as u64;
        self.ns = self.ns.saturating_add(costs.copying(len));
    }

    pub(crate) fn told(&mut self, costs: &Costs, event: Event) {
        self.ns = self.ns.saturating_add(costs.of(event, self.near));
        match event {
            Event::ElidedAgain { bytes } | Event::Elided { bytes } => {
                self.elided += 1;
                self.elided_bytes = self.elided_bytes.saturating_add(bytes as u64);
            }
            Event::Missed(why) => self.missed[why as usize] += 1,
            Event::Fault { .. } | Event::Reused => self.faults += 1,
            Event::Moved { calls, pages } => {
                self.moved = self.moved.saturating_add(pages as u64);
                self.calls = self.calls.saturating_add(calls);
            }
            Event::Registered
            | Event::Untracked { .. }
            | Event::Materialized { .. }
            | Event::Populated { .. } => {
                self.calls += 1;
            }
            Event::AnswersNear(near) => self.near = near,
            _ => {}
        }
    }
}
