//! The controller: told what has happened, asked whether to act. It has no clock, makes no call,
//! and knows of memory only what it is told.

use crate::event::{Act, Event};
use crate::experiment::Outcome;
use crate::site::SiteId;
use crate::times::Times;
use core::fmt::Debug;

/// Decides, for one process, under the tracker's lock.
///
/// Its answers follow from what it is told and asked: the same calls bring the same answers, so a
/// recording of them can be replayed. (The pauses that it publishes for readers without the lock,
/// [`Pauses`](crate::Pauses), are its own answer "surely not".)
pub trait Controller: Debug + Send {
    /// Names the call site that returns to `caller`, for copies of `len` bytes. Number 0 is nobody.
    fn site(&mut self, caller: usize, len: usize) -> SiteId;

    /// Whether this should be done for `site`.
    fn act(&mut self, site: SiteId, what: Act) -> bool;

    /// Something has happened because of `site`. Returns whether it wants to know how late it is:
    /// [`Controller::time`] follows at once.
    fn event(&mut self, site: SiteId, what: Event) -> bool;

    /// How late it is, if that can be known. Returns what an experiment has come to, if one ends
    /// with this.
    fn time(&mut self, _: Option<Times>) -> Option<Outcome> {
        None
    }
}
