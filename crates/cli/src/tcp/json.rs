//! Connections as JSON.

use std::net::SocketAddr;

use serde_json::{Value, json};
use uncopy_measure::printable;
use uncopy_tcp_service::Wired;
use uncopy_tcp_service::protocol::StayReason;
use uncopy_tcp_service::state::{DirectionReport, FlowReport, Program, Stayed, Waits};
use uncopy_tcp_shared::phase::At;

use super::look::Look;
use super::programs::Programs;

fn waits(of: Waits) -> Value {
    match of {
        Waits { asleep: true, .. } => "thread".into(),
        Waits { set: true, .. } => "set".into(),
        Waits { .. } => Value::Null,
    }
}

/// The name of a phase.
pub fn phase(at: Option<At>) -> &'static str {
    match at {
        None => "poisoned",
        Some(At::Linux) => "linux",
        Some(At::Offered) => "offered",
        Some(At::Ring) => "ring",
        Some(At::Leaving) => "leaving",
        Some(At::Returned) => "returned",
    }
}

fn wired(of: &Wired) -> Value {
    let [own, peer] = of.addresses.map(|address| address.to_string());
    let [losses, timeouts, probes] = of.again;
    let [stamps, sack, ecn] = of.agreed;
    json!({
        "address": own,
        "peer": peer,
        "state": of.state(),
        "congestion_control": of.control(),
        "rtt_us": of.rtt.0,
        "rtt_var_us": of.rtt.1,
        "mss": of.mss,
        "cwnd_bytes": of.window,
        "rate_bytes_per_s": (of.rate != 0).then_some(of.rate),
        "in_flight": of.in_flight,
        "unacked": of.unacked,
        "unread": of.unread,
        "peer_window": of.peer_window,
        "delivered": of.delivered,
        "marked": of.marked,
        "retransmitted": losses,
        "timeouts": timeouts,
        "probes": probes,
        "timestamps": stamps,
        "sack": sack,
        "ecn": ecn,
        "lane": of.lane,
    })
}

fn way(way: &DirectionReport) -> Value {
    json!({
        "phase": phase(way.at),
        "reason": way.reason.map(StayReason::name),
        "bytes": way.bytes,
        "writes": way.writes,
        "unread": way.unread,
        "waits_for_bytes": waits(way.data),
        "waits_for_room": waits(way.room),
    })
}

/// All of it, as one line.
pub fn text(look: &Look, said: &Programs) -> String {
    let state = &look.state;
    let flows: Vec<Value> = state.flows.iter().map(|one| flow(look, one)).collect();
    let stayed: Vec<Value> = state.stayed.iter().map(|one| stayed(look, one)).collect();
    let programs: Vec<Value> = state.programs.iter().map(|one| program(look, one)).collect();
    let service = json!({
        "name": look.name,
        "pid": state.pid,
        "seconds": look.age(state.since).as_secs_f64(),
    });
    let over: Vec<Value> = state.wired.iter().map(wired).collect();
    let (told, unknown) = said.json();
    let all = json!({
        "service": service,
        "programs": programs,
        "flows": flows,
        "wired": over,
        "stayed": stayed,
        "told": told,
        "unknown": unknown,
    });
    printable::json(&all) + "\n"
}

/// An end of a connection: its program, and its address there.
fn end(look: &Look, program: u64, address: SocketAddr) -> Value {
    json!({
        "address": address.to_string(),
        "pid": look.pid(program),
        "command": look.command(program),
    })
}

/// A connection with both ends here.
fn flow(look: &Look, flow: &FlowReport) -> Value {
    json!({
        "a": end(look, flow.programs[0], flow.addresses[0]),
        "b": end(look, flow.programs[1], flow.addresses[1]),
        "seconds": look.age(flow.since).as_secs_f64(),
        "attached": flow.attached,
        "a_to_b": way(&flow.ways[0]),
        "b_to_a": way(&flow.ways[1]),
    })
}

/// A connection that stays with Linux.
fn stayed(look: &Look, stayed: &Stayed) -> Value {
    json!({
        "end": end(look, stayed.program, stayed.addresses[0]),
        "peer": stayed.addresses[1].to_string(),
        "seconds": look.age(stayed.since).as_secs_f64(),
        "reason": stayed.reason.name(),
    })
}

fn program(look: &Look, program: &Program) -> Value {
    let stayed = StayReason::ALL.into_iter().zip(program.stayed).filter(|(_, n)| *n > 0);
    let stayed: serde_json::Map<String, Value> =
        stayed.map(|(reason, n)| (reason.name().to_owned(), n.into())).collect();
    json!({
        "pid": program.pid,
        "uid": program.uid,
        "command": look.command(program.id),
        "seconds": look.age(program.since).as_secs_f64(),
        "waiting": program.waiting,
        "memory_bytes": program.bytes,
        "stayed": stayed,
    })
}

/// Where no service answers, and why.
pub fn without_service(why: &str, said: &Programs) -> String {
    let (told, unknown) = said.json();
    let none: [Value; 0] = [];
    let all = json!({
        "service": null,
        "error": why,
        "programs": none,
        "flows": none,
        "wired": none,
        "stayed": none,
        "told": told,
        "unknown": unknown,
    });
    printable::json(&all) + "\n"
}
