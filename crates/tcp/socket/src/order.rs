//! The order of news. A program is told of connections in the order in which their news came, as
//! Linux does it, and programs rely on that. Notices are bits: so with each goes its time, and the
//! time at which its sender had last sent by Linux. If nobody has asked Linux since, Linux' news
//! come before it.
//!
//! But what was sent by Linux then may concern others, and what Linux has may have come after the
//! notice. Where the door stands among what Linux says tells the two apart: a sender of a notice
//! after something of Linux' knocks at the door. So what stands behind the door came after the
//! first knock, and that came after the earliest notice.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use uncopy_tcp_shared::ring::Produced;
use uncopy_tcp_shared::ticks::ticks;
use uncopy_tcp_shared::wanted::DOORS;

/// When a process has last sent something by Linux, or made or ended a connection there.
#[derive(Debug, Default)]
pub(crate) struct ByLinux(AtomicU64);

impl ByLinux {
    /// It has just done so.
    #[inline]
    pub fn sent(&self) {
        self.0.store(ticks(), Relaxed);
    }

    /// A notice of this direction is about to be posted. When something was sent by Linux last.
    #[inline]
    pub fn stamp(&self, produced: &Produced) -> u64 {
        let by_linux = self.0.load(Relaxed);
        produced.by_linux.store(by_linux, Relaxed);
        produced.told.store(ticks(), Relaxed);
        by_linux
    }
}

/// Of each door of another program's: what was sent by Linux last, when it was knocked at last.
#[derive(Debug, Default)]
pub(crate) struct Knocked([AtomicU64; DOORS]);

impl Knocked {
    /// A notice is there, of a sender who has last sent `by_linux` then. Whether to knock, though
    /// nobody need be woken.
    #[inline]
    pub fn is_due(&self, door: usize, by_linux: u64) -> bool {
        let knocked = &self.0[door % DOORS];
        let is_due = knocked.load(Relaxed) != by_linux;
        if is_due {
            knocked.store(by_linux, Relaxed);
        }
        is_due
    }
}

/// A set's knowledge of knocks at its door since it has asked Linux.
#[derive(Debug)]
pub(crate) struct Marks {
    /// When the first of the notices was posted that it has collected.
    earliest: AtomicU64,
    /// When the door was knocked at first for another reason.
    woken: AtomicU64,
    /// When Linux had answered.
    answered: AtomicU64,
}

impl Default for Marks {
    fn default() -> Self {
        let (earliest, woken) = (AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX));
        Self { earliest, woken, answered: AtomicU64::new(0) }
    }
}

impl Marks {
    /// These were collected.
    pub fn collected<F>(&self, news: &AllNews<F>) {
        self.earliest.fetch_min(news.earliest(), Relaxed);
    }

    /// The door was knocked at then for another reason than a notice.
    pub fn was_woken(&self, at: Option<u64>) {
        self.woken.fetch_min(at.unwrap_or(u64::MAX), Relaxed);
    }

    /// When Linux had answered last: of a knock before it no more is known.
    pub fn answered(&self) -> u64 {
        self.answered.load(Relaxed)
    }

    /// The door was not knocked at before: what was sent by Linux until then stands before it in
    /// what Linux says. `woken`: as of [`Marks::was_woken`].
    pub fn before_door(&self, woken: Option<u64>) -> u64 {
        let known = self.earliest.load(Relaxed).min(self.woken.load(Relaxed));
        // (An older knock still stands where a later one would: that may have come any time since.)
        known.min(woken.map_or(u64::MAX, |at| at.max(self.answered())))
    }

    /// Linux was asked, and had answered then.
    pub fn asked(&self, answered: u64) {
        self.earliest.store(u64::MAX, Relaxed);
        self.woken.store(u64::MAX, Relaxed);
        self.answered.store(answered, Relaxed);
    }
}

/// A notice that was collected, of `F`.
pub(crate) struct News<F> {
    told: u64,
    by_linux: u64,
    of: F,
}

impl<F> News<F> {
    /// As this direction is stamped.
    pub fn new(produced: &Produced, of: F) -> Self {
        let (told, by_linux) = (produced.told.load(Relaxed), produced.by_linux.load(Relaxed));
        Self { told, by_linux, of }
    }
}

/// Room for so many at first.
const MANY: usize = 64;

/// Notices that were collected. As a rule there is one.
pub(crate) struct AllNews<F> {
    first: Option<News<F>>,
    more: Vec<News<F>>,
}

impl<F> Default for AllNews<F> {
    fn default() -> Self {
        Self { first: None, more: Vec::new() }
    }
}

impl<F> AllNews<F> {
    /// One more.
    pub fn add(&mut self, news: News<F>) {
        if self.first.is_none() {
            self.first = Some(news);
        } else {
            if self.more.is_empty() {
                self.more.reserve(MANY);
            }
            self.more.push(news);
        }
    }

    /// When the first of them was posted.
    fn earliest(&self) -> u64 {
        self.first.iter().chain(&self.more).map(|news| news.told).min().unwrap_or(u64::MAX)
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// `told` is told of all, in the order of time. `linux` is called before the first one that
    /// comes after something of Linux', which was `asked` last then; and `rest` before the first
    /// one whose sender had sent by Linux after `before_door`.
    pub fn tell(
        self,
        asked: u64,
        before_door: u64,
        linux: impl FnOnce(),
        rest: impl FnOnce(),
        told: impl Fn(&F),
    ) {
        let Self { first: Some(first), more: mut all } = self else { return };
        let (mut linux, mut rest) = (Some(linux), Some(rest));
        let mut tell = |news: &News<F>| {
            if news.by_linux > asked
                && let Some(linux) = linux.take()
            {
                linux();
            }
            if news.by_linux > before_door.max(asked)
                && let Some(rest) = rest.take()
            {
                rest();
            }
            told(&news.of);
        };
        if all.is_empty() {
            return tell(&first);
        }
        all.push(first);
        all.sort_by_key(|news| news.told);
        all.iter().for_each(tell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knock_from_before_linux_answered_stands_for_those_that_it_hides() {
        let marks = Marks::default();
        assert_eq!(marks.before_door(None), u64::MAX);
        assert_eq!(marks.before_door(Some(10)), 10);
        marks.was_woken(Some(5));
        assert_eq!(marks.before_door(Some(10)), 5);
        marks.asked(20);
        assert_eq!(marks.before_door(None), u64::MAX);
        // (The word still has the knock of 10, so one of 30 could not be left there.)
        assert_eq!(marks.before_door(Some(10)), 20);
        assert_eq!(marks.before_door(Some(30)), 30);
    }
}
