//! fork and exec: connections are shared with children, and handed to programs that know nothing of
//! rings.
//!
//! unsafe: asks for a descriptor's flags; puts another file under a program's number; a list that
//! lives from one fork handler to the next.

use crate::connection::Connection;
use crate::entry::Entry;
use crate::epoll::Epoll;
use crate::over_fork::OverFork;
use crate::tcp::Tcp;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use rustix::io::FdFlags;
use rustix::net::sockopt::socket_cookie;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uncopy_kernel::critical;
use uncopy_tcp_socket::set::Added;
use uncopy_tcp_socket::{Context, Flow, Set, StayReason, fork};

type Numbered = Vec<(RawFd, Arc<Connection>)>;

/// How long a program that is executed waits for the other side to take what it sent by the ring. A
/// peer that runs takes microseconds.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The same of a call that copies what the other side does not take.
const MOMENT: Duration = Duration::from_millis(1);

impl Tcp {
    fn all(&self) -> (Numbered, Vec<Arc<Epoll>>) {
        let (mut connections, mut sets) = (vec![], vec![]);
        for (fd, what) in self.table.all(0, u32::MAX) {
            match what {
                Entry::Connection(connection) => connections.push((fd, connection)),
                Entry::Set(set) => sets.push(set),
            }
        }
        (connections, sets)
    }

    /// No connection, and nobody whom a service knows: a listener may have been registered.
    fn is_unknown(&self) -> bool {
        !self.in_use() && self.known_context().is_none()
    }

    /// This process's, and those of connections that it has inherited.
    fn contexts<'a>(&self, flows: impl Iterator<Item = &'a Arc<Flow>>) -> Vec<Arc<Context>> {
        let mut contexts: Vec<Arc<Context>> = self.known_context().into_iter().collect();
        contexts.extend(flows.map(|flow| flow.context().clone()));
        contexts.sort_unstable_by_key(Arc::as_ptr);
        contexts.dedup_by(|a, b| Arc::ptr_eq(a, b));
        contexts
    }

    /// The program has become another user.
    pub fn user_changes(&self) {
        if self.is_unknown() || !self.is_own() {
            return;
        }
        let (connections, _) = self.all();
        let flows = connections.iter().map(|(_, connection)| &connection.flow);
        let contexts = self.contexts(flows);
        // (Each begins anew.)
        let anew = contexts.iter().filter(|context| context.user_changes()).count();
        if anew > 0 {
            self.forgets_arenas();
        }
    }

    /// The program gives up rights: it keeps nothing of what it could see by having them.
    /// Connections whose bytes may lie there become Linux's.
    fn forgets_arenas(&self) {
        let (connections, _) = self.all();
        let deadline = Instant::now() + TIMEOUT;
        for (_, connection) in connections.iter().filter(|(_, of)| of.flow.has_arenas()) {
            let timeout = deadline.saturating_duration_since(Instant::now());
            self.by_linux(connection, timeout);
        }
        let flows = connections.iter().map(|(_, connection)| &connection.flow);
        self.contexts(flows).iter().for_each(|context| context.forgets_arenas());
    }

    /// All of the program's memory is about to be filled and locked: arenas are as long as they may
    /// ever be used, so it has none from here on. (Its own stays, if it has one.)
    pub fn locks_memory(&self) {
        self.no_arenas.store(true, Relaxed);
        if self.begun() && self.is_own() && !self.is_unknown() {
            self.is_secret();
            self.forgets_arenas();
        }
    }

    /// Nobody is to look at the program's memory any more (PR_SET_DUMPABLE): nothing more is put
    /// where its peers can.
    pub fn is_secret(&self) {
        if self.begun()
            && let Some(context) = self.known_context()
        {
            context.gives_nothing();
        }
    }

    /// Before fork.
    pub fn before_fork(&self) {
        // (A process that is asked for calls by the same word may have no connections at all.)
        if !self.begun() || self.is_unknown() {
            return;
        }
        let (connections, sets) = self.all();
        let mut flows: Vec<Arc<Flow>> = vec![];
        for (_, connection) in &connections {
            if !flows.iter().rev().take(4).any(|flow| Arc::ptr_eq(flow, &connection.flow)) {
                flows.push(connection.flow.clone());
            }
        }
        flows.sort_unstable_by_key(Arc::as_ptr);
        flows.dedup_by(|a, b| Arc::ptr_eq(a, b));
        flows.iter().for_each(|flow| flow.will_be_shared());
        let mut sets: Vec<Arc<Set>> = sets.iter().filter_map(|set| set.set()).collect();
        sets.sort_unstable_by_key(Arc::as_ptr);
        sets.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let contexts = self.contexts(flows.iter());
        // No handler of the program's finds them held by its own thread.
        let enters = !critical::inside();
        if enters {
            critical::enter();
        }
        self.hold();
        fork::hold(&contexts, &flows, &sets);
        let over = Box::new(OverFork { contexts, flows, sets, enters });
        self.over_fork.store(Box::into_raw(over), Relaxed);
    }

    fn after_fork(&self, child: bool) {
        let over = self.over_fork.swap(core::ptr::null_mut(), Acquire);
        if over.is_null() {
            return;
        }
        // SAFETY: made by `before_fork`, taken once.
        let over = unsafe { Box::from_raw(over) };
        fork::let_go(&over.contexts, &over.flows, &over.sets, child);
        self.let_go();
        if over.enters {
            critical::leave();
        }
    }

    /// After fork, in the parent.
    pub fn after_fork_parent(&self) {
        self.after_fork(false);
    }

    /// After fork, in the child.
    pub fn after_fork_child(&self) {
        // (In a sandbox not even the question who one is may be asked.)
        if !self.begun() {
            return;
        }
        self.process.store(std::process::id(), Relaxed);
        if self.is_unknown() {
            return;
        }
        self.after_fork(true);
        self.no_context();
        let (connections, _) = self.all();
        let mut anew: Vec<(Arc<Flow>, Arc<Connection>)> = vec![];
        for (fd, connection) in connections {
            let known = anew.iter().find(|(flow, _)| Arc::ptr_eq(flow, &connection.flow));
            let replaced = match known {
                Some((_, connection)) => Some(connection.clone()),
                None => self
                    .context()
                    .and_then(|context| connection.flow.anew(&context))
                    .map(|flow| Arc::new(connection.of_child(flow))),
            };
            if let Some(replaced) = replaced {
                anew.push((connection.flow.clone(), replaced.clone()));
                self.table.put(fd, Entry::Connection(replaced));
            }
        }
    }

    /// In a child that was made without fork's handlers: it knows nothing of connections. (It must
    /// not use the ends that its parent has at rings; it cannot know that.)
    pub fn after_bare_fork_child(&self) {
        if !self.begun() {
            return;
        }
        // (Nobody closes our own numbers any more, and `closefrom` spares them.)
        for (_, what) in self.table.all(0, u32::MAX) {
            match what {
                Entry::Connection(connection) => connection.close_own(),
                Entry::Set(set) => set.close_own(),
            }
        }
        self.table.reset();
        self.no_context();
        self.process.store(std::process::id(), Relaxed);
    }

    /// Before this process ends, or becomes another program: the other sides get what they have
    /// left to it.
    pub fn before_end(&self) {
        if self.in_use() && self.is_own() {
            self.all().0.iter().for_each(|(_, connection)| connection.flow.serve_before_end());
        }
    }

    /// `fd` was made by a call that says nothing of what it duplicates (pidfd_getfd). Where that is
    /// a connection of this process', it has one number more.
    pub fn came(&self, fd: RawFd) {
        if fd < 0 || !self.in_use() || !self.is_own() {
            return;
        }
        // SAFETY: the program's, just made.
        let Ok(cookie) = socket_cookie(unsafe { BorrowedFd::borrow_raw(fd) }) else { return };
        let same = |of: &Connection| socket_cookie(of.flow.fd()) == Ok(cookie);
        let Some((_, connection)) = self.all().0.into_iter().find(|(_, of)| same(of)) else {
            return;
        };
        if connection.one_more().is_ok() {
            let older = self.table.put(fd, Entry::Connection(connection));
            self.was_closed(older);
        } else {
            let _ = self.is_handed_on(&connection, TIMEOUT, StayReason::Used);
        }
    }

    /// Before this process executes another program: what that inherits is Linux's.
    pub fn before_exec(&self) {
        if !self.in_use() {
            return;
        }
        self.before_end();
        let deadline = Instant::now() + TIMEOUT;
        for (fd, connection) in self.all().0 {
            // (Its socket may have been replaced under another of its numbers.)
            if self.connection(fd).is_none() || !self.is_number_of(fd, &connection) {
                continue;
            }
            // SAFETY: asks only.
            let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) });
            if flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
                let timeout = deadline.saturating_duration_since(Instant::now());
                let _ = self.is_handed_on(&connection, timeout, StayReason::Forked);
            }
        }
    }

    /// The connection has this number in this process, which may be a child of vfork.
    pub(crate) fn is_number_of(&self, fd: RawFd, connection: &Connection) -> bool {
        // SAFETY: a number for the kernel, which checks it; only asked.
        self.is_own() || connection.flow.is_socket(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// The program is about to use `fd` past us for good, in this process: by stdio, io_uring, a
    /// command's standard streams. It is Linux's from then on; where nobody puts what lies unread
    /// into the socket, another one stands in for it, or the other side sends it at its next call.
    /// False: none of these.
    #[cold]
    pub fn is_used_past(&self, fd: RawFd) -> bool {
        let Some(connection) = self.connection(fd) else { return true };
        self.is_handed_on(&connection, TIMEOUT, StayReason::Used)
    }

    /// As [`is_used_past`](Self::is_used_past), in a child of vfork: its descriptors are its own,
    /// and what is known of them its parent's, so nothing stands in.
    #[cold]
    pub(crate) fn is_left_to_another(&self, fd: RawFd) -> bool {
        let Some(connection) = self.connection(fd) else { return true };
        self.by_linux_for(&connection, TIMEOUT, StayReason::Forked)
            || connection.flow.by_linux_later() == Ok(true)
    }

    fn is_handed_on(
        &self,
        connection: &Arc<Connection>,
        timeout: Duration,
        reason: StayReason,
    ) -> bool {
        self.by_linux_for(connection, timeout, reason)
            || self.replace(connection)
            || connection.flow.by_linux_later() == Ok(true)
    }

    /// Another socket stands in for it, under all of its numbers
    /// ([`uncopy_tcp_socket::Flow::stand_in`]).
    fn replace(&self, connection: &Arc<Connection>) -> bool {
        let Ok(other) = connection.flow.stand_in() else { return false };
        let all = self.all().0.into_iter();
        let numbers: Vec<RawFd> =
            all.filter(|(_, of)| Arc::ptr_eq(of, connection)).map(|(fd, _)| fd).collect();
        // The service keeps the connection's socket open: the kernel would go on telling of that by
        // these numbers.
        let mut added = connection.flow.added_to();
        added.retain(|added| numbers.contains(&added.number()) && added.take_out());
        for fd in numbers {
            let closing = self.closes(fd);
            // SAFETY: the program's number; it stays open.
            let mut number = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
            let flags = rustix::io::fcntl_getfd(&*number).unwrap_or(FdFlags::empty());
            let _ = rustix::io::dup2(&other, &mut number);
            let _ = rustix::io::fcntl_setfd(&*number, flags);
            self.closed(closing);
        }
        added.iter().for_each(Added::put);
        true
    }

    /// Both directions are Linux's from now on, as far as that can be had.
    pub(crate) fn by_linux(&self, connection: &Connection, timeout: Duration) -> bool {
        self.by_linux_for(connection, timeout, StayReason::Used)
    }

    fn by_linux_for(&self, connection: &Connection, timeout: Duration, reason: StayReason) -> bool {
        let flow = &connection.flow;
        if flow.is_attached() {
            return flow.by_linux(timeout) == Ok(true);
        }
        flow.leave_to_linux(reason);
        true
    }

    /// The program uses descriptors in ways that nobody sees, or is about to enter a sandbox: no
    /// connection is upgraded from now on, and those that are go back.
    pub fn stop(&self, reason: StayReason) {
        if self.begun() {
            let _ = self.stopped.compare_exchange(0, reason as u64, Relaxed, Relaxed);
            // (Also an arena that is under way is not taken: inside a sandbox the program may be
            // ended for that.)
            self.is_secret();
            for (fd, connection) in self.all().0 {
                if connection.flow.is_undecided() {
                    connection.flow.leave_to_linux(reason);
                }
                self.is_used_past(fd);
            }
            self.forgets_arenas();
        }
    }

    /// It does, or has.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed) != 0
    }

    /// Which of the two.
    pub(crate) fn why_stopped(&self) -> Option<StayReason> {
        StayReason::of(self.stopped.load(Relaxed))
    }

    /// Rings do not carry what the program is about to do with `fd` (SCM_RIGHTS, ...). False: that
    /// has not come about, because the other side does not answer and has sent what was not
    /// received.
    #[cold]
    pub fn give_to_linux(&self, fd: RawFd) -> bool {
        self.give_to_linux_for(fd, StayReason::Used)
    }

    pub(crate) fn give_to_linux_for(&self, fd: RawFd, reason: StayReason) -> bool {
        let connection = self.connection(fd);
        connection.is_none_or(|connection| self.by_linux_for(&connection, TIMEOUT, reason))
    }

    /// The same for splice, which copies what the other side does not take: so that is asked once,
    /// for a moment, and is left alone then until nothing is unread here.
    #[cold]
    pub fn give_to_linux_or_copy(&self, fd: RawFd) -> bool {
        let Some(connection) = self.connection(fd) else { return true };
        if connection.copies.load(Relaxed) && connection.flow.has_bytes() {
            return false;
        }
        let given = self.by_linux_for(&connection, MOMENT, StayReason::Used);
        connection.copies.store(!given, Relaxed);
        given
    }
}
