//! All of it for some seconds: hosts, the link between them, and what each flow got in each
//! interval.
//!
//! unsafe: the thread's place in the kernel's schedule.

use crate::core::Core;
use crate::direction::{Counts, Direction, Terms};
use crate::facts::{End, Facts};
use crate::frame::{RECEIVER, offer, to};
use crate::linux::{Flows, Linux};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use uncopy_tcp_proto::Algorithm;

/// The TCP of the hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tcp {
    /// Linux', with this congestion control.
    Linux(String),
    /// uncopy's.
    Uncopy(Algorithm),
}

/// The measurement to make.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The TCP of the hosts that send.
    pub from: Tcp,
    /// The TCP of the host that receives.
    pub to: Tcp,
    /// Hosts that send.
    pub senders: usize,
    /// Flows, in equal parts.
    pub flows: usize,
    /// The link, towards the receiver. Its other direction is as fast and loses as much.
    pub link: Terms,
    /// All hosts' connections ask for marks instead of losses (RFC 3168).
    pub ecn: bool,
    /// Which frames are lost.
    pub seed: u64,
    /// Not counted.
    pub warmup: Duration,
    /// Counted.
    pub length: Duration,
    /// Bytes of each flow are noted so often.
    pub interval: Duration,
}

impl Plan {
    /// The TCP of this host.
    fn of(&self, host: usize) -> &Tcp {
        if host == RECEIVER { &self.to } else { &self.from }
    }
}

/// The result.
#[derive(Clone, Debug)]
pub struct Report {
    /// Bytes that the receiver got of each flow, and compared, in each interval.
    pub got: Vec<Vec<u64>>,
    /// How long all intervals were.
    pub seconds: f64,
    /// Frames towards the receiver.
    pub counts: Counts,
    /// The longest time for which the link did nothing though something was due: its machine was
    /// busy otherwise.
    pub late: Duration,
    /// The facts of the sender's connections, and of the receiver's.
    pub ends: [Facts; 2],
}

impl Report {
    /// Bytes a second, of all flows.
    pub fn goodput(&self) -> f64 {
        self.got.iter().flatten().sum::<u64>() as f64 / self.seconds
    }
}

enum Host {
    Linux(Linux),
    Uncopy(Box<Core>),
}

/// Frames of a host that are taken before the others have their turn.
const BATCH: usize = 64;
/// So long all flows may take to begin.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Measures.
///
/// # Errors
/// Namespaces or devices are refused; a byte was wrong, a flow ended, or flows did not begin.
pub fn run(plan: &Plan) -> io::Result<Report> {
    let flows = Arc::new(Flows::new(plan.flows));
    let mut hosts: Vec<(usize, Host)> = vec![];
    let numbers = || (0..plan.senders).chain([RECEIVER]);
    for number in numbers() {
        let host = match plan.of(number) {
            Tcp::Linux(_) => Host::Linux(Linux::new(number, numbers(), plan.ecn)?),
            Tcp::Uncopy(_) => Host::Uncopy(Box::new(Core::new(number, &flows, plan.ecn))),
        };
        hosts.push((number, host));
    }
    let prompt = Prompt::begin();
    let done = carry(plan, &flows, &mut hosts);
    drop(prompt);
    flows.stop.store(true, Relaxed);
    done
}

/// A link does not wait for other programs: as long as this is kept, the thread comes first. (Where
/// that is refused, a busy machine makes frames late, and [`Report::late`] says so.) The core is in
/// this thread; so Linux' threads, which it starts, come first too.
struct Prompt(bool);

impl Prompt {
    fn begin() -> Self {
        Self(schedule(libc::SCHED_FIFO, 1))
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        if self.0 {
            schedule(libc::SCHED_OTHER, 0);
        }
    }
}

fn schedule(policy: libc::c_int, priority: libc::c_int) -> bool {
    let how = libc::sched_param { sched_priority: priority };
    // SAFETY: reads the parameter; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const how) == 0 }
}

fn begin(plan: &Plan, flows: &Arc<Flows>, hosts: &mut [(usize, Host)], now: u64) -> io::Result<()> {
    // The receiver is the last.
    for (number, host) in hosts.iter_mut().rev() {
        let share = |of: usize| (of * plan.flows / plan.senders) as u64;
        let is_receiver = *number == RECEIVER;
        let names = || share(*number)..share(*number + 1);
        match (host, plan.of(*number)) {
            (Host::Linux(linux), Tcp::Linux(name)) if is_receiver => linux.receive(flows, name)?,
            (Host::Linux(linux), Tcp::Linux(name)) => linux.send(flows, names(), name),
            (Host::Uncopy(core), Tcp::Uncopy(algorithm)) if is_receiver => core.receive(*algorithm),
            (Host::Uncopy(core), Tcp::Uncopy(algorithm)) => core.send(now, names(), *algorithm),
            _ => {}
        }
    }
    Ok(())
}

fn carry(plan: &Plan, flows: &Arc<Flows>, hosts: &mut [(usize, Host)]) -> io::Result<Report> {
    let start = Instant::now();
    // (From a second on: zero is "never" for some.)
    let clock = || 1_000_000_000 + start.elapsed().as_nanos() as u64;
    begin(plan, flows, hosts, clock())?;
    let back = Terms { mark: u64::MAX, queue: u64::MAX, ..plan.link };
    let mut ways = [Direction::new(plan.link, plan.seed), Direction::new(back, plan.seed + 1)];
    let mut buffer = vec![0; 4096];
    let nanos = |duration: Duration| duration.as_nanos() as u64;
    let mut samples = Samples::default();
    // When the next sample is due; none before all flows are there, and warm.
    let mut next_sample = None;
    let mut late = 0;
    let mut before = Counts::default();
    loop {
        let now = clock();
        let mut idle = true;
        let mut due: Option<u64> = None;
        let mut sooner = |at: Option<u64>| due = [due, at].into_iter().flatten().min();
        for (number, host) in hosts.iter_mut() {
            let way = &mut ways[usize::from(*number == RECEIVER)];
            for _ in 0..BATCH {
                let frame = match host {
                    Host::Linux(linux) => linux.sent(&mut buffer)?,
                    Host::Uncopy(core) => core.sent(),
                };
                let Some(frame) = frame else { break };
                idle = false;
                if next_sample.is_none()
                    && let Some(offer) = offer(&frame)
                {
                    let end = if *number == RECEIVER { End::To } else { End::From };
                    flows.known.tell_offer(end, &offer);
                }
                way.offer(now, frame);
            }
        }
        for way in &mut ways {
            while let Some(at) = way.next().filter(|at| *at <= now) {
                late = late.max(if next_sample.is_some() { now - at } else { 0 });
                let Some(frame) = way.arrived(now) else { break };
                let to = to(&frame);
                for (_, host) in hosts.iter_mut().filter(|(number, _)| to == Some(*number)) {
                    idle = false;
                    match host {
                        Host::Linux(linux) => linux.give(&frame),
                        Host::Uncopy(core) => core.give(now, &frame),
                    }
                }
            }
            sooner(way.next());
        }
        for (_, host) in hosts.iter_mut() {
            if let Host::Uncopy(core) = host {
                sooner(core.work(now));
                idle &= core.is_quiet();
            }
        }
        if flows.wrong.load(Relaxed) {
            return Err(io::Error::other("WRONG DATA, or a flow that was reset"));
        }
        match next_sample {
            None if flows.accepted.load(Relaxed) as usize == plan.flows => {
                next_sample = Some(now + nanos(plan.warmup));
            }
            None if start.elapsed() > TIMEOUT => {
                return Err(io::Error::other(format!(
                    "{} of {} flows began within {} s",
                    flows.accepted.load(Relaxed),
                    plan.flows,
                    TIMEOUT.as_secs()
                )));
            }
            Some(at) if at <= now => {
                if samples.begun.is_none() {
                    before = ways[0].counts;
                }
                samples.take(now, flows);
                next_sample = Some(at + nanos(plan.interval));
                if samples.seconds() >= plan.length.as_secs_f64() {
                    break;
                }
            }
            _ => {}
        }
        sooner(next_sample);
        if idle {
            sleep(hosts, due.map_or(1_000_000, |due| due.saturating_sub(clock()).min(1_000_000)))?;
        }
    }
    let now = ways[0].counts;
    Ok(Report {
        seconds: samples.seconds(),
        got: samples.got,
        counts: Counts {
            frames: now.frames - before.frames,
            lost: now.lost - before.lost,
            overflowed: now.overflowed - before.overflowed,
            marked: now.marked - before.marked,
        },
        late: Duration::from_nanos(late),
        ends: flows.known.all(),
    })
}

/// Until a host sends something, or so many ns.
fn sleep(hosts: &[(usize, Host)], nanoseconds: u64) -> io::Result<()> {
    let mut fds: Vec<PollFd> = hosts
        .iter()
        .filter_map(|(_, host)| match host {
            Host::Linux(linux) => Some(PollFd::from_borrowed_fd(linux.descriptor(), PollFlags::IN)),
            Host::Uncopy(_) => None,
        })
        .collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: nanoseconds as i64 };
    match poll(&mut fds, Some(&timeout)) {
        Err(rustix::io::Errno::INTR) => Ok(()),
        done => Ok(done.map(|_| ())?),
    }
}

/// The bytes of each flow, from time to time.
#[derive(Default)]
struct Samples {
    begun: Option<u64>,
    last: u64,
    totals: Vec<u64>,
    got: Vec<Vec<u64>>,
}

impl Samples {
    fn take(&mut self, now: u64, flows: &Flows) {
        let totals: Vec<u64> = flows.received.iter().map(|bytes| bytes.load(Relaxed)).collect();
        match self.begun {
            None => self.begun = Some(now),
            Some(_) => {
                let got = totals.iter().zip(&self.totals).map(|(now, before)| now - before);
                self.got.push(got.collect());
            }
        }
        (self.last, self.totals) = (now, totals);
    }

    fn seconds(&self) -> f64 {
        self.begun.map_or(0.0, |begun| (self.last - begun) as f64 / 1e9)
    }
}
