//! Pictures of cores, rate and latency over time.

use super::rows::{Contender, Row};
use crate::plot::{Axis, Line, Plot, Point, Scale, Stroke, Unit};

fn line(
    rows: &[Row],
    side: Contender,
    name: &str,
    color: usize,
    of: impl Fn(&Row) -> Option<f64>,
) -> Line {
    // (Of several repeats the first is shown.)
    let shown = |row: &&Row| row.side == side && row.repeat == 0;
    let points = rows.iter().filter(shown).filter_map(|row| {
        let y = of(row)?;
        let note = format!("{} s, {} clients: {y:.3}", row.at_s, row.clients);
        Some(Point { x: row.at_s, y, spread: [y, y], note })
    });
    let stroke = if side == Contender::Linux { Stroke::Dashed } else { Stroke::Solid };
    Line { name: name.to_owned(), color, stroke, points: points.collect() }
}

/// As figures 3.14 and 3.15 have it, and Linux in each.
pub fn plots(rows: &[Row]) -> Vec<Plot> {
    use Contender::{Linux, Uncopy};
    let x = || Axis { label: "seconds", scale: Scale::Linear, unit: Unit::Number };
    let plot = |name: &str, title: &str, label, scale, lines| Plot {
        name: format!("proportional-{name}"),
        title: title.to_owned(),
        x: x(),
        y: Axis { label, scale, unit: Unit::Number },
        lines,
        rules: vec![],
    };
    // (An interval in which nothing was answered has no latency.)
    let some = |us: f64| (us > 0.0).then_some(us);
    vec![
        plot(
            "cores",
            "Cores in use while clients come and go",
            "cores of the server",
            Scale::Linear,
            vec![
                line(rows, Linux, "Linux' server", 0, |row| Some(row.server_cores)),
                line(rows, Uncopy, "uncopy's server", 1, |row| Some(row.server_cores)),
                line(rows, Uncopy, "its lanes", 2, |row| row.lanes.map(|n| n as f64)),
            ],
        ),
        plot(
            "rate",
            "Answers while clients come and go",
            "answers a second",
            Scale::Linear,
            vec![
                line(rows, Linux, "Linux' server", 0, |row| Some(row.rpc_per_s)),
                line(rows, Uncopy, "uncopy's server", 1, |row| Some(row.rpc_per_s)),
            ],
        ),
        plot(
            "latency",
            "Latency while clients come and go",
            "microseconds, since a request was due",
            Scale::Log,
            vec![
                line(rows, Linux, "Linux' median", 0, |row| some(row.p50_us)),
                line(rows, Linux, "its 99%", 3, |row| some(row.p99_us)),
                line(rows, Uncopy, "uncopy's median", 1, |row| some(row.p50_us)),
                line(rows, Uncopy, "its 99%", 2, |row| some(row.p99_us)),
            ],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proportional::rows::fixed;

    #[test]
    fn each_interval_of_each_side_is_a_point_and_idle_ones_have_no_latency() {
        let rows: Vec<Row> = [Contender::Linux, Contender::Uncopy]
            .into_iter()
            .flat_map(|side| (0..3).map(move |i| fixed(side, i, i)))
            .map(|row| Row { p50_us: if row.clients == 0 { 0.0 } else { row.p50_us }, ..row })
            .collect();
        let plots = plots(&rows);
        let points: Vec<Vec<usize>> =
            plots.iter().map(|p| p.lines.iter().map(|line| line.points.len()).collect()).collect();
        assert_eq!(points, [vec![3, 3, 3], vec![3, 3], vec![2, 3, 2, 3]]);
        assert!(plots.iter().all(|plot| plot.svg().contains("uncopy's")));
    }
}
