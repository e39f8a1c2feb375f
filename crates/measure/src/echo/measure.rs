//! The rows of the echo server: how many, in which order, for how long, and what they come to.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::args::EchoArgs;
use super::plan::Plan;
use super::rows::{Results, Row, Samples};
use super::summary::summary;
use super::turns::Contender;
use crate::failure::Failure;
use crate::medians::{median, quotient, round};
use crate::pace::Pace;
use crate::side::Side;
use crate::{cores, progress, units};

/// Size, connections, threads and pages touched: what a baseline without copies is shared by.
type Group = (usize, usize, usize, usize);

fn group(plan: &Plan) -> Group {
    (plan.size, plan.connections, plan.cores.len(), plan.touch_pages)
}

/// Every combination of the parameters, each with its cores.
fn plans(args: &EchoArgs, available: &[usize], load_core: usize) -> Result<Vec<Plan>, Failure> {
    let server_core = args.server_core.unwrap_or(available[0]);
    let mut plans = Vec::new();
    for &size in &args.sizes {
        for &connections in &args.connections {
            for &threads in &args.threads {
                for &touch_pages in &args.touch_pages {
                    for &copies in &args.copies {
                        let cores = cores::plan(available, threads, server_core, load_core)?;
                        plans.push(Plan {
                            size,
                            copies,
                            connections,
                            touch_pages,
                            touched: args.touched,
                            touch_moving: args.touch_moving,
                            checksum: args.checksum,
                            allocation: args.alloc,
                            cores: cores.server,
                        });
                    }
                }
            }
        }
    }
    Ok(plans)
}

/// The samples of a row, and what its baseline took, which makes no copy.
#[derive(Default)]
struct Measured {
    samples: Samples,
    baseline: Vec<f64>,
}

impl Measured {
    /// Has all sides of a row serve in turns, each with its plan, and adds what they took.
    fn race(
        &mut self,
        args: &EchoArgs,
        entries: &[(Side, &Plan)],
        window: Duration,
        library: &Path,
    ) -> Result<(), Failure> {
        let copies = entries[0].1.copies;
        let mut contenders = entries
            .iter()
            .map(|(side, plan)| Contender::start(args, plan, *side, library))
            .collect::<Result<Vec<_>, Failure>>()?;
        Contender::race(&mut contenders, window)?;
        for ((side, plan), contender) in entries.iter().zip(contenders) {
            let sample = contender.end(args, library)?;
            if plan.copies == copies {
                self.samples.add(*side, sample);
            } else {
                self.baseline.push(sample.numbers.cpu_us_per_req);
            }
        }
        Ok(())
    }
}

/// The most that elision could gain: the CPU time without it, over the `least` that there is.
fn elision_most(row: &Row, least: Option<&f64>) -> Option<f64> {
    let (side, least) = row.unelided.as_ref().zip(least)?;
    Some(round(quotient(side.common.cpu_us_per_req, *least), 3))
}

/// Measures every row.
pub fn measure(args: &EchoArgs, library: &Path) -> Result<Results, Failure> {
    let available = cores::all()?;
    let load_core = args.load_core.unwrap_or(*available.get(1).unwrap_or(&available[0]));
    let plans = plans(args, &available, load_core)?;
    let args = &args.within_budget();
    cores::pin(load_core)?;

    let bar = progress::bar(plans.len() * args.repeats);
    let beside: Duration = args.warmup * args.sides.len() as u32;
    let begin = Instant::now();
    let mut pace = args.allowed.map(|time| Pace::new(begin, time, plans.len(), beside));
    let mut baselines: BTreeMap<Group, f64> = BTreeMap::new();
    let mut rows: Vec<(Row, &Plan)> = Vec::new();
    let mut left_out = Vec::new();
    for plan in &plans {
        let window = match &mut pace {
            None => Some(args.seconds),
            Some(pace) => pace.next_row(Instant::now(), args.sides.len(), args.seconds),
        };
        let Some(window) = window else {
            left_out.push(format!("{}, {} copies", units::size(plan.size as u64), plan.copies));
            bar.inc(args.repeats as u64);
            continue;
        };
        let listed = plans.iter().any(|other| other.copies == 0 && group(other) == group(plan));
        let wants_baseline = args.most
            && args.sides.contains(&Side::NoElision)
            && !listed
            && !baselines.contains_key(&group(plan));
        let without = wants_baseline.then(|| Plan { copies: 0, ..plan.clone() });
        let mut measured = Measured::default();
        for repeat in 0..args.repeats {
            bar.set_message(format!("{}, {} copies", units::size(plan.size as u64), plan.copies));
            let mut entries: Vec<(Side, &Plan)> =
                args.sides.iter().map(|side| (*side, plan)).collect();
            entries.rotate_left(repeat % args.sides.len());
            entries.extend(without.iter().map(|without| (Side::NoElision, without)));
            let began = Instant::now();
            measured.race(args, &entries, window, library)?;
            bar.inc(1);
            if let Some(pace) = &mut pace
                && !pace.again(Instant::now(), began, window * args.sides.len() as u32)
            {
                bar.inc((args.repeats - repeat - 1) as u64);
                break;
            }
        }
        let row = measured.samples.row(plan)?;
        if args.allowed.is_none() && plans.len() > 1 {
            progress::say(&bar, &summary(&row));
        }
        if let (0, Some(without)) = (plan.copies, &row.unelided) {
            baselines.insert(group(plan), without.common.cpu_us_per_req);
        } else if wants_baseline {
            baselines.insert(group(plan), median(measured.baseline));
        }
        rows.push((row, plan));
    }
    bar.finish_and_clear();
    let rows = rows.into_iter().map(|(mut row, plan)| {
        row.elision_most = elision_most(&row, baselines.get(&group(plan)));
        row
    });
    Ok(Results { bench: "echo".to_owned(), rows: rows.collect(), left_out })
}
