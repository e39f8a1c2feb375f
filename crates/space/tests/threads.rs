//! The lock, the gate and the filter among real threads, for tools that watch memory accesses
//! (`make tsan`): calls that may be left out, calls that may not, forks, and one who stands down at
//! the end. The orders that loom tries exhaustively for two threads run here in part for many.

// Unsafe: the cell that the gate guards.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use uncopy_ranges::filter::Filter;
use uncopy_ranges::span::Span;
use uncopy_space::gate::{Gate, RUNNING, SERVING};

static GATE: Gate = Gate::new();
static FILTER: Filter = Filter::new();
static OVER: AtomicBool = AtomicBool::new(false);

struct Books(UnsafeCell<u64>);
// SAFETY: reached with the gate's lock, or while it is frozen.
unsafe impl Sync for Books {}
static BOOKS: Books = Books(UnsafeCell::new(0));

fn change() {
    // SAFETY: called with the gate's lock held.
    unsafe { *BOOKS.0.get() += 1 };
}

#[test]
fn nobody_changes_the_books_without_the_lock_or_during_a_fork() {
    const ROUNDS: u64 = 3000;
    let stays = Span::sized(0x10_0000, 4096);
    GATE.set_state(RUNNING);
    FILTER.track(stays);
    let changed: u64 = thread::scope(|threads| {
        let optional = || {
            let mut changed = 0;
            for _ in 0..ROUNDS {
                assert!(FILTER.perhaps_tracked(stays.start, stays.len()));
                if GATE.enter() {
                    change();
                    FILTER.track_only([stays].into_iter());
                    changed += 1;
                    GATE.unlock();
                }
            }
            changed
        };
        let needed = || {
            for _ in 0..ROUNDS {
                while let Err(forks) = GATE.enter_after_fork() {
                    GATE.await_thaw(forks);
                }
                change();
                GATE.unlock();
            }
            ROUNDS
        };
        let fork = || {
            while !OVER.load(Ordering::Relaxed) {
                GATE.freeze(|| (), thread::yield_now);
                // SAFETY: frozen: nobody changes them.
                let before = unsafe { *BOOKS.0.get() };
                thread::yield_now();
                // SAFETY: as above.
                let after = unsafe { *BOOKS.0.get() };
                GATE.thaw(|| ());
                assert_eq!(before, after);
                thread::yield_now();
            }
        };
        threads.spawn(fork);
        threads.spawn(fork);
        let workers = [
            threads.spawn(optional),
            threads.spawn(optional),
            threads.spawn(needed),
            threads.spawn(needed),
        ];
        let changed = workers.map(|w| w.join().unwrap()).iter().sum();
        OVER.store(true, Ordering::Relaxed);
        changed
    });
    // SAFETY: no other thread is left.
    assert_eq!(unsafe { *BOOKS.0.get() }, changed);
    GATE.lock();
    GATE.stand_down();
    GATE.unlock();
    assert_eq!(GATE.state(), SERVING);
    assert!(!GATE.enter());
}
