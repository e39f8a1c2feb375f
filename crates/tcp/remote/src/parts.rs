//! One user's part of connections over the wire and of listeners: all there are; where the service
//! is several users', half.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use uncopy_tcp_service::Owner;

/// A count is kept for each owner, and each kind.
type Key = (Owner, Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Connection,
    Listener,
}

/// See the module.
#[derive(Debug)]
pub struct Parts {
    used: Arc<Mutex<HashMap<Key, usize>>>,
    /// The service has several users.
    pub shared: bool,
    /// Connections, listeners.
    most: [usize; 2],
}

/// A connection or a listener of a user's part, until this is dropped.
#[derive(Debug)]
pub struct Part {
    used: Arc<Mutex<HashMap<Key, usize>>>,
    key: Key,
}

impl Parts {
    /// Divides this many connections and listeners. `shared`: among several users.
    pub fn new(connections: usize, listeners: usize, shared: bool) -> Self {
        let part = |all: usize| if shared { all.div_ceil(2) } else { all };
        Self { used: Arc::default(), shared, most: [connections, listeners].map(part) }
    }

    /// No user has more connections.
    pub fn at_most(mut self, connections: usize) -> Self {
        self.most[0] = self.most[0].min(connections);
        self
    }

    /// A user may have a connection more than it has, beside so many that are to come.
    pub fn has_room(&self, owner: Owner, to_come: usize) -> bool {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.get(&(owner, Kind::Connection)).copied().unwrap_or(0) + to_come < self.most[0]
    }

    /// One for a connection. None: it has as many as it may.
    pub fn connection(&self, owner: Owner) -> Option<Part> {
        self.take((owner, Kind::Connection), self.most[0])
    }

    /// One for a listener.
    pub fn listener(&self, owner: Owner) -> Option<Part> {
        self.take((owner, Kind::Listener), self.most[1])
    }

    fn take(&self, key: Key, most: usize) -> Option<Part> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let count = used.entry(key).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Part { used: self.used.clone(), key })
    }
}

impl Part {
    /// The owner of the part.
    pub fn owner(&self) -> Owner {
        self.key.0
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = used.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                used.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_is_shared_a_user_gets_half_and_again_when_it_has_given_some_back() {
        let (one, two) = (Owner::User(1), Owner::User(2));
        let parts = Parts::new(4, 2, true);
        let first = parts.connection(one);
        let second = parts.connection(one);
        assert!(first.is_some() && second.is_some() && parts.connection(one).is_none());
        assert!(!parts.has_room(one, 0) && parts.has_room(two, 1) && !parts.has_room(two, 2));
        assert!(parts.connection(two).is_some() && parts.listener(one).is_some());
        drop(first);
        assert!(parts.has_room(one, 0) && parts.connection(one).is_some());
        let alone = Parts::new(2, 1, false);
        let both = [alone.connection(one), alone.connection(one)];
        assert!(both.iter().all(Option::is_some));
    }
}
