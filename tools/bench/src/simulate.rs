//! `uncopy-bench simulate`: the TCP service's congestion control at scale, simulated (TAS, figures
//! 3.11 and 3.12). The simulator is `uncopy-tcp-sim`; here are its command, table and pictures.

use std::fs;
use std::path::PathBuf;

use comfy_table::{CellAlignment, Table};
use uncopy_measure::{Failure, failure, progress, units};
use uncopy_tcp_sim::Series;
use uncopy_tcp_sim::figures::{Figure, Results};
use uncopy_tcp_sim::results::{SHORT, Spread};

use super::plot::{At, Axis, Line, Plot, Point, Rule, Scale, Stroke, Unit};

/// Options of `uncopy-bench simulate`.
#[derive(Clone, Debug, clap::Args)]
pub struct SimulateArgs {
    /// The figure of Stamler's dissertation: 3.11 is a single link of 10 Gbit/s, 3.12 a fat tree of
    /// 2,560 servers
    #[arg(long, value_name = "NUMBER", value_enum)]
    figure: Which,
    /// What all random numbers follow from: the same seed gives the same results
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Directory for the results and pictures
    #[arg(long, value_name = "DIRECTORY", default_value = "bench-simulate")]
    out: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Which {
    #[value(name = "3.11")]
    SingleLink,
    #[value(name = "3.12")]
    Cluster,
}

/// Simulates, writes, and prints.
pub fn main(args: &SimulateArgs) -> Result<(), Failure> {
    let figure = match args.figure {
        Which::SingleLink => Figure::SingleLink,
        Which::Cluster => Figure::Cluster,
    };
    // Before minutes are spent.
    let out = &args.out;
    fs::create_dir_all(out).map_err(|e| failure!("cannot make {}", out.display()).because(e))?;
    let bar = progress::bar(figure.runs());
    let results = figure.run(args.seed, figure.whole(), |series| {
        bar.set_message(series.name.clone());
        bar.inc(1);
    });
    let results = results.map_err(Failure::new)?;
    bar.finish_and_clear();
    let json = serde_json::to_string_pretty(&results).expect("results can be written");
    let mut written = Vec::new();
    let mut write = |name: String, text: &str| {
        let path = out.join(name);
        fs::write(&path, text)
            .map_err(|e| failure!("cannot write {}", path.display()).because(e))?;
        written.push(path.display().to_string());
        Ok::<(), Failure>(())
    };
    write(format!("figure-{}.json", results.figure), &format!("{json}\n"))?;
    for plot in plots(figure, &results) {
        write(format!("{}.svg", plot.name), &plot.standalone())?;
    }
    if args.json {
        return uncopy_measure::print(&format!("{json}\n"));
    }
    uncopy_measure::print(&format!("{}\n{}\n", text(&results), written.join("\n")))
}

/// The text for people.
fn text(results: &Results) -> String {
    let mut text = format!(
        "Figure {} of Stamler's dissertation, simulated; seed {}.\n",
        results.figure, results.seed
    );
    for (given, whose) in [(true, "Given there"), (false, "Chosen here")] {
        text += &format!("\n{whose}:\n");
        for parameter in results.parameters.iter().filter(|p| p.given == given) {
            text += &format!("  {}: {}\n", parameter.name, parameter.value);
        }
    }
    text += &format!("\n{}\n\n{}\n", table(&results.series), layers(&results.series));
    text += "\nTimes in microseconds; the queue in packets, seen at regular times. Short: up to \
        100 KB; long: above 1 MB.\n";
    for series in results.series.iter().filter(|s| s.incomplete + s.broken > 0) {
        text += &format!(
            "{}: {} flows were not complete in the end, {} broke.\n",
            series.name, series.incomplete, series.broken
        );
    }
    text
}

fn right(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn table(all: &[Series]) -> Table {
    let mut table = Table::new();
    table.load_style(units::TABLE_STYLE).set_header([
        "", "flows", "mean", "short", "p50", "p99", "long", "p50", "p99", "queue", "p50", "p99",
    ]);
    for series in all {
        let number = |value: f64| units::grouped(value.round() as u64);
        let times = |spread: &Spread| [spread.mean, spread.p50, spread.p99].map(number);
        let mut cells = vec![
            series.name.clone(),
            units::grouped(series.flows as u64),
            number(series.fct_us.mean),
        ];
        cells.extend(times(&series.short_us));
        cells.extend(times(&series.long_us));
        let queue = &series.queue_packets;
        cells.extend([queue.mean, queue.p50, queue.p99].map(|value| format!("{value:.1}")));
        table.add_row(cells);
    }
    right(table)
}

fn layers(all: &[Series]) -> Table {
    let mut table = Table::new();
    table
        .load_style(units::TABLE_STYLE)
        .set_header(["links", "in use", "queue", "longest", "marked", "lost"]);
    for series in all {
        for layer in &series.layers {
            table.add_row([
                format!("{}, {}", series.name, layer.name),
                format!("{:.1}%", layer.utilization * 100.0),
                format!("{:.2}", layer.queue_packets),
                format!("{:.0}", layer.longest_packets),
                format!("{:.2}%", layer.marked * 100.0),
                units::grouped(layer.lost),
            ]);
        }
    }
    right(table)
}

fn plots(figure: Figure, results: &Results) -> Vec<Plot> {
    match figure {
        Figure::SingleLink => over_interval(results),
        Figure::Cluster => over_size(results),
    }
}

fn axis(label: &'static str, scale: Scale, unit: Unit) -> Axis {
    Axis { label, scale, unit }
}

fn point(x: f64, y: f64, note: String) -> Point {
    Point { x, y, spread: [y, y], note }
}

/// Figure 3.11: completion time and queue over the control interval; DCTCP has none, and is a line
/// across.
fn over_interval(results: &Results) -> Vec<Plot> {
    let picture = |name: &str, title: &str, label, of: fn(&Series) -> f64| {
        let chosen = || results.series.iter().filter(|series| series.interval_us.is_some());
        let at = |series: &Series, x: f64| {
            point(x, of(series), format!("{}: {:.1}", series.name, of(series)))
        };
        let ends = chosen().filter_map(|series| series.interval_us);
        let (first, last) = ends.fold((f64::MAX, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
        let mut lines = Vec::new();
        for series in results.series.iter().filter(|series| series.interval_us.is_none()) {
            lines.push(Line {
                name: series.name.clone(),
                color: lines.len() * 2,
                stroke: if lines.is_empty() { Stroke::Solid } else { Stroke::Dashed },
                points: vec![at(series, first), at(series, last)],
            });
        }
        lines.push(Line {
            name: "TAS, this interval".to_owned(),
            color: 1,
            stroke: Stroke::Solid,
            points: chosen().map(|s| at(s, s.interval_us.unwrap_or_default())).collect(),
        });
        Plot {
            name: format!("figure-{}-{name}", results.figure),
            title: title.to_owned(),
            x: axis("control interval in microseconds", Scale::Log, Unit::Number),
            y: axis(label, Scale::Linear, Unit::Number),
            lines,
            rules: vec![Rule { at: At::X(100.0), text: "round trip" }],
        }
    };
    vec![
        picture(
            "time",
            "One link of 10 Gbit/s: completion time of flows",
            "mean, in microseconds",
            |series| series.fct_us.mean,
        ),
        picture("queue", "One link of 10 Gbit/s: its queue", "mean, in packets", |series| {
            series.queue_packets.mean
        }),
    ]
}

/// Figure 3.12: completion time over size, of short flows and of longer ones.
fn over_size(results: &Results) -> Vec<Plot> {
    let picture = |name: &str, title: &str, short: bool| {
        let lines = results.series.iter().enumerate().map(|(at, series)| Line {
            name: series.name.clone(),
            color: at,
            stroke: Stroke::Solid,
            points: series
                .classes
                .iter()
                .filter(|class| (class.to <= SHORT) == short)
                .map(|class| Point {
                    x: class.to as f64,
                    y: class.fct_us.mean,
                    spread: [class.fct_us.p50, class.fct_us.p95],
                    note: format!("{}: {} flows", series.name, class.flows),
                })
                .collect(),
        });
        Plot {
            name: format!("figure-{}-{name}", results.figure),
            title: title.to_owned(),
            x: axis("flows up to so many bytes", Scale::Log, Unit::Number),
            y: axis("mean in microseconds; bars: median and 95%", Scale::Log, Unit::Number),
            lines: lines.collect(),
            rules: vec![],
        }
    };
    vec![
        picture("short", "2,560 servers: completion time of short flows", true),
        picture("long", "2,560 servers: completion time of longer flows", false),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use uncopy_tcp_sim::figures::Extent;

    #[test]
    fn every_series_is_in_the_table_and_in_the_pictures() {
        let figure = Figure::SingleLink;
        let results = figure.run(1, Extent { time: 5_000_000, pods: 0 }, |_| {}).unwrap();
        assert_eq!(results.series.len(), figure.runs());
        let text = text(&results);
        assert!(results.series.iter().all(|series| text.contains(&series.name)));
        let plots = plots(figure, &results);
        assert_eq!(plots.len(), 2);
        for plot in plots {
            let points: usize = plot.lines.iter().map(|line| line.points.len()).sum();
            // DCTCP and the product's own interval are lines from end to end.
            assert_eq!(points, results.series.len() + 2);
            assert!(plot.svg().contains("TAS, this interval"));
        }
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let figure = Figure::Cluster;
        let results = figure.run(1, Extent { time: 1_000_000, pods: 2 }, |_| {}).unwrap();
        let json = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&json).unwrap().series.len(), 3);
        assert_eq!(plots(figure, &results).len(), 2);
    }
}
