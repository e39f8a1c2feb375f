//! `uncopy tcp`: what it lists is so.

// Unsafe: the socket library's calls take pointers.

#[allow(dead_code)]
mod support;

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{stderr, stdout, uncopy};
use uncopy_tcp_socket::{Context, Flow, Settings, iovec};

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
    let register = |program: &Arc<Context>, socket: TcpStream| {
        End(program.register(socket.as_raw_fd(), false), socket)
    };
    [register(&programs[0], a), register(&programs[1], b)]
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
    // The fourth has one too many; the last one's other end is registered by nobody here, and there
    // is no room for it either.
    assert!(reasons.iter().filter(|r| *r == "over-limit").count() >= 2, "{reasons:?}");
    drop((pairs, alone));
    // A closed connection is listed no more.
    assert_eq!(serving.flows()["stayed"], Value::Array(vec![]));
}

#[test]
fn without_a_service_it_says_so_and_how_to_start_one() {
    // (Where other programs have connections it tells of these: it is to see none. Only root can
    // hide them.)
    let mut hidden = Command::new("unshare");
    hidden.args(["--pid", "--fork", "--mount-proc"]).arg(uncopy().get_program());
    let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut flows = if root { hidden } else { uncopy() };
    let output = flows.args(["tcp", "flows", "--name", "uncopy-tcp-nobody"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains(
        "no TCP service runs here under the name @uncopy-tcp-nobody; 'uncopy run --tcp' starts one"
    ));
    let serving = Serving::new("twice");
    let output = uncopy().args(["tcp", "serve", "--name", &serving.1]).output().unwrap();
    assert!(stderr(&output).contains("a service already runs here"), "{}", stderr(&output));
}
