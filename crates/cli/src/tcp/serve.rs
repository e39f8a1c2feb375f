//! The service in the foreground, until it is interrupted or idle.

use std::time::Duration;

use clap::{Args, ValueEnum};
use nix::unistd::{Gid, Uid, User};
use uncopy_measure::{Failure, complain, failure, units, values};
use uncopy_tcp_remote::{
    Access, Algorithm, Limits as OverLimits, Options as Over, Remote, Remotes, Wait as Waits,
    privileges,
};
use uncopy_tcp_service::rendezvous::{OF_SYSTEM, of_user};
use uncopy_tcp_service::{Limits, Options, Serves, Service};

/// The options of `uncopy tcp serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// The service's name [default: this user's; with --all-users, the system's]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Serve programs of all users, each user apart from the others (as root)
    #[arg(long)]
    all_users: bool,
    /// With --all-users: connections between programs of different users go through memory too. A
    /// user can then make another's programs wait
    #[arg(long, requires = "all_users")]
    across_users: bool,
    /// Connections that one program may have; with --all-users, one user
    #[arg(long, value_name = "N", value_parser = values::positive)]
    connections: Option<usize>,
    /// Memory that one program's connections may use; with --all-users, one user's [default: a
    /// quarter of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<usize>,
    /// End when no program has been there for so long; without it, only when interrupted
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    until_idle: Option<Duration>,
    /// Carry connections to other hosts too, over this network device (as root); may be given
    /// several times
    #[arg(long = "if", id = "device", value_name = "DEVICE")]
    devices: Vec<String>,
    /// Over a device: how to reach it [default: by AF_XDP where the device needs no copies for it,
    /// else by a TAP; by the other where that is refused]
    #[arg(long, value_name = "HOW", requires = "device")]
    by: Option<By>,
    /// Over a device: be this user once all is open, and serve its programs [default: the user who
    /// starts it]
    #[arg(long, value_name = "NAME", requires = "device", conflicts_with = "all_users")]
    user: Option<String>,
    /// Over each device: connections to other hosts that there is room for, of all programs
    #[arg(
        long,
        value_name = "N",
        default_value = "4096",
        requires = "device",
        value_parser = values::positive,
    )]
    remote_connections: usize,
    /// Over each device: threads that carry its packets at once, at most; they are not bound to
    /// cores [default: one for each of its queues]
    #[arg(long, value_name = "N", requires = "device", value_parser = values::positive)]
    cores: Option<usize>,
    /// Over a device: when nothing arrives, sleep at once, look first for as long as a sleep costs
    /// where that pays, or never sleep
    #[arg(long, value_name = "HOW", requires = "device", default_value = "adaptive")]
    wait: Wait,
    /// Over a device: how connections slow down whose program does not choose (TCP_CONGESTION:
    /// reno, cubic, dctcp, bbr)
    #[arg(long, value_name = "HOW", requires = "device", default_value = "cubic")]
    congestion: Congestion,
    /// Over each device: what one program's connections to other hosts may send together, in bits a
    /// second (500M, 10G) [default: no limit]
    #[arg(long, value_name = "BITS_PER_SECOND", requires = "device", value_parser = values::rate)]
    rate: Option<u64>,
}

/// How a device is reached.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// AF_XDP
    Xdp,
    /// A TAP device beside it, which may have an XDP program already
    Tap,
}

impl By {
    fn way(self) -> Access {
        match self {
            Self::Xdp => Access::Xdp,
            Self::Tap => Access::Tap,
        }
    }
}

/// How connections slow down.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Congestion {
    Cubic,
    Reno,
    Dctcp,
    Timely,
    Bbr,
}

impl Congestion {
    fn algorithm(self) -> Algorithm {
        match self {
            Self::Cubic => Algorithm::Cubic,
            Self::Reno => Algorithm::Reno,
            Self::Dctcp => Algorithm::Dctcp,
            Self::Timely => Algorithm::Timely,
            Self::Bbr => Algorithm::Bbr,
        }
    }
}

/// How lanes wait.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Wait {
    Sleep,
    Adaptive,
    Spin,
}

impl Wait {
    fn of_lanes(self) -> Waits {
        match self {
            Self::Sleep => Waits::For(Duration::ZERO),
            Self::Adaptive => Waits::Adaptive,
            Self::Spin => Waits::For(Duration::MAX),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Sleep => "Asleep when no packet is there.",
            Self::Adaptive => "Asleep when no packet is there, and none comes soon.",
            Self::Spin => "Never asleep: each lane that runs uses a core.",
        }
    }
}

/// Serves.
pub fn main(args: &ServeArgs) -> Result<(), Failure> {
    let all = Limits::default();
    let limits = Limits {
        flows: args.connections.unwrap_or(all.flows),
        bytes: args.memory.map_or(all.bytes, |bytes| bytes as u64),
    };
    let user = args.user.as_deref().map(user_of).transpose()?;
    let uid = user.map_or_else(nix::unistd::geteuid, |(uid, _)| uid);
    if args.all_users && !uid.is_root() {
        return Err(Failure::new("only root may serve all users").because("--all-users"));
    }
    let usual = || if args.all_users { OF_SYSTEM.into() } else { of_user(uid.as_raw()) };
    let name = args.name.clone().unwrap_or_else(usual);
    crate::tcp_service::take_descriptors();
    let over = !args.devices.is_empty();
    let remotes = over.then(|| remotes(&name, user, limits, args)).transpose()?;
    let options = Options { name: name.clone(), limits, ends_idle: args.until_idle };
    if args.all_users && remotes.is_none() {
        privileges::drop_them(None, privileges::NONE)
            .map_err(|e| Failure::new("cannot give privileges up").because(e))?;
    }
    let service = Service::bind(options).map_err(Failure::new)?;
    let service = service.serving(whom(args));
    uncopy_measure::print(&serves(&name, args, uid, limits))?;
    let Some(remotes) = remotes else { return service.run().map_err(Failure::new) };
    for remote in remotes.each() {
        reached(remote, args)?;
    }
    let service = service.listening(remotes.listening());
    let registry = std::thread::Builder::new().name("uncopy-registry".into());
    let ends = move || {
        let ended = service.run();
        // (Nobody would be told any more of what comes by the wire.)
        if let Err(why) = ended {
            complain(Failure::new(why));
        }
        std::process::exit(1);
    };
    registry.spawn(ends).map_err(|e| Failure::new("no thread for the service").because(e))?;
    let failed = |device: &str, ended: std::io::Result<()>| {
        let failure = failure!("{device} is not served any more");
        complain(match ended {
            Ok(()) => failure,
            Err(why) => failure.because(why),
        });
    };
    remotes.run(failed).map_err(|e| Failure::new("no thread for a device").because(e))?;
    Err(Failure::new("the service has no device any more"))
}

/// How a device is reached, and for whom.
fn reached(remote: &Remote, args: &ServeArgs) -> Result<(), Failure> {
    let by = match remote.way() {
        Access::Xdp => "AF_XDP on",
        Access::Tap => "a TAP device beside",
    };
    uncopy_measure::print(&format!(
        "uncopy: and programs that listen, from other hosts, by {by} {} ({} queues, carried by {} \
         at most); {} connections. {}\n",
        remote.device(),
        remote.queues(),
        match remote.lanes() {
            1 => "1 thread".to_owned(),
            lanes => format!("{lanes} threads"),
        },
        units::grouped(args.remote_connections as u64),
        args.wait.text(),
    ))?;
    if let Some((way, why)) = remote.refused() {
        complain(failure!("not by {}, which would be better", way.name()).because(why));
    }
    match remote.why_no_active_opens() {
        None => uncopy_measure::print("uncopy: and programs that connect to other hosts.\n")?,
        Some(why) => {
            let stay =
                "connections that programs open to other hosts stay with Linux: no TUN device";
            complain(Failure::new(stay).because(why));
        }
    }
    Ok(())
}

fn whom(args: &ServeArgs) -> Serves {
    if args.all_users { Serves::All { across: args.across_users } } else { Serves::ItsUser }
}

/// The users that it serves, in one line.
fn serves(name: &str, args: &ServeArgs, uid: Uid, limits: Limits) -> String {
    let whom = match whom(args) {
        Serves::ItsUser => {
            let user = User::from_uid(uid).ok().flatten();
            format!("programs of {}", user.map_or_else(|| uid.to_string(), |user| user.name))
        }
        Serves::All { across: false } => "programs of all users, each user's with its own".into(),
        Serves::All { across: true } => "programs of all users, also with other users'".into(),
    };
    format!(
        "uncopy: TCP service @{name}: shared memory between {whom}, of this network namespace; \
         asleep but when connections begin and end. Each {}: {} connections, {} of memory.\n",
        if args.all_users { "user" } else { "program" },
        units::grouped(limits.flows as u64),
        units::rough_size(limits.bytes as f64),
    )
}

fn user_of(name: &str) -> Result<(Uid, Gid), Failure> {
    let found =
        User::from_name(name).map_err(|e| failure!("cannot look up the user {name}").because(e))?;
    found.map(|user| (user.uid, user.gid)).ok_or_else(|| failure!("there is no user {name}"))
}

fn remotes(
    name: &str,
    user: Option<(Uid, Gid)>,
    limits: Limits,
    args: &ServeArgs,
) -> Result<Remotes, Failure> {
    let user = user.map(|(uid, gid)| (uid.as_raw(), gid.as_raw()));
    let options = Over {
        way: args.by.map(By::way),
        connections: args.remote_connections,
        user,
        wait: args.wait.of_lanes(),
        shared: args.all_users,
        congestion: args.congestion.algorithm(),
        limits: OverLimits {
            connections: u32::try_from(limits.flows).unwrap_or(u32::MAX),
            buffers: limits.bytes,
            rate: args.rate.map(|bits| bits.div_ceil(8)),
        },
        cores: args.cores,
        devices: args.devices.clone(),
        ..Over::over("", name)
    };
    Remotes::open(&options).map_err(Failure::new)
}
