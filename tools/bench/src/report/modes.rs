//! The parts of a report: what each measures, and what share of the time it gets.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use uncopy_measure::echo::{EchoArgs, Row};
use uncopy_measure::values::{Settings, defaults};
use uncopy_measure::{Failure, echo};

use super::section::Section;
use super::{
    echo_sections, row_pictures, servers, servers_section, touch_sections, transfer_sections,
    views_section,
};
use crate::figures::{
    self, Figure, FigureArgs, FigureResults, LOW_THRESHOLD, MOVING, NO_COPY, NO_POLICY, POLICY,
    SAME, Series,
};
use crate::file::{self, FileArgs};
use crate::send::{self, SendArgs};
use crate::views::{self, ViewsArgs};

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Servers as they are installed.
    Servers,
    /// The echo server with one, four and sixty-four connections.
    Echo,
    /// Figure 4.
    Copies,
    /// Figure 6.
    Sizes,
    /// Figure 8.
    Threads,
    /// Figure 9.
    Faults,
    /// Figure 10.
    Misspeculation,
    /// Headers, trailers, checksums.
    Touch,
    /// Live views.
    Views,
    /// Sending.
    Send,
    /// Copies of files.
    File,
}

impl Mode {
    /// All modes in the order of the page.
    pub const ALL: &'static [Self] = &[
        Self::Servers,
        Self::Echo,
        Self::Copies,
        Self::Sizes,
        Self::Threads,
        Self::Faults,
        Self::Misspeculation,
        Self::Touch,
        Self::Views,
        Self::Send,
        Self::File,
    ];

    /// The mode of `bench`, and the name of the file.
    pub fn name(self) -> &'static str {
        match (self, self.figure()) {
            (_, Some(figure)) => figure.name(),
            (Self::Servers, _) => "servers",
            (Self::Echo, _) => "echo",
            (Self::Views, _) => "views",
            (Self::Send, _) => "send",
            (Self::File, _) => "file",
            _ => unreachable!("the others are figures"),
        }
    }

    fn figure(self) -> Option<Figure> {
        match self {
            Self::Copies => Some(Figure::Copies),
            Self::Sizes => Some(Figure::Sizes),
            Self::Threads => Some(Figure::Threads),
            Self::Faults => Some(Figure::Faults),
            Self::Misspeculation => Some(Figure::Misspeculation),
            Self::Touch => Some(Figure::Touch),
            Self::Servers | Self::Echo | Self::Views | Self::Send | Self::File => None,
        }
    }

    /// Its share of the time: the seconds in which all of its rows were measured once, with few
    /// rows, on two cores of 2.4 GHz. Those who choose a program by the first table read only that,
    /// so it gets more.
    pub fn weight(self) -> u32 {
        match self {
            Self::Servers => 660,
            Self::Echo => 110,
            Self::Copies => 30,
            Self::Sizes => 50,
            Self::Threads => 15,
            Self::Faults => 75,
            Self::Misspeculation => 140,
            Self::Touch => 25,
            Self::Views => 20,
            Self::Send => 18,
            Self::File => 35,
        }
    }

    /// `modes` in the order in which they are measured: first those that take what they take, so
    /// that what they leave is the others'.
    pub fn in_order(modes: &[Self]) -> Vec<Self> {
        let mut modes = modes.to_vec();
        modes.sort_by_key(|mode| mode.least().is_zero());
        modes
    }

    /// The time that it takes at least, where that can't be shortened.
    pub fn least(self) -> Duration {
        Duration::from_secs(match self {
            Self::Views | Self::Send => 12,
            Self::File => 20,
            _ => 0,
        })
    }

    /// Runs it in about the time that is allowed; the answer is its JSON, and what there was no
    /// time or no program for.
    pub fn measure(
        self,
        allowed: Duration,
        library: &Path,
    ) -> Result<(String, Vec<String>), Failure> {
        if let Some(figure) = self.figure() {
            let args = FigureArgs { allowed: Some(allowed), seconds: Some(WINDOW), ..defaults() };
            let results = figures::measure(figure, &args, library)?;
            return Ok((json(&results)?, results.left_out));
        }
        let json = match self {
            Self::Servers => {
                let results = servers::measure(allowed)?;
                return Ok((json(&results)?, results.left_out()));
            }
            Self::Echo => {
                let results = echo_rows(allowed, library)?;
                return Ok((json(&results)?, results.left_out));
            }
            Self::Views => {
                let args = ViewsArgs { quick: allowed < FULL_VIEWS, ..defaults() };
                json(&views::measure(&args, library)?)
            }
            Self::Send => json(&send::measure(&send_args(allowed < FULL_SEND), library)?),
            Self::File => {
                let results = file::measure(&file_args(allowed < FULL_FILE), library)?;
                let why = results.java.as_ref().and_then(|java| java.refused.clone());
                return Ok((json(&results)?, why.into_iter().collect()));
            }
            _ => unreachable!("the others are figures"),
        };
        Ok((json?, Vec::new()))
    }

    /// Shows it.
    pub fn section(self, json: &str) -> Result<Section, serde_json::Error> {
        Ok(match (self, self.figure()) {
            (_, Some(figure)) => figure_section(figure, &serde_json::from_str(json)?),
            (Self::Servers, _) => servers_section::section(&serde_json::from_str(json)?),
            (Self::Echo, _) => echo_sections::connections(
                empty("echo", &serde_json::from_str(json)?),
                &serde_json::from_str(json)?,
            ),
            (Self::Send, _) => transfer_sections::send(&serde_json::from_str(json)?),
            (Self::File, _) => transfer_sections::file(&serde_json::from_str(json)?),
            _ => views_section::section(&serde_json::from_str(json)?),
        })
    }
}

/// The longest timed window of one server.
const WINDOW: Duration = Duration::from_secs(1);
/// The time that these take in full; in less time they take a look.
const FULL_VIEWS: Duration = Duration::from_secs(90);
const FULL_SEND: Duration = Duration::from_secs(100);
const FULL_FILE: Duration = Duration::from_secs(200);

/// Rows of the echo server with one connection, four and sixty-four.
fn echo_rows(allowed: Duration, library: &Path) -> Result<FigureResults, Failure> {
    let args = EchoArgs {
        sizes: vec![64 << 10, 512 << 10],
        copies: vec![0, 1, 4],
        connections: vec![1, 4, 64],
        seconds: WINDOW,
        verify: 2,
        allowed: Some(allowed),
        most: false,
        ..EchoArgs::default()
    };
    let results = echo::measure(&args, library)?;
    Ok(FigureResults {
        bench: "echo".to_owned(),
        settings: Settings { quick: false, repeats: args.repeats, seconds: WINDOW.as_secs_f64() },
        series: vec![Series { label: String::new(), rows: results.rows }],
        left_out: results.left_out,
    })
}

/// A section that has nothing but its numbers yet.
fn empty(name: &'static str, results: &FigureResults) -> Section {
    let mut command = format!("uncopy-bench {name}");
    if name == "echo" {
        command += " --sizes 64K,512K --copies 0,1,4 --connections 1,4,64";
    }
    Section {
        name,
        title: "",
        text: String::new(),
        plots: Vec::new(),
        facts: Vec::new(),
        table: row_pictures::table(results),
        command,
    }
}

fn figure_section(figure: Figure, results: &FigureResults) -> Section {
    let rows = |label: &str| -> &[Row] {
        results.series.iter().find(|s| s.label == label).map_or(&[], |s| &s.rows)
    };
    let base = empty(figure.name(), results);
    match figure {
        Figure::Copies => echo_sections::copies(base, rows("")),
        Figure::Sizes => echo_sections::sizes(base, rows(""), rows(LOW_THRESHOLD)),
        Figure::Threads => echo_sections::threads(base, rows("")),
        Figure::Faults => {
            touch_sections::faults(base, rows(POLICY), rows(NO_POLICY), rows(NO_COPY))
        }
        Figure::Misspeculation => touch_sections::misspeculation(base, rows(SAME), rows(MOVING)),
        Figure::Touch => touch_sections::touch(base, results),
    }
}

/// About a minute and a half in full, ten seconds quick.
fn send_args(quick: bool) -> SendArgs {
    let full = SendArgs { buffers: vec![64], ..defaults() };
    if !quick {
        return full;
    }
    let sizes = vec![16 << 10, 64 << 10, 1 << 20];
    let seconds = Duration::from_millis(120);
    SendArgs { sizes, repeats: 1, seconds, verify: 70, ..full }
}

/// About three minutes in full, fifteen seconds quick; most of it is the Java program that copies
/// byte by byte.
fn file_args(quick: bool) -> FileArgs {
    let full = FileArgs { java: true, ..defaults() };
    if !quick {
        return full;
    }
    let sizes = vec![64 << 10, 16 << 20];
    let seconds = Duration::from_millis(120);
    FileArgs { sizes, repeats: 1, seconds, java_size: 88 << 20, ..full }
}

fn json(results: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(results).map_err(|e| Failure::new("results cannot be written").because(e))
}
