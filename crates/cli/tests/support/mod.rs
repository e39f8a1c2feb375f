//! The parts that the tests of the built program share: the program, and a library to preload.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use uncopy_tests::built;
pub use uncopy_tests::built::{stderr, stdout};
pub use uncopy_tests::verdict::leave_out;

/// The built `uncopy`.
pub const UNCOPY: &str = env!("CARGO_BIN_EXE_uncopy");

/// The library under test.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    LIBRARY.get_or_init(|| built::library(Path::new(UNCOPY), scratch))
}

/// `uncopy` with nothing of ours in its environment but the library.
pub fn uncopy() -> Command {
    built::command(Path::new(UNCOPY), library())
}

/// Whether there is Python, which some tests' servers are written in; says so if not.
pub fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        leave_out("no python3");
    }
    found
}

/// Whether a program can run under the library here; says so if not.
pub fn works_here() -> bool {
    let output = uncopy().args(["run", "--require", "--", "true"]).output().unwrap();
    if !output.status.success() {
        leave_out(stderr(&output).trim());
    }
    output.status.success()
}

/// Whether there is a library here that publishes (the stub does not), and may.
pub fn publishes_here() -> bool {
    works_here() && !library().starts_with(env!("CARGO_TARGET_TMPDIR"))
}

/// The test program that copies what it is told to, built once; `input` lies beside it.
pub fn pump() -> &'static Path {
    static PUMP: OnceLock<PathBuf> = OnceLock::new();
    PUMP.get_or_init(|| {
        let name = format!("pump-{}", std::process::id());
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("pump");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stat/pump.c");
        let words = ["-O2", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-o"];
        let done = Command::new("cc").args(words).arg(&path).arg(source).status();
        assert!(done.expect("cc is there").success());
        std::fs::write(directory.join("input"), vec![7u8; 256 << 10]).unwrap();
        path
    })
}
