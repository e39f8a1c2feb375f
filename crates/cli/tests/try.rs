//! `uncopy try`: whether uncopy pays for a program; what cannot be tried is said, with what to do.

#[allow(dead_code)]
mod support;

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{UNCOPY, has_python, leave_out, library, stderr, stdout, uncopy, works_here};

/// Takes uploads, answers with their length; `fork`: by a daemon that has left its parents.
const SERVER: &str = r#"
import http.server, os, sys
if sys.argv[2:] == ["fork"] and os.fork():
    os._exit(0)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536
    def do_POST(self):
        body = str(len(self.rfile.read(int(self.headers["Content-Length"])))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

/// Uploads 1 MB a few times.
const LOAD: &str = r#"
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
for _ in range(100):
    connection.request("POST", "/", body=b"x" * 1000000)
    assert connection.getresponse().read() == b"1000000"
print("requests:", 100)
"#;

fn tried(words: &[&str]) -> Output {
    uncopy().args(["try", "--rounds", "1"]).args(words).output().unwrap()
}

/// A port that nobody listens on.
fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

/// The server and its load as files, and the load's command.
fn server(directory: &Path, port: &str) -> (String, String) {
    let (server, load) = (directory.join("server.py"), directory.join("load.py"));
    std::fs::write(&server, SERVER).unwrap();
    std::fs::write(&load, LOAD).unwrap();
    (server.display().to_string(), format!("python3 {} {port}", load.display()))
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The one line that says what is wrong.
fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", stdout(output));
    let text = stderr(output);
    assert!(text.starts_with("uncopy: ") && text.lines().count() == 1, "{text}");
    text
}

/// Whether a process has `word` on its command line.
fn runs(word: &str) -> bool {
    lines().any(|line| line.split(|b| *b == 0).any(|part| part == word.as_bytes()))
}

/// Whether `sleep` itself does, and not only the program that starts it.
fn sleeps(word: &str) -> bool {
    lines().any(|line| line == format!("sleep\0{word}\0").as_bytes())
}

/// The command lines of all processes.
fn lines() -> impl Iterator<Item = Vec<u8>> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
}

#[test]
fn a_program_that_ends_by_itself_is_answered_in_words() {
    if !works_here() {
        return;
    }
    let output = tried(&["--", "sh", "-c", "head -c 30000000 /dev/zero | sha256sum"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["plain again", "memory kept", "uncopy without elision", "over plain", "spread"] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    assert!(["pay", "cannot tell"].iter().any(|answer| text.contains(answer)), "{text}");
}

#[test]
fn the_json_has_every_turn_of_every_side() {
    if !works_here() {
        return;
    }
    let words = ["--rounds=2", "--json", "--threshold=64K", "--", "dd", "if=/dev/zero"];
    let dd = ["of=/dev/null", "bs=1M", "count=200"];
    let output = uncopy().arg("try").args(words).args(dd).output().unwrap();
    let report = json(&output);
    assert_eq!(report["counted_rounds"], 2);
    assert_eq!(report["options"]["threshold"], 65536);
    assert_eq!(report["load"], Value::Null);
    let sides = report["sides"].as_array().unwrap();
    let names: Vec<&str> = sides.iter().map(|side| side["name"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["plain", "plain again", "memory kept"]);
    assert_eq!(names[3..], ["uncopy's allocator alone", "uncopy without elision", "uncopy"]);
    for side in sides {
        let cpu = side["cpu_s"].as_array().unwrap();
        assert_eq!(cpu.len(), 2);
        assert!(cpu.iter().all(|s| (0.001..60.0).contains(&s.as_f64().unwrap())), "{side}");
        assert!(side["smallest"].as_f64() <= side["largest"].as_f64());
        let of = |n: usize| side["gain_range"][n].as_f64().unwrap();
        assert!(of(0) <= of(1) && of(0) <= side["gain"].as_f64().unwrap() + 1e-3, "{side}");
    }
    let verdicts =
        ["pays", "memory", "either", "no_copies", "loses", "unknown", "too_short", "fixed_time"];
    assert!(verdicts.iter().any(|v| report["verdict"] == *v), "{report}");
    assert_eq!(report["or"].is_string(), report["verdict"] == "either", "{report}");
    assert!(report["counters_per_run"]["elided_bytes"].is_u64());
}

#[test]
fn children_count_with_their_parents() {
    if !works_here() || !has_python() {
        return;
    }
    let busy = "import time\nwhile time.process_time() < 0.3: pass";
    let directory = tempfile::tempdir().unwrap();
    let done = directory.path().join("done").display().to_string();
    // A child that is waited for, and one that has left, which ends first however busy the machine
    // is.
    let script = format!(
        "rm -f {done}; python3 -c '{busy}'; (sh -c \"python3 -c '{busy}'; touch {done}\" &)
         until [ -e {done} ]; do sleep 0.1; done"
    );
    let report = json(&tried(&["--json", "--", "sh", "-c", &script]));
    let cpu = report["sides"][0]["cpu_s"][0].as_f64().unwrap();
    assert!((0.6..2.0).contains(&cpu), "{cpu}");
}

#[test]
fn a_server_is_started_loaded_and_ended_on_each_side() {
    if !works_here() || !has_python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let (server, load) = server(directory.path(), &port);
    for ready in [&[][..], &["--ready", &port]] {
        let words = ["--json", "--load", &load, "--count", "requests: ([0-9]+)", "--warm-up=0.1"];
        let output = tried(&[&words, ready, &["--", "python3", &server, &port]].concat());
        let report = json(&output);
        assert_eq!(report["work_counted"], true);
        assert!(report["loads_to_learn"].as_u64() > Some(1), "uploads of 100 MB are a short load");
        assert!(report["loads_counted"].as_u64() >= Some(1));
        assert_eq!(report["learnt"], false);
        let side = &report["sides"][4];
        assert_eq!(side["count"][0], 100.0);
        let cpu = side["cpu_s"][0].as_f64().unwrap();
        assert!((side["median"].as_f64().unwrap() * 100.0 - cpu).abs() < 1e-6);
        assert!(!runs(&server), "a server is left");
    }
}

#[test]
fn a_user_who_waits_is_told_how_long_it_takes_and_how_the_sides_stand() {
    if !works_here() {
        return;
    }
    let said = stderr(&tried(&["--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=50"]));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].contains("round 1 of 2, ") && lines[0].contains("warmed up"), "{said}");
    assert!(lines[0].contains("; no rounds are added"), "{said}");
    assert!(lines[1].contains("gain over plain so far: memory kept "), "{said}");
}

#[test]
fn a_daemon_is_found_and_ended() {
    if !works_here() || !has_python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let (server, load) = server(directory.path(), &port);
    let words =
        ["--json", "--warm-up=0.1", "--load", &load, "--", "python3", &server, &port, "fork"];
    let report = json(&tried(&words));
    assert!(report["sides"][0]["cpu_s"][0].as_f64().unwrap() > 0.01);
    assert!(!runs(&server), "a daemon is left");
}

#[test]
fn a_server_that_ignores_the_request_to_end_is_killed() {
    if !works_here() || !has_python() {
        return;
    }
    let script =
        "import signal,time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(999)";
    let name = format!("stubborn-{}", std::process::id());
    // (The load fails, so that one turn is all.)
    let words =
        ["--load", "sleep 1; exit 3", "--ready", "none", "--", "python3", "-c", script, &name];
    let begin = Instant::now();
    let text = refusal(&tried(&words));
    assert!(text.contains("exit status: 3"), "{text}");
    assert!(begin.elapsed() > Duration::from_secs(5));
    assert!(!runs(&name), "it is left");
}

#[test]
fn nothing_is_left_where_it_is_killed_itself() {
    if !works_here() {
        return;
    }
    let name = format!("{}", 5_000_000 + std::process::id());
    let words = ["try", "--load", "sleep 3", "--ready", "none", "--", "sleep", &name];
    let mut tried = uncopy().args(words).spawn().unwrap();
    let waits_for = |state: bool| {
        let begin = Instant::now();
        while sleeps(&name) != state {
            assert!(begin.elapsed() < Duration::from_secs(10), "running is not {state}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    waits_for(true);
    tried.kill().unwrap();
    tried.wait().unwrap();
    waits_for(false);
}

#[test]
fn a_failure_is_told_with_what_was_said() {
    if !works_here() || !has_python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let (server, load) = server(directory.path(), &port);
    let python = ["--", "python3", &server, &port];
    let with = |words: &[&str]| refusal(&tried(&[words, &python].concat()));

    let text = with(&["--load", "echo no such thing >&2; exit 7"]);
    assert!(text.contains("exit status: 7") && text.contains("no such thing"), "{text}");
    let text = with(&["--load", &load, "--count", "bytes: ([0-9]+)"]);
    assert!(text.contains("finds nothing") && text.contains("requests: 100"), "{text}");
    let text = with(&["--load", &load, "--count", "requests: [0-9]+"]);
    assert!(text.contains("has no group"), "{text}");

    let text = refusal(&tried(&["--load", "true", "--", "sh", "-c", "echo broken; exit 4"]));
    assert!(text.contains("ended before") && text.contains("status 4; "), "{text}");
    assert!(text.contains("broken"), "{text}");
    let text = refusal(&tried(&["--", "sh", "-c", "echo broken >&2; exit 4"]));
    assert!(text.contains("'plain': the program ended with status 4"), "{text}");
    assert!(text.contains("broken"), "{text}");
    let text = refusal(&tried(&["--", "no-such-program"]));
    assert!(text.contains("command not found"), "{text}");
    assert!(!runs(&server), "a server is left");
}

#[test]
fn a_port_that_somebody_else_has_is_refused() {
    if !works_here() {
        return;
    }
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    let text = refusal(&tried(&["--load", "true", "--ready", &port, "--", "sleep", "9"]));
    assert!(text.contains("in use already"), "{text}");
}

#[test]
fn a_program_that_does_not_listen_is_not_waited_for_for_ever() {
    if !works_here() {
        return;
    }
    let name = format!("{}", 4_000_000 + std::process::id());
    let text = refusal(&tried(&["--load", "true", "--", "sleep", &name]));
    assert!(text.contains("no process of it listens") && text.contains("--ready none"), "{text}");
    assert!(!runs(&name), "it is left");
}

#[test]
fn a_server_without_a_load_is_named_as_such_and_ended() {
    if !works_here() || !has_python() {
        return;
    }
    let (directory, port) = (tempfile::tempdir().unwrap(), free_port());
    let (server, _) = server(directory.path(), &port);
    let why = refusal(&tried(&["--", "python3", &server, &port]));
    assert!(why.contains("listens on a TCP port") && why.contains("--load"), "{why}");
    assert!(!runs(&server));
}

#[test]
fn where_it_cannot_be_preloaded_nothing_is_tried() {
    let output = tried(&["--library", "/nowhere.so", "--", "true"]);
    assert!(refusal(&output).contains("/nowhere.so"));
    let output = tried(&["--lod=x", "--", "true"]);
    assert!(!output.status.success() && stderr(&output).contains("--load"), "{}", stderr(&output));
}

#[test]
fn where_userfaultfd_is_refused_it_says_what_the_doctor_says() {
    let sysctl =
        std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    // SAFETY: the call takes nothing and cannot fail.
    if sysctl.trim() != "0" || unsafe { libc::geteuid() } != 0 || !works_here() {
        leave_out("needs root and vm.unprivileged_userfaultfd=0");
        return;
    }
    // Where an unprivileged user can reach them; by 'cp', because what is executed must not be
    // open.
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let copied =
        Command::new("cp").args([UNCOPY.as_ref(), library(), directory.path()]).status().unwrap();
    assert!(copied.success());
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(directory.path().join("uncopy"));
    command.args(["try", "--", "true"]).env_remove("UNCOPY_LIBRARY");
    command.env_remove("UNCOPY_TEST_LIBRARY");
    let text = refusal(&command.uid(65534).gid(65534).current_dir("/").output().unwrap());
    assert!(text.contains("vm.unprivileged_userfaultfd=1"), "{text}");
    assert!(text.contains("'uncopy doctor' finds missing"), "{text}");
}
