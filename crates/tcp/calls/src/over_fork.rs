//! Contexts, flows and sets whose locks are held over a fork.

use std::sync::Arc;
use uncopy_tcp_socket::{Context, Flow, Set};

/// See the module.
#[derive(Debug)]
pub(crate) struct OverFork {
    pub contexts: Vec<Arc<Context>>,
    pub flows: Vec<Arc<Flow>>,
    pub sets: Vec<Arc<Set>>,
    pub enters: bool,
}
