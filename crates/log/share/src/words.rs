//! How far a held file is: three places in it, which only grow.
//!
//! ```text
//!   durable <= home <= end
//! ```
//!
//! - `end`: behind the last byte that the program has appended. It is an append's only commit word:
//!   bytes up to it are as written to whoever reads it, and what lies behind it is nothing.
//! - `home`: bytes up to it are in the file, as far as the kernel is concerned.
//! - `durable`: bytes up to it are on the file's disk.
//!
//! The program that holds the file writes `end`, from one of its threads at a time. The service
//! writes `home`. Either may say what became durable. The service ends appending by one bit in
//! `end` ([`Words::close`]): from then on no append is published, and the program has to wait until
//! the file is plain. So it never waits for a program, which may be stopped.

use crate::sync::atomic::{AtomicU64, Ordering};

/// In `end`: nothing is appended any more. (No file is so long: `loff_t` has a sign.)
const CLOSED: u64 = 1 << 63;

/// See the module.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Words {
    end: AtomicU64,
    // (Lines of their own: the program writes one, the service the others.)
    _line: [u64; 7],
    home: AtomicU64,
    durable: AtomicU64,
}

/// The two states of `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// So far was appended, and more may be.
    Open(u64),
    /// So far was appended; the file becomes plain, or is.
    Closed(u64),
}

impl End {
    /// How far was appended.
    pub fn at(self) -> u64 {
        match self {
            Self::Open(at) | Self::Closed(at) => at,
        }
    }
}

impl Default for Words {
    fn default() -> Self {
        Self::new()
    }
}

impl Words {
    /// Of no file: closed.
    pub fn new() -> Self {
        Self {
            end: AtomicU64::new(CLOSED),
            _line: [0; 7],
            home: AtomicU64::new(0),
            durable: AtomicU64::new(0),
        }
    }

    /// Service: a file of `size` bytes is held from now on, of which nobody knows what is durable.
    pub fn begin(&self, size: u64) {
        self.home.store(size, Ordering::Relaxed);
        self.durable.store(0, Ordering::Relaxed);
        self.end.store(size & !CLOSED, Ordering::Release);
    }

    /// How far was appended.
    pub fn end(&self) -> End {
        let end = self.end.load(Ordering::Acquire);
        if end & CLOSED == 0 { End::Open(end) } else { End::Closed(end & !CLOSED) }
    }

    /// How far the file has its bytes. Bytes that lie `ring` bytes before may be written over.
    pub fn home(&self) -> u64 {
        self.home.load(Ordering::Acquire)
    }

    /// How far the file's bytes are durable.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Program, one thread at a time: bytes `from..to` are appended, which are in the ring. False:
    /// they are not; appending has ended.
    #[must_use]
    pub fn publish(&self, from: u64, to: u64) -> bool {
        self.end.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Nothing is appended from now on. Returns how far it was.
    pub fn close(&self) -> u64 {
        self.end.fetch_or(CLOSED, Ordering::AcqRel) & !CLOSED
    }

    /// For the process that brings bytes home: the file has them up to `to`.
    pub fn homed(&self, to: u64) {
        self.home.store(to, Ordering::Release);
    }

    /// For the process that synced the file after it had its bytes up to `to`: they are durable.
    pub fn synced(&self, to: u64) {
        self.durable.fetch_max(to, Ordering::AcqRel);
    }
}

/// Every order of the two's steps (`make loom`). The faults that each test was seen to catch stand
/// with it.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// A ring of so many bytes.
    const RING: u64 = 2;

    struct Fixture {
        words: Words,
        ring: [UnsafeCell<u64>; RING as usize],
    }

    // SAFETY: the words say who uses which byte; loom reports where two do.
    unsafe impl Sync for Fixture {}
    // SAFETY: as above.
    unsafe impl Send for Fixture {}

    fn shared() -> Arc<Fixture> {
        let words = Words::new();
        words.begin(0);
        Arc::new(Fixture { words, ring: [const { 0 }; RING as usize].map(UnsafeCell::new) })
    }

    impl Fixture {
        /// Appends bytes, which are their own places, as far as there is room. Returns how far.
        fn append(&self, bytes: u64) -> u64 {
            let mut at = 0;
            while at < bytes {
                if at - self.words.home() == RING {
                    thread::yield_now();
                    if let End::Closed(_) = self.words.end() {
                        return at;
                    }
                    continue;
                }
                // SAFETY: not yet published, and what was there is home.
                self.ring[(at % RING) as usize].with_mut(|byte| unsafe { *byte = at });
                if !self.words.publish(at, at + 1) {
                    return at;
                }
                at += 1;
            }
            at
        }

        /// Brings home what there is, up to `end`.
        fn bring(&self, end: u64, file: &mut Vec<u64>) {
            for at in self.words.home()..end {
                // SAFETY: published, and not yet home.
                self.ring[(at % RING) as usize].with(|byte| file.push(unsafe { *byte }));
                self.words.homed(at + 1);
            }
        }
    }

    /// Caught: `publish` without release (a byte that is read before it is written); `homed`
    /// without release, or `home` without acquire (a byte that is written over while it is read);
    /// `close` as a load and a store (a byte that was published after the service had read `end`,
    /// and is lost).
    #[test]
    fn what_was_appended_before_the_end_comes_home_and_nothing_else() {
        loom::model(|| {
            let here = shared();
            let there = here.clone();
            let program = thread::spawn(move || there.append(3));
            let mut file = Vec::new();
            here.bring(here.words.end().at(), &mut file);
            let end = here.words.close();
            here.bring(end, &mut file);
            let appended = program.join().unwrap();
            assert_eq!(file, (0..appended).collect::<Vec<_>>());
            assert_eq!(here.words.end(), End::Closed(appended));
        });
    }

    /// Caught: `synced` as a store (the older of two syncs takes back what the other has said).
    #[test]
    fn of_two_that_sync_the_one_that_saw_more_counts() {
        loom::model(|| {
            let here = shared();
            let there = here.clone();
            let other = thread::spawn(move || there.words.synced(1));
            here.words.synced(2);
            other.join().unwrap();
            assert_eq!(here.words.durable(), 2);
        });
    }
}
