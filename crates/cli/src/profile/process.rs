//! Starts the program and waits for its end, or brings it about.

// Unsafe: fork, so that the program is executed as `uncopy run` does it; waiting for signals; dying
// of one.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use uncopy_measure::printable::printable;
use uncopy_measure::{Failure, failure};

use crate::run::environment::Environment;
use crate::run::exec;

/// How long a program that was told to end is waited for.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The interval between looks for the files of a program that has ended.
const LOOK: Duration = Duration::from_millis(100);

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The program exited with this status.
    Status(u8),
    /// The program was killed by this signal.
    Signal(i32),
}

impl Ended {
    /// Ends this process alike.
    pub fn like_it(self) -> ExitCode {
        match self {
            Self::Status(status) => ExitCode::from(status),
            Self::Signal(number) => {
                // The core, if any, is the program's.
                let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
                if let Ok(signal) = Signal::try_from(number) {
                    // SAFETY: the default action is always valid.
                    unsafe { libc::signal(number, libc::SIG_DFL) };
                    let mut set = SigSet::empty();
                    set.add(signal);
                    let _ = set.thread_unblock();
                    let _ = kill(Pid::this(), signal);
                }
                ExitCode::from(128u8.saturating_add(number as u8))
            }
        }
    }
}

/// Runs the program. After `duration` it, and what `others` names, is told to end.
pub fn run(
    file: &Path,
    words: &[OsString],
    environment: &Environment,
    duration: Option<Duration>,
    others: impl Fn() -> Vec<i32>,
) -> Result<Ended, Failure> {
    let handled =
        [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT];
    let set: SigSet = handled.into_iter().collect();
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), Some(&mut before)).map_err(Failure::new)?;
    // SAFETY: this process has one thread; the child executes at once.
    let child = match unsafe { fork() } {
        Ok(ForkResult::Parent { child }) => child,
        Ok(ForkResult::Child) => {
            let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
            let error = exec::exec(file, words, environment);
            let name = printable(&words[0]);
            uncopy_measure::complain(failure!("{name}: cannot be executed").because(&error));
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            // SAFETY: ends the child without what is the parent's to do.
            unsafe { libc::_exit(if missing { 127 } else { 126 }) }
        }
        Err(e) => return Err(Failure::new("cannot be started").because(e)),
    };
    let deadline = duration.and_then(|d| Instant::now().checked_add(d));
    let mut told = None;
    let mut ended = None;
    loop {
        let now = Instant::now();
        if told.is_none() && deadline.is_some_and(|d| now >= d) {
            told = Some(now);
            // (Its processes first: a server's workers are then ended by their master all the
            // same.)
            for pid in others().into_iter().chain([child.as_raw()]) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
        }
        if ended.is_none() {
            ended = status(child);
        }
        if let Some(ended) = ended {
            // A daemon's first process ends at once; with a duration, all that it left is waited
            // for.
            let over = told.is_some_and(|t| now - t > TIMEOUT);
            if deadline.is_none() || over || !others().into_iter().any(alive) {
                return Ok(ended);
            }
        }
        let next = match (deadline, told) {
            _ if ended.is_some() => LOOK,
            (Some(d), None) => d.saturating_duration_since(now).min(Duration::from_secs(3600)),
            _ => Duration::from_secs(1),
        };
        pass_on(&set, next, child);
    }
}

fn alive(pid: i32) -> bool {
    // (One that nobody has waited for yet is not.)
    let stat = procfs::process::Process::new(pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| stat.state != 'Z')
}

fn status(child: Pid) -> Option<Ended> {
    match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(_, status)) => Some(Ended::Status(status as u8)),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(Ended::Signal(signal as i32)),
        Err(Errno::ECHILD) => Some(Ended::Status(0)),
        _ => None,
    }
}

/// Waits for a signal, at most so long; what was sent to us alone is for the program.
fn pass_on(set: &SigSet, timeout: Duration, child: Pid) {
    let time = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: all zeros is a valid siginfo; the kernel fills it.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set, the place and the time live through the call.
    let number = unsafe { libc::sigtimedwait(set.as_ref(), &raw mut info, &raw const time) };
    let Ok(signal) = Signal::try_from(number) else { return };
    // From a terminal the program has got it too.
    let from_terminal = info.si_code > 0;
    if signal != Signal::SIGCHLD && !from_terminal {
        let _ = kill(child, signal);
    }
}
