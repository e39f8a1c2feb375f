//! Where flows are kept, and how one gets at them: alone ([`Own`]), or among several threads, with
//! a lock for each flow, which is the caller's to bring (this crate knows no threads).

use crate::apps::Rates;
use crate::config::Config;
use crate::flow::Flow;
use crate::segment::Tuple;
use crate::table::Table;

/// All flows of an endpoint, as one of those who use them sees them.
///
/// At most one flow is held at a time: [`at`](Flows::at) lets go of the one before. So two who wait
/// for each other cannot be.
pub trait Flows {
    /// How many slots there are.
    fn count(&self) -> usize;

    /// The flow of `slot`, which nobody else gets before another one is asked for, or
    /// [`leave`](Flows::leave).
    fn at(&mut self, slot: u32) -> &mut Flow;

    /// Lets go of the flow that is held.
    fn leave(&mut self);

    /// Which slot has which connection. Only the slow path writes to it, by [`begin`](Flows::begin)
    /// and [`end`](Flows::end).
    fn table(&self) -> &Table;

    /// The connection between these ends is in `slot` from now on. (The slow path's.)
    fn begin(&mut self, ends: &Tuple, slot: u32) {
        self.table().insert(ends, slot);
    }

    /// It is there no more: segments between these ends belong to nobody. (The slow path's.)
    fn end(&mut self, ends: &Tuple, slot: u32) {
        self.table().remove(ends, slot);
    }

    /// From now on acknowledgements that belong to no flow may bring SYN cookies back; or they do
    /// no more. (The slow path's.)
    fn cookies(&mut self, _are_out: bool) {}

    /// The rates at which applications may send.
    fn rates(&self) -> &Rates;

    /// The flow of `slot`, which is held, has something to send. True if somebody else's
    /// [`Lane`](crate::Lane) does it; false if it is up to the caller's.
    fn wake(&mut self, slot: u32) -> bool;
}

/// Flows that nobody else uses.
pub struct Own {
    flows: Box<[Flow]>,
    table: Table,
    rates: Rates,
}

impl Own {
    /// As many as `config` says.
    pub fn new(config: &Config) -> Own {
        Own {
            flows: (0..config.flows).map(|_| Flow::unused()).collect(),
            table: Table::for_config(config),
            rates: Rates::new(config.apps),
        }
    }
}

impl Flows for Own {
    #[inline]
    fn count(&self) -> usize {
        self.flows.len()
    }

    #[inline]
    fn at(&mut self, slot: u32) -> &mut Flow {
        &mut self.flows[slot as usize]
    }

    #[inline]
    fn leave(&mut self) {}

    #[inline]
    fn table(&self) -> &Table {
        &self.table
    }

    #[inline]
    fn rates(&self) -> &Rates {
        &self.rates
    }

    #[inline]
    fn wake(&mut self, _: u32) -> bool {
        false
    }
}
