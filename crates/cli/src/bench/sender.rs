//! The sender: an ordinary program that sends buffers, in one of the ways that Linux has.
//!
//! It knows nothing of uncopy, except that it says whether the library is loaded.

// Unsafe: descriptors and buffers are handed to the kernel's own calls, by intention.

use std::io::{self, BufRead, Write};
use std::time::Instant;

use clap::{Arg, ArgMatches, Command};
use nix::sys::resource::UsageWho;
use serde::{Deserialize, Serialize};

use super::content::fill;
use super::echo_server::{cpu_ns, library_counters};
use super::receiver::{Address, Done, Order, Stream};
use super::sender_ways::{self, Transport};
use crate::Outcome;

/// The hidden subcommand.
pub const NAME: &str = "__sender";

/// How messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// `send`.
    Send,
    /// `send` with `MSG_ZEROCOPY`, its completions reaped.
    Zerocopy,
    /// `sendfile` from a file in memory.
    Sendfile,
    /// `IORING_OP_SEND_ZC`, its notifications reaped.
    Uring,
}

impl Way {
    /// As a person writes it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Zerocopy => "MSG_ZEROCOPY",
            Self::Sendfile => "sendfile",
            Self::Uring => "io_uring SEND_ZC",
        }
    }
}

/// What the sender is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SendPlan {
    /// Bytes in a message.
    pub size: usize,
    /// Buffers that are sent in turns.
    pub buffers: usize,
    /// Whether every byte of a buffer is written anew before each send.
    pub fresh: bool,
    /// How.
    pub way: Way,
    /// Where to.
    pub address: Address,
}

impl SendPlan {
    /// The content of message number `n`.
    pub fn content(&self, n: u64) -> u64 {
        if self.fresh { n } else { n % self.buffers as u64 }
    }
}

/// The hidden subcommand.
pub fn command() -> Command {
    Command::new(NAME).hide(true).arg(Arg::new("plan").required(true))
}

/// Carries out the orders on standard input until it ends.
pub fn main(matches: &ArgMatches) -> Outcome {
    let plan: &String = matches.get_one("plan").expect("clap demands a plan");
    let plan: SendPlan = serde_json::from_str(plan).map_err(|e| format!("bad plan: {e}"))?;
    serve(&plan).map_err(|e| format!("sender: {e}"))
}

fn serve(plan: &SendPlan) -> io::Result<()> {
    let stream = Stream::connect(&plan.address)?;
    let mut memory = Memory::new(plan)?;
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
    memory: &mut Memory,
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

/// What a kernel or a socket that cannot do it answers.
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

/// The buffers: blocks of malloc, or pieces of a mapped file in memory for `sendfile`.
pub struct Memory {
    buffers: Vec<*mut u8>,
    size: usize,
    /// The file, where there is one.
    pub file: Option<std::os::fd::OwnedFd>,
}

impl Memory {
    fn new(plan: &SendPlan) -> io::Result<Self> {
        let size = plan.size;
        let mut memory = if plan.way == Way::Sendfile {
            Self::in_file(plan.buffers, size)?
        } else {
            let block = |_| {
                // SAFETY: any size may be asked for.
                let block: *mut u8 = unsafe { libc::calloc(size, 1) }.cast();
                if block.is_null() { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(block) }
            };
            let buffers = (0..plan.buffers).map(block).collect::<io::Result<_>>()?;
            Self { buffers, size, file: None }
        };
        for i in 0..plan.buffers {
            fill(memory.buffer(i), plan.content(i as u64));
        }
        Ok(memory)
    }

    fn in_file(count: usize, size: usize) -> io::Result<Self> {
        use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
        // SAFETY: the name is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"uncopy-bench".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else has.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let len = count * size;
        let failed = || io::Error::last_os_error();
        // SAFETY: calls on our own descriptor; a new mapping that replaces nothing.
        let at = unsafe {
            if libc::ftruncate(file.as_raw_fd(), len as i64) != 0 {
                return Err(failed());
            }
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(failed());
        }
        let buffers = (0..count).map(|i| at.cast::<u8>().wrapping_add(i * size)).collect();
        Ok(Self { buffers, size, file: Some(file) })
    }

    fn buffer(&mut self, i: usize) -> &mut [u8] {
        // SAFETY: blocks of `size` initialized bytes that live as long as the process, each lent
        // once at a time; the kernel only reads them.
        unsafe { std::slice::from_raw_parts_mut(self.buffers[i], self.size) }
    }
}
