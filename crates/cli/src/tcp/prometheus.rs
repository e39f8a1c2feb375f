//! Connections in Prometheus' text format (version 0.0.4).

use std::collections::BTreeMap;
use std::fmt::Write;

use uncopy_tcp_service::Wired;
use uncopy_tcp_service::protocol::StayReason;

use super::json::phase;
use super::look::Look;
use crate::stat::prometheus::{escaped, head};

fn over_wire(text: &mut String, look: &Look) {
    let all = &look.state.wired;
    let name = "uncopy_tcp_wired_connections";
    head(text, name, "gauge", "Connections over the wire, by state and congestion control.");
    let mut states: BTreeMap<[&str; 2], u64> = BTreeMap::new();
    all.iter().for_each(|of| *states.entry([of.state(), of.control()]).or_default() += 1);
    for ([state, control], count) in states {
        let _ = writeln!(text, "{name}{{state=\"{state}\",control=\"{control}\"}} {count}");
    }
    type Sum = (&'static str, &'static str, fn(&Wired) -> u64);
    const SUMS: [Sum; 5] = [
        (
            "delivered_bytes",
            "Bytes of open connections over the wire that were acknowledged.",
            |of| of.delivered,
        ),
        ("unacked_bytes", "Bytes of theirs that are not acknowledged.", |of| of.unacked.into()),
        ("marked_bytes", "Bytes of theirs whose acknowledgement echoed congestion.", |of| {
            of.marked
        }),
        ("retransmitted", "Losses of theirs that duplicates or SACK showed.", |of| {
            of.again[0].into()
        }),
        ("timeouts", "Retransmission timeouts of theirs.", |of| of.again[1].into()),
    ];
    for (name, meaning, of) in SUMS {
        // (They go down when a connection is closed: so gauges.)
        let name = format!("uncopy_tcp_wired_open_{name}");
        head(text, &name, "gauge", meaning);
        let _ = writeln!(text, "{name} {}", all.iter().map(of).sum::<u64>());
    }
}

/// All of it: sums of each program's connections. (A line for each connection would be a series for
/// each.)
pub fn text(look: &Look) -> String {
    let state = &look.state;
    let mut text = String::new();
    let labels =
        |id: u64| format!("pid=\"{}\",command=\"{}\"", look.pid(id), escaped(look.command(id)));
    head(
        &mut text,
        "uncopy_tcp_directions",
        "gauge",
        "Directions in which programs send, by where their bytes go and why.",
    );
    let mut places: BTreeMap<String, u64> = BTreeMap::new();
    for (id, way) in state.flows.iter().flat_map(|flow| flow.programs.into_iter().zip(&flow.ways)) {
        let reason = way.reason.map_or("", StayReason::name);
        let key = format!("{},phase=\"{}\",reason=\"{reason}\"", labels(id), phase(way.at));
        *places.entry(key).or_default() += 1;
    }
    for (labels, count) in places {
        let _ = writeln!(text, "uncopy_tcp_directions{{{labels}}} {count}");
    }
    type Sum = (&'static str, &'static str, fn(&uncopy_tcp_service::state::DirectionReport) -> u64);
    const SUMS: [Sum; 3] = [
        ("bytes", "Bytes that open connections of a program have sent through rings.", |way| {
            way.bytes
        }),
        ("writes", "Times that they put bytes there.", |way| way.writes),
        ("unread_bytes", "Bytes in rings that the other ends have not read.", |way| {
            way.unread.into()
        }),
    ];
    for (name, meaning, of) in SUMS {
        // (They go down when a connection is closed: so gauges.)
        let name = format!("uncopy_tcp_open_{name}");
        head(&mut text, &name, "gauge", meaning);
        for program in &state.programs {
            let ways =
                state.flows.iter().flat_map(|flow| flow.programs.into_iter().zip(&flow.ways));
            let sum: u64 = ways.filter(|(id, _)| *id == program.id).map(|(_, way)| of(way)).sum();
            let _ = writeln!(text, "{name}{{{}}} {sum}", labels(program.id));
        }
    }
    over_wire(&mut text, look);
    let name = "uncopy_tcp_memory_bytes";
    head(&mut text, name, "gauge", "Memory that a program's connections use.");
    for program in &state.programs {
        let _ = writeln!(text, "{name}{{{}}} {}", labels(program.id), program.bytes);
    }
    let name = "uncopy_tcp_stayed_total";
    head(&mut text, name, "counter", "Connections of a program that stayed with Linux, by reason.");
    for program in &state.programs {
        for (reason, n) in StayReason::ALL.into_iter().zip(program.stayed).filter(|(_, n)| *n > 0) {
            let labels = labels(program.id);
            let _ = writeln!(text, "{name}{{{labels},reason=\"{}\"}} {n}", reason.name());
        }
    }
    text
}
