//! The hidden parent of a side's processes: it waits for all of them, and ends those that do not
//! end.
//!
//! A process of its own, for what its children used is then the side's whole tree and nothing else:
//! it adopts processes that leave their parents (daemons), and the load is another process's child.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command as Process, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command};
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use uncopy_measure::{Failure, failure};

use super::tree;
use crate::run;

/// The hidden subcommand.
pub const NAME: &str = "__try-supervisor";
/// Says that the program is a server: it is ended when told, and what it prints is kept.
pub const SERVER: &str = "--server";
/// The time after SIGTERM at which a process that has not ended is killed.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The result when all have ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ended {
    /// CPU time of the whole tree, in seconds.
    pub cpu: f64,
    /// From the program's start to its end, in seconds.
    pub elapsed: f64,
    /// Whether it ended with status 0.
    pub success: bool,
    /// How it ended, in words.
    pub how: String,
}

/// The subcommand: the program is ended with standard input, or left to end by itself.
pub fn command() -> Command {
    Command::new(NAME)
        .hide(true)
        .arg(Arg::new("server").long("server").action(clap::ArgAction::SetTrue))
        .arg(run::command_words())
}

/// Starts the program, waits for all of its processes, reports on standard output.
pub fn main(matches: &ArgMatches) -> Result<(), Failure> {
    let words: Vec<OsString> =
        matches.get_many("command").expect("clap demands a command").cloned().collect();
    set_child_subreaper(true).map_err(|e| Failure::new("cannot adopt processes").because(e))?;
    let (end, told) = channel();
    let whole = (!matches.get_flag("server")).then(|| end.clone());
    let begin = Instant::now();
    let child = start(&words, whole.is_none())?;
    thread::spawn(move || end_when_told(&told));
    thread::spawn(move || {
        // (Its end too, should `uncopy try` have been killed.)
        let _ = std::io::stdin().read(&mut [0]);
        let _ = end.send(());
    });
    let ended = wait_for_all(&child, begin, whole.as_ref())?;
    let line = serde_json::to_string(&ended).expect("it can be written");
    uncopy_measure::print(&format!("{line}\n"))
}

fn start(words: &[OsString], server: bool) -> Result<Child, Failure> {
    let stdout = if server {
        // Servers complain on either.
        let stderr = std::io::stderr().as_fd().try_clone_to_owned();
        stderr.map_err(|e| Failure::new("no descriptor is left").because(e))?.into()
    } else {
        Stdio::null()
    };
    let mut command = Process::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(stdout);
    command.spawn().map_err(|e| failure!("{} cannot be executed", words[0].display()).because(e))
}

/// Waits until there is no child left, adopted ones included. Where the program was to end by
/// itself, what it leaves behind is ended then.
fn wait_for_all(
    child: &Child,
    begin: Instant,
    whole: Option<&Sender<()>>,
) -> Result<Ended, Failure> {
    let mut ended = Ended { cpu: 0.0, elapsed: 0.0, success: false, how: "unknown".into() };
    loop {
        let (pid, success, how) = match wait() {
            Ok(WaitStatus::Exited(pid, status)) => (pid, status == 0, format!("status {status}")),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, false, signal.to_string()),
            Err(Errno::ECHILD) => break,
            // (Also signals that have no name.)
            Ok(_) | Err(_) => continue,
        };
        if pid.as_raw().cast_unsigned() == child.id() {
            ended = Ended { cpu: 0.0, elapsed: begin.elapsed().as_secs_f64(), success, how };
            if let Some(end) = whole {
                let _ = end.send(());
            }
        }
    }
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_err(|e| Failure::new("no CPU times").because(e))?;
    let time = used.user_time() + used.system_time();
    ended.cpu = time.num_microseconds() as f64 / 1e6;
    Ok(ended)
}

/// When told so asks all descendants to end, from the eldest on, and kills them if they do not.
fn end_when_told(told: &Receiver<()>) {
    let _ = told.recv();
    let me = std::process::id();
    let since = Instant::now();
    let mut asked = Vec::new();
    loop {
        if since.elapsed() < TIMEOUT {
            // Children only: a server ends its own workers, and those that it leaves behind become
            // ours.
            for pid in tree::children(me) {
                if !asked.contains(&pid) {
                    asked.push(pid);
                    signal(pid, Signal::SIGTERM);
                }
            }
        } else {
            tree::descendants(me).into_iter().for_each(|pid| signal(pid, Signal::SIGKILL));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn signal(pid: u32, signal: Signal) {
    // (It may have ended just now.)
    let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
}

/// A supervisor, seen from `uncopy try`; with this value its side ends.
pub struct Supervised(Child);

impl Supervised {
    /// Starts `command`, whose processes complain to `said`.
    pub fn start(mut command: Process, said: std::fs::File) -> Result<Self, Failure> {
        use std::os::unix::process::CommandExt;

        // A group of its own: an interrupt from the terminal comes to `uncopy try` alone, which
        // ends the side.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said).process_group(0);
        command
            .spawn()
            .map(Self)
            .map_err(|e| Failure::new("cannot start its supervisor").because(e))
    }

    /// The processes of the side.
    pub fn processes(&self) -> Vec<u32> {
        tree::descendants(self.0.id())
    }

    /// Their processor time so far, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        tree::cpu_seconds(self.0.id())
    }

    /// Whether all have ended.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(_)))
    }

    /// Asks all to end.
    pub fn end(&mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            let _ = input.write_all(b"\n");
        }
    }

    /// Waits until all have ended.
    pub fn wait(&mut self) -> Result<Ended, Failure> {
        let mut text = String::new();
        let output = self.0.stdout.as_mut().expect("a pipe was asked for, and is read once");
        let read = output.read_to_string(&mut text);
        let _ = self.0.wait();
        read.map_err(|e| Failure::new("lost its supervisor").because(e))?;
        serde_json::from_str(&text).map_err(|_| Failure::new("could not be started"))
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.end();
        let _ = self.0.wait();
    }
}
