//! A program that has connected, and what it is told. A program that does not look for its messages
//! (it computes, is stopped, or has no core just now) gets them later: its socket takes some 270 of
//! them, and a storm of connections brings more.
//!
//! unsafe: an ioctl that rustix does not know.

use crate::ends::EndName;
use crate::owner::Owner;
use crate::protocol::{self, DOOR_COUNT, Message, StayReason};
use crate::share::Taken;
use rustix::event::epoll;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::SystemTime;

/// Connections that stayed Linux's are remembered for those who ask: so many of each program, 64
/// KB.
const LAST: usize = 512;

/// So many messages wait for a program at most: one for each connection that it may have, as it
/// comes.
const UNSENT: usize = 65_536;

/// Of these, so many doors of connections' own, and arenas: each is a descriptor, of which a
/// process has few. Where one is left out, connections go on at the doors of their processes.
const DOORS: usize = 64;

/// The descriptors that a program costs: its socket, its mailbox, its doors.
pub(crate) const COSTS: usize = 2 + DOOR_COUNT;

/// See above.
pub(crate) struct Program {
    pub socket: Arc<OwnedFd>,
    pub owner: Owner,
    pub doors: Vec<OwnedFd>,
    pub mailbox: Option<OwnedFd>,
    /// How many connections it has registered.
    pub registered: usize,
    /// It uses more memory than it may.
    pub over: bool,
    pub pid: u32,
    pub since: SystemTime,
    /// It only looks.
    pub looks: bool,
    /// How many of its connections stayed Linux's, by reason; and the last of them.
    pub stayed: [u64; StayReason::ALL.len()],
    pub last: VecDeque<(EndName, SystemTime, StayReason)>,
    id: u64,
    messages: u32,
    /// Messages that its socket has not taken yet.
    unsent: VecDeque<(Message, Vec<OwnedFd>)>,
    unsent_doors: usize,
    /// Descriptors that it has been sent since it had taken all.
    sent: usize,
    /// Its cost in descriptors: [`COSTS`], those that are unsent, those that it has not taken.
    taken: Taken,
    /// The set that has its socket: that of its user's thread.
    set: Arc<OwnedFd>,
}

impl Program {
    /// It has connected: from now on `set` tells of it, by `id`. `taken`: what it costs.
    pub fn new(
        socket: Arc<OwnedFd>,
        (id, pid, owner): (u64, u32, Owner),
        set: Arc<OwnedFd>,
        taken: Taken,
    ) -> Result<Self, Errno> {
        epoll::add(&set, &socket, epoll::EventData::new_u64(id), epoll::EventFlags::IN)?;
        Ok(Self {
            socket,
            owner,
            doors: vec![],
            mailbox: None,
            registered: 0,
            over: false,
            pid,
            since: SystemTime::now(),
            looks: false,
            stayed: [0; StayReason::ALL.len()],
            last: VecDeque::new(),
            id,
            messages: 0,
            unsent: VecDeque::new(),
            unsent_doors: 0,
            sent: 0,
            taken,
            set,
        })
    }

    /// A connection of its stays Linux's.
    pub fn stays(&mut self, name: Option<EndName>, reason: StayReason) {
        self.stayed[reason as usize - 1] += 1;
        if let Some(name) = name {
            if self.last.len() == LAST {
                self.last.pop_front();
            }
            self.last.push_back((name, SystemTime::now(), reason));
        }
    }

    /// Tells it, now or when its socket takes it. False: it will not be told.
    pub fn tell(&mut self, message: Message, with: &[BorrowedFd]) -> bool {
        if self.unsent.is_empty() {
            match self.send(message, with) {
                Err(Errno::AGAIN) => {}
                sent => return sent.is_ok(),
            }
        }
        if self.unsent.len() == UNSENT || is_door(&message) && self.unsent_doors == DOORS {
            return false;
        }
        if !self.taken.more(with.len()) {
            return false;
        }
        let kept: Result<Vec<OwnedFd>, _> = with.iter().map(|fd| fd.try_clone_to_owned()).collect();
        let both = epoll::EventFlags::IN | epoll::EventFlags::OUT;
        let watched = !self.unsent.is_empty() || self.watch(both).is_ok();
        let (Ok(kept), true) = (kept, watched) else {
            self.taken.less(with.len());
            return false;
        };
        self.unsent_doors += usize::from(is_door(&message));
        self.unsent.push_back((message, kept));
        true
    }

    /// Its socket is given as much as it takes now of what it has not been told yet.
    pub fn tell_rest(&mut self) {
        while let Some((message, with)) = self.unsent.pop_front() {
            let fds: Vec<BorrowedFd> = with.iter().map(AsFd::as_fd).collect();
            self.taken.less(with.len());
            if self.send(message, &fds) == Err(Errno::AGAIN) {
                // (It was there a moment ago.)
                self.taken.more(with.len());
                self.unsent.push_front((message, with));
                return;
            }
            self.unsent_doors -= usize::from(is_door(&message));
            if self.unsent.is_empty() {
                let _ = self.watch(epoll::EventFlags::IN);
            }
        }
    }

    fn send(&mut self, message: Message, with: &[BorrowedFd]) -> Result<(), Errno> {
        if !with.is_empty() {
            self.looks_what_it_took();
            if !self.taken.more(with.len()) {
                return Err(Errno::NOBUFS);
            }
        }
        let sent = protocol::send(self.socket.as_fd(), message, with);
        if sent.is_err() {
            self.taken.less(with.len());
        }
        sent?;
        self.sent += with.len();
        self.messages = self.messages.wrapping_add(1);
        let mailbox = self.mailbox.as_ref().ok_or(Errno::NOTCONN)?;
        rustix::io::pwrite(mailbox, &self.messages.to_ne_bytes(), 0).map(drop)
    }

    /// Where it has taken all messages, the descriptors that came with them are its own.
    pub fn looks_what_it_took(&mut self) {
        if self.sent == 0 {
            return;
        }
        let mut bytes: libc::c_int = 0;
        // SAFETY: writes one number.
        let asked = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if asked == 0 && bytes == 0 {
            self.taken.less(self.sent);
            self.sent = 0;
        }
    }

    fn watch(&self, events: epoll::EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.set, &self.socket, epoll::EventData::new_u64(self.id), events)
    }
}

fn is_door(message: &Message) -> bool {
    matches!(message, Message::Door { .. } | Message::Arena { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};

    #[test]
    fn for_who_does_not_read_few_doors_are_kept_and_all_that_is_needed() {
        let (unix, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (socket, theirs) = socketpair(unix, kind, SocketFlags::NONBLOCK, None).unwrap();
        let set = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        let share = crate::share::Share::new(usize::MAX);
        let (of, taken) = ((1, 1, Owner::User(1)), share.take(COSTS).unwrap());
        let mut program = Program::new(Arc::new(socket), of, set, taken).unwrap();
        program.mailbox =
            Some(rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        let door = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let said = |token| Message::Stays { token, reason: StayReason::OverLimit };
        (0..1000).for_each(|token| assert!(program.tell(said(token), &[])));
        let message = Message::Door { region: 1, slot: 2, side: 0, generation: 3 };
        let kept = (0..1000).filter(|_| program.tell(message, &[door.as_fd()])).count();
        assert_eq!(kept, DOORS);
        assert!(program.tell(said(1000), &[]));
        let (mut next, mut doors) = (0, 0);
        while next <= 1000 {
            match protocol::receive(theirs.as_fd(), RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => program.tell_rest(),
                Ok((Message::Door { .. }, with)) => doors += with.len(),
                Ok((Message::Stays { token, .. }, _)) => {
                    assert_eq!(token, next);
                    next += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(doors, DOORS);
        // There is room for as many again.
        assert!(program.tell(message, &[door.as_fd()]) && program.unsent_doors == 0);
    }
}
