//! The processes that descend from one, and which of them listen, as `/proc` says.

use std::collections::HashSet;
use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use procfs::net::TcpState;
use procfs::process::{FDInfo, FDTarget, Process};

/// All processes that descend from `ancestor`, without itself; nearer ones first.
pub fn descendants(ancestor: u32) -> Vec<u32> {
    let all: Vec<(u32, u32)> = all().collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(&older) = found.get(next) {
        found.extend(all.iter().filter(|(_, parent)| *parent == older).map(|(pid, _)| *pid));
        next += 1;
    }
    found.remove(0);
    found
}

/// Its children.
pub fn children(of: u32) -> Vec<u32> {
    all().filter(|(_, parent)| *parent == of).map(|(pid, _)| pid).collect()
}

/// Processes with their parents. (A process that seems to be dead may have threads that live.)
fn all() -> impl Iterator<Item = (u32, u32)> {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    processes.filter_map(|p| Some((p.pid().cast_unsigned(), p.stat().ok()?.ppid.cast_unsigned())))
}

/// Processor time of `pids` so far, in clock ticks.
pub fn ticks(pids: &[u32]) -> u64 {
    let processes = pids.iter().filter_map(|pid| Process::new(pid.cast_signed()).ok());
    processes.filter_map(|process| process.stat().ok()).map(|stat| stat.utime + stat.stime).sum()
}

/// Processor time of all that descend from `ancestor`, in seconds: of those that live to the
/// nanosecond, of those that were waited for in clock ticks.
pub fn cpu_seconds(ancestor: u32) -> f64 {
    let rate = procfs::ticks_per_second() as f64;
    let ended = |pid: u32| {
        let stat = Process::new(pid.cast_signed()).ok()?.stat().ok()?;
        Some((stat.cutime.max(0) + stat.cstime.max(0)) as f64 / rate)
    };
    let lives = |pid: u32| {
        let clock = clock_getcpuclockid(Pid::from_raw(pid.cast_signed())).ok()?;
        Some(Duration::from(clock.now().ok()?).as_secs_f64())
    };
    let living = descendants(ancestor);
    let waiting = std::iter::once(ancestor).chain(living.iter().copied());
    waiting.filter_map(ended).chain(living.iter().copied().filter_map(lives)).sum()
}

/// Whether one of `pids` has a listening TCP socket.
pub fn listens(pids: &[u32]) -> bool {
    let processes = pids.iter().filter_map(|pid| Process::new(pid.cast_signed()).ok());
    processes.into_iter().any(|process| {
        let listening = listening(&process);
        let has =
            |file: FDInfo| matches!(file.target, FDTarget::Socket(n) if listening.contains(&n));
        !listening.is_empty() && process.fd().is_ok_and(|files| files.flatten().any(has))
    })
}

/// The inodes of all listening TCP sockets that a process can see.
fn listening(process: &Process) -> HashSet<u64> {
    let sockets = [process.tcp(), process.tcp6()].into_iter().flatten().flatten();
    sockets.filter(|socket| socket.state == TcpState::Listen).map(|socket| socket.inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_descends_from_its_parent_and_is_seen_to_listen() {
        let me = std::process::id();
        assert!(descendants(std::os::unix::process::parent_id()).contains(&me));
        let _listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listens(&[me]));
        assert!(!listens(&[]));
    }

    #[test]
    fn processor_time_of_children_counts_while_they_live_and_after() {
        let me = std::process::id();
        let busy = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
        let before = cpu_seconds(me);
        let script = format!("{busy}; echo; read line");
        let mut child = std::process::Command::new("sh")
            .args(["-c", &script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0];
        std::io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut said).unwrap();
        let living = cpu_seconds(child.id()) + cpu_seconds(me) - before;
        assert!(living > 0.01, "{living}");
        child.wait().unwrap();
        assert!(cpu_seconds(me) - before > 0.01);
    }
}
