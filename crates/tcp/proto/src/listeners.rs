//! The listeners by address.

use crate::actions::{ListenerId, Refusal};
use crate::config::Listen;
use core::net::Ipv4Addr;

const NONE: u32 = u32::MAX;

pub(crate) struct Listener {
    pub listen: Listen,
    /// Connections that are half open.
    pub half_open: u32,
    /// Connections that wait to be accepted.
    pub waiting: u32,
    /// The next one of this port.
    next: u32,
}

/// All listeners, found by port and address.
pub(crate) struct Listeners {
    all: Vec<Option<Listener>>,
    /// The first of each port.
    ports: Box<[u32]>,
}

impl Listeners {
    pub fn new() -> Listeners {
        Listeners { all: Vec::new(), ports: vec![NONE; 1 << 16].into() }
    }

    pub fn add(&mut self, listen: Listen) -> Result<ListenerId, Refusal> {
        let mut at = self.ports[usize::from(listen.port)];
        while let Some(listener) = self.slot(at) {
            if listener.listen.ip == listen.ip {
                return Err(Refusal::InUse);
            }
            at = listener.next;
        }
        let id = self.all.iter().position(Option::is_none).unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        let head = &mut self.ports[usize::from(listen.port)];
        self.all[id] = Some(Listener { listen, half_open: 0, waiting: 0, next: *head });
        *head = id as u32;
        Ok(ListenerId(id as u32))
    }

    pub fn remove(&mut self, id: ListenerId) -> Option<Listener> {
        let gone = self.all.get_mut(id.0 as usize)?.take()?;
        let head = &mut self.ports[usize::from(gone.listen.port)];
        if *head == id.0 {
            *head = gone.next;
        } else if let Some(before) =
            self.all.iter_mut().flatten().find(|listener| listener.next == id.0)
        {
            before.next = gone.next;
        }
        Some(gone)
    }

    fn slot(&self, id: u32) -> Option<&Listener> {
        self.all.get(id as usize)?.as_ref()
    }

    pub fn get(&mut self, id: u32) -> Option<&mut Listener> {
        self.all.get_mut(id as usize)?.as_mut()
    }

    /// The listener at this address: one that names it before one that takes all.
    pub fn find(&self, ip: Ipv4Addr, port: u16) -> Option<u32> {
        let mut any = None;
        let mut at = self.ports[usize::from(port)];
        while let Some(listener) = self.slot(at) {
            if listener.listen.ip == ip {
                return Some(at);
            }
            if listener.listen.ip.is_unspecified() {
                any = Some(at);
            }
            at = listener.next;
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FlowOptions;

    fn listen(ip: [u8; 4], port: u16) -> Listen {
        Listen { app: 0, ip: ip.into(), port, backlog: 1, flow: FlowOptions::default() }
    }

    #[test]
    fn the_listener_that_names_the_address_comes_first() {
        let mut listeners = Listeners::new();
        let any = listeners.add(listen([0; 4], 80)).unwrap();
        let one = listeners.add(listen([10, 0, 0, 1], 80)).unwrap();
        assert_eq!(listeners.add(listen([0; 4], 80)), Err(Refusal::InUse));
        assert_eq!(listeners.find([10, 0, 0, 1].into(), 80), Some(one.0));
        assert_eq!(listeners.find([10, 0, 0, 2].into(), 80), Some(any.0));
        assert_eq!(listeners.find([10, 0, 0, 2].into(), 81), None);
        assert!(listeners.remove(any).is_some());
        assert_eq!(listeners.find([10, 0, 0, 2].into(), 80), None);
        assert_eq!(listeners.find([10, 0, 0, 1].into(), 80), Some(one.0));
        assert!(listeners.remove(any).is_none());
    }
}
