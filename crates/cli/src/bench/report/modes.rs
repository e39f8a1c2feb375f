//! The parts of a report.

use std::path::Path;

use serde::Serialize;

use super::section::Section;
use super::{echo_sections, views_section};
use crate::Outcome;
use crate::bench::figures::{self, Figure, FigureArgs};
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
    ];

    /// The mode of `bench`, and the name of the file.
    pub fn name(self) -> &'static str {
        match (self, self.figure()) {
            (_, Some(figure)) => figure.name(),
            (Self::Views, _) => "views",
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
            Self::Views => None,
        }
    }

    /// Runs it; the answer is its JSON.
    pub fn measure(self, quick: bool, library: &Path) -> Outcome<String> {
        if let Some(figure) = self.figure() {
            let args = FigureArgs {
                quick,
                repeats: None,
                seconds: None,
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
            _ => unreachable!("the others are figures"),
        }
    }

    /// Shows it.
    pub fn section(self, json: &str) -> Result<Section, serde_json::Error> {
        Ok(match self.figure() {
            Some(figure) => echo_sections::section(figure, &serde_json::from_str(json)?),
            None => views_section::section(&serde_json::from_str(json)?),
        })
    }
}

fn json(results: &impl Serialize) -> Outcome<String> {
    serde_json::to_string(results).map_err(|e| format!("results cannot be written ({e})"))
}
