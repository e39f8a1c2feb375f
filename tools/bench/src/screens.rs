//! Screens of fixed input, compared with `tools/bench/screens/`. `make screens` writes those files
//! anew.

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use expect_test::expect_file;

use crate::{Words, kv, short};

fn same(name: &str, text: &str) {
    let place: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("screens").join(name);
    expect_file![place].assert_eq(text);
}

#[test]
fn screens_of_benches_of_events() {
    same("kv.txt", &kv::table::screen());
    same("short.txt", &short::table::screen());
}

#[test]
fn screens_of_help() {
    let mut command = Words::command().term_width(100);
    command.build();
    help("", command);
}

/// Of the command and all below it; those that are not for people are not shown.
fn help(before: &str, mut command: Command) {
    let name = format!("{before}{}", command.get_name());
    same(&format!("help/{name}.txt"), &command.render_long_help().to_string());
    let below = command.get_subcommands().filter(|c| !c.is_hide_set()).cloned();
    below.for_each(|c| help(&format!("{name}-"), c));
}

#[test]
fn every_mode_says_what_it_is_for() {
    for mode in Words::command().get_subcommands().filter(|mode| !mode.is_hide_set()) {
        let about = mode.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(
            !about.is_empty() && !about.contains("ptions of"),
            "{}: '{about}'",
            mode.get_name()
        );
    }
}

#[test]
fn examples_are_understood() {
    let lines: Vec<&str> = crate::EXAMPLES.lines().map(str::trim).collect();
    for line in lines.iter().filter(|line| line.starts_with("uncopy-bench ")) {
        let read = Words::command().try_get_matches_from(line.split(' '));
        assert!(read.is_ok(), "{line}: {}", read.unwrap_err());
    }
}
