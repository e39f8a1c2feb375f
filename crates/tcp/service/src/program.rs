//! A program that has connected, and what it is told. A program that does not look for its messages (it computes, is stopped, or has no core just now)
//! gets them later: its socket takes some 270 of them, and a storm of connections brings more.

use crate::ends::EndName;
use crate::protocol::{self, Message, Reason};
use rustix::event::epoll;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::SystemTime;

/// Connections that stayed Linux's are remembered for who asks: so many of each program, 64 KB.
const LAST: usize = 512;

/// So many messages wait for a program at most: one for each connection that it may have, as it comes.
const UNSENT: usize = 65_536;

/// See above.
pub(crate) struct Program {
    pub socket: OwnedFd,
    pub doors: Vec<OwnedFd>,
    pub mailbox: Option<OwnedFd>,
    /// How many connections it has shown.
    pub shown: usize,
    /// It uses more memory than it may.
    pub over: bool,
    pub pid: u32,
    pub since: SystemTime,
    /// It only looks.
    pub looks: bool,
    /// How many of its connections stayed Linux's, by reason; and the last of them.
    pub stayed: [u64; Reason::ALL.len()],
    pub last: VecDeque<(EndName, SystemTime, Reason)>,
    id: u64,
    messages: u32,
    /// Messages that its socket has not taken yet.
    unsent: VecDeque<(Message, Vec<OwnedFd>)>,
    /// The service's set, which has its socket.
    set: Arc<OwnedFd>,
}

impl Program {
    /// It has connected: from now on `set` tells of it, by `id`.
    pub fn new(socket: OwnedFd, id: u64, pid: u32, set: Arc<OwnedFd>) -> Result<Self, Errno> {
        epoll::add(&set, &socket, epoll::EventData::new_u64(id), epoll::EventFlags::IN)?;
        Ok(Self {
            socket,
            doors: vec![],
            mailbox: None,
            shown: 0,
            over: false,
            pid,
            since: SystemTime::now(),
            looks: false,
            stayed: [0; Reason::ALL.len()],
            last: VecDeque::new(),
            id,
            messages: 0,
            unsent: VecDeque::new(),
            set,
        })
    }

    /// A connection of its stays Linux's.
    pub fn stays(&mut self, name: Option<EndName>, reason: Reason) {
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
            if self.watch(epoll::EventFlags::IN | epoll::EventFlags::OUT).is_err() {
                return false;
            }
        }
        let kept: Result<Vec<OwnedFd>, _> = with.iter().map(|fd| fd.try_clone_to_owned()).collect();
        let Ok(kept) = kept else { return false };
        let has_room = self.unsent.len() < UNSENT;
        if has_room {
            self.unsent.push_back((message, kept));
        }
        has_room
    }

    /// What its socket takes now of what it has not been told yet.
    pub fn tell_rest(&mut self) {
        while let Some((message, with)) = self.unsent.pop_front() {
            let fds: Vec<BorrowedFd> = with.iter().map(AsFd::as_fd).collect();
            if self.send(message, &fds) == Err(Errno::AGAIN) {
                self.unsent.push_front((message, with));
                return;
            }
            if self.unsent.is_empty() {
                let _ = self.watch(epoll::EventFlags::IN);
            }
        }
    }

    fn send(&mut self, message: Message, with: &[BorrowedFd]) -> Result<(), Errno> {
        protocol::send(self.socket.as_fd(), message, with)?;
        self.messages = self.messages.wrapping_add(1);
        let mailbox = self.mailbox.as_ref().ok_or(Errno::NOTCONN)?;
        rustix::io::pwrite(mailbox, &self.messages.to_ne_bytes(), 0).map(drop)
    }

    fn watch(&self, events: epoll::EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.set, &self.socket, epoll::EventData::new_u64(self.id), events)
    }
}
