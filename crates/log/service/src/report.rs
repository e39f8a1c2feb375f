//! The report of a recovery, and where it is written for a reader who was not there.

use crate::place::{Place, now};
use std::io::Write;

/// The work of a recovery.
#[derive(Debug, Default)]
pub struct Report {
    /// The report, a line each.
    pub said: Vec<String>,
    /// Something is in `lost`, or aside, that may have belonged into a file.
    pub lost: bool,
    /// Something could not be recovered, and is where it was: why.
    pub kept: Option<String>,
}

impl Report {
    pub(crate) fn lose(&mut self, said: String) {
        self.lost = true;
        self.said.push(said);
    }

    pub(crate) fn keep(&mut self, why: String) {
        self.said.push(why.clone());
        self.kept.get_or_insert(why);
    }

    /// Writes lines into the place's own file, for readers who were not there.
    pub(crate) fn append(place: &Place, said: &[String]) -> std::io::Result<()> {
        if said.is_empty() {
            return Ok(());
        }
        use rustix::fs::{Mode, OFlags, openat};
        let flags = OFlags::CREATE | OFlags::APPEND | OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        let file = openat(place, "recovered", flags | OFlags::NOFOLLOW, mode)?;
        let mut file = std::fs::File::from(file);
        let at = now() / 1_000_000_000;
        for line in said {
            writeln!(file, "{at} {line}")?;
        }
        file.sync_all()
    }
}
