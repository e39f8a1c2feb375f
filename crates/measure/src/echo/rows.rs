//! Rows of `bench echo`: from single windows to medians and JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::plan::{Checksum, Places, Plan, Touched};
use crate::facts::Facts;
use crate::failure;
use crate::failure::Failure;
use crate::medians::{median, quotient, round, spread};
use crate::side::Side;

/// The results that `--json` prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The mode's name.
    pub bench: String,
    /// One for each combination of parameters.
    pub rows: Vec<Row>,
    /// Rows for which no time was left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
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
    /// The buffers whose pages are touched.
    pub touched_in: Touched,
    /// Whether they are other ones in each message.
    pub touched_moving: bool,
    /// Which copies it reads as a whole.
    pub checksum: Checksum,
    /// Medians without the library.
    pub plain: EchoFigures,
    /// The plain server once more: what it differs by is noise.
    pub again: Compared,
    /// The figures with glibc's memory kept.
    pub kept: Option<Compared>,
    /// uncopy's allocator alone: nothing elided, nothing sent by reference, libc's copies. (Not in
    /// older results.)
    pub placed: Option<Compared>,
    /// uncopy without elision and without sending by reference.
    pub unelided: Option<Compared>,
    /// Medians with it.
    pub uncopy: UncopyNumbers,
    /// Requests a second with it over those without.
    pub ratio: f64,
    /// Smallest and largest ratio of the single turns.
    pub ratio_spread: [f64; 2],
    /// CPU time of a request without it over that with it.
    pub cpu_ratio: f64,
    /// Smallest and largest of these of the single turns.
    pub cpu_ratio_spread: [f64; 2],
    /// CPU time of a request of uncopy without elision over that with it: the gain of elision
    /// itself.
    pub elision_cpu_ratio: Option<f64>,
    /// The same for requests a second.
    pub elision_ratio: Option<f64>,
    /// CPU time of a request of uncopy without elision over that of the same server where no copy
    /// is made: the most that elision could gain.
    pub elision_most: Option<f64>,
    /// CPU time of a request of uncopy's allocator alone over that with faster copies: the gain of
    /// `--copies` itself.
    pub copies_cpu_ratio: Option<f64>,
    /// Messages that were compared byte by byte, on all sides.
    pub verified_messages: u64,
    /// Times that fresh servers of all sides were measured. (0 in older results: they do not say.)
    #[serde(default)]
    pub times: usize,
    /// The facts of each side's server. (Not in older results.)
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub servers: BTreeMap<Side, Facts>,
}

/// Figures that are measured on every side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EchoFigures {
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
    /// Where its buffers lay in the last turn.
    pub places: Places,
}

/// A side beside plain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Compared {
    /// The figures.
    #[serde(flatten)]
    pub common: EchoFigures,
    /// Its requests a second over plain's.
    pub ratio: f64,
    /// Smallest and largest of these of the single turns.
    pub ratio_spread: [f64; 2],
    /// Plain's CPU time of a request over its own.
    pub cpu_ratio: f64,
    /// Smallest and largest of these of the single turns.
    pub cpu_ratio_spread: [f64; 2],
}

/// Figures that are measured under uncopy: of counters, what the timed window added.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UncopyNumbers {
    /// Figures that are measured on both sides.
    #[serde(flatten)]
    pub common: EchoFigures,
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
    /// Figures that are measured on both sides, of this window alone.
    pub numbers: EchoFigures,
    /// Requests answered.
    pub requests: u64,
    /// The window's additions to the library's counters.
    pub counters: BTreeMap<String, u64>,
    /// Messages compared byte by byte.
    pub verified: u64,
    /// The facts of its server.
    pub facts: Facts,
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
pub struct Samples(BTreeMap<Side, Vec<Sample>>);

impl Samples {
    /// Another window of `side`.
    pub fn add(&mut self, side: Side, sample: Sample) {
        self.0.entry(side).or_default().push(sample);
    }

    fn of(&self, side: Side) -> &[Sample] {
        self.0.get(&side).map_or(&[], Vec::as_slice)
    }

    fn compared(&self, side: Side) -> Option<Compared> {
        let (plain, own) = (self.of(Side::Plain), self.of(side));
        let pairs = |of: fn(&EchoFigures, &EchoFigures) -> f64| {
            spread(plain.iter().zip(own).map(|(p, o)| of(&p.numbers, &o.numbers)), 3)
        };
        let (before, common) = (numbers(plain), numbers(own));
        let rate = |p: &EchoFigures, o: &EchoFigures| quotient(o.req_per_s, p.req_per_s);
        let cpu = |p: &EchoFigures, o: &EchoFigures| quotient(p.cpu_us_per_req, o.cpu_us_per_req);
        (!own.is_empty()).then(|| Compared {
            ratio: round(rate(&before, &common), 3),
            ratio_spread: pairs(rate),
            cpu_ratio: round(cpu(&before, &common), 3),
            cpu_ratio_spread: pairs(cpu),
            common,
        })
    }

    /// Medians, all but the most that elision could gain, which other rows have a part in.
    pub fn row(&self, plan: &Plan) -> Result<Row, Failure> {
        if let Some(stalled) = self.0.values().flatten().find(|s| s.requests == 0) {
            return Err(Failure::new("no request was answered within the timed window")
                .because(format_args!("CPU time {} us", stalled.numbers.cpu_us_per_req))
                .advise("make it longer with --seconds"));
        }
        let eliding = self.of(Side::Uncopy);
        let counter = |name: &str| median(eliding.iter().map(|s| s.counter(name))) as u64;
        let per_request = |name: &'static str| {
            median(eliding.iter().map(|s| quotient(s.counter(name), s.requests as f64)))
        };
        let plain = numbers(self.of(Side::Plain));
        let side = |side: Side| {
            self.compared(side).ok_or_else(|| failure!("the {side} server was not measured"))
        };
        let (again, uncopy) = (side(Side::Again)?, side(Side::Uncopy)?);
        let [kept, placed, unelided] =
            [Side::Kept, Side::Placed, Side::NoElision].map(|side| self.compared(side));
        let over = |with: f64, without: f64| round(quotient(with, without), 3);
        let elision = |of: fn(&Compared) -> f64| {
            unelided.as_ref().map(|without| over(of(&uncopy), of(without)))
        };
        let copies = unelided.as_ref().zip(placed.as_ref());
        Ok(Row {
            size: plan.size,
            copies: plan.copies,
            connections: plan.connections,
            threads: plan.cores.len(),
            touched_pages: plan.touch_pages,
            touched_in: plan.touched,
            touched_moving: plan.touch_moving,
            checksum: plan.checksum,
            ratio: uncopy.ratio,
            ratio_spread: uncopy.ratio_spread,
            cpu_ratio: uncopy.cpu_ratio,
            cpu_ratio_spread: uncopy.cpu_ratio_spread,
            elision_cpu_ratio: elision(|side| side.cpu_ratio),
            elision_ratio: elision(|side| side.ratio),
            elision_most: None,
            copies_cpu_ratio: copies.map(|(with, without)| over(with.cpu_ratio, without.cpu_ratio)),
            verified_messages: self.0.values().flatten().map(|s| s.verified).sum(),
            times: eliding.len(),
            servers: self
                .0
                .iter()
                .filter_map(|(side, of)| Some((*side, of.first()?.facts.clone())))
                .collect(),
            again,
            kept,
            placed,
            unelided,
            plain,
            uncopy: UncopyNumbers {
                common: uncopy.common,
                elided_bytes: counter("elided_bytes"),
                elided_bytes_per_req: round(per_request("elided_bytes"), 0),
                faults: counter("faults"),
                faults_per_req: round(per_request("faults"), 4),
                moves: counter("moves"),
                registrations: counter("registrations"),
                events: counter("events"),
                page_table_calls_per_100_req: round(
                    median(
                        eliding
                            .iter()
                            .map(|s| 100.0 * quotient(s.page_table_calls(), s.requests as f64)),
                    ),
                    2,
                ),
            },
        })
    }
}

fn numbers(samples: &[Sample]) -> EchoFigures {
    let of = |pick: fn(&EchoFigures) -> f64| median(samples.iter().map(|s| pick(&s.numbers)));
    let spread_of = |pick: fn(&EchoFigures) -> f64, digits| {
        spread(samples.iter().map(|s| pick(&s.numbers)), digits)
    };
    EchoFigures {
        req_per_s: round(of(|n| n.req_per_s), 1),
        req_per_s_spread: spread_of(|n| n.req_per_s, 1),
        cpu_us_per_req: round(of(|n| n.cpu_us_per_req), 2),
        cpu_us_per_req_spread: spread_of(|n| n.cpu_us_per_req, 2),
        p50_us: round(of(|n| n.p50_us), 1),
        p99_us: round(of(|n| n.p99_us), 1),
        rss_kb: of(|n| n.rss_kb as f64) as u64,
        load_cpu_us_per_req: round(of(|n| n.load_cpu_us_per_req), 2),
        places: samples.last().map(|s| s.numbers.places.clone()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Allocation;
    use super::*;

    fn sample(req_per_s: f64, elided: u64) -> Sample {
        Sample {
            numbers: EchoFigures {
                req_per_s,
                req_per_s_spread: [req_per_s; 2],
                cpu_us_per_req: 1.0,
                cpu_us_per_req_spread: [1.0; 2],
                p50_us: 1.0,
                p99_us: 2.0,
                rss_kb: 1,
                load_cpu_us_per_req: 1.0,
                places: Places::default(),
            },
            requests: 200,
            counters: [("elided_bytes".to_owned(), elided), ("moves".to_owned(), 2)].into(),
            verified: 10,
            facts: Facts::new(),
        }
    }

    #[test]
    fn a_row_is_made_of_medians_and_its_json_has_the_agreed_shape() {
        let mut samples = Samples::default();
        for (side, rates) in [
            (Side::Plain, [100.0, 80.0, 120.0]),
            (Side::Again, [110.0, 80.0, 120.0]),
            (Side::NoElision, [120.0, 120.0, 120.0]),
            (Side::Uncopy, [300.0, 160.0, 240.0]),
        ] {
            for (rate, elided) in rates.into_iter().zip([7, 9, 8]) {
                samples.add(side, sample(rate, if side == Side::Uncopy { elided } else { 0 }));
            }
        }
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
        assert_eq!((row.uncopy.elided_bytes, row.verified_messages), (8, 120));
        assert_eq!((row.again.ratio, row.again.ratio_spread), (1.1, [1.0, 1.1]));
        assert!(row.kept.is_none());
        assert_eq!((row.elision_ratio, row.elision_cpu_ratio), (Some(2.0), Some(1.0)));
        assert_eq!(row.uncopy.page_table_calls_per_100_req, 1.0);
        let json = serde_json::to_value(Results {
            bench: "echo".into(),
            rows: vec![row],
            left_out: vec![],
        })
        .unwrap();
        assert_eq!(json["bench"], "echo");
        for key in [
            "size",
            "copies",
            "connections",
            "threads",
            "touched_pages",
            "ratio",
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
