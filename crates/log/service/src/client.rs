//! A program's end: requests, and answers to those that have one. One thread at a time.

use crate::plain_reason::PlainReason;
use crate::protocol::{Message, VERSION, receive, send};
use crate::server::address;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use std::path::Path;
use std::time::Duration;
use uncopy_log_share::memory::Memory;
use uncopy_log_store::Kind;

/// So long an answer is waited for. (A service that was stopped does not answer. A caller that has
/// waited so long does not ask it any more.)
const TIMEOUT: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    /// The service's number of this program.
    pub number: u64,
    /// The file system whose files are held.
    pub device: u64,
}

/// A connection to the service that answers in `directory`.
fn connected(directory: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let at = open(directory, flags, Mode::empty())?;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(TIMEOUT))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(TIMEOUT))?;
    connect(&socket, &address(&at)?)?;
    Ok(socket)
}

impl Client {
    /// Of the service that answers in `directory`. The memory that it shares is beside it.
    ///
    /// # Errors
    /// There is none, or of another version (EPROTO).
    pub fn open(directory: &Path) -> Result<(Self, Memory<OwnedFd>), Errno> {
        Self::open_with(directory, Ok)
    }

    /// As [`Client::open`]; what it keeps open goes through `keep`.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub fn open_with(
        directory: &Path,
        keep: impl Fn(OwnedFd) -> Result<OwnedFd, Errno>,
    ) -> Result<(Self, Memory<OwnedFd>), Errno> {
        let socket = keep(connected(directory)?)?;
        let mut client = Self { socket, number: 0, device: 0 };
        let answer = client.ask(Message::Hello(VERSION), None)?;
        let (Message::Welcome { version: VERSION, client: number, device }, Some(memory)) = answer
        else {
            return Err(Errno::PROTO);
        };
        (client.number, client.device) = (number, device);
        let length = fstat(&memory)?.st_size as u64;
        let memory = Memory::map(keep(memory)?, length)?;
        if memory.header().is_known() { Ok((client, memory)) } else { Err(Errno::PROTO) }
    }

    /// Somebody answers in `directory`.
    pub fn is_served(directory: &Path) -> bool {
        connected(directory).is_ok()
    }

    /// The report of the service in `directory`.
    ///
    /// # Errors
    /// There is none.
    pub fn status(directory: &Path) -> Result<String, Errno> {
        let client = Self { socket: connected(directory)?, number: 0, device: 0 };
        let (Message::Status, Some(text)) = client.ask(Message::Status, None)? else {
            return Err(Errno::PROTO);
        };
        let mut bytes = vec![0; fstat(&text)?.st_size as usize];
        let n = rustix::io::pread(&text, &mut bytes, 0)?;
        bytes.truncate(n);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// All that is held comes home, durably.
    ///
    /// # Errors
    /// There is no service, or something could not come home.
    pub fn digest(directory: &Path) -> Result<(), Errno> {
        let client = Self { socket: connected(directory)?, number: 0, device: 0 };
        sockopt::set_socket_timeout(&client.socket, sockopt::Timeout::Recv, None)?;
        match client.ask(Message::Digest, None)? {
            (Message::Digest, _) => Ok(()),
            _ => Err(Errno::PROTO),
        }
    }

    fn ask(
        &self,
        message: Message,
        with: Option<BorrowedFd<'_>>,
    ) -> Result<(Message, Option<OwnedFd>), Errno> {
        self.say(message, with)?;
        receive(self.socket.as_fd(), RecvFlags::empty())
    }

    fn say(&self, message: Message, with: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        send(self.socket.as_fd(), message, with, SendFlags::empty())
    }

    /// Asks for `file` to be held: slot and index.
    ///
    /// # Errors
    /// Why not. [`PlainReason::NoService`]: the service is not to be asked any more.
    pub fn hold(&self, file: BorrowedFd<'_>) -> Result<(usize, u32), PlainReason> {
        match self.ask(Message::Hold, Some(file)) {
            Ok((Message::Held { slot, index }, _)) => Ok((slot as usize, index as u32)),
            Ok((Message::Refused(reason), _)) => Err(reason),
            _ => Err(PlainReason::NoService),
        }
    }

    /// Asks for a log of its own. `Ok(None)`: there is none yet.
    ///
    /// # Errors
    /// The service is not to be asked any more.
    pub fn log(&self) -> Result<Option<(OwnedFd, Kind)>, Errno> {
        match self.ask(Message::WantLog, None)? {
            (Message::Log { kind: 0 }, _) => Ok(None),
            (Message::Log { kind }, Some(file)) => {
                let kind = Kind::ALL.get(kind as usize - 1).ok_or(Errno::PROTO)?;
                Ok(Some((file, *kind)))
            }
            _ => Err(Errno::PROTO),
        }
    }

    /// This file is not held any more.
    ///
    /// # Errors
    /// The service is not to be asked any more.
    pub fn share(&self, device: u64, inode: u64) -> Result<(), Errno> {
        self.say(Message::Share { device, inode }, None)?;
        loop {
            match receive(self.socket.as_fd(), RecvFlags::empty()) {
                Ok((Message::Shared, _)) => return Ok(()),
                // (The answer to a question that was given up.)
                Ok(_) => {}
                // (A service that is stopped is no dead one: it goes on with what it was at.)
                Err(Errno::AGAIN) if self.lives() => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// Says that this file is left to the kernel for a while, and why, for the service's report.
    pub fn leaves_plain(&self, file: BorrowedFd<'_>, reason: PlainReason) {
        // (If there is nobody then nobody reports.)
        let _ = self.say(Message::StaysPlain(reason), Some(file));
    }

    /// Says what has no answer. False: there is nobody.
    pub fn tell(&self, message: Message) -> bool {
        self.say(message, None).is_ok()
    }

    /// The service is there, as far as one can know without asking it.
    pub fn lives(&self) -> bool {
        let mut fd = [PollFd::new(&self.socket, PollFlags::empty())];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fd, Some(&now)) == Ok(0)
    }

    /// Sleeps until the service has gone.
    pub fn await_end(socket: BorrowedFd<'_>) {
        let mut fd = [PollFd::new(&socket, PollFlags::empty())];
        while let Ok(0) | Err(Errno::INTR) = poll(&mut fd, None) {}
    }

    /// Its socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
