//! The tracker's part in deciding: a controller, a clock for it, and perhaps an observer.

use crate::controller::Controller;
use crate::event::{Act, Event};
use crate::experiment::Outcome;
use crate::operation::{Observer, Operation};
use crate::site::SiteId;
use crate::times::Times;
use core::fmt;

/// The one door from the tracker to who decides.
pub struct Control {
    controller: Box<dyn Controller>,
    /// Smallest copy that is considered, in bytes.
    threshold: usize,
    observer: Option<Box<dyn Observer>>,
    /// The number of the last input or output call that was observed.
    call: u32,
    now: fn() -> Option<Times>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("controller", &self.controller).finish_non_exhaustive()
    }
}

impl Control {
    /// `controller` decides about copies of `threshold` bytes and more. It is told no time, until
    /// [`timed_by`](Self::timed_by).
    pub fn new(controller: impl Controller + 'static, threshold: usize) -> Self {
        let controller = Box::new(controller);
        Self { controller, threshold, observer: None, call: 0, now: || None }
    }

    /// Asks `now` how late it is, when the controller wants to know.
    #[must_use]
    pub fn timed_by(mut self, now: fn() -> Option<Times>) -> Self {
        self.now = now;
        self
    }

    /// From now on `observer` sees what passes; `None`: nobody does.
    pub fn observed_by(&mut self, observer: Option<Box<dyn Observer>>) {
        self.observer = observer;
    }

    /// Smallest copy that is considered, in bytes.
    #[inline]
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    /// Names the call site that returns to `caller`, for copies of `len` bytes.
    #[inline]
    pub fn site(&mut self, caller: usize, len: usize) -> SiteId {
        self.controller.site(caller, len)
    }

    /// Whether this should be done for `site`. A copy below the threshold is not elided, whoever
    /// decides.
    #[inline]
    pub fn act(&mut self, site: SiteId, what: Act) -> bool {
        if let Act::Elide(len) | Act::ElideAgain(len) = what
            && len < self.threshold
        {
            return false;
        }
        self.controller.act(site, what)
    }

    /// Something has happened because of `site`. Returns what an experiment has come to, if one
    /// ends with this.
    #[inline]
    pub fn tell(&mut self, site: SiteId, what: Event) -> Option<Outcome> {
        if let Some(observer) = &mut self.observer {
            observer.told(site, what);
        }
        if self.controller.event(site, what) { self.controller.time((self.now)()) } else { None }
    }

    /// The program did something.
    #[inline]
    pub fn did(&mut self, operation: impl FnOnce() -> Operation) {
        if let Some(observer) = &mut self.observer {
            observer.did(operation());
        }
    }

    /// A number for an input or output call that begins; 0: nobody is watching.
    #[inline]
    pub fn call(&mut self) -> u32 {
        if self.observer.is_some() {
            self.call = self.call.wrapping_add(1).max(1);
            self.call
        } else {
            0
        }
    }
}
