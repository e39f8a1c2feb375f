//! Where the bytes of one direction are: in the kernel's stream, or in the ring. Each direction switches by itself, at any time, and the
//! bytes stay in order, without counting them:
//!
//! ```text
//!            offer (all sent bytes are in the receiver's queue)        enter (that queue was found empty)
//!   Linux ------------------------------------------------> Offered ---------------------------------> Ring
//!     ^  <--------------------------------------------------   |                                        |
//!     |        withdraw (the ring's bytes are sent by Linux)                                            | leave
//!     +--------------------------------------------------- Leaving <------------------------------------+
//!            left (the ring was found empty)
//! ```
//!
//! `offer`, `withdraw` and `leave` are the sender's, `enter` and `left` the receiver's. While a phase is not the other's turn, its owner can
//! rely on it. In `Offered` the sender writes to the ring only, and everything in the kernel comes before it. Whoever is first decides whether
//! the receiver enters the ring or the sender has taken its bytes back. In `Leaving` the sender writes to the kernel's stream only,
//! and everything in the ring comes before it.

use crate::Poisoned;
use crate::sync::atomic::AtomicU32;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// Where a direction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum At {
    /// Both are at the kernel's stream.
    Linux = 0,
    /// The sender is at the ring, the receiver still at the kernel's stream.
    Offered = 1,
    /// Both are at the ring.
    Ring = 2,
    /// The sender is at the kernel's stream again, the receiver still at the ring.
    Leaving = 3,
}

/// The word.
#[repr(transparent)]
#[derive(Debug)]
pub struct Phase(AtomicU32);

impl Phase {
    /// A connection begins as Linux's.
    #[cfg(all(test, loom))]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Where it is. What the other side wrote before it made it so is seen.
    #[inline]
    pub fn at(&self) -> Result<At, Poisoned> {
        match self.0.load(Acquire) {
            0 => Ok(At::Linux),
            1 => Ok(At::Offered),
            2 => Ok(At::Ring),
            3 => Ok(At::Leaving),
            _ => Err(Poisoned),
        }
    }

    fn step(&self, from: At, to: At) -> bool {
        self.0.compare_exchange(from as u32, to as u32, AcqRel, Acquire).is_ok()
    }

    /// Sender, at `Linux`, with all that it ever sent in the receiver's queue: the ring begins.
    pub fn offer(&self) {
        self.0.store(At::Offered as u32, Release);
    }

    /// Sender, at `Offered`: what is in the ring was never there. False: the receiver has entered it.
    pub fn withdraw(&self) -> bool {
        self.step(At::Offered, At::Linux)
    }

    /// Sender, at `Ring`: the ring ends.
    pub fn leave(&self) -> bool {
        self.step(At::Ring, At::Leaving)
    }

    /// Receiver, at `Offered`, after it found the kernel's queue empty. False: the sender has withdrawn.
    pub fn enter(&self) -> bool {
        self.step(At::Offered, At::Ring)
    }

    /// Receiver, at `Leaving`, after it found the ring empty.
    pub fn left(&self) -> bool {
        self.step(At::Leaving, At::Linux)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_phase_is_poison() {
        for word in [4, 5, u32::MAX] {
            assert_eq!(Phase(AtomicU32::new(word)).at(), Err(Poisoned));
        }
    }

    #[test]
    fn only_the_first_of_enter_and_withdraw_succeeds() {
        let phase = Phase(AtomicU32::new(0));
        phase.offer();
        assert!(phase.withdraw() && !phase.enter());
        assert_eq!(phase.at(), Ok(At::Linux));
        phase.offer();
        assert!(phase.enter() && !phase.withdraw());
        assert!(phase.leave() && phase.left());
    }
}

/// Every order of the steps (`make loom`). What each test was seen to catch stands with it.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::ring::{Consumed, Produced, Reader, Writer};
    use loom::sync::atomic::AtomicU8;
    use loom::sync::atomic::Ordering::Relaxed;
    use loom::sync::{Arc, Mutex};
    use loom::thread;
    use std::collections::VecDeque;

    const SIZE: u32 = 4;

    struct Wire {
        linux: Mutex<VecDeque<u8>>,
        bytes: [AtomicU8; SIZE as usize],
        produced: Produced,
        consumed: Consumed,
        phase: Phase,
    }

    fn wire() -> Arc<Wire> {
        Arc::new(Wire {
            linux: Mutex::new(VecDeque::new()),
            bytes: core::array::from_fn(|_| AtomicU8::new(0)),
            produced: Produced::new(),
            consumed: Consumed::new(),
            phase: Phase::new(),
        })
    }

    fn put(w: &mut Writer<SIZE>, wire: &Wire, byte: u8) {
        w.look(&wire.consumed).unwrap();
        let s = w.reserve(1);
        assert_eq!(s.first, 1);
        wire.bytes[s.place as usize].store(byte, Relaxed);
        w.commit(&wire.produced, 1);
    }

    /// The sender's half of `uncopy-tcp-socket`: a byte by Linux.
    fn by_linux(w: &mut Writer<SIZE>, wire: &Wire, byte: u8) {
        match wire.phase.at().unwrap() {
            At::Offered if wire.phase.withdraw() => {
                w.look(&wire.consumed).unwrap();
                let s = w.unread(0);
                let mut linux = wire.linux.lock().unwrap();
                for p in (s.place..s.place + s.first).chain(0..s.second) {
                    linux.push_back(wire.bytes[p as usize].load(Relaxed));
                }
                drop(linux);
                w.take_back(&wire.produced);
            }
            At::Offered | At::Ring => assert!(wire.phase.leave()),
            At::Linux | At::Leaving => {}
        }
        wire.linux.lock().unwrap().push_back(byte);
    }

    /// A byte by the ring, if that can be begun.
    fn by_ring(w: &mut Writer<SIZE>, wire: &Wire, byte: u8) {
        match wire.phase.at().unwrap() {
            At::Linux => wire.phase.offer(),
            At::Leaving => return by_linux(w, wire, byte),
            At::Offered | At::Ring => {}
        }
        put(w, wire, byte);
    }

    fn receive(r: &mut Reader<SIZE>, wire: &Wire) -> Option<u8> {
        for _ in 0..4 {
            let at = wire.phase.at().unwrap();
            if matches!(at, At::Linux | At::Offered) {
                if let Some(byte) = wire.linux.lock().unwrap().pop_front() {
                    return Some(byte);
                }
                if at == At::Linux {
                    return None;
                }
                wire.phase.enter();
                continue;
            }
            r.look(&wire.produced).unwrap();
            let s = r.peek(0, 1);
            if s.first == 1 {
                let byte = wire.bytes[s.place as usize].load(Relaxed);
                r.release(&wire.consumed, 1);
                return Some(byte);
            }
            if at == At::Ring {
                return None;
            }
            wire.phase.left();
        }
        None
    }

    fn check(sends: &'static [fn(&mut Writer<SIZE>, &Wire, u8)], tries: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(move || {
            let shared = wire();
            let other = shared.clone();
            let sender = thread::spawn(move || {
                let mut w = Writer::<SIZE>::new(1);
                for (byte, send) in sends.iter().enumerate() {
                    send(&mut w, &other, byte as u8);
                }
            });
            let mut r = Reader::<SIZE>::new();
            let mut next = 0;
            for _ in 0..tries {
                if let Some(byte) = receive(&mut r, &shared) {
                    assert_eq!(byte, next);
                    next += 1;
                }
            }
            sender.join().unwrap();
            while let Some(byte) = receive(&mut r, &shared) {
                assert_eq!(byte, next);
                next += 1;
            }
            assert_eq!(next as usize, sends.len(), "bytes were lost");
        });
    }

    /// Caught: `left` without a look at the ring after the phase was seen; `withdraw` by a plain store.
    #[test]
    fn bytes_stay_in_order_from_linux_to_the_ring_and_back() {
        check(&[by_linux, by_ring, by_linux], 2);
    }

    /// Caught: `offer` while the receiver was still to leave the ring.
    #[test]
    fn an_offer_that_is_withdrawn_loses_and_doubles_nothing() {
        check(&[by_ring, by_linux, by_ring], 2);
    }

    /// Caught: bytes that were taken back left in the ring.
    #[test]
    fn the_ring_is_not_offered_anew_before_the_receiver_has_left_it() {
        check(&[by_ring, by_ring, by_linux, by_ring], 3);
    }
}
