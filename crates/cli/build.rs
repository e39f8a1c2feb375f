//! Tells the program which commit it was built from, as far as that is known.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).map(|commit| {
        let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", "../.."]);
        let clean = changed.is_some_and(|files| files.is_empty());
        if clean { commit } else { format!("{commit} with changes") }
    });
    println!("cargo::rustc-env=BUILT_FROM_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo::rerun-if-changed=build.rs");
    for watched in ["src", "../core/src", "../vm/src", "../stack/src", "../preload/src"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}
