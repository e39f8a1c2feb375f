//! Frames of the service's wire, in a file. The service has given its rights up, and writes where
//! it is told by a descriptor.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use uncopy_measure::{Failure, failure, values};
use uncopy_tcp_service::trace;

use super::look::explain;
use super::which::Which;

/// The options of `uncopy tcp trace`.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    #[command(flatten)]
    which: Which,
    /// Only connections with this end: ADDRESS, :PORT or ADDRESS:PORT [default: every frame]
    #[arg(
        value_name = "[ADDRESS][:PORT]",
        value_parser = end,
        default_value = ":0",
        hide_default_value = true,
    )]
    end: End,
    /// The file (pcapng, for Wireshark, tshark and tcpdump); one of this name is replaced
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// End after so long; without it, when interrupted
    #[arg(short, long, value_name = "SECONDS", value_parser = values::seconds)]
    seconds: Option<Duration>,
}

/// An address and a port, as far as they matter.
type End = (Option<Ipv4Addr>, Option<u16>);

fn end(text: &str) -> Result<End, Failure> {
    let wrong = || {
        failure!("'{text}' is no end of a connection")
            .advise("write ADDRESS, :PORT or ADDRESS:PORT (IPv4)")
    };
    let (address, port) = text.split_once(':').map_or((text, None), |(a, p)| (a, Some(p)));
    let address: Option<Ipv4Addr> = match address {
        "" => None,
        address => Some(address.parse().map_err(|_| wrong())?),
    };
    let port: Option<u16> = port.map(str::parse).transpose().map_err(|_| wrong())?;
    if address.is_none() && port.is_none() {
        return Err(wrong());
    }
    Ok((address.filter(|address| !address.is_unspecified()), port.filter(|port| *port != 0)))
}

/// Traces.
pub fn main(args: &TraceArgs) -> Result<(), Failure> {
    let name = args.which.rendezvous().name();
    let shown = args.out.display();
    let file = File::create(&args.out).map_err(|e| failure!("cannot write {shown}").because(e))?;
    // Before it begins, so that it always ends by saying how much there is.
    let handled: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&handled), None).map_err(Failure::new)?;
    let signals = SignalFd::with_flags(&handled, SfdFlags::SFD_CLOEXEC).map_err(Failure::new)?;
    let failed = |error: i32| why(&name, &shown.to_string(), error);
    let tracing =
        trace(&name, args.end, file.as_fd()).map_err(|error| failed(error.raw_os_error()))?;
    let until = args.seconds.map(|seconds| Instant::now() + seconds);
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            // (A length beyond its range is waited for in parts; a part of a millisecond, to its
            // end.)
            let left = left.as_millis() + u128::from(left.subsec_nanos() % 1_000_000 != 0);
            PollTimeout::try_from(left.min(1_000_000)).unwrap_or(PollTimeout::ZERO)
        });
        let mut fds = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(tracing.as_fd(), PollFlags::POLLIN),
        ];
        let over = match poll(&mut fds, timeout) {
            Err(Errno::EINTR) => continue,
            polled => polled.map_err(Failure::new)? > 0,
        };
        if over || until.is_some_and(|until| until <= Instant::now()) {
            break;
        }
    }
    let frames = tracing.end().map_err(|error| failed(error.raw_os_error()))?;
    uncopy_measure::print(&format!(
        "{} frames in {shown}\n",
        uncopy_measure::units::grouped(frames)
    ))
}

fn why(name: &str, file: &str, error: i32) -> Failure {
    match Errno::from_raw(error) {
        Errno::EOPNOTSUPP => failure!("the TCP service @{name} has no wire, and so no frames")
            .advise("start it with --if"),
        Errno::EPERM => failure!("the TCP service @{name} serves several users")
            .advise("trace as root, who alone has its frames written"),
        Errno::EBUSY => failure!("the TCP service @{name} already writes another trace"),
        Errno::EINVAL => failure!("{file} is no plain file").advise("name another"),
        Errno::EBADMSG => {
            failure!("the TCP service @{name} is of another build of uncopy than this command")
                .advise("use that one's")
        }
        error @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG | Errno::EIO) => {
            failure!("the trace in {file} ends before its time").because(error.desc())
        }
        Errno::ECONNRESET => failure!(
            "the TCP service @{name} has ended, and the trace with it, or it is another user's"
        )
        .advise("ask as its own user"),
        _ => explain(name, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_an_address_a_port_or_both() {
        let address = Some(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(end("10.0.0.1"), Ok((address, None)));
        assert_eq!(end(":80"), Ok((None, Some(80))));
        assert_eq!(end("10.0.0.1:80"), Ok((address, Some(80))));
        for text in ["", ":", "x", "10.0.0.1:", "10.0.0.1:99999", "::1", "80"] {
            assert!(end(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_that_nobody_has_is_explained() {
        let why = why("nobody", "file", Errno::ECONNREFUSED as i32).to_string();
        assert!(why.contains("no TCP service runs here under the name @nobody"), "{why}");
    }
}
