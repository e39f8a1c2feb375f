//! All flows, and how threads see them: one at a time, under its lock.

use crate::inbox::Inbox;
use crate::spin::{Guard, Spin};
use core::net::SocketAddrV4;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use uncopy_tcp_proto::apps::Rates;
use uncopy_tcp_proto::flow::Flow;
use uncopy_tcp_proto::flows::Flows;
use uncopy_tcp_proto::segment::Tuple;
use uncopy_tcp_proto::table::Table;
use uncopy_tcp_proto::{Config, Endpoint, Lane};
use uncopy_tcp_wire::steer::Steer;

/// Lanes that there may be: more than cores of any machine that this is for, and few enough for a
/// byte.
pub const LANES: usize = uncopy_tcp_wire::QUEUES as usize;

/// The flows that all threads of a service share.
pub struct SharedFlows {
    config: Config,
    flows: Box<[Spin<Flow>]>,
    /// The lane that handled a flow's last segment: what applications and the slow path want sent
    /// goes there. So what is sent follows what is received, wherever the device steers it (TAS,
    /// 3.2.4: "lazily").
    homes: Box<[AtomicU8]>,
    inboxes: Box<[Inbox]>,
    table: Table,
    rates: Rates,
    steer: Option<Arc<Steer>>,
}

impl SharedFlows {
    /// With all the memory that it will ever use, for so many lanes.
    pub fn new(config: &Config, lanes: usize) -> SharedFlows {
        assert!((1..=LANES).contains(&lanes), "{lanes} lanes: 1 to {LANES} can be");
        SharedFlows {
            flows: (0..config.flows).map(|_| Spin::new(Flow::unused())).collect(),
            homes: (0..config.flows).map(|_| AtomicU8::new(0)).collect(),
            inboxes: (0..lanes).map(|_| Inbox::new(config.flows)).collect(),
            table: Table::for_config(config),
            rates: Rates::new(config.apps),
            steer: None,
            config: config.clone(),
        }
    }

    /// The steering is told which connections begin and end.
    pub fn steered_by(&mut self, steer: Arc<Steer>) {
        self.steer = Some(steer);
    }

    /// The fast path of one thread.
    pub fn lane(&self, number: usize) -> Lane<View<'_>> {
        assert!(number < self.inboxes.len(), "lane {number} of {}", self.inboxes.len());
        Lane::new(&self.config, View { shared: self, lane: Some(number as u8), held: None })
    }

    /// The slow path, of which there is one. Its frames leave as they are: no wire cuts them.
    pub fn slow_path(&self) -> Endpoint<View<'_>> {
        let config = Config { most: 0, ..self.config.clone() };
        Endpoint::over(config, View { shared: self, lane: None, held: None })
    }

    /// Takes into the lane's list what others want it to send. To be called before each
    /// [`Lane::poll`].
    #[inline]
    pub fn collect(&self, number: usize, lane: &mut Lane<View<'_>>) {
        self.inboxes[number].take(|slot| lane.woken(slot));
    }

    /// The lane that touched the flow of `slot` last.
    pub fn home(&self, slot: u32) -> usize {
        let home = usize::from(self.homes[slot as usize].load(Relaxed));
        home.min(self.inboxes.len() - 1)
    }

    /// Nobody wants anything of this lane sent.
    pub fn is_idle(&self, number: usize) -> bool {
        self.inboxes[number].is_empty()
    }
}

fn steered(ends: &Tuple) -> uncopy_tcp_wire::steer::SteeredFlow {
    uncopy_tcp_wire::steer::SteeredFlow {
        local: SocketAddrV4::new(ends.local_ip, ends.local_port),
        remote: SocketAddrV4::new(ends.peer_ip, ends.peer_port),
    }
}

/// The flows, as one thread sees them.
pub struct View<'a> {
    shared: &'a SharedFlows,
    lane: Option<u8>,
    held: Option<(u32, Guard<'a, Flow>)>,
}

impl Flows for View<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.shared.flows.len()
    }

    #[inline]
    fn at(&mut self, slot: u32) -> &mut Flow {
        if self.held.as_ref().is_none_or(|held| held.0 != slot) {
            // First let go of the other: a thread that holds one waits for none.
            self.held = None;
            let guard = self.shared.flows[slot as usize].lock();
            if let Some(lane) = self.lane {
                let home = &self.shared.homes[slot as usize];
                if home.load(Relaxed) != lane {
                    home.store(lane, Relaxed);
                }
            }
            self.held = Some((slot, guard));
        }
        &mut self.held.as_mut().expect("it was just locked").1
    }

    #[inline]
    fn leave(&mut self) {
        self.held = None;
    }

    #[inline]
    fn table(&self) -> &Table {
        &self.shared.table
    }

    fn begin(&mut self, ends: &Tuple, slot: u32) {
        self.shared.table.insert(ends, slot);
        if let Some(steer) = &self.shared.steer {
            // Before anything is sent that is to be answered. Where the kernel refuses, the peer's
            // answer is Linux's, and it says that there is no such connection.
            let _ = steer.take(steered(ends));
        }
    }

    fn end(&mut self, ends: &Tuple, slot: u32) {
        self.shared.table.remove(ends, slot);
        if let Some(steer) = &self.shared.steer {
            let _ = steer.leave(steered(ends));
        }
    }

    fn cookies(&mut self, are_out: bool) {
        if let Some(steer) = &self.shared.steer {
            // Where the kernel refuses, who comes back by a cookie is Linux's, which refuses them.
            let _ = steer.cookies(are_out);
        }
    }

    #[inline]
    fn rates(&self) -> &Rates {
        &self.shared.rates
    }

    fn wake(&mut self, slot: u32) -> bool {
        // A lane sends what it has touched itself.
        if self.lane.is_some() {
            return false;
        }
        self.shared.inboxes[self.shared.home(slot)].push(slot);
        true
    }
}
