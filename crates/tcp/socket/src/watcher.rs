//! Watchers of a connection: they look when there is news of it.

use crate::set::events::Added;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Looks at a connection when there is news of it: a set that it is in.
pub(crate) trait Watcher: std::fmt::Debug + Send + Sync {
    /// There may be news. `asleep_too`: where a thread sleeps over it, that is woken.
    fn news(self: Arc<Self>, asleep_too: bool);
    /// The bytes or the room that there was may be gone.
    fn settles(&self);
    /// The connection is about to be closed, by this number.
    fn gone(&self, number: RawFd);
    /// This number of the connection's, which has others, is about to be closed.
    fn loses(&self, number: RawFd);
    /// How the program added it there, if it has not removed it.
    fn added(&self) -> Option<Added>;
}
