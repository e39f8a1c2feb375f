//! The traffic on each connection between two looks.

use std::collections::HashMap;

use uncopy_tcp_service::Wired;

use super::look::{Look, key};

/// A connection's, each way: from side 0, from side 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Its place in the later look's list.
    pub flow: usize,
    /// Times a second that bytes were put into the ring.
    pub writes: [f64; 2],
    /// Bytes of these a second.
    pub bytes: [f64; 2],
}

impl Rate {
    fn all(&self) -> f64 {
        self.writes[0] + self.writes[1]
    }
}

/// A connection over the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverWire {
    /// Its place in the later look's list.
    pub flow: usize,
    /// Bytes a second that were acknowledged.
    pub delivered: f64,
    /// Losses and timeouts a second.
    pub again: f64,
}

/// Of all connections over the wire, the busiest first.
pub fn over_wire(before: &Look, now: &Look, seconds: f64) -> Vec<OverWire> {
    let old: HashMap<_, _> = before.state.wired.iter().map(|of| (of.addresses, of)).collect();
    let all = now.state.wired.iter().enumerate().map(|(flow, of)| {
        let again = |of: &Wired| u64::from(of.again[0]) + u64::from(of.again[1]);
        // (Between the same ends there may be another one by now: then it has delivered less.)
        let before = old.get(&of.addresses).filter(|before| before.delivered <= of.delivered);
        let (bytes, losses) = before.map_or((0, 0), |before| (before.delivered, again(before)));
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds.max(0.001);
        OverWire { flow, delivered: rate(of.delivered, bytes), again: rate(again(of), losses) }
    });
    let mut all: Vec<OverWire> = all.collect();
    all.sort_by(|a, b| b.delivered.total_cmp(&a.delivered).then(a.flow.cmp(&b.flow)));
    all
}

/// Of all connections of the later look, the busiest first. A new connection has been so for no
/// longer than the interval.
pub fn between(before: &Look, now: &Look, seconds: f64) -> Vec<Rate> {
    let old: HashMap<_, _> = before.state.flows.iter().map(|flow| (key(flow), flow)).collect();
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds.max(0.001);
    let rates = now.state.flows.iter().enumerate().map(|(i, flow)| {
        let before = old.get(&key(flow));
        let of = |side: usize| {
            before.map_or((0, 0), |flow| (flow.ways[side].writes, flow.ways[side].bytes))
        };
        let [a, b] = [of(0), of(1)];
        let [x, y] = flow.ways;
        Rate {
            flow: i,
            writes: [rate(x.writes, a.0), rate(y.writes, b.0)],
            bytes: [rate(x.bytes, a.1), rate(y.bytes, b.1)],
        }
    });
    let mut rates: Vec<Rate> = rates.collect();
    rates.sort_by(|a, b| b.all().total_cmp(&a.all()).then(a.flow.cmp(&b.flow)));
    rates
}
