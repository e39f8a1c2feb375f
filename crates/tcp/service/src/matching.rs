//! Ends that were registered and wait for their other end. Nobody's descriptor is kept: a
//! connection must end when its programs close it.

use crate::ends::EndName;
use crate::owner::Owner;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// How long an end waits. A server that takes longer than this to accept keeps that connection with
/// Linux.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// So many entries of the order may be of ends that wait no more, before they are looked for.
const STALE: usize = 1024;

/// The program that registered it, and its name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registration {
    /// The program.
    pub program: u64,
    /// The owner of that program.
    pub owner: Owner,
    /// Its name for the socket.
    pub token: u64,
}

/// The sockets of a connection's two ends, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inodes {
    /// Of the end that is registered.
    pub own: u32,
    /// Of the other one, whoever has it now; 0: none here.
    pub other: u32,
}

/// The ends that wait.
#[derive(Debug, Default)]
pub struct Waiting {
    ends: HashMap<EndName, (Registration, Instant, u32)>,
    names: HashMap<Registration, EndName>,
    order: VecDeque<(Instant, EndName)>,
    counts: HashMap<u64, usize>,
    of_owners: HashMap<Owner, usize>,
}

impl Waiting {
    /// An end was registered: its other end, if that waits; else this one waits. An older one of
    /// the same name has gone, and so has one whose socket is another now: names are used again.
    pub fn register(
        &mut self,
        name: EndName,
        registration: Registration,
        inodes: Inodes,
        now: Instant,
    ) -> Option<Registration> {
        if let Some((other, _, inode)) = self.ends.remove(&name.other()) {
            self.is_over(other);
            if inode == inodes.other {
                return Some(other);
            }
        }
        *self.counts.entry(registration.program).or_default() += 1;
        *self.of_owners.entry(registration.owner).or_default() += 1;
        if let Some((older, ..)) = self.ends.insert(name, (registration, now, inodes.own)) {
            self.is_over(older);
        }
        self.names.insert(registration, name);
        self.order.push_back((now, name));
        self.clean();
        None
    }

    /// A program that registers and forgets in a loop would else have an entry for each time, until
    /// its timeout is over. (Not each time: all are looked at.)
    fn clean(&mut self) {
        if self.order.len() > 2 * self.ends.len() + STALE {
            let ends = &self.ends;
            self.order.retain(|(since, name)| {
                ends.get(name).is_some_and(|(_, registration, _)| registration == since)
            });
        }
    }

    /// Calls `gone` for each end that has waited long enough.
    pub fn expire(&mut self, now: Instant, mut gone: impl FnMut(Registration, EndName)) {
        while let Some(&(since, name)) = self.order.front() {
            if now - since < TIMEOUT {
                break;
            }
            self.order.pop_front();
            if self.ends.get(&name).is_some_and(|(_, registration, _)| *registration == since)
                && let Some((registration, ..)) = self.ends.remove(&name)
            {
                self.is_over(registration);
                gone(registration, name);
            }
        }
    }

    /// An end is closed. False: it does not wait.
    pub fn take_back(&mut self, registration: Registration) -> bool {
        let Some(name) = self.names.get(&registration) else { return false };
        self.ends.remove(name);
        self.is_over(registration);
        true
    }

    /// All of them, and since when they wait.
    pub fn ends(&self) -> impl Iterator<Item = (EndName, Registration, Instant)> {
        self.ends.iter().map(|(&name, &(registration, since, _))| (name, registration, since))
    }

    /// When the next one will have.
    pub fn next(&self) -> Option<Instant> {
        self.order.front().map(|(since, _)| *since + TIMEOUT)
    }

    /// A program has gone, and its ends with it.
    pub fn forget(&mut self, program: u64, owner: Owner) {
        self.ends.retain(|_, (registration, ..)| registration.program != program);
        self.names.retain(|registration, _| registration.program != program);
        let count = self.counts.remove(&program).unwrap_or(0);
        self.fewer(owner, count);
    }

    /// How many of a program's wait.
    pub fn of(&self, program: u64) -> usize {
        self.counts.get(&program).copied().unwrap_or(0)
    }

    /// How many of an owner's wait.
    pub fn of_owner(&self, owner: Owner) -> usize {
        self.of_owners.get(&owner).copied().unwrap_or(0)
    }

    /// It does not wait any more.
    fn is_over(&mut self, registration: Registration) {
        self.names.remove(&registration);
        if let Some(count) = self.counts.get_mut(&registration.program) {
            *count -= 1;
        }
        self.fewer(registration.owner, 1);
    }

    fn fewer(&mut self, owner: Owner, by: usize) {
        if let Some(count) = self.of_owners.get_mut(&owner) {
            *count -= by;
            if *count == 0 {
                self.of_owners.remove(&owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ends;
    use std::net::{TcpListener, TcpStream};

    const ME: Owner = Owner::User(7);

    /// Both ends' names, and the sockets that have them.
    fn connection() -> ([EndName; 2], [TcpStream; 2]) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let b = listener.accept().unwrap().0;
        ([ends::name(&a).unwrap(), ends::name(&b).unwrap()], [a, b])
    }

    fn registration(token: u64) -> Registration {
        Registration { program: 1, owner: ME, token }
    }

    /// Otherwise a closed end that was registered would get the next end of its name.
    #[test]
    fn an_end_whose_socket_is_another_now_is_not_met() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        let ([name, _], _sockets) = connection();
        let [thief, server, client] =
            [0, 1, 2].map(|program| Registration { program, owner: ME, token: 0 });
        let inodes = |own, other| Inodes { own, other };
        assert_eq!(waiting.register(name, thief, inodes(7, 8), now), None);
        assert_eq!(waiting.register(name.other(), server, inodes(9, 10), now), None);
        assert_eq!(waiting.register(name, client, inodes(10, 9), now), Some(server));
    }

    #[test]
    fn a_program_that_registers_and_forgets_without_end_takes_no_memory() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        let ([name, other], _sockets) = connection();
        let ([waits, _], _others) = connection();
        assert_eq!(waiting.register(waits, registration(0), Inodes::default(), now), None);
        for token in 1..100_000 {
            let then = now + Duration::from_nanos(token);
            assert_eq!(waiting.register(name, registration(token), Inodes::default(), then), None);
            if token % 2 == 0 {
                assert!(waiting.take_back(registration(token)));
            } else {
                assert_eq!(
                    waiting.register(other, registration(token), Inodes::default(), then),
                    Some(registration(token))
                );
            }
            assert!(waiting.order.len() <= 4 + STALE, "{}", waiting.order.len());
        }
        assert_eq!((waiting.of(1), waiting.of_owner(ME)), (1, 1));
        // One that still waits hears when its time is over, and once.
        assert_eq!(waiting.next(), Some(now + TIMEOUT));
        let mut gone = vec![];
        waiting.expire(now + TIMEOUT, |registration, name| gone.push((registration, name)));
        assert_eq!(gone, [(registration(0), waits)]);
        assert_eq!((waiting.of(1), waiting.of_owner(ME)), (0, 0));
    }
}
