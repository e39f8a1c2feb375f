//! The flow as a picture: sources on the left, copies, sinks on the right; widths are bytes.

use std::collections::BTreeMap;

use maud::{Markup, html};
use uncopy_measure::printable::printable;
use uncopy_measure::units::rough_size;

use super::model::{Path, PathStep, Program, Sink, Source, add, total};

const WIDTH: f64 = 1100.0;
/// The room for the names of the sinks.
const MARGIN: f64 = 200.0;
/// Width of a letter, about.
const LETTER: f64 = 7.6;
const BAR: f64 = 14.0;
/// Height of all bytes together.
const TALL: f64 = 300.0;
/// Between bars, for three lines of names.
const GAP: f64 = 50.0;
const TOP: f64 = 46.0;
/// The distance from line to line.
const LINE: f64 = 13.0;
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
struct Band {
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
    let mut stops = vec![match &path.source {
        Source::Program => {
            stop(0, "own", "made by the program".into(), "or copied by code of its own".into())
        }
        Source::Input(e) => {
            let title = format!("{} · {}", e.kind.name(), e.place.call);
            stop(0, "in", title, format!("{} ({})", e.place.name(), e.place.library))
        }
        Source::Pass(kind) => stop(0, "in", kind.name().into(), "passed on by the kernel".into()),
    }];
    for (i, (way, _)) in path.way.iter().enumerate() {
        let column = (i + 1).min(last - 1);
        let next = match way {
            PathStep::Rest => stop(column, "rest", "lay there".into(), String::new()),
            PathStep::Copy(p) => {
                stop(column, "copy", p.name().to_owned(), format!("{} in {}", p.call, p.library))
            }
        };
        // Behind the last column there is room for one only.
        if stops.last().is_none_or(|s| s.column < column) {
            stops.push(next);
        }
    }
    stops.push(match &path.sink {
        Sink::Output(end) => {
            let title = format!("{} · {}", end.kind.name(), end.place.call);
            let detail = format!("{} ({})", end.place.name(), end.place.library);
            stop(last, "out", title, detail)
        }
        Sink::Program => gone(last),
    });
    stops
}

/// Where what is not sent ends.
fn gone(column: usize) -> Stop {
    let detail = "ended, or held at the end".to_owned();
    Stop { column, class: "gone", title: "not sent".to_owned(), detail }
}

/// The bytes that go through each stop, and where it is drawn.
type Flows = BTreeMap<Stop, Band>;
/// Bytes from stop to stop.
type Links = BTreeMap<(Stop, Stop), u64>;

/// An `svg` element.
pub fn picture(program: &Program, shown: &[Path]) -> Markup {
    let longest = shown.iter().map(|p| p.way.len()).max().unwrap_or(0);
    let last = (longest + 1).clamp(1, COLUMNS);
    let mut flows = Flows::new();
    let mut links = Links::new();
    for (way, bytes) in &ways(program, shown, last) {
        for pair in way.windows(2) {
            add(links.entry((pair[0].clone(), pair[1].clone())).or_default(), *bytes);
            add(&mut flows.entry(pair[0].clone()).or_default().out, *bytes);
            add(&mut flows.entry(pair[1].clone()).or_default().into, *bytes);
        }
    }
    let column_bytes = |c: usize| -> u64 {
        total(flows.iter().filter(|(s, _)| s.column == c).map(|(_, f)| f.into.max(f.out)))
    };
    let most = (0..=last).map(column_bytes).max().unwrap_or(1).max(1);
    let scale = TALL / most as f64;
    let high = |bytes: u64| (bytes as f64 * scale).max(THIN);
    let step = (WIDTH - MARGIN - BAR) / last as f64;
    let x = |column: usize| step * column as f64;

    let bottom = place(&mut flows, &links, last, high);
    let bands = bands(&mut flows, &links, x, high);
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (format!("{:.0}", bottom + 6.0)) }
            role="img" aria-label="Flow of data"
        {
            @for band in bands { (band) }
            @for (stop, flow) in &flows {
                @let bytes = flow.into.max(flow.out);
                @let step = (stop.column < last).then_some(step);
                (bar(stop, flow.y, bytes, x(stop.column), high(bytes), step))
            }
        }
    }
}

/// The stops of each way, and its bytes: the paths that are shown, and input that ended in the
/// program without a copy.
fn ways(program: &Program, shown: &[Path], last: usize) -> Vec<(Vec<Stop>, u64)> {
    let mut ways: Vec<(Vec<Stop>, u64)> = shown.iter().map(|p| (stops(p, last), p.bytes)).collect();
    for (end, input) in &program.inputs {
        // (Input that was copied before it ended has a path of its own.)
        let source = Source::Input(end.clone());
        let copied = shown.iter().filter(|p| p.sink == Sink::Program && p.source == source);
        let not_sent = input.consumed.saturating_add(input.held());
        let gone_at_once = not_sent.saturating_sub(total(copied.map(|p| p.bytes)));
        let from = ways.iter().map(|(w, _)| &w[0]).find(|s| {
            s.title == format!("{} · {}", end.kind.name(), end.place.call)
                && s.detail == format!("{} ({})", end.place.name(), end.place.library)
        });
        if let Some(from) = from.cloned()
            && gone_at_once > 0
        {
            ways.push((vec![from, gone(last)], gone_at_once));
        }
    }
    ways
}

/// Places the stops, column by column; `high`: the height of so many bytes. Returns where the
/// longest column ends.
fn place(flows: &mut Flows, links: &Links, last: usize, high: impl Fn(u64) -> f64) -> f64 {
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
    bottom
}

/// The bands between stops that have their places, from top to bottom; `x`: where a column begins.
fn bands(
    flows: &mut Flows,
    links: &Links,
    x: impl Fn(usize) -> f64,
    high: impl Fn(u64) -> f64,
) -> Vec<Markup> {
    let mut bands: Vec<(&(Stop, Stop), &u64)> = links.iter().collect();
    bands.sort_by(|a, b| {
        let y = |stop: &Stop| flows.get(stop).map_or(0.0, |f| f.y);
        (y(&a.0.0), y(&a.0.1)).partial_cmp(&(y(&b.0.0), y(&b.0.1))).expect("numbers")
    });
    let drawn = bands.into_iter().map(|((from, to), &bytes)| {
        let width = high(bytes);
        let mut take = |stop: &Stop, right: bool| {
            let flow = flows.get_mut(stop).expect("both ends are there");
            let side = if right { &mut flow.right } else { &mut flow.left };
            *side += width;
            *side - width / 2.0
        };
        let (y1, y2) = (take(from, true), take(to, false));
        band(from, to, bytes, [x(from.column) + BAR, y1, x(to.column), y2], width)
    });
    drawn.collect()
}

/// A band from the right side of one bar to the left side of another: where it begins and ends.
fn band(from: &Stop, to: &Stop, bytes: u64, [x1, y1, x2, y2]: [f64; 4], width: f64) -> Markup {
    let middle = f64::midpoint(x1, x2);
    let way = format!("M{x1:.1} {y1:.1}C{middle:.1} {y1:.1} {middle:.1} {y2:.1} {x2:.1} {y2:.1}");
    html! {
        path class={ "band " (from.class) } stroke-width=(format!("{width:.1}")) d=(way) {
            title { (printable(&from.title)) " → " (printable(&to.title)) ": " (rough_size(bytes as f64)) }
        }
    }
}

/// A bar with its name: above it where there is a next column so far to the right, beside it where
/// it is the last.
fn bar(stop: &Stop, top: f64, bytes: u64, x: f64, tall: f64, step: Option<f64>) -> Markup {
    let letters = (step.map_or(MARGIN - 10.0, |step| step - 6.0) / LETTER) as usize;
    let names = wrapped(&stop.title, letters);
    let (at, y) = match step {
        Some(_) => (x, top - 5.0 - LINE * names.len() as f64),
        None => (x + BAR + 8.0, top + (tall / 2.0).max(4.0)),
    };
    let below = y + LINE * names.len() as f64;
    // How much it is comes first in the last line, so that it is never what is cut off.
    let size = rough_size(bytes as f64);
    let detail = short(&stop.detail, (letters * 6 / 5).saturating_sub(size.len() + 1));
    let number = |n: f64| format!("{n:.1}");
    html! {
        rect class={ "stop " (stop.class) } x=(number(x)) y=(number(top)) width=(BAR) height=(number(tall)) {
            title { (printable(&stop.title)) " " (printable(&stop.detail)) }
        }
        @for (i, name) in names.iter().enumerate() {
            text x=(number(at)) y=(number(y + LINE * i as f64)) { (printable(name)) }
        }
        text class="detail" x=(number(at)) y=(number(below)) {
            tspan class="size" { (size) } " " (printable(detail))
        }
    }
}

fn short(text: &str, most: usize) -> String {
    let most = most.max(4);
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// A name in two lines at most, broken where a word ends; of a longer one the end is left out.
fn wrapped(name: &str, most: usize) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let most = most.max(4);
    if letters.len() <= most {
        return vec![name.to_owned()];
    }
    let ends = |i: &usize| {
        "_:· ".contains(letters[i - 1])
            || letters[*i].is_uppercase() && letters[i - 1].is_lowercase()
    };
    let at = (most / 2..=most).rev().find(ends).unwrap_or(most);
    let (first, rest): (String, String) =
        (letters[..at].iter().collect(), letters[at..].iter().collect());
    vec![first.trim_end().to_owned(), short(&rest, most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_take_two_lines_and_break_where_a_word_ends() {
        assert_eq!(wrapped("memcpy", 12), ["memcpy"]);
        assert_eq!(wrapped("PyByteArray_FromStringAndSize", 13), ["PyByteArray_", "FromStringAn…"]);
        assert_eq!(wrapped("readQueryFromClient", 13), ["readQueryFrom", "Client"]);
        assert_eq!(wrapped("socket · recv", 9), ["socket ·", "recv"]);
    }
}
