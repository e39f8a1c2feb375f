//! One service for all users: programs find it by themselves, and each user's stay among
//! themselves. The names are the usual ones: they are a network namespace's own.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use uncopy_tests::product;
use uncopy_tests::verdict::Stop;

use crate::network::{ADDRESS, Beside, Network};
use crate::{Named, Outcome, REDIS, connecting};

/// Those of this file.
pub const ALL: [Named; 7] = [
    ("programs_find_their_users_service_and_then_the_systems_and_users_do_not_meet", found),
    ("workers_that_have_become_another_user_are_served_as_that_one", workers),
    ("children_of_a_program_that_listened_before_have_conversations_of_their_own", children),
    ("programs_of_several_users_are_served_over_the_wire", over_the_wire),
    ("a_marked_socket_has_no_foreign_source", foreign_source),
    ("a_user_whom_the_systems_service_sends_away_has_no_service_while_it_is_there", sent_away),
    ("who_has_the_number_of_all_strangers_believes_no_stranger", strangers),
];

const NOBODY: &str = "65534";
const DAEMON: &str = "1";

/// Asks redis a hundred times and stays until its input ends.
const ASKS: &str = r#"
import select, socket, sys
s = socket.create_connection((sys.argv[1], 6379), timeout=20)
f = s.makefile("rb")
def ask(i):
    value = b"%06d" % i * 100
    s.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n" % (len(value), value))
    assert f.readline() == b"+OK\r\n" and f.readline() == b"$%d\r\n" % len(value)
    assert f.read(len(value) + 2) == value + b"\r\n"
for i in range(100): ask(i)
print(s.getsockname()[1], flush=True)
# (A busy service may answer after these.)
while not select.select([sys.stdin], [], [], 0.02)[0]: ask(0)
"#;

/// Two children that answer one client each. (By Python's inner module: the outer one makes a set
/// when it is imported, and then the program has had something.)
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

/// Gets sockets that have the stand-ins' mark, one that was accepted and one that has connected,
/// dissolves them, and tries to be another host with them. Another program of this host listens at
/// port 7003. (15: IP_FREEBIND, 19: IP_TRANSPARENT, 36: SO_MARK.)
const ANOTHER: &str = r#"
import ctypes, errno, socket, sys
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind(("0.0.0.0", 7001)); l.listen()
print("listens", flush=True)
def mark(s): return s.getsockopt(socket.SOL_SOCKET, 36)
def accepted():
    while True:
        s = l.accept()[0]
        if mark(s) == 0x75637079: return s
        s.close()
def connected():
    for _ in range(50):
        s = socket.create_connection(("10.78.9.1", 7), 20)
        if mark(s) == 0x75637079: return s
        s.close()
    sys.exit("no connection of its is carried")
def dissolve(s):
    s.settimeout(None)
    assert ctypes.CDLL(None).connect(s.fileno(), bytes(16), 16) == 0
def tries(s, *to):
    try: s.connect(to); return "connected"
    except OSError as error: return errno.errorcode[error.errno]
for marked in (accepted, connected):
    # As it is, it reaches a listener of this host.
    s = marked(); dissolve(s); before = mark(s)
    assert tries(s, "127.0.0.1", 7003) == "connected"
    for to in (("127.0.0.1", 7003), ("10.78.9.2", 7003), ("203.0.113.9", 7003)):
        s = marked(); dissolve(s)
        try: s.setsockopt(socket.IPPROTO_IP, 19, 1); sys.exit("it may be anybody")
        except PermissionError: pass
        s.setsockopt(socket.IPPROTO_IP, 15, 1); s.bind(("203.0.113.9", 0))
        print(hex(before), hex(mark(s)), to[0], tries(s, *to), flush=True)
# One that is to be carried, likewise.
s = socket.socket(); s.setsockopt(socket.IPPROTO_IP, 15, 1); s.bind(("203.0.113.9", 0))
print("new", tries(s, "10.78.9.1", 7), mark(s), flush=True)
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
    // (The other end may be about to look for bytes for the first time.)
    let mut its = String::new();
    network.until(Duration::from_secs(10), "a ring", || {
        its = users.flows(NOBODY).unwrap_or_default();
        its.contains("ring, ")
    })?;
    for has in ["@uncopy-tcp [", "2 programs, 1 connections", &format!("127.0.0.1:{port} ")] {
        expect(&its, has, true)?;
    }
    expect(&users.flows(DAEMON)?, "0 programs, 0 connections", true)?;
    // Another user, and root, do not meet it, and are served.
    for uid in [DAEMON, "0"] {
        let (_other, port) = users.asks(uid)?;
        let mut told = String::new();
        let both = network.until(Duration::from_secs(10), "no reason", || {
            told = users.flows("0").unwrap_or_default();
            told.matches("other-user (the other end is another user's").count() >= 2
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
    expect(&format!("{refused:?}"), "trace as root, who alone has its frames written", true)?;
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

fn foreign_source() -> Outcome {
    let network = Network::new("fs")?;
    network.needs(&["setpriv"])?;
    let users = Users::new(&network)?;
    let (mut service, _) = users.serves("0", &["--all-users", "--if", "inner"])?;
    service.line()?;
    let mut echo = network.outside_python(connecting::ECHO, &[])?;
    echo.says("listens")?;
    // Another user's, which trusts the addresses of who comes.
    let trusts = connecting::ECHO.replace("(\"0.0.0.0\", 7)", "(\"0.0.0.0\", 7003)");
    let mut trusts = network.inside_python(&trusts, &[])?;
    trusts.says("listens")?;
    let mut program = users.under(NOBODY, &["python3", "-c", ANOTHER])?;
    program.says("listens")?;
    network.until_listens(7001)?;
    let knocks = r#"
import socket, sys, time
while True:
    try: s = socket.create_connection((sys.argv[1], 7001), timeout=5); s.settimeout(1); s.recv(1)
    except OSError: pass
    time.sleep(0.05)
"#;
    let _knocks = network.outside_python(knocks, &[ADDRESS])?;
    for way in ["accepted", "connected"] {
        for to in ["127.0.0.1", ADDRESS, "203.0.113.9"] {
            let said = program.line()?;
            let wanted = format!("0x75637079 0x75637079 {to} ENETUNREACH");
            if said != wanted {
                return Err(format!("{way}: {said}, not {wanted}").into());
            }
        }
    }
    program.says("new ENETUNREACH 0")?;
    // It has heard of those alone that came as they are.
    for _ in 0..2 {
        expect(&trusts.line()?, "127.0.0.1 ", true)?;
    }
    let said = network.inside(&["ss", "-Hta"])?;
    expect(&said, "203.0.113.9", false)
}

fn sent_away() -> Outcome {
    let network = Network::new("sa")?;
    network.needs(&["redis-server", "setpriv", "unshare"])?;
    let users = Users::new(&network)?;
    // It knows root alone: everybody else is a stranger there.
    let inner = ["unshare", "--user", "--map-root-user", &users.uncopy, "tcp", "serve"];
    let words = [&["env", "-u", "UNCOPY_TCP_SERVICE"], &inner[..], &["--all-users"]].concat();
    let mut system = network.inside_beside(&words)?;
    let said = system.line()?;
    expect(&said, "@uncopy-tcp: shared memory between programs of all users", true)?;
    let redis = users.redis(DAEMON, "127.0.0.1")?;
    let (client, _) = users.asks(DAEMON)?;
    let names = || network.inside(&["ss", "-Hxl"]);
    // (A service is started by the first program that needs it: by now both have.)
    expect(&names()?, "@uncopy-tcp-1 ", false)?;
    let its = format!("{:?}", users.flows(DAEMON));
    expect(&its, "programs,", false)?;
    // Once it is gone, programs that come have one.
    drop((client, redis));
    system.kill();
    let gone = || {
        let names = names();
        names.is_ok_and(|said| !said.contains("@uncopy-tcp "))
            && network.inside(&["ss", "-Hltn"]).is_ok_and(|said| !said.contains(":6379 "))
    };
    network.until(Duration::from_secs(10), "it is still there", gone)?;
    let _redis = users.redis(DAEMON, "127.0.0.1")?;
    let (_client, port) = users.asks(DAEMON)?;
    expect(&names()?, "@uncopy-tcp-1 ", true)?;
    expect(&users.flows(DAEMON)?, &format!("127.0.0.1:{port} "), true)
}

fn strangers() -> Outcome {
    let network = Network::new("st")?;
    network.needs(&["setpriv", "unshare"])?;
    let users = Users::new(&network)?;
    // Somebody else has the name first that a user of a container asks by; says how much each who
    // connects tells him.
    let takes = r#"
import os, socket
os.setuid(1)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind("\0uncopy-tcp-65534"); s.listen()
print("listens", flush=True)
while True: print(len(s.accept()[0].recv(1000)), flush=True)
"#;
    let mut service = network.inside_python(takes, &[])?;
    service.says("listens")?;
    let asks = ["tcp", "flows", "--name", "uncopy-tcp-65534"];
    // (There both have this number: the one that asks, as the user that it is, and the other,
    // because it is not known.)
    let inside = ["unshare", "--user", "--map-user=65534", "--map-group=65534", &users.uncopy];
    let inside = [&inside[..], &asks].concat();
    for asks in [inside, users.words(NOBODY, &asks)] {
        let said = format!("{:?}", network.inside(&asks));
        expect(&said, "is another user's", true)?;
        service.says("0")?;
    }
    Ok(())
}
