//! `uncopy tcp`: the user-level TCP service of this user, or of the system, seen from outside, or
//! run in the foreground.
//!
//! | file | one idea |
//! | --- | --- |
//! | `which` | the service that is meant |
//! | `look` | what the service says, with the names of the processes |
//! | `programs` | what programs say themselves, whether a service is there or not |
//! | `text`, `json`, `prometheus` | it, for people and for programs |
//! | `rates` | what happened between two looks |
//! | `trace` | frames of its wire in a file |
//! | `serve` | the service in the foreground |

mod json;
mod look;
mod programs;
mod prometheus;
mod rates;
#[cfg(test)]
pub mod screens;
mod serve;
mod text;
mod trace;
mod which;

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::{ArgMatches, Args, Command};
use uncopy_measure::words::parsed;
use uncopy_measure::{Failure, values};

use self::look::Look;
use self::programs::Programs;
use self::which::Which;

/// The options of `uncopy tcp flows`.
#[derive(Args, Clone, Debug)]
struct FlowsArgs {
    #[command(flatten)]
    which: Which,
    /// Only connections of this process
    #[arg(short, long, value_name = "PID")]
    pid: Option<u32>,
    /// One JSON object
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Prometheus' text format
    #[arg(long)]
    prometheus: bool,
}

/// The options of `uncopy tcp top`.
#[derive(Args, Clone, Debug)]
struct TopArgs {
    #[command(flatten)]
    which: Which,
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = values::refresh)]
    delay: f64,
    /// How often to look; without it, until interrupted
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
}

/// The subcommand.
pub fn command() -> Command {
    Command::new("tcp")
        .about(
            "Connections past Linux' TCP: between programs of this host, and over a device with \
             other hosts",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(uncopy_measure::words::with_args::<FlowsArgs>(
            Command::new("flows")
                .about("List the connections, which way their bytes go, and why by Linux"),
        ))
        .subcommand(uncopy_measure::words::with_args::<TopArgs>(
            Command::new("top").about("Show the busiest connections again and again"),
        ))
        .subcommand(uncopy_measure::words::with_args::<serve::ServeArgs>(
            Command::new("serve")
                .about("Run this user's service, or the system's, in the foreground"),
        ))
        .subcommand(uncopy_measure::words::with_args::<trace::TraceArgs>(
            Command::new("trace").about("Write frames of connections to other hosts into a file"),
        ))
}

/// Runs what was asked for.
pub fn main(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand().expect("clap demands a subcommand") {
        ("flows", matches) => flows(&parsed(matches)?),
        ("top", matches) => top(&parsed(matches)?),
        ("serve", matches) => serve::main(&parsed(matches)?),
        ("trace", matches) => trace::main(&parsed(matches)?),
        _ => unreachable!("clap knows only the subcommands above"),
    }
}

fn flows(args: &FlowsArgs) -> Result<(), Failure> {
    let look = Look::at(&args.which.rendezvous());
    let mut programs = Programs::look(look.as_ref().ok().map(|look| &look.state));
    if let Some(pid) = args.pid {
        programs.only(pid);
    }
    let mut look = match look {
        // Connections can be reported without a service.
        Err(why) if !args.prometheus && !programs.is_empty() => {
            return uncopy_measure::print(&if args.json {
                json::without_service(&why.to_string(), &programs)
            } else {
                format!("{why}\n{}", programs.text())
            });
        }
        look => look?,
    };
    if let Some(pid) = args.pid {
        look.only(pid);
    }
    uncopy_measure::print(&if args.json {
        json::text(&look, &programs)
    } else if args.prometheus {
        prometheus::text(&look)
    } else {
        text::flows(&look) + &programs.text()
    })
}

fn top(args: &TopArgs) -> Result<(), Failure> {
    let delay = Duration::from_secs_f64(args.delay);
    let clears = std::io::stdout().is_terminal();
    let mut before = (Look::at(&args.which.rendezvous())?, Instant::now());
    let mut shown = 0;
    loop {
        std::thread::sleep(delay.saturating_sub(before.1.elapsed()));
        let now = (Look::at(&args.which.rendezvous())?, Instant::now());
        let seconds = (now.1 - before.1).as_secs_f64();
        let lines = if clears { terminal_lines() } else { usize::MAX };
        let busiest = rates::between(&before.0, &now.0, seconds);
        let over = rates::over_wire(&before.0, &now.0, seconds);
        let text = text::top(&now.0, &busiest, &over, lines);
        if clears {
            // To the corner, and away with what was there.
            let _ = std::io::stdout().write_all(b"\x1b[H\x1b[J");
        }
        uncopy_measure::print(&text)?;
        shown += 1;
        if args.count == Some(shown) {
            return Ok(());
        }
        before = now;
    }
}

fn terminal_lines() -> usize {
    ratatui::crossterm::terminal::size().map_or(24, |(_, lines)| lines.into())
}
