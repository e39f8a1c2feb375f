//! The slow path on its thread (TAS, 3.2.2). It sleeps whenever it has nothing to do.

use crate::applications::{Applications, SlowOut};
use crate::proportion::{OBSERVED, wanted};
use crate::service::{BUDGET, LONGEST, Service};
use crate::work::Work;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::time::Instant;
use uncopy_tcp_proto::Time;
use uncopy_tcp_proto::segment::Flags;

/// Work that lanes leave of so many turns is dealt with before anything else has its turn.
const BATCHES: usize = 4;

impl<A: Applications> Service<A> {
    pub(crate) fn slow(&self, inlet: &Receiver<Vec<Work>>) {
        let mut endpoint = self.shared.slow_path();
        let mut busy = vec![0; self.lane_states.len()];
        let mut observed = Instant::now();
        // Applications have their first turn at once.
        let mut next = Some(self.now());
        let mut unsent = VecDeque::new();
        while !self.stop.load(Acquire) {
            let wait = next.map_or(LONGEST, |at: Time| Duration::from_nanos(at.since(self.now())));
            // While all lanes sleep there is nothing to observe.
            let awake = self.active() > 1 || busy[0] != self.lane_states[0].busy.load(Relaxed);
            let wait = if awake { wait.min(OBSERVED) } else { wait.min(LONGEST) };
            let first = inlet.recv_timeout(wait).ok();
            let time = self.now();
            let mut out = SlowOut {
                applications: &self.applications,
                payload: &[],
                frames: Vec::new(),
                unsent: &mut unsent,
                told: false,
            };
            out.send_rest();
            for work in first.into_iter().chain(inlet.try_iter().take(BATCHES)).flatten() {
                match work {
                    Work::Segment(segment, payload) => {
                        self.work.took_segment(payload.len());
                        let route = self.applications.route(segment.tuple.peer_ip);
                        let opens = segment.flags.any(Flags::SYN) && !segment.flags.any(Flags::ACK);
                        if opens && route.is_none() {
                            continue;
                        }
                        let route = route.unwrap_or(0);
                        let mut own = SlowOut {
                            applications: &self.applications,
                            payload: &payload,
                            frames: std::mem::take(&mut out.frames),
                            unsent: &mut *out.unsent,
                            told: out.told,
                        };
                        endpoint.segment(time, route, &segment, &mut own);
                        let SlowOut { frames, told, .. } = own;
                        (out.frames, out.told) = (frames, told);
                    }
                    Work::TooBig { tuple, seq, mtu } => {
                        self.work.took_segment(0);
                        endpoint.too_big(time, &tuple, seq, mtu);
                    }
                    Work::Left(slot) => {
                        endpoint.attend(time, slot, self.work.take_left(slot), &mut out);
                    }
                    Work::Turn => self.work.took_turn(),
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
            let told = out.told;
            if !out.frames.is_empty() {
                // Any lane can send them; the first one always runs.
                let mut frames = self.lane_states[0].frames.lock();
                frames.extend(out.frames);
                self.lane_states[0].some.store(true, Release);
            }
            for (number, lane_state) in self.lane_states.iter().enumerate() {
                // (A lane goes on with what applications were told.)
                if told || lane_state.some.load(Relaxed) || !self.shared.is_idle(number) {
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
            .lane_states
            .iter()
            .zip(busy)
            .map(|(lane_state, before)| {
                let now = lane_state.busy.load(Relaxed);
                let share = (now - *before) as f64 / time.as_nanos() as f64;
                *before = now;
                1.0 - share
            })
            .collect();
        if self.proportional.load(Relaxed) {
            self.change(wanted(active, self.most, idle.into_iter()));
        }
    }
}
