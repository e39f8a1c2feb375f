//! Completion times by size, and queues.

use crate::port::Counts;
use serde::{Deserialize, Serialize};

/// A flow that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The size in bytes.
    pub size: u64,
    /// From the application's `connect` to the last byte at the receiver.
    pub nanos: u64,
}

/// A packet of full size on a link, in which queues are counted: 1,500 bytes, Ethernet's header,
/// and framing.
pub const PACKET: u64 = 1500 + 14 + 24;

/// Flows up to this size are short; those of ten times this and more are long.
pub const SHORT: u64 = 100_000;

/// Mean and percentiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 95 of a hundred are below it.
    pub p95: f64,
    /// 99 of a hundred are below it.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of all `values`; zeros if there is none.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let Some(&max) = values.last() else { return Spread::default() };
        // The smallest value that is not exceeded by so many of a hundred.
        let at = |percent: usize| values[(values.len() * percent).div_ceil(100).max(1) - 1];
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Spread { mean, p50: at(50), p95: at(95), p99: at(99), max }
    }
}

/// Flows of like sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// More than so many bytes.
    pub from: u64,
    /// Up to so many bytes.
    pub to: u64,
    /// How many flows.
    pub flows: usize,
    /// Completion times in microseconds.
    pub fct_us: Spread,
}

/// Links of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerSeen {
    /// The name.
    pub name: String,
    /// The share of their time that they sent.
    pub utilization: f64,
    /// Packets that wait, in the mean of time and links.
    pub queue_packets: f64,
    /// The longest queue that any packet met since the beginning, in packets.
    pub longest_packets: f64,
    /// The share of packets that were marked.
    pub marked: f64,
    /// Packets lost.
    pub lost: u64,
}

impl LayerSeen {
    /// Of links that together have `rate` bits a second, over `nanos`.
    pub fn of(name: &str, counts: &[Counts], rate: u64, nanos: u64) -> LayerSeen {
        let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>();
        let waited: f64 = counts.iter().map(|counts| counts.waited).sum();
        let longest = counts.iter().map(|counts| counts.longest).max().unwrap_or(0);
        LayerSeen {
            name: name.to_owned(),
            utilization: sum(|c| c.bytes) as f64 * 8e9 / (rate as f64 * nanos as f64),
            queue_packets: waited / nanos as f64 / counts.len() as f64 / PACKET as f64,
            longest_packets: longest as f64 / PACKET as f64,
            marked: sum(|c| c.marked) as f64 / sum(|c| c.packets).max(1) as f64,
            lost: sum(|c| c.lost),
        }
    }
}

/// The results of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The name of the run.
    pub name: String,
    /// The control interval, where one was chosen.
    pub interval_us: Option<f64>,
    /// Completion times of all flows, in microseconds.
    pub fct_us: Spread,
    /// The queue of the first kind of link, seen at regular times, in packets.
    pub queue_packets: Spread,
    /// Flows by size.
    pub classes: Vec<Class>,
    /// Short flows, and long ones.
    pub short_us: Spread,
    /// See [`short_us`](Self::short_us).
    pub long_us: Spread,
    /// Links by kind.
    pub layers: Vec<LayerSeen>,
    /// Flows that count and are complete.
    pub flows: usize,
    /// Flows that count and were not complete in the end.
    pub incomplete: u64,
    /// Connections that broke.
    pub broken: u64,
    /// Bytes that each flow got in each of the times that were asked for.
    #[serde(skip)]
    pub got: Vec<Vec<u64>>,
}

/// Sums up.
pub fn summed_up(mut finished: Vec<Finished>, samples: Vec<u64>, layers: Vec<LayerSeen>) -> Series {
    finished.sort_by_key(|flow| (flow.size, flow.nanos));
    let micros =
        |flows: &[Finished]| Spread::of(flows.iter().map(|flow| flow.nanos as f64 / 1e3).collect());
    let up_to = |size: u64| finished.partition_point(|flow| flow.size <= size);
    let mut classes = Vec::new();
    let largest = finished.last().map_or(0, |flow| flow.size);
    // Three classes in each power of ten.
    let mut from = 0;
    for to in (3..).flat_map(|power| [1, 2, 5].map(|n| n * 10u64.pow(power))) {
        let flows = &finished[up_to(from)..up_to(to)];
        if !flows.is_empty() {
            classes.push(Class { from, to, flows: flows.len(), fct_us: micros(flows) });
        }
        from = to;
        if to >= largest {
            break;
        }
    }
    Series {
        name: String::new(),
        interval_us: None,
        fct_us: micros(&finished),
        queue_packets: Spread::of(
            samples.into_iter().map(|bytes| bytes as f64 / PACKET as f64).collect(),
        ),
        classes,
        short_us: micros(&finished[..up_to(SHORT)]),
        long_us: micros(&finished[up_to(10 * SHORT)..]),
        layers,
        flows: finished.len(),
        incomplete: 0,
        broken: 0,
        got: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let spread = Spread::of((1..=200).rev().map(f64::from).collect());
        assert_eq!((spread.mean, spread.p50, spread.p95, spread.p99), (100.5, 100.0, 190.0, 198.0));
        assert_eq!((Spread::of(vec![7.0]).p99, Spread::of(vec![]).max), (7.0, 0.0));
    }

    #[test]
    fn flows_are_sorted_into_classes_by_their_size() {
        let flow = |size, nanos| Finished { size, nanos };
        let flows = vec![
            flow(1_500_000, 9_000),
            flow(10_000, 1_000),
            flow(10_001, 3_000),
            flow(20_000, 5_000),
        ];
        let series = summed_up(flows, vec![0, PACKET * 2], vec![]);
        let classes: Vec<_> = series.classes.iter().map(|c| (c.from, c.to, c.flows)).collect();
        assert_eq!(classes, [(5_000, 10_000, 1), (10_000, 20_000, 2), (1_000_000, 2_000_000, 1)]);
        assert_eq!(series.classes[1].fct_us.mean, 4.0);
        assert_eq!((series.short_us.mean, series.long_us.mean), (3.0, 9.0));
        assert_eq!((series.queue_packets.mean, series.flows), (1.0, 4));
    }
}
