//! `uncopy demo` and `options`: they end, verify, and print what they promise.

#[allow(dead_code)]
mod support;

use support::{stderr, stdout, uncopy};

#[test]
fn the_demo_explains_itself_within_96_columns() {
    let output = uncopy().args(["demo", "--seconds", "0.1"]).output().unwrap();
    let said = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(said.contains("3,840 of 3,840 random messages came back byte for byte"), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 96), "{said}");
}

#[test]
fn options_lists_the_whole_table() {
    let said = stdout(&uncopy().arg("options").output().unwrap());
    for spec in uncopy_options::OPTIONS {
        assert!(said.contains(spec.name) && said.contains(spec.env), "{}", spec.name);
    }
}

#[test]
fn a_missing_library_is_a_clear_error() {
    let output = uncopy().arg("demo").env("UNCOPY_LIBRARY", "/no.so").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("uncopy: the library /no.so"), "{}", stderr(&output));
}
