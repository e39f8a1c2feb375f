//! The kind of a descriptor of the program's.

use crate::connection::Connection;
use crate::epoll::Epoll;
use std::sync::Arc;

/// The kind of a descriptor.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A connection.
    Connection(Arc<Connection>),
    /// A set of epoll's.
    Set(Arc<Epoll>),
}
