//! The report as JSON: an object a line, one for each program.

use serde_json::{Map, Value, json};
use uncopy_flow::Sizes;
use uncopy_flow::layout::class_start;
use uncopy_flow::predict::Saving;
use uncopy_measure::printable;

use super::model::{CallSite, End, Input, Path, PathStep, Program, Source, Steps};
use super::prices::Prices;

/// All of them.
pub fn lines(programs: &[Program], prices: &Prices) -> String {
    programs.iter().map(|p| format!("{}\n", printable::json(&program(p, prices)))).collect()
}

/// Those that the prediction goes by, in ns.
fn reckoned(prices: &Prices) -> Value {
    let (from, why) = prices.name();
    json!({
        "from": from,
        "why": why,
        "copy_mb": prices.costs.copy_mb,
        "fault": prices.costs.fault,
        "fill": prices.costs.fill,
        "fresh": prices.costs.fresh,
    })
}

fn program(p: &Program, prices: &Prices) -> Value {
    json!({
        "program": p.path,
        "pids": p.pids,
        "bytes_in": p.bytes_in,
        "bytes_out": p.bytes_out,
        "wall_ns": p.wall_ns,
        "cpu_ns": p.cpu_ns,
        "follow_ns": p.follow_ns,
        "copies": p.copies,
        "copied_bytes": p.copied_bytes,
        "rewritten_bytes": p.rewritten,
        "bounds_met": p.forgot,
        "touches_visible": !p.no_watch,
        "fresh_pages": p.fresh,
        "fresh_cpu_ns": p.fresh_ns.round(),
        "predicted": saving(p.saving()),
        "prices_ns": reckoned(prices),
        "inputs": p.inputs.iter().map(|(e, i)| input(e, i)).collect::<Vec<Value>>(),
        "paths": p.paths.iter().map(path).collect::<Vec<Value>>(),
    })
}

fn saving(s: Saving) -> Value {
    json!({ "bytes": s.bytes.round(), "cpu_ns": s.ns.round() })
}

/// Calls by size: the smallest size of each class, in bytes.
fn sizes(sizes: &Sizes) -> Value {
    let some = sizes.iter().enumerate().filter(|(_, n)| **n > 0);
    some.map(|(c, n)| (class_start(c).to_string(), Value::from(*n))).collect::<Map<_, _>>().into()
}

fn place(p: &CallSite) -> Value {
    json!({ "call": p.call, "function": p.function, "library": p.library })
}

fn end(e: &End) -> Value {
    json!({ "kind": e.kind.name(), "site": place(&e.place) })
}

fn input(e: &End, i: &Input) -> Value {
    json!({
        "from": end(e),
        "calls": i.ops,
        "bytes": i.bytes,
        "sent_bytes": i.forwarded,
        "ended_bytes": i.consumed,
        "held_bytes": i.held(),
        "not_followed_bytes": i.lost,
        "watched": i.probes,
        "watched_bytes": i.watched,
        "touched_bytes": i.touched,
        "touches": i.faults,
    })
}

fn steps(way: &(PathStep, Steps)) -> Value {
    match &way.0 {
        PathStep::Rest => json!({ "step": "rest" }),
        PathStep::Copy(p) => json!({
            "step": "copy",
            "site": place(p),
            "calls": way.1.ops,
            "bytes": way.1.bytes,
            "sizes": sizes(&way.1.sizes),
            "watched_bytes": way.1.watched,
            "touched_bytes": way.1.touched,
            "predicted_elided_bytes": way.1.elided.round(),
        }),
    }
}

fn path(p: &Path) -> Value {
    json!({
        "from": match &p.source {
            Source::Program => Value::Null,
            Source::Input(e) => end(e),
            Source::Pass(kind) => json!({ "kind": kind.name(), "by_the_kernel": true }),
        },
        "way": p.way.iter().map(steps).collect::<Vec<Value>>(),
        "to": p.sink.output().map(end),
        "calls": p.ops,
        "bytes": p.bytes,
        "sizes": sizes(&p.sizes),
        "copies": p.copies(),
        "copies_after_rest": p.copies_after_rest(),
        "kernel_copies": p.kernel_copies(),
        "watched_bytes": p.watched,
        "touched_bytes": p.touched,
        "predicted": saving(p.saving),
    })
}
