//! Entries to bytes.

use crate::form::{self, Words};
use crate::words::{Known, put_plain};
use arrayvec::ArrayVec;
use uncopy_decide::{Event, Operation, SiteId, Times};

/// Most bytes of one entry: its kind, two times, and five words of eleven bytes.
pub const ENTRY_MAX: usize = 80;

/// The state that the next entry refers to.
#[derive(Debug)]
pub struct Writer {
    known: Known,
    last: Times,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// Nothing written yet.
    pub const fn new() -> Self {
        Self { known: Known::new(), last: Times { cpu: 0, wall: 0 } }
    }

    /// The bytes of what the program did, when so much time had passed since the recording began.
    /// (They must be kept: the next ones build on them.)
    #[must_use]
    pub fn did(&mut self, now: Times, operation: Operation) -> ArrayVec<u8, ENTRY_MAX> {
        let (kind, words) = form::of_operation(operation);
        let mut bytes = ArrayVec::new();
        bytes.push(kind);
        // (Clocks of several threads may be seen out of order.)
        for (now, last) in [(now.wall, &mut self.last.wall), (now.cpu, &mut self.last.cpu)] {
            put_plain(now.saturating_sub(*last), |b| bytes.push(b));
            *last = now.max(*last);
        }
        self.put(&words, &mut bytes);
        bytes
    }

    /// The bytes of what the controller was told about `site`.
    #[must_use]
    pub fn told(&mut self, site: SiteId, event: Event) -> ArrayVec<u8, ENTRY_MAX> {
        let (kind, words) = form::of_event(event);
        let mut bytes = ArrayVec::new();
        bytes.push(kind);
        put_plain(site.into(), |b| bytes.push(b));
        self.put(&words, &mut bytes);
        bytes
    }

    fn put(&mut self, words: &Words, bytes: &mut ArrayVec<u8, ENTRY_MAX>) {
        words.iter().for_each(|word| self.known.put(*word, |b| bytes.push(b)));
    }
}
