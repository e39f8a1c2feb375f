//! Threads over wires: lanes of the fast path, each with a wire (a queue of a device) of its own,
//! and the slow path (TAS, 3.2).
//!
//! The slow path sleeps whenever it has nothing to do. It observes how idle the lanes are together,
//! and adds or takes away one (3.2.4): the wires of a lane that is taken away are served by the
//! others. (A device steers a connection to a queue; who looks at the queue is ours to say. So no
//! table of the device's has to be changed, which few virtual ones let one do.)

use crate::SharedFlows;
use crate::applications::Applications;
use crate::idle::Wait;
use crate::parker::Parker;
use crate::spin::Spin;
use crate::wires::Wires;
use crate::work::{Queue, Work};
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use core::time::Duration;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Instant;
use uncopy_tcp_proto::time::SECOND;
use uncopy_tcp_proto::{Config, FlowId, Time};
use uncopy_tcp_wire::Wire;
use uncopy_tcp_wire::steer::Steer;

/// Segments that are sent, or dealt with by the slow path, before others have their turn.
pub(crate) const BUDGET: usize = 64;
/// A lane without work for so long sleeps (TAS, 3.2.4).
pub const QUIET: Duration = Duration::from_millis(10);
/// No sleep is longer, so that clocks that jump harm nobody.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);

/// The part of a lane that others see, and where they leave work for it.
pub(crate) struct LaneState {
    pub parker: Parker,
    pub bell: OwnedFd,
    /// Frames of the slow path.
    pub frames: Spin<VecDeque<Vec<u8>>>,
    pub some: AtomicBool,
    /// Nanoseconds in which it had work.
    pub busy: AtomicU64,
    pub parks: AtomicU64,
}

/// A service: what its threads share. [`Service::run`] is their life.
pub struct Service<A> {
    pub(crate) shared: SharedFlows,
    pub(crate) applications: A,
    pub(crate) lane_states: Box<[LaneState]>,
    pub(crate) active: AtomicUsize,
    /// Lanes that run, at most.
    pub(crate) most: usize,
    /// Follow the load; else somebody else says how many lanes run.
    pub(crate) proportional: AtomicBool,
    pub(crate) stop: AtomicBool,
    pub(crate) wait: Wait,
    clock: Instant,
    pub(crate) work: Queue,
    inlet: Mutex<Option<Receiver<Vec<Work>>>>,
}

impl<A: Applications> Service<A> {
    /// For so many lanes at most; one of them runs at first.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(config: &Config, lanes: usize, applications: A) -> io::Result<Self> {
        let lane_states = (0..lanes).map(|_| {
            Ok(LaneState {
                parker: Parker::new(),
                bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
                frames: Spin::new(VecDeque::new()),
                some: AtomicBool::new(false),
                busy: AtomicU64::new(0),
                parks: AtomicU64::new(0),
            })
        });
        let (work, inlet) = Queue::new(config.flows);
        Ok(Service {
            shared: SharedFlows::new(config, lanes),
            applications,
            lane_states: lane_states.collect::<io::Result<_>>()?,
            active: AtomicUsize::new(1),
            most: lanes,
            proportional: AtomicBool::new(true),
            stop: AtomicBool::new(false),
            wait: Wait::For(QUIET),
            clock: Instant::now(),
            work,
            inlet: Mutex::new(Some(inlet)),
        })
    }

    /// Lanes wait so, instead of for [`QUIET`].
    pub fn waits(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// So many lanes run at most, whatever the load. (At least one does.)
    pub fn at_most(mut self, lanes: usize) -> Self {
        self.most = lanes.clamp(1, self.lane_states.len());
        self
    }

    /// The kernel is told which connections are the service's, and which are no more. (A listener
    /// is reported by itself.) There has to be room for as many as [`Config::flows`].
    pub fn steered_by(mut self, steer: Arc<Steer>) -> Self {
        self.shared.steered_by(steer);
        self
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
    pub fn parks(&self) -> u64 {
        self.lane_states.iter().map(|lane_state| lane_state.parks.load(Relaxed)).sum()
    }

    /// So many lanes run from now on, whatever the load, but not more than
    /// [`at_most`](Self::at_most) says.
    pub fn fix(&self, lanes: usize) {
        self.proportional.store(false, Relaxed);
        self.change(lanes.clamp(1, self.most));
    }

    /// Applications have something for the slow path, or know more ways.
    pub fn ask(&self) {
        self.work.turn();
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
        (0..self.lane_states.len()).for_each(|lane| self.ring(lane));
    }

    pub(crate) fn now(&self) -> Time {
        // Zero means "never" to some.
        Time(SECOND + self.clock.elapsed().as_nanos() as u64)
    }

    /// Wakes a lane, if it sleeps.
    pub(crate) fn ring(&self, lane: usize) {
        let lane_state = &self.lane_states[lane];
        if lane_state.parker.wake() {
            // It is full only if it was rung and not yet heard.
            let _ = rustix::io::write(&lane_state.bell, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn change(&self, lanes: usize) {
        if self.active.swap(lanes, Relaxed) != lanes {
            (0..self.lane_states.len()).for_each(|lane| self.ring(lane));
        }
    }

    /// Runs a lane for each of `wires`, and the slow path, until [`stop`](Self::stop) or until a
    /// wire fails.
    ///
    /// # Errors
    /// The first wire's that failed; no descriptor, or no thread, is left.
    pub fn run<W: Wire + Send>(&self, wires: Vec<W>) -> io::Result<()> {
        assert_eq!(wires.len(), self.lane_states.len(), "a wire for each lane");
        let inlet = self.inlet.lock().expect("nobody panics with it").take();
        let inlet = inlet.expect("a service runs once");
        let wires = Wires::new(wires)?;
        std::thread::scope(|scope| {
            let lanes: Vec<_> = (0..self.lane_states.len())
                .map(|number| {
                    let wires = &wires;
                    let thread = Builder::new().name(format!("uncopy-lane-{number}"));
                    let started = thread.spawn_scoped(scope, move || {
                        let result = self.lane(number, wires);
                        // The others cannot go on without it.
                        self.stop();
                        result
                    });
                    started.inspect_err(|_| self.stop())
                })
                .collect();
            self.slow(&inlet);
            lanes.into_iter().try_for_each(|lane| lane?.join().expect("a lane does not panic"))
        })
    }
}
