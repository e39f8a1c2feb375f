//! Rows of `bench echo`: from single windows to medians, JSON and a table.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table};
use serde::{Deserialize, Serialize};

use super::Side;
use super::echo_server::{Checksum, Plan, Touched};
use super::stats::{median, quotient, round, spread};
use crate::{Outcome, units};

/// What `--json` prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The mode's name.
    pub bench: String,
    /// One for each combination of parameters.
    pub rows: Vec<Row>,
}

/// One combination of parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Bytes in a message.
    pub size: usize,
    /// Copies that the server makes of each.
    pub copies: usize,
    /// Connections.
    pub connections: usize,
    /// Threads of the server.
    pub threads: usize,
    /// Pages of each message that it touches.
    pub touched_pages: usize,
    /// In which buffers.
    pub touched_in: Touched,
    /// Whether they are other ones in each message.
    pub touched_moving: bool,
    /// Which copies it reads as a whole.
    pub checksum: Checksum,
    /// Medians without the library.
    pub plain: Numbers,
    /// Medians with it.
    pub uncopy: UncopyNumbers,
    /// Requests a second with it over those without.
    pub ratio: f64,
    /// Requests a second without it and without copies over those without it.
    pub ideal_ratio: f64,
    /// Smallest and largest ratio of the single turns.
    pub ratio_spread: [f64; 2],
    /// CPU time of a request without it over that with it.
    pub cpu_ratio: f64,
    /// Smallest and largest of these of the single turns.
    pub cpu_ratio_spread: [f64; 2],
    /// Messages that were compared byte by byte, on both sides.
    pub verified_messages: u64,
}

/// What is measured on both sides.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Numbers {
    /// Requests answered in a second.
    pub req_per_s: f64,
    /// Smallest and largest of these of the single turns.
    pub req_per_s_spread: [f64; 2],
    /// The server's CPU time for a request.
    pub cpu_us_per_req: f64,
    /// Smallest and largest of these of the single turns.
    pub cpu_us_per_req_spread: [f64; 2],
    /// Median latency.
    pub p50_us: f64,
    /// Latency that one request in a hundred exceeds.
    pub p99_us: f64,
    /// Resident memory at the end.
    pub rss_kb: u64,
    /// The load generator's CPU time for a request: near `1e6 / req_per_s` it is what limits.
    pub load_cpu_us_per_req: f64,
}

/// What is measured under uncopy: of counters, what the timed window added.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UncopyNumbers {
    /// What is measured on both sides.
    #[serde(flatten)]
    pub common: Numbers,
    /// Bytes of copies that were elided.
    pub elided_bytes: u64,
    /// The same for a request.
    pub elided_bytes_per_req: f64,
    /// Page faults on views.
    pub faults: u64,
    /// The same for a request.
    pub faults_per_req: f64,
    /// `UFFDIO_MOVE` calls.
    pub moves: u64,
    /// Registrations and their ends.
    pub registrations: u64,
    /// Events of the memory map.
    pub events: u64,
    /// Calls that touch page tables: moves, registrations and materialized pages.
    pub page_table_calls_per_100_req: f64,
}

/// One timed window.
pub struct Sample {
    /// What is measured on both sides, of this window alone.
    pub numbers: Numbers,
    /// Requests answered.
    pub requests: u64,
    /// What the window added to the library's counters.
    pub counters: BTreeMap<String, u64>,
    /// Messages compared byte by byte.
    pub verified: u64,
}

impl Sample {
    fn counter(&self, name: &str) -> f64 {
        self.counters.get(name).copied().unwrap_or(0) as f64
    }

    fn page_table_calls(&self) -> f64 {
        self.counter("moves") + self.counter("registrations") + self.counter("materialized_pages")
    }
}

/// The windows of one row.
#[derive(Default)]
pub struct Samples {
    plain: Vec<Sample>,
    uncopy: Vec<Sample>,
}

impl Samples {
    /// Those of one side.
    pub fn of(&mut self, side: Side) -> &mut Vec<Sample> {
        match side {
            Side::Plain => &mut self.plain,
            Side::Uncopy => &mut self.uncopy,
        }
    }

    /// Medians, all but the ideal ratio, which other rows have a part in.
    pub fn row(&self, plan: &Plan) -> Outcome<Row> {
        if let Some(stalled) = self.plain.iter().chain(&self.uncopy).find(|s| s.requests == 0) {
            return Err(format!(
                "no request was answered within the timed window (CPU time {} us); make it longer with --seconds",
                stalled.numbers.cpu_us_per_req
            ));
        }
        let counter = |name: &str| median(self.uncopy.iter().map(|s| s.counter(name))) as u64;
        let (plain, uncopy) = (numbers(&self.plain), numbers(&self.uncopy));
        let pairs = |of: fn(&Sample, &Sample) -> f64| {
            spread(self.plain.iter().zip(&self.uncopy).map(|(p, u)| of(p, u)), 3)
        };
        let per_request = |name: &'static str| {
            median(self.uncopy.iter().map(|s| quotient(s.counter(name), s.requests as f64)))
        };
        Ok(Row {
            size: plan.size,
            copies: plan.copies,
            connections: plan.connections,
            threads: plan.cores.len(),
            touched_pages: plan.touch_pages,
            touched_in: plan.touched,
            touched_moving: plan.touch_moving,
            checksum: plan.checksum,
            ratio: round(quotient(uncopy.req_per_s, plain.req_per_s), 3),
            ideal_ratio: 0.0,
            ratio_spread: pairs(|p, u| quotient(u.numbers.req_per_s, p.numbers.req_per_s)),
            cpu_ratio: round(quotient(plain.cpu_us_per_req, uncopy.cpu_us_per_req), 3),
            cpu_ratio_spread: pairs(|p, u| {
                quotient(p.numbers.cpu_us_per_req, u.numbers.cpu_us_per_req)
            }),
            verified_messages: self.plain.iter().chain(&self.uncopy).map(|s| s.verified).sum(),
            plain,
            uncopy: UncopyNumbers {
                common: uncopy,
                elided_bytes: counter("elided_bytes"),
                elided_bytes_per_req: round(per_request("elided_bytes"), 0),
                faults: counter("faults"),
                faults_per_req: round(per_request("faults"), 4),
                moves: counter("moves"),
                registrations: counter("registrations"),
                events: counter("events"),
                page_table_calls_per_100_req: round(
                    median(
                        self.uncopy
                            .iter()
                            .map(|s| 100.0 * quotient(s.page_table_calls(), s.requests as f64)),
                    ),
                    2,
                ),
            },
        })
    }
}

fn numbers(samples: &[Sample]) -> Numbers {
    let of = |pick: fn(&Numbers) -> f64| median(samples.iter().map(|s| pick(&s.numbers)));
    let spread_of = |pick: fn(&Numbers) -> f64, digits| {
        spread(samples.iter().map(|s| pick(&s.numbers)), digits)
    };
    Numbers {
        req_per_s: round(of(|n| n.req_per_s), 1),
        req_per_s_spread: spread_of(|n| n.req_per_s, 1),
        cpu_us_per_req: round(of(|n| n.cpu_us_per_req), 2),
        cpu_us_per_req_spread: spread_of(|n| n.cpu_us_per_req, 2),
        p50_us: round(of(|n| n.p50_us), 1),
        p99_us: round(of(|n| n.p99_us), 1),
        rss_kb: of(|n| n.rss_kb as f64) as u64,
        load_cpu_us_per_req: round(of(|n| n.load_cpu_us_per_req), 2),
    }
}

/// What the server does to the bytes: pages that it touches, and copies that it sums up.
fn touch_text(row: &Row) -> String {
    let mut text = row.touched_pages.to_string();
    if row.touched_moving {
        text.push('~');
    }
    text + match row.checksum {
        Checksum::None => "",
        Checksum::Last => " last",
        Checksum::Every => " every",
    }
}

/// What people read.
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(units::TABLE_STYLE).set_header([
        "size",
        "copies",
        "conns",
        "thr",
        "touch",
        "req/s\nplain",
        "\nuncopy",
        "\nratio",
        "\nideal",
        "cpu\nplain",
        "\nuncopy",
        "p50\nplain",
        "\nuncopy",
        "p99\nplain",
        "\nuncopy",
        "faults",
        "calls",
    ]);
    for row in rows {
        let (plain, uncopy) = (&row.plain, &row.uncopy.common);
        table.add_row([
            units::size(row.size as u64),
            row.copies.to_string(),
            row.connections.to_string(),
            row.threads.to_string(),
            touch_text(row),
            units::grouped(plain.req_per_s as u64),
            units::grouped(uncopy.req_per_s as u64),
            format!("{:.2}", row.ratio),
            if row.ideal_ratio > 0.0 { format!("{:.2}", row.ideal_ratio) } else { "-".to_owned() },
            format!("{:.1}", plain.cpu_us_per_req),
            format!("{:.1}", uncopy.cpu_us_per_req),
            format!("{:.0}", plain.p50_us),
            format!("{:.0}", uncopy.p50_us),
            format!("{:.0}", plain.p99_us),
            format!("{:.0}", uncopy.p99_us),
            row.uncopy.faults.to_string(),
            row.uncopy.page_table_calls_per_100_req.to_string(),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((0, 1));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::echo_server::Allocation;
    use super::*;

    fn sample(req_per_s: f64, elided: u64) -> Sample {
        Sample {
            numbers: Numbers {
                req_per_s,
                req_per_s_spread: [req_per_s; 2],
                cpu_us_per_req: 1.0,
                cpu_us_per_req_spread: [1.0; 2],
                p50_us: 1.0,
                p99_us: 2.0,
                rss_kb: 1,
                load_cpu_us_per_req: 1.0,
            },
            requests: 200,
            counters: [("elided_bytes".to_owned(), elided), ("moves".to_owned(), 2)].into(),
            verified: 10,
        }
    }

    #[test]
    fn a_row_is_made_of_medians_and_its_json_has_the_agreed_shape() {
        let samples = Samples {
            plain: vec![sample(100.0, 0), sample(80.0, 0), sample(120.0, 0)],
            uncopy: vec![sample(300.0, 7), sample(160.0, 9), sample(240.0, 8)],
        };
        let plan = Plan {
            size: 524_288,
            copies: 12,
            connections: 16,
            touch_pages: 0,
            allocation: Allocation::Malloc,
            cores: vec![0],
            ..Plan::default()
        };
        let row = samples.row(&plan).unwrap();
        assert_eq!((row.ratio, row.ratio_spread), (2.4, [2.0, 3.0]));
        assert_eq!(row.plain.req_per_s_spread, [80.0, 120.0]);
        assert_eq!((row.cpu_ratio, row.uncopy.elided_bytes_per_req), (1.0, 0.0));
        assert_eq!((row.uncopy.elided_bytes, row.verified_messages), (8, 60));
        assert_eq!(row.uncopy.page_table_calls_per_100_req, 1.0);
        let json =
            serde_json::to_value(Results { bench: "echo".to_owned(), rows: vec![row] }).unwrap();
        assert_eq!(json["bench"], "echo");
        for key in [
            "size",
            "copies",
            "connections",
            "threads",
            "touched_pages",
            "ratio",
            "ideal_ratio",
            "verified_messages",
        ] {
            assert!(json["rows"][0][key].is_number(), "{key}");
        }
        for key in ["req_per_s", "cpu_us_per_req", "p50_us", "p99_us"] {
            assert!(json["rows"][0]["plain"][key].is_number(), "{key}");
            assert!(json["rows"][0]["uncopy"][key].is_number(), "{key}");
        }
        for key in ["elided_bytes", "faults"] {
            assert!(json["rows"][0]["uncopy"][key].is_number(), "{key}");
        }
    }
}
