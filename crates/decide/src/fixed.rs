//! A controller that learns nothing: copies from a size on are elided. Others are compared with it,
//! and traces are recorded under it, because whatever is touched shows as a fault then.

use crate::controller::Controller;
use crate::costs::Costs;
use crate::event::{Act, Event};
use crate::site::{SiteId, hash, key};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    /// Smallest copy that is elided, in bytes; `usize::MAX`: none is.
    from: usize,
    costs: Costs,
}

impl Fixed {
    /// Copies of `from` bytes and more are elided, and sent by reference where that pays at these
    /// `costs`.
    pub const fn new(from: usize, costs: Costs) -> Self {
        Self { from, costs }
    }
}

impl Controller for Fixed {
    fn site(&mut self, caller: usize, len: usize) -> SiteId {
        // (Not nobody's.)
        hash(key(caller, len)) as SiteId | 1
    }

    fn act(&mut self, _: SiteId, what: Act) -> bool {
        match what {
            Act::Elide(len) | Act::ElideAgain(len) | Act::Lend(len) => len >= self.from,
            Act::ByReference { bytes } => bytes >= self.costs.lend_from(),
            Act::GiveBack => false,
        }
    }

    fn event(&mut self, _: SiteId, _: Event) -> bool {
        false
    }
}
