//! Connections, for people.

use std::fmt::Write;
use std::time::Duration;

use comfy_table::{CellAlignment, Table};
use uncopy_counters::connections;
use uncopy_measure::printable::printable;
use uncopy_measure::units::{self, grouped, rough_size};
use uncopy_tcp_service::Wired;
use uncopy_tcp_service::protocol::StayReason;
use uncopy_tcp_service::state::{DirectionReport, FlowReport, Program, Waits};
use uncopy_tcp_shared::phase::At;

use super::look::Look;
use super::rates::{OverWire, Rate};

/// A length of time, roughly.
fn age(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

fn end(look: &Look, flow: &FlowReport, side: usize) -> String {
    let id = flow.programs[side];
    format!("{} {}[{}]", flow.addresses[side], printable(look.command(id)), look.pid(id))
}

fn waits(of: Waits, what: &str) -> Option<String> {
    match of {
        Waits { asleep: true, .. } => Some(format!("a thread sleeps until there {what}")),
        Waits { set: true, .. } => Some(format!("a set waits until there {what}")),
        Waits { .. } => None,
    }
}

/// Why a connection is Linux's, and what can be done.
pub fn why(name: &str) -> String {
    connections::stays(name)
        .map_or(name.to_owned(), |of| format!("{name} ({}; {})", of.text, of.next))
}

/// Where a direction's bytes go, and what of it is worth a word.
fn way(way: &DirectionReport) -> String {
    let place = match (way.at, way.reason) {
        (None, _) => "poisoned: a program wrote what is no phase".to_owned(),
        (Some(At::Offered), _) => "ring, offered".to_owned(),
        (_, None) => "ring".to_owned(),
        (_, Some(reason)) => format!("Linux, {} ({})", reason.name(), reason.text()),
    };
    let mut words = vec![place];
    if way.writes > 0 {
        words.push(format!("{} in {} writes", rough_size(way.bytes as f64), grouped(way.writes)));
    }
    if way.unread > 0 {
        words.push(format!("{} unread", rough_size(way.unread.into())));
    }
    words.extend(waits(way.data, "are bytes"));
    words.extend(waits(way.room, "is room"));
    words.join(", ")
}

fn milliseconds(microseconds: u32) -> String {
    format!("{}.{:03}", microseconds / 1000, microseconds % 1000)
}

/// A connection over the wire, as `ss -ti` has it.
fn wired(of: &Wired) -> String {
    let size = |bytes: u32| rough_size(bytes.into());
    let mut words = vec![
        of.control().to_owned(),
        format!("rtt {}/{} ms", milliseconds(of.rtt.0), milliseconds(of.rtt.1)),
        format!("mss {}", of.mss),
        match of.rate {
            0 => format!("cwnd {}", size(of.window)),
            rate => format!("rate {}/s, cwnd {}", rough_size(rate as f64), size(of.window)),
        },
        format!("unacked {}", size(of.unacked)),
        format!("delivered {}", rough_size(of.delivered as f64)),
    ];
    let some = [("in flight", of.in_flight), ("unread", of.unread)];
    words.extend(
        some.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{what} {}", size(*n))),
    );
    let [losses, timeouts, probes] = of.again;
    for (what, n) in [("retransmitted", losses), ("timeouts", timeouts), ("probes", probes)] {
        if n > 0 {
            words.push(format!("{what} {}", grouped(n.into())));
        }
    }
    if of.marked > 0 {
        words.push(format!("marked {}", rough_size(of.marked as f64)));
    }
    words.push(format!("peer's window {}", size(of.peer_window)));
    let agreed = ["timestamps", "sack", "ecn"].into_iter().zip(of.agreed);
    words.extend(agreed.filter(|(_, agreed)| *agreed).map(|(what, _)| what.to_owned()));
    words.push(format!("lane {}", of.lane));
    words.join(", ")
}

/// All of them, as `ss -ti` has them: a line for each connection, and one for each direction.
pub fn flows(look: &Look) -> String {
    let state = &look.state;
    let mut text = format!(
        "@{} [{}], for {}: {} programs, {} connections with both ends here, {} over the wire, {} \
         by Linux\n",
        look.name,
        state.pid,
        age(look.age(state.since)),
        state.programs.len(),
        grouped(state.flows.len() as u64),
        grouped(state.wired.len() as u64),
        grouped(state.stayed.len() as u64),
    );
    for flow in &state.flows {
        let taken = match flow.attached {
            [true, true] => "",
            _ => ", not taken up by both programs yet",
        };
        let _ = writeln!(
            text,
            "{} <-> {}, for {}{taken}\n    -> {}\n    <- {}",
            end(look, flow, 0),
            end(look, flow, 1),
            age(look.age(flow.since)),
            way(&flow.ways[0]),
            way(&flow.ways[1]),
        );
    }
    for of in &state.wired {
        let [own, peer] = of.addresses;
        let _ =
            writeln!(text, "{own} <-> {peer}, over the wire, {}\n    {}", of.state(), wired(of));
    }
    for stayed in &state.stayed {
        let _ = writeln!(
            text,
            "{} {}[{}] <-> {}, for {}\n    Linux, {}",
            stayed.addresses[0],
            printable(look.command(stayed.program)),
            look.pid(stayed.program),
            stayed.addresses[1],
            age(look.age(stayed.since)),
            why(stayed.reason.name()),
        );
    }
    let several = state.programs.iter().any(|program| program.uid != state.programs[0].uid);
    for one in &state.programs {
        let _ = writeln!(text, "{}", program(look, one, several));
    }
    text
}

/// A program's line; `several`: of several users.
fn program(look: &Look, program: &Program, several: bool) -> String {
    let whose = if several { format!(" of user {}", program.uid) } else { String::new() };
    let stayed = StayReason::ALL.into_iter().zip(program.stayed).filter(|(_, n)| *n > 0);
    let stayed: Vec<String> =
        stayed.map(|(reason, n)| format!("{} {}", grouped(n), reason.name())).collect();
    let stayed = if stayed.is_empty() {
        String::new()
    } else {
        format!(", ever by Linux: {}", stayed.join(", "))
    };
    format!(
        "program {}[{}]{whose}, for {}: {} of memory, {} ends wait{stayed}",
        printable(look.command(program.id)),
        program.pid,
        age(look.age(program.since)),
        rough_size(program.bytes as f64),
        grouped(program.waiting),
    )
}

/// The busiest, as many as there is room for.
pub fn top(look: &Look, rates: &[Rate], over: &[OverWire], lines: usize) -> String {
    let state = &look.state;
    let sum = |of: fn(&Rate) -> f64| rates.iter().map(of).sum::<f64>();
    let mut text = format!(
        "@{}: {} programs, {} connections here, {} by Linux; {} writes/s, {}/s\n",
        look.name,
        state.programs.len(),
        grouped(state.flows.len() as u64),
        grouped(state.stayed.len() as u64),
        grouped(sum(|r| r.writes[0] + r.writes[1]) as u64),
        rough_size(sum(|r| r.bytes[0] + r.bytes[1])),
    );
    // (Three lines of the table's own, one above it, one for the cursor; two for each connection.)
    let shown = rates.iter().take(lines.saturating_sub(5) / 2);
    let _ = writeln!(text, "{}", here(look, shown));
    let left = lines.saturating_sub(text.lines().count() + 4);
    if !over.is_empty() && left > 0 {
        let _ = writeln!(text, "{}", over_the_wire(look, over.iter().take(left)));
    }
    text
}

/// The connections with both ends here: a line for each direction.
fn here<'a>(look: &Look, rates: impl Iterator<Item = &'a Rate>) -> Table {
    let mut table = Table::new();
    table.load_style(units::TABLE_STYLE);
    table.set_header(["FROM", "TO", "BY", "WRITES/s", "BYTES/s", "UNREAD", "WAITS"]);
    for rate in rates {
        let flow = &look.state.flows[rate.flow];
        for (from, to) in [(0, 1), (1, 0)] {
            let way = &flow.ways[from];
            let by = match way.reason {
                None if way.at.is_some() => "ring",
                None => "poisoned",
                Some(reason) => reason.name(),
            };
            let waits = match (way.data, way.room) {
                (Waits { asleep: true, .. }, _) | (_, Waits { asleep: true, .. }) => "thread",
                (Waits { set: true, .. }, _) | (_, Waits { set: true, .. }) => "set",
                _ => "",
            };
            table.add_row([
                end(look, flow, from),
                end(look, flow, to),
                by.to_owned(),
                grouped(rate.writes[from] as u64),
                rough_size(rate.bytes[from]),
                rough_size(way.unread.into()),
                waits.to_owned(),
            ]);
        }
    }
    for column in table.column_iter_mut().skip(3).take(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The connections over the wire, a line each.
fn over_the_wire<'a>(look: &Look, over: impl Iterator<Item = &'a OverWire>) -> Table {
    let mut table = Table::new();
    table.load_style(units::TABLE_STYLE);
    table.set_header([
        "OVER THE WIRE",
        "PEER",
        "STATE",
        "RTT ms",
        "DELIVERED/s",
        "AGAIN/s",
        "UNACKED",
    ]);
    for rate in over {
        let of = &look.state.wired[rate.flow];
        table.add_row([
            of.addresses[0].to_string(),
            of.addresses[1].to_string(),
            of.state().to_owned(),
            milliseconds(of.rtt.0),
            rough_size(rate.delivered),
            grouped(rate.again as u64),
            rough_size(of.unacked.into()),
        ]);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
