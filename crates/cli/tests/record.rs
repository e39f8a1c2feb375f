//! `uncopy run --record`, and `uncopy replay` of what it has written.

#[allow(dead_code)]
mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{publishes_here, pump, stderr, stdout, uncopy};
use uncopy_decide::{Choice, Event, Operation, Reason};
use uncopy_replay::{Stage, Unseen, play_choice, recorded};
use uncopy_trace::{EntryKind, Trace};

/// Records the test program, which is told by `words` what to copy.
fn run(record: &Path, words: &str) -> std::process::Output {
    run_where(record, words, &[])
}

/// The same, with these variables.
fn run_where(record: &Path, words: &str, variables: &[(&str, &str)]) -> std::process::Output {
    use std::io::Write;
    let mut command = uncopy();
    command.envs(variables.iter().copied());
    command.env("UNCOPY_CONTROLLER", "always").arg("run").arg("--record").arg(record).arg("--");
    let mut child = command
        .arg(pump())
        .arg("input")
        .current_dir(pump().parent().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(words.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn read(file: &Path) -> Trace {
    Trace::read(&std::fs::read(file).unwrap()).unwrap()
}

fn elided(trace: &Trace) -> usize {
    let events = trace.entries.iter().filter_map(|entry| match entry.what {
        EntryKind::Told(_, event) => Some(event),
        EntryKind::Did(_) => None,
    });
    events.filter(|e| matches!(e, Event::Elided { .. } | Event::ElidedAgain { .. })).count()
}

#[test]
fn copies_of_a_program_are_recorded_from_its_first_one_to_its_end() {
    if !publishes_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let done = run(&file, "copy 20\nquit\n");
    assert!(done.status.success(), "{}", stderr(&done));
    let trace = read(&file);
    let copies =
        trace.entries.iter().filter(|e| matches!(e.what, EntryKind::Did(Operation::Copy { .. })));
    assert_eq!((copies.count(), elided(&trace)), (40, 40));
    assert!(!trace.full && trace.start.controller == "always" && trace.start.command == "pump");
    assert!(trace.entries.is_sorted_by_key(|entry| entry.at.wall));
    let found = std::fs::metadata(&file).unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    assert!(found.len() < 100 << 10, "what was not needed is given back: {}", found.len());
    // The next recording takes its place.
    assert!(run(&file, "copy 3\nquit\n").status.success());
    assert_eq!(elided(&read(&file)), 6);
}

#[test]
fn a_child_and_its_parent_have_files_of_their_own() {
    if !publishes_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let done = run(&file, "copy 5\nfork\ncopy 7\nend\ncopy 9\nrawfork\nquit\n");
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(elided(&read(&file)) >= 2 * (5 + 9));
    // (The child's own recording does not know the views that it has of its parent's: it is none.)
    let others = std::fs::read_dir(directory.path()).unwrap().map(|f| f.unwrap().path());
    let others: Vec<_> = others.filter(|path| *path != file).collect();
    let child = stdout(&done).lines().nth(2).unwrap().to_owned();
    assert!(others.iter().all(|path| path.extension().unwrap() == child.as_str()), "{others:?}");
}

#[test]
fn a_program_that_enters_a_sandbox_is_recorded_until_then() {
    if !publishes_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let done = run(&file, "copy 5\nsandbox\ncopy 7\nquit\n");
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(elided(&read(&file)), 10);
}

#[test]
fn a_refusal_is_recorded_with_its_reason_and_a_replay_tells_the_same() {
    if !publishes_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for (fails, as_what) in
        [("move:EBUSY", Reason::RefusedBusy), ("move:ENOMEM", Reason::RefusedNoMemory)]
    {
        let file = directory.path().join(fails.replace('/', "-"));
        let inject = [("UNCOPY_INJECT", fails)];
        let done = run_where(&file, "copy 20\nquit\n", &inject);
        assert!(done.status.success(), "{fails}: {}", stderr(&done));
        let trace = read(&file);
        let (was, stage) = (recorded(&trace), Stage::new());
        let again = play_choice(&trace, &stage, 0, Unseen::default(), Choice::From(0)).tally;
        assert!(was.missed[as_what as usize] > 0, "{fails}: {:?}", was.missed);
        assert_eq!((again.missed, again.elided), (was.missed, was.elided), "{fails}");
    }
}

#[test]
fn a_recording_that_is_full_says_so_and_can_be_read() {
    if !publishes_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let mut command = uncopy();
    command
        .env("UNCOPY_RECORD_BYTES", "1000")
        .env("UNCOPY_RECORD", &file)
        .env("UNCOPY_CONTROLLER", "always");
    command.args(["run", "--"]).arg(pump()).arg("input").current_dir(pump().parent().unwrap());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"copy 100\nquit\n").unwrap();
    assert!(child.wait().unwrap().success());
    let trace = read(&file);
    assert!(trace.full && (5..100).contains(&elided(&trace)));
    assert!(std::fs::metadata(&file).unwrap().len() <= 1000);
}

#[test]
fn a_file_that_can_not_be_recorded_to_is_told_of_and_nothing_is_run() {
    let directory = tempfile::tempdir().unwrap();
    let letter = directory.path().join("letter");
    std::fs::write(&letter, "Dear").unwrap();
    let said = |file: &Path| {
        let done = uncopy()
            .arg("run")
            .arg("--record")
            .arg(file)
            .args(["--", "echo", "ran"])
            .output()
            .unwrap();
        assert_eq!((done.status.code(), stdout(&done).as_str()), (Some(2), ""));
        stderr(&done)
    };
    assert!(said(&letter).contains("there is something that is no recording; name another file"));
    assert!(said(&directory.path().join("no/such")).contains("No such file"));
    assert_eq!(std::fs::read(&letter).unwrap(), b"Dear");
}

#[test]
fn a_replay_says_what_each_controller_would_have_done_and_what_is_no_recording() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../replay/traces");
    let replay = |words: &[&str]| {
        let mut command = Command::new(support::UNCOPY);
        command.arg("replay").args(words).current_dir(&traces).output().unwrap()
    };
    let done = replay(&[
        "short-process-256k.trace",
        "--cpu=10",
        "--controller=never",
        "--controller=from=65536",
    ]);
    let said = stdout(&done);
    assert!(done.status.success(), "{}", stderr(&done));
    for row in ["as recorded", "always again", "never ", "from=65536", "with hindsight"] {
        assert!(said.lines().any(|line| line.starts_with(row)), "{row}:\n{said}");
    }
    let bad = replay(&["table.txt"]);
    assert_eq!(stderr(&bad), "uncopy: table.txt: it is no recording of uncopy's\n");
    assert!(
        !bad.status.success()
            && !replay(&["short-process-256k.trace", "--controller=nobody"]).status.success()
    );
}
