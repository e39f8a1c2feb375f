//! Listeners for other hosts, as programs have registered them, and whether each still listens, as
//! Linux says. A port that its program has given up may be another user's next: what comes for that
//! one is not ours.

use crate::parts::Part;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use uncopy_tcp_proto::ListenerId;
use uncopy_tcp_service::Owner;

/// A socket that listens: what Linux says of it, and what is known of one that was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listens {
    /// Where.
    pub at: SocketAddrV4,
    /// The user whose it is; for a registered one, the program's user.
    pub user: u32,
    /// The socket.
    pub inode: u64,
    /// It is known to have keys by which segments are signed.
    pub signs: bool,
}

/// A listener, and where the kernel steers connections to it from.
#[derive(Debug)]
pub struct Listener {
    /// The protocol's name for it.
    pub id: ListenerId,
    /// The program's number there.
    pub app: u16,
    /// That of the user whose programs have registered it.
    pub part: Part,
    /// Their sockets: a program may have been given another user's.
    pub sockets: Vec<u64>,
    /// Its address, or all of the device's.
    pub steered: Vec<SocketAddrV4>,
}

impl Listener {
    /// The user whose programs have registered it.
    pub fn user(&self) -> u32 {
        self.part.owner().uid()
    }

    /// This socket is one of those that were registered, or another one of the same user's.
    fn is(&self, other: &Listens) -> bool {
        self.user() == other.user || self.sockets.contains(&other.inode)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Listeners {
    all: BTreeMap<SocketAddrV4, Listener>,
}

impl Listeners {
    /// The one that is known there.
    pub fn get(&mut self, at: SocketAddrV4) -> Option<&mut Listener> {
        self.all.get_mut(&at)
    }

    /// Whether who is found at an address of this host's is one that was registered.
    pub fn has(&self, at: SocketAddrV4, found: &Listens) -> bool {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, at.port());
        self.all.get(&at).or_else(|| self.all.get(&any)).is_some_and(|known| known.is(found))
    }

    /// The owner of a connection to this address.
    pub fn owner(&self, at: SocketAddrV4) -> Option<Owner> {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, at.port());
        self.all.get(&at).or_else(|| self.all.get(&any)).map(|listener| listener.part.owner())
    }

    /// One more.
    pub fn add(&mut self, at: SocketAddrV4, listener: Listener) {
        self.all.insert(at, listener);
    }

    /// Takes listeners out that have no socket among `now`.
    pub fn take_gone(&mut self, now: &[Listens]) -> Vec<Listener> {
        let mut there: HashMap<SocketAddrV4, Vec<&Listens>> = HashMap::new();
        now.iter().for_each(|one| there.entry(one.at).or_default().push(one));
        let mut gone = vec![];
        for (at, known) in &mut self.all {
            let here = there.get(at).map_or(&[][..], Vec::as_slice);
            if !here.iter().any(|one| known.is(one)) {
                gone.push(*at);
            }
            known.sockets.retain(|socket| here.iter().any(|one| one.inode == *socket));
        }
        gone.iter().filter_map(|at| self.all.remove(at)).collect()
    }

    /// This one, taken out.
    pub fn take(&mut self, at: SocketAddrV4) -> Option<Listener> {
        self.all.remove(&at)
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

/// Where this host's sockets listen for IPv4, in the network namespace of the calling thread: those
/// for both families are there as IPv4's.
///
/// # Errors
/// `/proc` is not there.
pub fn of_this_host() -> io::Result<Vec<Listens>> {
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

/// Parses a line of `/proc/net/tcp`. `None`: it is no listener. `Some(None)`: none of IPv4.
fn listener(line: &str) -> Option<Option<Listens>> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let local = words.next()?;
    if words.nth(1)? != "0A" {
        return None;
    }
    // (Queues, timers, timeouts; the user; probes; the inode.)
    let user = words.nth(3).and_then(|user| user.parse().ok());
    let inode = words.nth(1).and_then(|inode| inode.parse().ok());
    Some((|| Some(Listens { at: address(local)?, user: user?, inode: inode?, signs: false }))())
}

/// `0100007F:1F90`; of IPv6 four such words before the colon. Each word is as this processor has
/// it.
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

    fn listens(at: &str, user: u32, inode: u64) -> Listens {
        Listens { at: at.parse().unwrap(), user, inode, signs: false }
    }

    #[test]
    fn lines_of_listeners_are_read_and_others_end_the_list() {
        let rest =
            "00000000:00000000 00:00000000 00000000   106        0 20814 1 0000000000000000 100";
        let one = format!("   0: 0100000A:18EB 00000000:0000 0A {rest}");
        assert_eq!(listener(&one), Some(Some(listens("10.0.0.1:6379", 106, 20814))));
        let six = |ip| format!("   0: {ip}:0050 00000000000000000000000000000000:0000 0A {rest}");
        let both = six("00000000000000000000000000000000");
        assert_eq!(listener(&both), Some(Some(listens("0.0.0.0:80", 106, 20814))));
        let mapped = six("0000000000000000FFFF00000100000A");
        assert_eq!(listener(&mapped), Some(Some(listens("10.0.0.1:80", 106, 20814))));
        assert_eq!(listener(&six("000080FE00000000000000000100000A")), Some(None));
        assert_eq!(listener("   0: 0100007F:18EB 0100007F:C350 01 0"), None);
        assert_eq!(listener(""), None);
    }

    #[test]
    fn a_socket_of_ours_that_listens_is_among_this_hosts() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let std::net::SocketAddr::V4(at) = socket.local_addr().unwrap() else { panic!() };
        let stat = rustix::fs::fstat(&socket).unwrap();
        let own = Listens { at, user: stat.st_uid, inode: stat.st_ino, signs: false };
        assert!(of_this_host().unwrap().contains(&own));
        drop(socket);
        assert!(!of_this_host().unwrap().iter().any(|one| one.at == at));
    }

    #[test]
    fn a_program_that_listens_no_more_is_taken_out_also_where_another_user_listens() {
        let (mut listeners, parts) = (Listeners::default(), Parts::new(1, 4, false));
        let at = |port| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        let now = |port, user, inode| Listens { at: at(port), user, inode, signs: false };
        for port in 1..=4 {
            let (id, part) = (ListenerId(port.into()), parts.listener(Owner::User(7)).unwrap());
            let (sockets, steered) = (vec![9], vec![]);
            listeners.add(at(port), Listener { id, app: 0, part, sockets, steered });
        }
        // Another one of its user's, another user's; and one that its program was given.
        let there = [now(2, 7, 8), now(3, 6, 8), now(4, 6, 9), now(5, 7, 9)];
        let gone = listeners.take_gone(&there);
        assert_eq!(gone.iter().map(|gone| gone.id).collect::<Vec<_>>(), [1, 3].map(ListenerId));
        let one = SocketAddrV4::new([10, 0, 0, 1].into(), 4);
        assert!(listeners.has(one, &now(4, 6, 9)) && !listeners.has(one, &now(4, 6, 8)));
        assert_eq!((listeners.owner(one), listeners.owner(at(1))), (Some(Owner::User(7)), None));
        // That one is not there any more, and its number may be another's.
        assert!(listeners.has(at(2), &now(2, 7, 1)) && !listeners.has(at(2), &now(2, 6, 9)));
        assert!(listeners.get(at(2)).is_some() && listeners.get(at(1)).is_none());
    }
}
