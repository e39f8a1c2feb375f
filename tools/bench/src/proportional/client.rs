//! All clients, as one program of Linux': they come and go as the plan says, and every answer is
//! compared. A line for each interval.

// Unsafe: the device's ioctl.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::sys::time::TimeSpec;
use uncopy_measure::medians::round;
use uncopy_measure::words::told;
use uncopy_measure::{Failure, failure};

use super::caller::{Caller, Results};
use super::plan::{Plan, Sample};
use crate::rpc::ends::{End, make_room};
use crate::rpc::over::Over;
use crate::rpc::plan::{Hello, Ready};
use crate::rpc::server::answer;

/// The hidden subcommand that is the clients.
pub const NAME: &str = "__proportional-clients";

/// Nothing is answered for so long: the server hangs, or has died without a word.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The client's options.
#[derive(clap::Args)]
pub struct ClientArgs {
    #[arg(value_parser = told::<Plan>)]
    plan: Plan,
    #[arg(value_parser = told::<Over>)]
    over: Over,
    #[arg(value_parser = told::<Hello>)]
    server: Hello,
}

/// All steps of the plan, once.
pub fn main(args: &ClientArgs) -> Result<(), Failure> {
    let (plan, over, server) = (&args.plan, &args.over, &args.server);
    over.enter()?;
    let failed = |e: io::Error| failure!("clients: {e}");
    checksums_here(&over.device).map_err(failed)?;
    run(plan, server.addresses[0]).map_err(failed)
}

/// Checksums are computed here: a veth leaves them out between its two ends, and AF_XDP does not
/// say so. (On both sides, so that the clients do the same.)
fn checksums_here(device: &str) -> io::Result<()> {
    /// ETHTOOL_STXCSUM
    const SET: u32 = 0x17;
    let socket: OwnedFd =
        socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut value = [SET, 0];
    // SAFETY: plain old data, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // (The name ends with a zero.)
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes().take(15)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    // SAFETY: it reads the request and the value, which both live here.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Connections of a client that comes.
type Coming = Receiver<io::Result<Vec<End>>>;

fn come(plan: &Plan, server: SocketAddr) -> Coming {
    let (tell, coming) = channel();
    let (connections, rpc) = (plan.connections, plan.of_rpc());
    // (In a thread, for others go on meanwhile.)
    std::thread::spawn(move || {
        let ends = (0..connections)
            .map(|_| End::new(TcpStream::connect(server)?, &rpc, None))
            .collect::<io::Result<Vec<_>>>();
        let _ = tell.send(ends);
    });
    coming
}

/// A place for a client.
enum ClientSlot {
    Free,
    Comes(Coming),
    Taken(Caller),
}

struct Clients<'a> {
    plan: &'a Plan,
    server: SocketAddr,
    set: Epoll,
    /// One more than there are clients: one that leaves may still wait for an answer when the next
    /// comes.
    slots: Vec<ClientSlot>,
    results: Results,
    due_before: u64,
    due_gone: u64,
    last_answer: Instant,
}

fn run(plan: &Plan, server: SocketAddr) -> io::Result<()> {
    let rpc = plan.of_rpc();
    make_room(rpc.connections)?;
    let mut clients = Clients {
        plan,
        server,
        set: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
        slots: (0..=plan.clients).map(|_| ClientSlot::Free).collect(),
        results: Results {
            next: 0,
            latency: Histogram::new_with_bounds(1, 120_000_000_000, 3).map_err(io::Error::other)?,
            answered: 0,
            out: vec![0; plan.size],
            came: vec![0; plan.size],
        },
        due_before: 0,
        due_gone: 0,
        last_answer: Instant::now(),
    };
    answer(&Ready { connections: 0 })?;
    let begun = Instant::now();
    let mut before = begun;
    for interval in 0..plan.intervals() {
        clients.be(plan.there(interval));
        let end = begun + plan.interval.mul_f64((interval + 1) as f64);
        clients.until(end)?;
        let now = Instant::now();
        answer(&clients.sample(now - before))?;
        before = now;
    }
    Ok(())
}

impl Clients<'_> {
    /// So many are there from now on.
    fn be(&mut self, wanted: usize) {
        let stays = |slot: &ClientSlot| match slot {
            ClientSlot::Free => false,
            ClientSlot::Comes(_) => true,
            ClientSlot::Taken(caller) => !caller.leaves_already(),
        };
        let mut there = self.slots.iter().filter(|slot| stays(slot)).count();
        for slot in &mut self.slots {
            match slot {
                ClientSlot::Free if there < wanted => {
                    *slot = ClientSlot::Comes(come(self.plan, self.server));
                    there += 1;
                }
                ClientSlot::Taken(caller) if there > wanted && !caller.leaves_already() => {
                    caller.leaves();
                    there -= 1;
                }
                _ => {}
            }
        }
        self.last_answer = Instant::now();
    }

    /// Load until then.
    fn until(&mut self, end: Instant) -> io::Result<()> {
        let each = self.plan.connections;
        let mut events = [EpollEvent::empty(); 256];
        loop {
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            let mut next = end;
            for at in 0..self.slots.len() {
                self.slot(at, now)?;
                if let ClientSlot::Taken(caller) = &mut self.slots[at] {
                    caller.send(now, &mut self.results)?;
                    next = caller.next().map_or(next, |due| due.min(next));
                } else if matches!(self.slots[at], ClientSlot::Comes(_)) {
                    // (Whether it is there is looked for.)
                    next = next.min(now + Duration::from_millis(1));
                }
            }
            let wait = next.saturating_duration_since(Instant::now());
            // (epoll_wait itself knows milliseconds.)
            let mut fds = [PollFd::new(self.set.0.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut fds, Some(TimeSpec::from_duration(wait)), None) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            let ready = self.set.wait(&mut events, EpollTimeout::ZERO)?;
            let before = self.results.answered;
            for event in &events[..ready] {
                let name = event.data() as usize;
                if let ClientSlot::Taken(caller) = &mut self.slots[name / each] {
                    caller.take(name % each, &mut self.results)?;
                }
            }
            let waiting: u64 = self.callers().map(Caller::waiting).sum();
            if self.results.answered > before || waiting == 0 {
                self.last_answer = now;
            } else if now - self.last_answer > TIMEOUT {
                return Err(io::Error::other("nothing has come back for 10 s"));
            }
        }
    }

    fn callers(&self) -> impl Iterator<Item = &Caller> {
        self.slots.iter().filter_map(|slot| match slot {
            ClientSlot::Taken(caller) => Some(caller),
            _ => None,
        })
    }

    /// A client that has come takes the slot; one that has gone leaves it.
    fn slot(&mut self, at: usize, now: Instant) -> io::Result<()> {
        let slot = &mut self.slots[at];
        match slot {
            ClientSlot::Comes(coming) => match coming.try_recv() {
                Ok(ends) => {
                    let caller = Caller::new(ends?, self.plan.rate);
                    for (i, end) in caller.ends().enumerate() {
                        let name = (at * self.plan.connections + i) as u64;
                        self.set.add(end, EpollEvent::new(EpollFlags::EPOLLIN, name))?;
                    }
                    *slot = ClientSlot::Taken(caller);
                    self.last_answer = now;
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    return Err(io::Error::other("a client could not come"));
                }
            },
            ClientSlot::Taken(caller) if caller.is_gone() => {
                self.due_gone += caller.due;
                // (Closed descriptors leave the set.)
                *slot = ClientSlot::Free;
            }
            _ => {}
        }
        Ok(())
    }

    /// The result of the interval.
    fn sample(&mut self, length: Duration) -> Sample {
        let due = self.due_gone + self.callers().map(|caller| caller.due).sum::<u64>();
        let waiting = self.callers().map(Caller::waiting).sum();
        let results = &mut self.results;
        let of = |p| match results.latency.is_empty() {
            true => 0.0,
            false => round(results.latency.value_at_percentile(p) as f64 / 1000.0, 2),
        };
        let sample = Sample {
            seconds: length.as_secs_f64(),
            due: due.saturating_sub(self.due_before),
            answered: results.answered,
            p50_us: of(50.0),
            p99_us: of(99.0),
            waiting,
        };
        results.latency.reset();
        results.answered = 0;
        self.due_before = due;
        sample
    }
}
