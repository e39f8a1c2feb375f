//! `uncopy profile`: what it says of a program whose copies are known.

#[allow(dead_code)]
mod support;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use support::{leave_out, library, stderr, stdout, uncopy};

const MB: u64 = 1 << 20;

/// Whether there is a library to follow with; says so if not.
fn works_here() -> bool {
    let there = library().with_file_name("libuncopy_profile.so").exists();
    if !there {
        leave_out("libuncopy_profile.so is not built");
    }
    there
}

fn relay() -> (tempfile::TempDir, PathBuf) {
    compiled("relay")
}

/// A directory with a compiled program of tests/profile and a message of 1 MB.
fn compiled(name: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join(name);
    let source = format!("tests/profile/{name}.c");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let done = Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(source).status();
    assert!(done.expect("cc is there").success());
    let message: Vec<u8> = (0..MB as usize).map(|i| (i * i / 7) as u8).collect();
    std::fs::write(directory.path().join("in"), message).unwrap();
    (directory, program)
}

fn profile(directory: &Path, options: &[&str], command: &[&str]) -> Output {
    let mut profile = uncopy();
    profile.current_dir(directory).arg("profile").args(options).arg("--").args(command);
    profile.output().unwrap()
}

/// The one program of a JSON report that moved most bytes.
fn first(text: &str) -> Value {
    serde_json::from_str(text.lines().next().expect("a program")).unwrap()
}

#[test]
fn the_copies_sizes_sites_and_touches_of_a_known_program_are_exactly_what_they_are() {
    if !works_here() {
        return;
    }
    let (directory, program) = relay();
    let command = [program.to_str().unwrap(), "in", "out", "5"];
    let output = profile(directory.path(), &["--json", "-o", "report"], &command);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(stderr(&output), "");
    let message = std::fs::read(directory.path().join("in")).unwrap();
    let out = std::fs::read(directory.path().join("out")).unwrap();
    let mut expected = message.repeat(5);
    expected.extend([0; 100_000]);
    assert!(out == expected, "the program wrote other bytes");
    let sum: u64 = message[..4096].iter().map(|b| u64::from(*b)).sum();
    assert_eq!(stdout(&output), format!("{}\n", 5 * sum));

    let p = first(&std::fs::read_to_string(directory.path().join("report")).unwrap());
    assert_eq!(p["program"], program.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(
        (p["bytes_in"].as_u64(), p["bytes_out"].as_u64()),
        (Some(6 * MB), Some(5 * MB + 100_000))
    );
    assert_eq!((p["copies"].as_u64(), p["copied_bytes"].as_u64()), (Some(15), Some(15 * MB)));
    let paths = p["paths"].as_array().unwrap();
    assert_eq!(paths.len(), 2, "{p:#}");

    let relayed = &paths[0];
    assert_eq!(relayed["bytes"], 5 * MB);
    assert_eq!((&relayed["copies"], &relayed["kernel_copies"]), (&3.into(), &2.into()));
    assert_eq!((&relayed["calls"], &relayed["sizes"]["1048576"]), (&5.into(), &5.into()));
    let ends = [&relayed["from"], &relayed["to"]].map(|e| {
        let function = e["site"]["function"].as_str().unwrap();
        assert!(function.starts_with("main+"), "{function}");
        (e["kind"].as_str().unwrap().to_owned(), e["site"]["call"].as_str().unwrap().to_owned())
    });
    assert_eq!(ends, [("file", "pread"), ("file", "write")].map(|(k, c)| (k.into(), c.into())));
    let way: Vec<_> = relayed["way"].as_array().unwrap().iter().collect();
    let names = [("memcpy", "first_copy"), ("memmove", "second_copy"), ("memcpy", "third_copy")];
    assert_eq!(way.len(), names.len());
    for (step, (call, function)) in way.iter().zip(names) {
        assert_eq!((&step["site"]["call"], &step["calls"]), (&call.into(), &5.into()));
        let found = step["site"]["function"].as_str().unwrap();
        assert!(found.starts_with(&format!("{function}+")), "{found}");
        assert_eq!((&step["site"]["library"], &step["bytes"]), (&"relay".into(), &(5 * MB).into()));
    }
    let predicted = relayed["predicted"]["bytes"].as_f64().unwrap();
    assert!(predicted > 14.9 * MB as f64 && predicted <= 15.0 * MB as f64, "{predicted}");

    let own = &paths[1];
    assert_eq!((&own["from"], &own["bytes"]), (&Value::Null, &100_000.into()));
    assert_eq!((&own["copies"], &own["kernel_copies"]), (&0.into(), &1.into()));

    // Every input is accounted for: five were sent, one was there still.
    let sum = |field: &str| -> u64 {
        p["inputs"].as_array().unwrap().iter().map(|i| i[field].as_u64().unwrap()).sum()
    };
    assert_eq!((sum("bytes"), sum("sent_bytes"), sum("held_bytes")), (6 * MB, 5 * MB, MB));
    // Where pages can be taken away, all are (the first inputs of a site always), but for what the
    // kernel refuses at the moment; then the rest is known.
    if p["touches_visible"] == true {
        let watched = relayed["watched_bytes"].as_u64().unwrap();
        let touched = relayed["touched_bytes"].as_u64().unwrap();
        assert!(watched > 4 * MB && touched <= 5 * 4096 && touched > 0, "{relayed:#}");
        assert!(watched < 5 * MB || touched == 5 * 4096, "{relayed:#}");
        assert_eq!(sum("touches"), touched / 4096);
    }
}

#[test]
fn data_that_is_received_and_copied_has_a_path_also_where_it_ends_in_the_program() {
    if !works_here() {
        return;
    }
    let (directory, program) = compiled("receiver");
    let command = [program.to_str().unwrap(), "in", "out", "40"];
    let output = profile(directory.path(), &["--json"], &command);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let p = first(&stderr(&output));
    assert_eq!(p["copied_bytes"], 80 * MB);
    let paths = p["paths"].as_array().unwrap();
    assert_eq!(paths.len(), 2, "{p:#}");
    // Of the second copy one half is sent, and one ends; the first was copied on whole.
    let names = ["first_copy+", "second_copy+"];
    for path in paths {
        assert_eq!((&path["bytes"], &path["copies"]), (&(20 * MB).into(), &2.into()), "{path:#}");
        for (step, name) in path["way"].as_array().unwrap().iter().zip(names) {
            let found = step["site"]["function"].as_str().unwrap();
            assert!(found.starts_with(name), "{found}");
            assert_eq!(step["bytes"], 40 * MB);
        }
    }
    let ends = |sent: bool| paths.iter().find(|path| path["to"].is_null() != sent).expect("both");
    assert_eq!(ends(true)["to"]["site"]["call"], "write");
    assert_eq!(ends(false)["kernel_copies"], 1);
    // No copy is saved twice, and none is left out, but for a page of each.
    let predicted = |of: &Value| of["predicted"]["bytes"].as_f64().unwrap() / MB as f64;
    assert!((39.0..=40.0).contains(&predicted(ends(true))), "{p:#}");
    assert!((39.0..=40.0).contains(&predicted(ends(false))), "{p:#}");
    // Two new blocks of 256 pages for each message.
    let fresh = p["fresh_pages"].as_u64().unwrap();
    assert!((40 * 512..80 * 512).contains(&fresh), "{fresh}");

    let output = profile(directory.path(), &[], &command);
    let said = stderr(&output);
    for words in ["ends here", "keeping freed memory", "first_copy", "second_copy"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn a_look_at_the_last_copy_has_that_one_made_and_not_those_before_it() {
    if !works_here() {
        return;
    }
    let (directory, program) = compiled("reader");
    let command = [program.to_str().unwrap(), "in", "40"];
    let output = profile(directory.path(), &["--json"], &command);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let p = first(&stderr(&output));
    if p["touches_visible"] != true {
        return;
    }
    let path = &p["paths"][0];
    let [first, second] = [0, 1].map(|i| &path["way"][i]);
    let share =
        |of: &Value| of["touched_bytes"].as_f64().unwrap() / of["watched_bytes"].as_f64().unwrap();
    assert!(share(first) == 0.0 && share(second) > 0.9, "{path:#}");
    assert_eq!(first["predicted_elided_bytes"].as_f64(), Some((40 * MB) as f64));
    assert_eq!(second["predicted_elided_bytes"].as_f64(), Some(0.0));
    let predicted = p["predicted"]["bytes"].as_f64().unwrap() / MB as f64;
    assert!((39.0..=40.0).contains(&predicted), "{predicted}");

    let said = stderr(&profile(directory.path(), &[], &command));
    assert!(said.contains("left alone: ") && said.contains(" of 1.0 MB, elided"), "{said}");
}

#[test]
fn the_report_names_the_copies_and_the_page_needs_nothing_else() {
    if !works_here() {
        return;
    }
    let (directory, program) = relay();
    let command = [program.to_str().unwrap(), "in", "out", "2"];
    let output = profile(directory.path(), &["--html", "page.html", "--touch", "no"], &command);
    let text = stderr(&output);
    for part in
        ["first_copy (", "second_copy (", "third_copy (", "2 of 1.0 MB", "held at the end 100.0%"]
    {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    let page = std::fs::read_to_string(directory.path().join("page.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("third_copy") && page.ends_with("</html>\n"));
    for outside in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn programs_that_a_program_starts_are_told_apart_and_forked_children_are_not() {
    if !works_here() {
        return;
    }
    let (directory, program) = relay();
    let script = format!("{0} in a 1; {0} in b 1; cat in | cat > c", program.display());
    let output = profile(directory.path(), &["--json", "-o", "report"], &["sh", "-c", &script]);
    assert!(output.status.success());
    let text = std::fs::read_to_string(directory.path().join("report")).unwrap();
    let programs: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let named = |end: &str| {
        programs.iter().find(|p| p["program"].as_str().unwrap().ends_with(end)).expect("is there")
    };
    let relays = named("/relay");
    assert_eq!(relays["pids"].as_array().unwrap().len(), 2);
    assert_eq!(relays["paths"][0]["bytes"], 2 * MB);
    let cats = named("cat");
    assert_eq!(cats["bytes_out"], 2 * MB);
    let same = |name| std::fs::read(directory.path().join(name)).unwrap();
    assert!(same("in") == same("c"));
}

#[test]
fn a_program_is_ended_after_the_duration_and_reported_even_if_it_is_killed() {
    if !works_here() {
        return;
    }
    let (directory, _) = relay();
    let endless = "while :; do cat in > out; sleep 0.02; done";
    let options = ["--json", "-o", "report", "--duration", "1.5"];
    let output = profile(directory.path(), &options, &["sh", "-c", endless]);
    assert_eq!(output.status.signal(), Some(libc::SIGTERM));
    let p = first(&std::fs::read_to_string(directory.path().join("report")).unwrap());
    assert!(p["bytes_out"].as_u64().unwrap() >= MB, "{p}");

    let output =
        profile(directory.path(), &["-o", "report"], &["sh", "-c", "cat in > out; kill -9 $$"]);
    assert_eq!(output.status.signal(), Some(libc::SIGKILL));
    assert!(std::fs::read_to_string(directory.path().join("report")).unwrap().contains("cat"));
}

#[test]
fn a_file_that_cannot_be_executed_has_the_status_that_shells_give() {
    if !works_here() {
        return;
    }
    let here = Path::new("/");
    assert_eq!(profile(here, &[], &["no-such-program"]).status.code(), Some(127));
    assert_eq!(profile(here, &[], &["/etc/passwd"]).status.code(), Some(126));
    assert_eq!(profile(here, &["--min", "1"], &["true"]).status.code(), Some(2));
}

#[test]
fn the_names_of_programs_are_shown_and_not_obeyed() {
    if !works_here() {
        return;
    }
    let (directory, program) = relay();
    let bytes = b"<\x1b[31m'\xc2\x9b1m\n\xe2\x80\xae";
    let name = directory.path().join(OsStr::from_bytes(bytes));
    std::fs::hard_link(&program, &name).unwrap();
    for option in [&[][..], &["--json"]] {
        let words = [&["--html", "page.html"], option].concat();
        let mut profile = uncopy();
        profile.current_dir(directory.path()).arg("profile").args(words).arg("--");
        let output = profile.arg(&name).args(["in", "out", "1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(7));
        let steers = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        let text = stderr(&output);
        assert!(!text.contains(steers), "{text:?}");
        if option.is_empty() {
            let shown = r"/<\x1b[31m'\u{9b}1m\n\u{202e}";
            assert_eq!(text.matches(&format!("{shown}\n")).count(), 1, "{text}");
            assert!(text.matches(&format!("({})", &shown[1..])).count() > 3, "{text}");
        } else {
            let path = first(&text)["program"].as_str().unwrap().to_owned();
            assert!(path.ends_with("/<\x1b[31m'\u{9b}1m\n\u{202e}"), "{path:?}");
        }
        let page = std::fs::read_to_string(directory.path().join("page.html")).unwrap();
        assert!(!page.contains(steers), "{page:?}");
        assert!(page.contains(r"<h1>&lt;\x1b[31m'\u{9b}1m\n\u{202e}</h1>"), "{page}");
    }
}

#[test]
fn a_holder_of_a_librarys_lock_gets_on_while_another_thread_forks() {
    if !works_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profile/lock_and_fork.c");
    let compile = |words: &[&str]| {
        let mut compiler = Command::new("cc");
        compiler.current_dir(directory.path()).args(["-O2", "-Wall", "-Wextra", "-Werror"]);
        let done = compiler.arg(&source).args(words).args(["-pthread"]).status();
        assert!(done.expect("cc is there").success());
    };
    compile(&["-DLIBRARY", "-shared", "-fPIC", "-o", "liblocks.so"]);
    compile(&["-o", "program", "-L.", "-llocks", "-Wl,-rpath,$ORIGIN"]);
    let plain = Command::new(directory.path().join("program")).status().unwrap();
    assert_eq!(plain.code(), Some(0));
    // (Threads that wait for one another have all signals blocked.)
    let command = ["timeout", "-s", "KILL", "20", "./program"];
    let output = profile(directory.path(), &["--json", "-o", "report"], &command);
    assert_eq!((output.status.code(), output.status.signal()), (Some(0), None));
    // The parent's rounds, and the children's.
    let p = first(&std::fs::read_to_string(directory.path().join("report")).unwrap());
    assert_eq!(p["pids"].as_array().unwrap().len(), 21, "{p:#}");
    assert_eq!(p["copies"], 41);
}
