//! The messages between a program and the service: words of 64 bits over a SOCK_SEQPACKET socket in
//! the log's directory, a descriptor or two beside them. A process that cannot reach that directory
//! cannot ask.

use crate::plain_reason::PlainReason;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Both must speak the same; what is shared is part of it.
pub const VERSION: u64 = 4;
/// [`Message::Answers`]: its syncs return early, and answers wait.
pub const ANSWERS_WAIT: u32 = u32::MAX;
const WORDS: usize = 4;
const DESCRIPTORS: usize = 1;

/// A message. The sender of each is said there; anything else ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Program: the first one.
    Hello(u64),
    /// Service: the answer. With the memory that is shared.
    Welcome {
        /// As in `Hello`.
        version: u64,
        /// The service's number of this program.
        client: u64,
        /// The file system whose files are held.
        device: u64,
    },
    /// Program: wants a log of its own.
    WantLog,
    /// Service: the answer; with its file, if `kind` is not 0: one more than the kind of store.
    Log {
        /// See above.
        kind: u64,
    },
    /// Program: with a file that is to be held. Nobody in the program uses it just now.
    Hold,
    /// Service: it is.
    Held {
        /// The entry of the file.
        slot: u64,
        /// Its number in records.
        index: u64,
    },
    /// Service: it is not.
    Refused(PlainReason),
    /// Program: the file of this entry is to be plain. (That it is the entry says.)
    Leave {
        /// As in `Held`.
        slot: u64,
        /// As in `Held`.
        index: u64,
        /// Why.
        reason: PlainReason,
    },
    /// Program: it knows that the file is plain. The entry is the service's again.
    Knows {
        /// As in `Held`.
        slot: u64,
        /// As in `Held`.
        index: u64,
    },
    /// Program: whole blocks of this file are to be brought home.
    Bring {
        /// As in `Held`.
        slot: u64,
        /// As in `Held`.
        index: u64,
    },
    /// Program: it will use a description that another process may have given to be held, or hand
    /// one to who knows nothing of us. The file is not held from the answer on.
    Share {
        /// The file's device.
        device: u64,
        /// The file's inode.
        inode: u64,
    },
    /// Service: the answer.
    Shared,
    /// Program: with a file that it leaves to the kernel for a while, without having asked for it
    /// to be held.
    StaysPlain(PlainReason),
    /// Program: some file has another name.
    Renamed,
    /// Program: it was asked for syncs that return early: [`ANSWERS_WAIT`], or the number of what
    /// keeps them as ever (`uncopy_log_book::as_ever`).
    Answers {
        /// See above.
        word: u64,
    },
    /// Anybody: what is there. Service: the same, with a file of text.
    Status,
    /// Anybody: all that is held is to be in its file, durably. Service: it is.
    Digest,
}

impl Message {
    fn words(self) -> [u64; WORDS] {
        match self {
            Self::Hello(version) => [1, version, 0, 0],
            Self::Welcome { version, client, device } => [2, version, client, device],
            Self::WantLog => [3, 0, 0, 0],
            Self::Log { kind } => [4, kind, 0, 0],
            Self::Hold => [5, 0, 0, 0],
            Self::Held { slot, index } => [6, slot, index, 0],
            Self::Refused(reason) => [7, reason as u64, 0, 0],
            Self::Leave { slot, index, reason } => [8, slot, index, reason as u64],
            Self::Knows { slot, index } => [9, slot, index, 0],
            Self::Bring { slot, index } => [10, slot, index, 0],
            Self::Share { device, inode } => [11, device, inode, 0],
            Self::Shared => [12, 0, 0, 0],
            Self::Renamed => [13, 0, 0, 0],
            Self::Status => [14, 0, 0, 0],
            Self::Digest => [15, 0, 0, 0],
            // (16 was a message of earlier versions.)
            Self::Answers { word } => [17, word, 0, 0],
            Self::StaysPlain(reason) => [18, reason as u64, 0, 0],
        }
    }

    fn of(words: [u64; WORDS]) -> Option<Self> {
        let [kind, a, b, c] = words;
        Some(match kind {
            1 => Self::Hello(a),
            2 => Self::Welcome { version: a, client: b, device: c },
            3 => Self::WantLog,
            4 => Self::Log { kind: a },
            5 => Self::Hold,
            6 => Self::Held { slot: a, index: b },
            7 => Self::Refused(PlainReason::of(a)?),
            8 => Self::Leave { slot: a, index: b, reason: PlainReason::of(c)? },
            9 => Self::Knows { slot: a, index: b },
            10 => Self::Bring { slot: a, index: b },
            11 => Self::Share { device: a, inode: b },
            12 => Self::Shared,
            13 => Self::Renamed,
            14 => Self::Status,
            15 => Self::Digest,
            17 => Self::Answers { word: a },
            18 => Self::StaysPlain(PlainReason::of(a)?),
            _ => return None,
        })
    }
}

/// Sends a message, with a descriptor if there is one.
///
/// # Errors
/// The kernel's; EAGAIN: the other side does not take what it is sent.
pub fn send(
    to: BorrowedFd<'_>,
    message: Message,
    with: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> Result<(), Errno> {
    let bytes: Vec<u8> = message.words().into_iter().flat_map(u64::to_ne_bytes).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let with: Vec<BorrowedFd<'_>> = with.into_iter().collect();
    if !with.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&with));
    }
    let flags = flags | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(to, &[IoSlice::new(&bytes)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(why) => return Err(why),
        }
    }
}

/// Receives a message, and what came with it.
///
/// # Errors
/// The kernel's; BADMSG: it is none; CONNRESET: the other side has gone.
pub fn receive(
    from: BorrowedFd<'_>,
    flags: RecvFlags,
) -> Result<(Message, Option<OwnedFd>), Errno> {
    let mut bytes = [0; WORDS * 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let got = loop {
        match recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            got => break got?,
        }
    };
    if got.bytes == 0 {
        return Err(Errno::CONNRESET);
    }
    let mut with = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            with = fds.last();
        }
    }
    let whole = got.bytes == bytes.len() && !got.flags.contains(ReturnFlags::TRUNC);
    let mut words = [0; WORDS];
    for (word, part) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(part.try_into().map_err(|_| Errno::BADMSG)?);
    }
    let message = if whole { Message::of(words) } else { None };
    Ok((message.ok_or(Errno::BADMSG)?, with))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn messages_come_as_they_were_sent_and_what_is_none_is_refused() {
        let kind = SocketType::SEQPACKET;
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (here, there) = pair.unwrap();
        let (slot, index) = (3, 7);
        for message in [
            Message::Hello(VERSION),
            Message::Welcome { version: 1, client: 2, device: 3 },
            Message::WantLog,
            Message::Log { kind: 1 },
            Message::Hold,
            Message::Held { slot, index },
            Message::Refused(PlainReason::Shared),
            Message::Leave { slot, index, reason: PlainReason::NotAppended },
            Message::Knows { slot, index },
            Message::Bring { slot, index },
            Message::Share { device: 1, inode: 2 },
            Message::Shared,
            Message::StaysPlain(PlainReason::Busy),
            Message::Renamed,
            Message::Answers { word: 3 },
            Message::Status,
            Message::Digest,
        ] {
            let with = Some(here.as_fd()).filter(|_| message == Message::Hold);
            send(here.as_fd(), message, with, SendFlags::empty()).unwrap();
            let (came, fd) = receive(there.as_fd(), RecvFlags::empty()).unwrap();
            assert_eq!((came, fd.is_some()), (message, with.is_some()));
        }
        for bytes in [&[0u8; 32][..], &[1; 31], &[5; 40], &[7, 0, 0, 0, 0, 0, 0, 0]] {
            rustix::net::send(&here, bytes, SendFlags::empty()).unwrap();
            let none = receive(there.as_fd(), RecvFlags::empty());
            assert_eq!(none.unwrap_err(), Errno::BADMSG, "{bytes:?}");
        }
        drop(here);
        let gone = receive(there.as_fd(), RecvFlags::empty());
        assert_eq!(gone.unwrap_err(), Errno::CONNRESET);
    }
}
