//! The flow as a picture: sources on the left, copies, sinks on the right; widths are bytes.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::html::escaped;
use super::model::{Path, PathStep, Program, Source};
use crate::units::rough_size;

const WIDTH: f64 = 1100.0;
/// What of it is for the names of the sinks.
const MARGIN: f64 = 200.0;
/// Width of a letter, about.
const LETTER: f64 = 6.9;
const BAR: f64 = 14.0;
/// Height of all bytes together.
const TALL: f64 = 300.0;
const GAP: f64 = 34.0;
const TOP: f64 = 34.0;
/// A band is at least so wide, that it can be seen.
const THIN: f64 = 1.0;
/// Columns that are drawn; longer ways are drawn with their last copies in one.
const COLUMNS: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stop {
    column: usize,
    /// `in`, `copy`, `rest`, `out`, `own` or `gone`: its colour.
    class: &'static str,
    title: String,
    detail: String,
}

#[derive(Default)]
struct Flow {
    into: u64,
    out: u64,
    /// The mean height of what it comes from.
    from: f64,
    y: f64,
    left: f64,
    right: f64,
}

fn stops(path: &Path, last: usize) -> Vec<Stop> {
    let stop = |column, class, title: String, detail: String| Stop { column, class, title, detail };
    let function = |name: &str| name.split('+').next().unwrap_or(name).to_owned();
    let mut stops = vec![match &path.source {
        Source::Program => {
            stop(0, "own", "made by the program".into(), "or copied by code of its own".into())
        }
        Source::Input(e) => {
            let title = format!("{} · {}", e.kind.name(), e.place.call);
            stop(0, "in", title, format!("{} ({})", function(&e.place.function), e.place.library))
        }
        Source::Pass(kind) => stop(0, "in", kind.name().into(), "passed on by the kernel".into()),
    }];
    for (i, (way, _)) in path.way.iter().enumerate() {
        let column = (i + 1).min(last - 1);
        let next = match way {
            PathStep::Rest => stop(column, "rest", "lay there".into(), String::new()),
            PathStep::Copy(p) => {
                stop(column, "copy", function(&p.function), format!("{} in {}", p.call, p.library))
            }
        };
        // Behind the last column there is room for one only.
        if stops.last().is_none_or(|s| s.column < column) {
            stops.push(next);
        }
    }
    let title = format!("{} · {}", path.sink.kind.name(), path.sink.place.call);
    let place = &path.sink.place;
    stops.push(stop(
        last,
        "out",
        title,
        format!("{} ({})", function(&place.function), place.library),
    ));
    stops
}

/// An `svg` element.
pub fn picture(program: &Program, shown: &[Path]) -> String {
    let longest = shown.iter().map(|p| p.way.len()).max().unwrap_or(0);
    let last = (longest + 1).clamp(1, COLUMNS);
    let mut flows: BTreeMap<Stop, Flow> = BTreeMap::new();
    let mut links: BTreeMap<(Stop, Stop), u64> = BTreeMap::new();
    let mut ways: Vec<(Vec<Stop>, u64)> = shown.iter().map(|p| (stops(p, last), p.bytes)).collect();
    for (end, input) in &program.inputs {
        let gone = input.consumed + input.held();
        let from = ways.iter().map(|(w, _)| &w[0]).find(|s| {
            s.title == format!("{} · {}", end.kind.name(), end.place.call)
                && s.detail.ends_with(&format!("({})", end.place.library))
                && end.place.function.starts_with(s.detail.split(' ').next().unwrap_or_default())
        });
        if let Some(from) = from.cloned()
            && gone > 0
        {
            let stop = Stop {
                column: last,
                class: "gone",
                title: "not sent".into(),
                detail: "ended, or held at the end".into(),
            };
            ways.push((vec![from, stop], gone));
        }
    }
    for (way, bytes) in &ways {
        for pair in way.windows(2) {
            *links.entry((pair[0].clone(), pair[1].clone())).or_default() += bytes;
            flows.entry(pair[0].clone()).or_default().out += bytes;
            flows.entry(pair[1].clone()).or_default().into += bytes;
        }
    }
    let column_bytes = |c: usize| -> u64 {
        flows.iter().filter(|(s, _)| s.column == c).map(|(_, f)| f.into.max(f.out)).sum()
    };
    let most = (0..=last).map(column_bytes).max().unwrap_or(1).max(1);
    let scale = TALL / most as f64;
    let high = |bytes: u64| (bytes as f64 * scale).max(THIN);

    let mut bottom: f64 = 0.0;
    for column in 0..=last {
        // In the order of what they come from, so that bands cross little; the thickest on top.
        let mut here: Vec<(u8, f64, u64, Stop)> = flows
            .iter()
            .filter(|(s, _)| s.column == column)
            .map(|(s, f)| (u8::from(s.class == "gone"), f.from, f.into.max(f.out), s.clone()))
            .collect();
        here.sort_by(|a, b| {
            (a.0, a.1, b.2).partial_cmp(&(b.0, b.1, a.2)).expect("numbers").then(a.3.cmp(&b.3))
        });
        let mut y = TOP;
        for (_, _, bytes, stop) in here {
            let flow = flows.get_mut(&stop).expect("it is there");
            (flow.y, flow.left, flow.right) = (y, y, y);
            let middle = y + high(bytes) / 2.0;
            y += high(bytes) + GAP;
            for ((_, to), bytes) in links.iter().filter(|((from, _), _)| *from == stop) {
                let to = flows.get_mut(to).expect("both ends are there");
                to.from += middle * *bytes as f64 / to.into.max(1) as f64;
            }
        }
        bottom = bottom.max(y);
    }
    let step = (WIDTH - MARGIN - BAR) / last as f64;
    let x = |column: usize| step * column as f64;

    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"Flow of data\">\n",
        bottom + 6.0
    );
    let mut bands: Vec<(&(Stop, Stop), &u64)> = links.iter().collect();
    bands.sort_by(|a, b| {
        let y = |stop: &Stop| flows.get(stop).map_or(0.0, |f| f.y);
        (y(&a.0.0), y(&a.0.1)).partial_cmp(&(y(&b.0.0), y(&b.0.1))).expect("numbers")
    });
    let bands: Vec<(Stop, Stop, u64)> =
        bands.into_iter().map(|((a, b), n)| (a.clone(), b.clone(), *n)).collect();
    for (from, to, bytes) in bands {
        let width = high(bytes);
        let mut take = |stop: &Stop, right: bool| {
            let flow = flows.get_mut(stop).expect("both ends are there");
            let side = if right { &mut flow.right } else { &mut flow.left };
            *side += width;
            *side - width / 2.0
        };
        let (y1, y2) = (take(&from, true), take(&to, false));
        let (x1, x2) = (x(from.column) + BAR, x(to.column));
        let middle = f64::midpoint(x1, x2);
        let _ = writeln!(
            svg,
            "<path class=\"band {}\" stroke-width=\"{width:.1}\" \
             d=\"M{x1:.1} {y1:.1}C{middle:.1} {y1:.1} {middle:.1} {y2:.1} {x2:.1} {y2:.1}\">\
             <title>{} → {}: {}</title></path>",
            from.class,
            escaped(&from.title),
            escaped(&to.title),
            rough_size(bytes as f64),
        );
    }
    for (stop, flow) in &flows {
        let bytes = flow.into.max(flow.out);
        let (x, tall) = (x(stop.column), high(bytes));
        // Names stand above the bars; those of the sinks beside them.
        let (at, y, room) = if stop.column == last {
            (x + BAR + 8.0, flow.y + (tall / 2.0).max(4.0), MARGIN - 10.0)
        } else {
            (x, flow.y - 17.0, step - 6.0)
        };
        let size = rough_size(bytes as f64);
        let letters = (room / LETTER) as usize;
        let _ = writeln!(
            svg,
            "<rect class=\"stop {}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{BAR}\" height=\"{tall:.1}\">\
             <title>{} {}</title></rect>\
             <text x=\"{at:.1}\" y=\"{y:.1}\">{} <tspan class=\"size\">{size}</tspan></text>\
             <text class=\"detail\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            stop.class,
            flow.y,
            escaped(&stop.title),
            escaped(&stop.detail),
            escaped(&short(&stop.title, letters.saturating_sub(size.len() + 1))),
            y + 12.0,
            escaped(&short(&stop.detail, letters * 6 / 5)),
        );
    }
    svg + "</svg>\n"
}

fn short(text: &str, most: usize) -> String {
    let most = most.max(4);
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}
