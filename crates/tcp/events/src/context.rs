//! A thread's connections and their events.

use crate::calls;
use crate::connection::{CHUNK, Connection, Heard, IN};
use crate::event::{Event, Id, What};
use crate::line::Line;
use crate::settings::{self, Carrier, Settings};
use crate::slots::Slots;
use crate::watch::Watch;
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uncopy_tcp_socket::set;
use uncopy_tcp_socket::{Context as Library, Settings as OfLibrary};

/// Events of one poll, but for connections that are accepted.
const EVENTS: usize = 128;
/// Memory for the bytes of one poll's events, at least.
const BYTES: usize = 256 << 10;

/// How a listener listens.
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    /// Connections that wait to be accepted.
    pub backlog: i32,
    /// Other contexts, and programs of this user, may listen at the same port: connections are
    /// shared out among them.
    pub shared: bool,
    /// The value that its connections are known by at first.
    pub data: u64,
}

impl Default for Listen {
    fn default() -> Self {
        Self { backlog: 4096, shared: false, data: 0 }
    }
}

#[derive(Debug)]
enum Watched {
    Listener { socket: OwnedFd, data: u64 },
    Connection(Connection),
}

/// An event, where its bytes are, and how many of them the program has taken.
#[derive(Clone, Copy, Debug)]
struct Delivered {
    event: Event,
    begin: usize,
    end: usize,
    taken: usize,
}

/// See above. For one thread at a time; each thread has its own. It is not to be used on in a
/// forked child.
#[derive(Debug)]
pub struct Context {
    library: Option<Arc<Library>>,
    watch: Watch,
    watched: Slots<Watched>,
    window: usize,
    told: Vec<Delivered>,
    /// To be told of with the next poll, whatever the set says.
    soon: Vec<Id>,
    bytes: Box<[u8]>,
    /// How many of these bytes are in use.
    used: usize,
    /// Polls so far.
    polls: u64,
}

impl Context {
    /// Without connections.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new(settings: Settings) -> io::Result<Self> {
        let library = match &settings.carrier {
            Carrier::Sockets => None,
            Carrier::Rings(service) => Some(Library::new(OfLibrary {
                waiting: settings.waiting,
                start: settings.serves.then_some(settings::serve as fn()),
                ..OfLibrary::new(service.clone())
            })?),
        };
        let watch = Watch::new(library.as_ref(), settings.waiting)?;
        let window = settings.window.max(1);
        Ok(Self {
            library,
            watch,
            watched: Slots::default(),
            window,
            told: vec![],
            soon: vec![],
            bytes: vec![0; BYTES.max(2 * (window + CHUNK))].into(),
            used: 0,
            polls: 0,
        })
    }

    /// Listens. Port 0: some free one.
    ///
    /// # Errors
    /// Those of socket(2), bind(2), listen(2).
    pub fn listen(&mut self, address: SocketAddr, how: Listen) -> io::Result<(Id, SocketAddr)> {
        let socket = calls::listen(&address, how.backlog, how.shared)?;
        let address = calls::local_address(socket.as_fd())?;
        let watch = &self.watch;
        let id = self.watched.insert(|id| {
            watch.add(socket.as_raw_fd(), None, IN, id)?;
            Ok::<_, Errno>(Watched::Listener { socket, data: how.data })
        })?;
        Ok((id, address))
    }

    /// Begins a connection: [`What::CONNECTED`] or [`What::FAILED`] will be told of it.
    ///
    /// # Errors
    /// Those of socket(2), connect(2).
    pub fn connect(&mut self, address: SocketAddr, data: u64) -> io::Result<Id> {
        let (socket, at_once) = calls::connect(&address)?;
        calls::no_delay(&socket)?;
        let id = self.insert(socket, data, true)?;
        if at_once {
            self.again(id);
        }
        Ok(id)
    }

    fn insert(&mut self, socket: OwnedFd, data: u64, connecting: bool) -> Result<Id, Errno> {
        let line = Line::new(socket, self.library.as_ref());
        let (watch, window) = (&self.watch, self.window);
        self.watched.insert(|id| {
            let mut connection = Connection::new(line, data, connecting);
            ask(watch, window, id, &mut connection)?;
            Ok(Watched::Connection(connection))
        })
    }

    /// Waits for events, so long at most, and says how many there are. Those of the poll before are
    /// over, and with them their bytes: what was not taken of these comes again. 0: the time has
    /// passed, or a signal handler ran.
    ///
    /// # Errors
    /// Those of epoll_wait(2).
    pub fn poll(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.settle();
        self.polls += 1;
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut ready = [set::Event::default(); EVENTS];
        loop {
            for id in std::mem::take(&mut self.soon) {
                self.hear(id, None);
            }
            let left = if self.told.is_empty() {
                end.map(|end| end.saturating_duration_since(Instant::now()))
            } else {
                Some(Duration::ZERO)
            };
            let count = match self.watch.wait(&mut ready, left) {
                Err(Errno::INTR) => return Ok(self.told.len()),
                // An event that is told once is not told again with the next poll; the error is.
                Err(_) if !self.told.is_empty() => return Ok(self.told.len()),
                count => count?,
            };
            for event in &ready[..count] {
                self.hear(Id(event.data), Some(event.events));
            }
            let late = || end.is_some_and(|end| end <= Instant::now());
            if !self.told.is_empty() || (timeout.is_some() && late()) {
                return Ok(self.told.len());
            }
        }
    }

    /// After the program has had its events: what it did not take is kept, and the sets are asked
    /// for what is wanted now.
    fn settle(&mut self) {
        for told in std::mem::take(&mut self.told) {
            let id = told.event.connection;
            let Some(Watched::Connection(connection)) = self.watched.get_mut(id) else { continue };
            let left = &self.bytes[told.begin + told.taken..told.end];
            if !left.is_empty() {
                connection.kept.extend_from_slice(left);
            } else if connection.kept.capacity() > 0 {
                // Most connections never keep anything again.
                connection.kept = vec![];
            }
            self.asks(id);
        }
        self.used = 0;
    }

    /// The set says this of one; `None`: it is to be told of anyway.
    fn hear(&mut self, id: Id, says: Option<u32>) {
        let connection = match self.watched.get_mut(id) {
            None => return,
            Some(Watched::Listener { .. }) => return self.accept(id),
            Some(Watched::Connection(connection)) => connection,
        };
        if says.is_none() {
            connection.soon = false;
        }
        let begin = self.used;
        let at = begin + connection.kept.len();
        if connection.told == self.polls || self.bytes.len() < at + CHUNK {
            // (The set says so again with the next poll.)
            if says.is_none() {
                self.again(id);
            }
            return;
        }
        let room = CHUNK.min(self.window.saturating_sub(connection.kept.len()).max(1));
        let mut heard =
            connection.hears(says.unwrap_or(IN), self.window, &mut self.bytes[at..at + room]);
        if says.is_none() && !connection.kept.is_empty() {
            heard.what |= What::RECEIVED;
        }
        if heard.what == What::default() {
            return self.asks(id);
        }
        self.bytes[begin..at].copy_from_slice(&connection.kept);
        connection.kept.clear();
        connection.told = self.polls;
        let data = connection.data;
        self.used = at + heard.bytes;
        self.tell(id, data, heard, begin);
    }

    fn tell(&mut self, connection: Id, data: u64, heard: Heard, begin: usize) {
        let error = heard.error.map_or(0, Errno::raw_os_error);
        let event = Event { connection, data, what: heard.what, error };
        self.told.push(Delivered { event, begin, end: self.used, taken: 0 });
    }

    fn accept(&mut self, listener: Id) {
        while self.told.len() < 2 * EVENTS {
            let Some(Watched::Listener { socket, data }) = self.watched.get(listener) else {
                break;
            };
            let data = *data;
            let accepted = calls::accept(socket);
            let inserted = match accepted {
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => break,
                Err(error) => Err(error),
                Ok(socket) => {
                    // (Only a connection that is no more refuses that: it will say so.)
                    let _ = calls::no_delay(&socket);
                    self.insert(socket, data, false)
                }
            };
            match inserted {
                Ok(id) => {
                    if let Some(Watched::Connection(connection)) = self.watched.get_mut(id) {
                        connection.told = self.polls;
                    }
                    let heard = Heard { what: What::ACCEPTED, ..Heard::default() };
                    self.tell(id, data, heard, self.used);
                }
                Err(error) => {
                    let heard = Heard { what: What::REFUSED, error: Some(error), bytes: 0 };
                    self.tell(listener, data, heard, self.used);
                    break;
                }
            }
        }
    }

    /// An event of the last poll.
    ///
    /// # Panics
    /// There were not so many.
    pub fn event(&self, i: usize) -> Event {
        self.told[i].event
    }

    /// The bytes that came with it: behind those that were not taken before.
    ///
    /// # Panics
    /// There were not so many events.
    pub fn bytes(&self, i: usize) -> &[u8] {
        let told = &self.told[i];
        &self.bytes[told.begin + told.taken..told.end]
    }

    /// So many of them are done with. The others come again, in front of those that follow them,
    /// when there are some, or when there is room
    /// ([`What::ROOM`]), or soon ([`Context::again`]).
    ///
    /// # Panics
    /// There were not so many events, or bytes.
    pub fn take(&mut self, i: usize, bytes: usize) {
        let told = &mut self.told[i];
        assert!(bytes <= told.end - told.begin - told.taken, "more is taken than came");
        told.taken += bytes;
    }

    /// The next poll tells of what was not taken, whatever happens.
    pub fn again(&mut self, connection: Id) {
        if let Some(Watched::Connection(it)) = self.watched.get_mut(connection)
            && !std::mem::replace(&mut it.soon, true)
        {
            self.soon.push(connection);
        }
    }

    fn connection(&mut self, id: Id) -> io::Result<&mut Connection> {
        match self.watched.get_mut(id) {
            Some(Watched::Connection(connection)) => Ok(connection),
            _ => Err(Errno::BADF.into()),
        }
    }

    /// Sends what fits, and says how much that was: less than all, and [`What::ROOM`] will be told.
    ///
    /// # Errors
    /// Those of send(2), but for EAGAIN: that is 0. EBADF: there is no such connection.
    pub fn send(&mut self, connection: Id, bytes: &[u8]) -> io::Result<usize> {
        let it = self.connection(connection)?;
        let sent = it.send(bytes)?;
        if sent < bytes.len() {
            self.asks(connection);
        }
        Ok(sent)
    }

    /// Sends the bytes that came with event `i` back to where they came from.
    ///
    /// # Errors
    /// As [`Context::send`].
    ///
    /// # Panics
    /// There were not so many events.
    pub fn send_bytes_of(&mut self, i: usize) -> io::Result<usize> {
        let Delivered { event, begin, end, taken } = self.told[i];
        let bytes = &self.bytes[begin + taken..end];
        if bytes.is_empty() {
            return Ok(0);
        }
        let Some(Watched::Connection(it)) = self.watched.get_mut(event.connection) else {
            return Err(Errno::BADF.into());
        };
        let sent = it.send(bytes)?;
        if sent < bytes.len() {
            self.asks(event.connection);
        }
        Ok(sent)
    }

    /// Asks the set for what is wanted of a connection. Where that is refused, it cannot go on.
    fn asks(&mut self, id: Id) {
        if let Some(Watched::Connection(it)) = self.watched.get_mut(id)
            && let Err(error) = ask(&self.watch, self.window, id, it)
        {
            it.refused = Some(error);
            self.again(id);
        }
    }

    /// Sends no more. Bytes that were sent arrive before that.
    ///
    /// # Errors
    /// Those of shutdown(2).
    pub fn finish(&mut self, connection: Id) -> io::Result<()> {
        Ok(self.connection(connection)?.line.finish()?)
    }

    /// Ends a connection, or a listener. Bytes that were sent arrive, unless something that was
    /// received was not taken.
    pub fn close(&mut self, it: Id) {
        drop(self.watched.remove(it));
    }

    /// It is known by this from now on.
    pub fn set_data(&mut self, connection: Id, data: u64) {
        match self.watched.get_mut(connection) {
            Some(Watched::Connection(it)) => it.data = data,
            Some(Watched::Listener { data: own, .. }) => *own = data,
            None => {}
        }
    }

    /// Its descriptor, for options and names.
    pub fn descriptor(&self, it: Id) -> Option<BorrowedFd<'_>> {
        match self.watched.get(it)? {
            Watched::Listener { socket, .. } => Some(socket.as_fd()),
            Watched::Connection(connection) => Some(connection.line.descriptor()),
        }
    }

    /// Nothing more will be received: it has ended, has failed, or is closed.
    pub fn is_over(&self, connection: Id) -> bool {
        match self.watched.get(connection) {
            Some(Watched::Connection(it)) => it.is_over(),
            Some(Watched::Listener { .. }) => false,
            None => true,
        }
    }

    /// Its bytes go through shared memory now.
    pub fn is_by_ring(&self, connection: Id) -> bool {
        match self.watched.get(connection) {
            Some(Watched::Connection(it)) => it.line.is_by_ring(),
            _ => false,
        }
    }
}

/// Asks the set for what is wanted of a connection, if it was asked for something else.
fn ask(watch: &Watch, window: usize, id: Id, connection: &mut Connection) -> Result<(), Errno> {
    let (asked, wanted) = (connection.asked, connection.wanted(window));
    if asked == wanted {
        return Ok(());
    }
    let fd = connection.line.number();
    match (asked, wanted) {
        (None, Some(events)) => watch.add(fd, connection.line.flow(), events, id)?,
        (Some(_), Some(events)) => watch.modify(fd, events, id)?,
        (_, None) => watch.remove(fd)?,
    }
    connection.asked = wanted;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_is_told_once_is_told_also_where_the_set_fails() {
        let mut context = Context::new(Settings::sockets()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let it = context.connect(listener.local_addr().unwrap(), 7).unwrap();
        context.connection(it).unwrap().refused = Some(Errno::NOMEM);
        context.again(it);
        // (No set at all: each wait is refused.)
        let none = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        context.watch = Watch::Sockets { set: none, spins: false };
        assert_eq!(context.poll(Some(Duration::ZERO)).unwrap(), 1);
        assert!(context.event(0).what.has(What::FAILED));
        let refused = context.poll(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
}
