//! The calls of a service's threads to its applications, and what these may ask of them.

use crate::View;
use core::net::Ipv4Addr;
use rustix::event::epoll;
use rustix::fd::BorrowedFd;
use std::collections::VecDeque;
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::RingRange;
use uncopy_tcp_proto::wire::{Link, emit, headers_len, relink, seal};
use uncopy_tcp_proto::{Actions, Endpoint, Event, FlowId, Lane, Outgoing, Refusal, Time};
use uncopy_tcp_wire::{PIECES, Piece};

/// Frames that wait until it is known where they go: as many as a host asks for in the second that
/// a neighbour takes at most. The oldest goes first: it will be sent again.
const UNSENT: usize = 256;

/// The applications of a service, as its threads see them.
pub trait Applications: Sync {
    /// A lane begins to take what has arrived. Its [`turn`](Self::turn) follows.
    fn begins(&self, _lane: usize) {}

    /// Copies `payload`, without the bytes that are to be left out at its front, to its place in
    /// the flow's receive buffer; how many of these were taken (see [`Actions::place`]). A lane has
    /// received it, or the slow path (none). The flow is held. Bytes in order are reported by
    /// [`Event::Readable`] next, before anything else of this flow.
    fn place(&self, lane: Option<usize>, flow: FlowId, place: Place, payload: &[u8]) -> u32;

    /// Copies a range of the flow's send buffer. False: it cannot be read, and its frame does not
    /// leave; ending the flow is the application's matter. (The bytes that `to` held before are
    /// somebody else's.)
    fn fetch(&self, flow: FlowId, range: RingRange, to: &mut [u8]) -> bool;

    /// Hands a range of the flow's send buffer to `with`, where it lies. False: it did not, and the
    /// range is to be fetched.
    fn lend(
        &self,
        _flow: FlowId,
        _range: RingRange,
        _with: &mut dyn FnMut(&[Piece<'_>; PIECES]),
    ) -> bool {
        false
    }

    /// Something happened, seen by a lane, or by the slow path (none). The flow is held: this
    /// counts, and does not ask for more.
    fn event(&self, lane: Option<usize>, flow: FlowId, event: Event);

    /// Does what applications ask of this lane.
    fn turn(&self, lane: usize, calls: &mut dyn Calls) -> Turn;

    /// Does what applications ask of the slow path, and what lanes could not do for them. True if
    /// that was something.
    fn slow_turn(
        &self,
        time: Time,
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) -> bool
    where
        Self: Sized;

    /// The number of the way to a peer. None: there is none, or nobody who may connect sends from
    /// there.
    fn route(&self, _peer: Ipv4Addr) -> Option<u16> {
        Some(0)
    }

    /// The hardware addresses of a way. None: they are not known now. Frames that the slow path
    /// sends there wait until [`Service::ask`](crate::Service::ask) says that more may be known;
    /// frames that lanes send are lost, as on any wire.
    fn link(&self, route: u16) -> Option<Link>;

    /// A set of the kernel's (epoll) in which a lane sleeps, and which has what wakes it besides
    /// its wires; and a name in it for what is the lane's. None: nothing else wakes it.
    fn park_set(&self, _lane: usize) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }

    /// Whether a lane may sleep. From here on until [`awake`](Self::awake) whoever has something
    /// for it wakes its set.
    fn asleep(&self, _lane: usize) -> bool {
        true
    }

    /// The lane does not sleep any more. `said`: what its set has said, the lane's own among it.
    fn awake(&self, _lane: usize, _said: &[epoll::Event]) {}
}

/// The work that there was for a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Something.
    pub worked: bool,
    /// Somebody on this host was given something, who may answer soon.
    pub gave: bool,
    /// Something that the slow path has to do.
    pub for_slow_path: bool,
}

/// Reading and writing, as the fast path has it.
pub trait Calls {
    /// See [`Lane::read`].
    fn read(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal>;
    /// See [`Lane::write`].
    fn write(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal>;
    /// See [`Lane::resize`].
    fn resize(&mut self, flow: FlowId, bits: u8) -> Result<(), Refusal>;
    /// See [`Lane::forget_early`].
    fn forget_early(&mut self, flow: FlowId, gone: &mut dyn FnMut());
    /// See [`Lane::round_trip`].
    fn round_trip(&mut self, flow: FlowId) -> u32;
}

impl Calls for Lane<View<'_>> {
    fn read(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal> {
        Lane::read(self, flow, n)
    }
    fn write(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal> {
        Lane::write(self, flow, n)
    }
    fn resize(&mut self, flow: FlowId, bits: u8) -> Result<(), Refusal> {
        Lane::resize(self, flow, bits)
    }
    fn forget_early(&mut self, flow: FlowId, gone: &mut dyn FnMut()) {
        Lane::forget_early(self, flow, gone);
    }
    fn round_trip(&mut self, flow: FlowId) -> u32 {
        Lane::round_trip(self, flow)
    }
}

/// The slow path's output: frames that a lane takes along.
pub struct SlowOut<'a, A> {
    pub(crate) applications: &'a A,
    pub(crate) payload: &'a [u8],
    pub(crate) frames: Vec<Vec<u8>>,
    /// Frames that wait until it is known where their way leads.
    pub(crate) unsent: &'a mut VecDeque<(u16, Vec<u8>)>,
    /// An application was told something.
    pub(crate) told: bool,
}

impl<A: Applications> SlowOut<'_, A> {
    /// Sends the frames that waited.
    pub(crate) fn send_rest(&mut self) {
        for _ in 0..self.unsent.len() {
            let Some((route, mut frame)) = self.unsent.pop_front() else { return };
            match self.applications.link(route) {
                Some(link) => {
                    relink(&link, &mut frame);
                    self.frames.push(frame);
                }
                None => self.unsent.push_back((route, frame)),
            }
        }
    }
}

impl<A: Applications> Actions for SlowOut<'_, A> {
    fn send(&mut self, flow: Option<FlowId>, segment: &Outgoing) {
        debug_assert!(segment.payload.len <= segment.mss.into(), "no wire cuts it");
        let headers = headers_len(segment);
        let mut frame = vec![0; headers + segment.payload.len as usize];
        let link = self.applications.link(segment.route);
        let known = link.is_some();
        emit(segment, &link.unwrap_or(Link { local: [0; 6], peer: [0; 6] }), &mut frame);
        if let (1.., Some(flow)) = (segment.payload.len, flow)
            && !self.applications.fetch(flow, segment.payload, &mut frame[headers..])
        {
            return;
        }
        seal(&mut frame);
        if known {
            self.frames.push(frame);
        } else {
            if self.unsent.len() == UNSENT {
                self.unsent.pop_front();
            }
            self.unsent.push_back((segment.route, frame));
        }
    }
    fn place(&mut self, flow: FlowId, place: Place) -> u32 {
        self.applications.place(None, flow, place, self.payload)
    }
    fn event(&mut self, flow: FlowId, event: Event) {
        self.told = true;
        self.applications.event(None, flow, event);
    }
}
