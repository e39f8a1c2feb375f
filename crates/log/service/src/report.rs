//! What a recovery did, and where that is written for who was not there.

use crate::place::{Place, now};
use std::io::Write;

/// What recovery did.
#[derive(Debug, Default)]
pub struct Report {
    /// What there is to say, a line each.
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

    /// Writes lines into the place's own file, for who was not there.
    pub(crate) fn append(place: &Place, said: &[String]) -> std::io::Result<()> {
        if said.is_empty() {
            return Ok(());
        }
        let path = place.path().join("recovered");
        let mut file = std::fs::File::options().create(true).append(true).open(path)?;
        let at = now() / 1_000_000_000;
        for line in said {
            writeln!(file, "{at} {line}")?;
        }
        file.sync_all()
    }
}
