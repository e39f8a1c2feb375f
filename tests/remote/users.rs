//! One service for all users: programs find it by themselves, and each user's stay among themselves. The names are the usual ones: they are a network namespace's own.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use uncopy_tests::product;
use uncopy_tests::verdict::Stop;

use crate::network::{ADDRESS, Beside, Network};
use crate::{Named, Outcome, REDIS};

/// Those of this file.
pub const ALL: [Named; 4] = [
    ("programs_find_their_users_service_and_then_the_systems_and_users_do_not_meet", found),
    ("workers_that_have_become_another_user_are_served_as_that_one", workers),
    ("children_of_a_program_that_listened_before_have_conversations_of_their_own", children),
    ("programs_of_several_users_are_served_over_the_wire", over_the_wire),
];

const NOBODY: &str = "65534";
const DAEMON: &str = "1";

/// Asks redis a hundred times and stays until its input ends.
const ASKS: &str = r#"
import socket, sys
s = socket.create_connection((sys.argv[1], 6379), timeout=20)
f = s.makefile("rb")
for i in range(100):
    value = b"%06d" % i * 100
    s.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n" % (len(value), value))
    assert f.readline() == b"+OK\r\n" and f.readline() == b"$%d\r\n" % len(value)
    assert f.read(len(value) + 2) == value + b"\r\n"
print(s.getsockname()[1], flush=True)
sys.stdin.readline()
"#;

/// Two children that answer one client each. (By Python's inner module: the outer one makes a set when it is imported, and then the program has had something.)
const CHILDREN: &str = r#"
import os, _socket
l = _socket.socket(); l.bind(("0.0.0.0", 7)); l.listen(10)
for _ in range(2):
    if os.fork() == 0:
        fd, _ = l._accept()
        while data := os.read(fd, 64): os.write(fd, data)
        os._exit(0)
for _ in range(2): os.wait()
"#;

/// Asks both in turn for a while, and stays until its input ends.
const BOTH: &str = r#"
import socket, sys, time
both = [socket.create_connection(("127.0.0.1", 7), 20) for _ in range(2)]
for i in range(300):
    for s in both:
        s.sendall(b"%09d" % i); assert s.recv(64) == b"%09d" % i
    time.sleep(0.001)
print("done", flush=True)
sys.stdin.readline()
"#;

/// The product where every user may execute it.
struct Users<'a> {
    network: &'a Network,
    uncopy: String,
}

impl<'a> Users<'a> {
    fn new(network: &'a Network) -> Result<Self, Stop> {
        let (from, to) = (product::uncopy()?, network.directory());
        let open = |path| std::fs::set_permissions(path, Permissions::from_mode(0o755));
        let copied = open(to.to_owned())
            .and_then(|()| std::fs::copy(from, to.join("uncopy")))
            .and_then(|_| {
                std::fs::copy(product::library().unwrap_or_default(), to.join("libuncopy.so"))
            })
            .and_then(|_| open(to.join("uncopy")));
        copied.map_err(|e| e.to_string())?;
        Ok(Self { network, uncopy: to.join("uncopy").display().to_string() })
    }

    /// `uncopy WORDS...`, as this user, with no service named.
    fn words<'b>(&'b self, uid: &'b str, words: &[&'b str]) -> Vec<&'b str> {
        let begin = ["env", "-u", "UNCOPY_TCP_SERVICE", "setpriv", "--reuid", uid, "--regid", uid];
        [&begin, &["--clear-groups", &self.uncopy][..], words].concat()
    }

    fn serves(&self, uid: &str, words: &[&str]) -> Result<(Beside, String), Stop> {
        let words = [&["tcp", "serve"], words].concat();
        let mut service = self.network.inside_beside(&self.words(uid, &words))?;
        let said = service.line()?;
        Ok((service, said))
    }

    fn under(&self, uid: &str, words: &[&str]) -> Result<Beside, Stop> {
        let words = [&["run", "--tcp", "--"], words].concat();
        self.network.inside_beside(&self.words(uid, &words))
    }

    fn redis(&self, uid: &str, address: &str) -> Result<Beside, Stop> {
        let words = ["redis-server", "--bind", address, "--protected-mode", "no", "--save", ""];
        let server = self.under(uid, &words)?;
        self.network.until_listens(REDIS)?;
        Ok(server)
    }

    /// A client of its, and the port that it has.
    fn asks(&self, uid: &str) -> Result<(Beside, String), Stop> {
        let mut client = self.under(uid, &["python3", "-c", ASKS, "127.0.0.1"])?;
        let port = client.line()?;
        Ok((client, port))
    }

    fn flows(&self, uid: &str) -> Result<String, Stop> {
        self.network.inside(&self.words(uid, &["tcp", "flows"]))
    }
}

/// `has` is in what was said, or is not.
fn expect(said: &str, has: &str, is: bool) -> Outcome {
    if said.contains(has) == is {
        return Ok(());
    }
    Err(format!("'{has}' {} in: {said}", if is { "is not" } else { "is" }).into())
}

fn found() -> Outcome {
    let network = Network::new("u")?;
    network.needs(&["redis-server", "setpriv"])?;
    let users = Users::new(&network)?;
    let (_system, said) = users.serves("0", &["--all-users"])?;
    expect(&said, "@uncopy-tcp: shared memory between programs of all users, each", true)?;
    let redis = users.redis(NOBODY, "127.0.0.1")?;
    let (_client, port) = users.asks(NOBODY)?;
    let its = users.flows(NOBODY)?;
    for has in
        ["@uncopy-tcp [", "2 programs, 1 connections", &format!("127.0.0.1:{port} "), "ring, "]
    {
        expect(&its, has, true)?;
    }
    expect(&users.flows(DAEMON)?, "0 programs, 0 connections", true)?;
    // Another user, and root, do not meet it, and are served.
    for uid in [DAEMON, "0"] {
        let (_other, port) = users.asks(uid)?;
        let mut told = String::new();
        let both = network.until(Duration::from_secs(10), "no reason", || {
            told = users.flows("0").unwrap_or_default();
            told.matches("other-user (the other end is another user's)").count() >= 2
        });
        both.map_err(|_| told.clone())?;
        expect(&told, &format!("127.0.0.1:{port} python3"), true)?;
        expect(&told, "of user 65534", true)?;
        expect(&users.flows(NOBODY)?, &format!("127.0.0.1:{port} python3"), false)?;
    }
    // Frames are root's to see.
    let file = network.directory().join("trace").display().to_string();
    std::fs::write(&file, "").map_err(|e| e.to_string())?;
    std::fs::set_permissions(&file, Permissions::from_mode(0o666)).map_err(|e| e.to_string())?;
    let refused = network.inside(&users.words(NOBODY, &["tcp", "trace", "--out", &file]));
    expect(&format!("{refused:?}"), "only root has its frames written", true)?;
    // One's own service comes first, for programs that are started from then on.
    let (_own, said) = users.serves(NOBODY, &[])?;
    expect(&said, "@uncopy-tcp-65534: shared memory between programs of nobody", true)?;
    redis.kill();
    network.until(Duration::from_secs(10), "redis is still there", || {
        network.inside(&["ss", "-Hltn"]).is_ok_and(|said| !said.contains(":6379 "))
    })?;
    let _redis = users.redis(NOBODY, "127.0.0.1")?;
    let (_client, port) = users.asks(NOBODY)?;
    let its = users.flows(NOBODY)?;
    expect(&its, "@uncopy-tcp-65534 [", true)?;
    expect(&its, &format!("127.0.0.1:{port} "), true)?;
    // One that was named is used by whoever may.
    let which = ["tcp", "flows", "--name", "uncopy-tcp"];
    expect(&network.inside(&users.words(NOBODY, &which))?, &format!(":{port} "), false)
}

fn workers() -> Outcome {
    let network = Network::new("w")?;
    network.needs(&["nginx", "curl", "setpriv"])?;
    let users = Users::new(&network)?;
    let (sizes, root) = network.files()?;
    std::fs::set_permissions(&root, Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
    let configuration = network.nginx(&root)?;
    let text = std::fs::read_to_string(&configuration).map_err(|e| e.to_string())?;
    std::fs::write(&configuration, text.replace("user root", "user nobody nogroup"))
        .map_err(|e| e.to_string())?;
    let (_system, _) = users.serves("0", &["--all-users"])?;
    let _nginx = users.under("0", &["nginx", "-c", &configuration])?;
    network.until_listens(80)?;
    let mut urls = vec![];
    for _ in 0..8 {
        urls.push(format!("http://127.0.0.1/{}", sizes[2]));
    }
    let mut words = vec!["run", "--tcp", "--", "curl", "-s", "-o", "/dev/null"];
    let shown = urls.join(" -o /dev/null ");
    words.extend(shown.split(' '));
    network.inside(&users.words(NOBODY, &words))?;
    let told = users.flows("0")?;
    // (The master is root's; its workers are not.)
    let served = told
        .lines()
        .any(|line| line.starts_with("program nginx") && line.contains("of user 65534"));
    if served { Ok(()) } else { Err(told.into()) }
}

fn children() -> Outcome {
    let network = Network::new("c")?;
    network.needs(&["setpriv"])?;
    let users = Users::new(&network)?;
    let (_system, _) = users.serves("0", &["--all-users"])?;
    let _server = users.under("0", &["python3", "-c", CHILDREN])?;
    network.until_listens(7)?;
    let mut client = users.under("0", &["python3", "-c", BOTH])?;
    client.says("done")?;
    expect(&users.flows("0")?, "4 programs, 2 connections with both ends here", true)
}

fn over_the_wire() -> Outcome {
    let network = Network::new("o")?;
    network.needs(&["redis-server", "setpriv"])?;
    let users = Users::new(&network)?;
    let (mut service, _) = users.serves("0", &["--all-users", "--if", "inner"])?;
    service.line()?;
    let _redis = users.redis(NOBODY, "0.0.0.0")?;
    network.until_steered(REDIS)?;
    let mut client = network.outside_python_talking(ASKS, &[ADDRESS])?;
    let port = client.line()?;
    let its = users.flows(NOBODY)?;
    // (The other end is the service's, of which it is told no more.)
    for has in [&format!("10.78.9.1:{port} ?[0]"), &format!("10.78.9.1:{port}, over the wire")] {
        expect(&its, has, true)?;
    }
    expect(&users.flows(DAEMON)?, &format!(":{port}"), false)?;
    expect(&users.flows("0")?, &format!("10.78.9.1:{port}, over the wire"), true)?;
    // Nothing of root's is left but what a wire needs.
    let pid = service.pid().to_string();
    let status =
        network.inside(&["grep", "-E", "^(CapEff|NoNewPrivs)", &format!("/proc/{pid}/status")])?;
    // (CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_BPF.)
    expect(&status, "0000008000001400", true)?;
    expect(&status, "NoNewPrivs:\t1", true)
}
