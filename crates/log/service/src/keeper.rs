//! The files that a dead service held come home at once: a process that opens one would wait for
//! the program's next call else, up to `lease-break-time`.
//!
//! The keeper is a process beside the service, with the same descriptors and its own copy of the
//! memory, so that it has all leases, and nothing of what killed the service. It sleeps until that
//! is gone. One that stays stopped it kills: nobody could open a held file.
//!
//! unsafe: a process that shares descriptors is made.

use crate::held::{Hold, Left};
use crate::homes::Homes;
use crate::lease;
use crate::place::Place;
use crate::report::Report;
use core::sync::atomic::Ordering;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::net::sockopt::socket_acceptconn;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getppid, kill_process, pidfd_open, pidfd_send_signal,
    waitpid,
};
use rustix::time::Timespec;
use std::path::Path;
use std::time::{Duration, Instant};
use uncopy_kernel::call::syscall4;
use uncopy_log_share::claims::{Claim, Claims};
use uncopy_log_share::layout::State;
use uncopy_log_share::memory::Memory;
use uncopy_log_store::Kind;

/// It is looked so often whether the service is stopped; after so many times it is killed.
const TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
const STOPPED: u32 = 3;
/// So long is tried to bring home what does not come there. (Then programs try on.)
const TIMEOUT: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(5);

/// Makes a keeper for this process, which is about to serve in `directory`. Where none can be made
/// there is none.
///
/// # Safety
/// This process has one thread.
pub unsafe fn start(directory: &Path, kind: Kind) -> Keeper {
    let service = rustix::process::getpid();
    let flags = (libc::CLONE_FILES | libc::SIGCHLD) as usize;
    // SAFETY: as fork, by the caller's promise; only that its descriptors are this process's.
    let child = unsafe { syscall4(libc::SYS_clone as usize, flags, 0, 0, 0) };
    if child == 0 {
        let _ = rustix::thread::set_name(c"uncopy-keeper");
        keep(service, directory, kind);
        // SAFETY: ends this process, and runs nothing of what the service has to do at its end.
        unsafe { libc::_exit(0) };
    }
    Keeper(i32::try_from(child).ok().and_then(Pid::from_raw))
}

/// A service that ends has no use for it.
#[derive(Debug)]
pub struct Keeper(Option<Pid>);

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(keeper) = self.0 {
            // (A child of ours, so the number is still its own.)
            let _ = kill_process(keeper, Signal::KILL);
            let _ = waitpid(Some(keeper), WaitOptions::empty());
        }
    }
}

fn keep(service: Pid, directory: &Path, kind: Kind) {
    let Ok(process) = pidfd_open(service, PidfdFlags::empty()) else { return };
    let mut stopped = 0;
    while getppid() == Some(service) {
        let mut fds = [PollFd::new(&process, PollFlags::IN)];
        if poll(&mut fds, Some(&TICK)).is_ok_and(|ready| ready > 0) {
            break;
        }
        stopped = if is_stopped(service) { stopped + 1 } else { 0 };
        if stopped >= STOPPED {
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
    let _ = take_over(directory, kind);
}

fn is_stopped(process: Pid) -> bool {
    let said = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid()));
    // (Behind the name, which may be anything. A debugger's stop is another one.)
    said.is_ok_and(|said| said.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T")))
}

/// All that is held, by whichever program, comes home, and leases are given up.
fn take_over(directory: &Path, kind: Kind) -> Option<()> {
    // (A program that comes now is to start another service.)
    for listener in descriptions().filter(|fd| socket_acceptconn(fd).unwrap_or(false)) {
        // SAFETY: the dead service's, which nobody uses any more.
        unsafe { rustix::io::close(listener.as_raw_fd()) };
    }
    let place = Place::open(directory).ok()?;
    let memory = Memory::open(&place.memory()).ok()?;
    let claims = Claims::of(memory.file()).ok()?;
    let mut holds: Vec<(usize, Hold)> = Vec::new();
    for (slot, entry) in memory.entries() {
        if entry.state() == State::Held && claims.claim(Claim::Entry(slot)) {
            let (client, index) = (&entry.client, entry.index.load(Ordering::Acquire));
            let file = descriptions().find(|file| is_of(*file, entry.identity()));
            let file = file.and_then(|file| file.try_clone_to_owned().ok());
            // (Its program may have brought it home meanwhile.)
            if let Some(file) = file.filter(|_| entry.state() == State::Held) {
                plain_flags(file.as_fd());
                holds.push((slot, Hold::new(file, index, client.load(Ordering::Acquire))));
            } else {
                claims.give_up(Claim::Entry(slot));
            }
        }
    }
    let mut homes = None;
    let begun = Instant::now();
    while !holds.is_empty() && begun.elapsed() < TIMEOUT {
        let mut left = Vec::new();
        for (slot, mut hold) in holds {
            let alone = !claims.is_others(Claim::Client(hold.client));
            let logged = match hold.leave(&memory, slot, &place, alone) {
                Left::Later => {
                    left.push((slot, hold));
                    continue;
                }
                Left::Plain { logged } => logged,
                Left::Lost(said) => {
                    let _ = Report::append(&place, &[said]);
                    true
                }
            };
            if logged {
                let homes = homes.get_or_insert_with(|| Homes::resume(&place, kind).ok());
                let said = homes.as_mut().map(|homes| homes.add(hold.index, hold.client));
                if !matches!(said, Some(Ok(()))) {
                    // (Its program can say so, or recovery sees that it is there.)
                    left.push((slot, hold));
                    continue;
                }
            }
            hold.let_go(&memory, slot);
            claims.give_up(Claim::Entry(slot));
        }
        holds = left;
        if !holds.is_empty() {
            std::thread::sleep(AGAIN);
        }
    }
    // A lease may have been taken of which no entry knows yet. (Elsewhere there is none.)
    for file in descriptions() {
        if !holds.iter().any(|(slot, _)| is_of(file, memory.entry(*slot).identity())) {
            lease::give_up(file);
        }
    }
    for (slot, _) in holds {
        claims.give_up(Claim::Entry(slot));
    }
    Some(())
}

/// All of this process's.
fn descriptions() -> impl Iterator<Item = BorrowedFd<'static>> {
    let all = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(|fd: i32| {
        // SAFETY: of a table that only this process uses by now.
        unsafe { BorrowedFd::borrow_raw(fd) }
    })
}

fn is_of(file: BorrowedFd<'_>, identity: (u64, u64)) -> bool {
    fstat(file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == identity)
}

/// The service may have died while it wrote past the page cache: a file that is held never has this
/// flag of the program's.
fn plain_flags(file: BorrowedFd<'_>) {
    if let Ok(flags) = fcntl_getfl(file)
        && flags.contains(OFlags::DIRECT)
    {
        let _ = fcntl_setfl(file, flags - OFlags::DIRECT);
    }
    // (Nobody hears its signals any more.)
    lease::unheard(file);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_is_not_stopped() {
        assert!(!is_stopped(rustix::process::getpid()));
    }
}
