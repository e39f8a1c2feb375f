//! The output of a mode's rows: JSON for programs, or text for people.

use serde::{Deserialize, Serialize};
use uncopy_measure::Failure;

/// The results that `--json` prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results<R> {
    /// The mode's name.
    pub bench: String,
    /// One for each combination of parameters.
    pub rows: Vec<R>,
}

/// Prints the rows of the mode of this name, as JSON or as `text` has them.
pub fn show<R: Serialize>(
    bench: &str,
    rows: Vec<R>,
    json: bool,
    text: impl FnOnce(&[R]) -> String,
) -> Result<(), Failure> {
    if !json {
        return uncopy_measure::print(&text(&rows));
    }
    let results = Results { bench: bench.to_owned(), rows };
    let json = serde_json::to_string(&results).expect("results can be written");
    uncopy_measure::print(&format!("{json}\n"))
}
