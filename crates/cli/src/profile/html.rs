//! The report as a page that needs nothing else.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use uncopy_measure::printable::printable;
use uncopy_measure::units::{grouped, rough_size};

use super::model::{CallSite, Path, PathStep, Program, Source, mean, total};
use super::picture::picture;
use super::prices::Prices;
use super::text::{
    WORTH_TRYING, advice, cells, facts, in_short, parts, percent, share, source, split, time,
    worth_telling,
};

const STYLE: &str = include_str!("page.css");

/// The whole page.
pub fn page(programs: &[Program], prices: &Prices) -> String {
    let (told, others) = worth_telling(programs);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "uncopy profile" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    @if programs.is_empty() {
                        p { "The program moved no data by calls that can be followed." }
                    }
                    @for p in told { (program(p)) }
                    @if let Some(line) = in_short(&others) { p class="path" { (printable(line)) } }
                    @if !programs.is_empty() { p class="path" { (printable(prices.words())) } }
                }
            }
        }
    };
    page.into_string() + "\n"
}

fn program(p: &Program) -> Markup {
    let [eliding, memory] = parts(p);
    let pays = eliding.max(memory) >= WORTH_TRYING;
    let (shown, rest) = split(p);
    html! {
        section {
            h1 { (printable(p.path.rsplit('/').next().unwrap_or(&p.path))) }
            p class="path" { (printable(&p.path)) }
            p class=(if pays { "advice" } else { "advice none" }) { (printable(advice(p))) }
            dl {
                div { dt { "in" } dd { (rough_size(p.bytes_in as f64)) } }
                div { dt { "out" } dd { (rough_size(p.bytes_out as f64)) } }
                div { dt { "copied in the program" } dd { (rough_size(p.copied_bytes as f64)) } }
                div { dt { "CPU" } dd { (time(p.cpu_ns as f64)) } }
                div class=(if eliding >= WORTH_TRYING { "save" } else { "none" }) {
                    dt { "eliding would save" }
                    @if eliding > 0.0 {
                        dd { (percent(eliding)) " of CPU" }
                    } @else {
                        dd { "nothing" }
                    }
                }
                @if memory >= WORTH_TRYING {
                    div class="save" {
                        dt { "keeping freed memory" }
                        dd { "at most " (percent(memory)) }
                    }
                }
            }
            figure { (picture(p, shown)) }
            ul class="notes" {
                @for line in facts(p) { li { (printable(line)) } }
            }
            (table(p, shown, rest))
            @for (i, path) in shown.iter().enumerate() { (way(i + 1, path, p)) }
            (inputs(p))
        }
    }
}

fn rows(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Markup {
    html! {
        div class="wide" {
            table {
                thead { tr { @for word in head { th { (word) } } } }
                tbody {
                    @for cells in rows { tr { @for cell in cells { td { (printable(cell)) } } } }
                }
            }
        }
    }
}

fn table(p: &Program, shown: &[Path], rest: &[Path]) -> Markup {
    let head = [
        "path",
        "from",
        "to",
        "bytes",
        "share",
        "calls",
        "each",
        "copies",
        "kernel copies",
        "touched",
        "not copied",
        "CPU saved",
    ];
    let last = (!rest.is_empty()).then(|| {
        let bytes = total(rest.iter().map(|p| p.bytes));
        let mut cells = vec![String::new(); head.len()];
        cells[0] = "rest".to_owned();
        cells[1] = format!("{} paths", rest.len());
        cells[3] = rough_size(bytes as f64);
        cells
    });
    let paths =
        shown.iter().enumerate().map(|(i, path)| cells(p, i, path, "not seen", "–").to_vec());
    rows(&head, paths.chain(last))
}

fn item(what: &str, place: Option<&CallSite>, more: &str) -> Markup {
    html! {
        li {
            b { (what) }
            @if let Some(p) = place {
                " " code { (printable(&p.call)) } " in " code { (printable(p.name())) }
                " " small { "(" (printable(&p.library)) ")" }
            }
            " " (more)
        }
    }
}

fn way(number: usize, path: &Path, p: &Program) -> Markup {
    html! {
        details open[number == 1] {
            summary {
                "path " (number) ": " (printable(source(path))) ", " (path.sink.name()) ", "
                (rough_size(path.bytes as f64)) " (" (percent(p.share(path))) ")"
            }
            ol {
                @if let Source::Input(end) = &path.source {
                    (item(end.kind.name(), Some(&end.place), ""))
                }
                @for (way, steps) in &path.way {
                    @match way {
                        PathStep::Rest => { (item("lay there for a while", None, "")) }
                        PathStep::Copy(place) => {
                            @let each = rough_size(mean(steps.bytes, steps.ops));
                            (item("copy", Some(place), &format!("{} of {each}", grouped(steps.ops))))
                        }
                    }
                }
                (item(path.sink.name(), path.sink.output().map(|end| &end.place), ""))
            }
        }
    }
}

fn inputs(p: &Program) -> Markup {
    let head = [
        "from",
        "call",
        "bytes",
        "sent",
        "ended",
        "held at the end",
        "not followed",
        "watched",
        "touched",
    ];
    let cells = p.inputs.iter().map(|(end, i)| {
        let part = |bytes| percent(share(bytes, i.bytes));
        let touched = if i.watched > 0 {
            percent(share(i.touched, i.watched))
        } else {
            "not seen".to_owned()
        };
        vec![
            end.kind.name().to_owned(),
            format!("{} in {} ({})", end.place.call, end.place.name(), end.place.library),
            rough_size(i.bytes as f64),
            part(i.forwarded),
            part(i.consumed),
            part(i.held()),
            part(i.lost),
            rough_size(i.watched as f64),
            touched,
        ]
    });
    html! {
        h2 { "Where the input went" }
        (rows(&head, cells))
    }
}
