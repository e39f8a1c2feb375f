//! A lane on a thread (TAS, 3.2.1): it takes a batch of frames, lets applications have their turn,
//! sends what may be sent, and looks again. Nothing of that is a system call but what the wire
//! itself makes. After a while without work it sleeps, until a frame arrives, a rate allows
//! something, or somebody wakes it.

use crate::View;
use crate::applications::{Applications, Turn};
use crate::idle::{IdlePolicy, Now};
use crate::park::ParkSet;
use crate::service::{BUDGET, LONGEST, LaneState, Service};
use crate::wires::Wires;
use crate::work::{Leaving, Work};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;
use std::io;
use std::time::Instant;
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::wire::{Checksums, Packet, emit, headers_len, parse, seal};
use uncopy_tcp_proto::{Actions, Event, FlowId, Lane, Left, Outgoing, Time};
use uncopy_tcp_wire::{Offload, Wire, copied};

/// Frames that are taken at once, at most. Frames that have arrived are taken before anything is
/// sent for them: they wait better in their flow's buffer than in a wire's ring, which drops what
/// it has no room for. But acknowledgements must not be late: so many take some hundred
/// microseconds.
const BATCH: usize = 512;

/// Payloads of so many bytes and more are handed to the wire where they lie, if it takes them so:
/// below that a copy costs less than that the kernel gathers.
const GATHERED: u32 = 1024;

/// A lane that does not come to rest hands over what it leaves to the slow path so often.
const HANDED_OVER: Duration = Duration::from_millis(1);

impl<A: Applications> Service<A> {
    pub(crate) fn lane<W: Wire>(&self, number: usize, wires: &Wires<W>) -> io::Result<()> {
        let lane_state = &self.lane_states[number];
        let mut lane = self.shared.lane(number);
        let mut answers: Vec<(Option<FlowId>, Outgoing)> = Vec::with_capacity(BATCH);
        let mut leaving = Leaving::default();
        let mut policy = IdlePolicy::new(self.wait);
        let mut parked =
            ParkSet::new(number, self.applications.park_set(number), &lane_state.bell)?;
        let mut last_work = Instant::now();
        let mut handed_over = last_work;
        let mut before = last_work;
        while !self.stop.load(Acquire) {
            let active = self.active();
            let time = self.now();
            let mut received = 0;
            self.applications.begins(number);
            for mut wire in wires.served(number, active) {
                received += wire.receive(BATCH, |frame, offload| {
                    let mut met = Met { answers: &mut answers, leaving: &mut leaving };
                    self.frame(number, time, &mut lane, frame, offload, &mut met);
                })?;
            }
            let mut worked = received > 0;
            let mut wire = wires.own(number);
            let mut out = LaneOut { service: self, number, wire: &mut *wire, sent: 0, error: None };
            answers.drain(..).for_each(|(flow, segment)| out.send(flow, &segment));
            let turn = self.applications.turn(number, &mut lane);
            worked |= turn.worked;
            if turn.for_slow_path {
                self.ask();
            }
            self.shared.collect(number, &mut lane);
            let next = lane.poll(self.now(), BUDGET, &mut out, |slot, left| {
                self.work.left(&mut leaving, slot, left);
            });
            worked |= out.sent > 0;
            if let Some(error) = out.error {
                return Err(error);
            }
            worked |= self.leave_frames(lane_state, &mut *wire)?;
            wire.flush()?;
            drop(wire);
            let now = Instant::now();
            if !worked || now - handed_over > HANDED_OVER {
                self.work.hand_over(&mut leaving);
                handed_over = now;
            }
            if worked {
                lane_state.busy.fetch_add((now - before).as_nanos() as u64, Relaxed);
                policy.worked(now - last_work, turn.gave);
                last_work = now;
            } else {
                match if number < active { policy.next(now - last_work) } else { Now::Sleep } {
                    Now::Look => core::hint::spin_loop(),
                    Now::Yield => std::thread::yield_now(),
                    Now::Sleep => {
                        let turn = self.sleep(number, &mut lane, wires, &mut parked, next)?;
                        if turn.worked {
                            let now = Instant::now();
                            policy.worked(now - last_work, turn.gave);
                            last_work = now;
                        }
                    }
                }
            }
            before = Instant::now();
        }
        Ok(())
    }

    /// A frame arrived.
    fn frame(
        &self,
        number: usize,
        time: Time,
        lane: &mut Lane<View<'_>>,
        frame: &[u8],
        offload: Offload,
        met: &mut Met<'_>,
    ) {
        let Met { answers, leaving } = met;
        let checksums = if offload.checksum { Checksums::Device } else { Checksums::Software };
        match parse(frame, checksums) {
            Ok(Packet::Tcp(segment, at)) => {
                let payload = &frame[at..at + segment.payload as usize];
                let mut out =
                    Answers { applications: &self.applications, number, payload, answers };
                match lane.segment(time, &segment, &mut out) {
                    None => {
                        self.work.segment(leaving, payload.len(), || {
                            Work::Segment(segment, payload.to_vec())
                        });
                    }
                    Some((_, Left::NOTHING)) => {}
                    Some((slot, left)) => self.work.left(leaving, slot, left),
                }
            }
            Ok(Packet::TooBig { tuple, seq, mtu }) => {
                self.work.segment(leaving, 0, || Work::TooBig { tuple, seq, mtu });
            }
            Err(_) => {}
        }
    }

    /// Sends what the slow path wants sent.
    fn leave_frames<W: Wire>(&self, lane_state: &LaneState, wire: &mut W) -> io::Result<bool> {
        if !lane_state.some.load(Acquire) {
            return Ok(false);
        }
        let frames = {
            let mut frames = lane_state.frames.lock();
            lane_state.some.store(false, Release);
            core::mem::take(&mut *frames)
        };
        for frame in frames {
            // They are whole, and sealed. One that finds no room is lost, as on any wire.
            wire.send(frame.len(), Offload::default(), copied(&frame))?;
        }
        Ok(true)
    }

    /// Until a frame arrives, a rate allows something, or somebody rings. A thread that rings has
    /// published its work before, and is to be seen here after it has begun to park. Says what
    /// there was to do before, after all.
    fn sleep<W>(
        &self,
        number: usize,
        lane: &mut Lane<View<'_>>,
        wires: &Wires<W>,
        parked: &mut ParkSet<'_>,
        next: Option<Time>,
    ) -> io::Result<Turn> {
        let lane_state = &self.lane_states[number];
        lane_state.parker.begin();
        let turn = self.applications.turn(number, lane);
        if turn.for_slow_path {
            self.ask();
        }
        let quiet = self.applications.asleep(number);
        let idle = quiet
            && !turn.worked
            && !lane_state.some.load(Acquire)
            && self.shared.is_idle(number)
            && !self.stop.load(Acquire);
        let wait = next.map_or(LONGEST, |at| Duration::from_nanos(at.since(self.now())));
        let mut slept: io::Result<&[_]> = Ok(&[]);
        if idle && !wait.is_zero() {
            lane_state.parks.fetch_add(1, Relaxed);
            // (A change of the number of lanes rings.)
            slept = parked.sleep(wires, self.active(), wait.min(LONGEST));
        }
        self.applications.awake(number, slept.as_deref().unwrap_or_default());
        lane_state.parker.end();
        slept.map(|_| turn)
    }
}

/// The effects of frames, until all have been looked at.
struct Met<'a> {
    /// Wait until the wire can be sent on.
    answers: &'a mut Vec<(Option<FlowId>, Outgoing)>,
    leaving: &'a mut Leaving,
}

/// The answers to segments, while the wire is being read.
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
    fn place(&mut self, flow: FlowId, place: Place) -> u32 {
        self.applications.place(Some(self.number), flow, place, self.payload)
    }
    fn event(&mut self, flow: FlowId, event: Event) {
        self.applications.event(Some(self.number), flow, event);
    }
}

/// The output of a lane.
struct LaneOut<'a, A, W> {
    service: &'a Service<A>,
    number: usize,
    wire: &'a mut W,
    sent: usize,
    error: Option<io::Error>,
}

impl<A: Applications, W: Wire> Actions for LaneOut<'_, A, W> {
    fn send(&mut self, flow: Option<FlowId>, segment: &Outgoing) {
        let applications = &self.service.applications;
        let Some(link) = applications.link(segment.route) else { return };
        let headers = headers_len(segment);
        let len = segment.payload.len;
        let several = len > u32::from(segment.mss);
        let offers = self.wire.offers();
        let offload =
            Offload { checksum: offers.checksum, segment: several.then_some(segment.mss) };
        self.sent += 1;
        if let Some(flow) = flow
            && len >= GATHERED
            && offload.checksum
            && self.wire.gathers()
        {
            let (wire, error) = (&mut self.wire, &mut self.error);
            let lent = applications.lend(flow, segment.payload, &mut |payload| {
                let fill = |frame: &mut [u8]| _ = emit(segment, &link, frame);
                if let Err(failed) = wire.gather(headers, payload, offload, fill) {
                    error.get_or_insert(failed);
                }
            });
            if lent {
                return;
            }
        }
        let sent = self.wire.send(headers + len as usize, offload, |frame| {
            emit(segment, &link, frame);
            if let (1.., Some(flow)) = (len, flow)
                && !applications.fetch(flow, segment.payload, &mut frame[headers..])
            {
                return false;
            }
            if !offload.checksum {
                seal(frame);
            }
            true
        });
        if let Err(error) = sent {
            self.error.get_or_insert(error);
        }
    }
    fn place(&mut self, _: FlowId, _: Place) -> u32 {
        // (Nothing is received while it sends.)
        0
    }
    fn event(&mut self, flow: FlowId, event: Event) {
        self.service.applications.event(Some(self.number), flow, event);
    }
}
