//! The server: answers every request with the request, from calls that wait for one connection, or
//! from an epoll set over many.
//!
//! It knows nothing of uncopy, unless it is told to use the socket library itself.

// Unsafe: a listener's backlog.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;

use serde::Serialize;
use uncopy_measure::words::told;
use uncopy_measure::{Failure, failure};

use super::choices::Way;
use super::ends::{End, Ends, context, make_room};
use super::one_way::Served;
use super::over::{self, Over};
use super::plan::{EACH_ADDRESS, Hello, Plan, Ready};
use super::work::work;

/// Connections that may wait to be accepted: what Linux allows (`net.core.somaxconn`).
const BACKLOG: libc::c_int = 4096;

/// The hidden subcommand that is the server.
pub const NAME: &str = "__rpc-server";

/// The server's options.
#[derive(clap::Args)]
pub struct ServerArgs {
    #[arg(value_parser = told::<Plan>)]
    plan: Plan,
    #[arg(long, value_parser = told::<Over>)]
    over: Option<Over>,
}

/// Serves until the client has gone.
pub fn main(args: &ServerArgs) -> Result<(), Failure> {
    let plan = &args.plan;
    let mut at = None;
    if let Some(over) = &args.over {
        over.enter()?;
        if over.ours.is_some() {
            return over::server::serve(plan, over);
        }
        at = Some(over.address);
    }
    serve(plan, at).map_err(|e| failure!("RPC server: {e}"))
}

/// Writes a line for the bench.
pub fn answer(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    out.flush()
}

/// At loopback's addresses, or at one.
fn serve(plan: &Plan, at: Option<Ipv4Addr>) -> io::Result<()> {
    make_room(plan.connections)?;
    let listeners = (0..plan.connections.div_ceil(EACH_ADDRESS))
        .map(|i| {
            let address = at.unwrap_or(Ipv4Addr::new(127, 0, 0, 1 + i as u8));
            let listener = TcpListener::bind((address, 0))?;
            // (More than the standard library's 128: a SYN that finds no room is sent again a
            // second later.) SAFETY: a number, open as long as the listener.
            unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) };
            Ok(listener)
        })
        .collect::<io::Result<Vec<_>>>()?;
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
    answer(&Hello { addresses })?;
    let context = context(plan)?;
    let ends = (0..plan.connections)
        .map(|i| {
            let (socket, _) = listeners[i / EACH_ADDRESS].accept()?;
            End::new(socket, plan, context.as_ref())
        })
        .collect::<io::Result<Vec<_>>>()?;
    answer(&Ready { connections: ends.len() })?;
    let mut buffer = vec![0; plan.message().clamp(4096, 64 << 10)];
    let mut seen = vec![0; ends.len()];
    let mut one_way: Vec<Served> = match plan.way {
        Way::Both => vec![],
        Way::In | Way::Out => ends.iter().map(|_| Served::new()).collect(),
    };
    if plan.is_alone() {
        while echo(plan, &ends[0], &mut seen[0], &mut buffer, false)? {}
        return Ok(());
    }
    let set = Ends::new(plan, context.as_ref())?;
    for (i, end) in ends.iter().enumerate() {
        set.add(end, i as u64)?;
    }
    let (mut ready, mut open) = (vec![], ends.len());
    while open > 0 {
        set.wait(&mut ready)?;
        for &i in &ready {
            let goes_on = match one_way.get_mut(i) {
                Some(served) => served.serve(plan, &ends[i], &mut buffer)?,
                None => echo(plan, &ends[i], &mut seen[i], &mut buffer, true)?,
            };
            if !goes_on {
                set.remove(&ends[i])?;
                open -= 1;
            }
        }
    }
    Ok(())
}

/// Answers what has come; false: the client has gone. `seen`: bytes of the connection's next
/// request that have come.
pub fn echo(
    plan: &Plan,
    end: &End,
    seen: &mut usize,
    buffer: &mut [u8],
    now: bool,
) -> io::Result<bool> {
    let got = match end.receive(buffer, now) {
        Ok(None) => return Ok(true),
        Ok(Some(0)) => return Ok(false),
        // It was ended in the middle of something.
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
        got => got?.unwrap_or(0),
    };
    if plan.work > 0 {
        *seen += got;
        while *seen >= plan.size {
            *seen -= plan.size;
            work(plan.work);
        }
    }
    match end.send_all(&buffer[..got]) {
        Err(e)
            if matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) =>
        {
            Ok(false)
        }
        sent => sent.map(|()| true),
    }
}
