//! Timers: one hierarchical wheel. Each number (a connection's slot) has at most one deadline in
//! it. Nothing is allocated after it was made; setting, moving and clearing a deadline take
//! constant time.
//!
//! Five levels of 64 places. A place of level 0 is one tick, one of level 1 is 64 ticks, and so on;
//! a deadline lies on the level of the highest digit (to the base 64) in which it differs from the
//! present, and comes down when that digit is reached.

const BITS: u32 = 6;
const PLACES: usize = 1 << BITS;
const LEVELS: usize = 5;
/// Further deadlines wait on the last level, and are looked at again when they come by.
const HORIZON: u64 = 1 << (BITS * LEVELS as u32);
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Entry {
    due: u64,
    next: u32,
    prev: u32,
    /// Level and place, or NONE where no deadline is set.
    at: u32,
}

/// The wheel.
pub struct Wheel {
    tick_bits: u32,
    elapsed: u64,
    entries: Box<[Entry]>,
    heads: [[u32; PLACES]; LEVELS],
    occupied: [u64; LEVELS],
    len: usize,
}

impl Wheel {
    /// For the numbers below `capacity`, with ticks of `1 << tick_bits` nanoseconds.
    pub fn new(capacity: usize, tick_bits: u32) -> Wheel {
        Wheel {
            tick_bits,
            elapsed: 0,
            entries: vec![Entry { due: 0, next: NONE, prev: NONE, at: NONE }; capacity].into(),
            heads: [[NONE; PLACES]; LEVELS],
            occupied: [0; LEVELS],
            len: 0,
        }
    }

    /// How many deadlines are set.
    pub fn len(&self) -> usize {
        self.len
    }

    /// None is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets the deadline of `id` to the first tick at or behind `time` (nanoseconds) that is still
    /// to come.
    pub fn set(&mut self, id: u32, time: u64) {
        let due = (time.saturating_add((1 << self.tick_bits) - 1)) >> self.tick_bits;
        let entry = &self.entries[id as usize];
        if entry.at != NONE && entry.due == due {
            return;
        }
        self.clear(id);
        self.len += 1;
        self.link(id, due.max(self.elapsed + 1));
    }

    /// `id` has a deadline.
    pub fn has(&self, id: u32) -> bool {
        self.entries[id as usize].at != NONE
    }

    /// `id` has no deadline any more.
    pub fn clear(&mut self, id: u32) {
        if self.entries[id as usize].at != NONE {
            self.unlink(id);
            self.len -= 1;
        }
    }

    /// The next number whose deadline is at or before `time`. Its deadline is cleared.
    pub fn pop(&mut self, time: u64) -> Option<u32> {
        let now = time >> self.tick_bits;
        loop {
            let Some((level, place, deadline)) = self.next() else {
                self.elapsed = self.elapsed.max(now);
                return None;
            };
            if deadline > now {
                self.elapsed = self.elapsed.max(now);
                return None;
            }
            self.elapsed = self.elapsed.max(deadline);
            if level == 0 {
                let id = self.heads[level][place];
                self.unlink(id);
                self.len -= 1;
                return Some(id);
            }
            // The digit is reached: all that wait for it come down to where they differ now.
            while self.heads[level][place] != NONE {
                let id = self.heads[level][place];
                self.unlink(id);
                self.link(id, self.entries[id as usize].due);
            }
        }
    }

    /// When [`pop`](Self::pop) has to be called next, at the latest.
    pub fn next_due(&self) -> Option<u64> {
        self.next().map(|(_, _, deadline)| deadline << self.tick_bits)
    }

    fn next(&self) -> Option<(usize, usize, u64)> {
        (0..LEVELS).find(|&level| self.occupied[level] != 0).map(|level| {
            let shift = BITS * level as u32;
            let here = (self.elapsed >> shift) as u32 % PLACES as u32;
            // On level 0 the present place may be due. On the others it has come down already: what
            // is there waits for the next turn.
            let from = if level == 0 { here } else { here + 1 };
            let ahead = self.occupied[level].rotate_right(from).trailing_zeros();
            let place = (from + ahead) % PLACES as u32;
            let base = self.elapsed >> shift << shift;
            let deadline = base + (u64::from(from + ahead - here) << shift);
            (level, place as usize, deadline)
        })
    }

    fn link(&mut self, id: u32, due: u64) {
        let seen = due.min(self.elapsed + HORIZON - 1);
        let differs = ((self.elapsed ^ seen) | (PLACES as u64 - 1)).min(HORIZON - 1);
        let level = ((63 - differs.leading_zeros()) / BITS) as usize;
        let place = (seen >> (BITS * level as u32)) as usize & (PLACES - 1);
        let head = self.heads[level][place];
        self.entries[id as usize] =
            Entry { due, next: head, prev: NONE, at: (level * PLACES + place) as u32 };
        if head != NONE {
            self.entries[head as usize].prev = id;
        }
        self.heads[level][place] = id;
        self.occupied[level] |= 1 << place;
    }

    fn unlink(&mut self, id: u32) {
        let Entry { next, prev, at, .. } = self.entries[id as usize];
        let (level, place) = (at as usize / PLACES, at as usize % PLACES);
        if next != NONE {
            self.entries[next as usize].prev = prev;
        }
        if prev != NONE {
            self.entries[prev as usize].next = next;
        } else {
            self.heads[level][place] = next;
            if next == NONE {
                self.occupied[level] &= !(1 << place);
            }
        }
        self.entries[id as usize].at = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_fire_in_order_and_once() {
        let mut wheel = Wheel::new(4, 0);
        wheel.set(0, 5000);
        wheel.set(1, 70);
        wheel.set(2, 63);
        wheel.set(3, 1);
        wheel.set(3, 300_000);
        assert_eq!(wheel.pop(62), None);
        assert_eq!(wheel.pop(70), Some(2));
        assert_eq!(wheel.pop(70), Some(1));
        assert_eq!(wheel.pop(70), None);
        assert_eq!(wheel.pop(300_000), Some(0));
        assert_eq!(wheel.pop(300_000), Some(3));
        assert!(wheel.is_empty());
    }

    #[test]
    fn a_deadline_beyond_the_horizon_fires_when_it_is_due() {
        let mut wheel = Wheel::new(1, 0);
        wheel.set(0, HORIZON * 3 + 7);
        assert_eq!(wheel.pop(HORIZON * 3 + 6), None);
        assert_eq!(wheel.pop(HORIZON * 3 + 7), Some(0));
    }

    #[test]
    fn random_deadlines_agree_with_a_plain_list() {
        let mut state = 11u64;
        let mut random = move |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for round in 0..50 {
            let mut wheel = Wheel::new(32, 0);
            let mut plain = [None; 32];
            let mut now = random(1 << 31);
            assert_eq!(wheel.pop(now), None);
            for _ in 0..2000 {
                let id = random(32) as usize;
                match random(4) {
                    0 => {
                        wheel.clear(id as u32);
                        plain[id] = None;
                    }
                    1 | 2 => {
                        let bits = random(32);
                        let due = now + 1 + random(1 << bits);
                        wheel.set(id as u32, due);
                        plain[id] = Some(due);
                    }
                    _ => {
                        let bits = random(20);
                        now += random(1 << bits);
                        if let Some(next) = wheel.next_due() {
                            assert!(
                                plain.iter().flatten().all(|&due| due >= next),
                                "round {round}"
                            );
                        }
                        let mut last = 0;
                        while let Some(id) = wheel.pop(now) {
                            let due = plain[id as usize].take().expect("was set");
                            assert!(due <= now && due >= last, "round {round}: {due} of {now}");
                            last = due;
                        }
                        assert!(plain.iter().flatten().all(|&due| due > now), "round {round}");
                    }
                }
                assert_eq!(wheel.len(), plain.iter().flatten().count());
            }
        }
    }
}
