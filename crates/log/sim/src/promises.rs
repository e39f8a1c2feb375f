//! The promises that a process was given by syncs that returned early, and the outputs that wait
//! for them.

use crate::files::FileId;
use uncopy_log_book::answers::Answers;

/// Bytes that queues have room for: three answers'.
const MOST: usize = 24;

/// The promises of a process with such syncs, and those who were given them.
#[derive(Clone, Debug)]
pub struct Promises {
    pub(crate) answers: Answers,
    /// The promise of each sync to the program: this version of this file is durable.
    pub(crate) made: Vec<(FileId, usize)>,
}

impl Promises {
    /// Nothing was promised.
    pub fn none() -> Promises {
        Promises { answers: Answers::new(MOST), made: Vec::new() }
    }
}
