//! The state of a connection between events.

use crate::calls;
use crate::event::What;
use crate::line::Line;
use libc::{EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP};
use rustix::io::Errno;

pub(crate) const IN: u32 = EPOLLIN as u32;
pub(crate) const OUT: u32 = EPOLLOUT as u32;
/// The events that are told without being asked for.
const ENDS: u32 = (EPOLLRDHUP | EPOLLHUP | EPOLLERR) as u32;
/// Of one connection at most so much is received in a poll: others have their turn.
pub(crate) const CHUNK: usize = 16 << 10;

/// See above.
#[derive(Debug)]
pub(crate) struct Connection {
    pub line: Line,
    pub data: u64,
    /// Bytes that were received and not taken.
    pub kept: Vec<u8>,
    /// The events that the set was asked for; `None`: it is in none.
    pub asked: Option<u32>,
    /// The last poll that told of it.
    pub told: u64,
    /// It is among those that the next poll looks at, whatever the set says.
    pub soon: bool,
    /// The set has refused it: it cannot go on, and that is to be told.
    pub refused: Option<Errno>,
    /// The program is to be told of room.
    wants_room: bool,
    connecting: bool,
    ended: bool,
    failed: bool,
}

/// The result of a look at it.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub what: What,
    pub error: Option<Errno>,
    /// Bytes that were received.
    pub bytes: usize,
}

impl Connection {
    pub fn new(line: Line, data: u64, connecting: bool) -> Self {
        Self {
            line,
            data,
            kept: vec![],
            asked: None,
            told: 0,
            soon: false,
            refused: None,
            wants_room: false,
            connecting,
            ended: false,
            failed: false,
        }
    }

    /// The events that the set is to be asked for. Nothing: then it is in none, for ends are told
    /// unasked, again and again.
    pub fn wanted(&self, window: usize) -> Option<u32> {
        if self.failed {
            return None;
        }
        if self.connecting {
            return Some(OUT);
        }
        let receives = !self.ended && self.kept.len() < window;
        let room = if self.wants_room { OUT } else { 0 };
        Some(if receives { IN | room } else { room }).filter(|events| *events != 0)
    }

    /// Nothing more will be received.
    pub fn is_over(&self) -> bool {
        self.ended || self.failed
    }

    fn fails(&mut self, error: Errno) -> Heard {
        self.failed = true;
        Heard { what: What::FAILED, error: Some(error), bytes: 0 }
    }

    /// The set says this of it. Received bytes go to `to`.
    pub fn hears(&mut self, says: u32, window: usize, to: &mut [u8]) -> Heard {
        let mut heard = Heard::default();
        if self.failed || says == 0 {
            return heard;
        }
        if let Some(error) = self.refused.take() {
            return self.fails(error);
        }
        if self.connecting {
            self.connecting = false;
            match calls::pending_error(self.line.number()) {
                Some(error) => return self.fails(error),
                None => heard.what |= What::CONNECTED,
            }
            return heard;
        }
        if says & (IN | ENDS) != 0 && !self.ended && self.kept.len() < window {
            match self.line.receive(to) {
                Ok(0) => {
                    self.ended = true;
                    heard.what |= What::ENDED;
                }
                Ok(bytes) => {
                    heard.bytes = bytes;
                    heard.what |= What::RECEIVED;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return self.fails(error),
            }
        } else if says & (EPOLLHUP | EPOLLERR) as u32 != 0 && self.ended {
            // Both ways have ended.
            let error = calls::pending_error(self.line.number());
            return self.fails(error.unwrap_or(Errno::PIPE));
        }
        if says & (OUT | ENDS) != 0 && self.wants_room {
            self.wants_room = false;
            heard.what |= What::ROOM;
        }
        heard
    }

    /// Sends what fits.
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        if self.connecting {
            self.wants_room = true;
            return Ok(0);
        }
        let sent = match self.line.send(bytes) {
            Err(Errno::AGAIN | Errno::INTR) => 0,
            sent => sent?,
        };
        self.wants_room |= sent < bytes.len();
        Ok(sent)
    }
}
