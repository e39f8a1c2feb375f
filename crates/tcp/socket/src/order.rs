//! What comes first. A program is told of connections in the order in which their news came, as
//! Linux does it, and programs rely on that. Notices are bits: so with each goes its time, and the
//! time at which its sender had last sent by Linux. If nobody has asked Linux since, Linux' news
//! come before it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use uncopy_tcp_shared::ring::Produced;
use uncopy_tcp_shared::ticks::ticks;

/// When a process has last sent something by Linux, or made or ended a connection there.
#[derive(Debug, Default)]
pub(crate) struct ByLinux(AtomicU64);

impl ByLinux {
    /// It has just done so.
    #[inline]
    pub fn sent(&self) {
        self.0.store(ticks(), Relaxed);
    }

    /// A notice of this direction is about to be posted.
    #[inline]
    pub fn stamp(&self, produced: &Produced) {
        produced.by_linux.store(self.0.load(Relaxed), Relaxed);
        produced.told.store(ticks(), Relaxed);
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

    /// `told` is told of all, in the order of time. `linux` is called before the first one that
    /// comes after something of Linux', which was `asked` last then.
    pub fn tell(self, asked: u64, linux: impl FnOnce(), told: impl Fn(&F)) {
        let Self { first: Some(first), more: mut all } = self else { return };
        let mut linux = Some(linux);
        let mut tell = |news: &News<F>| {
            if news.by_linux > asked
                && let Some(linux) = linux.take()
            {
                linux();
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
