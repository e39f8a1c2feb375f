//! Events, in the order of time; those at the same time, in the order in which they were noted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The packet of this number arrives behind its link.
    Packet(u32),
    /// The next flow of this list begins.
    Start(u32),
    /// Queues are looked at.
    Sample,
    /// Each flow's bytes are noted.
    Shares,
}

/// The numbers of packets and lists have 30 bits.
const KIND: u32 = 30;

/// Entries are small: time, and number of the entry before what happens.
#[derive(Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    count: u32,
}

impl Events {
    pub fn push(&mut self, time: u64, event: Event) {
        let word = match event {
            Event::Packet(n) => n,
            Event::Start(n) => 1 << KIND | n,
            Event::Sample => 2 << KIND,
            Event::Shares => 3 << KIND,
        };
        // Four thousand million events later a tie would be decided otherwise; as long as they
        // aren't of the same time, none is.
        self.heap.push(Reverse((time, u64::from(self.count) << 32 | u64::from(word))));
        self.count = self.count.wrapping_add(1);
    }

    pub fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((time, _))| *time)
    }

    pub fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse((time, word)) = self.heap.pop()?;
        let word = word as u32;
        let n = word & ((1 << KIND) - 1);
        let event = match word >> KIND {
            0 => Event::Packet(n),
            1 => Event::Start(n),
            2 => Event::Sample,
            _ => Event::Shares,
        };
        Some((time, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_ties_as_they_were_noted() {
        let mut events = Events::default();
        for (time, event) in
            [(5, Event::Sample), (3, Event::Packet(7)), (5, Event::Start(0)), (3, Event::Packet(2))]
        {
            events.push(time, event);
        }
        let all: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        let want = [
            (3, Event::Packet(7)),
            (3, Event::Packet(2)),
            (5, Event::Sample),
            (5, Event::Start(0)),
        ];
        assert_eq!(all, want);
    }
}
