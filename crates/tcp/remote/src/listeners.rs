//! Who listens for other hosts, as programs have shown, and whether somebody still does, as Linux says.

use crate::parts::Part;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use uncopy_tcp_proto::ListenerId;
use uncopy_tcp_service::Owner;

/// A listener, and where the kernel steers connections to it from.
#[derive(Debug)]
pub struct Listener {
    /// As the protocol knows it.
    pub id: ListenerId,
    /// Its user's.
    pub part: Part,
    /// Its address, or all of the device's.
    pub steered: Vec<SocketAddrV4>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Listeners {
    all: BTreeMap<SocketAddrV4, Listener>,
}

impl Listeners {
    /// Whether one is known there.
    pub fn has(&self, at: SocketAddrV4) -> bool {
        self.all.contains_key(&at)
    }

    /// Whose a connection to this address is.
    pub fn owner(&self, at: SocketAddrV4) -> Option<Owner> {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, at.port());
        self.all.get(&at).or_else(|| self.all.get(&any)).map(|listener| listener.part.owner())
    }

    /// One more.
    pub fn add(&mut self, at: SocketAddrV4, listener: Listener) {
        self.all.insert(at, listener);
    }

    /// Those of which `now` has none are taken out.
    pub fn take_gone(&mut self, now: &[SocketAddrV4]) -> Vec<Listener> {
        let gone: Vec<SocketAddrV4> =
            self.all.keys().copied().filter(|at| !now.contains(at)).collect();
        gone.iter().filter_map(|at| self.all.remove(at)).collect()
    }

    /// All, to be changed.
    pub fn each(&mut self) -> impl Iterator<Item = (SocketAddrV4, &mut Listener)> {
        self.all.iter_mut().map(|(at, listener)| (*at, listener))
    }

    /// None is left.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// Where this host's sockets listen for IPv4, in the network namespace of the calling thread: those for both families are there as IPv4's.
///
/// # Errors
/// `/proc` is not there.
pub fn of_this_host() -> io::Result<Vec<SocketAddrV4>> {
    let mut all = Vec::new();
    for file in ["tcp", "tcp6"] {
        let file = match std::fs::File::open(format!("/proc/thread-self/net/{file}")) {
            Ok(file) => file,
            // (A kernel without IPv6.)
            Err(_) if file == "tcp6" => continue,
            Err(error) => return Err(error),
        };
        // Listeners come first.
        for line in BufReader::new(file).lines().skip(1) {
            match listener(&line?) {
                Some(at) => all.extend(at),
                None => break,
            }
        }
    }
    Ok(all)
}

/// Of a line of `/proc/net/tcp`. None: it is no listener. Some of nothing: none of IPv4.
fn listener(line: &str) -> Option<Option<SocketAddrV4>> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let local = words.next()?;
    if words.nth(1)? != "0A" {
        return None;
    }
    Some(address(local))
}

/// `0100007F:1F90`; of IPv6 four such words before the colon. Each word is as this processor has it.
fn address(text: &str) -> Option<SocketAddrV4> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.swap_bytes());
    let port = u16::from_str_radix(port, 16).ok()?;
    let ip = match ip.len() {
        8 => word(0)?,
        32 => match [word(0)?, word(8)?, word(16)?, word(24)?] {
            [0, 0, 0, 0] => 0,
            [0, 0, 0xffff, ip] => ip,
            _ => return None,
        },
        _ => return None,
    };
    Some(SocketAddrV4::new(Ipv4Addr::from_bits(ip), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::Parts;

    #[test]
    fn lines_of_listeners_are_read_and_others_end_the_list() {
        let one = "   0: 0100000A:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1";
        assert_eq!(listener(one), Some(Some("10.0.0.1:6379".parse().unwrap())));
        let both = "   0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 0";
        assert_eq!(listener(both), Some(Some("0.0.0.0:80".parse().unwrap())));
        let mapped = "   0: 0000000000000000FFFF00000100000A:0050 00000000000000000000000000000000:0000 0A 0";
        assert_eq!(listener(mapped), Some(Some("10.0.0.1:80".parse().unwrap())));
        let six = "   0: 000080FE00000000000000000100000A:0050 00000000000000000000000000000000:0000 0A 0";
        assert_eq!(listener(six), Some(None));
        assert_eq!(listener("   0: 0100007F:18EB 0100007F:C350 01 0"), None);
        assert_eq!(listener(""), None);
    }

    #[test]
    fn a_socket_of_ours_that_listens_is_among_this_hosts() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let std::net::SocketAddr::V4(at) = socket.local_addr().unwrap() else { panic!() };
        assert!(of_this_host().unwrap().contains(&at));
        drop(socket);
        assert!(!of_this_host().unwrap().contains(&at));
    }

    #[test]
    fn who_does_not_listen_any_more_is_taken_out() {
        let (mut listeners, parts) = (Listeners::default(), Parts::new(1, 4, false));
        let at = |port| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        for port in [1, 2] {
            let part = parts.listener(Owner::User(1)).unwrap();
            let id = ListenerId(port.into());
            listeners.add(at(port), Listener { id, part, steered: vec![] });
        }
        let gone = listeners.take_gone(&[at(2), at(3)]);
        assert_eq!(gone.iter().map(|gone| gone.id).collect::<Vec<_>>(), [ListenerId(1)]);
        let one = SocketAddrV4::new([10, 0, 0, 1].into(), 2);
        assert_eq!((listeners.owner(one), listeners.owner(at(1))), (Some(Owner::User(1)), None));
        assert!(listeners.has(at(2)) && !listeners.has(at(1)) && !listeners.is_empty());
    }
}
