//! The limits and the use of each application.

use crate::actions::Refusal;
use crate::config::Limits;
use crate::time::{MILLISECOND, Nanos, SECOND, Time};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// How much of its rate an application may send at once.
const BURST: Nanos = MILLISECOND;

#[derive(Clone, Copy, Default)]
struct App {
    limits: Limits,
    connections: u32,
    buffers: u64,
    refused: u64,
}

/// The rate that each application may send at. All who send look here.
pub struct Rates(Box<[Rate]>);

struct Rate {
    /// Bytes a second; 0: any number.
    rate: AtomicU64,
    /// When what it has sent is paid for.
    next: AtomicU64,
}

impl Rates {
    /// For so many applications, without limits.
    pub fn new(count: usize) -> Rates {
        let rate = |_| Rate { rate: AtomicU64::new(0), next: AtomicU64::new(0) };
        Rates((0..count).map(rate).collect())
    }

    pub(crate) fn set(&self, app: u16, rate: Option<u64>) {
        self.0[usize::from(app)].rate.store(rate.map_or(0, |rate| rate.max(1)), Relaxed);
    }

    /// From when on it may send, where that is not now.
    #[inline]
    pub(crate) fn wait(&self, app: u16, now: Time) -> Option<Time> {
        let app = &self.0[usize::from(app)];
        if app.rate.load(Relaxed) == 0 {
            return None;
        }
        let next = Time(app.next.load(Relaxed));
        (next > now + BURST).then(|| Time(next.0 - BURST))
    }

    /// It sent so many bytes.
    #[inline]
    pub(crate) fn sent(&self, app: u16, now: Time, bytes: u32) {
        let app = &self.0[usize::from(app)];
        if let Some(cost) = (u64::from(bytes) * SECOND).checked_div(app.rate.load(Relaxed)) {
            let later = |next: u64| Some((Time(next).max(now) + cost).0);
            // It never refuses.
            let _ = app.next.fetch_update(Relaxed, Relaxed, later);
        }
    }
}

/// All of them.
pub(crate) struct Apps(Box<[App]>);

impl Apps {
    pub fn new(count: usize) -> Apps {
        Apps(vec![App::default(); count].into())
    }

    pub fn set_limits(&mut self, app: u16, limits: Limits) -> Result<(), Refusal> {
        self.0.get_mut(usize::from(app)).ok_or(Refusal::Invalid)?.limits = limits;
        Ok(())
    }

    /// Its connections and the bytes of their buffers.
    pub fn usage(&self, app: u16) -> (u32, u64) {
        self.0.get(usize::from(app)).map_or((0, 0), |app| (app.connections, app.buffers))
    }

    /// Connections that it did not get because of its limits. Counted from 0 again.
    pub fn take_refused(&mut self, app: u16) -> u64 {
        self.0.get_mut(usize::from(app)).map_or(0, |app| core::mem::take(&mut app.refused))
    }

    /// Is there room for one more connection with so many bytes of buffers? Then it counts.
    pub fn take(&mut self, app: u16, buffers: u64) -> Result<(), Refusal> {
        let app = self.0.get_mut(usize::from(app)).ok_or(Refusal::Invalid)?;
        if app.connections >= app.limits.connections || app.buffers + buffers > app.limits.buffers {
            app.refused += 1;
            return Err(Refusal::Limit);
        }
        app.connections += 1;
        app.buffers += buffers;
        Ok(())
    }

    pub fn give(&mut self, app: u16, buffers: u64) {
        let app = &mut self.0[usize::from(app)];
        app.connections -= 1;
        app.buffers -= buffers;
    }
}
