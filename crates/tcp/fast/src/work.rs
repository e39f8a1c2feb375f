//! Work that lanes leave to the slow path, and applications ask of it. A lane hands over all of a
//! turn at once, when it has sent: the slow path's thread sleeps, and often has the same processor;
//! woken for each, it would put the lane aside each time (with 1,000 connections over AF_XDP that
//! was a third of the lane's rate). A flood of segments makes that path late, and takes no memory:
//! of segments so many wait at most, and those beyond are lost, as on any wire; that something is
//! left of a flow, or that applications have asked, waits once.

use core::sync::atomic::Ordering::AcqRel;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};
use std::sync::mpsc::{Receiver, Sender, channel};
use uncopy_tcp_proto::segment::Tuple;
use uncopy_tcp_proto::{Left, Segment, Seq};

/// Segments that may wait, where there are few flows. Else it is one of each, as in a wire's ring:
/// all may connect at once.
const SEGMENTS: usize = 2048;
/// Bytes of payload for which a segment counts as one; one that the wire has joined counts as
/// several.
const SEGMENT: usize = 2048;

/// As how many a segment with so many bytes counts.
fn count(bytes: usize) -> usize {
    1 + bytes / SEGMENT
}

/// A thing to be done.
pub(crate) enum Work {
    Segment(Segment, Vec<u8>),
    TooBig {
        tuple: Tuple,
        seq: Seq,
        mtu: u16,
    },
    /// Of this slot's flow something is left: [`Queue::take_left`].
    Left(u32),
    /// Applications have asked, or know more.
    Turn,
}

/// The work that a lane leaves of its turn.
#[derive(Default)]
pub(crate) struct Leaving(Vec<Work>);

/// See the module.
pub(crate) struct Queue {
    to: Sender<Vec<Work>>,
    segments: AtomicUsize,
    most: usize,
    left: Box<[AtomicU8]>,
    asked: AtomicBool,
}

impl Queue {
    /// For so many flows; and where the slow path takes from.
    pub fn new(flows: usize) -> (Self, Receiver<Vec<Work>>) {
        let (to, from) = channel();
        let queue = Self {
            to,
            segments: AtomicUsize::new(0),
            most: flows.max(SEGMENTS),
            left: (0..flows).map(|_| AtomicU8::new(0)).collect(),
            asked: AtomicBool::new(false),
        };
        (queue, from)
    }

    // (The receiver lives as long as the service runs; before and behind, nobody is to be told.)

    /// A segment with so many bytes of payload, or what a router says of one. Lost, where too many
    /// wait.
    pub fn segment(&self, leaving: &mut Leaving, bytes: usize, work: impl FnOnce() -> Work) {
        let count = count(bytes);
        if self.segments.fetch_add(count, AcqRel) + count > self.most {
            self.took_segment(bytes);
            return;
        }
        leaving.0.push(work());
    }

    /// The slow path has taken one, of so many bytes.
    pub fn took_segment(&self, bytes: usize) {
        self.segments.fetch_sub(count(bytes), AcqRel);
    }

    /// This is left of a flow.
    pub fn left(&self, leaving: &mut Leaving, slot: u32, left: Left) {
        if self.left[slot as usize].fetch_or(left.bits(), AcqRel) == 0 {
            leaving.0.push(Work::Left(slot));
        }
    }

    /// Hands over what a lane has left.
    pub fn hand_over(&self, leaving: &mut Leaving) {
        if !leaving.0.is_empty() {
            let _ = self.to.send(core::mem::take(&mut leaving.0));
        }
    }

    /// The rest of it, all in all.
    pub fn take_left(&self, slot: u32) -> Left {
        Left::of(self.left[slot as usize].swap(0, AcqRel))
    }

    /// Applications have published what they ask.
    pub fn turn(&self) {
        if !self.asked.swap(true, AcqRel) {
            let _ = self.to.send(vec![Work::Turn]);
        }
    }

    /// The slow path looks at that after this.
    pub fn took_turn(&self) {
        self.asked.swap(false, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn segment() -> Work {
        let ip = Ipv4Addr::LOCALHOST;
        let tuple = Tuple { local_ip: ip, local_port: 1, peer_ip: ip, peer_port: 2 };
        Work::TooBig { tuple, seq: Seq(0), mtu: 1500 }
    }

    #[test]
    fn of_a_flood_of_segments_so_many_wait_and_those_after_it_have_room_again() {
        let (queue, from) = Queue::new(3000);
        let mut leaving = Leaving::default();
        // A frame that the wire has joined counts as the segments that it was made of.
        for (bytes, count) in [(0, 3000), (1448, 3000), (60_000, 3000 / 30)] {
            (0..100_000).for_each(|_| queue.segment(&mut leaving, bytes, segment));
            queue.hand_over(&mut leaving);
            let took = from.try_iter().flatten().inspect(|_| queue.took_segment(bytes));
            assert_eq!(took.count(), count);
        }
        queue.segment(&mut leaving, 0, segment);
        queue.hand_over(&mut leaving);
        assert_eq!(from.try_iter().flatten().count(), 1);
    }

    #[test]
    fn work_that_is_left_of_a_flow_again_and_again_waits_once_with_all_that_it_is() {
        let (queue, from) = Queue::new(2);
        let mut leaving = Leaving::default();
        for _ in 0..1000 {
            queue.left(&mut leaving, 1, Left::LATE);
            queue.left(&mut leaving, 1, Left::FINS);
        }
        assert!(from.try_recv().is_err(), "the lane is not done");
        queue.hand_over(&mut leaving);
        let works: Vec<Work> = from.try_iter().flatten().collect();
        assert!(matches!(works[..], [Work::Left(1)]));
        assert_eq!(queue.take_left(1), Left::LATE.with(Left::FINS));
        queue.left(&mut leaving, 1, Left::WATCH);
        queue.hand_over(&mut leaving);
        assert!(matches!(from.try_recv().as_deref(), Ok([Work::Left(1)])));
        assert_eq!(queue.take_left(1), Left::WATCH);
    }

    #[test]
    fn work_that_a_lane_leaves_of_a_turn_wakes_the_slow_path_once() {
        let (queue, from) = Queue::new(9);
        let mut leaving = Leaving::default();
        (0..9).for_each(|slot| queue.left(&mut leaving, slot, Left::WATCH));
        queue.segment(&mut leaving, 0, segment);
        queue.hand_over(&mut leaving);
        queue.hand_over(&mut leaving);
        assert_eq!(from.try_iter().map(|works| works.len()).collect::<Vec<_>>(), [10]);
    }

    #[test]
    fn applications_that_ask_before_they_were_looked_at_wait_once() {
        let (queue, from) = Queue::new(1);
        (0..10).for_each(|_| queue.turn());
        assert_eq!(from.try_iter().flatten().count(), 1);
        queue.took_turn();
        queue.turn();
        assert_eq!(from.try_iter().flatten().count(), 1);
    }
}
