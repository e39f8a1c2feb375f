//! A program as `cargo test` builds it, for the tests of its own package: with a library to
//! preload, and nothing else of ours in its environment.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A library that does nothing but have counters.
const STUB: &str = "static unsigned long long counters[64];\n\
                    void *uncopy_counters(void) { return counters; }\n";

/// The library under test: `UNCOPY_TEST_LIBRARY`, else the one next to `program`, else a stub that
/// is made in `scratch`.
pub fn library(program: &Path, scratch: &Path) -> PathBuf {
    if let Some(path) = std::env::var_os("UNCOPY_TEST_LIBRARY") {
        return path.into();
    }
    let built = program.with_file_name("libuncopy.so");
    if built.exists() {
        return built;
    }
    let directory = scratch.join(std::process::id().to_string());
    std::fs::create_dir_all(&directory).unwrap();
    let (source, stub) = (directory.join("stub.c"), directory.join("libuncopy.so"));
    std::fs::write(&source, STUB).unwrap();
    let done = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&stub).arg(&source).status();
    assert!(done.expect("cc is there").success());
    stub
}

/// `program` with nothing of ours in its environment but `library`.
pub fn command(program: &Path, library: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"UNCOPY_") {
            command.env_remove(name);
        }
    }
    // Costs that were measured on this machine are another test's.
    command.env("XDG_CACHE_HOME", "/nonexistent");
    command.env_remove("LD_PRELOAD").env("UNCOPY_LIBRARY", library);
    command
}

/// The standard output of a finished program.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The standard error of a finished program.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
