//! State that lives as long as a process in a process, for one replay after the other.

use uncopy_counters::Counters;
use uncopy_decide::{Basis, Costs, Pauses, Records};
use uncopy_ranges::filter::Filter;

/// See the module. There is no need for more than one on a thread.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    pub(crate) filter: &'static Filter,
    pub(crate) counters: &'static Counters,
    pub(crate) pauses: &'static Pauses,
    records: &'static Records,
}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    /// Memory that is never given back.
    pub fn new() -> Self {
        Self {
            filter: Box::leak(Box::default()),
            counters: Box::leak(Box::new(Counters::new())),
            pauses: Box::leak(Box::default()),
            records: Box::leak(Box::default()),
        }
    }

    pub(crate) fn clear(&self) {
        self.filter.clear();
        self.counters.reset();
        self.pauses.clear();
        self.records.clear();
    }

    /// The values that a controller is made with.
    pub(crate) fn basis(&self, threshold: usize, backoff: bool, costs: Costs) -> Basis {
        let Self { pauses, records, .. } = *self;
        Basis { threshold, backoff, costs, pauses, records }
    }
}
