//! The two programs' common part: what they are told, their context, their addresses, their orders.

use std::io::{self, BufRead, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uncopy_measure::words::told;
use uncopy_tcp_events::{Context, Listen, Settings, Waiting};

use crate::rpc::choices::Wait;
use crate::rpc::ends::make_room;
use crate::rpc::plan::{Hello, Order, Ready, Turned};
use crate::rpc::server::answer;

/// The common part of all plans.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Base {
    /// Connections.
    pub connections: usize,
    /// How to wait.
    pub wait: Wait,
    /// The service whose rings are used. None: Linux' calls.
    pub service: Option<String>,
}

/// The options of a hidden server.
#[derive(clap::Args)]
pub struct ServerArgs<P: DeserializeOwned + Clone + Send + Sync + 'static> {
    /// The plan.
    #[arg(value_parser = told::<P>)]
    pub plan: P,
}

/// The options of a hidden client.
#[derive(clap::Args)]
pub struct ClientArgs<P: DeserializeOwned + Clone + Send + Sync + 'static> {
    /// The plan.
    #[arg(value_parser = told::<P>)]
    pub plan: P,
    /// Where the server is.
    #[arg(value_parser = told::<Hello>)]
    pub server: Hello,
}

/// A context as the plan wants it.
pub fn context(base: &Base) -> io::Result<Context> {
    make_room(base.connections)?;
    let settings = match &base.service {
        Some(service) => Settings::by_service(service.clone()),
        None => Settings::sockets(),
    };
    let waiting = match base.wait {
        Wait::Spin => Waiting::Spin,
        Wait::Sleep => Waiting::Sleep,
    };
    Context::new(Settings { waiting, ..settings })
}

/// A server listens at so many addresses, says so, and ends when its standard input does.
pub fn begin(context: &mut Context, addresses: usize) -> io::Result<()> {
    let listening = (0..addresses)
        .map(|i| {
            let address = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 1 + i as u8), 0));
            context.listen(address, Listen::default()).map(|(_, address)| address)
        })
        .collect::<io::Result<_>>()?;
    answer(&Hello { addresses: listening })?;
    answer(&Ready { connections: 0 })?;
    std::thread::spawn(|| {
        let _ = io::stdin().lock().read(&mut [0]);
        std::process::exit(0);
    });
    Ok(())
}

/// The client's connections are open.
pub fn first(connections: usize) -> io::Result<()> {
    answer(&Ready { connections })
}

/// Does what the bench orders until standard input ends: turns, of which `turn` says how many
/// answers came, and `tell` what they came to.
pub fn orders<L, T: Serialize>(
    load: &mut L,
    mut turn: impl FnMut(&mut L, f64, bool) -> io::Result<u64>,
    mut tell: impl FnMut(&mut L) -> T,
) -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        match serde_json::from_str(&line?)? {
            Order::Turn { seconds, anew } => {
                let begun = Instant::now();
                let rpcs = turn(load, seconds, anew)?;
                answer(&Turned { rpcs, seconds: begun.elapsed().as_secs_f64() })?;
            }
            Order::Tell => answer(&tell(load))?,
        }
    }
    Ok(())
}
