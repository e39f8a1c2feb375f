//! `uncopy report`: it says what it contains before it writes, and contains no more.

#[allow(dead_code)]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use support::{stderr, stdout, uncopy};

/// Everything that the report holds.
fn whole(directory: &Path) -> String {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn all_that_is_written_was_listed_and_nothing_of_the_programs_words_or_variables_is_in_it() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("report");
    let mut program = Command::new("sh")
        .args(["-c", "read a; true", "word-of-the-command-line"])
        .env("PASSWORD", "value-of-a-variable")
        .env("UNCOPY_THRESHOLD", "65536")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let report = |more: &[&str]| {
        let mut command = uncopy();
        command.args(["report", &program.id().to_string(), "-o"]).arg(&directory).args(more);
        command.env("TOKEN", "value-of-a-variable").output().unwrap()
    };
    let listed = report(&["--list"]);
    assert!(!directory.exists() && listed.status.success(), "{}", stderr(&listed));
    let written = report(&[]);
    assert!(stdout(&written).starts_with(&stdout(&listed)), "{}", stderr(&written));
    for entry in fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(stdout(&listed).contains(&format!("  {name} ")), "{name}");
    }
    let text = whole(&directory);
    assert!(text.contains("UNCOPY_THRESHOLD=65536") && text.contains("commit"), "{text}");
    for secret in ["word-of-the-command-line", "value-of-a-variable", "PASSWORD", "TOKEN"] {
        assert!(!text.contains(secret), "{secret}");
    }
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);

    let again = report(&[]);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("is there already"), "{}", stderr(&again));
    drop(program.stdin.take());
    program.wait().unwrap();
}

#[test]
fn without_a_number_it_is_about_the_machine_and_a_number_that_is_nobodys_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let output = uncopy().arg("report").current_dir(scratch.path()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = whole(&scratch.path().join("uncopy-report"));
    assert!(text.contains("vm/max_map_count") && text.contains("userfaultfd"), "{text}");
    let none = uncopy().args(["report", "4194303"]).output().unwrap();
    assert!(stderr(&none).contains("there is no process 4194303"), "{}", stderr(&none));
}
