//! A user of a service, and what one may have. A service of one user's has no limits but those of
//! programs. One of all users gives each at most half of what it has; what is over is refused as
//! what is over the limits of a program is.

use crate::linger::Closer;
use crate::owner::{Owner, Serves};
use crate::regions::Regions;
use crate::share::Share;
use rustix::process::{Resource, getrlimit};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A user's part of what threads need, without asking what all share.
#[derive(Clone, Debug)]
pub(crate) struct Quota {
    /// The share of descriptors.
    pub share: Share,
    /// Held once more by each connection that is relayed.
    pub relays: Arc<()>,
    /// Closes the sockets that its programs have registered and lent.
    pub closer: Arc<Closer>,
}

/// A user, and what its programs have together.
#[derive(Debug)]
pub(crate) struct User {
    pub quota: Quota,
    /// Where its thread sleeps, while it has one.
    pub set: Option<Arc<OwnedFd>>,
    pub programs: usize,
    /// Connections that they have registered.
    pub registered: usize,
    /// Bytes that they used, when that was asked last.
    pub bytes: u64,
    /// They use more than they may.
    pub over: bool,
    /// Between programs of its own.
    pub regions: Regions,
}

impl User {
    /// Without programs.
    pub fn new(serves: Serves, owner: Owner) -> Self {
        let limited = serves != Serves::ItsUser && owner != Owner::Service;
        let most = if limited { descriptors() / 2 } else { usize::MAX };
        let (share, relays) = (Share::new(most), Arc::default());
        let closer = Arc::new(Closer::new(serves != Serves::ItsUser, share.clone()));
        Self {
            quota: Quota { share, relays, closer },
            set: None,
            programs: 0,
            registered: 0,
            bytes: 0,
            over: false,
            regions: Regions::default(),
        }
    }

    /// Nothing of it is left.
    pub fn is_gone(&self) -> bool {
        let Quota { relays, closer, .. } = &self.quota;
        let rest = Arc::strong_count(relays) > 1 || !closer.is_idle();
        self.programs == 0 && self.set.is_none() && !rest
    }
}

/// As many as this process may have.
fn descriptors() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize)
}
