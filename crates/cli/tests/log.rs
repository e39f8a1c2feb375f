//! `uncopy log status`: what is said of files.

#[allow(dead_code)]
mod support;

use support::{has_python, stderr, stdout, uncopy, works_here};

/// Overwrites a file that it cannot read, and syncs it each time.
const OVERWRITES: &str = "
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for _ in range(8):
    os.pwrite(file, b'x', 0)
    os.fsync(file)
";

#[test]
fn a_file_that_was_put_off_before_it_was_asked_for_has_a_line() {
    if !works_here() || !has_python() {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (log, file) = (directory.path().join("log"), directory.path().join("file"));
    let mut command = uncopy();
    command.arg("run").arg(format!("--log={}", log.display()));
    command.args(["--log-overwrites", "--log-size=1M", "--", "python3", "-c", OVERWRITES]);
    let output = command.arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let status = stdout(&uncopy().args(["log", "status"]).arg(&log).output().unwrap());
    let line = format!("plain {}: not-read (", file.display());
    assert!(status.contains(&line), "{line} in: {status}");
}
