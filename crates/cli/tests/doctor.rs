//! `uncopy doctor`: what it measures is kept, found again by `uncopy run`, and reaches the library.

#[allow(dead_code)]
mod support;

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use support::{stderr, stdout, uncopy, works_here};

fn with_cache(cache: &Path, words: &[&str]) -> Output {
    uncopy().args(words).env("XDG_CACHE_HOME", cache).output().unwrap()
}

/// The costs that a program is started with.
fn handed_on(cache: &Path) -> (String, String) {
    let output = with_cache(cache, &["run", "--", "sh", "-c", "echo \"$UNCOPY_COSTS\""]);
    assert!(output.status.success(), "{}", stderr(&output));
    (stdout(&output).trim().to_owned(), stderr(&output))
}

#[test]
fn measured_costs_are_handed_on_until_they_are_forgotten_or_anothers() {
    if !works_here() {
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path();
    let file = cache.join("uncopy/costs");
    assert_eq!(handed_on(cache), Default::default());

    let output = with_cache(cache, &["doctor", "--json", "--busy"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["kept_in"].as_str(), file.to_str());
    assert_eq!(report["costs"], report["in_use"]);
    assert_eq!(report["can_elide"], true);
    let costs = report["costs"].as_object().unwrap();
    assert_eq!(costs.len(), 18);
    let (text, said) = handed_on(cache);
    assert_eq!(said, "");
    for (name, ns) in costs {
        let found = text.split(',').any(|part| part == format!("{name}={ns}"));
        assert!(ns.as_i64().unwrap() > 0 && found, "{name}={ns} in {text}");
    }

    let kept = fs::read_to_string(&file).unwrap();
    for field in ["cpu=", "kernel="] {
        fs::write(&file, kept.replace(field, &format!("{field}not "))).unwrap();
        assert_eq!(handed_on(cache), Default::default(), "{field}");
    }
    fs::write(&file, kept.replace("fault=", "falt=")).unwrap();
    let (none, said) = handed_on(cache);
    assert_eq!((none.as_str(), said.lines().count()), ("", 1), "{said}");
    assert!(said.contains("'falt'") && said.contains("uncopy doctor"), "{said}");

    fs::write(&file, kept).unwrap();
    assert!(stdout(&with_cache(cache, &["doctor", "--forget"])).starts_with("removed "));
    assert!(!file.exists());
    assert!(stdout(&with_cache(cache, &["doctor", "--forget"])).starts_with("there are no costs"));
}

#[test]
fn with_no_cache_nothing_is_written_and_all_tables_are_shown() {
    let cache = tempfile::tempdir().unwrap();
    let output = with_cache(cache.path(), &["doctor", "--no-cache"]);
    assert_eq!(output.status.success(), works_here());
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
    for part in ["UFFDIO_MOVE", "vm.max_map_count", "memcpy, cold", "books: an input", "Not kept"] {
        assert!(stdout(&output).contains(part), "{part}");
    }
    assert_eq!(stderr(&output), "");
}

#[test]
fn bad_costs_are_told_of_in_one_line_and_not_handed_on() {
    let output = uncopy()
        .args(["run", "--", "sh", "-c", "echo \"[$UNCOPY_COSTS]\""])
        .env("UNCOPY_COSTS", "fault=cheap")
        .output()
        .unwrap();
    assert_eq!(stdout(&output), "[]\n");
    let said = stderr(&output);
    assert!(said.contains("UNCOPY_COSTS=fault=cheap is ignored: 'fault=cheap' is not"), "{said}");
}

#[test]
fn where_there_is_no_proc_the_first_line_says_that_nothing_is_elided() {
    let uncopy = support::UNCOPY;
    let script = format!(
        "umount -l /proc || exit; while umount -l /proc 2>/dev/null; do :; done; exec {uncopy} \
         doctor --no-cache"
    );
    let mut command = std::process::Command::new("unshare");
    let output =
        command.args(["--mount", "sh", "-c", &script]).env_remove("UNCOPY_LIBRARY").output();
    let output = output.expect("util-linux is there");
    if stderr(&output).contains("ermitted") {
        return support::leave_out("only root takes /proc away");
    }
    let (said, first) = (stdout(&output), "Nothing can be elided here: cannot tell where uncopy");
    assert!(said.starts_with(first) && said.contains("mount -t proc"), "{said}{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}
