//! All error lines of the command and of its tools have one form: `WHAT (WHY); ADVICE`. This reads
//! them where they are made.

use std::fs;
use std::path::{Path, PathBuf};

use regex_lite::Regex;
use uncopy_measure::failure::is_in_form;

/// Every source file of the command, of what it shares with its tools, and of these.
fn sources() -> Vec<(PathBuf, String)> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut left = ["src", "../measure/src", "../../tools/bench/src"].map(|d| own.join(d)).to_vec();
    let mut found = Vec::new();
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                left.push(entry);
            } else if entry.extension().is_some_and(|e| e == "rs") && !entry.ends_with(file!()) {
                // (A directory that tests expect is not made there.)
                let text = fs::read_to_string(&entry).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
                found.push((entry, code.to_owned()));
            }
        }
    }
    found
}

/// Literals behind `opening`, with their line breaks taken out.
fn literals<'a>(code: &'a str, opening: &str) -> Vec<String> {
    let literal = Regex::new(&format!(r#"{opening}\s*"((?:[^"\\]|\\(?s:.))*)""#)).unwrap();
    let breaks = Regex::new(r"\\\n\s*").unwrap();
    let texts = literal.captures_iter(code).map(|found| found.get(1).unwrap().as_str());
    texts.map(|text: &'a str| breaks.replace_all(text, "").into_owned()).collect()
}

#[test]
fn every_failure_says_what_then_why_then_what_to_do() {
    let mut seen = 0;
    for (file, code) in sources() {
        let shown = file.display();
        for text in literals(&code, r"(?:failure!|Failure::new)\(") {
            seen += 1;
            assert!(is_in_form(&text), "{shown}: '{text}' does not have the form");
            assert!(!text.contains("; "), "{shown}: '{text}' has its advice in it: advise()");
            assert!(!text.ends_with("})"), "{shown}: '{text}' says why in it: because()");
        }
        for text in literals(&code, r"\.advise\((?:format_args!\()?") {
            assert!(!text.ends_with('.') && !text.starts_with(' '), "{shown}: advice '{text}'");
        }
    }
    assert!(seen > 150, "{seen} failures: they are made in another way now");
}

#[test]
fn no_failure_is_a_bare_text() {
    let bare = Regex::new(r"(?:Err\(|map_err\(\|[^|]*\| |ok_or_else\(\|\| )format!\(").unwrap();
    for (file, code) in sources() {
        let found = bare.find(&code).map(|found| code[found.start()..].lines().next());
        assert_eq!(found, None, "{}", file.display());
    }
}
