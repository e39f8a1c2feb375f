//! What each application may use, and uses.

use crate::actions::Refusal;
use crate::config::Limits;
use crate::time::{MILLISECOND, Nanos, SECOND, Time};

/// How much of its rate an application may send at once.
const BURST: Nanos = MILLISECOND;

#[derive(Clone, Copy, Default)]
struct App {
    limits: Limits,
    connections: u32,
    buffers: u64,
    next_send: Time,
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

    /// Is there room for one more connection with so many bytes of buffers? Then it counts.
    pub fn take(&mut self, app: u16, buffers: u64) -> Result<(), Refusal> {
        let app = self.0.get_mut(usize::from(app)).ok_or(Refusal::Invalid)?;
        if app.connections >= app.limits.connections || app.buffers + buffers > app.limits.buffers {
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

    /// From when on it may send, where that is not now.
    #[inline]
    pub fn wait(&self, app: u16, now: Time) -> Option<Time> {
        let app = &self.0[usize::from(app)];
        (app.limits.rate.is_some() && app.next_send > now + BURST)
            .then(|| Time(app.next_send.0 - BURST))
    }

    /// It sent so many bytes.
    #[inline]
    pub fn sent(&mut self, app: u16, now: Time, bytes: u32) {
        let app = &mut self.0[usize::from(app)];
        if let Some(rate) = app.limits.rate {
            app.next_send = app.next_send.max(now) + u64::from(bytes) * SECOND / rate.max(1);
        }
    }
}
