//! Connections that stay with Linux under `run --tcp`: the summary at exit, `uncopy stat` and
//! `uncopy tcp flows` say why, and what can be done, whether a service was reached or not.

#[allow(dead_code)]
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use serde_json::Value;
use support::{leave_out, library, publishes_here, stderr, stdout, uncopy};
use uncopy_counters::connections::{STAYS, stays};
use uncopy_tests::compile::{Part, compile};

/// The program: see there.
fn program() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        let part = Part::program("/crates/cli/tests/support/stays.c", &["-Wall", "-Werror"]);
        compile("stays", &[part]).expect("gcc is there").join("stays")
    });
    &PROGRAM
}

/// A service's name that is this test's.
fn service(of: &str) -> String {
    format!("uncopy-tcp-stays-{of}-{}", std::process::id())
}

/// It, running.
struct Running {
    child: Child,
    pid: u32,
    session: tempfile::TempDir,
    service: String,
}

impl Running {
    /// In this mode; `command` is what runs `uncopy`.
    fn of(mut command: Command, of: &str, words: &[&str]) -> Self {
        let session = tempfile::tempdir_in("/dev/shm").unwrap();
        let service = service(of);
        command.args(["run", "--tcp", "--verbose", "--"]).arg(program()).args(words);
        command.env("XDG_RUNTIME_DIR", session.path()).env("UNCOPY_TCP_SERVICE", &service);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let mut running = Self { pid: child.id(), child, session, service };
        if line != "there\n" {
            panic!("{of}: {line:?} {}", running.end());
        }
        running
    }

    fn asks(&self, words: &[&str]) -> String {
        let mut command = uncopy();
        command.env("XDG_RUNTIME_DIR", self.session.path());
        let output = command.args(words).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    }

    fn asks_json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.asks(words)).unwrap()
    }

    /// The summary at exit.
    fn end(&mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

/// The summary has one line for connections: so many by Linux for this reason, with what can be
/// done.
fn says(said: &str, n: u64, name: &str) {
    let of = stays(name).unwrap();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("connection")).collect();
    let [line] = lines[..] else { panic!("{name}: {said}") };
    assert!(line.starts_with("uncopy: stays ["), "{line}");
    let why = format!("{n} {name} ({}; {})", of.text, of.next);
    assert!(line.contains(&why), "{line} lacks: {why}");
}

/// In this mode, the summary at exit gives this reason for so many connections.
fn stays_for(name: &str, n: u64, words: &[&str]) {
    if !publishes_here() {
        return;
    }
    let said = Running::of(uncopy(), name, words).end();
    says(&said, n, name);
}

/// A server that is not under uncopy and sends back what comes. Its port.
fn plain_echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut bytes = [0; 64];
                while let Ok(n @ 1..) = (&stream).read(&mut bytes) {
                    if (&stream).write_all(&bytes[..n]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    port.to_string()
}

#[test]
fn connections_of_fewer_than_four_calls_are_short_whether_closed_or_not() {
    stays_for("short", 2, &["short"]);
    stays_for("short", 2, &["open"]);
}

#[test]
fn a_connection_to_a_program_that_runs_plainly_says_that_the_peer_is_not_here() {
    stays_for("peer-not-here", 1, &["peer-not-here", &plain_echo()]);
}

#[test]
fn one_that_is_closed_before_that_is_known_was_still_waiting() {
    stays_for("waiting", 1, &["waiting", &plain_echo()]);
}

#[test]
fn one_that_is_asked_about_when_the_program_forks_is_forked() {
    stays_for("forked", 1, &["forked", &plain_echo()]);
}

#[test]
fn one_that_stdio_uses_is_used_as_rings_are_not() {
    stays_for("used", 2, &["used"]);
}

#[test]
fn one_with_a_filter_is_filtered() {
    stays_for("filtered", 2, &["filtered"]);
}

#[test]
fn those_of_a_program_with_io_uring_say_so() {
    stays_for("io-uring", 2, &["io-uring"]);
}

#[test]
fn those_in_a_sandbox_say_so_and_not_that_the_program_uses_io_uring() {
    stays_for("sandbox", 2, &["sandbox"]);
}

#[test]
fn without_descriptors_there_is_no_memory_for_rings() {
    stays_for("no-memory", 2, &["no-memory"]);
}

#[test]
fn beyond_the_services_limit_the_limit_is_named() {
    if !publishes_here() {
        return;
    }
    let name = service("over-limit");
    let mut serves = uncopy()
        .args(["tcp", "serve", "--connections", "2", "--name", &name])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(serves.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said = Running::of(uncopy(), "over-limit", &["over-limit"]).end();
    serves.kill().unwrap();
    serves.wait().unwrap();
    says(&said, 1, "over-limit");
    assert!(said.contains("4 connections: 2 through shared memory ("), "{said}");
}

#[test]
fn one_to_another_network_namespace_is_remote() {
    if !publishes_here() {
        return;
    }
    // (An address that is not this namespace's, behind a device.)
    let script = "ip link set lo up && ip link add d0 type veth peer name d1 && \
                  ip addr add 10.99.99.1/24 dev d0 && ip link set d0 up && \
                  ip link set d1 up && exec \"$@\"";
    let unshared = ["-rn", "--", "sh", "-c", script, "sh"];
    let tried = Command::new("unshare").args(unshared).arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        return leave_out("no network namespace with a device can be made");
    }
    let inner = uncopy();
    let mut command = Command::new("unshare");
    command.args(unshared).arg(inner.get_program());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut running = Running::of(command, "remote", &["remote"]);
    says(&running.end(), 1, "remote");
}

#[test]
fn without_a_service_the_summary_stat_and_flows_say_so_with_the_next_step() {
    if !publishes_here() {
        return;
    }
    // (No command that could be started lies beside this copy.)
    let alone = tempfile::tempdir().unwrap();
    let copy = alone.path().join("libuncopy.so");
    std::fs::copy(library(), &copy).unwrap();
    let mut command = uncopy();
    command.env("UNCOPY_LIBRARY", &copy);
    let mut running = Running::of(command, "no-service", &["no-service"]);
    let pid = running.pid.to_string();
    let why = stays("no-service").unwrap();

    let stat = running.asks(&["stat", "-p", &pid]);
    let line = format!("2 connections: 2 by Linux: 2 no-service ({}; {})", why.text, why.next);
    assert!(stat.contains(&line), "{stat}");
    let stat = running.asks_json(&["stat", "-p", &pid, "--json"]);
    assert_eq!(stat["connections"]["by_linux"]["no-service"], 2, "{stat}");

    let words = ["tcp", "flows", "--name", &running.service];
    let flows = running.asks(&words);
    assert!(flows.starts_with("no TCP service runs here under the name @"), "{flows}");
    assert!(flows.contains(&format!("stays[{pid}] says: {line}")), "{flows}");
    let open = format!("Linux, no-service ({}; {})", why.text, why.next);
    assert_eq!(flows.matches(&open).count(), 2, "{flows}");
    let flows = running.asks_json(&[&words[..], &["--json"]].concat());
    assert_eq!(flows["service"], Value::Null);
    assert_eq!(flows["told"][0]["by_linux"]["no-service"], 2, "{flows}");
    assert_eq!(flows["unknown"][0]["reason"], "no-service", "{flows}");

    says(&running.end(), 2, "no-service");
}

#[test]
fn flows_lists_what_no_service_was_shown_beside_what_it_knows() {
    if !publishes_here() {
        return;
    }
    let mut running = Running::of(uncopy(), "flows", &["rings"]);
    let more = Running::of(uncopy(), "flows", &["open"]);
    let flows = running.asks(&["tcp", "flows", "--name", &running.service]);
    assert!(flows.contains("1 connections with both ends here"), "{flows}");
    assert!(flows.contains(&format!("stays[{}] says: 2 connections: 2 through", running.pid)));
    // It has not been looked up: nothing is known of it, and nobody was asked.
    let pid = more.pid.to_string();
    let stat = uncopy()
        .env("XDG_RUNTIME_DIR", more.session.path())
        .args(["stat", "-p", &pid])
        .output()
        .unwrap();
    assert!(stdout(&stat).contains("2 begun: used in fewer than four calls so far"));
    assert!(running.end().contains("2 connections: 2 through shared memory ("));
}

#[test]
fn a_program_without_connections_says_so_in_one_line() {
    if !publishes_here() {
        return;
    }
    let output = uncopy().args(["run", "--tcp", "--verbose", "--", "true"]).output().unwrap();
    let said = stderr(&output);
    assert!(said.contains("]: no connection was opened or accepted"), "{said}");
    let output = uncopy().args(["run", "--verbose", "--", "true"]).output().unwrap();
    assert!(!stderr(&output).contains("connection"), "{}", stderr(&output));
}

#[test]
fn every_reason_has_a_next_step() {
    for of in STAYS {
        assert!(of.next.len() > 10 && !of.next.ends_with('.'), "{}: {}", of.name, of.next);
    }
}
