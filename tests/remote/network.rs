//! Two network namespaces with a veth between them, and what runs in each.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use uncopy_tests::product;
use uncopy_tests::run::clean;
use uncopy_tests::verdict::Stop;

/// The servers' address.
pub const ADDRESS: &str = "10.78.9.2";
/// The mark of stand-ins (`uncopy_tcp_service::ends::STAND_IN`).
const STAND_IN: u32 = 0x7563_7079;
const PATIENCE: Duration = Duration::from_secs(60);

/// Checksums are left to the device unless it is told not to, and between two ends of a veth nobody computes them (ethtool -K outer tx off).
const NO_OFFLOAD: &str = r#"
import ctypes, fcntl, socket, struct
value = ctypes.create_string_buffer(struct.pack("II", 0x17, 0))
fcntl.ioctl(socket.socket(), 0x8946, struct.pack("16sP16x", b"outer", ctypes.addressof(value)))
"#;

/// See the module. `inner` has the servers, `outer` their clients.
pub struct Network {
    inner: String,
    outer: String,
    name: String,
    scratch: tempfile::TempDir,
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
        let id = format!("{which}{}", std::process::id());
        let (inner, outer) = (format!("ucri{id}"), format!("ucro{id}"));
        let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
        let name = format!("uncopy-tcp-remote-{id}");
        let network = Self { inner, outer, name, scratch };
        let (inner, outer) = (&network.inner, &network.outer);
        shell(&format!(
            "ip netns add {inner} && ip netns add {outer} && \
             ip -n {inner} link add inner type veth peer name outer netns {outer} && \
             ip -n {inner} addr add {ADDRESS}/24 dev inner && ip -n {inner} link set inner up && \
             ip -n {outer} addr add 10.78.9.1/24 dev outer && ip -n {outer} link set outer up && \
             ip -n {inner} link set lo up && ip -n {outer} link set lo up && \
             ip netns exec {outer} python3 -c '{NO_OFFLOAD}'"
        ))?;
        Ok(network)
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

    /// Starts a server under `uncopy run --tcp`.
    pub fn under_tcp(&self, words: &[&str]) -> Result<Beside, Stop> {
        let uncopy = product::uncopy()?.display().to_string();
        let begin: &[&str] = &[&uncopy, "run", "--tcp", "--"];
        self.begin(&self.inner, &[begin, words].concat())
    }

    /// Starts the service over the device.
    pub fn serve(&self) -> Result<Service, Stop> {
        let uncopy = product::uncopy()?.display().to_string();
        let words = [&uncopy[..], "tcp", "serve", "--if", "inner", "--name", &self.name];
        let mut beside = self.begin(&self.inner, &words)?;
        let first = beside.line()?;
        let second = beside.line()?;
        if !second.contains("AF_XDP") {
            return Err(format!("the service says '{first}', '{second}'").into());
        }
        Ok(Service { beside, name: self.name.clone(), namespace: self.inner.clone() })
    }

    fn run(&self, namespace: &str, words: &[&str]) -> Result<String, Stop> {
        let seconds = PATIENCE.as_secs().to_string();
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

    /// Starts a client.
    pub fn outside_python(&self, script: &str, arguments: &[&str]) -> Result<Beside, Stop> {
        self.begin(&self.outer, &[&["python3", "-c", script], arguments].concat())
    }

    /// Waits until something is so.
    pub fn until(
        &self,
        patience: Duration,
        what: &str,
        mut so: impl FnMut() -> bool,
    ) -> Result<(), Stop> {
        let begun = Instant::now();
        while !so() {
            if begun.elapsed() > patience {
                return Err(what.to_owned().into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Waits until somebody listens at this port.
    pub fn until_listens(&self, port: u16) -> Result<(), Stop> {
        let wanted = format!(":{port} ");
        self.until(PATIENCE, &format!("nobody listens at port {port}"), || {
            let said = self.inside(&["ss", "-Hltn"]);
            said.is_ok_and(|said| said.contains(&wanted))
        })
    }

    /// Waits until what is connected to this port from outside has a stand-in: the service has heard of the listener some microseconds after it began to listen.
    pub fn until_steered(&self, port: u16) -> Result<(), Stop> {
        const KNOCK: &str = "import socket, sys, time\ns = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)\nprint('here', flush=True)\ntime.sleep(20)";
        let (mark, ours) = (format!("fwmark:{STAND_IN:#x}"), format!("sport = :{port}"));
        self.until(PATIENCE, &format!("nothing is steered to port {port}"), || {
            let Ok(mut client) = self.outside_python(KNOCK, &[ADDRESS, &port.to_string()]) else {
                return false;
            };
            // (The stand-in is connected once the handshake over the wire is complete.)
            client.line().is_ok_and(|line| line == "here")
                && self
                    .until(Duration::from_millis(500), "", || {
                        let said = self.inside(&["ss", "-Htne", "state", "established", &ours]);
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
        let line = self.lines.recv_timeout(PATIENCE);
        line.map_err(|_| format!("process {} says nothing", self.child.id()).into())
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
        // (nginx' workers are its children.)
        let _ = shell(&format!("pkill -KILL -P {}", self.child.id()));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The service over the device.
pub struct Service {
    beside: Beside,
    name: String,
    namespace: String,
}

impl Service {
    /// What `uncopy tcp flows --json` says.
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

    /// How many connections of the outer namespace's it has.
    pub fn count_flows(&self) -> Result<usize, Stop> {
        Ok(self.flows()?.matches("10.78.9.1:").count())
    }

    /// Its resident memory, in bytes.
    pub fn memory(&self) -> Result<u64, Stop> {
        let file = format!("/proc/{}/statm", self.beside.pid());
        let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
        let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
        Ok(pages.unwrap_or(0) * 4096)
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
