//! The report as a page that needs nothing else.

use std::fmt::Write;

use super::model::{Path, Place, Program, Source, Way, mean};
use super::picture::picture;
use super::text::{
    advice, cells, facts, in_short, percent, share, source, split, time, worth_telling,
};
use crate::printable::printable;
use crate::units::{grouped, rough_size};

const STYLE: &str = include_str!("page.css");

/// Text for a page.
pub fn escaped(text: &str) -> String {
    let text = printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

/// The whole page.
pub fn page(programs: &[Program]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>uncopy profile</title>\n<style>\n{STYLE}</style></head><body>\n<main>\n"
    );
    if programs.is_empty() {
        page += "<p>The program moved no data by calls that can be followed.</p>\n";
    }
    let (told, others) = worth_telling(programs);
    told.iter().for_each(|p| page += &program(p));
    if let Some(line) = in_short(&others) {
        page += &format!("<p class=\"path\">{}</p>\n", escaped(&line));
    }
    page + "</main></body></html>\n"
}

fn program(p: &Program) -> String {
    let name = p.path.rsplit('/').next().unwrap_or(&p.path);
    let mut html = format!(
        "<section>\n<h1>{}</h1>\n<p class=\"path\">{}</p>\n",
        escaped(name),
        escaped(&p.path)
    );
    let lines = facts(p);
    let _ = writeln!(html, "<p class=\"advice\">{}</p>", escaped(&advice(p)));
    let saving = p.saving();
    let _ = writeln!(
        html,
        "<dl><div><dt>in</dt><dd>{}</dd></div><div><dt>out</dt><dd>{}</dd></div>\
         <div><dt>copied in the program</dt><dd>{}</dd></div>\
         <div><dt>CPU</dt><dd>{}</dd></div>\
         <div class=\"save\"><dt>uncopy would save</dt><dd>{}</dd></div></dl>",
        rough_size(p.bytes_in as f64),
        rough_size(p.bytes_out as f64),
        rough_size(p.copied_bytes as f64),
        time(p.cpu_ns as f64),
        if saving.ns > 0.0 {
            format!("{} of CPU", percent(saving.ns / p.cpu_ns.max(1) as f64))
        } else {
            "nothing".to_owned()
        },
    );
    let (shown, rest) = split(p);
    let _ = write!(html, "<figure>{}</figure>\n<ul class=\"notes\">", picture(p, shown));
    lines.iter().for_each(|line| html += &format!("<li>{}</li>", escaped(line)));
    html += "</ul>\n";
    html += &table(p, shown, rest);
    for (i, path) in shown.iter().enumerate() {
        html += &way(i + 1, path, p);
    }
    html += &inputs(p);
    html + "</section>\n"
}

fn row(cells: &[String], tag: &str) -> String {
    let cells: String = cells.iter().map(|c| format!("<{tag}>{}</{tag}>", escaped(c))).collect();
    format!("<tr>{cells}</tr>\n")
}

fn headed(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
    format!("<div class=\"wide\"><table><thead>{}</thead><tbody>\n", row(&words, "th"))
}

fn table(p: &Program, shown: &[Path], rest: &[Path]) -> String {
    let mut html = headed(&[
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
    ]);
    for (i, path) in shown.iter().enumerate() {
        html += &row(&cells(p, i, path, "not seen", "–"), "td");
    }
    if !rest.is_empty() {
        let bytes = rest.iter().map(|p| p.bytes).sum();
        let mut cells = vec![String::new(); 12];
        cells[0] = "rest".to_owned();
        cells[1] = format!("{} paths", rest.len());
        cells[3] = rough_size(bytes as f64);
        cells[4] = percent(share(bytes, p.bytes_out));
        html += &row(&cells, "td");
    }
    html + "</tbody></table></div>\n"
}

fn item(what: &str, place: Option<&Place>, more: &str) -> String {
    let place = place.map_or(String::new(), |p| {
        format!(
            " <code>{}</code> in <code>{}</code> <small>({})</small>",
            escaped(&p.call),
            escaped(p.name()),
            escaped(&p.library)
        )
    });
    format!("<li><b>{}</b>{place} {}</li>\n", escaped(what), escaped(more))
}

fn way(number: usize, path: &Path, p: &Program) -> String {
    let mut html = format!(
        "<details{}><summary>path {number}: {} to {}, {} ({})</summary><ol>\n",
        if number == 1 { " open" } else { "" },
        escaped(&source(path)),
        path.sink.kind.name(),
        rough_size(path.bytes as f64),
        percent(share(path.bytes, p.bytes_out)),
    );
    if let Source::Input(end) = &path.source {
        html += &item(end.kind.name(), Some(&end.place), "");
    }
    for (way, steps) in &path.way {
        let each = rough_size(mean(steps.bytes, steps.ops));
        html += &match way {
            Way::Rest => item("lay there for a while", None, ""),
            Way::Copy(place) => {
                item("copy", Some(place), &format!("{} of {each}", grouped(steps.ops)))
            }
        };
    }
    html += &item(path.sink.kind.name(), Some(&path.sink.place), "");
    html + "</ol></details>\n"
}

fn inputs(p: &Program) -> String {
    let mut html = "<h2>Where the input went</h2>\n".to_owned();
    html += &headed(&[
        "from",
        "call",
        "bytes",
        "sent",
        "ended",
        "held at the end",
        "not followed",
        "watched",
        "touched",
    ]);
    for (end, i) in &p.inputs {
        let part = |bytes| percent(share(bytes, i.bytes));
        let touched = if i.watched > 0 {
            percent(share(i.touched, i.watched))
        } else {
            "not seen".to_owned()
        };
        let cells = [
            end.kind.name().to_owned(),
            format!("{} in {} ({})", end.place.call, end.place.name(), end.place.library),
            rough_size(i.bytes as f64),
            part(i.forwarded),
            part(i.consumed),
            part(i.held()),
            part(i.lost),
            rough_size(i.watched as f64),
            touched,
        ];
        html += &row(&cells, "td");
    }
    html + "</tbody></table></div>\n"
}
