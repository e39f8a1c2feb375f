//! The echo server: an ordinary epoll server that copies every message a number of times before
//! it sends the last copy back (zIO, section 5.1).
//!
//! It knows nothing of uncopy, except that it reports the library's counters if they are there.
//! The library takes the place of libc's `recv`, `memcpy` and `send` when it is in front.

// Unsafe: the calls and buffers under test are C's own, by intention.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::BorrowedFd;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::UsageWho;
use serde::Serialize;

use super::connection::Connection;
use super::plan::{Hello, Plan, Report};
use crate::cores;
use crate::failure;
use crate::failure::Failure;
use crate::outcome::complain;
use crate::own_process::{cpu_ns, library_counters, resident_kb};
use crate::words::told;

/// The hidden subcommand that is the server.
pub const NAME: &str = "__echo-server";

/// The server's options.
#[derive(clap::Args)]
pub struct ServerArgs {
    #[arg(value_parser = told::<Plan>)]
    plan: Plan,
}

/// Serves until standard input ends.
pub fn main(args: &ServerArgs) -> Result<(), Failure> {
    serve(&args.plan).map_err(|e| failure!("echo server: {e}"))
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
                    complain(failure!("echo server: {e}"));
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
                if !control_requests(&connections)? {
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
fn control_requests(connections: &[Connection]) -> io::Result<bool> {
    let mut bytes = [0; 64];
    // SAFETY: descriptor 0 is standard input, which nobody closes.
    let input = unsafe { BorrowedFd::borrow_raw(0) };
    let count = match nix::unistd::read(input, &mut bytes) {
        Err(nix::Error::EINTR | nix::Error::EAGAIN) => return Ok(true),
        count => count?,
    };
    for _ in bytes[..count].iter().filter(|b| **b == b'\n') {
        answer(&report(connections)?)?;
    }
    Ok(count > 0)
}

fn answer(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    out.flush()
}

fn report(connections: &[Connection]) -> io::Result<Report> {
    Ok(Report {
        cpu_ns: cpu_ns(UsageWho::RUSAGE_SELF)?,
        rss_kb: resident_kb()?,
        places: connections.first().map(Connection::places).unwrap_or_default(),
        counters: library_counters()
            .map(|snapshot| snapshot.iter().map(|(name, n)| (name.to_owned(), n)).collect()),
    })
}
