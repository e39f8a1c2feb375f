//! How much a process may hold beyond what the program has asked for.
//!
//! Memory that is kept for the next message is memory that the program would not have. It is
//! bounded by what the program itself has had: as long as its live blocks take less than they did
//! at most lately, the difference may be kept, for plainly it was memory too; and something
//! besides. Where a limit of memory applies, a part of the room below it is the most.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that may be held at most before anybody knows which limit applies.
pub const UNKNOWN: u64 = 1 << 20;
/// Where less bytes than these may be held, little can be kept for the next message.
const TIGHT: u64 = 4 << 20;
/// Bytes that may be held beyond what the program has had at most. (With books and whole pages it
/// is 16 MB at most, as a rule.)
pub const SPARE: u64 = 12 << 20;
/// Of the limit, without anything being known of what is used, one byte in so many may be held at
/// first.
const FIRST_SHARE: u64 = 256;
/// Of the room below the limit that is left when the program has again what it had at most, one
/// byte in so many may be held by one process: there may be many.
const ROOM_SHARE: u64 = 8;
/// Seconds after which what the program had at most counts half as much.
const LOOK_SECONDS: i64 = 10;

/// The memory that a process holds now, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The program was promised so many, in blocks of the twin allocator.
    pub promised: u64,
    /// So many of its pages have memory, or had when they were promised.
    pub touched: u64,
    /// Extents, and pages of the pool that are ready for the next.
    pub pool: u64,
    /// Views: the program's pages without memory.
    pub missing: u64,
}

impl Holding {
    /// The bytes that are held beyond those that the program would have plainly.
    pub fn beyond(&self) -> u64 {
        (self.touched + self.pool).saturating_sub(self.promised + self.missing)
    }
}

/// How much may be. Nothing but zeros at first.
#[derive(Debug)]
pub struct Allowance {
    /// The most that was promised lately.
    high: AtomicU64,
    /// The same since the last look.
    window: AtomicU64,
    looked: AtomicU64,
    /// Bytes that may be held in any case at most, by which bits differ from [`UNKNOWN`]'s.
    most: AtomicU64,
    /// Beyond so much more than allowed it is of use to look again.
    found_nothing: AtomicU64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self::new()
    }
}

impl Allowance {
    /// Nothing is known.
    pub const fn new() -> Self {
        Self {
            high: AtomicU64::new(0),
            window: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            most: AtomicU64::new(0),
            found_nothing: AtomicU64::new(0),
        }
    }

    /// The program was promised so much.
    #[inline]
    pub fn promised(&self, bytes: u64) {
        if bytes > self.window.load(Relaxed) {
            self.window.store(bytes, Relaxed);
            if bytes > self.high.load(Relaxed) {
                self.high.store(bytes, Relaxed);
            }
        }
    }

    /// The bytes that may be held now.
    #[inline]
    pub fn allowed(&self, promised: u64) -> u64 {
        let before = self.high.load(Relaxed).saturating_sub(promised);
        (before + SPARE).min(self.most.load(Relaxed) ^ UNKNOWN)
    }

    /// The most bytes that may be held, whatever the program has had.
    pub fn most(&self) -> u64 {
        self.most.load(Relaxed) ^ UNKNOWN
    }

    /// Whether it is known that so little may be held that most of what is freed has to be given
    /// back at once.
    #[inline]
    pub fn is_tight(&self) -> bool {
        let most = self.most.load(Relaxed);
        most != 0 && (most ^ UNKNOWN) < TIGHT
    }

    fn at_most(&self, bytes: u64) {
        self.most.store(bytes ^ UNKNOWN, Relaxed);
    }

    /// By how much more than allowed is held; 0 also where looking for what to give back was in
    /// vain, until more is.
    #[inline]
    pub fn over(&self, holding: &Holding) -> u64 {
        let over = holding.beyond().saturating_sub(self.allowed(holding.promised));
        if over > self.found_nothing.load(Relaxed) { over } else { 0 }
    }

    /// Nothing was found to be given back, though so much more than allowed is held.
    pub fn found_nothing(&self, over: u64) {
        self.found_nothing.store(over + (1 << 20), Relaxed);
    }

    /// Now and then; it is `now`, in seconds since some beginning, and the program is promised so
    /// much.
    pub fn look(&self, now: i64, promised: u64) {
        let last = self.looked.load(Relaxed) as i64;
        if now - last < LOOK_SECONDS {
            return;
        }
        self.looked.store(now as u64, Relaxed);
        self.found_nothing.store(0, Relaxed);
        let (high, window) = (self.high.load(Relaxed), self.window.load(Relaxed));
        self.high.store(window.max(high / 2), Relaxed);
        self.window.store(promised, Relaxed);
    }

    /// A limit of `bytes` applies, and nothing more is known.
    pub fn limit(&self, bytes: u64) {
        self.at_most(bytes / FIRST_SHARE);
    }

    /// `room` bytes are left below the limit with what is held, which is `holding`.
    pub fn room(&self, room: u64, holding: &Holding) {
        let before = self.high.load(Relaxed).saturating_sub(holding.promised);
        // The room that is left when the program has again what it had at most, and nothing is
        // held.
        let left = (room + holding.beyond()).saturating_sub(before);
        self.at_most(left / ROOM_SHARE);
        self.found_nothing.store(0, Relaxed);
    }

    /// No limit applies (any more).
    pub fn unlimited(&self) {
        self.at_most(u64::MAX);
    }

    /// Somebody waits for memory: nothing is held until the next look at it.
    pub fn pressed(&self) {
        self.at_most(0);
        self.found_nothing.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;
    const ALL: u64 = SPARE;

    fn holding(promised: u64, touched: u64, pool: u64, missing: u64) -> Holding {
        Holding {
            promised: promised * MB,
            touched: touched * MB,
            pool: pool * MB,
            missing: missing * MB,
        }
    }

    fn without_limit() -> Allowance {
        let a = Allowance::new();
        a.unlimited();
        a
    }

    #[test]
    fn before_a_limit_is_known_little_may_be_held() {
        let a = Allowance::new();
        a.promised(64 * MB);
        assert_eq!(a.allowed(0), UNKNOWN);
        assert!(!a.is_tight());
        a.limit(0);
        assert_eq!(a.allowed(0), 0, "a limit of nothing is one");
        assert!(a.is_tight());
        a.room(40 * MB, &holding(64, 0, 0, 0));
        assert!(!a.is_tight());
    }

    #[test]
    fn held_bytes_are_those_that_the_program_would_not_have() {
        assert_eq!(holding(10, 30, 5, 0).beyond(), 25 * MB);
        // Three views of one extent, in memory that was promised: less than plainly.
        assert_eq!(holding(3, 3, 1, 3).beyond(), 0);
        // Kept blocks without memory, and the pool's pages in their place.
        assert_eq!(holding(0, 64, 64, 64).beyond(), 64 * MB);
    }

    #[test]
    fn as_much_as_the_program_had_lately_may_be_held_and_12_mb_more() {
        let a = without_limit();
        assert_eq!(a.over(&holding(0, 12, 0, 0)), 0);
        assert_eq!(a.over(&holding(0, 13, 0, 0)), MB);
        a.promised(48 * MB);
        assert_eq!(a.allowed(48 * MB), ALL);
        assert_eq!(a.over(&holding(0, 60, 0, 0)), 0);
        assert_eq!(a.over(&holding(16, 61, 0, 0)), MB);
    }

    #[test]
    fn memory_that_it_had_long_ago_counts_less_and_less() {
        let a = without_limit();
        a.look(100, 0);
        a.promised(64 * MB);
        a.look(105, 0);
        assert_eq!(a.allowed(0), 64 * MB + ALL, "it is too early");
        for (now, high) in [(110, 64), (120, 32), (130, 16)] {
            a.look(now, 0);
            assert_eq!(a.allowed(0), high * MB + ALL, "at {now}");
        }
        // The allowance for what it has all along stays.
        a.promised(40 * MB);
        for now in [140, 150, 160, 170] {
            a.look(now, 40 * MB);
        }
        assert_eq!(a.allowed(0), 40 * MB + ALL);
    }

    #[test]
    fn under_a_limit_a_part_of_the_room_is_the_most() {
        let a = Allowance::new();
        a.promised(10 * MB);
        a.limit(512 * MB);
        assert_eq!(a.allowed(0), 2 * MB);
        // 34 MB are left, of which the program had 10.
        a.room(34 * MB, &holding(0, 0, 0, 0));
        assert_eq!(a.allowed(0), 3 * MB);
        // The same with 2 MB held: they are of no other use.
        a.room(32 * MB, &holding(0, 2, 0, 0));
        assert_eq!(a.allowed(0), 3 * MB);
        a.room(5 * MB, &holding(0, 0, 0, 0));
        assert_eq!(a.allowed(0), 0);
        a.room(1 << 40, &holding(0, 0, 0, 0));
        assert_eq!(a.allowed(0), 10 * MB + ALL);
        a.unlimited();
        assert_eq!(a.allowed(10 * MB), ALL);
    }

    #[test]
    fn where_somebody_waits_for_memory_all_that_is_held_is_too_much() {
        let a = Allowance::new();
        a.promised(10 * MB);
        a.pressed();
        assert_eq!(a.over(&holding(4, 7, 2, 0)), 5 * MB);
        a.room(1 << 40, &holding(0, 0, 0, 0));
        assert_eq!(a.over(&holding(4, 7, 2, 0)), 0);
    }

    #[test]
    fn many_processes_leave_a_part_of_the_room_to_the_program() {
        let all: Vec<Allowance> = (0..16).map(|_| Allowance::new()).collect();
        let (limit, mut held) = (512 * MB, vec![0; 16]);
        for _ in 0..50 {
            for (a, mine) in all.iter().zip(0..) {
                let room = limit - held.iter().sum::<u64>();
                let h = Holding { touched: held[mine], ..Holding::default() };
                a.promised(1 << 40);
                a.room((1 << 40) + room, &h);
                held[mine] = a.allowed(0);
            }
        }
        let sum: u64 = held.iter().sum();
        assert!(sum > limit / 2 && sum < limit / 6 * 5, "{} MB", sum / MB);
    }

    #[test]
    fn where_nothing_can_be_given_back_it_is_not_looked_for_again_until_more_is_held() {
        let a = without_limit();
        a.found_nothing(a.over(&holding(0, 20, 0, 0)));
        assert_eq!(a.over(&holding(0, 20, 0, 0)), 0);
        assert_eq!(a.over(&holding(0, 22, 0, 0)), 10 * MB);
        a.look(100, 0);
        assert_eq!(a.over(&holding(0, 20, 0, 0)), 8 * MB);
    }
}
