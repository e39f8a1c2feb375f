//! What the tests of the built program share: the program, and a library to preload.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

pub use uncopy_tests::verdict::leave_out;

/// The built `uncopy`.
pub const UNCOPY: &str = env!("CARGO_BIN_EXE_uncopy");

/// A library that does nothing but have counters.
const STUB: &str = "static unsigned long long counters[64];\n\
                    void *uncopy_counters(void) { return counters; }\n";

/// The library under test: `UNCOPY_TEST_LIBRARY`, else the one next to the program, else a stub.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("UNCOPY_TEST_LIBRARY") {
            return path.into();
        }
        let built = Path::new(UNCOPY).with_file_name("libuncopy.so");
        if built.exists() {
            return built;
        }
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(std::process::id().to_string());
        std::fs::create_dir_all(&directory).unwrap();
        let (source, stub) = (directory.join("stub.c"), directory.join("libuncopy.so"));
        std::fs::write(&source, STUB).unwrap();
        let done =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&stub).arg(&source).status();
        assert!(done.expect("cc is there").success());
        stub
    })
}

/// `uncopy` with nothing of ours in its environment but the library.
pub fn uncopy() -> Command {
    let mut command = Command::new(UNCOPY);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"UNCOPY_") {
            command.env_remove(name);
        }
    }
    // Costs that were measured on this machine are another test's.
    command.env("XDG_CACHE_HOME", "/nonexistent");
    command.env_remove("LD_PRELOAD").env("UNCOPY_LIBRARY", library());
    command
}

/// What a finished program wrote to standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a finished program wrote to standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
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
