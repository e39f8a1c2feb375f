//! The promises of TCP over loopback: the state of both processes, what each call may return in it,
//! and what it changes.

macro_rules! mismatch {
    ($($text:tt)*) => { $crate::model::Mismatch::new(format_args!($($text)*)) };
}

pub mod end;
pub mod set;

use crate::op::{Actor, Ctl, Events, Flags, HANDLES, How, Opt, RecvBy, SETS, SendBy, Timeout};
use crate::script::Connection;
use crate::stream::Digest;
use core::fmt;
use end::{End, Outcome, Pair, SURE, Side, State, Urgent, bytes};
use set::{Entry, Member, Set};

/// An answer that a call may not give here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch(String);

impl Mismatch {
    /// Says what it is, or what is right.
    pub fn new(what: impl fmt::Display) -> Self {
        Self(what.to_string())
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for Mismatch {}

/// A descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    /// The connection.
    pub connection: usize,
    /// Which end.
    pub side: Side,
    /// Its number.
    pub number: i32,
    /// FD_CLOEXEC.
    pub cloexec: bool,
}

/// A process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// It runs.
    pub runs: bool,
    /// It executed a program: what it has may be other sockets that stand in for those.
    pub executed: bool,
    /// Its descriptors.
    pub handles: [Option<Handle>; HANDLES],
}

/// A call that may wait.
#[derive(Clone, Debug)]
pub enum Call {
    /// Sends.
    Send {
        /// Through which end.
        end: (usize, Side),
        /// So many bytes.
        len: u64,
        /// How.
        by: SendBy,
        /// Flags that count.
        flags: Flags,
        /// The position of the first.
        from: u64,
    },
    /// Sends all, or what there is room for.
    Stream {
        /// Through which end.
        end: (usize, Side),
        /// So many bytes.
        len: u64,
        /// Until there is no room.
        fill: bool,
        /// The position of the first.
        from: u64,
    },
    /// Receives.
    Recv {
        /// Through which end.
        end: (usize, Side),
        /// At most so many bytes.
        len: u64,
        /// How.
        by: RecvBy,
        /// Flags that count.
        flags: Flags,
        /// The bytes that it has taken while it waited.
        got: Vec<(u64, u64)>,
    },
    /// Waits for descriptors.
    Poll {
        /// Ends, and what is asked; or a set.
        polled: Vec<(Polled, Events)>,
        /// By `select`: IN, OUT and PRI stand for its three lists.
        select: bool,
        /// How long.
        wait: Timeout,
    },
    /// Waits for a set.
    Wait {
        /// The side whose set it is.
        side: Side,
        /// Which.
        set: usize,
        /// So many events at most.
        max: usize,
        /// How long.
        wait: Timeout,
    },
}

/// The object that poll asks about.
#[derive(Clone, Copy, Debug)]
pub enum Polled {
    /// An end.
    End(usize, Side),
    /// A set.
    Set(Side, usize),
}

/// The ways that a call may go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// It may return.
    pub returns: bool,
    /// It may wait, as long as it waits.
    pub waits: bool,
}

/// The return of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Its result.
    pub result: i64,
    /// errno, where that is -1.
    pub errno: i32,
    /// SIGPIPE came so often.
    pub signals: u32,
    /// Digest of what was received.
    pub digest: u64,
    /// The rest: tokens and events, or a mask for each descriptor.
    pub more: Vec<u64>,
}

/// Why a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// At once.
    Now,
    /// Something has happened while it waited.
    Later,
    /// A signal came.
    Signal,
    /// Its time has passed.
    Time,
}

/// Both processes and their children.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The connections.
    pub connections: Vec<Pair>,
    /// The processes: `a`, `b`, `ax`, `bx`.
    pub processes: [Process; 4],
    /// The sets of `a` and `b`.
    pub sets: [[Option<Set>; SETS]; 2],
    /// Sets need not tell at once of all that is so, and a set that is itself waited for may be
    /// said to be ready when it is not (docs/limitations.md).
    pub by_turns: bool,
    tokens: u64,
}

/// A digest key for what is sent from this end.
pub fn key(end: (usize, Side)) -> u64 {
    (end.0 * 2 + end.1) as u64 + 1
}

impl World {
    /// New connections, with their numbers in both processes.
    pub fn new(connections: &[Connection], numbers: &[[i32; 2]]) -> Self {
        let mut world = Self::default();
        for (connection, numbers) in numbers.iter().enumerate().take(connections.len()) {
            world.connections.push([End { refs: 1, ..End::default() }; 2]);
            for (side, &number) in numbers.iter().enumerate() {
                world.processes[side].handles[connection] =
                    Some(Handle { connection, side, number, cloexec: false });
            }
        }
        world.processes[0].runs = true;
        world.processes[1].runs = true;
        world
    }

    /// A descriptor.
    pub fn handle(&self, process: usize, handle: usize) -> Option<Handle> {
        *self.processes[process].handles.get(handle)?
    }

    /// An end.
    pub fn end(&self, (connection, side): (usize, Side)) -> &End {
        &self.connections[connection][side]
    }

    /// An end.
    pub fn end_mut(&mut self, (connection, side): (usize, Side)) -> &mut End {
        &mut self.connections[connection][side]
    }

    /// The mask of poll: the bits that it must have, and those that it may.
    pub fn mask(&self, connection: usize, side: Side) -> (Events, Events) {
        end::mask(&self.connections[connection], side)
    }

    // ------------------------------------------------------------ calls that may wait

    /// The ways that a call may go now.
    pub fn expect(&self, call: &Call) -> Expected {
        match *call {
            Call::Send { end, len, flags, .. } => {
                let (e, other) = (self.end(end), self.end((end.0, 1 - end.1)));
                let sure = end::send_error(e).is_some() || other.unread() <= SURE || len == 0;
                let never = e.nonblocking || flags.has(Flags::DONTWAIT);
                Expected { returns: true, waits: !sure && !never }
            }
            Call::Stream { end, fill, .. } => {
                let (e, other) = (self.end(end), self.end((end.0, 1 - end.1)));
                let sure = fill || end::send_error(e).is_some() || other.unread() <= SURE;
                Expected { returns: true, waits: !sure }
            }
            Call::Recv { end, len, by, flags, ref got } => {
                let e = self.end(end);
                let waits = |e: &End| {
                    matches!(received_by(e, by, len, flags, bytes(got)).0, Outcome::Waits(_))
                };
                let fails = by == RecvBy::Recvmmsg && e.error != 0 && got.is_empty();
                let never =
                    e.nonblocking || flags.has(Flags::DONTWAIT) || flags.has(Flags::OOB) || fails;
                let (now, later) = (waits(e), waits(&e.flushed()));
                Expected { returns: never || !now || !later, waits: !never && (now || later) }
            }
            Call::Poll { ref polled, select, wait } => {
                let none = Events::default();
                let all = polled.iter().map(|&(what, asked)| self.polled(what, asked, select));
                let (must, may) = all.fold((false, false), |(must, may), (more, perhaps)| {
                    (must || more != none, may || perhaps != none)
                });
                let never = wait == Timeout::No;
                Expected { returns: never || may, waits: !never && !must }
            }
            Call::Wait { side, set, wait, .. } => {
                let (must, may) = self.set_is_ready(side, set);
                let never = wait == Timeout::No;
                Expected { returns: never || may, waits: !never && !must }
            }
        }
    }

    fn polled(&self, what: Polled, asked: Events, select: bool) -> (Events, Events) {
        let (must, may) = match what {
            Polled::End(connection, side) => self.mask(connection, side),
            Polled::Set(side, set) => {
                let (must, may) = self.set_is_ready(side, set);
                let is = |ready| if ready { Events::IN } else { Events::default() };
                (is(must), is(may || self.by_turns))
            }
        };
        let said = |mask: Events| {
            if !select {
                return mask & (asked | Events::ERR | Events::HUP);
            }
            let mut lists = Events::default();
            if (mask & (Events::IN | Events::HUP | Events::ERR)).0 != 0 {
                lists |= Events::IN;
            }
            if (mask & (Events::OUT | Events::ERR)).0 != 0 {
                lists |= Events::OUT;
            }
            lists |= mask & Events::PRI;
            lists & asked
        };
        (said(must), said(may))
    }

    /// A call that receives has nothing yet.
    pub fn has_nothing(&self, call: &Call) -> bool {
        self.would_have_nothing(call, |end| *end)
    }

    /// It has nothing of what has surely arrived, and would have something of all that was sent.
    pub fn may_have_something(&self, call: &Call) -> bool {
        self.has_nothing(call) && !self.would_have_nothing(call, End::flushed)
    }

    fn would_have_nothing(&self, call: &Call, view: impl Fn(&End) -> End) -> bool {
        match call {
            Call::Recv { end, len, by, flags, got } => {
                let end = view(self.end(*end));
                let (outcome, _) = received_by(&end, *by, *len, *flags, bytes(got));
                got.is_empty() && matches!(outcome, Outcome::Waits(more) if more.is_empty())
            }
            _ => true,
        }
    }

    /// Takes the bytes that a call has received while it waits. True: something.
    pub fn absorbs(&mut self, call: &mut Call) -> bool {
        if let Call::Recv { end, len, by, flags, got } = call
            && !flags.has(Flags::PEEK)
            && let (Outcome::Waits(ranges), at) =
                received_by(self.end(*end), *by, *len, *flags, bytes(got))
        {
            let took = !ranges.is_empty();
            got.extend(ranges);
            self.end_mut(*end).takes(at);
            return took;
        }
        false
    }

    /// Judges what a call has returned, and does what it does. True: nothing else was possible.
    ///
    /// # Errors
    /// The difference from what is right.
    pub fn take(&mut self, call: &Call, said: &Said, because: Because) -> Result<bool, Mismatch> {
        let expected = self.expect(call);
        let interrupted = matches!(because, Because::Signal | Because::Time);
        if !expected.returns && !interrupted {
            return Err(mismatch!("it returns, where it is to wait"));
        }
        match call {
            Call::Send { end, len, flags, .. } => self.send_said(*end, *len, *flags, said, because),
            Call::Stream { end, len, fill, from } => {
                self.stream_said(*end, *len, *fill, *from, said)
            }
            Call::Recv { end, len, by, flags, got } => {
                self.recv_said(*end, *len, *by, *flags, got, said, because)
            }
            Call::Poll { polled, select, .. } => {
                if said.result < 0 {
                    return interrupts(said, because);
                }
                let mut exact = because == Because::Now;
                let mut ready = 0;
                for (i, &(what, asked)) in polled.iter().enumerate() {
                    let (must, may) = self.polled(what, asked, *select);
                    let is = Events(said.more.get(i).copied().unwrap_or(0) as u32);
                    ready += if *select { is.0.count_ones() } else { u32::from(is.0 != 0) };
                    if !may.has(is) {
                        return Err(mismatch!("number {i} says {is}, may say {may}"));
                    }
                    if because != Because::Later && !is.has(must) {
                        return Err(mismatch!("number {i} says {is}, must say {must}"));
                    }
                    exact &= must == may;
                }
                if i64::from(ready) != said.result {
                    return Err(mismatch!("it says {} are ready, {ready} are", said.result));
                }
                if ready == 0 && because == Because::Later {
                    return Err(mismatch!("it returns nothing"));
                }
                Ok(exact)
            }
            Call::Wait { side, set, max, .. } => {
                if said.result < 0 {
                    return interrupts(said, because);
                }
                let told: Vec<(u64, Events)> =
                    said.more.chunks(2).map(|pair| (pair[0], Events(pair[1] as u32))).collect();
                if told.is_empty() && because == Because::Later {
                    return Err(mismatch!("it returns nothing"));
                }
                self.told(*side, *set, *max, &told, because == Because::Later)
            }
        }
    }

    fn fails_as(
        &mut self,
        end: (usize, Side),
        said: &Said,
        error: i32,
        quiet: bool,
    ) -> Result<bool, Mismatch> {
        let vague = self.end(end).error_is_vague;
        let is = said.errno == error || vague && said.errno == libc::EPIPE;
        if said.result != -1 || !is {
            return Err(mismatch!("it is to fail: {}", name(error)));
        }
        let signals = u32::from(said.errno == libc::EPIPE && !quiet);
        if said.signals != signals {
            return Err(mismatch!("{} SIGPIPE, {signals} are right", said.signals));
        }
        self.end_mut(end).error = 0;
        Ok(!vague)
    }

    fn send_said(
        &mut self,
        end: (usize, Side),
        len: u64,
        flags: Flags,
        said: &Said,
        because: Because,
    ) -> Result<bool, Mismatch> {
        let other = (end.0, 1 - end.1);
        if let Some(error) = end::send_error(self.end(end)) {
            return self.fails_as(end, said, error, flags.has(Flags::NOSIGNAL));
        }
        let waits = !self.end(end).nonblocking && !flags.has(Flags::DONTWAIT);
        let (sure, unread) = (self.end(other).unread() + len <= SURE, self.end(other).unread());
        if said.result < 0 {
            let no_room = said.errno == libc::EAGAIN && !waits && !sure && unread > 0;
            let signal = because == Because::Signal && said.errno == libc::EINTR;
            if !no_room && !signal {
                return Err(mismatch!("it is to send {len} bytes"));
            }
            self.end_mut(end).lacks_room = true;
            return Ok(false);
        }
        let sent = said.result as u64;
        if sent > len
            || sent < len && (sure || waits && because != Because::Signal)
            || sent == 0 && len > 0
        {
            return Err(mismatch!("it is to send {len} bytes"));
        }
        self.sends(end, sent, flags);
        if sent < len {
            self.end_mut(end).lacks_room = true;
        }
        Ok(sure)
    }

    /// Bytes are under way.
    fn sends(&mut self, end: (usize, Side), sent: u64, flags: Flags) {
        let other = (end.0, 1 - end.1);
        let before = [*self.end(end), *self.end(other)];
        if sent > 0 {
            let cork = self.end(end).cork;
            self.end_mut(end).holds = flags.has(Flags::MORE) || cork;
        }
        end::sent(&mut self.connections[end.0], end.1, sent);
        self.closed_since(end, before[0]);
        self.closed_since(other, before[1]);
        // (Linux notes it before it looks who reads there, and resets the connection.)
        if flags.has(Flags::OOB) && sent > 0 && before[1].state != State::Closed {
            let at = self.end(other).hi - 1;
            self.end_mut(other).urgent = Some(Urgent { at, read: false });
        }
    }

    /// Where a reset came: all sets tell.
    fn closed_since(&mut self, end: (usize, Side), before: End) {
        if before.state != State::Closed && self.end(end).state == State::Closed {
            self.happens(end.0, end.1, Events(u32::MAX));
        }
    }

    fn stream_said(
        &mut self,
        end: (usize, Side),
        len: u64,
        fill: bool,
        from: u64,
        said: &Said,
    ) -> Result<bool, Mismatch> {
        // (All of it was taken for sent when it began.)
        let over = end::send_error(self.end(end)).is_some();
        let sent = said.more.first().copied().unwrap_or(0);
        let other = (end.0, 1 - end.1);
        if sent > len {
            return Err(mismatch!("more was sent than there is"));
        }
        if said.result < 0 && !(over && matches!(said.errno, libc::EPIPE | libc::ECONNRESET)) {
            return Err(mismatch!("it is to send {len} bytes"));
        }
        if said.result >= 0 && !fill && sent < len {
            return Err(mismatch!("it is to send {len} bytes"));
        }
        if over {
            self.end_mut(end).error = 0;
        }
        let e = self.end_mut(other);
        e.hi = (from + sent).max(e.copied);
        e.lo = e.lo.min(e.hi);
        self.end_mut(end).lacks_room = fill && sent < len;
        Ok(false)
    }

    /// A stream begins: all of it may be on its way.
    pub fn stream_begins(&mut self, end: (usize, Side), len: u64) {
        self.end_mut((end.0, 1 - end.1)).hi += len;
    }

    #[allow(clippy::too_many_arguments)]
    fn recv_said(
        &mut self,
        end: (usize, Side),
        len: u64,
        by: RecvBy,
        flags: Flags,
        got: &[(u64, u64)],
        said: &Said,
        because: Because,
    ) -> Result<bool, Mismatch> {
        let e = *self.end(end);
        let (before, known) = (bytes(got), e.lo);
        let key = key((end.0, 1 - end.1));
        let exact = !e.is_loose() && !e.cut;
        let never = e.nonblocking || flags.has(Flags::DONTWAIT);
        let interrupted = matches!(because, Because::Signal | Because::Time);
        let mut expected = String::new();
        // Bytes up to one of these may have arrived when it was made. (An urgent byte that is left
        // out counts besides.)
        let mut points = vec![e.lo];
        let first = e.copied + said.result.max(0) as u64 - before.min(said.result.max(0) as u64);
        if said.result > 0 && e.hi > e.lo {
            points.extend([first, first + 1].map(|at| at.clamp(e.lo, e.hi)));
        }
        points.push(e.hi);
        // A call that waits is woken by the first part of what comes.
        let waited = because == Because::Later && said.result > before as i64;
        let firsts = if waited { [first, first + 1].map(|at| at.min(e.lo)) } else { [u64::MAX; 2] };
        points.extend(firsts.iter().filter(|_| waited));
        points.dedup();
        let views = points.iter().map(|&at| e.at(at)).chain([e.flushed()]);
        for view in views {
            let first_part = firsts.contains(&view.lo);
            let (outcome, mut at) = received_by(&view, by, len, flags, before);
            // `recvmmsg` looks for an error first.
            let first = by == RecvBy::Recvmmsg && because == Because::Now && e.error != 0;
            let outcome = match outcome {
                _ if first => {
                    at = e.copied;
                    Outcome::Fails(e.error)
                }
                Outcome::Waits(more) if (never || interrupted) && before + bytes(&more) > 0 => {
                    Outcome::Got(more)
                }
                other => other,
            };
            let matches = match &outcome {
                Outcome::Got(ranges) => {
                    let mut all = [got, ranges].concat();
                    // The pipe may have no room for more.
                    if by == RecvBy::Splice && said.result > 0 && (said.result as u64) < bytes(&all)
                    {
                        all = vec![(all[0].0, all[0].0 + said.result as u64)];
                        at = all[0].1;
                    }
                    expected = format!("{} bytes", bytes(&all));
                    let is = said.result == bytes(&all) as i64;
                    if is && !flags.has(Flags::TRUNC) && Digest::of_stream(key, &all) != said.digest
                    {
                        return Err(mismatch!("wrong bytes; right are {:?} of the stream", all));
                    }
                    is
                }
                Outcome::End => {
                    expected = "the end, 0".into();
                    said.result == 0
                }
                Outcome::Fails(error) => {
                    expected = name(*error);
                    let vague = e.error_is_vague && said.errno == libc::EPIPE;
                    said.result == -1 && (said.errno == *error || vague)
                }
                Outcome::Waits(_) => {
                    let error = if because == Because::Signal { libc::EINTR } else { libc::EAGAIN };
                    expected = name(error);
                    (never || interrupted) && said.result == -1 && said.errno == error
                }
            };
            if !matches {
                continue;
            }
            let urgent = flags.has(Flags::OOB);
            let e = self.end_mut(end);
            match outcome {
                Outcome::Fails(_) if first || !urgent => e.error = 0,
                Outcome::Got(_) if urgent && !flags.has(Flags::PEEK) => {
                    e.urgent = e.urgent.map(|u| Urgent { read: true, ..u });
                }
                _ => {}
            }
            let nothing_left = matches!(outcome, Outcome::End | Outcome::Fails(_)) && !first;
            let at_mark = by == RecvBy::Splice && e.at_mark();
            let over = nothing_left && !urgent && !at_mark && len > 0;
            if over && e.cut {
                (e.lo, e.hi, e.cut) = (at, at, false);
            }
            if !urgent && !flags.has(Flags::PEEK) {
                e.takes(at);
            }
            let exact = exact && !first_part && by != RecvBy::Splice;
            // (Bytes that have arrived since are known to have.)
            let end = self.end_mut(end);
            if !over {
                end.lo = end.lo.max(known);
            }
            return Ok(exact);
        }
        Err(mismatch!("right is {expected}"))
    }

    /// All that was sent to an end has arrived.
    pub fn arrives(&mut self, end: (usize, Side)) {
        let before = self.connections[end.0];
        end::arrives(&mut self.connections[end.0], end.1);
        let after = self.connections[end.0];
        let (was, is) = (before[end.1], after[end.1]);
        let mut what = Events::default();
        if was.lo < was.hi {
            what |= Events::IN;
            if is.urgent.is_some_and(|u| u.at >= was.lo) {
                what |= Events::PRI;
            }
        }
        if was.fin {
            what |= Events::IN | Events::RDHUP;
        }
        if !was.vague {
            self.happens(end.0, end.1, what);
        }
        self.end_mut(end).vague = false;
        for (side, before) in before.into_iter().enumerate() {
            self.closed_since((end.0, side), before);
        }
    }

    /// Where there was no room and is some again, sets by edge tell.
    pub fn has_room(&mut self, end: (usize, Side)) {
        if self.end(end).lacks_room && end::is_roomy(&self.connections[end.0], end.1) {
            self.end_mut(end).lacks_room = false;
            self.happens(end.0, end.1, Events::OUT);
        }
    }

    // ------------------------------------------------------------ descriptors

    fn loses(&mut self, handle: Handle) {
        let (connection, side) = (handle.connection, handle.side);
        let before = self.connections[connection];
        let end = &mut self.connections[connection][side];
        end.refs -= 1;
        if end.refs == 0 {
            end::close(&mut self.connections[connection], side);
            self.leaves_sets(connection, side);
            self.closed_since((connection, 1 - side), before[1 - side]);
        }
    }

    /// A descriptor is closed.
    pub fn closes(&mut self, process: usize, handle: usize) {
        if let Some(handle) = self.processes[process].handles[handle].take() {
            self.loses(handle);
            self.is_held_elsewhere(process, (handle.connection, handle.side));
        }
    }

    /// Whether it is known what comes of closing these.
    pub fn is_close_known(&self, process: usize, handles: impl IntoIterator<Item = usize>) -> bool {
        handles
            .into_iter()
            .filter_map(|handle| self.handle(process, handle))
            .all(|handle| end::is_close_known(&self.connections[handle.connection], handle.side))
    }

    /// A process has one more descriptor.
    pub fn gets(&mut self, process: usize, at: usize, handle: Handle) {
        self.end_mut((handle.connection, handle.side)).refs += 1;
        self.processes[process].handles[at] = Some(handle);
    }

    /// A child is forked.
    pub fn forks(&mut self, process: usize, child: usize) {
        let handles = self.processes[process].handles;
        handles.iter().flatten().for_each(|handle| {
            self.end_mut((handle.connection, handle.side)).refs += 1;
        });
        self.processes[child] = Process { runs: true, executed: false, handles };
    }

    /// A process ends.
    pub fn exits(&mut self, process: usize) {
        (0..HANDLES).for_each(|handle| self.closes(process, handle));
        self.processes[process] = Process::default();
        if process < 2 {
            self.sets[process] = Default::default();
        }
    }

    /// A process executes a program.
    pub fn executes(&mut self, process: usize) {
        for handle in 0..HANDLES {
            if self.handle(process, handle).is_some_and(|handle| handle.cloexec) {
                self.closes(process, handle);
            }
        }
        self.processes[process].executed = true;
    }

    // ------------------------------------------------------------ what never waits

    /// `shutdown`.
    ///
    /// # Errors
    /// The difference from what is right.
    pub fn shut(&mut self, end: (usize, Side), how: How, said: &Said) -> Result<bool, Mismatch> {
        let before = self.connections[end.0];
        let error = end::shutdown(&mut self.connections[end.0], end.1, how);
        let what = match how {
            How::Rd => Events::IN | Events::RDHUP,
            How::Wr => Events::default(),
            How::Rdwr => Events::IN | Events::RDHUP | Events::HUP,
        };
        self.happens(end.0, end.1, what);
        self.closed_since(end, before[end.1]);
        answers(said, error)
    }

    /// `setsockopt`.
    pub fn sets(&mut self, end: (usize, Side), what: Opt, on: bool) {
        let e = self.end_mut(end);
        match what {
            Opt::Cork => e.cork = on,
            Opt::Linger => e.linger = on,
            Opt::Inline => e.inline = on,
            Opt::Rcvtimeo => e.timeout = on,
            Opt::Nodelay | Opt::Keepalive => {}
        }
    }

    /// `epoll_ctl`: what it returns, and the token that was given.
    pub fn controls(
        &mut self,
        side: Side,
        set: usize,
        member: Member,
        how: Ctl,
        events: Events,
    ) -> (i32, u64) {
        self.tokens += 1;
        let token = self.tokens;
        let said = Events::default();
        let mut entry = Entry {
            member,
            events,
            token,
            rests: false,
            stale: false,
            armed: true,
            said,
            waited: 0,
        };
        entry.armed = self.entry(side, &entry).0 != Events::default();
        let Some(Set { entries, .. }) = &mut self.sets[side][set] else {
            return (libc::EBADF, token);
        };
        let at = entries.iter().position(|entry| entry.member == member);
        let error = match (how, at) {
            (Ctl::Add, Some(_)) => libc::EEXIST,
            (Ctl::Mod | Ctl::Del, None) => libc::ENOENT,
            (Ctl::Del, Some(at)) => {
                entries.remove(at);
                0
            }
            (Ctl::Add, None) => {
                entries.push(entry);
                0
            }
            (Ctl::Mod, Some(at)) => {
                entries[at] = entry;
                0
            }
        };
        (error, token)
    }

    /// SO_ERROR.
    ///
    /// # Errors
    /// The difference from what is right.
    pub fn asks_error(&mut self, end: (usize, Side), said: &Said) -> Result<bool, Mismatch> {
        let e = self.end_mut(end);
        let (error, vague) = (e.error, e.error_is_vague && e.error != 0);
        let is = said.more.first().map_or(-1, |error| *error as i32);
        if is != error && !(vague && is == libc::EPIPE) {
            return Err(mismatch!("{} is pending, right is {}", name(is), name(error)));
        }
        e.error = 0;
        Ok(!vague)
    }

    /// FIONREAD.
    ///
    /// # Errors
    /// The difference from what is right.
    pub fn asks_unread(&self, end: (usize, Side), said: &Said) -> Result<bool, Mismatch> {
        let e = self.end(end);
        let (least, most) = (e.inq(), e.at(e.hi).inq());
        let is = said.more.first().copied().unwrap_or(u64::MAX);
        if !(least.min(most)..=least.max(most)).contains(&is) {
            return Err(mismatch!("{is} bytes are said to be unread, right is {least} to {most}"));
        }
        Ok(least == most)
    }
}

fn interrupts(said: &Said, because: Because) -> Result<bool, Mismatch> {
    match because {
        Because::Signal if said.errno == libc::EINTR => Ok(true),
        _ => Err(mismatch!("it fails: {}", name(said.errno))),
    }
}

/// A call that fails with `error`, or returns 0.
///
/// # Errors
/// The difference from what is right.
pub fn answers(said: &Said, error: i32) -> Result<bool, Mismatch> {
    let right =
        if error == 0 { said.result == 0 } else { said.result == -1 && said.errno == error };
    if right { Ok(true) } else { Err(mismatch!("right is {}", name(error))) }
}

/// The name of an error.
pub fn name(error: i32) -> String {
    let known = [
        (0, "0"),
        (libc::EPIPE, "EPIPE"),
        (libc::ECONNRESET, "ECONNRESET"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::EINTR, "EINTR"),
        (libc::ENOTCONN, "ENOTCONN"),
        (libc::EINVAL, "EINVAL"),
        (libc::EBADF, "EBADF"),
        (libc::EEXIST, "EEXIST"),
        (libc::ENOENT, "ENOENT"),
        (libc::EBUSY, "EBUSY"),
    ];
    let found = known.iter().find(|(number, _)| *number == error);
    found.map_or_else(|| format!("errno {error}"), |(_, name)| (*name).to_owned())
}

/// Flags that a call of this kind has at all.
pub fn send_flags(by: SendBy, flags: Flags) -> Flags {
    match by {
        SendBy::Write | SendBy::Writev | SendBy::Sendfile => Flags::default(),
        SendBy::Splice => flags & Flags::MORE,
        _ => flags,
    }
}

/// Flags that a receiving call of this kind has at all.
pub fn recv_flags(by: RecvBy, flags: Flags) -> Flags {
    match by {
        RecvBy::Read | RecvBy::Readv | RecvBy::Splice => Flags::default(),
        _ => flags,
    }
}

/// The outcome of a call of this kind ([`End::receive`]).
fn received_by(end: &End, by: RecvBy, len: u64, flags: Flags, got: u64) -> (Outcome, u64) {
    match by {
        RecvBy::Splice => end.splice(len),
        _ => end.receive(len, flags, got),
    }
}

impl Actor {
    /// The actor's process' first thread.
    pub fn first(self) -> Self {
        match (self.side(), self.is_child()) {
            (0, false) => Self::A,
            (0, true) => Self::Ax,
            (_, false) => Self::B,
            (_, true) => Self::Bx,
        }
    }
}
