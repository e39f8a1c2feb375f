//! The parts that the tests of `uncopy-bench` share: the program, and a library to preload.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use uncopy_tests::built;
pub use uncopy_tests::built::{stderr, stdout};
pub use uncopy_tests::verdict::leave_out;

/// The built `uncopy-bench`.
const BENCH: &str = env!("CARGO_BIN_EXE_uncopy-bench");

/// The library under test.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    LIBRARY.get_or_init(|| built::library(Path::new(BENCH), scratch))
}

/// `uncopy-bench` with nothing of ours in its environment but the library.
pub fn bench() -> Command {
    built::command(Path::new(BENCH), library())
}

/// Whether anything can be elided here; says so if not.
pub fn works_here() -> bool {
    if library().starts_with(env!("CARGO_TARGET_TMPDIR")) {
        leave_out("no libuncopy.so was built");
        return false;
    }
    let found = uncopy_measure::userfaultfd::check();
    if let Err(why) = &found {
        leave_out(why);
    }
    found.is_ok()
}

/// Its output as JSON.
pub fn json(words: &[&str]) -> Value {
    let output = bench().args(words).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}
