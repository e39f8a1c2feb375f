//! The two servers: as many threads over Linux' sockets, or lanes of uncopy's TCP. Each sends back
//! what comes, after some work.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use uncopy_measure::words::told;
use uncopy_measure::{Failure, failure};
use uncopy_tcp_fast::service::QUIET;

use super::plan::{Plan, Served};
use crate::rpc::ends::{End, make_room};
use crate::rpc::over::{self, Over};
use crate::rpc::plan::Hello;
use crate::rpc::server::{answer, echo};

/// The hidden subcommand that is the server.
pub const NAME: &str = "__proportional-server";

/// The server's options.
#[derive(clap::Args)]
pub struct ServerArgs {
    #[arg(value_parser = told::<Plan>)]
    plan: Plan,
    #[arg(value_parser = told::<Over>)]
    over: Over,
}

/// Serves until standard input ends; each line of it asks how.
pub fn main(args: &ServerArgs) -> Result<(), Failure> {
    let (plan, over) = (&args.plan, &args.over);
    over.enter()?;
    if over.ours.is_some() {
        // (As a service that others use: it sleeps after 10 ms.)
        let (service, _came) = over::server::start(&plan.of_rpc(), over, QUIET)?;
        return asked(|| Served { lanes: Some(service.active()), naps: service.parks() });
    }
    by_threads(plan, over).map_err(|e| failure!("server: {e}"))?;
    asked(|| Served { lanes: None, naps: 0 })
}

fn asked(served: impl Fn() -> Served) -> Result<(), Failure> {
    for line in io::stdin().lock().lines() {
        line.and_then(|_| answer(&served())).map_err(|e| failure!("server: {e}"))?;
    }
    Ok(())
}

/// A thread, and its connections.
struct Thread {
    set: Epoll,
    ends: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    last: u64,
    /// With the bytes of its next request that have come.
    open: HashMap<u64, (Arc<End>, usize)>,
}

fn by_threads(plan: &Plan, over: &Over) -> io::Result<()> {
    let rpc = plan.of_rpc();
    make_room(rpc.connections)?;
    let listener = TcpListener::bind((over.address, 0))?;
    answer(&Hello { addresses: vec![listener.local_addr()?] })?;
    let mut threads = Vec::new();
    for _ in 0..plan.lanes {
        let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let thread = Arc::new(Thread { set, ends: Mutex::default() });
        threads.push(thread.clone());
        let plan = rpc.clone();
        std::thread::spawn(move || end(thread.serve(&plan)));
    }
    // Connections are dealt out to them.
    std::thread::spawn(move || {
        let deal = || -> io::Result<()> {
            for (thread, came) in threads.iter().cycle().zip(listener.incoming()) {
                thread.take(End::new(came?, &rpc, None)?)?;
            }
            Ok(())
        };
        end(deal());
    });
    Ok(())
}

/// Without one of its threads the server is none.
fn end(result: io::Result<()>) {
    if let Err(e) = result {
        eprintln!("server: {e}");
        std::process::exit(1);
    }
}

impl Thread {
    fn take(&self, end: End) -> io::Result<()> {
        let end = Arc::new(end);
        let mut connections = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        connections.last += 1;
        let name = connections.last;
        connections.open.insert(name, (end.clone(), 0));
        drop(connections);
        Ok(self.set.add(end.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, name))?)
    }

    fn serve(&self, plan: &crate::rpc::plan::Plan) -> io::Result<()> {
        let mut buffer = vec![0; plan.message().clamp(4096, 64 << 10)];
        let mut events = [EpollEvent::empty(); 256];
        loop {
            let ready = match self.set.wait(&mut events, EpollTimeout::NONE) {
                Err(nix::Error::EINTR) => 0,
                ready => ready?,
            };
            for event in &events[..ready] {
                let mut connections = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
                let Some((end, mut seen)) = connections.open.get(&event.data()).cloned() else {
                    continue;
                };
                drop(connections);
                let goes_on = echo(plan, &end, &mut seen, &mut buffer, true)?;
                connections = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
                if goes_on {
                    connections.open.insert(event.data(), (end, seen));
                } else {
                    connections.open.remove(&event.data());
                }
            }
        }
    }
}
