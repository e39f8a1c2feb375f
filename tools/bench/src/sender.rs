//! The sender: an ordinary program that sends buffers, in one of the ways that Linux has.
//!
//! It knows nothing of uncopy, except that it says whether the library is loaded.

// Unsafe: descriptors and buffers are handed to the kernel's own calls, by intention.

use std::io::{self, BufRead, Write};
use std::time::Instant;

use nix::sys::resource::UsageWho;
use uncopy_measure::own_process::{cpu_ns, library_counters};
use uncopy_measure::words::told;
use uncopy_measure::{Failure, failure};

use super::content::fill;
use super::receiver::{Done, Order, Stream};
use super::send_plan::{SendBuffers, SendPlan};
use super::sender_ways::{self, Transport};

/// The hidden subcommand.
pub const NAME: &str = "__sender";

/// The sender's options.
#[derive(clap::Args)]
pub struct SenderArgs {
    #[arg(value_parser = told::<SendPlan>)]
    plan: SendPlan,
}

/// Carries out the orders on standard input until it ends.
pub fn main(args: &SenderArgs) -> Result<(), Failure> {
    serve(&args.plan).map_err(|e| failure!("sender: {e}"))
}

fn serve(plan: &SendPlan) -> io::Result<()> {
    let stream = Stream::connect(&plan.address)?;
    let mut memory = SendBuffers::new(plan)?;
    let mut transport = sender_ways::new(plan, &stream, &memory);
    let mut number = 0;
    for line in io::stdin().lock().lines() {
        let order: Order = serde_json::from_str(&line?)?;
        let mut done = Done { preloaded: library_counters().is_some(), ..Done::default() };
        match &mut transport {
            Err(e) => done.refused = Some(named(e)),
            Ok(transport) => {
                match carry_out(plan, order, number, &mut memory, transport.as_mut()) {
                    Ok(sent) => {
                        number += sent.messages;
                        done = Done { preloaded: done.preloaded, ..sent };
                    }
                    // Nothing is under way, so the stream is as it was.
                    Err(e) if number == 0 && e.raw_os_error().is_some_and(is_refusal) => {
                        done.refused = Some(named(&e));
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        let mut out = io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&done)?)?;
        out.flush()?;
    }
    Ok(())
}

fn carry_out(
    plan: &SendPlan,
    order: Order,
    first: u64,
    memory: &mut SendBuffers,
    transport: &mut dyn Transport,
) -> io::Result<Done> {
    let begin = Instant::now();
    let cpu = cpu_ns(UsageWho::RUSAGE_SELF)?;
    let before = transport.by_reference();
    let mut messages = 0;
    while messages < order.messages
        || order.messages == 0 && begin.elapsed().as_nanos() < u128::from(order.nanos)
    {
        let number = first + messages;
        let buffer = (number % plan.buffers as u64) as usize;
        if plan.fresh {
            transport.release(buffer)?;
            fill(memory.buffer(buffer), plan.content(number));
        }
        transport.send(buffer, memory.buffer(buffer))?;
        messages += 1;
    }
    transport.finish()?;
    let after = transport.by_reference();
    Ok(Done {
        messages,
        cpu_ns: cpu_ns(UsageWho::RUSAGE_SELF)? - cpu,
        elapsed_ns: u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX),
        sent_by_reference: [after[0] - before[0], after[1] - before[1]],
        ..Done::default()
    })
}

/// Whether it is the answer of a kernel or a socket that cannot do it.
fn is_refusal(errno: i32) -> bool {
    [
        libc::EOPNOTSUPP,
        libc::EINVAL,
        libc::ENOSYS,
        libc::EPERM,
        libc::EACCES,
        libc::ENOPROTOOPT,
        libc::ENOTSOCK,
        libc::ENOMEM,
        libc::EXDEV,
    ]
    .contains(&errno)
}

/// The error's name and meaning.
pub fn named(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => {
            let errno = nix::Error::from_raw(code);
            format!("{errno:?} ({})", errno.desc())
        }
        None => error.to_string(),
    }
}
