//! The page: one file, pictures within it, no scripts.

use std::fmt::Write;

use uncopy_measure::units;

use super::about::About;
use super::noise;
use super::section::{Section, Table};
use super::servers_section::Summary;
use crate::plot::{self, escape};

const STYLE: &str = include_str!("page.css");

/// The whole page.
pub fn html(about: &About, short: Option<&Summary>, sections: &[Section]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>uncopy-bench report</title><style>{STYLE}{}</style></head><body><main>\n",
        plot::STYLE
    );
    head(about, &mut page);
    if let Some(short) = short {
        let _ = write!(page, "<h2>In short</h2><p>{}</p>", marked(&short.run));
        page += "<p>Processor time of a server for a request, plain over uncopy, with four \
            connections: above 1 is a gain. In brackets the same plain server a second time.</p>";
        numbers(&short.gains, &mut page);
        let _ = write!(page, "<p>{}</p>", marked(noise::TEXT));
        numbers(&short.noise, &mut page);
    }
    summary(sections, &mut page);
    for section in sections {
        body(section, &mut page);
    }
    machine(about, &mut page);
    page += "</main></body></html>\n";
    page
}

fn head(about: &About, page: &mut String) {
    let _ = write!(
        page,
        "<h1>uncopy, measured</h1>\
         <p class=\"meta\">{} · {} cores · {} · Linux {} · {} · glibc {}<br>uncopy {} · commit {} \
         · {} · {} min</p>\
         <p>The same unmodified programs without uncopy (plain) and with it, in turns, and a \
         second plain one, whose difference is noise. Points are \
         medians, bars go from the smallest to the largest value. Every byte of random messages \
         was compared before and after each timing. zIO is <i>Stamler et al., zIO: Accelerating \
         IO-Intensive Applications with Transparent Zero-Copy IO, OSDI ’22</i>: 24 cores at 2.2 \
         GHz, 100 Gbit/s, Linux 5.10; of its figures, what its text says is given.</p>",
        escape(about.cpu.split(" / ").next().unwrap_or_default()),
        about.cores,
        units::rough_size(about.memory as f64),
        escape(&about.kernel),
        escape(&about.congestion),
        escape(&about.glibc),
        escape(&about.version),
        escape(&about.commit),
        about.date(),
        (about.seconds / 60.0).ceil()
    );
    for warning in about.warnings() {
        let _ = write!(page, "<p class=\"warning\">{}</p>", escape(&warning));
    }
}

fn summary(sections: &[Section], page: &mut String) {
    *page += "<h2>Beside what was published</h2><p>Throughput is uncopy over plain, CPU is the \
        server’s               for a message, plain over uncopy: above 1× uncopy is better in \
        both.</p><div class=\"wide\"><table class=\"facts\"><thead><tr>\
              <th></th><th>published</th><th>here</th></tr></thead>";
    // (Those without pictures are not in a paper, and show what was found in their own place.)
    for section in sections.iter().filter(|s| !s.facts.is_empty() && !s.plots.is_empty()) {
        let _ = write!(
            page,
            "<tbody><tr><th colspan=\"3\"><a href=\"#{}\">{}</a></th></tr>",
            section.name,
            escape(section.title)
        );
        for fact in &section.facts {
            let _ = write!(
                page,
                "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(&fact.about),
                escape(fact.paper),
                escape(&fact.here)
            );
        }
        *page += "</tbody>";
    }
    *page += "</table></div>";
}

fn body(section: &Section, page: &mut String) {
    let _ = write!(
        page,
        "<section id=\"{}\"><h2>{}</h2><p>{}</p>",
        section.name,
        escape(section.title),
        marked(&section.text)
    );
    if section.plots.is_empty() {
        *page += "<table class=\"facts\"><tbody>";
        for fact in &section.facts {
            let _ = write!(
                page,
                "<tr><td>{}</td><td colspan=\"2\">{}</td></tr>",
                escape(&fact.about),
                escape(&fact.here)
            );
        }
        *page += "</tbody></table>";
    } else {
        *page += "<div class=\"plots\">";
        for plot in &section.plots {
            let _ = write!(page, "<figure>{}</figure>", plot.svg());
        }
        *page += "</div>";
    }
    *page += "<details><summary>All numbers</summary>";
    numbers(&section.table, page);
    let _ = write!(
        page,
        "</details><p class=\"meta\">As JSON: <a href=\"{0}.json\">{0}.json</a> · alone: \
         <code>{1}</code></p></section>",
        section.name,
        escape(&section.command)
    );
}

/// A text with bold words and code, as in markdown.
fn marked(text: &str) -> String {
    [("**", "b"), ("`", "code")].into_iter().fold(escape(text), |text, (sign, tag)| {
        let mut parts = text.split(sign);
        let mut marked = parts.next().unwrap_or_default().to_owned();
        while let Some(inner) = parts.next() {
            let _ = match parts.next() {
                Some(after) => write!(marked, "<{tag}>{inner}</{tag}>{after}"),
                // (A sign without a partner is itself.)
                None => write!(marked, "{sign}{inner}"),
            };
        }
        marked
    })
}

/// A table of numbers.
fn numbers(table: &Table, page: &mut String) {
    *page += "<div class=\"wide\"><table class=\"numbers\"><thead><tr>";
    for cell in &table.header {
        let _ = write!(page, "<th>{}</th>", escape(cell));
    }
    *page += "</tr></thead><tbody>";
    for row in &table.rows {
        *page += "<tr>";
        for cell in row {
            // (Bold in markdown only: here it would be the whole column.)
            let _ = write!(page, "<td>{}</td>", marked(&cell.replace("**", "")));
        }
        *page += "</tr>";
    }
    *page += "</tbody></table></div>";
}

fn machine(about: &About, page: &mut String) {
    let measured = if about.costs_measured {
        "as ‘uncopy doctor’ measured them here"
    } else {
        "the reference machine’s (‘uncopy doctor’ has not measured this one)"
    };
    let _ = write!(
        page,
        "<section id=\"machine\"><h2>The machine</h2><table class=\"pairs\">\
         <tr><th>Processor</th><td>{}, {} cores</td></tr><tr><th>Memory</th><td>{}</td></tr>\
         <tr><th>Kernel</th><td>Linux {}</td></tr><tr><th>Commit</th><td>{}</td></tr>\
         <tr><th>Command</th><td><code>{}</code></td></tr>\
         <tr><th>Processors used by others</th><td>{}</td></tr></table>\
         <h3>Prices of the cost model</h3><p>{measured}; nanoseconds.</p><div class=\"wide\">\
         <table class=\"numbers\"><thead><tr><th>price</th><th>here</th><th>reference \
         machine</th></tr></thead><tbody>",
        escape(&about.cpu),
        about.cores,
        units::rough_size(about.memory as f64),
        escape(&about.kernel),
        escape(&about.commit),
        escape(&about.command),
        about.used_by_others()
    );
    for (name, here, reference) in &about.costs {
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(name),
            units::grouped(*here),
            units::grouped(*reference)
        );
    }
    *page += "</tbody></table></div></section>";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bold_words_and_code_of_markdown_are_marked_and_all_else_is_itself() {
        assert_eq!(marked("**Older** `a < b` 2 * 3"), "<b>Older</b> <code>a &lt; b</code> 2 * 3");
        assert_eq!(marked("a ` b"), "a ` b");
    }
}
