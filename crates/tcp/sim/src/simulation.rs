//! From a plan to results: events in the order of time, until all flows that count are complete.

use crate::events::{Event, Events};
use crate::hosts::{Hosts, News};
use crate::network::Network;
use crate::port::Counts;
use crate::results::{Finished, LayerSeen, Series, summed_up};
use crate::sender::Sender;
use crate::topology::{Map, Topology};
use crate::traffic::Plan;
use core::fmt;
use uncopy_tcp_proto::Time;
use uncopy_tcp_proto::time::SECOND;

/// The simulation's settings.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The network.
    pub topology: Topology,
    /// The congestion control.
    pub sender: Sender,
    /// Lists of flows. Those of one list come one after the other where the list is `in_turn`: the
    /// next one begins when the one before is complete, even if its time is past.
    pub flows: Vec<Vec<Plan>>,
    /// See [`flows`](Self::flows).
    pub in_turn: bool,
    /// Flows that begin in this time count, and so do queues in it; in nanoseconds.
    pub measured: core::ops::Range<u64>,
    /// When it ends, even if some that count are not complete.
    pub end: u64,
    /// Ends of connections that there is room for.
    pub connections: usize,
    /// The distance of looks at the queues, in nanoseconds.
    pub sample: u64,
    /// The interval in the measured time (nanoseconds) at which each flow's bytes are noted, if at
    /// all.
    pub shares: Option<u64>,
    /// Chooses secrets and ways.
    pub seed: u64,
}

/// Why a setup cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// The network has no such flow: a host that is not there, one host at both ends, or no bytes.
    Flow(Plan),
    /// More ends of connections are needed at once than [`Setup::connections`], which is this.
    Connections(usize),
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flow(plan) => write!(f, "there is no such flow in this network: {plan:?}"),
            Self::Connections(most) => {
                write!(f, "no room for more than {most} ends of connections at once")
            }
        }
    }
}

impl core::error::Error for Impossible {}

/// Time 0 of the plans: the core's clocks take 0 for "never".
const BEGIN: u64 = SECOND;

/// A flow of the plan that has begun.
struct PlannedFlow {
    plan: Plan,
    began: u64,
    list: u32,
}

/// The bytes of each flow from one note to the next.
#[derive(Default)]
struct Shares {
    before: Option<Vec<u64>>,
    got: Vec<Vec<u64>>,
}

impl Shares {
    fn note(&mut self, received: &[u64]) {
        if let Some(before) = self.before.replace(received.to_vec()) {
            let before = before.into_iter().chain(std::iter::repeat(0));
            self.got.push(received.iter().zip(before).map(|(now, then)| now - then).collect());
        }
    }
}

struct Run<'a> {
    setup: &'a Setup,
    events: Events,
    network: Network,
    hosts: Hosts,
    flows: Vec<PlannedFlow>,
    /// The next one of each list, and whether it is its turn.
    next: Vec<u32>,
    finished: Vec<Finished>,
    /// Flows that count and are not complete; those that broke.
    missing: u64,
    failed: u64,
    samples: Vec<u64>,
    shares: Shares,
    base: Vec<Counts>,
}

/// Runs it.
///
/// # Errors
/// See [`Impossible`].
pub fn run(name: &str, setup: &Setup) -> Result<Series, Impossible> {
    let map = Map::new(setup.topology.clone());
    let network = Network::new(map, setup.seed);
    let counts = |plan: &Plan| setup.measured.contains(&plan.start);
    let all = setup.flows.iter().flatten();
    if let Some(bad) = all.clone().find(|plan| {
        plan.from == plan.to || plan.from.max(plan.to) >= network.map.hosts() || plan.size == 0
    }) {
        return Err(Impossible::Flow(*bad));
    }
    let mut run = Run {
        setup,
        events: Events::default(),
        hosts: Hosts::new(setup.sender, setup.connections, setup.seed),
        flows: Vec::new(),
        next: vec![0; setup.flows.len()],
        finished: Vec::new(),
        missing: all.filter(|plan| counts(plan)).count() as u64,
        failed: 0,
        samples: Vec::new(),
        shares: Shares::default(),
        base: network.ports.iter().map(|port| port.counts).collect(),
        network,
    };
    for list in 0..setup.flows.len() as u32 {
        run.plan_next(list, 0);
    }
    run.events.push(BEGIN + setup.measured.start, Event::Sample);
    if setup.shares.is_some() {
        run.events.push(BEGIN + setup.measured.start, Event::Shares);
    }
    let end = run.go()?;
    Ok(run.results(name, end))
}

impl Run<'_> {
    /// The next flow of a list, not before `now`.
    fn plan_next(&mut self, list: u32, now: u64) {
        let plans = &self.setup.flows[list as usize];
        if let Some(plan) = plans.get(self.next[list as usize] as usize) {
            self.events.push((BEGIN + plan.start).max(now), Event::Start(list));
        }
    }

    /// Says when it ended.
    fn go(&mut self) -> Result<u64, Impossible> {
        let end = BEGIN + self.setup.end;
        let mut seen: Option<Vec<Counts>> = None;
        let mut now = BEGIN;
        let shares = self.setup.shares.map_or(0, |_| BEGIN + self.setup.measured.end);
        while self.missing > 0 || now < shares {
            let event = self.events.next();
            let poll = self.hosts.poll_at.map(|at| at.0);
            let Some(next) = event.into_iter().chain(poll).min() else { break };
            now = next.max(now);
            if now >= BEGIN + self.setup.measured.end && seen.is_none() {
                seen = Some(self.counts());
            }
            if now > end {
                now = end;
                break;
            }
            if event == Some(next) {
                self.event(now)?;
            } else {
                self.hosts.poll(Time(now), &mut self.network, &mut self.events);
            }
            self.heard(now);
        }
        // From here on, the counts are those of the time that is measured.
        let seen = seen.unwrap_or_else(|| self.counts());
        self.base = std::mem::take(&mut self.base)
            .into_iter()
            .zip(seen)
            .map(|(before, after)| difference(&after, &before))
            .collect();
        Ok((now - BEGIN).min(self.setup.measured.end))
    }

    fn event(&mut self, now: u64) -> Result<(), Impossible> {
        let Some((_, event)) = self.events.pop() else { return Ok(()) };
        match event {
            Event::Packet(number) => {
                if let Some(segment) = self.network.arrived(now, number, &mut self.events) {
                    self.hosts.segment(Time(now), &segment, &mut self.network, &mut self.events);
                }
            }
            Event::Start(list) => {
                let at = &mut self.next[list as usize];
                let plan = self.setup.flows[list as usize][*at as usize];
                *at += 1;
                let number = self.flows.len() as u32;
                self.flows.push(PlannedFlow { plan, began: now, list });
                let (Run { hosts, network, events, .. }, time) = (&mut *self, Time(now));
                let (flow, ends) = ((number, plan.size), (plan.from, plan.to));
                if !hosts.start(time, flow, ends, network, events) {
                    return Err(Impossible::Connections(self.setup.connections));
                }
                hosts.poll(time, network, events);
                if !self.setup.in_turn {
                    self.plan_next(list, now);
                }
            }
            Event::Sample => {
                if now == BEGIN + self.setup.measured.start {
                    self.base = self.counts();
                }
                for layer in self.network.map.layers().iter().take(1) {
                    for port in layer.ports.clone() {
                        self.samples.push(self.network.ports[port as usize].queue(now));
                    }
                }
                if now + self.setup.sample < BEGIN + self.setup.measured.end {
                    self.events.push(now + self.setup.sample, Event::Sample);
                }
            }
            Event::Shares => {
                self.shares.note(&self.hosts.received);
                let next = now + self.setup.shares.unwrap_or(u64::MAX - now);
                if next <= BEGIN + self.setup.measured.end {
                    self.events.push(next, Event::Shares);
                }
            }
        }
        Ok(())
    }

    /// Handles the news from applications.
    fn heard(&mut self, now: u64) {
        while let Some(news) = self.hosts.news.pop() {
            let (News::Complete(number) | News::Failed(number)) = news;
            let PlannedFlow { plan, began, list } = self.flows[number as usize];
            if self.setup.measured.contains(&plan.start) {
                self.missing -= 1;
                match news {
                    News::Complete(_) => {
                        self.finished.push(Finished { size: plan.size, nanos: now - began })
                    }
                    News::Failed(_) => self.failed += 1,
                }
            }
            if self.setup.in_turn {
                self.plan_next(list, now);
            }
        }
    }

    fn counts(&self) -> Vec<Counts> {
        self.network.ports.iter().map(|port| port.counts).collect()
    }

    fn results(self, name: &str, end: u64) -> Series {
        let nanos = end.saturating_sub(self.setup.measured.start).max(1);
        let layers = self.network.map.layers();
        let seen = layers.iter().map(|layer| {
            let ports = layer.ports.start as usize..layer.ports.end as usize;
            let counts = &self.base[ports.clone()];
            let rates = self.network.ports[ports].iter().map(|port| port.link().rate);
            LayerSeen::of(layer.name, counts, rates.sum(), nanos)
        });
        let interval = match self.setup.sender {
            Sender::Core { interval, .. } => interval.map(|nanos| nanos as f64 / 1e3),
            Sender::Vanilla => None,
        };
        Series {
            name: name.to_owned(),
            interval_us: interval,
            got: self.shares.got,
            broken: self.failed,
            incomplete: self.missing,
            ..summed_up(self.finished, self.samples, seen.collect())
        }
    }
}

fn difference(after: &Counts, before: &Counts) -> Counts {
    Counts {
        packets: after.packets - before.packets,
        bytes: after.bytes - before.bytes,
        marked: after.marked - before.marked,
        lost: after.lost - before.lost,
        waited: after.waited - before.waited,
        longest: after.longest,
    }
}
