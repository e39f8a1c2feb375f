//! A server or sender as a child process, seen from the other end.

// Unsafe: the child's cores are set between fork and exec, so that threads which the preloaded
// library starts before the server's `main` run on them too.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sched::sched_setaffinity;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;

use crate::cores;
use crate::facts::{self, Facts};
use crate::failure;
use crate::failure::Failure;
use crate::side::Side;

/// A running server; it ends with this value.
pub struct ServerProcess {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    side: Side,
    what: &'static str,
}

impl ServerProcess {
    /// Starts `command` on `cores`, to be told and asked.
    pub fn launch(
        mut command: Command,
        side: Side,
        what: &'static str,
        cores: &[usize],
    ) -> Result<Self, Failure> {
        let set = cores::set_of(cores)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: between fork and exec it makes one system call and touches nothing else.
        unsafe {
            command.pre_exec(move || Ok(sched_setaffinity(Pid::from_raw(0), &set)?));
        }
        let mut child =
            command.spawn().map_err(|e| failure!("cannot start the {what}").because(e))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        Ok(Self { child, input, output, side, what })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// User and system time of all its threads.
    pub fn cpu_ns(&self) -> Result<u64, Failure> {
        let time = clock_getcpuclockid(Pid::from_raw(self.pid().cast_signed()));
        let time = time
            .and_then(clock_gettime)
            .map_err(|e| Failure::new("cannot tell the CPU time").because(e.desc()))?;
        Ok(time.tv_sec().cast_unsigned() * 1_000_000_000 + time.tv_nsec().cast_unsigned())
    }

    /// The facts of its threads and sockets.
    pub fn facts(&self) -> Facts {
        facts::of_process(self.pid())
    }

    /// Writes a line to it.
    pub fn tell(&mut self, line: &str) -> Result<(), Failure> {
        let line = format!("{line}\n");
        let told = self.input.as_mut().map(|input| input.write_all(line.as_bytes()));
        if matches!(told, Some(Ok(()))) { Ok(()) } else { Err(self.gone()) }
    }

    /// Where its answers come from.
    pub fn output(&self) -> BorrowedFd<'_> {
        self.output.get_ref().as_fd()
    }

    /// Its next line.
    pub fn answer<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(n) if n > 0 => serde_json::from_str(&line).map_err(|e| {
                failure!("the {} {} answered nonsense ({e}): {line}", self.side, self.what)
            }),
            _ => Err(self.gone()),
        }
    }

    /// Ends it and checks that it had nothing to complain about.
    pub fn stop(mut self) -> Result<(), Failure> {
        drop(self.input.take());
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failure!("the {} {} ended with {status}", self.side, self.what)),
            Err(e) => Err(failure!("lost the {} {}", self.side, self.what).because(e)),
        }
    }

    /// Tells how it died, if it did.
    pub fn explain(&mut self, error: Failure) -> Failure {
        // A moment for a process that is just being killed.
        std::thread::sleep(std::time::Duration::from_millis(100));
        match self.child.try_wait() {
            Ok(Some(status)) => {
                error.within(format_args!("the {} {} died ({status})", self.side, self.what))
            }
            _ => error.within(format_args!("with the {} {}", self.side, self.what)),
        }
    }

    fn gone(&mut self) -> Failure {
        self.explain(Failure::new("it does not answer"))
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
