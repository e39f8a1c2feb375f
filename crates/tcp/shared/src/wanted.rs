//! The parties that want to be told when there are bytes, or room. The one that waits *arms* the
//! word, looks once more, and sleeps; the one that makes news publishes it, and *takes* what is
//! armed. Either the waiter sees the news or the other sees the word.
//!
//! A bit for each door: the sleeper at that door wants a notice (its thread looks at notices), or
//! to be woken outright. One more for the connection's own door, where it has one.

use crate::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use crate::sync::atomic::{AtomicU32, fence};

/// Doors of each side: the eventfds by which its sleepers are woken. Sleepers that share one are
/// woken in vain; so where more threads sleep than there are doors, a connection gets a door of its
/// own.
pub const DOORS: usize = 4;
/// One door more, for a thread that attends to what the other side asks for, whatever the program
/// does.
pub const ASK: usize = DOORS;

const OWN: u32 = 1 << (2 * DOORS);
const ALL: u32 = OWN | (OWN - 1);

/// The doors that were armed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doors(u32);

impl Doors {
    /// A notice at this door.
    pub const fn notice(door: usize) -> Self {
        Self(1 << (door % DOORS))
    }

    /// A wake-up through this door.
    pub const fn wake(door: usize) -> Self {
        Self(1 << (DOORS + door % DOORS))
    }

    /// A wake-up through the connection's own door.
    pub const fn own() -> Self {
        Self(OWN)
    }

    /// These and those.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The value of a word of a region.
    pub const fn of(word: u32) -> Self {
        Self(word & ALL)
    }

    /// Nothing was armed.
    pub const fn is_empty(self) -> bool {
        self.0 & ALL == 0
    }

    /// The connection's own door is to be knocked at.
    pub const fn wakes_own(self) -> bool {
        self.0 & OWN != 0
    }

    /// Doors that want a notice.
    pub fn notices(self) -> impl Iterator<Item = usize> {
        (0..DOORS).filter(move |door| self.0 & 1 << door != 0)
    }

    /// Doors that are to be knocked at.
    pub fn wakes(self) -> impl Iterator<Item = usize> {
        (0..DOORS).filter(move |door| self.0 & 1 << (DOORS + door) != 0)
    }
}

/// The word.
#[repr(transparent)]
#[derive(Debug)]
pub struct Wanted(AtomicU32);

impl Wanted {
    /// Nobody waits.
    #[cfg(all(test, loom))]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Wants to be told. Look once more after it.
    #[inline]
    pub fn arm(&self, doors: Doors) {
        self.0.fetch_or(doors.0, AcqRel);
        fence(SeqCst);
    }

    /// After news were published: who is to be told.
    #[inline]
    pub fn take(&self) -> Doors {
        fence(SeqCst);
        if self.0.load(Relaxed) == 0 { Doors(0) } else { Doors(self.0.swap(0, AcqRel)) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_armed_word_is_taken_once() {
        let word = Wanted(AtomicU32::new(0));
        assert!(word.take().is_empty());
        word.arm(Doors::notice(1));
        word.arm(Doors::wake(3));
        let doors = word.take();
        assert_eq!(doors.notices().collect::<Vec<_>>(), [1]);
        assert_eq!(doors.wakes().collect::<Vec<_>>(), [3]);
        assert!(word.take().is_empty());
        word.arm(Doors::own());
        let doors = word.take();
        assert!(doors.wakes_own() && doors.wakes().chain(doors.notices()).next().is_none());
    }

    #[test]
    fn bits_that_nobody_armed_name_no_door() {
        let doors = Doors(u32::MAX);
        assert!(doors.notices().chain(doors.wakes()).all(|door| door < DOORS));
        assert!(Doors(!ALL).is_empty() && Doors::of(!ALL).is_empty());
    }
}

/// Every order of the steps (`make loom`). Each test says what it was seen to catch.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::notice::Notice;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// An eventfd that nobody resets, and the edges that epoll sees of it.
    struct Door(Mutex<bool>, Condvar);

    impl Door {
        fn knock(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_all();
        }

        fn sleep(&self) {
            let mut edge = self.0.lock().unwrap();
            while !*edge {
                edge = self.1.wait(edge).unwrap();
            }
            *edge = false;
        }
    }

    /// Caught (as a deadlock): either fence of `Wanted` left out.
    #[test]
    fn a_thread_that_sleeps_on_one_connection_is_woken() {
        loom::model(|| {
            let shared = Arc::new((
                AtomicU32::new(0),
                Wanted::new(),
                Door(Mutex::new(false), Condvar::new()),
            ));
            let other = shared.clone();
            let producer = thread::spawn(move || {
                let (tail, wanted, door) = &*other;
                tail.store(1, Relaxed);
                if wanted.take().wakes().next().is_some() {
                    door.knock();
                }
            });
            let (tail, wanted, door) = &*shared;
            while tail.load(Relaxed) == 0 {
                wanted.arm(Doors::wake(0));
                if tail.load(Relaxed) == 0 {
                    door.sleep();
                }
            }
            producer.join().unwrap();
        });
    }

    /// Many connections: the notice is set, and a thread that sleeps over all notices is woken.
    ///
    /// Caught (as a deadlock): the fence of `Wanted::take` left out.
    #[test]
    fn a_thread_that_sleeps_on_many_connections_is_woken() {
        loom::model(|| {
            let shared = Arc::new((
                AtomicU32::new(0),
                Wanted::new(),
                Notice::new(),
                Door(Mutex::new(false), Condvar::new()),
            ));
            let other = shared.clone();
            let producer = thread::spawn(move || {
                let (tail, wanted, notice, door) = &*other;
                tail.store(1, Relaxed);
                if wanted.take().notices().next().is_some() && notice.post(7) {
                    door.knock();
                }
            });
            let (tail, wanted, notice, door) = &*shared;
            wanted.arm(Doors::notice(0));
            while tail.load(Relaxed) == 0 {
                if notice.collect(|slot| assert_eq!(slot, 7)) {
                    continue;
                }
                notice.falls_asleep();
                if !notice.any() {
                    door.sleep();
                }
                notice.is_awake();
            }
            producer.join().unwrap();
        });
    }
}
