//! Blocks whose bytes nobody receives any more, because both sides close: the consumer gives back
//! what it has not received, but it does not see what the producer puts there at that moment; that
//! the producer takes back. The side that closes last sees to all that is left, by one word that
//! both change.

use crate::sync::atomic::AtomicU32;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

const CONSUMER: u32 = 1;
const PRODUCER: u32 = 2;

/// The words of a direction.
#[repr(C)]
#[derive(Debug)]
pub struct Closed {
    who: AtomicU32,
    at: AtomicU32,
}

impl Closed {
    /// Nobody has.
    #[cfg(all(test, loom))]
    pub fn new() -> Self {
        Self { who: AtomicU32::new(0), at: AtomicU32::new(0) }
    }

    /// Consumer: it has given back what lies before this position, and looks no more. True: neither
    /// does the producer, who has put there all that it ever did. So what lies behind it is the
    /// consumer's to give back, too.
    #[must_use]
    pub fn consumer_closes(&self, at: u32) -> bool {
        self.at.store(at, Relaxed);
        self.who.fetch_or(CONSUMER, AcqRel) & PRODUCER != 0
    }

    /// Producer: it puts nothing there any more, and looks no more. As below.
    #[must_use]
    pub fn producer_closes(&self) -> Option<u32> {
        let who = self.who.fetch_or(PRODUCER, AcqRel);
        (who & CONSUMER != 0).then(|| self.at.load(Relaxed))
    }

    /// Producer: what lies behind this position, now and later, is its own to take back.
    #[must_use]
    pub fn consumer_has(&self) -> Option<u32> {
        (self.who.load(Acquire) & CONSUMER != 0).then(|| self.at.load(Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_side_that_closes_last_sees_to_what_is_left() {
        let closed = || Closed { who: AtomicU32::new(0), at: AtomicU32::new(0) };
        let first = closed();
        assert_eq!(first.consumer_has(), None);
        assert!(!first.consumer_closes(7));
        assert_eq!((first.consumer_has(), first.producer_closes()), (Some(7), Some(7)));
        let last = closed();
        assert_eq!(last.producer_closes(), None);
        assert!(last.consumer_closes(9));
    }
}

/// Every order of the steps (`make loom`). Each test says what it was seen to catch.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::ring::{Consumed, Produced, Reader, Writer};
    use crate::runs::{Incoming, Outgoing, Queue, Run};
    use loom::sync::Arc;
    use loom::thread;
    use std::sync::atomic::AtomicU32 as Count;
    use std::sync::atomic::Ordering::SeqCst;

    const SIZE: u32 = 4;

    struct Fixture {
        produced: Produced,
        consumed: Consumed,
        queue: Queue,
        closed: Closed,
        /// How often each run was given back, and taken back.
        back: [Count; 3],
    }

    /// Caught: a flag that the consumer stores after its last look and the producer loads; the
    /// word changed relaxed.
    #[test]
    fn a_block_that_nobody_receives_comes_back_once() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new(Fixture {
                produced: Produced::new(),
                consumed: Consumed::new(),
                queue: Queue::new(),
                closed: Closed::new(),
                back: core::array::from_fn(|_| Count::new(0)),
            });
            let other = shared.clone();
            let producer = thread::spawn(move || {
                let Fixture { produced, queue, closed, back, .. } = &*other;
                let (mut w, mut out) = (Writer::<SIZE>::new(0), Outgoing::new());
                let taken_back = |run: Run| {
                    back[usize::from(run.handle)].fetch_add(1, SeqCst);
                };
                for i in 0..3 {
                    if let Some(at) = closed.consumer_has() {
                        out.take_back(queue, at, taken_back);
                        break;
                    }
                    let position = w.tail();
                    let run = Run { position, bytes: 1, at: 0, arena: 0, handle: i };
                    out.push(queue, produced, run);
                    w.commit(produced, 1);
                }
                let put = w.tail();
                if let Some(at) = closed.producer_closes() {
                    out.take_back(queue, at, taken_back);
                }
                put
            });
            let Fixture { produced, consumed, queue, closed, back } = &*shared;
            let (mut r, mut inc) = (Reader::<SIZE>::new(), Incoming::new());
            let mut gives_back = || {
                r.look(produced).unwrap();
                inc.look(produced);
                let (head, unread) = (r.head(), r.filled());
                inc.consume(queue, head, unread, |run| {
                    back[usize::from(run.handle)].fetch_add(1, SeqCst);
                });
                r.release(consumed, unread);
                r.head()
            };
            let at = gives_back();
            if closed.consumer_closes(at) {
                gives_back();
            }
            let put = producer.join().unwrap() as usize;
            for (i, back) in back.iter().enumerate() {
                assert_eq!(back.load(SeqCst), u32::from(i < put), "run {i} of {put}");
            }
        });
    }
}
