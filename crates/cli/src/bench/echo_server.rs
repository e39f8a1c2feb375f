//! The echo server: an ordinary epoll server that copies every message a number of times before
//! it sends the last copy back (zIO, section 5.1).
//!
//! It knows nothing of uncopy, except that it reports the library's counters if they are there.
//! The library takes the place of libc's `recv`, `memcpy` and `send` when it is in front.

// Unsafe: the calls and buffers under test are C's own, by intention.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::BorrowedFd;

use clap::{Arg, ArgMatches, Command};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::{Deserialize, Serialize};
use uncopy_counters::{Counters, Snapshot};

use super::cores;
use super::echo_connection::Connection;
use crate::Outcome;

/// The hidden subcommand that is the server.
pub const NAME: &str = "__echo-server";

/// How the copy buffers are allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Allocation {
    /// malloc, once for a connection.
    #[default]
    Malloc,
    /// posix_memalign on a page's boundary, once for a connection.
    Aligned,
    /// malloc and free for every message (the receive buffer stays).
    Fresh,
}

/// Which buffers of a message are touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Touched {
    /// The one received into, before it is copied, and the last copy.
    #[default]
    Both,
    /// The last copy (without copies, the one received into).
    Last,
}

/// Which copies are read as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Checksum {
    /// None.
    #[default]
    None,
    /// The one that is sent back.
    Last,
    /// Each, when it has been made.
    Every,
}

/// What the server is to do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Bytes in a message.
    pub size: usize,
    /// Copies made of every message.
    pub copies: usize,
    /// Connections that will be opened.
    pub connections: usize,
    /// Pages of every message that are read and written back.
    pub touch_pages: usize,
    /// In which buffers.
    pub touched: Touched,
    /// Whether other ones in each message.
    pub touch_moving: bool,
    /// Copies of which every byte is read.
    pub checksum: Checksum,
    /// How the copy buffers are allocated.
    pub allocation: Allocation,
    /// Core of each thread.
    pub cores: Vec<usize>,
}

/// First line of the server's output.
#[derive(Serialize, Deserialize)]
pub struct Hello {
    /// The port of 127.0.0.1 on which it listens.
    pub port: u16,
}

/// Answer to each line on the server's input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// User and system time of the process so far.
    pub cpu_ns: u64,
    /// Resident memory now.
    pub rss_kb: u64,
    /// The library's counters; none if it is not loaded.
    pub counters: Option<BTreeMap<String, u64>>,
}

/// The hidden subcommand.
pub fn command() -> Command {
    Command::new(NAME).hide(true).arg(Arg::new("plan").required(true))
}

/// Serves until standard input ends.
pub fn main(matches: &ArgMatches) -> Outcome {
    let plan: &String = matches.get_one("plan").expect("clap demands a plan");
    let plan: Plan = serde_json::from_str(plan).map_err(|e| format!("bad plan: {e}"))?;
    serve(&plan).map_err(|e| format!("echo server: {e}"))
}

fn serve(plan: &Plan) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    answer(&Hello { port: listener.local_addr()?.port() })?;
    let mut shares: Vec<Vec<Connection>> = plan.cores.iter().map(|_| Vec::new()).collect();
    for i in 0..plan.connections {
        let (stream, _) = listener.accept()?;
        shares[i % plan.cores.len()].push(Connection::new(stream, plan)?);
    }
    std::thread::scope(|threads| {
        let mut shares = shares.into_iter().zip(&plan.cores);
        let (first, core) = shares.next().expect("there is a core");
        for (share, core) in shares {
            threads.spawn(move || {
                if let Err(e) = pin(*core).and_then(|()| work(share, plan, false)) {
                    eprintln!("uncopy: echo server: {e}");
                    std::process::exit(1);
                }
            });
        }
        // The main thread serves too: with one thread the process is single-threaded.
        pin(*core)?;
        work(first, plan, true)?;
        std::process::exit(0);
    })
}

fn pin(core: usize) -> io::Result<()> {
    cores::pin(core).map_err(io::Error::other)
}

const CONTROL: u64 = u64::MAX;

/// Serves `connections`; the thread that has `control` answers requests for reports and comes
/// back when there will be no more of them.
fn work(mut connections: Vec<Connection>, plan: &Plan, control: bool) -> io::Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for (i, connection) in connections.iter().enumerate() {
        epoll.add(&connection.stream, EpollEvent::new(EpollFlags::EPOLLIN, i as u64))?;
    }
    if control {
        epoll.add(io::stdin(), EpollEvent::new(EpollFlags::EPOLLIN, CONTROL))?;
    }
    let mut events = [EpollEvent::empty(); 64];
    loop {
        let ready = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Err(nix::Error::EINTR) => continue,
            ready => ready?,
        };
        for event in &events[..ready] {
            if event.data() == CONTROL {
                if !control_requests()? {
                    return Ok(());
                }
                continue;
            }
            let index = usize::try_from(event.data()).expect("an index");
            let connection = &mut connections[index];
            let waited_for = connection.waits_for();
            if !connection.advance(plan)? {
                epoll.delete(&connection.stream)?;
            } else if connection.waits_for() != waited_for {
                let mut wanted = EpollEvent::new(connection.waits_for(), event.data());
                epoll.modify(&connection.stream, &mut wanted)?;
            }
        }
    }
}

/// Answers what has come in; `false` at its end.
fn control_requests() -> io::Result<bool> {
    let mut bytes = [0; 64];
    // SAFETY: descriptor 0 is standard input, which nobody closes.
    let input = unsafe { BorrowedFd::borrow_raw(0) };
    let count = match nix::unistd::read(input, &mut bytes) {
        Err(nix::Error::EINTR | nix::Error::EAGAIN) => return Ok(true),
        count => count?,
    };
    for _ in bytes[..count].iter().filter(|b| **b == b'\n') {
        answer(&report()?)?;
    }
    Ok(count > 0)
}

fn answer(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    out.flush()
}

/// User and system time of this process, or of this thread, so far.
pub fn cpu_ns(who: UsageWho) -> io::Result<u64> {
    let usage = getrusage(who)?;
    let ns = |time: TimeVal| {
        time.tv_sec().cast_unsigned() * 1_000_000_000 + time.tv_usec().cast_unsigned() * 1000
    };
    Ok(ns(usage.user_time()) + ns(usage.system_time()))
}

fn report() -> io::Result<Report> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    Ok(Report {
        cpu_ns: cpu_ns(UsageWho::RUSAGE_SELF)?,
        rss_kb: resident_kb(&status).unwrap_or(0),
        counters: library_counters()
            .map(|snapshot| snapshot.iter().map(|(name, n)| (name.to_owned(), n)).collect()),
    })
}

fn resident_kb(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The counters of the library, if it is loaded in this process.
pub fn library_counters() -> Option<Snapshot> {
    // SAFETY: the name is a C string; looking it up has no other effect.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"uncopy_counters".as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: the library of this workspace, which alone has that name, gives it this type.
    let counters: extern "C" fn() -> *const Counters = unsafe { std::mem::transmute(symbol) };
    // SAFETY: what it returns is null or lives as long as the library, which is never unloaded.
    unsafe { counters().as_ref() }.map(Counters::snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_the_status_file() {
        assert_eq!(resident_kb("VmPeak:\t 9 kB\nVmRSS:\t  1234 kB\n"), Some(1234));
        assert_eq!(resident_kb(""), None);
    }

    #[test]
    fn without_the_library_there_are_no_counters() {
        assert_eq!(report().unwrap().counters, None);
    }
}
