//! The service's report of itself: programs, their connections, what stayed with Linux and why. As
//! words in a memfd, of one fixed number for each record, so that a service of another build is
//! refused by its version and not misread.
//!
//! Of a connection's bytes the service knows what the two programs write into their region: it is
//! theirs to say, and nothing is decided by it.

use crate::ends::EndName;
use crate::protocol::StayReason;
use crate::wired::Wired;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};
use uncopy_tcp_shared::layout::{Direction, End, HEADER};
use uncopy_tcp_shared::phase::{At, PhaseWord};
use uncopy_tcp_shared::ring::{BY_LINUX, FINISHED, GONE, RECEIVES, RING};
use uncopy_tcp_shared::wanted::Doors;

/// A program that has said hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its number here.
    pub id: u64,
    /// Its process, in the service's PID namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Since when it is here.
    pub since: SystemTime,
    /// Ends of its that wait for their other end.
    pub waiting: u64,
    /// Bytes of memory that its connections use.
    pub bytes: u64,
    /// How many connections stayed Linux's, by reason: in the order of [`StayReason::ALL`].
    pub stayed: [u64; StayReason::ALL.len()],
}

/// Threads that wait for something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// A thread sleeps over it.
    pub asleep: bool,
    /// A set (epoll) wants to be told.
    pub set: bool,
}

impl Waits {
    fn of(word: u32) -> Self {
        let doors = Doors::of(word);
        let asleep = doors.wakes_own() || doors.wakes().next().is_some();
        Self { asleep, set: doors.notices().next().is_some() }
    }
}

/// One direction of a connection, as its two sides say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectionReport {
    /// Where it is. None: what stands there is no phase.
    pub at: Option<At>,
    /// Why it is Linux's, where it is.
    pub reason: Option<StayReason>,
    /// Bytes that ever went through the ring.
    pub bytes: u64,
    /// Times that bytes were put there.
    pub writes: u64,
    /// Bytes that are unread there.
    pub unread: u32,
    /// Threads that wait for bytes.
    pub data: Waits,
    /// Threads that wait for room.
    pub room: Waits,
}

/// A connection with both ends here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowReport {
    /// Its programs: side 0, side 1.
    pub programs: [u64; 2],
    /// Their addresses.
    pub addresses: [SocketAddr; 2],
    /// Which region, and the slot in it.
    pub place: (u64, u64),
    /// Since when both ends were registered.
    pub since: SystemTime,
    /// Which sides have taken the slot.
    pub attached: [bool; 2],
    /// From side 0, from side 1.
    pub ways: [DirectionReport; 2],
}

/// A connection that stayed Linux's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stayed {
    /// Its program.
    pub program: u64,
    /// Its address and its peer's.
    pub addresses: [SocketAddr; 2],
    /// Since when.
    pub since: SystemTime,
    /// Why.
    pub reason: StayReason,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The service's process.
    pub pid: u32,
    /// Since when it serves.
    pub since: SystemTime,
    /// The programs.
    pub programs: Vec<Program>,
    /// Their connections.
    pub flows: Vec<FlowReport>,
    /// Those that wait, and the last of those that stayed Linux's.
    pub stayed: Vec<Stayed>,
    /// Those over the wire.
    pub wired: Vec<Wired>,
}

impl DirectionReport {
    fn read(header: &[u8; HEADER], side: usize) -> Self {
        use std::mem::offset_of;
        use uncopy_tcp_shared::ring::{Consumed, Produced};
        let begin = side * size_of::<Direction>();
        let bytes = |at: usize, count: usize| &header[begin + at..begin + at + count];
        let word = |at| u32::from_ne_bytes(bytes(at, 4).try_into().expect("four bytes"));
        let long = |at| u64::from_ne_bytes(bytes(at, 8).try_into().expect("eight bytes"));
        let consumed = offset_of!(Direction, consumed);
        let (produced_flags, consumed_flags) =
            (word(offset_of!(Produced, flags)), word(consumed + offset_of!(Consumed, flags)));
        let at = PhaseWord::of(word(offset_of!(Direction, switch))).ok();
        let unread = word(offset_of!(Produced, tail))
            .wrapping_sub(word(consumed + offset_of!(Consumed, head)));
        let bytes = long(offset_of!(Produced, bytes));
        let reason = match at {
            Some(At::Offered | At::Ring) => None,
            _ if produced_flags & FINISHED != 0 || consumed_flags & GONE != 0 => {
                Some(StayReason::Ended)
            }
            Some(At::Returned) => Some(StayReason::GivenBack),
            _ if consumed_flags & BY_LINUX != 0 => Some(StayReason::GivenBack),
            Some(At::Leaving) => Some(StayReason::Left),
            _ if consumed_flags & RECEIVES == 0 => Some(StayReason::NotAwaited),
            _ if bytes > 0 => Some(StayReason::Left),
            _ => Some(StayReason::NotOffered),
        };
        Self {
            at,
            reason,
            bytes,
            writes: long(offset_of!(Produced, writes)),
            unread: unread.min(RING),
            data: Waits::of(word(consumed + offset_of!(Consumed, data))),
            room: Waits::of(word(offset_of!(Produced, room))),
        }
    }
}

impl FlowReport {
    /// Reads it from a slot's header.
    pub fn read(
        header: &[u8; HEADER],
        programs: [u64; 2],
        place: (u64, u64),
        generation: u32,
        name: EndName,
        since: SystemTime,
    ) -> Self {
        let attached = |side: usize| {
            let at = HEADER - (2 - side) * size_of::<End>();
            header[at..at + 4] == generation.to_ne_bytes()
        };
        Self {
            programs,
            addresses: name.addresses(),
            place,
            since,
            attached: [attached(0), attached(1)],
            ways: [DirectionReport::read(header, 0), DirectionReport::read(header, 1)],
        }
    }
}

/// Of the words' order: what `Out` writes `In` reads.
const LAYOUT: u64 = 4;
/// Words that are read, at most: of a million connections.
const WORDS: u64 = 1 << 26;

struct Out(Vec<u64>);

impl Out {
    fn word(&mut self, word: u64) {
        self.0.push(word);
    }

    fn time(&mut self, time: SystemTime) {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.word(since.as_millis() as u64);
    }

    fn address(&mut self, address: SocketAddr) {
        let bits = match address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        self.word((bits >> 64) as u64);
        self.word(bits as u64);
        self.word(address.port().into());
    }

    fn wired(&mut self, of: &Wired) {
        of.addresses.iter().for_each(|&address| self.address(address));
        let numbers = [of.state.into(), of.control.into(), of.lane.into(), of.mss.into()];
        numbers.into_iter().for_each(|word: u64| self.word(word));
        let [first, second, third] = of.again;
        let (rtt, var) = of.rtt;
        for word in [
            rtt,
            var,
            of.window,
            of.in_flight,
            of.peer_window,
            of.unread,
            of.unacked,
            first,
            second,
            third,
        ] {
            self.word(word.into());
        }
        [of.rate, of.delivered, of.marked].into_iter().for_each(|word| self.word(word));
        of.agreed.iter().for_each(|&agreed| self.word(agreed.into()));
    }

    fn way(&mut self, way: &DirectionReport) {
        self.word(way.at.map_or(u64::MAX, |at| at as u64));
        self.word(way.reason.map_or(0, |reason| reason as u64));
        self.word(way.bytes);
        self.word(way.writes);
        self.word(way.unread.into());
        let waits = [way.data.asleep, way.data.set, way.room.asleep, way.room.set];
        self.word(waits.iter().rev().fold(0, |bits, &bit| bits << 1 | u64::from(bit)));
    }
}

struct In<'a>(std::slice::Iter<'a, u64>);

impl In<'_> {
    fn word(&mut self) -> Option<u64> {
        self.0.next().copied()
    }

    fn time(&mut self) -> Option<SystemTime> {
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(self.word()?))
    }

    fn address(&mut self) -> Option<SocketAddr> {
        let bits = u128::from(self.word()?) << 64 | u128::from(self.word()?);
        let address = IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical();
        Some(SocketAddr::new(address, self.word()?.try_into().ok()?))
    }

    fn number<T: TryFrom<u64>>(&mut self) -> Option<T> {
        self.word()?.try_into().ok()
    }

    fn wired(&mut self) -> Option<Wired> {
        let addresses = [self.address()?, self.address()?];
        let (state, control) = (self.number()?, self.number()?);
        let (lane, mss) = (self.number()?, self.number()?);
        let rtt = (self.number()?, self.number()?);
        let [window, in_flight, peer_window] = [self.number()?, self.number()?, self.number()?];
        let [unread, unacked] = [self.number()?, self.number()?];
        let again = [self.number()?, self.number()?, self.number()?];
        let [rate, delivered, marked] = [self.word()?, self.word()?, self.word()?];
        let agreed = [self.word()? != 0, self.word()? != 0, self.word()? != 0];
        Some(Wired {
            addresses,
            state,
            control,
            lane,
            rtt,
            mss,
            window,
            rate,
            in_flight,
            peer_window,
            unread,
            unacked,
            delivered,
            marked,
            again,
            agreed,
        })
    }

    fn way(&mut self) -> Option<DirectionReport> {
        let at = self.word()?;
        let reason = self.word()?;
        let [bytes, writes] = [self.word()?, self.word()?];
        let unread = self.word()?.try_into().ok()?;
        let waits = self.word()?;
        let bit = |bit: u32| waits & 1 << bit != 0;
        Some(DirectionReport {
            at: u32::try_from(at).ok().and_then(|at| PhaseWord::of(at).ok()),
            reason: StayReason::of(reason),
            bytes,
            writes,
            unread,
            data: Waits { asleep: bit(0), set: bit(1) },
            room: Waits { asleep: bit(2), set: bit(3) },
        })
    }

    /// As many as are said to be there, and no more than there are words.
    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.word()? as usize;
        if count > self.0.len() {
            return None;
        }
        (0..count).map(|_| read(self)).collect()
    }
}

impl Wired {
    /// Its words, as [`State`] has them.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Out(vec![]);
        out.wired(self);
        out.0.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Out of these. None: they are none of its.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let mut from = In(words.iter());
        let wired = from.wired()?;
        (from.0.len() == 0 && bytes.len().is_multiple_of(8)).then_some(wired)
    }
}

impl State {
    /// A program did not get so many connections over the wire, because it has as many as it may.
    pub(crate) fn refused(&mut self, program: u64, count: u64) {
        if let Some(program) = self.programs.iter_mut().find(|known| known.id == program) {
            program.stayed[StayReason::OverLimit as usize - 1] += count;
        }
    }

    fn words(&self) -> Vec<u64> {
        let mut out = Out(vec![LAYOUT, self.pid.into()]);
        out.time(self.since);
        out.word(self.programs.len() as u64);
        for program in &self.programs {
            out.word(program.id);
            out.word(program.pid.into());
            out.word(program.uid.into());
            out.time(program.since);
            out.word(program.waiting);
            out.word(program.bytes);
            program.stayed.iter().for_each(|&count| out.word(count));
        }
        out.word(self.flows.len() as u64);
        for flow in &self.flows {
            flow.programs.iter().for_each(|&program| out.word(program));
            flow.addresses.iter().for_each(|&address| out.address(address));
            out.word(flow.place.0);
            out.word(flow.place.1);
            out.time(flow.since);
            flow.attached.iter().for_each(|&attached| out.word(attached.into()));
            flow.ways.iter().for_each(|way| out.way(way));
        }
        out.word(self.stayed.len() as u64);
        for stayed in &self.stayed {
            out.word(stayed.program);
            stayed.addresses.iter().for_each(|&address| out.address(address));
            out.time(stayed.since);
            out.word(stayed.reason as u64);
        }
        out.word(self.wired.len() as u64);
        self.wired.iter().for_each(|wired| out.wired(wired));
        out.0
    }

    fn of(words: &[u64]) -> Option<Self> {
        let mut from = In(words.iter());
        if from.word()? != LAYOUT {
            return None;
        }
        let state = Self {
            pid: from.word()?.try_into().ok()?,
            since: from.time()?,
            programs: from.list(|from| {
                Some(Program {
                    id: from.word()?,
                    pid: from.word()?.try_into().ok()?,
                    uid: from.number()?,
                    since: from.time()?,
                    waiting: from.word()?,
                    bytes: from.word()?,
                    stayed: {
                        let mut stayed = [0; StayReason::ALL.len()];
                        for count in &mut stayed {
                            *count = from.word()?;
                        }
                        stayed
                    },
                })
            })?,
            flows: from.list(|from| {
                Some(FlowReport {
                    programs: [from.word()?, from.word()?],
                    addresses: [from.address()?, from.address()?],
                    place: (from.word()?, from.word()?),
                    since: from.time()?,
                    attached: [from.word()? != 0, from.word()? != 0],
                    ways: [from.way()?, from.way()?],
                })
            })?,
            stayed: from.list(|from| {
                Some(Stayed {
                    program: from.word()?,
                    addresses: [from.address()?, from.address()?],
                    since: from.time()?,
                    reason: StayReason::of(from.word()?)?,
                })
            })?,
            wired: from.list(In::wired)?,
        };
        Some(state)
    }

    /// Into a memfd, and how many words.
    pub fn write(&self) -> Result<(OwnedFd, u64), Errno> {
        let words = self.words();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let memory = rustix::fs::memfd_create("uncopy-tcp-state", MemfdFlags::CLOEXEC)?;
        let mut at = 0;
        while at < bytes.len() {
            at += rustix::io::pwrite(&memory, &bytes[at..], at as u64)?;
        }
        Ok((memory, words.len() as u64))
    }

    /// Out of one. EPROTO: a service of another build wrote it; or somebody else.
    pub fn read(memory: &OwnedFd, words: u64) -> Result<Self, Errno> {
        // (No more than there is: what is asked for is somebody else's number.)
        let there = rustix::fs::fstat(memory)?.st_size as u64 / 8;
        if words.min(there) > WORDS {
            return Err(Errno::PROTO);
        }
        let mut bytes = vec![0; words.min(there) as usize * 8];
        let mut at = 0;
        while at < bytes.len() {
            match rustix::io::pread(memory, &mut bytes[at..], at as u64)? {
                0 => return Err(Errno::PROTO),
                count => at += count,
            }
        }
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
            .collect();
        Self::of(&words).ok_or(Errno::PROTO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> State {
        let since = SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567);
        let addresses =
            ["127.0.0.1:80".parse().unwrap(), "[::1]:65535".parse::<SocketAddr>().unwrap()];
        let waits = Waits { asleep: true, set: false };
        let way = DirectionReport {
            at: Some(At::Ring),
            reason: None,
            bytes: u64::MAX,
            writes: 3,
            unread: 7,
            data: waits,
            room: Waits { asleep: false, set: true },
        };
        let other = DirectionReport { at: None, reason: Some(StayReason::Ended), ..way };
        State {
            pid: 1,
            since,
            programs: vec![Program {
                id: 1,
                pid: 4711,
                uid: 1000,
                since,
                waiting: 2,
                bytes: 4096,
                stayed: std::array::from_fn(|i| i as u64),
            }],
            flows: vec![
                FlowReport {
                    programs: [1, 2],
                    addresses,
                    place: (3, 4),
                    since,
                    attached: [true, false],
                    ways: [way, other],
                };
                2
            ],
            stayed: vec![Stayed { program: 1, addresses, since, reason: StayReason::Remote }],
            wired: vec![Wired {
                addresses,
                state: 3,
                control: 2,
                lane: 1,
                rtt: (100, 20),
                mss: 1448,
                window: 14_480,
                rate: 1 << 40,
                in_flight: 5,
                peer_window: 65_535,
                unread: 6,
                unacked: 7,
                delivered: u64::MAX,
                marked: 8,
                again: [9, 10, 11],
                agreed: [true, false, true],
            }],
        }
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let (memory, words) = some().write().unwrap();
        assert_eq!(State::read(&memory, words), Ok(some()));
        assert_eq!(State::read(&memory, words - 1), Err(Errno::PROTO));
    }

    #[test]
    fn a_connection_over_the_wire_is_read_by_itself_as_it_was_written() {
        let wired = some().wired[0];
        let bytes = wired.bytes();
        assert!(bytes.len() <= crate::client::INFO);
        assert_eq!(Wired::of_bytes(&bytes), Some(wired));
        assert_eq!(Wired::of_bytes(&bytes[1..]), None);
        assert_eq!(Wired::of_bytes(&[&bytes[..], &[0; 8]].concat()), None);
        assert_eq!(Wired::of_bytes(&[]), None);
    }

    #[test]
    fn nonsense_is_refused_wherever_it_stands() {
        let good = some().words();
        for i in 0..good.len() {
            for word in [u64::MAX, 1 << 40, 0] {
                let mut bad = good.clone();
                bad[i] = word;
                // No panic, no list as long as the number says.
                let _ = State::of(&bad);
                let _ = State::of(&bad[..i]);
            }
        }
        assert_eq!(State::of(&[LAYOUT + 1]), None);
    }

    /// A number that is put in the place of one that was there.
    #[derive(Clone, Debug, bolero::TypeGenerator)]
    struct Damage {
        at: u16,
        small: bool,
        value: u64,
    }

    #[test]
    fn a_damaged_file_is_refused_or_read_as_something_that_can_be_written_and_read_alike() {
        let good = some().words();
        let check = bolero::check!().with_type::<(Vec<Damage>, u16, u64)>();
        check.with_iterations(4000).for_each(|(damages, cut, words)| {
            let mut bad = good.clone();
            for damage in damages.iter().take(4) {
                let at = usize::from(damage.at) % bad.len();
                bad[at] = if damage.small { damage.value % 8 } else { damage.value };
            }
            // (One in sixteen is cut off somewhere, within a word too.)
            let mut bytes: Vec<u8> = bad.iter().flat_map(|word| word.to_ne_bytes()).collect();
            if cut % 16 == 0 {
                bytes.truncate(usize::from(*cut) % bytes.len());
            }
            let memory = rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC).unwrap();
            assert_eq!(rustix::io::pwrite(&memory, &bytes, 0), Ok(bytes.len()));
            let words = if words % 4 == 0 { *words } else { bad.len() as u64 };
            if let Ok(state) = State::read(&memory, words) {
                let again = state.words();
                assert!(again.len() <= bytes.len() / 8);
                assert_eq!(State::of(&again), Some(state));
            }
        });
    }

    #[test]
    fn a_file_that_is_larger_than_any_state_is_refused_and_takes_no_memory() {
        let memory = rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&memory, i64::MAX as u64).unwrap();
        assert_eq!(State::read(&memory, u64::MAX), Err(Errno::PROTO));
        assert_eq!(State::read(&memory, 1), Err(Errno::PROTO));
    }
}
