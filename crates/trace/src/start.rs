//! What was in force when the recording began: lines of NAME=VALUE.

use core::fmt;
use uncopy_decide::Costs;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The program's name.
    pub command: String,
    /// Who decided.
    pub controller: String,
    /// Smallest copy that was considered, in bytes.
    pub threshold: usize,
    /// Whether call sites were left alone.
    pub backoff: bool,
    /// Cap on extents, in bytes.
    pub extent_bytes: usize,
    /// Cap on registered ranges.
    pub ranges: usize,
    /// What things cost there.
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

impl Start {
    /// From its text.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let value = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
                .ok_or_else(|| format!("its head does not say '{name}'"))
        };
        let number = |name: &str| {
            let text = value(name)?;
            text.parse::<usize>()
                .map_err(|_| format!("in its head '{name}' is '{text}', which is no number"))
        };
        Ok(Self {
            command: value("command")?.to_owned(),
            controller: value("controller")?.to_owned(),
            threshold: number("threshold")?,
            backoff: number("backoff")? != 0,
            extent_bytes: number("extent_bytes")?,
            ranges: number("ranges")?,
            costs: Costs::parse(value("costs")?).map_err(|why| format!("in its head: {why}"))?,
        })
    }
}
