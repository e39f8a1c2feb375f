//! What comes first. A program is told of connections in the order in which their news came, as
//! Linux does it, and programs rely on that. Notices are bits: so with each goes its time, and the
//! time at which its sender had last sent by Linux. If nobody has asked Linux since, Linux' news come
//! before it.

use crate::attached::Attached;
use crate::context::{Mapped, Shown};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
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
}

impl Attached {
    /// A notice is about to be posted.
    #[inline]
    pub fn stamp(&self) {
        let produced = &self.out().produced;
        produced.by_linux.store(self.mapped.by_linux.0.load(Relaxed), Relaxed);
        produced.told.store(ticks(), Relaxed);
    }
}

/// A notice that was collected.
pub(crate) struct News {
    told: u64,
    by_linux: u64,
    flow: Arc<dyn Shown>,
}

impl News {
    /// Of this slot's connection.
    pub fn of(mapped: &Mapped, slot: usize) -> Option<Self> {
        let flow = mapped.flow(slot)?;
        let produced = &mapped.region.slot(slot).header.directions[1 - mapped.side].produced;
        let (told, by_linux) = (produced.told.load(Relaxed), produced.by_linux.load(Relaxed));
        Some(Self { told, by_linux, flow })
    }
}

/// Room for so many at first.
const MANY: usize = 64;

/// Notices that were collected. As a rule there is one.
#[derive(Default)]
pub(crate) struct AllNews {
    first: Option<News>,
    more: Vec<News>,
}

impl AllNews {
    /// One more.
    pub fn add(&mut self, news: News) {
        if self.first.is_none() {
            self.first = Some(news);
        } else {
            if self.more.is_empty() {
                self.more.reserve(MANY);
            }
            self.more.push(news);
        }
    }

    /// Tells the sets, in the order of time. `linux` is called before the first one that comes after
    /// something of Linux', which was `asked` last then.
    pub fn tell(self, asleep_too: bool, asked: u64, linux: impl FnOnce()) {
        let Self { first: Some(first), more: mut all } = self else { return };
        let mut linux = Some(linux);
        let mut tell = |news: &News| {
            if news.by_linux > asked
                && let Some(linux) = linux.take()
            {
                linux();
            }
            news.flow.tell_sets(asleep_too);
        };
        if all.is_empty() {
            return tell(&first);
        }
        all.push(first);
        all.sort_by_key(|news| news.told);
        all.iter().for_each(tell);
    }
}
