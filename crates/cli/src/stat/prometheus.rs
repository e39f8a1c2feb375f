//! The statistics in Prometheus' text format (version 0.0.4).

use std::collections::HashMap;
use std::fmt::Write;

use uncopy_counters::{NAMES, is_gauge};
use uncopy_measure::printable::printable;

use super::program::Site;
use super::symbols::Symbols;
use super::text::reasons;
use super::view::View;

/// The metrics of every call site: name, meaning, value.
type Metric = (&'static str, &'static str, fn(&Site) -> u64);

const SITES: &[Metric] = &[
    ("elided_copies", "Copies elided at a call site, wholly or in part.", |s| s.elided),
    ("elided_bytes", "Bytes that the elided copies of a call site did not move.", |s| {
        s.elided_bytes
    }),
    ("faults", "Page faults charged to a call site.", |s| s.faults),
    ("touched_pages", "Pages that the faults charged to a call site filled.", |s| s.touched_pages),
];

/// All of them.
pub fn text(views: &[View], symbols: &mut HashMap<u32, Symbols>) -> String {
    let mut text = String::new();
    for (i, (name, meaning)) in NAMES.iter().enumerate() {
        let (full, kind) = if is_gauge(name) {
            (format!("uncopy_{name}"), "gauge")
        } else {
            (format!("uncopy_{name}_total"), "counter")
        };
        head(&mut text, &full, kind, meaning);
        for v in views {
            let value = v.program.counters.iter().nth(i).map_or(0, |c| c.1);
            let _ = writeln!(text, "{full}{{{}}} {value}", program(v));
        }
    }
    let all: Vec<(String, &Site)> = views
        .iter()
        .flat_map(|v| v.program.sites.iter().map(move |s| (v, s)))
        .map(|(v, s)| {
            let place = symbols.get_mut(&v.program.pid).map(|known| known.place(s.caller));
            let (function, library) =
                place.map_or_else(Default::default, |p| (p.function, p.library));
            let labels = format!(
                "{},function=\"{}\",library=\"{}\",address=\"{:#x}\",class=\"{}\"",
                program(v),
                escaped(&function),
                escaped(&library),
                s.caller,
                s.class
            );
            (labels, s)
        })
        .collect();
    for (name, meaning, value) in SITES {
        let full = format!("uncopy_site_{name}_total");
        head(&mut text, &full, "counter", meaning);
        for (labels, s) in &all {
            let _ = writeln!(text, "{full}{{{labels}}} {}", value(s));
        }
    }
    let full = "uncopy_site_not_elided_copies_total";
    head(&mut text, full, "counter", "Copies of a call site that were not elided, by reason.");
    for (labels, s) in &all {
        for (reason, n) in reasons(s) {
            let _ = writeln!(text, "{full}{{{labels},reason=\"{reason}\"}} {n}");
        }
    }
    let full = "uncopy_site_pause_left";
    head(&mut text, full, "gauge", "Copies that a call site is still left alone for.");
    for (labels, s) in &all {
        let _ = writeln!(text, "{full}{{{labels}}} {}", s.pause_left);
    }
    text
}

/// A metric's meaning and kind.
pub fn head(text: &mut String, name: &str, kind: &str, meaning: &str) {
    let meaning = meaning.trim().replace('\\', "\\\\").replace('\n', " ");
    let _ = writeln!(text, "# HELP {name} {meaning}\n# TYPE {name} {kind}");
}

fn program(v: &View) -> String {
    format!("pid=\"{}\",command=\"{}\"", v.program.pid, escaped(&v.program.command))
}

/// A label's value: backslashes, quotes and what is not printable are written otherwise.
pub fn escaped(text: &str) -> String {
    printable(text).replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_in_a_label_are_escaped() {
        assert_eq!(escaped("a\"b\\c\n"), "a\\\"b\\\\c\\\\n");
    }

    #[test]
    fn every_counter_has_its_help_and_type_once() {
        let text = text(&[], &mut HashMap::new());
        for (name, _) in NAMES {
            let type_line =
                format!("# TYPE uncopy_{name}{} ", if is_gauge(name) { "" } else { "_total" });
            assert_eq!(text.matches(&type_line).count(), 1, "{name}");
        }
        assert!(text.lines().all(|l| l.starts_with("# HELP ") || l.starts_with("# TYPE ")));
    }
}
