//! The programs: a source, relays, a sink. The sink answers each message by a byte, which comes
//! back through the relays.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use uncopy_measure::words::told;
use uncopy_measure::{Failure, failure};

use super::plan::{Plan, Touch};
use crate::content::{Expected, fill};
use crate::events::orders;
use crate::rpc::plan::{Hello, Ready};
use crate::rpc::server::answer;

/// The hidden subcommand that each of them is.
pub const NAME: &str = "__relay";

/// The bytes of messages change after so many.
const CHANGES: u64 = 64;
/// Of so many messages the sink looks at one, where it looks at none else.
const LOOKS: u64 = 256;

/// The program's options.
#[derive(clap::Args)]
pub struct RelayProgramArgs {
    #[arg(value_parser = told::<Plan>)]
    plan: Plan,
}

/// Does it until standard input ends.
pub fn main(args: &RelayProgramArgs) -> Result<(), Failure> {
    run(&args.plan).map_err(|e| failure!("a program of the chain: {e}"))
}

fn run(plan: &Plan) -> io::Result<()> {
    let listener = plan
        .listens
        .then(|| TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))
        .transpose()?;
    if let Some(listener) = &listener {
        answer(&Hello { addresses: vec![listener.local_addr()?] })?;
    }
    let to = plan.to.map(TcpStream::connect).transpose()?;
    let Some(listener) = listener else {
        return source(plan, at_once(to.ok_or(io::ErrorKind::InvalidInput)?)?);
    };
    std::thread::spawn(|| {
        let _ = io::stdin().lock().read(&mut [0]);
        std::process::exit(0);
    });
    let from = at_once(listener.accept()?.0)?;
    let done = match to {
        Some(to) => relay(plan, from, at_once(to)?),
        None => sink(plan, from),
    };
    // (The source has ended.)
    done.or_else(|e| if e.kind() == io::ErrorKind::UnexpectedEof { Ok(()) } else { Err(e) })
}

fn at_once(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn content(message: u64) -> u64 {
    message / CHANGES
}

fn source(plan: &Plan, mut to: TcpStream) -> io::Result<()> {
    let mut bytes = vec![0; plan.size];
    let mut message = 0;
    answer(&Ready { connections: 1 })?;
    let turn = |(): &mut (), seconds, _| {
        let (begun, first) = (Instant::now(), message);
        let length = Duration::from_secs_f64(seconds);
        while begun.elapsed() < length {
            if message % CHANGES == 0 {
                fill(&mut bytes, content(message));
            }
            to.write_all(&bytes)?;
            to.read_exact(&mut [0])?;
            message += 1;
        }
        Ok(message - first)
    };
    orders(&mut (), turn, |()| ())
}

fn relay(plan: &Plan, mut from: TcpStream, mut to: TcpStream) -> io::Result<()> {
    // The received bytes, and each copy of them: buffers that stay, as an application's own.
    let mut buffers = vec![vec![0; plan.size]; plan.copies + 1];
    let mut answer = [0];
    loop {
        from.read_exact(&mut buffers[0])?;
        for copy in 1..buffers.len() {
            let (before, after) = buffers.split_at_mut(copy);
            // (No compiler may see that it could send the first one as well.)
            std::hint::black_box(&mut after[0]).copy_from_slice(&before[copy - 1]);
        }
        to.write_all(&buffers[plan.copies])?;
        to.read_exact(&mut answer)?;
        from.write_all(&answer)?;
    }
}

fn sink(plan: &Plan, mut from: TcpStream) -> io::Result<()> {
    let mut bytes = vec![0; plan.size];
    let mut expected = Expected::new(plan.size);
    for message in 0.. {
        from.read_exact(&mut bytes)?;
        if plan.touch == Touch::All || message % LOOKS == 0 {
            let at = message * plan.size as u64;
            expected.compare(at, &bytes, content).map_err(io::Error::other)?;
        }
        from.write_all(b"k")?;
    }
    Ok(())
}
