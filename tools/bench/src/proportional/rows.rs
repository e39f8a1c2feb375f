//! Rows of `uncopy-bench proportional`, and what people read of them: medians of the intervals with
//! as many clients.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table};
use serde::{Deserialize, Serialize};
use uncopy_measure::facts::Facts;
use uncopy_measure::machine::Machine;
use uncopy_measure::medians::median;
use uncopy_measure::units;

use super::args::ProportionalArgs;
use super::plan::Plan;

/// The contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contender {
    /// Threads over sockets.
    Linux,
    /// The same once more: what it differs by is noise.
    Again,
    /// Lanes.
    Uncopy,
}

impl Contender {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Linux, Self::Again, Self::Uncopy];

    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux => "Linux",
            Self::Again => "Linux, again",
            Self::Uncopy => "uncopy",
        }
    }
}

/// One interval of one side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The contender.
    pub side: Contender,
    /// Which time it is.
    pub repeat: usize,
    /// Clients have come or gone so often before.
    pub step: usize,
    /// When it ended, from the beginning.
    pub at_s: f64,
    /// Clients that were there.
    pub clients: usize,
    /// Lanes that ran at its end. None: it has threads.
    pub lanes: Option<usize>,
    /// How often lanes went to sleep.
    pub naps: u64,
    /// Cores that the server used: processor time over time.
    pub server_cores: f64,
    /// Cores that all clients used. (The kernel's work on a frame before the server's program sees
    /// it is done in the sender's time.)
    pub client_cores: f64,
    /// Requests a second that were due.
    pub due_per_s: f64,
    /// Answers a second.
    pub rpc_per_s: f64,
    /// Median latency, from when a request was due. 0: nothing was answered.
    pub p50_us: f64,
    /// Latency that one in a hundred exceeds.
    pub p99_us: f64,
    /// Requests that were due and not answered at its end.
    pub waiting: u64,
    /// Answers that were compared: all.
    pub verified: u64,
    /// The facts of the clients' program and sockets: in the middle, when all are there.
    #[serde(default, skip_serializing_if = "Facts::is_empty")]
    pub client_facts: Facts,
    /// The facts of the server, likewise.
    #[serde(default, skip_serializing_if = "Facts::is_empty")]
    pub server_facts: Facts,
}

/// The steps: for each, which rows of a side belong to it, of all times that it was measured.
fn steps(rows: &[Row]) -> Vec<(Contender, Vec<&Row>)> {
    let mut steps: BTreeMap<(Contender, usize), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        steps.entry((row.side, row.step)).or_default().push(row);
    }
    steps.into_iter().map(|((side, _), of)| (side, of)).collect()
}

/// A line for each step of each side.
pub fn table(rows: &[Row]) -> Table {
    let header = [
        "server",
        "clients",
        "due/s",
        "answered/s",
        "lanes",
        "server's cores",
        "clients'",
        "p50, us",
        "p99",
        "worst p99",
    ];
    let mut table = crate::table::table(&header, 120);
    for (side, of) in steps(rows) {
        let middle = |pick: fn(&Row) -> f64| median(of.iter().map(|row| pick(row)));
        let worst = of.iter().map(|row| row.p99_us).fold(0.0, f64::max);
        let lanes: Vec<usize> = of.iter().filter_map(|row| row.lanes).collect();
        let lanes = match (lanes.iter().min(), lanes.iter().max()) {
            (Some(a), Some(b)) if a < b => format!("{a} to {b}"),
            (Some(a), _) => a.to_string(),
            _ => "-".into(),
        };
        table.add_row([
            side.name().to_owned(),
            of[0].clients.to_string(),
            units::grouped(middle(|row| row.due_per_s) as u64),
            units::grouped(middle(|row| row.rpc_per_s) as u64),
            lanes,
            format!("{:.3}", middle(|row| row.server_cores)),
            format!("{:.3}", middle(|row| row.client_cores)),
            format!("{:.1}", middle(|row| row.p50_us)),
            format!("{:.1}", middle(|row| row.p99_us)),
            format!("{worst:.1}"),
        ]);
    }
    table.column_iter_mut().skip(1).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    table
}

/// How it was measured, and on what.
pub fn notes(args: &ProportionalArgs, plan: &Plan, rows: &[Row]) -> String {
    format!(
        "Clients of {} connections and {} requests a second each, of {} bytes, come and go every \
         {} s; the server works {} cycles for each, in at most {}\n\
         lanes (uncopy, AF_XDP) or threads (Linux, asleep when idle). Medians of intervals of {} \
         s, {} times, the servers in turns. Latency counts from when a request was due. Cores:\n\
         processor time over time; the kernel receives a frame in its sender's time. Clients are \
         Linux' on both sides, and share the machine's cores with\n\
         the server: a second lane gives it another core only as far as they leave one. Processor: \
         {}. All {} answers were compared, and right.\n",
        plan.connections,
        units::grouped(plan.rate as u64),
        plan.size,
        plan.step.as_secs_f64(),
        units::grouped(args.work),
        plan.lanes,
        plan.interval.as_secs_f64(),
        args.repeats,
        Machine::own().cpu,
        units::grouped(rows.iter().map(|row| row.verified).sum()),
    )
}

/// A row of fixed numbers.
#[cfg(test)]
pub fn fixed(side: Contender, interval: usize, clients: usize) -> Row {
    let load = clients as f64;
    Row {
        side,
        repeat: 0,
        step: interval,
        at_s: (interval + 1) as f64,
        clients,
        lanes: (side == Contender::Uncopy).then_some(1 + clients / 2),
        naps: 3,
        server_cores: 0.3 * load,
        client_cores: 0.1 * load,
        due_per_s: 6000.0 * load,
        rpc_per_s: 5999.0 * load,
        p50_us: 40.0 + load,
        p99_us: 80.0 + interval as f64,
        waiting: 1,
        verified: 100,
        client_facts: Facts::new(),
        server_facts: Facts::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_a_step_belong_together_whenever_they_were_measured() {
        let rows: Vec<Row> = [(Contender::Linux, [0, 1, 1, 0]), (Contender::Uncopy, [0, 1, 1, 0])]
            .into_iter()
            .flat_map(|(side, all)| {
                all.into_iter()
                    .enumerate()
                    .map(move |(i, n)| Row { step: [0, 1, 1, 2][i], ..fixed(side, i, n) })
            })
            .collect();
        let steps = steps(&rows);
        let shape: Vec<(Contender, usize, usize)> =
            steps.iter().map(|(side, of)| (*side, of[0].clients, of.len())).collect();
        assert_eq!(
            shape[..3],
            [(Contender::Linux, 0, 1), (Contender::Linux, 1, 2), (Contender::Linux, 0, 1)]
        );
        assert_eq!(
            shape[3..],
            [(Contender::Uncopy, 0, 1), (Contender::Uncopy, 1, 2), (Contender::Uncopy, 0, 1)]
        );
        let text = table(&rows).to_string();
        // The worst of two intervals.
        assert!(text.contains("82.0"), "{text}");
    }
}
