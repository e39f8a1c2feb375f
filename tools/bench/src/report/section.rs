//! A part of the page, and what sections are made of.

use crate::plot::{Line, Plot, Point, Stroke, short};

/// A part of the page.
#[derive(Debug)]
pub struct Section {
    /// Its anchor and the name of its JSON file.
    pub name: &'static str,
    /// Headline.
    pub title: &'static str,
    /// The measurement, in a sentence or two.
    pub text: String,
    /// Pictures.
    pub plots: Vec<Plot>,
    /// The paper's statements beside what was found.
    pub facts: Vec<Fact>,
    /// All numbers.
    pub table: Table,
    /// The command that measures it alone.
    pub command: String,
}

/// A header, and rows of as many cells.
#[derive(Debug, Default)]
pub struct Table {
    /// Names of the columns.
    pub header: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of these columns and rows.
    pub fn new(header: &[&str], rows: Vec<Vec<String>>) -> Self {
        Self { header: header.iter().map(|&name| name.to_owned()).collect(), rows }
    }
}

/// One finding.
#[derive(Debug)]
pub struct Fact {
    /// The subject.
    pub about: String,
    /// The paper's statement.
    pub paper: &'static str,
    /// The finding here.
    pub here: String,
}

impl Fact {
    /// A finding.
    pub fn new(about: impl Into<String>, paper: &'static str, here: impl Into<String>) -> Self {
        Self { about: about.into(), paper, here: here.into() }
    }
}

/// A series with lines.
pub fn line(name: impl Into<String>, color: usize, points: Vec<Point>) -> Line {
    Line { name: name.into(), color, stroke: Stroke::Solid, points }
}

/// The same, dashed.
pub fn dashed(name: impl Into<String>, color: usize, points: Vec<Point>) -> Line {
    Line { stroke: Stroke::Dashed, ..line(name, color, points) }
}

/// `1.50 (1.40 to 1.61)`.
pub fn with_spread(value: f64, spread: [f64; 2]) -> String {
    if spread[0] == spread[1] {
        return short(value);
    }
    format!("{} ({} to {})", short(value), short(spread[0]), short(spread[1]))
}

/// `3.20× (3.10 to 3.30)`.
pub fn times(value: f64, spread: [f64; 2]) -> String {
    if spread[0] == spread[1] {
        return format!("{value:.2}×");
    }
    format!("{value:.2}× ({:.2} to {:.2})", spread[0], spread[1])
}
