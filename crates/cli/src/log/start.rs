//! A service is started where none answers: a process of its own, nobody's child, that ends when no
//! program has been there for a while. It recovers first what a crash has left.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, value_parser};
use uncopy_inject::Plan;
use uncopy_log_service::place::NoPlace;
use uncopy_log_service::server::ServiceError;
use uncopy_log_service::{Client, Options, Place, Report, Service, keeper, recover};
use uncopy_log_store::Kind;
use uncopy_measure::{Failure, failure};
use uncopy_options::INJECT;

/// The hidden subcommand.
pub const NAME: &str = "__log-service";
/// So long an idle service waits for programs.
pub const IDLE: Duration = Duration::from_secs(10);
/// After so long it is looked whether it still lives.
const AGAIN: Duration = Duration::from_secs(1);
/// The time after which the bytes of a dead service are home at most, or others bring them there.
const LEAVES: Duration = Duration::from_secs(5);
/// So long whoever starts one waits for its answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The subcommand: where it serves, and the length of logs.
pub fn command() -> clap::Command {
    clap::Command::new(NAME)
        .hide(true)
        .arg(Arg::new("directory").required(true).value_parser(value_parser!(OsString)))
        .arg(Arg::new("size").required(true).value_parser(value_parser!(u64)))
        .arg(Arg::new("store").required(true))
}

/// Calls of the service's that a test made to fail.
static INJECTED: AtomicU64 = AtomicU64::new(0);

/// Serves.
pub fn main(matches: &ArgMatches) -> Result<(), Failure> {
    if let Some(plan) =
        std::env::var(INJECT).ok().as_deref().and_then(|text| Plan::parse(text).ok())
    {
        uncopy_kernel::inject::arm(&plan, &INJECTED);
    }
    let directory = matches.get_one::<OsString>("directory").expect("clap demands it");
    let log_size = *matches.get_one::<u64>("size").expect("clap demands it");
    let kind = matches.get_one::<String>("store").and_then(|name| Kind::of(name));
    let kind = kind.ok_or_else(|| Failure::new("no such store"))?;
    let options = Options { log_size, kind, until_idle: Some(IDLE) };
    // SAFETY: nothing has made a thread yet.
    let keeper = unsafe { keeper::start(Path::new(directory), kind) };
    let place = Place::open(Path::new(directory)).map_err(ServiceError::Place);
    let begun = place.and_then(|place| Service::begin(place, options));
    let (service, _) = match begun {
        Ok(begun) => begun,
        Err(why) => {
            // (To who starts it, who reads until the end.)
            eprint!("{}", refused(&why));
            std::process::exit(1)
        }
    };
    let nowhere = std::fs::File::options().write(true).open("/dev/null");
    let silent = nowhere.and_then(|nowhere| Ok(nix::unistd::dup2_stderr(nowhere)?));
    silent.map_err(|why| Failure::new("cannot open /dev/null").because(why))?;
    let ran = service.run().map_err(Failure::new);
    drop(keeper);
    ran
}

/// Why a service cannot begin, and what can be done.
fn refused(why: &ServiceError) -> Failure {
    Failure::new(why).advise(match why {
        ServiceError::Kernel(..) => "it takes some hundred KB of /dev/shm",
        ServiceError::Failed(_) | ServiceError::Place(_) => "another directory: --log=DIR",
        ServiceError::Recovery(_) => "'uncopy log recover' tries again",
    })
}

/// Recovers what is in `place`. Where a service has just died, what it held is on its way home:
/// that is waited for.
///
/// # Errors
/// Somebody serves there, or recovers.
pub fn recovered(place: &Place, kind: Kind) -> Result<Report, NoPlace> {
    let begun = Instant::now();
    loop {
        match recover(place, kind) {
            Err(NoPlace::Busy(_))
                if !Client::is_served(place.path()) && begun.elapsed() < LEAVES =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            came => return came,
        }
    }
}

/// Sees to it that a service answers in `directory`. The findings of a recovery are printed.
///
/// # Errors
/// Why there is none.
pub fn ensure(directory: &Path, log_size: u64, kind: Kind) -> Result<(), Failure> {
    if Client::is_served(directory) {
        return Ok(());
    }
    let place = Place::make(directory).map_err(ServiceError::Place);
    let place = place.map_err(|why| refused(&why))?;
    // (Here, where somebody reads it. A service that another has started meanwhile does so too.)
    if let Ok(report) = recovered(&place, kind) {
        super::say(&report);
        if let Report { kept: Some(why), .. } = report {
            return Err(Failure::new(why));
        }
    }
    let begun = Instant::now();
    let mut failed = false;
    loop {
        let why = start(&place, log_size, kind)?;
        let tried = Instant::now();
        while tried.elapsed() < AGAIN {
            if Client::is_served(place.path()) {
                return Ok(());
            }
            // (One that another has started is still beginning; or this one was killed.)
            std::thread::sleep(Duration::from_millis(2));
            if !why.is_empty() && place.lock().is_ok() {
                if failed {
                    return Err(Failure::new(why));
                }
                // (The process that kept this one from beginning may have died since.)
                failed = true;
                break;
            }
        }
        if begun.elapsed() > TIMEOUT {
            let path = place.path().display();
            return Err(failure!("{path}: the service does not answer"));
        }
    }
}

/// Starts one, and waits until it serves or has ended. Returns what it had to say.
fn start(place: &Place, log_size: u64, kind: Kind) -> Result<String, Failure> {
    let cannot = |why| Failure::new("cannot start the log's service").because(why);
    let own = std::env::current_exe()
        .map_err(|why| Failure::new("cannot tell where uncopy itself is").because(why))?;
    let mut command = Command::new(own);
    command.arg(NAME).arg(place.path()).arg(log_size.to_string()).arg(kind.name());
    command.env_clear().current_dir("/");
    if let Some(plan) = std::env::var_os(INJECT) {
        command.env(INJECT, plan);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: system calls only, in a child that has one thread.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            // (So the service is nobody's child.)
            match nix::unistd::fork()? {
                nix::unistd::ForkResult::Parent { .. } => libc::_exit(0),
                nix::unistd::ForkResult::Child => Ok(()),
            }
        });
    }
    let mut child = command.spawn().map_err(cannot)?;
    let mut said = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_end(&mut said);
    }
    child.wait().map_err(cannot)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}
