//! The same as the page, as markdown for the repository; and its first table between the marks of
//! another file.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use uncopy_measure::{Failure, failure, units};

use super::about::About;
use super::noise;
use super::section::{Section, Table};
use super::servers_section::Summary;

/// The marks around a part of the README.
fn marks(name: &str) -> [String; 2] {
    ["begin", "end"].map(|end| format!("<!-- {name}, written by `make numbers`: {end} -->"))
}

/// All of it.
pub fn page(about: &About, summary: Option<&Summary>, sections: &[Section]) -> String {
    let mut text = format!(
        "# Numbers\n\nWritten by `{}`: nothing here is written by hand. [The page with all \
         pictures](index.html).\n\n{}",
        about.command,
        machine(about)
    );
    for warning in about.warnings() {
        let _ = writeln!(text, "\n> {}", line(&warning));
    }
    if let Some(summary) = summary {
        let gains = table(&summary.gains);
        let _ = write!(text, "\n## In short\n\n{}\n\n{ABOUT_SUMMARY}\n{gains}", summary.run);
        let _ = write!(text, "\n{}\n\n{}", line(noise::TEXT), table(&summary.noise));
    }
    for section in sections {
        let _ = write!(text, "\n## {}\n\n{}\n\n", section.title, line(&section.text));
        for plot in &section.plots {
            let _ = writeln!(text, "![{}]({}.svg)", line(&plot.title), plot.name);
        }
        if !section.facts.is_empty() {
            let _ = write!(text, "\n{}\n", table(&facts(section)));
        }
        let _ = write!(text, "{}\nAlone: `{}`.\n", table(&section.table), section.command);
    }
    text
}

/// The findings; beside what was published, where pictures are compared.
fn facts(section: &Section) -> Table {
    let published = !section.plots.is_empty();
    let rows = section.facts.iter().map(|fact| {
        let paper = published.then(|| fact.paper.to_owned());
        [fact.about.clone()].into_iter().chain(paper).chain([fact.here.clone()]).collect()
    });
    let header: &[&str] = if published { &["", "published", "here"] } else { &["", "here"] };
    Table::new(header, rows.collect())
}

/// Where, when and with what.
fn machine(about: &About) -> String {
    let rows = [
        ("processor", format!("{}, {} cores", about.cpu, about.cores)),
        ("memory", units::rough_size(about.memory as f64)),
        ("kernel", format!("Linux {}", about.kernel)),
        ("congestion control", about.congestion.clone()),
        ("glibc", about.glibc.clone()),
        ("uncopy", format!("{}, commit {}", about.version, about.commit)),
        ("date", about.date()),
        ("took", format!("{:.0} s", about.seconds)),
        ("processors used by others", about.used_by_others()),
    ];
    let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
    table(&Table::new(&["", ""], rows.into()))
}

/// The meaning of the first table's columns.
const ABOUT_SUMMARY: &str = "\
Processor time of the server for a request, plain over uncopy: **above 1 is a gain**, 2 is half the
time. In brackets the same plain server a second time: differences of that size mean nothing. Then
what the gain of 1 MB comes from: glibc told to keep its memory; uncopy's allocator alone; what
faster copies (`--copies`) add to that, and elision to both; and where BBR is the congestion
control, what Reno brings a plain server, and what uncopy gains with the same on both sides. Four
connections.
";

/// The meaning of the columns of the README's table.
const ABOUT_SHORT: &str = "\
Processor time of the server for a request, plain over uncopy: **above 1 is a gain**, 2 is half the
time. In brackets the same plain server a second time: differences of that size mean nothing.
*Elision's own*: what is left of the gain without uncopy's allocator and faster copies.
Four connections.
";

/// A table of markdown.
fn table(table: &Table) -> String {
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| line(cell).replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<String> = table.header.iter().map(|_| "---".to_owned()).collect();
    row(&table.header)
        + &row(&rule)
        + &table.rows.iter().map(|cells| row(cells)).collect::<String>()
}

/// On one line.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The part of a report that the README has.
pub struct Excerpt {
    /// The run that its rows are of.
    pub run: String,
    /// The table of gains and losses.
    pub table: Table,
    /// The echo server's bars.
    pub chart: String,
}

/// Puts the first table and the bars between the marks of the file at `path`.
pub fn replace(path: &Path, about: &About, excerpt: &Excerpt) -> Result<(), Failure> {
    let bad = |why: &dyn std::fmt::Display| {
        failure!("cannot put the numbers into {}", path.display()).because(why)
    };
    let mut text = fs::read_to_string(path).map_err(|e| bad(&e))?;
    let chart = format!("```\n{}\n```", excerpt.chart.trim_end());
    // (Rows that stay from another run are not of that machine's work.)
    let own = excerpt.run.contains(&about.commit);
    let busy = about.busy().filter(|_| own);
    let busy =
        busy.map_or_else(String::new, |busy| format!("\n> {}\n", busy.replace(". ", ".\n> ")));
    let first = format!("{}\n\n{ABOUT_SHORT}{busy}\n{}", excerpt.run, table(&excerpt.table));
    for (name, new) in [("chart", chart), ("table", first)] {
        text = between(&text, &marks(name), new.trim_end())
            .ok_or_else(|| bad(&format!("it has no lines '{}'", marks(name).join("' and '"))))?;
    }
    fs::write(path, text).map_err(|e| bad(&e))
}

fn between(text: &str, [begin, end]: &[String; 2], new: &str) -> Option<String> {
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{new}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_stays_on_its_line_and_in_its_column() {
        let text = table(&Table::new(&["a", "b"], vec![vec!["x\n y".into(), "1|2".into()]]));
        assert_eq!(text, "| a | b |\n| --- | --- |\n| x y | 1\\|2 |\n");
    }

    #[test]
    fn text_between_the_marks_is_replaced_and_nothing_else() {
        let [begin, end] = marks("table");
        let text = format!("top\n{begin}\nold\n{end}\nbottom\n");
        let new = between(&text, &marks("table"), "| new |").unwrap();
        assert_eq!(new, format!("top\n{begin}\n| new |\n{end}\nbottom\n"));
        assert_eq!(between(&new, &marks("table"), "| new |").unwrap(), new);
        assert!(between(&text, &marks("chart"), "").is_none());
    }
}
