//! Two network namespaces with a veth between them, and what runs in each.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use uncopy_tests::product;
use uncopy_tests::run::clean;
use uncopy_tests::verdict::Stop;

/// The servers' address.
pub const ADDRESS: &str = "10.78.9.2";
/// The other end's.
pub const OUTSIDE: &str = "10.78.9.1";
/// The mark of stand-ins (`uncopy_tcp_service::ends::STAND_IN`).
const STAND_IN: u32 = 0x7563_7079;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Checksums are left to the device unless it is told not to, and between two ends of a veth nobody
/// computes them (ethtool -K DEVICE tx off).
const NO_OFFLOAD: &str = r#"
import ctypes, fcntl, socket, struct, sys
value = ctypes.create_string_buffer(struct.pack("II", 0x17, 0))
fcntl.ioctl(socket.socket(), 0x8946, struct.pack("16sP16x", sys.argv[1].encode(), ctypes.addressof(value)))
"#;

/// Makes two TAP devices of these names, and carries frames between them, so many seconds late.
const CARRIER: &str = r#"
import collections, fcntl, os, select, struct, sys, time
def tap(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, 0x400454ca, struct.pack("16sH22x", name.encode(), 0x1002))
    return fd
fds, late = [tap("inner"), tap("outer")], float(sys.argv[1])
print("carries", flush=True)
queues = [collections.deque(), collections.deque()]
while True:
    first = min((queue[0][0] for queue in queues if queue), default=None)
    left = None if first is None else max(0, first - time.monotonic())
    for fd in select.select(fds, [], [], left)[0]:
        queue = queues[fds.index(fd)]
        try:
            for _ in range(64): queue.append((time.monotonic() + late, os.read(fd, 65536)))
        except OSError: pass
    now = time.monotonic()
    for queue, to in zip(queues, reversed(fds)):
        while queue and queue[0][0] <= now:
            try: os.write(to, queue.popleft()[1])
            except OSError: pass
"#;

/// Connects, and stays.
const KNOCK: &str = "import socket, sys, time\ns = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)\nprint('here', flush=True)\ntime.sleep(20)";

/// See the module. `inner` has the servers, `outer` their clients.
pub struct Network {
    inner: String,
    outer: String,
    name: String,
    /// The other options of each service.
    options: &'static [&'static str],
    scratch: tempfile::TempDir,
    /// Between devices that are no veth.
    carrier: Option<Beside>,
}

/// How a network is made, and how its services reach their devices.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Queues of each device.
    pub queues: u32,
    /// Devices compute checksums and cut segments, as usual. By AF_XDP they must not: the receiver
    /// would see none.
    pub offloads: bool,
    /// Options of `uncopy tcp serve`.
    pub options: &'static [&'static str],
}

/// As devices are that nobody has changed, and the service's own choice.
pub const USUAL: Kind = Kind { queues: 1, offloads: true, options: &[] };

/// `uncopy run --tcp -- PROGRAM...`
fn under_tcp(words: &[&str]) -> Result<Vec<String>, Stop> {
    let uncopy = product::uncopy()?.display().to_string();
    let begin = [uncopy, "run".into(), "--tcp".into(), "--".into()];
    Ok(begin.into_iter().chain(words.iter().map(|word| (*word).to_owned())).collect())
}

fn shell(command: &str) -> Result<(), Stop> {
    let output = Command::new("sh").args(["-c", command]).output().map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(Stop::Skip(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

impl Network {
    /// `which` tells those of one test run apart.
    pub fn new(which: &str) -> Result<Self, Stop> {
        Self::of(which, USUAL)
    }

    fn named(which: &str, options: &'static [&'static str]) -> Result<Self, Stop> {
        let id = format!("{which}{}", std::process::id());
        let (inner, outer) = (format!("ucri{id}"), format!("ucro{id}"));
        let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
        let name = format!("uncopy-tcp-remote-{id}");
        let network = Self { inner, outer, name, options, scratch, carrier: None };
        shell(&format!("ip netns add {} && ip netns add {}", network.inner, network.outer))?;
        Ok(network)
    }

    /// One whose frames come so late, each way: between two TAPs, which leave nothing to each
    /// other.
    pub fn far(which: &str, late: Duration) -> Result<Self, Stop> {
        let mut network = Self::named(which, &[])?;
        let late = late.as_secs_f64().to_string();
        let mut carrier = network.inside_python(CARRIER, &[&late])?;
        carrier.says("carries").map_err(|_| Stop::Skip("no TAP device can be made".to_owned()))?;
        network.carrier = Some(carrier);
        let (inner, outer) = (&network.inner, &network.outer);
        shell(&format!(
            "ip -n {inner} link set outer netns {outer} && \
             ip -n {inner} addr add {ADDRESS}/24 dev inner && \
             ip -n {outer} addr add {OUTSIDE}/24 dev outer && \
             ip -n {inner} link set inner txqueuelen 5000 up && \
             ip -n {outer} link set outer txqueuelen 5000 up && \
             ip -n {inner} link set lo up && ip -n {outer} link set lo up"
        ))?;
        Ok(network)
    }

    /// One of another kind.
    pub fn of(which: &str, kind: Kind) -> Result<Self, Stop> {
        let network = Self::named(which, kind.options)?;
        let (inner, outer) = (&network.inner, &network.outer);
        let queues = format!("numrxqueues {0} numtxqueues {0}", kind.queues);
        shell(&format!(
            "ip -n {inner} link add inner {queues} type veth \
             peer name outer {queues} netns {outer} && \
             ip -n {inner} addr add {ADDRESS}/24 dev inner && ip -n {inner} link set inner up && \
             ip -n {outer} addr add 10.78.9.1/24 dev outer && ip -n {outer} link set outer up && \
             ip -n {inner} link set lo up && ip -n {outer} link set lo up"
        ))?;
        if !kind.offloads {
            shell(&format!(
                "ip netns exec {outer} python3 -c '{NO_OFFLOAD}' outer && \
                 ip netns exec {inner} python3 -c '{NO_OFFLOAD}' inner"
            ))?;
        }
        Ok(network)
    }

    /// A second veth between the two, `inner2`: 10.79.9.2 there, 10.79.9.1 at the other end.
    pub fn second_device(&self) -> Result<(), Stop> {
        let (inner, outer) = (&self.inner, &self.outer);
        shell(&format!(
            "ip -n {inner} link add inner2 type veth peer name outer2 netns {outer} && \
             ip -n {inner} addr add 10.79.9.2/24 dev inner2 && ip -n {inner} link set inner2 up && \
             ip -n {outer} addr add 10.79.9.1/24 dev outer2 && ip -n {outer} link set outer2 up"
        ))
    }

    /// A second veth in the same network, `inner2`: 10.78.9.4, and no further address at the other
    /// end, whose route to it is by there.
    pub fn second_device_of_its_network(&self) -> Result<(), Stop> {
        let (inner, outer) = (&self.inner, &self.outer);
        // (Each answers for its own address alone, else Linux' neighbours depend on who is first.)
        shell(&format!(
            "ip -n {inner} link add inner2 type veth peer name outer2 netns {outer} && \
             ip netns exec {inner} sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.inner2.rp_filter=0 && \
             ip netns exec {outer} sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.outer2.rp_filter=0 && \
             ip -n {inner} addr add 10.78.9.4/24 dev inner2 && ip -n {inner} link set inner2 up && \
             ip -n {outer} link set outer2 up && ip -n {outer} route add 10.78.9.4/32 dev outer2 src {OUTSIDE}"
        ))
    }

    /// A directory of its own.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Skips where one of these programs is not installed.
    pub fn needs(&self, programs: &[&str]) -> Result<(), Stop> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        for program in programs {
            if !std::env::split_paths(&path).any(|place| place.join(program).is_file()) {
                return Err(Stop::Skip(format!("{program} is not installed")));
            }
        }
        Ok(())
    }

    fn command(&self, namespace: &str, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).args(words).stdin(Stdio::null());
        clean(&mut command);
        command.env("UNCOPY_TCP_SERVICE", &self.name).current_dir(self.scratch.path());
        command
    }

    /// Starts a program of its own among the servers.
    fn begin(&self, namespace: &str, words: &[&str]) -> Result<Beside, Stop> {
        let mut command = self.command(namespace, words);
        let child = command.stdout(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
        Ok(Beside::of(child))
    }

    /// Starts a program under `uncopy run --tcp`.
    pub fn under_tcp(&self, words: &[&str]) -> Result<Beside, Stop> {
        self.begin(&self.inner, &under_tcp(words)?.iter().map(|w| &w[..]).collect::<Vec<_>>())
    }

    /// Likewise, at the other end.
    pub fn outside_under_tcp(&self, words: &[&str]) -> Result<Beside, Stop> {
        self.begin(&self.outer, &under_tcp(words)?.iter().map(|w| &w[..]).collect::<Vec<_>>())
    }

    /// Starts one that waits for its input's end.
    pub fn under_tcp_talking(&self, words: &[&str]) -> Result<Beside, Stop> {
        let words = under_tcp(words)?;
        let words: Vec<&str> = words.iter().map(|word| &word[..]).collect();
        let mut command = self.command(&self.inner, &words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Beside::of(command.spawn().map_err(|e| e.to_string())?))
    }

    /// Runs one.
    pub fn inside_under_tcp(&self, words: &[&str]) -> Result<String, Stop> {
        let words = under_tcp(words)?;
        self.run(&self.inner, &words.iter().map(|word| &word[..]).collect::<Vec<_>>())
    }

    /// Starts the service over the device.
    pub fn serve(&self) -> Result<Service, Stop> {
        self.serve_with(&[])
    }

    /// Likewise, with options.
    pub fn serve_with(&self, options: &[&str]) -> Result<Service, Stop> {
        self.serve_as(&self.name, options)
    }

    /// Likewise, one of another name, which the programs do not look for.
    pub fn serve_as(&self, name: &str, options: &[&str]) -> Result<Service, Stop> {
        self.serve_at((&self.inner, "inner"), name, options)
    }

    /// Starts one at the other end.
    pub fn serve_outside(&self) -> Result<Service, Stop> {
        self.serve_at((&self.outer, "outer"), &self.name, &[])
    }

    /// Starts one that cannot have TAP and TUN devices; so programs that connect are Linux's.
    pub fn serve_without_tun(&self) -> Result<Service, Stop> {
        let nothing = "mount --bind /dev/null /dev/net/tun && exec \"$@\"";
        let begin = ["unshare", "-m", "sh", "-c", nothing, "sh"];
        self.starts_at((&self.inner, "inner"), &self.name, &begin, &[])
    }

    fn serve_at(&self, at: (&str, &str), name: &str, options: &[&str]) -> Result<Service, Stop> {
        let mut service = self.starts_at(at, name, &[], options)?;
        // (Of each device: that it is reached, that programs connect.)
        let devices = options.iter().filter(|option| **option == "--if").count();
        for line in 0..=2 * devices {
            let said = service.beside.line()?;
            if line % 2 == 0 && !said.contains("that connect") {
                return Err(format!("the service says {said}").into());
            }
        }
        Ok(service)
    }

    /// `begin`: a program that is to start it.
    fn starts_at(
        &self,
        (namespace, device): (&str, &str),
        name: &str,
        begin: &[&str],
        options: &[&str],
    ) -> Result<Service, Stop> {
        let uncopy = product::uncopy()?.display().to_string();
        let words = [&uncopy[..], "tcp", "serve", "--if", device, "--name", name];
        let words = [begin, &words, self.options, options].concat();
        let mut beside = self.begin(namespace, &words)?;
        let said = [beside.line()?, beside.line()?];
        if !said[1].contains(&format!(" {device} (")) {
            return Err(format!("the service says {said:?}").into());
        }
        let [_, reached] = said;
        Ok(Service { beside, name: name.to_owned(), namespace: namespace.to_owned(), reached })
    }

    fn run(&self, namespace: &str, words: &[&str]) -> Result<String, Stop> {
        let seconds = TIMEOUT.as_secs().to_string();
        let bounded = [&["timeout", "-s", "KILL", &seconds], words].concat();
        let output = self.command(namespace, &bounded).output().map_err(|e| e.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(format!("{}: {}: {said} {errors}", words[0], output.status).into())
    }

    /// Runs a plain program at the servers'.
    pub fn inside(&self, words: &[&str]) -> Result<String, Stop> {
        self.run(&self.inner, words)
    }

    /// Runs a plain program at the clients'.
    pub fn outside(&self, words: &[&str]) -> Result<String, Stop> {
        self.run(&self.outer, words)
    }

    /// Changes the servers' device, or routes: `ip` of their namespace.
    pub fn device(&self, words: &str) -> Result<(), Stop> {
        shell(&format!("ip -n {} {words}", self.inner))
    }

    /// How many sockets of the service stand in for clients.
    pub fn stand_ins(&self) -> Result<usize, Stop> {
        Ok(self.inside(&["ss", "-Htn"])?.matches("%lo:").count())
    }

    /// Starts a plain program at the other end.
    pub fn outside_beside(&self, words: &[&str]) -> Result<Beside, Stop> {
        self.begin(&self.outer, words)
    }

    /// Starts a program among the servers, with an input.
    pub fn inside_beside(&self, words: &[&str]) -> Result<Beside, Stop> {
        let mut command = self.command(&self.inner, words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Beside::of(command.spawn().map_err(|e| e.to_string())?))
    }

    /// Starts a plain program among the servers.
    pub fn inside_python(&self, script: &str, arguments: &[&str]) -> Result<Beside, Stop> {
        self.begin(&self.inner, &[&["python3", "-c", script], arguments].concat())
    }

    /// Files of random bytes, by their sizes, and where they are.
    pub fn files(&self) -> Result<(Vec<usize>, PathBuf), Stop> {
        let root = self.directory().join("www");
        std::fs::create_dir(&root).map_err(|e| e.to_string())?;
        let mut random = fastrand::Rng::with_seed(7);
        let sizes = vec![0, 1, 1000, 65_536, 1_000_000, 20_000_000];
        for size in &sizes {
            let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(*size).collect();
            std::fs::write(root.join(size.to_string()), bytes).map_err(|e| e.to_string())?;
        }
        Ok((sizes, root))
    }

    /// A configuration of nginx for them.
    pub fn nginx(&self, root: &Path) -> Result<String, Stop> {
        let configuration = self.directory().join("nginx.conf");
        let base = self.directory().display();
        let text = format!(
            "daemon off; user root; worker_processes 2; pid {base}/nginx.pid; error_log {base}/error.log;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log off; sendfile on; client_body_temp_path {base}/b; proxy_temp_path {base}/p;\n\
             fastcgi_temp_path {base}/f; uwsgi_temp_path {base}/u; scgi_temp_path {base}/s;\n\
             server {{ listen 80; root {root}; }} }}\n",
            root = root.display()
        );
        std::fs::write(&configuration, text).map_err(|e| e.to_string())?;
        Ok(configuration.display().to_string())
    }

    /// Starts a client.
    pub fn outside_python(&self, script: &str, arguments: &[&str]) -> Result<Beside, Stop> {
        self.begin(&self.outer, &[&["python3", "-c", script], arguments].concat())
    }

    /// Starts one that waits for lines.
    pub fn outside_python_talking(&self, script: &str, arguments: &[&str]) -> Result<Beside, Stop> {
        let mut command =
            self.command(&self.outer, &[&["python3", "-c", script], arguments].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Beside::of(command.spawn().map_err(|e| e.to_string())?))
    }

    /// Waits until something is so.
    pub fn until(
        &self,
        timeout: Duration,
        what: &str,
        mut so: impl FnMut() -> bool,
    ) -> Result<(), Stop> {
        let begun = Instant::now();
        while !so() {
            if begun.elapsed() > timeout {
                return Err(what.to_owned().into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Waits until somebody listens at this port.
    pub fn until_listens(&self, port: u16) -> Result<(), Stop> {
        self.until_listens_in(&self.inner, port)
    }

    /// Likewise, at the other end.
    pub fn until_listens_outside(&self, port: u16) -> Result<(), Stop> {
        self.until_listens_in(&self.outer, port)
    }

    fn until_listens_in(&self, namespace: &str, port: u16) -> Result<(), Stop> {
        let wanted = format!(":{port} ");
        self.until(TIMEOUT, &format!("nobody listens at port {port}"), || {
            let said = self.run(namespace, &["ss", "-Hltn"]);
            said.is_ok_and(|said| said.contains(&wanted))
        })
    }

    /// Waits until what is connected to this port from outside has a stand-in: the service has
    /// heard of the listener some microseconds after it began to listen.
    pub fn until_steered(&self, port: u16) -> Result<(), Stop> {
        self.until_steered_in(&self.inner, port, || {
            self.outside_python(KNOCK, &[ADDRESS, &port.to_string()])
        })
    }

    /// Likewise, at the other end.
    pub fn until_steered_outside(&self, port: u16) -> Result<(), Stop> {
        self.until_steered_in(&self.outer, port, || {
            self.inside_python(KNOCK, &[OUTSIDE, &port.to_string()])
        })
    }

    fn until_steered_in(
        &self,
        namespace: &str,
        port: u16,
        knock: impl Fn() -> Result<Beside, Stop>,
    ) -> Result<(), Stop> {
        let (mark, ours) = (format!("fwmark:{STAND_IN:#x}"), format!("sport = :{port}"));
        self.until(TIMEOUT, &format!("nothing is steered to port {port}"), || {
            let Ok(mut client) = knock() else { return false };
            // (The stand-in is connected once the handshake over the wire is complete.)
            client.line().is_ok_and(|line| line == "here")
                && self
                    .until(Duration::from_millis(500), "", || {
                        let said =
                            self.run(namespace, &["ss", "-Htne", "state", "established", &ours]);
                        said.is_ok_and(|said| said.contains(&mark))
                    })
                    .is_ok()
        })
    }

    /// Waits until the service has no connection.
    pub fn until_no_flows(&self, service: &Service) -> Result<(), Stop> {
        let mut last = String::new();
        let none = self.until(Duration::from_secs(20), "", || {
            last = service.flows().unwrap_or_default();
            matches!(service.count_flows(), Ok(0))
        });
        none.map_err(|_| format!("the service still has: {last}").into())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = shell(&format!("ip netns del {}; ip netns del {}", self.inner, self.outer));
    }
}

/// A program that runs beside the test, until it is dropped.
pub struct Beside {
    child: Child,
    lines: Receiver<String>,
}

impl Beside {
    fn of(mut child: Child) -> Self {
        let (to, lines) = channel();
        let out: ChildStdout = child.stdout.take().expect("piped");
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = to.send(line);
            }
        });
        Self { child, lines }
    }

    /// Its next line.
    pub fn line(&mut self) -> Result<String, Stop> {
        let line = self.lines.recv_timeout(TIMEOUT);
        line.map_err(|_| format!("process {} says nothing", self.child.id()).into())
    }

    /// Sends it a line.
    pub fn tell(&mut self) -> Result<(), Stop> {
        let input = self.child.stdin.as_mut();
        let input = input.ok_or_else(|| Stop::Fail("it does not listen".into()))?;
        input.write_all(b"\n").map_err(|e| Stop::Fail(e.to_string()))
    }

    /// SIGINT.
    pub fn interrupt(&self) -> Result<(), Stop> {
        shell(&format!("kill -INT {}", self.pid()))
    }

    /// Waits for its next line, which is to be this one.
    pub fn says(&mut self, wanted: &str) -> Result<(), Stop> {
        let line = self.line()?;
        if line == wanted {
            Ok(())
        } else {
            Err(format!("it says '{line}', not '{wanted}'").into())
        }
    }

    /// Its process. (`ip netns exec` has become it.)
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL.
    pub fn kill(self) {}
}

impl Drop for Beside {
    fn drop(&mut self) {
        // (nginx' workers are its children; stopped, it starts no others in their place.)
        let pid = self.child.id();
        let _ = shell(&format!("kill -STOP {pid}; pkill -KILL -P {pid}"));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The service over the device.
pub struct Service {
    beside: Beside,
    name: String,
    namespace: String,
    /// The service's line about how it reaches its device.
    pub reached: String,
}

impl Service {
    /// The output of `uncopy tcp flows --json`.
    pub fn flows(&self) -> Result<String, Stop> {
        let uncopy = product::uncopy()?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(uncopy);
        command.args(["tcp", "flows", "--json", "--name", &self.name]);
        clean(&mut command);
        let output = command.output().map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts `uncopy tcp trace` and waits until it is under way.
    pub fn trace(&self, end: &str, file: &str) -> Result<Beside, Stop> {
        let uncopy = product::uncopy()?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(uncopy);
        command.args(["tcp", "trace", end, "--out", file, "--name", &self.name]);
        clean(&mut command);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let trace = Beside::of(child.map_err(|e| e.to_string())?);
        // (The file's beginning is written when the service has the descriptor, and is flushed with
        // its first frames: so this is only a while.)
        std::thread::sleep(Duration::from_secs(1));
        Ok(trace)
    }

    /// How many connections of the outer namespace's it has that have rings.
    pub fn count_flows(&self) -> Result<usize, Stop> {
        self.count("10.78.9.1:")
    }

    /// The service's lines about each connection over the wire.
    pub fn wired(&self) -> Result<Vec<String>, Stop> {
        let flows = self.flows()?;
        let wired = flows.split("\"wired\":").nth(1).unwrap_or_default();
        Ok(wired.split('{').skip(1).map(str::to_owned).collect())
    }

    /// How often this is said of connections that have rings.
    pub fn count(&self, what: &str) -> Result<usize, Stop> {
        let flows = self.flows()?;
        // (The names come in order.)
        let shared = flows.split("\"wired\":").next().unwrap_or_default();
        Ok(shared.matches(what).count())
    }

    /// Its resident memory, in bytes.
    pub fn memory(&self) -> Result<u64, Stop> {
        let file = format!("/proc/{}/statm", self.beside.pid());
        let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
        let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
        Ok(pages.unwrap_or(0) * 4096)
    }

    /// It gets no descriptor any more.
    pub fn has_no_descriptors(&self) -> Result<(), Stop> {
        shell(&format!("prlimit --pid {} --nofile=3:3", self.beside.pid()))
    }

    /// Sends it this signal.
    pub fn gets(&self, signal: &str) -> Result<(), Stop> {
        shell(&format!("kill -{signal} {}", self.beside.pid()))
    }

    /// It has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.beside.child.try_wait(), Ok(Some(_)))
    }

    /// SIGKILL.
    pub fn kill(self) {
        self.beside.kill();
    }
}
