//! The report for people, as text.

use std::fmt::Write;

use comfy_table::{CellAlignment, ColumnConstraint, Table};
use uncopy_measure::printable::printable;
use uncopy_measure::units::{TABLE_STYLE, grouped, rough_size};

use super::model::{End, Path, PathStep, Program, Sink, Source, Steps, mean, total};
use super::prices::Prices;

/// Paths with a smaller share are summed up, if there are more than so many.
const SMALL: f64 = 0.005;
const ALWAYS: usize = 3;

/// All programs.
pub fn report(programs: &[Program], prices: &Prices) -> String {
    if programs.is_empty() {
        return "uncopy: the program moved no data by calls that can be followed\n".to_owned();
    }
    let (told, others) = worth_telling(programs);
    let mut text: String = told.into_iter().map(program).collect();
    if let Some(line) = in_short(&others) {
        text += &format!("{}\n", printable(&line));
    }
    text + &format!("{}\n", printable(prices.words()))
}

/// The programs that moved data on, and the others: shells that started them, and what does nothing
/// but read its files. Where nobody moved data on, all are told of.
pub fn worth_telling(programs: &[Program]) -> (Vec<&Program>, Vec<&Program>) {
    let moved = |p: &&Program| p.copies > 0 && p.bytes_out > 0 || !p.paths.is_empty();
    let (told, others): (Vec<&Program>, Vec<&Program>) = programs.iter().partition(moved);
    if told.is_empty() { (others, told) } else { (told, others) }
}

/// One line about programs of which there is nothing to be told.
pub fn in_short(others: &[&Program]) -> Option<String> {
    let name = |p: &Program| {
        let name = p.path.rsplit('/').next().unwrap_or(&p.path);
        match p.pids.len() {
            1 => name.to_owned(),
            n => format!("{name} ({} processes)", grouped(n as u64)),
        }
    };
    let names: Vec<String> = others.iter().map(|p| name(p)).collect();
    (!names.is_empty()).then(|| format!("nothing passed through: {}", names.join(", ")))
}

/// Milliseconds or seconds.
pub fn time(ns: f64) -> String {
    if ns >= 1e9 { format!("{:.2} s", ns / 1e9) } else { format!("{:.1} ms", ns / 1e6) }
}

/// A share of 1.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 1.0 { format!("{percent:.2}%") } else { format!("{percent:.1}%") }
}

/// The share of `part` in `whole`.
pub fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Where a path begins, in short.
pub fn source(path: &Path) -> String {
    match &path.source {
        Source::Program => "the program itself".to_owned(),
        Source::Input(end) => end.kind.name().to_owned(),
        Source::Pass(kind) => format!("{} (by the kernel)", kind.name()),
    }
}

/// The paths that are shown one by one, and those that are summed up.
pub fn split(program: &Program) -> (&[Path], &[Path]) {
    let shown = program.paths.iter().take_while(|p| program.share(p) >= SMALL).count();
    program.paths.split_at(shown.max(ALWAYS.min(program.paths.len())))
}

/// Shares of copies that differ by less are said to be one.
const ALIKE: f64 = 0.1;

/// From this share of the CPU time on `uncopy try` tells a gain from noise, mostly.
pub const WORTH_TRYING: f64 = 0.02;

/// The shares of the CPU time that eliding and keeping memory save, as predicted.
pub fn parts(p: &Program) -> [f64; 2] {
    [p.saving().ns, p.fresh_ns].map(|ns| ns / p.cpu_ns.max(1) as f64)
}

/// The advice that follows.
pub fn advice(p: &Program) -> String {
    let saving = p.saving();
    let [eliding, memory] = parts(p);
    let elided = if saving.ns > 0.0 {
        format!(
            "eliding saves {} of CPU ({} of this run's; more where copies have left the cache): {} \
             are not copied",
            time(saving.ns),
            percent(eliding),
            rough_size(saving.bytes)
        )
    } else {
        "eliding saves nothing, it would leave these copies alone".to_owned()
    };
    let kept = if memory >= WORTH_TRYING {
        format!(
            "; keeping freed memory about {} ({}), which glibc does, too, if it is told to \
             ('uncopy try' says how)",
            time(p.fresh_ns),
            percent(memory)
        )
    } else {
        String::new()
    };
    let next = if eliding.max(memory) >= WORTH_TRYING {
        "'uncopy try -- CMD' measures it"
    } else if saving.ns > 0.0 {
        "hardly worth it"
    } else {
        "what faster copies and sending again by reference save is not predicted, 'uncopy try' \
         measures it"
    };
    format!("predicted under uncopy: {elided}{kept}; {next}")
}

/// A few sentences about the whole.
pub fn facts(p: &Program) -> Vec<String> {
    let mut lines = vec![format!(
        "{} in, {} out in {}; {} of CPU; input data copied {} times, {} in all",
        rough_size(p.bytes_in as f64),
        rough_size(p.bytes_out as f64),
        time(p.wall_ns as f64),
        time(p.cpu_ns as f64),
        grouped(p.copies),
        rough_size(p.copied_bytes as f64),
    )];
    if p.fresh > 0 {
        lines.push(format!(
            "{} pages of memory were taken from the kernel ({} of CPU): what was new to the \
             program, and what it had freed and took again",
            grouped(p.fresh),
            time(p.fresh_ns)
        ));
    }
    if p.rewritten > 0 {
        lines.push(format!(
            "{} of input data were changed in place, and are the program's own from then on",
            rough_size(p.rewritten as f64)
        ));
    }
    if p.forgot > 0 {
        lines.push("a bound on what is followed was met: the oldest data was forgotten".to_owned());
    }
    if p.no_watch {
        lines
            .push("touches could not be looked for (userfaultfd is not permitted here)".to_owned());
    }
    lines
}

fn program(p: &Program) -> String {
    let mut text = String::new();
    let count =
        if p.pids.len() > 1 { format!(", {} processes", p.pids.len()) } else { String::new() };
    let _ = writeln!(text, "uncopy profile: {}{count}", printable(&p.path));
    for line in [advice(p)].into_iter().chain(facts(p)) {
        let _ = writeln!(text, "  {line}");
    }
    let (shown, rest) = split(p);
    let _ = writeln!(text, "{}", table(p, shown, rest));
    for (i, path) in shown.iter().enumerate() {
        let _ = write!(text, "{}", way(i + 1, path));
    }
    let inputs = inputs(p);
    if !inputs.is_empty() {
        let _ = writeln!(text, "  where the input went:\n{inputs}");
    }
    text.push('\n');
    text
}

/// The cells of path number `i`; `unseen` where touches are not known, `nothing` where nothing
/// would be saved.
pub(super) fn cells(
    p: &Program,
    i: usize,
    path: &Path,
    unseen: &str,
    nothing: &str,
) -> [String; 12] {
    let saved = |text: String| if path.saving.ns > 0.0 { text } else { nothing.to_owned() };
    [
        (i + 1).to_string(),
        source(path),
        path.sink.name().to_owned(),
        rough_size(path.bytes as f64),
        percent(p.share(path)),
        grouped(path.ops),
        rough_size(mean(path.bytes, path.ops)),
        path.copies().to_string(),
        path.kernel_copies().to_string(),
        path.touched_share().map_or(unseen.to_owned(), percent),
        saved(rough_size(path.saving.bytes)),
        saved(time(path.saving.ns)),
    ]
}

fn table(p: &Program, shown: &[Path], rest: &[Path]) -> Table {
    let mut table = Table::new();
    table.load_style(TABLE_STYLE).set_header([
        "path", "from", "to", "bytes", "share", "calls", "of", "copies", "kernel", "touched",
        "saves", "CPU",
    ]);
    for (i, path) in shown.iter().enumerate() {
        table.add_row(cells(p, i, path, "?", "-"));
    }
    if !rest.is_empty() {
        let bytes = total(rest.iter().map(|p| p.bytes));
        let calls = total(rest.iter().map(|p| p.ops));
        let mut row = vec!["rest".to_owned(), format!("{} paths", rest.len()), String::new()];
        row.push(rough_size(bytes as f64));
        row.push(String::new());
        row.push(grouped(calls));
        row.push(rough_size(mean(bytes, calls)));
        table.add_row(row);
    }
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_constraint(ColumnConstraint::ContentWidth);
        if i > 2 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn way(number: usize, path: &Path) -> String {
    let mut text = format!("  path {number}\n");
    let line = |what: &str, place: &dyn std::fmt::Display, more: String| {
        format!("    {what:<8} {place}{more}\n")
    };
    match &path.source {
        Source::Program => {
            text += "    made by the program, or copied by code that cannot be followed\n"
        }
        Source::Input(end) => text += &line(end.kind.name(), &end.place, String::new()),
        Source::Pass(_) => {}
    }
    let mut same = 0;
    for (i, (step, steps)) in path.way.iter().enumerate() {
        let alike = |next: &Steps| (next.elided_share() - steps.elided_share()).abs() < ALIKE;
        if path.way.get(i + 1).is_some_and(|(next, of)| next == step && alike(of)) {
            same += 1;
            continue;
        }
        match step {
            PathStep::Rest => text += "    ...      lay there for a while\n",
            PathStep::Copy(place) => {
                let times = if same > 0 { format!("{} times, ", same + 1) } else { String::new() };
                text += &line("copy", place, format!("  {times}{}", sizes(steps)));
            }
        }
        same = 0;
    }
    text + &match &path.sink {
        Sink::Output(end) => line(end.kind.name(), &end.place, String::new()),
        Sink::Program => "    ends here: not sent, nor copied on by a call\n".to_owned(),
    }
}

fn sizes(steps: &Steps) -> String {
    let sizes = format!("{} of {}", grouped(steps.ops), rough_size(mean(steps.bytes, steps.ops)));
    let fate = match (steps.elided_share(), steps.touched_share()) {
        (elided, _) if elided >= 1.0 - ALIKE => ", elided".to_owned(),
        (elided, _) if elided >= ALIKE => format!(", {} elided", percent(elided)),
        (_, Some(touched)) if touched >= ALIKE => {
            format!(", left alone: {} touched there", percent(touched))
        }
        _ => ", left alone".to_owned(),
    };
    sizes + &fate
}

fn inputs(p: &Program) -> String {
    let mut text = String::new();
    let least = p.bytes_in as f64 * SMALL;
    for (end, i) in p.inputs.iter().filter(|(_, i)| i.bytes as f64 >= least) {
        let part = |bytes| percent(share(bytes, i.bytes));
        let End { kind, place } = end;
        let _ = writeln!(text, "    {:<8} {place}: {}", kind.name(), rough_size(i.bytes as f64));
        let _ = write!(
            text,
            "             sent {}, ended {}, held at the end {}, not followed {}",
            part(i.forwarded),
            part(i.consumed),
            part(i.held()),
            part(i.lost)
        );
        if i.watched > 0 {
            let _ = write!(
                text,
                "; of {} inputs watched ({}), {} touched",
                grouped(i.probes),
                rough_size(i.watched as f64),
                percent(share(i.touched, i.watched))
            );
        }
        text.push('\n');
    }
    text.trim_end().to_owned()
}
