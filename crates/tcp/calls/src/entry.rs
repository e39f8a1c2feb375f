//! What a descriptor of the program's is.

use crate::connection::Connection;
use crate::epoll::Epoll;
use std::sync::Arc;

/// What a descriptor is.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A connection.
    Connection(Arc<Connection>),
    /// A set of epoll's.
    Set(Arc<Epoll>),
}
