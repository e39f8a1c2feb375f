//! The messages between a program and the service: words of 64 bits over a SOCK_SEQPACKET socket,
//! descriptors beside them. The socket's name is abstract, so that nothing is left behind by
//! whoever dies, and it is the network namespace's own, as addresses are.

use crate::ends::EndName;
pub use crate::stay_reason::StayReason;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use uncopy_tcp_shared::wanted::ASK;

/// Both must speak the same: the layout of what is shared is part of it.
pub const VERSION: u64 = 18;
/// The service takes connections from other hosts for listeners that are registered with it.
pub const TAKES: u64 = 1;
/// It carries connections that programs open to other hosts.
pub const CARRIES: u64 = 2;
/// Programs by which an arena may have come, at most.
pub const GIVERS: usize = 3;
const WORDS: usize = 7;
/// A region's memfd and its other side's doors.
const DESCRIPTORS: usize = 1 + DOOR_COUNT;
/// Eventfds by which a program is woken: `DOORS` for those that wait, and [`ASK`].
pub const DOOR_COUNT: usize = ASK + 1;

/// A message. The sender of each is said there; anything else ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Program: the first one. With its doors (eventfds).
    Hello(u64),
    /// Service: the answer. With the mailbox: a memfd whose first word changes with each later
    /// message.
    Welcome {
        /// As in `Hello`.
        version: u64,
        /// Its services to connections with other hosts: [`TAKES`], [`CARRIES`], or nothing.
        wire: u64,
    },
    /// Program: with what proves that it has this end (`proof`).
    Register {
        /// The program's name for it.
        token: u64,
        /// Which end of which connection it is.
        name: EndName,
        /// It has a filter, which the kernel alone heeds.
        filtered: bool,
    },
    /// Service: the other end was registered too. With the region's memfd and the other side's
    /// doors, if the region is new to this side.
    Matched {
        /// As in `Register`.
        token: u64,
        /// Which region.
        region: u64,
        /// The slot in it.
        slot: u64,
        /// Which side of it the program is: 0 or 1.
        side: u64,
        /// The number that both write when they attach.
        generation: u64,
    },
    /// Program: a door of its own for one connection, of which it is this side. With that eventfd.
    /// Service: the same to the other side, of which side that is.
    Door {
        /// As in `Matched`.
        region: u64,
        /// As in `Matched`.
        slot: u64,
        /// As in `Matched`, of the program that sends or receives this.
        side: u64,
        /// As in `Matched`.
        generation: u64,
    },
    /// Program: the other side of this region, of which it is this side, may map this arena of
    /// blocks (`uncopy_tcp_shared::arena`), its own or one that it was given. With it. Service: the
    /// same to the other side, where both could trace each other.
    Arena {
        /// As in `Matched`.
        region: u64,
        /// As in `Matched`.
        side: u64,
        /// By which runs name it,
        number: u64,
        /// and which it is of all that ever had the number; not 0.
        generation: u32,
        /// By which regions the program was given it, those before its own, the first first; 0:
        /// none. The receiver says for these too that it has it.
        by: [u64; GIVERS],
    },
    /// Program: the arena of this number is an ended program's. Service: the same to the other
    /// side.
    ArenaEnds {
        /// As in `Matched`.
        region: u64,
        /// As in `Matched`.
        side: u64,
        /// The number by which runs name it.
        number: u64,
        /// As in `Arena`.
        generation: u32,
        /// 0: no run that is sent from now on names it, and what is viewed of it is to come back.
        /// Else none that is unread, and nothing is out: the number is free.
        done: u64,
    },
    /// Program: the region's memory did not come with `Matched`, because no descriptor was left; it
    /// has not attached. The next time it may have room.
    Missing {
        /// As in `Matched`.
        region: u64,
        /// As in `Matched`.
        slot: u64,
        /// As in `Matched`.
        side: u64,
        /// As in `Matched`.
        generation: u64,
    },
    /// Service: it stays Linux's.
    Stays {
        /// As in `Register`.
        token: u64,
        /// Why.
        reason: StayReason,
    },
    /// Program: what it has registered by this name is closed, and it has not heard what became of
    /// it.
    Forget {
        /// As in `Register`.
        token: u64,
    },
    /// Service: the other program of this region has gone.
    Gone {
        /// Which region.
        region: u64,
    },
    /// Anybody whom it serves: asks for the state, as far as it is this user's.
    Tell,
    /// Service: the answer. With a memfd of so many words ([`crate::state`]).
    Told {
        /// Words in it.
        words: u64,
    },
    /// Program: with what proves that it has a socket that listens there (`proof`), to a service
    /// that [`TAKES`] connections from other hosts for it ([`crate::Listening`]).
    Listen {
        /// The socket's address, of IPv4.
        address: u64,
        /// Its port.
        port: u64,
    },
    /// Program: what listens there is to be Linux's again, because it is about to get what the
    /// service does not heed. With the same, and one end of a pair of sockets: a byte comes there
    /// once nothing is taken for it any more.
    Withdraw {
        /// The socket's address, of IPv4.
        address: u64,
        /// Its port.
        port: u64,
    },
    /// Program: with a socket that is about to connect to another host by IPv4, and one end of a
    /// pair of sockets. A byte comes there if the service's wire is to carry it; the end is closed
    /// if not.
    Connect {
        /// The peer's address.
        address: u64,
        /// Its port.
        port: u64,
    },
    /// The service's user, or root, with a file: frames of the wire are written there, of
    /// connections with this end (0: any). Until the asker says that it ends, or goes.
    Trace {
        /// Its address.
        address: u64,
        /// Its port.
        port: u64,
    },
    /// The program that has asked for a trace ends it.
    EndTrace,
    /// Service: the answer to both.
    Traced {
        /// Frames that were written.
        frames: u64,
        /// Why not, or why no more: an error number, or 0.
        error: u64,
    },
    /// Program: such a socket was closed, or dissolved, before it was connected, or could not be.
    Closes {
        /// The socket's, as Linux names it (SO_COOKIE).
        cookie: u64,
    },
    /// Program: with a socket whose connection the service carries over its wire, and one end of a
    /// pair of sockets. The account of the connection comes there ([`crate::Wired`]); the end is
    /// closed where there is none.
    Info,
    /// Program: with a socket, the other end of what stands in for it, a memfd for the bytes that
    /// come first, and one end of a pair of sockets: a byte comes there when the service is ready
    /// to relay, and it waits there for how many bytes these are ([`crate::relay`]).
    Relay,
}

impl Message {
    fn words(self) -> [u64; WORDS] {
        let of = |kind: u64, rest: &[u64]| {
            let mut words = [0; WORDS];
            words[0] = kind;
            words[1..=rest.len()].copy_from_slice(rest);
            words
        };
        match self {
            Self::Hello(version) => of(1, &[version]),
            Self::Welcome { version, wire } => of(2, &[version, wire]),
            Self::Register { token, name, filtered } => {
                let ([a, b, c, d], ports) = name.words();
                of(3, &[token, a, b, c, d, u64::from(filtered) << 32 | u64::from(ports)])
            }
            Self::Matched { token, region, slot, side, generation } => {
                of(4, &[token, region, slot, side, generation])
            }
            Self::Stays { token, reason } => of(5, &[token, reason as u64]),
            Self::Gone { region } => of(6, &[region]),
            Self::Tell => of(7, &[]),
            Self::Told { words } => of(8, &[words]),
            Self::Relay => of(9, &[]),
            Self::Door { region, slot, side, generation } => {
                of(10, &[region, slot, side, generation])
            }
            Self::Listen { address, port } => of(11, &[address, port]),
            Self::Connect { address, port } => of(12, &[address, port]),
            Self::Closes { cookie } => of(13, &[cookie]),
            Self::Trace { address, port } => of(14, &[address, port]),
            Self::EndTrace => of(15, &[]),
            Self::Traced { frames, error } => of(16, &[frames, error]),
            Self::Missing { region, slot, side, generation } => {
                of(17, &[region, slot, side, generation])
            }
            Self::Forget { token } => of(18, &[token]),
            Self::Withdraw { address, port } => of(19, &[address, port]),
            Self::Info => of(20, &[]),
            Self::Arena { region, side, number, generation, by: [a, b, c] } => {
                let number = u64::from(generation) << 32 | u64::from(number as u32);
                of(21, &[region, side, number, a, b, c])
            }
            Self::ArenaEnds { region, side, number, generation, done } => {
                of(22, &[region, side, number, generation.into(), done])
            }
        }
    }

    fn of(words: [u64; WORDS]) -> Option<Self> {
        let [kind, a, b, c, d, e, f] = words;
        Some(match kind {
            1 => Self::Hello(a),
            2 => Self::Welcome { version: a, wire: b },
            3 => Self::Register {
                token: a,
                name: EndName::of_words([b, c, d, e], f as u32),
                filtered: f >> 32 != 0,
            },
            4 => Self::Matched { token: a, region: b, slot: c, side: d, generation: e },
            5 => Self::Stays { token: a, reason: StayReason::of(b)? },
            6 => Self::Gone { region: a },
            7 => Self::Tell,
            8 => Self::Told { words: a },
            9 => Self::Relay,
            10 => Self::Door { region: a, slot: b, side: c, generation: d },
            11 => Self::Listen { address: a, port: b },
            12 => Self::Connect { address: a, port: b },
            13 => Self::Closes { cookie: a },
            14 => Self::Trace { address: a, port: b },
            15 => Self::EndTrace,
            16 => Self::Traced { frames: a, error: b },
            17 => Self::Missing { region: a, slot: b, side: c, generation: d },
            18 => Self::Forget { token: a },
            19 => Self::Withdraw { address: a, port: b },
            20 => Self::Info,
            21 => Self::Arena {
                region: a,
                side: b,
                number: c & u64::from(u32::MAX),
                generation: (c >> 32) as u32,
                by: [d, e, f],
            },
            22 => Self::ArenaEnds {
                region: a,
                side: b,
                number: c,
                generation: u32::try_from(d).ok()?,
                done: e,
            },
            _ => return None,
        })
    }
}

/// Sends, without waiting: EAGAIN where the other does not read.
pub fn send(to: BorrowedFd, message: Message, with: &[BorrowedFd]) -> Result<(), Errno> {
    let bytes: Vec<u8> = message.words().iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(with)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(to, &[IoSlice::new(&bytes)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

/// Receives one message: EAGAIN where there is none, ECONNRESET where the other has gone, EBADMSG
/// where it is none of ours. Where this process has no room for all of the descriptors beside it,
/// it comes without any.
pub fn receive(from: BorrowedFd, flags: RecvFlags) -> Result<(Message, Vec<OwnedFd>), Errno> {
    let mut bytes = [0; WORDS * 8 + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut iov = [IoSliceMut::new(&mut bytes)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let got = loop {
        match recvmsg(from, &mut iov, &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut descriptors = vec![];
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        descriptors.clear();
    }
    if got.bytes == 0 {
        return Err(Errno::CONNRESET);
    }
    if got.bytes != WORDS * 8 {
        return Err(Errno::BADMSG);
    }
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().map_err(|_| Errno::BADMSG)?);
    }
    Ok((Message::of(words).ok_or(Errno::BADMSG)?, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn every_message_comes_back_as_it_was() {
        for message in [
            Message::Hello(1),
            Message::Welcome { version: 2, wire: TAKES | CARRIES },
            Message::Register {
                token: u64::MAX,
                name: EndName::of_words([1, 2, 3, 4], 5 << 16 | 6),
                filtered: true,
            },
            Message::Matched { token: 1, region: 2, slot: 3, side: 1, generation: 5 },
            Message::Stays { token: 9, reason: StayReason::OverLimit },
            Message::Gone { region: 7 },
            Message::Tell,
            Message::Told { words: 99 },
            Message::Relay,
            Message::Listen { address: 0x7f00_0001, port: 443 },
            Message::Withdraw { address: 0, port: 22 },
            Message::Info,
            Message::Connect { address: 0x0a00_0001, port: 80 },
            Message::Closes { cookie: 77 },
            Message::Trace { address: 1, port: 2 },
            Message::EndTrace,
            Message::Traced { frames: 3, error: 4 },
            Message::Missing { region: 1, slot: 2, side: 1, generation: 4 },
            Message::Door { region: 1, slot: 2, side: 0, generation: 4 },
            Message::Forget { token: 3 },
            Message::Arena { region: 1, side: 1, number: 2, generation: u32::MAX, by: [3, 4, 5] },
            Message::ArenaEnds { region: 1, side: 1, number: 2, generation: 3, done: 1 },
        ] {
            assert_eq!(Message::of(message.words()), Some(message));
        }
        assert_eq!(Message::of([0; WORDS]), None);
        assert_eq!(Message::of([5, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn any_bytes_are_a_message_that_is_sent_alike_or_refused_and_descriptors_beside_them_do_not_stay()
     {
        let kind = SocketType::SEQPACKET;
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (here, there) = pair.unwrap();
        bolero::check!().with_type::<(u8, Vec<u64>, Vec<u8>, u8)>().with_iterations(5000).for_each(
            |(first, words, rest, with)| {
                // (Kinds that there are, and messages of the right length, more often than not.)
                let words = [u64::from(first % 24)].into_iter().chain(words.iter().copied());
                let mut bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
                if *first < 192 {
                    bytes.resize(WORDS * 8, 0);
                }
                if *first >= 224 {
                    bytes.extend(rest);
                }
                // (Two more than are ever wanted.)
                let fds = vec![here.as_fd(); usize::from(*with) % (DESCRIPTORS + 3)];
                let mut space =
                    [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS + 2))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                if !fds.is_empty() {
                    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
                }
                let flags = SendFlags::DONTWAIT;
                sendmsg(&here, &[IoSlice::new(&bytes)], &mut ancillary, flags).unwrap();
                match receive(there.as_fd(), RecvFlags::DONTWAIT) {
                    Ok((message, came)) => {
                        assert_eq!(bytes.len(), WORDS * 8);
                        assert!(
                            came.len() == fds.len() || came.is_empty() && fds.len() > DESCRIPTORS
                        );
                        assert_eq!(Message::of(message.words()), Some(message));
                    }
                    Err(error) => assert_eq!(error, Errno::BADMSG),
                }
                // Nothing of it is left for the next one.
                let none = receive(there.as_fd(), RecvFlags::DONTWAIT);
                assert_eq!(none.unwrap_err(), Errno::AGAIN);
            },
        );
        // (Other tests of this program have descriptors of their own meanwhile.)
        let name = |fd: BorrowedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let sent = name(here.as_fd()).unwrap();
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = open.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|name| name == sent));
        assert_eq!(open.count(), 1, "of what was sent beside messages");
    }

    #[test]
    fn every_reason_is_documented_with_its_name_and_what_it_means() {
        let page = include_str!("../../../../docs/inside/tcp.md");
        for (i, reason) in StayReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, i + 1);
            assert_eq!(StayReason::of(reason as u64), Some(reason));
            let row = format!("| `{}` | {} |", reason.name(), reason.text());
            assert!(page.contains(&row), "docs/inside/tcp.md lacks: {row}");
        }
    }
}
