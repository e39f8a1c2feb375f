//! Two processes that are told what to call, plainly or under uncopy, and their children.
//!
//! unsafe: descriptors that they inherit; a page that is shared with them; system calls about other
//! processes.

use super::Fault;
use super::variant::Variant;
use crate::worker::{LINK, PAGE, SEATS};
use core::sync::atomic::{AtomicU32, Ordering};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use uncopy_differ::model::Said;
use uncopy_differ::op::Actor;
use uncopy_differ::script::Connection;

/// How processes are started.
#[derive(Clone, Debug)]
pub struct Starts {
    /// The `uncopy` command.
    pub uncopy: PathBuf,
    /// The service that they use.
    pub service: String,
    /// More environment under uncopy.
    pub environment: Vec<(String, String)>,
    /// How long a call may take that is to return.
    pub timeout: Duration,
}

/// A process that runs.
#[derive(Debug)]
struct Known {
    pid: i32,
    fd: OwnedFd,
}

/// See above.
#[derive(Debug)]
pub struct Pair {
    children: Vec<Child>,
    known: [Option<Known>; 4],
    threads: [i32; 8],
    channels: Vec<OwnedFd>,
    page: *mut AtomicU32,
    /// Sockets that listen: of each side, IPv4 and IPv6, with their ports.
    listeners: [[(i64, u64); 2]; 2],
    timeout: Duration,
    /// Connections with rings so far, of both sides.
    attached: [u64; 2],
    counted: [[u64; 3]; 2],
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn socketpair(kind: libc::c_int) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [-1; 2];
    // SAFETY: writes two numbers.
    let made =
        unsafe { libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((owned(fds[0])?, owned(fds[1])?))
}

/// Parses the answer of an actor, or that there was none in time.
fn parse(text: &str) -> Said {
    let mut words = text.split(' ');
    let mut next = || words.next().and_then(|word| word.parse::<i128>().ok());
    let mut n = || next().unwrap_or(0);
    let mut said = Said {
        result: n() as i64,
        errno: n() as i32,
        signals: n() as u32,
        digest: n() as u64,
        more: vec![],
    };
    while let Some(more) = next() {
        said.more.push(more as u64);
    }
    said
}

/// A thread that sleeps so (`/proc/PID/task/TID/syscall`) is on its way to its call, where the
/// library waits for a thread of its own: for the monitor to start (futex), or to answer a fault
/// (no system call).
fn is_on_its_way(syscall: &str) -> bool {
    let number = syscall.split(' ').next().and_then(|word| word.trim().parse::<i64>().ok());
    number.is_some_and(|number| number == libc::SYS_futex || number < 0)
}

impl Pair {
    /// Starts both.
    ///
    /// # Errors
    /// An error of the system.
    pub fn start(starts: &Starts, way: Option<&Variant>) -> Result<Self, Fault> {
        let mut pair = Self::spawn(starts, way).map_err(|e| Fault::harness(e.to_string()))?;
        for actor in Actor::ALL.iter().filter(|actor| !actor.is_child()) {
            pair.hello(*actor)?;
        }
        for side in 0..2 {
            for v6 in 0..2 {
                let said = pair.ask(side, &format!("listen {v6}"))?;
                pair.listeners[side][v6] = (said.result, said.more.first().copied().unwrap_or(0));
            }
        }
        Ok(pair)
    }

    fn spawn(starts: &Starts, way: Option<&Variant>) -> io::Result<Self> {
        // SAFETY: a name.
        let page = owned(unsafe { libc::memfd_create(c"differ".as_ptr(), libc::MFD_CLOEXEC) })?;
        // SAFETY: a page of the new file.
        let at = unsafe {
            libc::ftruncate(page.as_raw_fd(), 4096);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(core::ptr::null_mut(), 4096, access, libc::MAP_SHARED, page.as_raw_fd(), 0)
        };
        let links = socketpair(libc::SOCK_STREAM)?;
        let links = [links.0, links.1];
        let (mut channels, mut children) = (vec![], vec![]);
        for (side, link) in links.iter().enumerate() {
            let mut theirs = vec![];
            for _ in 0..4 {
                let (ours, actor) = socketpair(libc::SOCK_SEQPACKET)?;
                channels.push(ours);
                theirs.push(actor);
            }
            let own = std::env::current_exe()?;
            let mut command = match way {
                None => Command::new(own),
                Some(way) => {
                    let mut command = Command::new(&starts.uncopy);
                    command.arg("run").arg("--tcp").args(way.options).arg("--").arg(own);
                    command.env("UNCOPY_TCP_SERVICE", &starts.service);
                    command.envs(way.environment.iter().map(|(name, value)| (*name, *value)));
                    command.envs(starts.environment.iter().cloned());
                    command
                }
            };
            command.arg("worker").env("DIFFER_SIDE", side.to_string()).stdin(Stdio::null());
            let mut fds = vec![(page.as_raw_fd(), PAGE), (link.as_raw_fd(), LINK)];
            fds.extend(theirs.iter().zip(SEATS..).map(|(fd, to)| (fd.as_raw_fd(), to)));
            // SAFETY: only system calls, on numbers.
            unsafe {
                command.pre_exec(move || {
                    // (First out of the way: one may be where another is to be.)
                    let mut high = [(-1, -1); 6];
                    for (at, (fd, to)) in fds.iter().enumerate() {
                        high[at] = (libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, 100), *to);
                    }
                    for (fd, to) in high {
                        if libc::dup2(fd, to) < 0 {
                            return Err(io::Error::last_os_error());
                        }
                    }
                    Ok(())
                });
            }
            children.push(command.spawn()?);
        }
        Ok(Self {
            children,
            known: [const { None }; 4],
            threads: [0; 8],
            channels,
            page: at.cast(),
            listeners: [[(0, 0); 2]; 2],
            timeout: starts.timeout,
            attached: [0; 2],
            counted: [[0; 3]; 2],
        })
    }

    /// An actor says who it is.
    pub fn hello(&mut self, actor: Actor) -> Result<(), Fault> {
        let said = self.wait(actor, Duration::from_secs(20))?;
        let said = said.ok_or_else(|| Fault::harness(format!("{actor} does not begin")))?;
        let pid = said.result as i32;
        self.threads[actor.index()] = said.more.first().map_or(0, |thread| *thread as i32);
        if self.known[actor.process()].as_ref().is_none_or(|known| known.pid != pid) {
            // SAFETY: a number.
            let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
            let fd = owned(fd as i32).map_err(|e| Fault::harness(e.to_string()))?;
            self.known[actor.process()] = Some(Known { pid, fd });
        }
        Ok(())
    }

    /// Tells an actor what to call.
    pub fn tell(&self, actor: Actor, text: &str) -> Result<(), Fault> {
        let fd = self.channels[actor.index()].as_raw_fd();
        // SAFETY: the text's bytes.
        let sent = unsafe { libc::send(fd, text.as_ptr().cast(), text.len(), libc::MSG_NOSIGNAL) };
        if sent < 0 {
            return Err(Fault::dead(format!("{actor} takes nothing")));
        }
        Ok(())
    }

    /// The answer of an actor, if it gives one in this time.
    pub fn wait(&mut self, actor: Actor, time: Duration) -> Result<Option<Said>, Fault> {
        let process = self.known[actor.process()].as_ref().map_or(-1, |known| known.fd.as_raw_fd());
        let channel = self.channels[actor.index()].as_raw_fd();
        let end = Instant::now() + time;
        loop {
            let mut fds = [channel, process];
            if process < 0 {
                fds[1] = -1;
            }
            let mut fds = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
            let left = end.saturating_duration_since(Instant::now());
            // SAFETY: our own list.
            unsafe { libc::poll(fds.as_mut_ptr(), 2, left.as_micros().div_ceil(1000) as i32) };
            if fds[0].revents & libc::POLLIN != 0 {
                let mut text = [0u8; 4096];
                // SAFETY: our own buffer.
                let got = unsafe { libc::recv(channel, text.as_mut_ptr().cast(), text.len(), 0) };
                if got > 0 {
                    let text = String::from_utf8_lossy(&text[..got as usize]);
                    return Ok(Some(parse(&text)));
                }
            }
            if fds[1].revents != 0 || fds[0].revents & libc::POLLHUP != 0 {
                return Err(Fault::dead(format!(
                    "the process of {actor} is dead ({})",
                    self.status(actor)
                )));
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    fn status(&mut self, actor: Actor) -> String {
        let child = if actor.is_child() { None } else { self.children.get_mut(actor.side()) };
        let status = child.and_then(|child| child.wait().ok());
        status.map_or("a child".into(), |status| status.to_string())
    }

    /// The result of a call that is to return.
    pub fn call(&mut self, actor: Actor, text: &str) -> Result<Said, Fault> {
        self.tell(actor, text)?;
        self.returns(actor, text)
    }

    /// As above, once it was told.
    pub fn returns(&mut self, actor: Actor, what: &str) -> Result<Said, Fault> {
        let said = self.wait(actor, self.timeout)?;
        said.ok_or_else(|| {
            let (call, place) = self.whereabouts(actor);
            Fault::stuck(format!("{actor} waits, where it is to return ({what}; {call} {place})"))
        })
    }

    fn whereabouts(&self, actor: Actor) -> (String, String) {
        let read = |name| {
            let pid = self.known[actor.process()].as_ref().map_or(0, |known| known.pid);
            let thread = self.threads[actor.index()];
            fs::read_to_string(format!("/proc/{pid}/task/{thread}/{name}")).unwrap_or_default()
        };
        let call = read("syscall").split(' ').next().unwrap_or_default().trim().to_owned();
        (format!("system call {call}"), read("wchan"))
    }

    fn ask(&mut self, side: usize, text: &str) -> Result<Said, Fault> {
        self.call([Actor::A, Actor::B][side], text)
    }

    /// Waits until an actor sleeps in its call (a signal that comes before interrupts nothing), or
    /// says what came of it.
    pub fn sleeps(&mut self, actor: Actor) -> Result<Option<Said>, Fault> {
        let end = Instant::now() + self.timeout;
        let pid = self.known[actor.process()].as_ref().map_or(0, |known| known.pid);
        let task = format!("/proc/{pid}/task/{}", self.threads[actor.index()]);
        let read = |name: &str| fs::read_to_string(format!("{task}/{name}")).unwrap_or_default();
        let mut seen = 0;
        while seen < 3 && Instant::now() < end {
            if let Some(said) = self.wait(actor, Duration::ZERO)? {
                return Ok(Some(said));
            }
            // SAFETY: a word of the page, which lives as long as this.
            let called = unsafe { &*self.page.add(actor.index()) }.load(Ordering::SeqCst) == 1;
            let asleep = |stat: &str| {
                stat.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('S'))
            };
            let waits = called && asleep(&read("stat")) && !is_on_its_way(&read("syscall"));
            seen = if waits { seen + 1 } else { 0 };
            std::thread::sleep(Duration::from_micros(30));
        }
        self.wait(actor, Duration::ZERO)
    }

    /// Sends a signal to an actor's thread.
    pub fn signal(&self, actor: Actor, signal: i32) {
        let pid = self.known[actor.process()].as_ref().map_or(0, |known| known.pid);
        // SAFETY: numbers of a process that was started here.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, self.threads[actor.index()], signal) };
    }

    /// A copy of a process' descriptor, for questions to the kernel past whatever is in that
    /// process.
    pub fn borrow(&self, process: usize, number: i32) -> Option<OwnedFd> {
        let known = self.known[process].as_ref()?;
        // SAFETY: numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, known.fd.as_raw_fd(), number, 0) };
        owned(fd as i32).ok()
    }

    /// Kills a process, or waits for its end, until it is gone.
    pub fn ends(&mut self, process: usize, kill: bool) -> Result<(), Fault> {
        let Some(known) = self.known[process].take() else { return Ok(()) };
        if kill {
            // SAFETY: a process that was started here.
            unsafe { libc::kill(known.pid, libc::SIGKILL) };
        }
        let mut fd = libc::pollfd { fd: known.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: our own list.
        if unsafe { libc::poll(&mut fd, 1, 10_000) } != 1 {
            return Err(Fault::stuck(format!("process {process} does not end")));
        }
        Ok(())
    }

    /// Whether both processes are there for another script.
    pub fn is_whole(&self) -> bool {
        self.known[0].is_some() && self.known[1].is_some()
    }

    /// A child has begun.
    pub fn has_child(&self, process: usize) -> bool {
        self.known[process].is_some()
    }

    /// Makes a connection: its numbers in both processes.
    pub fn connects(&mut self, connection: &Connection) -> Result<[i32; 2], Fault> {
        let (by, to) = (connection.by, 1 - connection.by);
        let (v6, nodelay) = (usize::from(connection.v6), u8::from(connection.nodelay));
        let (listener, port) = self.listeners[to][v6];
        let one = self.ask(by, &format!("connect {v6} {port} {nodelay}"))?;
        let other = self.ask(to, &format!("accept {listener} {nodelay}"))?;
        let mut numbers = [0; 2];
        numbers[by] = one.result as i32;
        numbers[to] = other.result as i32;
        if numbers.iter().any(|number| *number < 0) {
            return Err(Fault::harness(format!("no connection: {one:?} {other:?}")));
        }
        Ok(numbers)
    }

    /// Waits until connections with these numbers have rings. False: it takes too long.
    pub fn attach(&mut self, numbers: &[[i32; 2]]) -> Result<bool, Fault> {
        let before = self.attached;
        let end = Instant::now() + Duration::from_secs(3);
        loop {
            for (side, actor) in [(0, Actor::A), (1, Actor::B)] {
                for numbers in numbers {
                    self.call(actor, &format!("pump {}", numbers[side]))?;
                }
                self.attached[side] = self.call(actor, "counters")?.more[0];
            }
            let wanted = numbers.len() as u64;
            if (0..2).all(|side| self.attached[side] >= before[side] + wanted) {
                return Ok(true);
            }
            if Instant::now() > end {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Connections with rings, and calls by them, of both sides, since this was asked last.
    pub fn counters(&mut self) -> [u64; 3] {
        let mut all = [0; 3];
        for actor in [Actor::A, Actor::B] {
            if let Ok(said) = self.call(actor, "counters") {
                let side = actor.side();
                for (i, n) in said.more.iter().enumerate().take(3) {
                    all[i] += n - self.counted[side][i];
                    self.counted[side][i] = *n;
                }
                self.attached[side] = said.more.first().copied().unwrap_or(0);
            }
        }
        all
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for process in (0..4).rev() {
            let _ = self.ends(process, true);
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        // SAFETY: our own mapping, which nobody uses any more.
        unsafe { libc::munmap(self.page.cast(), 4096) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_the_monitor_does_not_wait_in_its_call_yet() {
        assert!(is_on_its_way(
            "202 0x7f24d4a26830 0x80 0x0 0x0 0x0 0x0 0x7ffe584e6460 0x7f24d498e34c"
        ));
        assert!(is_on_its_way("-1 0x7ffe584e6460 0x7f24d498e34c"));
        assert!(!is_on_its_way(
            "281 0x400 0x7ffe584e7fb0 0x2 0xffffffffffffffff 0x0 0x11 0x7f 0x7f"
        ));
        assert!(
            !is_on_its_way("0 0x5 0x7ffe584e7fb0 0x2 0x0 0x0 0x11 0x7f 0x7f") && !is_on_its_way("")
        );
    }
}
