//! Files that are read but not kept: how often each is, and which are left alone.

use crate::stamp::Stamp;
use uncopy_decide::Backoff;

/// A file is worth keeping once it was read so many times over.
const TIMES_OVER: u64 = 3;
/// Reads of it that must have been seen, at least.
const SEEN_MIN: u32 = 3;
/// After a first refusal or change, a file is left alone for so long, in ns.
pub(super) const FIRST_PAUSE: u64 = 1_000_000_000;
/// The same where its descriptor was gone too soon.
const SHORT_PAUSE: u64 = 50_000_000;
/// Files that are watched. Each has two places.
const CANDIDATES: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    stamp: Stamp,
    bytes: u64,
    seen: u32,
    used: u64,
    backoff: Backoff,
    paused_until: u64,
}

impl Candidate {
    const NONE: Self = Self {
        stamp: Stamp::NONE,
        bytes: 0,
        seen: 0,
        used: 0,
        backoff: Backoff::new(),
        paused_until: 0,
    };
}

/// See the module.
#[derive(Debug)]
pub(super) struct Candidates([Candidate; CANDIDATES]);

impl Candidates {
    pub(super) const fn new() -> Self {
        Self([Candidate::NONE; CANDIDATES])
    }

    /// Counts a read of `bytes`. Whether the file should be kept; then its count begins anew.
    pub(super) fn worth_keeping(&mut self, stamp: &Stamp, bytes: u64, now: u64) -> bool {
        let c = self.of(stamp, now);
        c.bytes += bytes;
        c.seen += 1;
        let worth = c.seen >= SEEN_MIN && c.bytes >= TIMES_OVER * stamp.size;
        if !worth || now < c.paused_until {
            return false;
        }
        (c.bytes, c.seen) = (0, 0);
        true
    }

    /// The file is left alone, for longer each time.
    pub(super) fn pause(&mut self, stamp: &Stamp, now: u64) {
        let c = self.of(stamp, now);
        c.paused_until = now + c.backoff.rest(FIRST_PAUSE);
    }

    /// The file is left alone for a moment.
    pub(super) fn pause_briefly(&mut self, stamp: &Stamp, now: u64) {
        self.of(stamp, now).paused_until = now + SHORT_PAUSE;
    }

    /// The next pause is a first one.
    pub(super) fn forgive(&mut self, stamp: &Stamp, now: u64) {
        self.of(stamp, now).backoff.forgive();
    }

    fn of(&mut self, stamp: &Stamp, now: u64) -> &mut Candidate {
        let hash = (stamp.ino ^ stamp.dev << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let first = hash as usize % CANDIDATES;
        let places = [first, (first + 1) % CANDIDATES];
        let known = places.into_iter().find(|i| self.0[*i].stamp.same_file(stamp));
        let i = known.unwrap_or_else(|| {
            let [a, b] = places;
            if self.0[a].used <= self.0[b].used { a } else { b }
        });
        let c = &mut self.0[i];
        if known.is_none() {
            *c = Candidate::NONE;
        }
        if c.stamp != *stamp {
            (c.stamp, c.bytes, c.seen) = (*stamp, 0, 0);
        }
        c.used = now;
        c
    }
}
