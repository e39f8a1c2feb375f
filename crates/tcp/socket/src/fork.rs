//! Forks: a child shares its parent's connections. Both go on with attached connections; those that
//! nobody has decided on yet are decided on by the process that is left alone with them; and
//! nothing is half done when the memory is duplicated.

use crate::context::Context;
use crate::flow::Flow;
use crate::lock::lock;
use crate::set::Set;
use std::sync::Arc;
use uncopy_tcp_service::protocol::StayReason;

impl Flow {
    /// Before fork, for each connection, before [`hold`].
    pub fn will_be_shared(self: &Arc<Self>) {
        // It is asked about: the child could not learn the answer.
        if self.is_pending() {
            self.leave_to_linux(StayReason::Forked);
        }
        if self.is_undecided() && self.holders.one_more(&mut lock(&self.context.words)).is_err() {
            self.leave_to_linux(StayReason::Forked);
        }
        self.before_fork();
        self.may_be_set_elsewhere();
    }

    /// In a forked child: the same connection, of the child's own context, if nobody has decided
    /// yet what becomes of it.
    pub fn anew(self: &Arc<Self>, context: &Arc<Context>) -> Option<Arc<Flow>> {
        if !self.is_undecided() {
            return None;
        }
        if self.is_watched() {
            self.leave_to_linux(StayReason::Forked);
            return None;
        }
        let flow = context.inherited(self.number(), self.is_nonblocking());
        flow.holders.take_over(&self.holders);
        flow.may_be_set_elsewhere();
        Some(flow)
    }
}

/// Before fork: nothing of these changes until [`let_go`].
pub fn hold(contexts: &[Arc<Context>], flows: &[Arc<Flow>], sets: &[Arc<Set>]) {
    // In the order in which they are taken one in another.
    contexts.iter().for_each(|context| context.hold());
    sets.iter().for_each(|set| set.hold());
    flows.iter().for_each(|flow| flow.hold());
    sets.iter().for_each(|set| set.hold_queue());
}

/// After fork, in the parent, and in the child (`child`), with the same.
pub fn let_go(contexts: &[Arc<Context>], flows: &[Arc<Flow>], sets: &[Arc<Set>], child: bool) {
    sets.iter().for_each(|set| set.let_go());
    flows.iter().for_each(|flow| flow.let_go());
    contexts.iter().for_each(|context| context.let_go());
    if child {
        contexts.iter().for_each(|context| context.after_fork_in_child());
        flows.iter().for_each(|flow| flow.in_child());
    }
}
