//! The service in the foreground, until it is interrupted or idle.

use std::time::Duration;

use clap::Args;
use uncopy_tcp_service::{Limits, Options, Service};

use crate::bench::values;
use crate::{Outcome, units};

/// The options of `uncopy tcp serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    which: super::Which,
    /// Connections that one program may have
    #[arg(long, value_name = "N", value_parser = values::positive)]
    connections: Option<usize>,
    /// Memory that one program's connections may use [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<usize>,
    /// End when no program has been there for so long; without it, only when interrupted
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    until_idle: Option<Duration>,
    /// A network device to carry connections to other hosts over: not built yet
    #[arg(long = "if", value_name = "DEVICE", hide = true)]
    device: Option<String>,
}

/// Serves.
pub fn main(args: &ServeArgs) -> Outcome {
    if let Some(device) = &args.device {
        return Err(format!(
            "connections cannot be carried over a device ({device}) yet; without --if the service serves programs of this host"
        ));
    }
    let all = Limits::default();
    let limits = Limits {
        flows: args.connections.unwrap_or(all.flows),
        bytes: args.memory.map_or(all.bytes, |bytes| bytes as u64),
    };
    let name = args.which.name.clone().unwrap_or_else(|| Options::of_this_user().name);
    let options = Options { name: name.clone(), limits, ends_idle: args.until_idle };
    crate::tcp_service::take_descriptors();
    let service = Service::bind(options).map_err(|e| e.to_string())?;
    crate::print(&format!(
        "uncopy: TCP service @{name}: shared memory between programs of this user and network namespace; asleep but when connections begin and end. \
         Each program: {} connections, {} of memory.\n",
        units::grouped(limits.flows as u64),
        units::rough_size(limits.bytes as f64),
    ))?;
    service.run().map_err(|e| e.to_string())
}
