//! The settings in force when the recording began: lines of NAME=VALUE.

use core::fmt;
use uncopy_decide::{BadCosts, Costs};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The program's name.
    pub command: String,
    /// The controller that decided.
    pub controller: String,
    /// Smallest copy that was considered, in bytes.
    pub threshold: usize,
    /// Whether call sites were left alone.
    pub backoff: bool,
    /// Cap on extents, in bytes.
    pub extent_bytes: usize,
    /// Cap on registered ranges.
    pub ranges: usize,
    /// The costs of operations there.
    pub costs: Costs,
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // (A line each, whatever the program calls itself.)
        let name: String = self.command.chars().filter(|c| !c.is_control()).collect();
        writeln!(f, "command={name}")?;
        writeln!(f, "controller={}", self.controller)?;
        writeln!(f, "threshold={}", self.threshold)?;
        writeln!(f, "backoff={}", u8::from(self.backoff))?;
        writeln!(f, "extent_bytes={}", self.extent_bytes)?;
        writeln!(f, "ranges={}", self.ranges)?;
        writeln!(f, "costs={}", self.costs)
    }
}

/// Why a text is no start of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadStart {
    /// It does not have this line.
    Missing(&'static str),
    /// This line has a value that is no number.
    Number(&'static str, String),
    /// Its prices are not understood.
    Costs(BadCosts),
}

impl fmt::Display for BadStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "its head does not say '{name}'"),
            Self::Number(name, text) => {
                write!(f, "in its head '{name}' is '{text}', which is no number")
            }
            Self::Costs(why) => write!(f, "in its head: {why}"),
        }
    }
}

impl core::error::Error for BadStart {}

impl Start {
    /// Parses its text.
    ///
    /// # Errors
    /// Returns the name whose value is missing, or no number.
    pub(crate) fn read(text: &str) -> Result<Self, BadStart> {
        let value = |name: &'static str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
                .ok_or(BadStart::Missing(name))
        };
        let number = |name: &'static str| {
            let text = value(name)?;
            text.parse::<usize>().map_err(|_| BadStart::Number(name, text.to_owned()))
        };
        Ok(Self {
            command: value("command")?.to_owned(),
            controller: value("controller")?.to_owned(),
            threshold: number("threshold")?,
            backoff: number("backoff")? != 0,
            extent_bytes: number("extent_bytes")?,
            ranges: number("ranges")?,
            costs: Costs::parse(value("costs")?).map_err(BadStart::Costs)?,
        })
    }
}
