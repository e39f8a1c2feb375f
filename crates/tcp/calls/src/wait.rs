//! poll and select over connections and everything else.
//!
//! unsafe: descriptors by their numbers.

use crate::connection::Connection;
use crate::entry::Entry;
use crate::tcp::Tcp;
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uncopy_tcp_socket::ready::Item;

impl Tcp {
    /// poll(2), with `mask` ppoll(2). `None`: it is Linux's, for nothing of it is a connection.
    /// None waits without end.
    pub fn poll(
        &self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Option<Result<usize, Errno>> {
        self.waits(|| self.poll_once(fds, timeout, mask))
    }

    fn poll_once(
        &self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Option<Result<usize, Errno>> {
        let mut connections: Vec<(usize, Arc<Connection>)> = vec![];
        for (i, fd) in fds.iter().enumerate() {
            if let Some(found) = self.find(fd.fd) {
                match &*found {
                    Entry::Connection(connection) if !connection.flow.is_linux() => {
                        connections.push((i, connection.clone()));
                    }
                    Entry::Connection(_) => {}
                    Entry::Set(set) => set.is_waited_for(),
                }
            }
        }
        let (_, first) = connections.first()?;
        let context = first.flow.context().clone();
        let mut flows = connections.iter().peekable();
        let mut items: Vec<Item> = vec![];
        let mut places: Vec<usize> = vec![];
        for (i, fd) in fds.iter_mut().enumerate() {
            fd.revents = 0;
            let flow = flows.next_if(|(at, _)| *at == i).map(|(_, connection)| &*connection.flow);
            if fd.fd < 0 {
                continue;
            }
            items.push(Item {
                // SAFETY: the program's; the kernel says if it is none.
                fd: unsafe { BorrowedFd::borrow_raw(fd.fd) },
                flow,
                events: PollFlags::from_bits_retain(fd.events as u16),
                revents: PollFlags::empty(),
            });
            places.push(i);
        }
        let polled = context.poll_with(&mut items, timeout, mask);
        if polled.is_ok() {
            for (item, place) in items.iter().zip(places) {
                fds[place].revents = item.revents.bits() as i16;
            }
        }
        Some(polled)
    }

    /// select(2), with `mask` pselect(2): of `sets` (to read, to write, exceptional) those below
    /// `n`. `None`: it is Linux's.
    pub fn select(
        &self,
        n: i32,
        sets: &mut [Option<Vec<u64>>; 3],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Option<Result<usize, Errno>> {
        self.waits(|| self.select_once(n, sets, timeout, mask))
    }

    fn select_once(
        &self,
        n: i32,
        sets: &mut [Option<Vec<u64>>; 3],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Option<Result<usize, Errno>> {
        // The events that select calls ready (fs/select.c).
        const ASKED: [i16; 3] = [
            libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND,
            libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND,
            libc::POLLPRI,
        ];
        const SAID: [i16; 3] = [
            libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR,
            libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR,
            libc::POLLPRI,
        ];
        let has = |set: &Option<Vec<u64>>, fd: i32| {
            set.as_ref().is_some_and(|words| words[fd as usize / 64] >> (fd % 64) & 1 != 0)
        };
        let mut fds: Vec<libc::pollfd> = vec![];
        for fd in 0..n {
            let events = (0..3).filter(|&i| has(&sets[i], fd)).fold(0, |all, i| all | ASKED[i]);
            if events != 0 {
                fds.push(libc::pollfd { fd, events, revents: 0 });
            }
        }
        let asked: Vec<[bool; 3]> =
            fds.iter().map(|fd| core::array::from_fn(|i| has(&sets[i], fd.fd))).collect();
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut left = timeout;
        loop {
            if let Err(error) = self.poll_once(&mut fds, left, mask)? {
                return Some(Err(error));
            }
            if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
                return Some(Err(Errno::BADF));
            }
            let is_told = |fd: &libc::pollfd, asked: &[bool; 3]| {
                (0..3).any(|i| asked[i] && fd.revents & SAID[i] != 0)
            };
            if fds.iter().all(|fd| fd.revents == 0)
                || fds.iter().zip(&asked).any(|(fd, asked)| is_told(fd, asked))
            {
                break;
            }
            // (POLLHUP, which select does not tell to who asks for urgent data alone, is there for
            // good: none comes any more.)
            for fd in fds.iter_mut().filter(|fd| fd.revents != 0) {
                (fd.fd, fd.revents) = (!fd.fd, 0);
            }
            left = end.map(|end| end.saturating_duration_since(Instant::now()));
        }
        let mut count = 0;
        for fd in &mut fds {
            fd.fd = fd.fd.max(!fd.fd);
        }
        for words in sets.iter_mut().flatten() {
            words.fill(0);
        }
        for (fd, asked) in fds.iter().zip(asked) {
            for i in 0..3 {
                if asked[i]
                    && fd.revents & SAID[i] != 0
                    && let Some(words) = &mut sets[i]
                {
                    words[fd.fd as usize / 64] |= 1 << (fd.fd % 64);
                    count += 1;
                }
            }
        }
        Some(Ok(count))
    }
}
