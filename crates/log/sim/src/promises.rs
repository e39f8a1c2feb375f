//! What a process was told by syncs that returned early, and what waits for them.

use crate::files::FileId;
use uncopy_log_book::answers::Answers;

/// Bytes that queues have room for: three answers'.
const MOST: usize = 24;

/// What a process with such syncs has promised, and to whom.
#[derive(Clone, Debug)]
pub struct Promises {
    pub(crate) answers: Answers,
    /// What each sync has told the program: this version of this file is durable.
    pub(crate) made: Vec<(FileId, usize)>,
}

impl Promises {
    /// Nothing was promised.
    pub fn none() -> Promises {
        Promises { answers: Answers::new(MOST), made: Vec::new() }
    }
}
