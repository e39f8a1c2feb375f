//! `uncopy stat`: what is seen from outside is what the program counts, of it alone, and only for
//! its user.

#[allow(dead_code)]
mod support;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Output, Stdio};

use serde_json::Value;
use support::{leave_out, publishes_here, pump, stderr, stdout, uncopy};

/// A session directory on a memory file system, and what may see it.
struct Session(tempfile::TempDir);

impl Session {
    fn new() -> Self {
        Self(tempfile::tempdir_in("/dev/shm").unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Where the files of this user belong.
    fn directory(&self) -> PathBuf {
        let user = fs::metadata(self.path()).unwrap().uid();
        self.path().join(format!("uncopy-{user}"))
    }

    fn start(&self, options: &[&str]) -> Pump {
        self.start_with(options, |_| {})
    }

    fn start_with(&self, options: &[&str], more: impl FnOnce(&mut Command)) -> Pump {
        self.start_as(pump(), options, more)
    }

    fn start_as(&self, program: &Path, options: &[&str], more: impl FnOnce(&mut Command)) -> Pump {
        let mut command = uncopy();
        command.arg("run").args(options).arg("--").arg(program).arg(pump().with_file_name("input"));
        command.env("XDG_RUNTIME_DIR", self.path());
        // Eliding begins with the first copy, not when it has shown a gain.
        command.env("UNCOPY_CONTROLLER", "accounts-alone");
        more(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, errors) = (child.stdin.take().unwrap(), child.stderr.take().unwrap());
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut pump = Pump { child, input: Some(input), output, errors };
        assert_eq!(pump.answer(), "ready");
        pump
    }

    fn stat(&self, words: &[&str]) -> Output {
        uncopy().arg("stat").args(words).env("XDG_RUNTIME_DIR", self.path()).output().unwrap()
    }

    fn json(&self, pid: u32) -> Value {
        let output = self.stat(&["--json", "-p", &pid.to_string()]);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Why there is nothing to be seen of it.
    fn refusal(&self, pid: u32) -> String {
        let output = self.stat(&["-p", &pid.to_string()]);
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        stderr(&output)
    }
}

/// A running test program.
struct Pump {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    errors: ChildStderr,
}

impl Pump {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn tell(&mut self, line: &str) -> String {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        self.answer()
    }

    /// Ends it, and returns what it wrote to standard error.
    fn quit(mut self) -> String {
        self.input.take().unwrap().write_all(b"quit\n").unwrap();
        assert!(self.child.wait().unwrap().success());
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether the monitor sets `counter` when it looks, and not the program's work: a moment after the
/// start, and anew from time to time. So two looks at an idle program may differ in it.
fn is_set_by_the_monitor(counter: &str) -> bool {
    matches!(counter, "memory_allowed_bytes" | "memory_held_bytes")
}

/// The counters that only the program's work changes.
fn steady(seen: &Value) -> serde_json::Map<String, Value> {
    let mut counters = seen["counters"].as_object().unwrap().clone();
    counters.retain(|name, _| !is_set_by_the_monitor(name));
    counters
}

fn count(seen: &Value, name: &str) -> u64 {
    seen["counters"][name].as_u64().unwrap_or_else(|| panic!("{name}: {seen}"))
}

#[test]
fn counters_seen_from_outside_are_those_of_the_summary_at_exit() {
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    let mut pump = session.start(&["--verbose=counters"]);
    assert_eq!(pump.tell("copy 50"), "done");
    let seen = session.json(pump.pid());
    assert_eq!(seen["command"], "pump");
    assert!(count(&seen, "elided_copies") >= 90, "{seen}");
    let summary = pump.quit();
    let mut compared = 0;
    for line in summary.lines() {
        let Some((name, value)) = line.strip_prefix("uncopy: ").and_then(|l| l.split_once('='))
        else {
            continue;
        };
        let Ok(value) = value.parse::<u64>() else { continue };
        assert!(value > 0, "{name}\n{summary}");
        if is_set_by_the_monitor(name) {
            continue;
        }
        assert_eq!(count(&seen, name), value, "{name}\n{summary}");
        compared += 1;
    }
    // A counter that is not there is 0.
    assert_eq!(compared, steady(&seen).values().filter(|v| v.as_u64() != Some(0)).count());
}

#[test]
fn call_sites_have_their_function_their_decision_and_a_reason_for_what_was_not_elided() {
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    let mut pump = session.start(&[]);
    let of = |seen: &Value, function: &str| -> Vec<Value> {
        let named = |s: &&Value| s["function"].as_str().unwrap().starts_with(function);
        seen["sites"].as_array().unwrap().iter().filter(named).cloned().collect()
    };
    pump.tell("copy 50");
    let seen = session.json(pump.pid());
    let copies = of(&seen, "copy_input+");
    assert_eq!(copies.len(), 2, "{seen}");
    let elided: u64 = copies.iter().map(|s| s["elided_copies"].as_u64().unwrap()).sum();
    assert_eq!(elided, count(&seen, "elided_copies"));
    assert!(copies.iter().all(|s| s["decision"] == "elides" && s["library"] == "pump"), "{seen}");
    pump.tell("overlap 5");
    let seen = session.json(pump.pid());
    let moves = of(&seen, "move_over_itself+");
    assert_eq!(moves.len(), 1, "{seen}");
    assert_eq!(moves[0]["not_elided"]["overlap"], 5);
    assert_eq!(
        (&moves[0]["decision"], &moves[0]["last_reason"]),
        (&"copies".into(), &"overlap".into())
    );
}

#[test]
fn a_name_that_a_program_gives_itself_does_not_steer_the_terminal() {
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    // Colours, C1's CSI as a character and as a byte, a line's end, and another direction.
    let bytes = b"\x1b[1m\xc2\x9b2m\x9b\n\xe2\x80\xae";
    let program = pump().with_file_name(OsStr::from_bytes(bytes));
    let _ = fs::hard_link(pump(), &program);
    let mut pump = session.start_as(&program, &[], |_| {});
    assert_eq!(pump.tell("copy 5"), "done");
    let shown = r"\x1b[1m\u{9b}2m\x9b\n\u{202e}";
    let pid = pump.pid().to_string();
    for words in [&["-p", &pid][..], &[], &["--json", "-p", &pid], &["--prometheus", "-p", &pid]] {
        let output = session.stat(words);
        let text = String::from_utf8(output.stdout).unwrap();
        let steers = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(steers), "{words:?}: {text:?}");
        match words {
            ["--json", ..] => {
                let seen: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(seen["command"], "\x1b[1m\u{9b}2m\u{fffd}\n\u{202e}");
            }
            ["--prometheus", ..] => assert!(text.contains(r"\\x1b[1m\\u{9b}2m"), "{text}"),
            _ => assert!(text.contains(&shown.replace(r"\x9b", "\u{fffd}")), "{text}"),
        }
    }
    let all = session.stat(&["-p", &pid]);
    assert!(stdout(&all).contains(r"(\x1b[1m\u{9b}2m"), "{}", stdout(&all));
    pump.quit();
    // Of one that is not under uncopy the name is in the refusal.
    let shell = session.path().join("\x1b]0;t\x07");
    symlink("/bin/sh", &shell).unwrap();
    let mut other = Command::new(&shell);
    let mut other = other.args(["-c", "read line"]).stdin(Stdio::piped()).spawn().unwrap();
    let refusal = session.refusal(other.id());
    drop(other.stdin.take());
    let _ = other.wait();
    assert!(refusal.contains(r"(\x1b]0;t\x07) is not under uncopy"), "{refusal:?}");
}

#[test]
fn a_forked_child_has_a_file_of_its_own_and_its_work_does_not_move_its_parents_counters() {
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    let mut pump = session.start(&[]);
    pump.tell("copy 20");
    let before = session.json(pump.pid());
    let child: u32 = pump.tell("fork").parse().unwrap();
    assert_ne!(child, pump.pid());
    assert_eq!(pump.tell("copy 30"), "done");
    let (parent, seen) = (session.json(pump.pid()), session.json(child));
    assert_eq!(steady(&parent), steady(&before));
    assert_eq!(parent["sites"], before["sites"]);
    assert!(count(&seen, "elided_copies") >= 50, "{seen}");
    assert_eq!(count(&seen, "elided_bytes"), count(&seen, "elided_copies") * (256 << 10));
    assert_eq!(pump.tell("end"), "joined");
    assert!(!session.directory().join(child.to_string()).exists());
    pump.tell("copy 10");
    let after = session.json(pump.pid());
    let more = count(&after, "elided_copies") - count(&before, "elided_copies");
    assert!((10..=20).contains(&more), "{more}");
}

#[test]
fn a_child_made_behind_libcs_back_leaves_its_parents_counters_alone() {
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    let mut pump = session.start(&[]);
    pump.tell("copy 20");
    let before = session.json(pump.pid());
    assert_eq!(pump.tell("rawfork"), "status 0");
    let after = session.json(pump.pid());
    for name in
        ["twin_blocks", "twin_live_bytes", "elided_copies", "input_bytes", "views", "faults"]
    {
        assert_eq!(count(&after, name), count(&before, name), "{name}");
    }
}

#[test]
fn the_files_are_their_users_alone_and_go_with_their_process() {
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    let mut pump = session.start(&[]);
    assert!(!session.directory().exists(), "a program that elides nothing leaves nothing");
    pump.tell("copy 5");
    let file = session.directory().join(pump.pid().to_string());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&session.directory()), mode(&file)), (0o700, 0o600));
    let names: Vec<_> = fs::read_dir(session.directory()).unwrap().flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let listed = stdout(&session.stat(&[]));
    assert!(listed.contains("pump") && listed.contains(&pump.pid().to_string()), "{listed}");
    pump.quit();
    assert!(!file.exists());
}

#[test]
fn a_file_of_a_killed_program_is_removed_by_the_next_reader() {
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    let mut pump = session.start(&[]);
    pump.tell("copy 5");
    let file = session.directory().join(pump.pid().to_string());
    pump.child.kill().unwrap();
    pump.child.wait().unwrap();
    assert!(file.exists());
    let unfinished = session.directory().join(format!("{}.new", pump.pid()));
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    fs::File::create(&unfinished).unwrap().set_modified(long_ago).unwrap();
    let listed = stdout(&session.stat(&[]));
    assert!(!listed.contains(&format!(" {} ", pump.pid())), "{listed}");
    assert!(!file.exists() && !unfinished.exists());
}

#[test]
fn a_file_of_a_killed_program_is_removed_by_the_next_program() {
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    let mut pump = session.start(&[]);
    pump.tell("copy 5");
    let file = session.directory().join(pump.pid().to_string());
    pump.child.kill().unwrap();
    pump.child.wait().unwrap();
    // Numbers of another namespace may well be alive there.
    let mut foreign = fs::read(&file).unwrap();
    let namespace = std::mem::offset_of!(uncopy_counters::stats_page::Header, namespace);
    foreign[namespace] ^= 1;
    let elsewhere = session.directory().join("4194303");
    fs::write(&elsewhere, foreign).unwrap();
    let mut next = session.start(&[]);
    next.tell("copy 5");
    assert!(!file.exists() && elsewhere.exists());
    assert!(!stdout(&session.stat(&[])).contains("4194303"));
    assert!(elsewhere.exists());
}

#[test]
fn a_program_that_enters_a_sandbox_is_not_seen_any_more_and_ends_as_it_would() {
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    let mut pump = session.start(&[]);
    pump.tell("copy 5");
    assert_eq!(pump.tell("sandbox"), "inside");
    assert_eq!(fs::read_dir(session.directory()).unwrap().count(), 0);
    // Opening or removing a file would end it.
    assert_eq!(pump.tell("copy 5"), "done");
    pump.quit();
}

#[test]
fn a_file_of_a_program_that_executed_another_is_not_taken_for_the_others() {
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    let mut pump = session.start(&[]);
    pump.tell("copy 5");
    let file = session.directory().join(pump.pid().to_string());
    assert_eq!(pump.tell("exec"), "executing");
    // cat answers once it is there.
    assert_eq!(pump.tell("hello"), "hello");
    let why = session.refusal(pump.pid());
    assert!(why.contains("(cat) is under uncopy, but publishes nothing"), "{why}");
    assert!(!file.exists());
}

#[test]
fn a_directory_that_others_could_look_into_or_own_is_neither_written_nor_read() {
    if !publishes_here() {
        return;
    }
    // A good file, to be offered in bad places.
    let good = Session::new();
    let mut offered = good.start(&[]);
    offered.tell("copy 5");
    let name = offered.pid().to_string();
    let content = fs::read(good.directory().join(&name)).unwrap();
    let elsewhere = Session::new();
    let open_to_all = |path: &Path| {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let link = |path: &Path| symlink(good.directory(), path).unwrap();
    let somebody_elses = |path: &Path| {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        if std::os::unix::fs::chown(path, Some(65534), None).is_err() {
            leave_out("only root can give a directory away");
            fs::remove_dir(path).unwrap();
        }
    };
    for prepare in [&open_to_all as &dyn Fn(&Path), &link, &somebody_elses] {
        let bad = Session::new();
        prepare(&bad.directory());
        let before = fs::read_dir(good.directory()).unwrap().count();
        let mut pump = bad.start(&[]);
        pump.tell("copy 5");
        let there = bad.directory().join(pump.pid().to_string());
        assert!(
            !there.exists()
                || !bad.directory().is_symlink() && bad.directory().exists() && {
                    // (Not root: the directory could not be given away, and is ours.)
                    fs::metadata(bad.directory()).unwrap().mode() & 0o077 == 0
                }
        );
        assert_eq!(fs::read_dir(good.directory()).unwrap().count(), before);
        pump.quit();
        if fs::metadata(bad.directory()).is_ok_and(|d| d.is_dir()) && !bad.directory().is_symlink()
        {
            fs::write(bad.directory().join(&name), &content).unwrap();
            let listed = uncopy().arg("stat").env("XDG_RUNTIME_DIR", bad.path()).output().unwrap();
            assert!(!stdout(&listed).contains(&format!(" {name} ")), "{}", stdout(&listed));
        }
    }
    // The same content under a link's name.
    fs::create_dir(elsewhere.directory()).unwrap();
    fs::set_permissions(elsewhere.directory(), fs::Permissions::from_mode(0o700)).unwrap();
    symlink(good.directory().join(&name), elsewhere.directory().join(&name)).unwrap();
    let listed = stdout(&elsewhere.stat(&[]));
    assert!(!listed.contains(&format!(" {name} ")), "{listed}");
}

#[test]
fn a_process_that_is_not_there_or_not_under_uncopy_is_named_as_such() {
    let session = Session::new();
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let why = session.refusal(ended.id());
    assert_eq!(why, format!("uncopy: there is no process {}\n", ended.id()));
    let why = session.refusal(std::process::id());
    assert!(why.ends_with("is not under uncopy\n"), "{why}");
    assert_eq!(why.lines().count(), 1);
}

#[test]
fn nothing_is_published_where_it_is_not_wanted_or_cannot_be_and_the_program_goes_on() {
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    let mut pump = session.start(&["--stats=no"]);
    assert_eq!(pump.tell("copy 5"), "done");
    assert!(session.refusal(pump.pid()).contains("--stats=no"));
    assert!(!session.directory().exists());
    pump.quit();
    let mut pump = session.start_with(&["--verbose=counters"], |c| {
        c.env("UNCOPY_INJECT", "open:EACCES");
    });
    assert_eq!(pump.tell("copy 5"), "done");
    assert!(!session.directory().exists());
    let said = pump.quit();
    assert!(said.contains("uncopy: unpublished=1\n"), "{said}");
    assert!(!said.contains("elided_copies=0\n"), "{said}");
}

#[test]
fn a_program_that_may_not_write_files_goes_on_unseen() {
    use nix::sys::resource::{Resource, setrlimit};
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    // SAFETY: between fork and exec, one system call.
    let limited = |c: &mut Command| unsafe {
        c.pre_exec(|| Ok(setrlimit(Resource::RLIMIT_FSIZE, 0, 0)?));
    };
    let mut pump = session.start_with(&[], limited);
    assert_eq!(pump.tell("copy 5"), "done");
    assert!(!session.directory().join(pump.pid().to_string()).exists());
    pump.quit();
}

#[test]
fn another_user_is_told_that_it_is_not_permitted() {
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    let mut pump = session.start(&[]);
    pump.tell("copy 5");
    let mut command = uncopy();
    command.args(["stat", "-p", &pump.pid().to_string()]).uid(65534).gid(65534);
    let Ok(output) = command.env("XDG_RUNTIME_DIR", session.path()).output() else {
        leave_out("nobody else can run this program here");
        return;
    };
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).starts_with("uncopy: not permitted: process "), "{}", stderr(&output));
}

#[test]
fn root_is_not_told_to_ask_as_root() {
    if !nix::unistd::geteuid().is_root() {
        return support::leave_out("not root");
    }
    let output = uncopy().args(["stat", "-p", "1"]).output().unwrap();
    let why = stderr(&output);
    assert!(why.starts_with("uncopy: process 1 (") && !why.contains("as root"), "{why}");
}

#[test]
fn prometheus_gets_every_counter_with_help_type_and_labels() {
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    let mut pump = session.start(&[]);
    pump.tell("copy 50");
    let seen = session.json(pump.pid());
    let text = stdout(&session.stat(&["--prometheus", "-p", &pump.pid().to_string()]));
    let labels = format!("{{pid=\"{}\",command=\"pump\"}}", pump.pid());
    for (name, _) in uncopy_counters::NAMES {
        let gauge = uncopy_counters::is_gauge(name);
        let full = format!("uncopy_{name}{}", if gauge { "" } else { "_total" });
        let line = format!("\n{full}{labels} {}\n", count(&seen, name));
        assert!(text.contains(&line), "{line}{text}");
        let kind = if gauge { "gauge" } else { "counter" };
        assert_eq!(text.matches(&format!("# TYPE {full} {kind}\n")).count(), 1);
    }
    assert!(text.contains("function=\"copy_input+"), "{text}");
}

#[test]
fn a_watched_program_is_told_of_at_every_interval_until_it_ends() {
    if !publishes_here() {
        return;
    }
    let session = Session::new();
    let mut pump = session.start(&[]);
    pump.tell("copy 50");
    let pid = pump.pid().to_string();
    let output = session.stat(&["--json", "-p", &pid, "-w", "0.2", "-n", "3"]);
    let lines: Vec<Value> =
        stdout(&output).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[2]["per_second"]["elided_copies"], 0.0);
    assert!(lines[0]["per_second"]["elided_copies"].as_f64().unwrap() > 0.0);
    let table = stdout(&session.stat(&["-p", &pid]));
    for expected in ["pump [", "elided copies", "since start", "copy_input+", "elides"] {
        assert!(table.contains(expected), "{expected}: {table}");
    }
}

#[test]
fn top_without_a_terminal_says_what_to_use_instead() {
    let output = uncopy().arg("top").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("uncopy: top needs a terminal"), "{}", stderr(&output));
}
