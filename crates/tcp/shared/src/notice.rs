//! Which of a region's connections have news for one door, as bits. A bit says no more than "look
//! there": setting one twice, or for no reason, does no harm, and nothing overflows.

use crate::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use crate::sync::atomic::{AtomicU32, AtomicU64, fence};

/// Slots of a region: the bits of a notice are one cache line's.
pub const SLOTS: usize = 256;

const WORDS: usize = SLOTS / 64;

/// The bits, whether somebody sleeps over them, and when the door was knocked at first without a
/// bit. One cache line.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Notice {
    bits: [AtomicU64; WORDS],
    asleep: AtomicU32,
    woken: AtomicU64,
}

impl Notice {
    /// No news.
    #[cfg(all(test, loom))]
    pub fn new() -> Self {
        let bits = core::array::from_fn(|_| AtomicU64::new(0));
        Self { bits, asleep: AtomicU32::new(0), woken: AtomicU64::new(0) }
    }

    /// The other side: there is news of this slot. True: knock at the door.
    #[inline]
    pub fn post(&self, slot: usize) -> bool {
        self.bits[slot / 64 % WORDS].fetch_or(1 << (slot % 64), AcqRel);
        fence(SeqCst);
        self.asleep.load(Relaxed) != 0 && self.asleep.swap(0, AcqRel) != 0
    }

    /// Takes the news: calls `slot` for each. False: there was none.
    #[inline]
    pub fn collect(&self, mut slot: impl FnMut(usize)) -> bool {
        let mut any = false;
        for (i, word) in self.bits.iter().enumerate() {
            if word.load(Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, AcqRel);
            any |= bits != 0;
            while bits != 0 {
                slot(i * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
        any
    }

    /// There is news.
    #[inline]
    pub fn any(&self) -> bool {
        self.bits.iter().any(|word| word.load(Relaxed) != 0)
    }

    /// The other side: it is `now` (not 0), and the door is about to be knocked at, whatever is
    /// posted.
    #[inline]
    pub fn wakes(&self, now: u64) {
        let _ = self.woken.compare_exchange(0, now, Relaxed, Relaxed);
    }

    /// When it was so first, since this was taken last.
    pub fn woken(&self) -> Option<u64> {
        Some(self.woken.load(Relaxed)).filter(|&woken| woken != 0)
    }

    /// The same, and what is so from now on is the first.
    pub fn take_woken(&self) -> Option<u64> {
        self.woken().is_some().then(|| self.woken.swap(0, Relaxed))
    }

    /// From now on the door is knocked at. Look once more after it.
    pub fn falls_asleep(&self) {
        self.asleep.store(1, Relaxed);
        fence(SeqCst);
    }

    /// It need not be any more.
    pub fn is_awake(&self) {
        self.asleep.store(0, Relaxed);
    }
}
