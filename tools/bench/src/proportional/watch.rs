//! One side, from beginning to end: its two programs, and what they use from interval to interval.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use uncopy_measure::facts::Facts;
use uncopy_measure::server_process::ServerProcess;
use uncopy_measure::side::Side;
use uncopy_measure::{Failure, cores, medians};

use super::plan::{Plan, Sample, Served};
use super::rows::{Contender, Row};
use super::{client, server};
use crate::rpc::over::network::Network;
use crate::rpc::plan::{Hello, Ready};

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("it can be written")
}

/// Runs the plan on one side, and tells of each interval.
pub fn watch(
    plan: &Plan,
    network: &Network,
    side: Contender,
    repeat: usize,
    mut each: impl FnMut(Row),
) -> Result<(), Failure> {
    // (Also uncopy's sleep: the kernel tells of frames at once.)
    let ends = network.ends(side == Contender::Uncopy);
    let cores = cores::all()?;
    // (Neither has the library in front.)
    let start = |name, what, words: &[String]| {
        let mut command = Side::Plain.own_command(name, Path::new(""))?;
        command.args(words);
        ServerProcess::launch(command, Side::Plain, what, &cores)
    };
    let mut server = start(server::NAME, "server", &[text(plan), text(&ends[0])])?;
    let hello: Hello = server.answer()?;
    let words = [text(plan), text(&ends[1]), text(&hello)];
    let mut clients = start(client::NAME, "clients", &words)?;
    clients.answer::<Ready>()?;
    let mut before = (Instant::now(), server.cpu_ns()?, clients.cpu_ns()?);
    let mut naps = 0;
    for interval in 0..plan.intervals() {
        let sample: Sample = clients.answer().map_err(|e| server.explain(e))?;
        let now = (Instant::now(), server.cpu_ns()?, clients.cpu_ns()?);
        let seconds = (now.0 - before.0).as_secs_f64();
        let cores = |ns: u64| medians::round(medians::quotient(ns as f64 * 1e-9, seconds), 4);
        server.tell("how")?;
        let served: Served = server.answer()?;
        each(Row {
            side,
            repeat,
            step: interval / plan.each(),
            at_s: medians::round((interval + 1) as f64 * plan.interval.as_secs_f64(), 3),
            clients: plan.there(interval),
            lanes: served.lanes,
            naps: served.naps - naps,
            server_cores: cores(now.1 - before.1),
            client_cores: cores(now.2 - before.2),
            due_per_s: medians::round(medians::quotient(sample.due as f64, sample.seconds), 1),
            rpc_per_s: medians::round(medians::quotient(sample.answered as f64, sample.seconds), 1),
            p50_us: sample.p50_us,
            p99_us: sample.p99_us,
            waiting: sample.waiting,
            verified: sample.answered,
            client_facts: if interval + 1 == plan.intervals() / 2 {
                clients.facts()
            } else {
                Facts::new()
            },
            server_facts: if interval + 1 == plan.intervals() / 2 {
                server.facts()
            } else {
                Facts::new()
            },
        });
        naps = served.naps;
        before = now;
    }
    clients.stop()?;
    server.stop()
}
