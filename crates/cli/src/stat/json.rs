//! The statistics as JSON: an object a line, one for each program.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use uncopy_counters::{Snapshot, connections};
use uncopy_measure::printable;

use super::process;
use super::program::Site;
use super::symbols::Symbols;
use super::text::reasons;
use super::view::View;

/// All of them.
pub fn lines(views: &[View], symbols: &mut HashMap<u32, Symbols>) -> String {
    views.iter().map(|v| format!("{}\n", printable::json(&object(v, symbols)))).collect()
}

fn object(view: &View, symbols: &mut HashMap<u32, Symbols>) -> Value {
    let p = &view.program;
    let counters: Map<String, Value> = view.rows().map(|r| (r.0.to_owned(), r.1.into())).collect();
    let rates: Map<String, Value> =
        view.rows().filter_map(|r| Some((r.0.to_owned(), r.2?.into()))).collect();
    let mut symbols = symbols.get_mut(&p.pid);
    let sites: Vec<Value> = p.sites.iter().map(|s| site(s, symbols.as_deref_mut())).collect();
    json!({
        "pid": p.pid,
        "command": p.command,
        "running_s": process::age(p.start_time),
        "interval_s": view.seconds,
        "counters": counters,
        "per_second": rates,
        "connections": {
            "by_ring": p.counters.tcp_connections,
            "by_linux": by_linux(&p.counters),
        },
        "sites": sites,
    })
}

/// How many connections stayed with Linux, by reason.
pub fn by_linux(counters: &Snapshot) -> Map<String, Value> {
    let stayed = connections::stayed(counters).into_iter();
    stayed.map(|(of, n)| (of.name.to_owned(), n.into())).collect()
}

fn site(s: &Site, symbols: Option<&mut Symbols>) -> Value {
    let place = symbols.map(|all| all.place(s.caller));
    let why: Map<String, Value> = reasons(s).map(|(n, c)| (n.to_owned(), c.into())).collect();
    json!({
        "address": format!("{:#x}", s.caller),
        "function": place.as_ref().map(|p| &p.function),
        "library": place.as_ref().map(|p| &p.library),
        "class_bytes": s.class,
        "decision": s.decision().name(),
        "copies": s.seen(),
        "elided_copies": s.elided,
        "elided_bytes": s.elided_bytes,
        "touched_pages": s.touched_pages,
        "faults": s.faults,
        "credit_ns": s.credit,
        "pause_left": s.pause_left,
        "main_reason": s.main_reason(),
        "last_reason": s.last_reason(),
        "not_elided": why,
    })
}
