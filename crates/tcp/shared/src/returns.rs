//! Bytes of blocks that the receiver is done with: for each handle so many, in any order, by any of
//! its threads and processes. The sender looks at those of which there is news, and has a block
//! back once it is all of it.

use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU32, AtomicU64};
pub use uncopy_tcp_blocks::out::HANDLES;

#[cfg(not(all(loom, test)))]
const COUNT: usize = HANDLES;
#[cfg(all(loom, test))]
const COUNT: usize = 2;
const WORDS: usize = COUNT.div_ceil(64);

/// The words: those of what one side has given, which the other side writes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Returns {
    news: [AtomicU64; WORDS],
    done: [AtomicU32; COUNT],
}

impl Returns {
    /// Nothing was given back.
    #[cfg(all(test, loom))]
    pub fn new() -> Self {
        Self {
            news: core::array::from_fn(|_| AtomicU64::new(0)),
            done: core::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// The sender: this handle is a new block's.
    pub fn begin(&self, handle: u16) {
        self.done[usize::from(handle) % COUNT].store(0, Relaxed);
    }

    /// The receiver is done with so many bytes of it.
    #[inline]
    pub fn done(&self, handle: u16, bytes: u32) {
        let handle = usize::from(handle) % COUNT;
        self.done[handle].fetch_add(bytes, Release);
        self.news[handle / 64].fetch_or(1 << (handle % 64), Release);
    }

    /// The sender: calls `each` with the handles of which there is news, and how many bytes are
    /// done with of each, in all.
    #[inline]
    pub fn collect(&self, mut each: impl FnMut(u16, u32)) {
        for (i, word) in self.news.iter().enumerate() {
            if word.load(Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, AcqRel);
            while bits != 0 {
                let handle = i * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if let Some(done) = self.done.get(handle) {
                    each(handle as u16, done.load(Acquire));
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_done_with_in_parts_is_told_in_all() {
        // SAFETY: atomics of integers; zero is a value of each.
        let returns: Box<Returns> = unsafe { Box::new(core::mem::zeroed()) };
        let collect = || {
            let mut all = vec![];
            returns.collect(|handle, bytes| all.push((handle, bytes)));
            all
        };
        returns.done(3, 10);
        returns.done(511, 7);
        returns.done(3, 5);
        assert_eq!(collect(), [(3, 15), (511, 7)]);
        assert_eq!(collect(), []);
        returns.done(3, 1);
        assert_eq!(collect(), [(3, 16)]);
        returns.begin(3);
        returns.done(3, 2);
        assert_eq!(collect(), [(3, 2)]);
        // Another program may say anything: there is no such handle, and nothing is outside.
        returns.done(u16::MAX, 1);
        assert_eq!(collect().len(), 1);
    }
}

/// Every order of the steps (`make loom`). Each test says what it was seen to catch.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    struct Fixture {
        returns: Returns,
        block: UnsafeCell<u8>,
    }
    // SAFETY: the receiver that has given all back uses it no more; loom reports where it is
    // otherwise.
    unsafe impl Sync for Fixture {}
    // SAFETY: as above.
    unsafe impl Send for Fixture {}

    /// Caught: `done` added relaxed; its news set relaxed.
    #[test]
    fn a_block_is_written_anew_only_when_nobody_reads_it() {
        loom::model(|| {
            let shared = Arc::new(Fixture { returns: Returns::new(), block: UnsafeCell::new(7) });
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let shared = shared.clone();
                    thread::spawn(move || {
                        // SAFETY: loom reports a writer.
                        assert_eq!(shared.block.with(|b| unsafe { *b }), 7);
                        shared.returns.done(1, 50);
                    })
                })
                .collect();
            let collect = || {
                let mut back = false;
                shared.returns.collect(|handle, done| {
                    assert!(handle == 1 && done <= 100);
                    back |= done == 100;
                });
                if back {
                    // SAFETY: loom reports a reader.
                    shared.block.with_mut(|b| unsafe { *b = 8 });
                }
                back
            };
            let before = collect();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            assert!(before || collect(), "it never came back");
        });
    }
}
