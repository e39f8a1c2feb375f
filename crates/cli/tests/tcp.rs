//! `uncopy tcp` and `uncopy bench rpc`: what they list is so, and every answer is compared.

// Unsafe: the socket library's calls take pointers; rights are given up in a child.

#[allow(dead_code)]
mod support;

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{stderr, stdout, uncopy};
use uncopy_tcp_socket::{Context, Flow, Settings, iovec};
use uncopy_tests::verdict::leave_out;

/// A service in the foreground, ended with this value.
struct Serving(Child, String);

impl Serving {
    fn new(what: &str) -> Self {
        let name = format!("uncopy-tcp-cli-test-{what}-{}", std::process::id());
        let mut child = uncopy()
            .args(["tcp", "serve", "--name", &name, "--connections", "3"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(&format!("@{name}")) && line.contains("3 connections"), "{line}");
        Self(child, name)
    }

    fn tcp(&self, words: &[&str]) -> String {
        let output = uncopy().args(["tcp"]).args(words).args(["--name", &self.1]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    }

    fn flows(&self) -> Value {
        serde_json::from_str(&self.tcp(&["flows", "--json"])).unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct End(Arc<Flow>, TcpStream);

impl End {
    fn send(&self, bytes: &[u8]) {
        let part = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: it is only read.
        assert_eq!(unsafe { self.0.send(&[part], 0) }, Ok(bytes.len()));
    }

    /// So the other side may offer its ring.
    fn looks(&self) {
        let mut byte = 0u8;
        let part = iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        // SAFETY: it is as long as that.
        let got = unsafe { self.0.receive(&[part], libc::MSG_DONTWAIT | libc::MSG_PEEK) };
        assert!(got.is_err());
    }

    fn receive(&self, bytes: usize) {
        let mut got = vec![0u8; bytes];
        let part = iovec { iov_base: got.as_mut_ptr().cast(), iov_len: bytes };
        // SAFETY: it is as long as that.
        assert_eq!(unsafe { self.0.receive(&[part], 0) }, Ok(bytes));
    }
}

fn pair(programs: &[Arc<Context>; 2]) -> [End; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    let show = |program: &Arc<Context>, socket: TcpStream| {
        End(program.show(socket.as_raw_fd(), false), socket)
    };
    [show(&programs[0], a), show(&programs[1], b)]
}

#[test]
fn flows_lists_both_ends_where_their_bytes_go_and_who_sleeps() {
    let serving = Serving::new("flows");
    assert_eq!(serving.flows()["flows"], Value::Array(vec![]));
    let programs = [0, 1].map(|_| Context::new(Settings::new(serving.1.clone())).unwrap());
    let [a, b] = pair(&programs);
    let begun = Instant::now();
    while !(a.0.is_shared() & b.0.is_shared()) {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    b.looks();
    a.send(b"a hundred");
    a.send(b" bytes");
    let found = serving.flows();
    let flow = &found["flows"][0];
    let pid = std::process::id();
    let addresses = [a.1.local_addr().unwrap().to_string(), b.1.local_addr().unwrap().to_string()];
    let ends = ["a", "b"].map(|end| flow[end]["address"].as_str().unwrap().to_owned());
    assert!(addresses.iter().all(|address| ends.contains(address)), "{flow}");
    assert_eq!((&flow["a"]["pid"], &flow["b"]["pid"]), (&pid.into(), &pid.into()));
    let (forth, back) =
        if ends[0] == addresses[0] { ("a_to_b", "b_to_a") } else { ("b_to_a", "a_to_b") };
    let forth = &flow[forth];
    assert_eq!((&forth["phase"], &forth["reason"]), (&"offered".into(), &Value::Null));
    let counts = ["bytes", "writes", "unread"].map(|count| forth[count].as_u64().unwrap());
    assert_eq!(counts, [15, 2, 15]);
    assert_eq!(
        (&flow[back]["phase"], &flow[back]["reason"]),
        (&"linux".into(), &"not-awaited".into())
    );
    b.receive(15);
    let text = std::thread::scope(|scope| {
        scope.spawn(|| b.receive(3));
        std::thread::sleep(Duration::from_millis(100));
        let text = serving.tcp(&["flows", "--pid", &pid.to_string()]);
        a.send(b"end");
        text
    });
    let expected = "ring, 15 B in 2 writes, a thread sleeps until there are bytes";
    assert!(text.contains(expected), "{text}");
    let expected = "Linux, not-awaited (the receiver has not looked for bytes yet)";
    assert!(text.contains(expected), "{text}");
    assert_eq!(serving.tcp(&["flows", "--pid", "1"]).matches("<->").count(), 0);
    let metrics = serving.tcp(&["flows", "--prometheus"]);
    assert!(
        metrics.contains("uncopy_tcp_directions{")
            && metrics.contains("phase=\"ring\",reason=\"\"} 1")
    );
    let top = serving.tcp(&["top", "-n", "1", "--delay", "0.1"]);
    assert!(top.contains("WRITES/s") && top.contains(&addresses[0]), "{top}");
}

#[test]
fn connections_that_stay_with_linux_have_their_reason() {
    let serving = Serving::new("stay");
    let programs = [0, 1].map(|_| Context::new(Settings::new(serving.1.clone())).unwrap());
    let pairs: Vec<_> = (0..4).map(|_| pair(&programs)).collect();
    let nobody = Context::new(Settings::new("uncopy-tcp-nobody")).unwrap();
    let alone = pair(&[programs[0].clone(), nobody]);
    let begun = Instant::now();
    let reasons = loop {
        let found = serving.flows();
        let stayed = found["stayed"].as_array().unwrap().clone();
        let reasons: Vec<String> =
            stayed.iter().map(|s| s["reason"].as_str().unwrap().to_owned()).collect();
        if reasons.len() >= 3 || begun.elapsed() > Duration::from_secs(5) {
            break reasons;
        }
    };
    // The fourth has one too many; the last one's other end is shown to nobody here, and there is no room for it either.
    assert!(reasons.iter().filter(|r| *r == "over-limit").count() >= 2, "{reasons:?}");
    drop((pairs, alone));
    // What is closed is listed no more.
    assert_eq!(serving.flows()["stayed"], Value::Array(vec![]));
}

#[test]
fn without_a_service_it_says_so_and_how_to_start_one() {
    let output = uncopy().args(["tcp", "flows", "--name", "uncopy-tcp-nobody"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(
        "no TCP service runs here under the name @uncopy-tcp-nobody; 'uncopy run --tcp' starts one"
    ));
    let serving = Serving::new("twice");
    let output = uncopy().args(["tcp", "serve", "--name", &serving.1]).output().unwrap();
    assert!(stderr(&output).contains("a service already runs here"), "{}", stderr(&output));
}

#[test]
fn rpc_prints_every_row_with_every_answer_compared() {
    let words = [
        "bench",
        "rpc",
        "--json",
        "--api",
        "rings",
        "--wire",
        "shared",
        "--connections",
        "1,5",
        "--size",
        "64,100000",
        "--wait",
        "sleep",
        "--pipeline",
        "2",
        "--work",
        "100",
        "--repeats",
        "1",
        "--seconds",
        "0.3",
        "--warmup",
        "0.2",
    ];
    let output = uncopy().args(words).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let results: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let rows = results["rows"].as_array().unwrap();
    let found: Vec<_> = rows
        .iter()
        .map(|r| (r["size"].as_u64().unwrap(), r["connections"].as_u64().unwrap()))
        .collect();
    assert_eq!(found, [(64, 1), (64, 5), (100_000, 1), (100_000, 5)]);
    for row in rows {
        assert_eq!(
            (&row["wire"], &row["wait"], &row["pipeline"]),
            (&"shared".into(), &"sleep".into(), &2.into())
        );
        for side in ["linux", "again", "uncopy"] {
            for number in ["rpc_per_s", "cpu_us_per_rpc", "p50_us", "p99_us"] {
                assert!(row[side][number].as_f64().unwrap() > 0.0, "{side} {number}: {row}");
            }
        }
        let number = |of: &Value, name: &str| of[name].as_f64().unwrap();
        let ratio = number(&row["uncopy"], "rpc_per_s") / number(&row["linux"], "rpc_per_s");
        assert!((number(row, "ratio") - ratio).abs() < 0.01, "{row}");
        let ratio =
            number(&row["linux"], "cpu_us_per_rpc") / number(&row["uncopy"], "cpu_us_per_rpc");
        assert!((number(row, "cpu_ratio") - ratio).abs() < 0.01, "{row}");
        assert!(row["verified"].as_u64().unwrap() > 10);
    }
}

/// As one who may not make a namespace.
#[test]
fn rpc_over_a_wire_that_cannot_be_made_is_refused_in_one_line() {
    for wire in ["xdp", "tap"] {
        let mut command = uncopy();
        command.args(["bench", "rpc", "--wire", wire]);
        if is_root() {
            // SAFETY: gives rights up, in the child alone, between fork and exec.
            unsafe { command.pre_exec(|| check(libc::setuid(65_534))) };
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains("only root may") && said.trim().lines().count() == 1, "{said}");
    }
}

#[test]
fn rpc_over_wires_compares_every_answer_and_leaves_nothing_behind() {
    if !is_root() {
        return leave_out("only root may make network namespaces and devices");
    }
    for wire in ["xdp", "tap"] {
        if wire == "tap" && !std::path::Path::new("/dev/net/tun").exists() {
            leave_out("no /dev/net/tun");
            continue;
        }
        let words = ["--wire", wire, "--connections", "1,70", "--size", "64,5000"];
        let short = ["--repeats", "1", "--seconds", "0.3", "--warmup", "0.1", "--json"];
        let mut command = uncopy();
        command.args(["bench", "rpc"]).args(words).args(short);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let own = format!("uncopy-bench-{}", child.id());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{wire}: {}", stderr(&output));
        let left = std::fs::read_dir("/run/netns").unwrap().flatten();
        let left: Vec<_> = left.map(|name| name.file_name().into_string().unwrap()).collect();
        assert!(["a", "b"].iter().all(|end| !left.contains(&format!("{own}{end}"))), "{left:?}");
        let results: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let rows = results["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 8, "two ways to wait, two sizes, two numbers of connections");
        for row in rows {
            assert_eq!((&row["wire"], &row["api"]), (&wire.into(), &"lanes".into()));
            for side in ["linux", "again", "uncopy"] {
                assert!(row[side]["rpc_per_s"].as_f64().unwrap() > 0.0, "{side}: {row}");
            }
            assert!(row["verified"].as_u64().unwrap() > 10);
        }
    }
}

fn is_root() -> bool {
    // SAFETY: a call without arguments.
    unsafe { libc::geteuid() == 0 }
}

fn check(result: libc::c_int) -> std::io::Result<()> {
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
