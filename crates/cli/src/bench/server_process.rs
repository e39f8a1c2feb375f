//! The echo server as a child process, seen from the load generator.

// Unsafe: the child's cores are set between fork and exec, so that threads which the preloaded
// library starts before the server's `main` run on them too.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sched::sched_setaffinity;
use nix::unistd::Pid;
use serde::de::DeserializeOwned;

use super::echo_server::{self, Hello, Plan, Report};
use super::{Side, cores};
use crate::Outcome;

/// A running server; it ends with this value.
pub struct ServerProcess {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    side: Side,
    /// The port of 127.0.0.1 on which it listens.
    pub port: u16,
}

impl ServerProcess {
    /// Starts a server and waits until it listens.
    pub fn start(
        plan: &Plan,
        side: Side,
        library: &Path,
        environment: &[(&str, &str)],
    ) -> Outcome<Self> {
        let set = cores::set_of(&plan.cores)?;
        let mut command = super::own_command(echo_server::NAME, side, library)?;
        command
            .arg(serde_json::to_string(plan).expect("a plan can be written"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if side == Side::Uncopy {
            command.envs(environment.iter().copied());
        }
        // SAFETY: between fork and exec it makes one system call and touches nothing else.
        unsafe {
            command.pre_exec(move || Ok(sched_setaffinity(Pid::from_raw(0), &set)?));
        }
        Self::launch(command, side)
    }

    fn launch(mut command: Command, side: Side) -> Outcome<Self> {
        let mut child =
            command.spawn().map_err(|e| format!("cannot start the echo server ({e})"))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        let mut server = Self { child, input, output, side, port: 0 };
        server.port = server.answer::<Hello>()?.port;
        Ok(server)
    }

    /// What it used and did up to now.
    pub fn report(&mut self) -> Outcome<Report> {
        let asked = self.input.as_mut().map(|input| input.write_all(b"snapshot\n"));
        if !matches!(asked, Some(Ok(()))) {
            return Err(self.gone());
        }
        self.answer()
    }

    fn answer<T: DeserializeOwned>(&mut self) -> Outcome<T> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(n) if n > 0 => serde_json::from_str(&line).map_err(|e| {
                format!("the {} echo server answered nonsense ({e}): {line}", self.side)
            }),
            _ => Err(self.gone()),
        }
    }

    /// Ends it and checks that it had nothing to complain about.
    pub fn stop(mut self) -> Outcome {
        drop(self.input.take());
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the {} echo server ended with {status}", self.side)),
            Err(e) => Err(format!("lost the {} echo server ({e})", self.side)),
        }
    }

    /// Tells how it died, if it did.
    pub fn explain(&mut self, error: String) -> String {
        // A moment for a process that is just being killed.
        std::thread::sleep(std::time::Duration::from_millis(100));
        match self.child.try_wait() {
            Ok(Some(status)) => format!("the {} echo server died ({status}): {error}", self.side),
            _ => format!("with the {} echo server: {error}", self.side),
        }
    }

    fn gone(&mut self) -> String {
        self.explain("it does not answer".to_owned())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
