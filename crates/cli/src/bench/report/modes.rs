//! The parts of a report.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::section::Section;
use super::{echo_sections, transfer_sections, views_section};
use crate::Outcome;
use crate::bench;
use crate::bench::figures::{self, Figure, FigureArgs};
use crate::bench::file::{self, FileArgs};
use crate::bench::send::{self, SendArgs};
use crate::bench::views::{self, ViewsArgs};

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
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
    /// In the order of the page.
    pub const ALL: &'static [Self] = &[
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
            Self::Views | Self::Send | Self::File => None,
        }
    }

    /// Runs it; the answer is its JSON.
    pub fn measure(self, quick: bool, library: &Path) -> Outcome<String> {
        if let Some(figure) = self.figure() {
            let args = FigureArgs {
                quick,
                repeats: None,
                seconds: None,
                warmup: None,
                connections: None,
                library: None,
                json: true,
            };
            return json(&figures::measure(figure, &args, library)?);
        }
        match self {
            Self::Views => {
                let (views, sizes) = (Vec::new(), Vec::new());
                let (repeats, library_of) = (None, None);
                let args =
                    ViewsArgs { views, sizes, quick, repeats, library: library_of, json: true };
                json(&views::measure(&args, library)?)
            }
            Self::Send => json(&send::measure(&send_args(quick), library)?),
            Self::File => json(&file::measure(&file_args(quick), library)?),
            _ => unreachable!("the others are figures"),
        }
    }

    /// Shows it.
    pub fn section(self, json: &str) -> Result<Section, serde_json::Error> {
        Ok(match (self, self.figure()) {
            (_, Some(figure)) => echo_sections::section(figure, &serde_json::from_str(json)?),
            (Self::Send, _) => transfer_sections::send(&serde_json::from_str(json)?),
            (Self::File, _) => transfer_sections::file(&serde_json::from_str(json)?),
            _ => views_section::section(&serde_json::from_str(json)?),
        })
    }
}

/// About a minute and a half in full, ten seconds quick.
fn send_args(quick: bool) -> SendArgs {
    let full = SendArgs { buffers: vec![64], ..bench::defaults() };
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
    let full = FileArgs { java: true, ..bench::defaults() };
    if !quick {
        return full;
    }
    let sizes = vec![64 << 10, 16 << 20];
    let seconds = Duration::from_millis(120);
    FileArgs { sizes, repeats: 1, seconds, java_size: 88 << 20, ..full }
}

fn json(results: &impl Serialize) -> Outcome<String> {
    serde_json::to_string(results).map_err(|e| format!("results cannot be written ({e})"))
}
