//! Threads over wires: lanes of the fast path, each with a wire (a queue of a device) of its own, and the slow path (TAS, 3.2).
//!
//! A lane takes a batch of frames, lets applications have their turn, sends what may be sent, and looks again. Nothing of that is a system call but
//! what the wire itself makes. After [`QUIET`] without work it sleeps, until a frame arrives, a rate allows something, or somebody wakes it.
//! The slow path sleeps whenever it has nothing to do. It observes how idle the lanes are together, and adds or takes away one (3.2.4): a lane
//! that is taken away has its wire steered elsewhere, handles what is left, and sleeps.

use crate::nap::Nap;
use crate::proportion::{OBSERVED, wanted};
use crate::spin::Spin;
use crate::{Shared, View};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use core::time::Duration;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::{RingRange, Tuple};
use uncopy_tcp_proto::time::SECOND;
use uncopy_tcp_proto::wire::{Checksums, Link, Packet, emit, headers_len, parse, seal};
use uncopy_tcp_proto::{
    Actions, Config, Endpoint, Event, FlowId, Lane, Left, Outgoing, Refusal, Segment, Seq, Time,
};
use uncopy_tcp_wire::{Offload, Steered};

/// Frames that are taken at once: enough that what is done once for each batch is little, few enough that acknowledgements are not late.
const BATCH: usize = 32;
/// Segments that are sent before frames are looked for again.
const BUDGET: usize = 64;
/// A lane without work for so long sleeps (TAS, 3.2.4).
pub const QUIET: Duration = Duration::from_millis(10);
/// Looks in vain, some microseconds, before the processor is offered to others at each: there may be fewer cores than threads.
const LOOKS: u32 = 100;
/// No sleep is longer, so that clocks that jump harm nobody.
const LONGEST: Duration = Duration::from_secs(1);

/// The applications of a service, as its threads see them.
pub trait Applications: Sync {
    /// Copies `payload`, without the bytes that are to be left out at its front, to its place in the flow's receive buffer.
    fn place(&self, flow: FlowId, place: Place, payload: &[u8]);

    /// Copies a range of the flow's send buffer.
    fn fetch(&self, flow: FlowId, range: RingRange, to: &mut [u8]);

    /// Something happened, seen by a lane, or by the slow path (none). The flow is held: this counts, and does not ask for more.
    fn event(&self, lane: Option<usize>, flow: FlowId, event: Event);

    /// What applications ask of this lane.
    fn turn(&self, lane: usize, calls: &mut dyn Calls) -> Turn;

    /// What applications ask of the slow path, and what lanes could not do for them. True if that was something.
    fn slow_turn(
        &self,
        time: Time,
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) -> bool
    where
        Self: Sized;

    /// The hardware addresses of a way.
    fn link(&self, route: u16) -> Link;
}

/// What there was to do for a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Something.
    pub worked: bool,
    /// Something that the slow path has to do.
    pub for_slow_path: bool,
}

/// Reading and writing, as the fast path has it.
pub trait Calls {
    /// See [`Lane::read`].
    fn read(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal>;
    /// See [`Lane::write`].
    fn write(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal>;
}

impl Calls for Lane<View<'_>> {
    fn read(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal> {
        Lane::read(self, flow, n)
    }
    fn write(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal> {
        Lane::write(self, flow, n)
    }
}

/// What lanes leave to the slow path.
enum Work {
    Segment(Segment, Vec<u8>),
    TooBig {
        tuple: Tuple,
        seq: Seq,
        mtu: u16,
    },
    Left(u32, Left),
    /// Applications have asked.
    Turn,
}

/// Of each lane.
struct Desk {
    nap: Nap,
    bell: OwnedFd,
    /// Frames of the slow path.
    frames: Spin<VecDeque<Vec<u8>>>,
    some: AtomicBool,
    /// Nanoseconds in which it had work.
    busy: AtomicU64,
    naps: AtomicU64,
}

/// A service: what its threads share. [`Service::run`] is their life.
pub struct Service<A> {
    shared: Shared,
    applications: A,
    desks: Box<[Desk]>,
    active: AtomicUsize,
    /// Follow the load; else somebody else says how many lanes run.
    proportional: AtomicBool,
    stop: AtomicBool,
    clock: Instant,
    work: Sender<Work>,
    inlet: Mutex<Option<Receiver<Work>>>,
}

impl<A: Applications> Service<A> {
    /// For so many lanes at most; one of them runs at first.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(config: &Config, lanes: usize, applications: A) -> io::Result<Self> {
        let desks = (0..lanes).map(|_| {
            Ok(Desk {
                nap: Nap::new(),
                bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
                frames: Spin::new(VecDeque::new()),
                some: AtomicBool::new(false),
                busy: AtomicU64::new(0),
                naps: AtomicU64::new(0),
            })
        });
        let (work, inlet) = channel();
        Ok(Service {
            shared: Shared::new(config, lanes),
            applications,
            desks: desks.collect::<io::Result<_>>()?,
            active: AtomicUsize::new(1),
            proportional: AtomicBool::new(true),
            stop: AtomicBool::new(false),
            clock: Instant::now(),
            work,
            inlet: Mutex::new(Some(inlet)),
        })
    }

    /// The applications.
    pub fn applications(&self) -> &A {
        &self.applications
    }

    /// How many lanes run.
    pub fn active(&self) -> usize {
        self.active.load(Relaxed)
    }

    /// How often lanes have gone to sleep.
    pub fn naps(&self) -> u64 {
        self.desks.iter().map(|desk| desk.naps.load(Relaxed)).sum()
    }

    /// So many lanes run from now on, whatever the load.
    pub fn fix(&self, lanes: usize) {
        self.proportional.store(false, Relaxed);
        self.change(lanes.clamp(1, self.desks.len()));
    }

    /// Applications have something for the slow path.
    pub fn ask(&self) {
        // The receiver lives as long as the service runs; before and behind, nobody is to be told.
        let _ = self.work.send(Work::Turn);
    }

    /// The lane that takes what an application asks of this flow: the one that touched it last.
    pub fn lane_of(&self, flow: FlowId) -> usize {
        self.shared.home(flow.slot)
    }

    /// Applications have something for this lane, and have published it.
    pub fn wake(&self, lane: usize) {
        self.ring(lane);
    }

    /// Ends [`run`](Self::run).
    pub fn stop(&self) {
        self.stop.store(true, Release);
        self.ask();
        (0..self.desks.len()).for_each(|lane| self.ring(lane));
    }

    fn now(&self) -> Time {
        // Zero means "never" to some.
        Time(SECOND + self.clock.elapsed().as_nanos() as u64)
    }

    /// Wakes a lane, if it sleeps.
    fn ring(&self, lane: usize) {
        let desk = &self.desks[lane];
        if desk.nap.wake() {
            // It is full only if it was rung and not yet heard.
            let _ = rustix::io::write(&desk.bell, &1u64.to_ne_bytes());
        }
    }

    fn change(&self, lanes: usize) {
        if self.active.swap(lanes, Relaxed) != lanes {
            (0..self.desks.len()).for_each(|lane| self.ring(lane));
        }
    }

    /// Runs a lane for each of `wires`, and the slow path, until [`stop`](Self::stop) or until a wire fails.
    ///
    /// # Errors
    /// The first wire's that failed.
    pub fn run<W: Steered + Send>(&self, wires: Vec<W>) -> io::Result<()> {
        assert_eq!(wires.len(), self.desks.len(), "a wire for each lane");
        let inlet = self.inlet.lock().expect("nobody panics with it").take();
        let inlet = inlet.expect("a service runs once");
        std::thread::scope(|scope| {
            let lanes: Vec<_> = wires
                .into_iter()
                .enumerate()
                .map(|(number, wire)| {
                    scope.spawn(move || {
                        let result = self.lane(number, wire);
                        // The others cannot go on without it.
                        self.stop();
                        result
                    })
                })
                .collect();
            self.slow(&inlet);
            lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane does not panic"))
        })
    }

    fn lane<W: Steered>(&self, number: usize, mut wire: W) -> io::Result<()> {
        let desk = &self.desks[number];
        let mut lane = self.shared.lane(number);
        let mut answers: Vec<(Option<FlowId>, Outgoing)> = Vec::with_capacity(4 * BATCH);
        let mut steered = true;
        let mut quiet_looks = 0;
        let mut last_work = Instant::now();
        let mut before = last_work;
        while !self.stop.load(Acquire) {
            let here = number < self.active.load(Relaxed);
            if here != steered {
                wire.steer(here)?;
                steered = here;
            }
            let time = self.now();
            let received = wire.receive(BATCH, |frame, offload| {
                self.frame(number, time, &mut lane, frame, offload, &mut answers);
            })?;
            let mut worked = received > 0;
            {
                let mut out =
                    LaneOut { service: self, number, wire: &mut wire, sent: 0, error: None };
                answers.drain(..).for_each(|(flow, segment)| out.send(flow, &segment));
                let turn = self.applications.turn(number, &mut lane);
                worked |= turn.worked;
                if turn.for_slow_path {
                    self.ask();
                }
                self.shared.collect(number, &mut lane);
                let next = lane.poll(self.now(), BUDGET, &mut out, |slot, left| {
                    let _ = self.work.send(Work::Left(slot, left));
                });
                worked |= out.sent > 0;
                if let Some(error) = out.error {
                    return Err(error);
                }
                worked |= self.leave_frames(desk, &mut wire)?;
                wire.flush()?;
                let now = Instant::now();
                if worked {
                    desk.busy.fetch_add((now - before).as_nanos() as u64, Relaxed);
                    last_work = now;
                    quiet_looks = 0;
                } else if now - last_work >= QUIET || !here {
                    self.sleep(number, &mut lane, &wire, next)?;
                    quiet_looks = 0;
                } else {
                    quiet_looks += 1;
                    if quiet_looks > LOOKS {
                        std::thread::yield_now()
                    } else {
                        core::hint::spin_loop()
                    }
                }
                before = Instant::now();
            }
        }
        Ok(())
    }

    /// A frame arrived. What answers it waits until the wire can be sent on.
    fn frame(
        &self,
        number: usize,
        time: Time,
        lane: &mut Lane<View<'_>>,
        frame: &[u8],
        offload: Offload,
        answers: &mut Vec<(Option<FlowId>, Outgoing)>,
    ) {
        let checksums = if offload.checksum { Checksums::Device } else { Checksums::Software };
        match parse(frame, checksums) {
            Ok(Packet::Tcp(segment, at)) => {
                let payload = &frame[at..at + segment.payload as usize];
                let mut out =
                    Answers { applications: &self.applications, number, payload, answers };
                match lane.segment(time, &segment, &mut out) {
                    None => {
                        let _ = self.work.send(Work::Segment(segment, payload.to_vec()));
                    }
                    Some((_, Left::NOTHING)) => {}
                    Some((slot, left)) => {
                        let _ = self.work.send(Work::Left(slot, left));
                    }
                }
            }
            Ok(Packet::TooBig { tuple, seq, mtu }) => {
                let _ = self.work.send(Work::TooBig { tuple, seq, mtu });
            }
            Err(_) => {}
        }
    }

    /// Sends what the slow path wants sent.
    fn leave_frames<W: Steered>(&self, desk: &Desk, wire: &mut W) -> io::Result<bool> {
        if !desk.some.load(Acquire) {
            return Ok(false);
        }
        let frames = {
            let mut frames = desk.frames.lock();
            desk.some.store(false, Release);
            core::mem::take(&mut *frames)
        };
        for frame in frames {
            // They are whole, and sealed. One that finds no room is lost, as on any wire.
            wire.send(frame.len(), Offload::default(), |to| to.copy_from_slice(&frame))?;
        }
        Ok(true)
    }

    /// Until a frame arrives, a rate allows something, or somebody rings. Who rings has published his work before, and is to be seen here
    /// after the nap has begun.
    fn sleep<W: Steered>(
        &self,
        number: usize,
        lane: &mut Lane<View<'_>>,
        wire: &W,
        next: Option<Time>,
    ) -> io::Result<()> {
        let desk = &self.desks[number];
        desk.nap.begin();
        let turn = self.applications.turn(number, lane);
        if turn.for_slow_path {
            self.ask();
        }
        let idle = !turn.worked
            && !desk.some.load(Acquire)
            && self.shared.is_idle(number)
            && !self.stop.load(Acquire);
        let wait = next.map_or(LONGEST, |at| Duration::from_nanos(at.since(self.now())));
        if idle && !wait.is_zero() {
            desk.naps.fetch_add(1, Relaxed);
            let wait = wait.min(LONGEST);
            let limit =
                Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
            let mut fds = [
                PollFd::new(&desk.bell, PollFlags::IN),
                PollFd::from_borrowed_fd(wire.descriptor(), PollFlags::IN),
            ];
            match poll(&mut fds, Some(&limit)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        desk.nap.end();
        // It is empty where nobody rang.
        let _ = rustix::io::read(&desk.bell, &mut [0u8; 8]);
        Ok(())
    }

    fn slow(&self, inlet: &Receiver<Work>) {
        let mut endpoint = self.shared.slow_path();
        let mut busy = vec![0; self.desks.len()];
        let mut observed = Instant::now();
        let mut next = None;
        while !self.stop.load(Acquire) {
            let wait = next.map_or(LONGEST, |at: Time| Duration::from_nanos(at.since(self.now())));
            // While all lanes sleep there is nothing to observe.
            let awake = self.active() > 1 || busy[0] != self.desks[0].busy.load(Relaxed);
            let wait = if awake { wait.min(OBSERVED) } else { wait.min(LONGEST) };
            let first = inlet.recv_timeout(wait).ok();
            let time = self.now();
            let mut out =
                SlowOut { applications: &self.applications, payload: &[], frames: Vec::new() };
            for work in first.into_iter().chain(inlet.try_iter().take(BUDGET)) {
                match work {
                    Work::Segment(segment, payload) => {
                        let mut own = SlowOut { payload: &payload, frames: Vec::new(), ..out };
                        endpoint.segment(time, 0, &segment, &mut own);
                        let frames = own.frames;
                        out.frames.extend(frames);
                    }
                    Work::TooBig { tuple, seq, mtu } => endpoint.too_big(time, &tuple, seq, mtu),
                    Work::Left(slot, left) => endpoint.attend(time, slot, left, &mut out),
                    Work::Turn => {}
                }
                endpoint.leave();
            }
            while self.applications.slow_turn(time, &mut endpoint, &mut out) {}
            endpoint.leave();
            next = endpoint.poll(self.now(), BUDGET, &mut out);
            endpoint.leave();
            if self.applications.slow_turn(time, &mut endpoint, &mut out) {
                next = Some(time);
            }
            endpoint.leave();
            if !out.frames.is_empty() {
                // Any lane can send them; the first one always runs.
                let mut frames = self.desks[0].frames.lock();
                frames.extend(out.frames);
                self.desks[0].some.store(true, Release);
            }
            for (number, desk) in self.desks.iter().enumerate() {
                if desk.some.load(Relaxed) || !self.shared.is_idle(number) {
                    self.ring(number);
                }
            }
            if observed.elapsed() >= OBSERVED {
                self.observe(observed.elapsed(), &mut busy);
                observed = Instant::now();
            }
        }
    }

    /// How idle were the lanes? One comes, or one goes.
    fn observe(&self, time: Duration, busy: &mut [u64]) {
        let active = self.active();
        let idle: Vec<f64> = self
            .desks
            .iter()
            .zip(busy)
            .map(|(desk, before)| {
                let now = desk.busy.load(Relaxed);
                let share = (now - *before) as f64 / time.as_nanos() as f64;
                *before = now;
                1.0 - share
            })
            .collect();
        if self.proportional.load(Relaxed) {
            self.change(wanted(active, self.desks.len(), idle.into_iter()));
        }
    }
}

/// What answers a segment, while the wire is being read.
struct Answers<'a, A> {
    applications: &'a A,
    number: usize,
    payload: &'a [u8],
    answers: &'a mut Vec<(Option<FlowId>, Outgoing)>,
}

impl<A: Applications> Actions for Answers<'_, A> {
    fn send(&mut self, flow: Option<FlowId>, segment: &Outgoing) {
        debug_assert_eq!(segment.payload.len, 0, "segments are answered by acknowledgements");
        self.answers.push((flow, *segment));
    }
    fn place(&mut self, flow: FlowId, place: Place) {
        self.applications.place(flow, place, self.payload);
    }
    fn event(&mut self, flow: FlowId, event: Event) {
        self.applications.event(Some(self.number), flow, event);
    }
}

/// What a lane sends.
struct LaneOut<'a, A, W> {
    service: &'a Service<A>,
    number: usize,
    wire: &'a mut W,
    sent: usize,
    error: Option<io::Error>,
}

impl<A: Applications, W: Steered> Actions for LaneOut<'_, A, W> {
    fn send(&mut self, flow: Option<FlowId>, segment: &Outgoing) {
        let applications = &self.service.applications;
        let headers = headers_len(segment);
        let len = segment.payload.len;
        let several = len > u32::from(segment.mss);
        let offers = self.wire.offers();
        let offload =
            Offload { checksum: offers.checksum, segment: several.then_some(segment.mss) };
        let sent = self.wire.send(headers + len as usize, offload, |frame| {
            emit(segment, &applications.link(segment.route), frame);
            if let (1.., Some(flow)) = (len, flow) {
                applications.fetch(flow, segment.payload, &mut frame[headers..]);
            }
            if !offload.checksum {
                seal(frame);
            }
        });
        self.sent += 1;
        if let Err(error) = sent {
            self.error.get_or_insert(error);
        }
    }
    fn place(&mut self, _: FlowId, _: Place) {}
    fn event(&mut self, flow: FlowId, event: Event) {
        self.service.applications.event(Some(self.number), flow, event);
    }
}

/// What the slow path sends: frames that a lane takes along.
pub struct SlowOut<'a, A> {
    applications: &'a A,
    payload: &'a [u8],
    frames: Vec<Vec<u8>>,
}

impl<A: Applications> Actions for SlowOut<'_, A> {
    fn send(&mut self, flow: Option<FlowId>, segment: &Outgoing) {
        let headers = headers_len(segment);
        let mut frame = vec![0; headers + segment.payload.len as usize];
        emit(segment, &self.applications.link(segment.route), &mut frame);
        if let (1.., Some(flow)) = (segment.payload.len, flow) {
            self.applications.fetch(flow, segment.payload, &mut frame[headers..]);
        }
        seal(&mut frame);
        self.frames.push(frame);
    }
    fn place(&mut self, flow: FlowId, place: Place) {
        self.applications.place(flow, place, self.payload);
    }
    fn event(&mut self, flow: FlowId, event: Event) {
        self.applications.event(None, flow, event);
    }
}
