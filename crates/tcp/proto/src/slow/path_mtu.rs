//! Packets for which the way has no room: a router says so (RFC 1191). Routers that say nothing are
//! found by their timeouts (`timers`).

use crate::endpoint::Endpoint;
use crate::flows::Flows;
use crate::segment::Tuple;
use crate::seq::Seq;
use crate::time::Time;
use crate::wire;

/// Smaller packets nobody needs; a router that claims it wants to harm (Linux's `min_pmtu`).
const LEAST_MTU: u16 = 552;

impl<F: Flows> Endpoint<F> {
    /// A router had no room for the packet with the number `seq`; it would have passed with `mtu`
    /// bytes (0: the router does not say).
    pub fn too_big(&mut self, time: Time, tuple: &Tuple, seq: Seq, mtu: u16) {
        let Some(slot) = self.find(tuple) else { return };
        let now = self.now(time);
        let flow = self.lane.flows.at(slot);
        // Only who sees our packets knows which numbers are on the way (RFC 5927, 4).
        if seq.before(flow.snd_una) || !seq.before(flow.snd_max) {
            return;
        }
        let mtu = if mtu == 0 { LEAST_MTU } else { mtu.max(LEAST_MTU) };
        let before = flow.mss;
        let options = if flow.has(crate::flow::flag::STAMPS) { 12 } else { 0 };
        flow.shrink(wire::mss_of(mtu) - options);
        if flow.mss < before {
            // The segments that went out are too large as well. It is not congestion: no limit
            // changes.
            flow.time_out(now, false);
            flow.next_send = now.time;
            self.ready(slot);
        }
    }
}
