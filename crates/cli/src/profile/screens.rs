//! A program for the pictures of reports (see `crate::screens`).

use uncopy_flow::layout::{CLASSES, Kind};
use uncopy_flow::predict::Saving;

use super::model::{CallSite, End, Input, Path, PathStep, Program, Sink, Source, Steps};

fn place(call: &str, function: &str) -> CallSite {
    CallSite { call: call.into(), function: function.into(), library: "lib<x>.so".into() }
}

fn path(source: Source, way: Vec<(PathStep, Steps)>, bytes: u64, ns: f64) -> Path {
    let sink = Sink::Output(End { kind: Kind::Socket, place: place("send", "reply+0x10") });
    let mut sizes = [0; CLASSES];
    sizes[4] = 100;
    let saving = Saving { bytes: bytes as f64, ns };
    Path {
        source,
        way,
        sink,
        ops: 100,
        bytes,
        sizes,
        watched: 4096,
        touched: 64,
        touched_first: 0.0,
        inputs: 100.0,
        saving,
    }
}

/// It relays, answers, and makes some bytes of its own.
pub fn programs() -> Vec<Program> {
    let end = End { kind: Kind::Socket, place: place("recv", "request+0x20") };
    let steps = Steps {
        ops: 100,
        bytes: 6 << 20,
        sizes: [0; CLASSES],
        through: 6 << 20,
        watched: 4096,
        touched: 64,
        elided: f64::from(5 << 20),
    };
    let copy = || (PathStep::Copy(place("memcpy", "collect+0x4")), steps);
    let relay = path(Source::Input(end.clone()), vec![copy(), copy()], 6 << 20, 2.5e6);
    let stored = path(
        Source::Input(end.clone()),
        vec![copy(), (PathStep::Rest, steps), copy()],
        2 << 20,
        0.0,
    );
    let upload = path(Source::Input(end.clone()), vec![copy()], 3 << 20, 1.5e6);
    let upload = Path { sink: Sink::Program, ..upload };
    let own = path(Source::Program, vec![], 1 << 10, 0.0);
    let passed = path(Source::Pass(Kind::File), vec![], 512, 0.0);
    let input = Input {
        ops: 200,
        bytes: 12 << 20,
        forwarded: 8 << 20,
        consumed: 7 << 19,
        lost: 1 << 10,
        probes: 9,
        watched: 4096,
        touched: 64,
        faults: 1,
    };
    vec![Program {
        path: "/usr/bin/re'lay".into(),
        pids: vec![7, 8],
        bytes_in: 12 << 20,
        bytes_out: 8 << 20,
        cpu_ns: 40_000_000,
        follow_ns: 1_000_000,
        wall_ns: 2_000_000_000,
        copies: 400,
        copied_bytes: 16 << 20,
        rewritten: 4096,
        fresh: 5000,
        fresh_ns: 6e6,
        forgot: 1,
        no_watch: false,
        inputs: vec![(end, input)],
        paths: vec![relay, upload, stored, own, passed],
    }]
}
