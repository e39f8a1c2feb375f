//! Two ends of a connection over loopback, as far as programs see them: after Linux 6's
//! `tcp_recvmsg_locked`, `tcp_poll`, `tcp_close`, `tcp_fin`, `tcp_reset`.
//!
//! Bytes are positions in their stream. Bytes that were sent and have surely arrived end at `lo`,
//! those that may have arrived at `hi`: they differ while a socket holds bytes back (cork, a full
//! window), or where a reset may have overtaken them.

use crate::op::{Events, Flags, How};

/// So many bytes are always taken and always arrive, whatever the other side reads. (The first
/// window is 64 KB.)
pub const SURE: u64 = 60_000;
/// While no more than this is unread, there is room for more.
const ROOMY: u64 = 20_000;

/// Which end: 0 is the first process', 1 the second's.
pub type Side = usize;

/// The state of a socket. (FIN_WAIT1 and FIN_WAIT2 look alike.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Connected.
    #[default]
    Open,
    /// It has ended its stream.
    Ended,
    /// The other one has.
    CloseWait,
    /// Both have, or a reset came.
    Closed,
}

/// The urgent byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgent {
    /// Its position.
    pub at: u64,
    /// It was received with MSG_OOB.
    pub read: bool,
}

/// One end.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    /// Descriptors that refer to it, in all processes.
    pub refs: usize,
    /// O_NONBLOCK.
    pub nonblocking: bool,
    /// SO_LINGER with a time of 0.
    pub linger: bool,
    /// SO_OOBINLINE.
    pub inline: bool,
    /// TCP_CORK.
    pub cork: bool,
    /// The bytes that were sent last may be held back (MSG_MORE, TCP_CORK).
    pub holds: bool,
    /// SO_RCVTIMEO.
    pub timeout: bool,
    /// See above.
    pub state: State,
    /// RCV_SHUTDOWN.
    pub shut_rd: bool,
    /// SEND_SHUTDOWN.
    pub shut_wr: bool,
    /// The other side's FIN has come (SOCK_DONE).
    pub done: bool,
    /// The pending error.
    pub error: i32,
    /// It may be EPIPE as well.
    pub error_is_vague: bool,
    /// How far the bytes that come in have been received.
    pub copied: u64,
    /// See above.
    pub lo: u64,
    /// See above.
    pub hi: u64,
    /// A FIN was sent here after `hi`, and may have arrived.
    pub fin: bool,
    /// A reset has come: of what had not surely arrived a part may be lost.
    pub cut: bool,
    /// It took a while until what was sent here has arrived: whether sets by edge have told of it
    /// is not known.
    pub vague: bool,
    /// The urgent byte of what comes in.
    pub urgent: Option<Urgent>,
    /// A call has found no room.
    pub lacks_room: bool,
}

/// The outcome of a call that receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It returns these bytes.
    Got(Vec<(u64, u64)>),
    /// It returns 0: the stream has ended.
    End,
    /// It fails.
    Fails(i32),
    /// It waits (or says EAGAIN), and has taken these bytes.
    Waits(Vec<(u64, u64)>),
}

/// How many bytes that are.
pub fn bytes(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(from, to)| to - from).sum()
}

impl End {
    /// It has descriptors.
    pub fn is_open(&self) -> bool {
        self.refs > 0
    }

    /// Its fate is not known for sure.
    pub fn is_loose(&self) -> bool {
        self.lo < self.hi || self.fin
    }

    /// The bytes that are unread, and those that may be.
    pub fn unread(&self) -> u64 {
        self.hi - self.copied
    }

    /// As it is when bytes up to `at`, and nothing that follows, have arrived.
    pub fn at(&self, at: u64) -> Self {
        Self { lo: at, ..*self }
    }

    /// As it is when all has arrived.
    pub fn flushed(&self) -> Self {
        let mut all = self.at(self.hi);
        if all.fin {
            all.fin_arrives();
        }
        all
    }

    pub(super) fn fin_arrives(&mut self) {
        self.fin = false;
        self.done = true;
        self.shut_rd = true;
        match self.state {
            State::Open => self.state = State::CloseWait,
            _ => self.is_over(),
        }
    }

    fn is_over(&mut self) {
        self.state = State::Closed;
        self.shut_rd = true;
        self.shut_wr = true;
    }

    fn is_reset(&mut self) {
        if self.state == State::Closed {
            return;
        }
        self.error = if self.state == State::CloseWait { libc::EPIPE } else { libc::ECONNRESET };
        self.error_is_vague = self.fin;
        self.cut = self.lo < self.hi;
        self.fin = false;
        self.is_over();
    }

    /// The mask of poll; OUT for sure or perhaps.
    fn mask(&self) -> Events {
        let mut mask = Events::default();
        if self.shut_rd && self.shut_wr || self.state == State::Closed {
            mask |= Events::HUP;
        }
        if self.shut_rd {
            mask |= Events::IN | Events::RDHUP;
        }
        let is_next = self.urgent.is_some_and(|u| u.at == self.copied && !self.inline);
        if self.lo - self.copied > u64::from(is_next) {
            mask |= Events::IN;
        }
        if self.shut_wr {
            mask |= Events::OUT;
        }
        if self.urgent.is_some_and(|u| !u.read) {
            mask |= Events::PRI;
        }
        if self.error != 0 {
            mask |= Events::ERR;
        }
        mask
    }

    /// FIONREAD.
    pub fn inq(&self) -> u64 {
        match self.urgent {
            Some(u) if !self.inline && u.at >= self.copied && u.at < self.lo => u.at - self.copied,
            _ => self.lo - self.copied,
        }
    }

    /// SIOCATMARK.
    pub fn at_mark(&self) -> bool {
        self.urgent.is_some_and(|u| u.at == self.copied)
    }

    /// A call that receives `len` bytes, of which `got` were received before: what comes of it, and
    /// up to where it has looked. (`self` is taken for certain.)
    pub fn receive(&self, len: u64, flags: Flags, got: u64) -> (Outcome, u64) {
        if flags.has(Flags::OOB) {
            return (self.receive_urgent(len), self.copied);
        }
        let target = if flags.has(Flags::WAITALL) { len.max(1) } else { 1 };
        let mut ranges: Vec<(u64, u64)> = vec![];
        let (mut at, mut left) = (self.copied, len - got);
        let mut urgent = self.urgent;
        loop {
            let have = got + bytes(&ranges);
            if urgent.is_some_and(|u| u.at == at) && have > 0 {
                break;
            }
            if at < self.lo {
                let mut used = left.min(self.lo - at);
                let mut skipped = 0;
                if let Some(u) = urgent.filter(|u| u.at >= at && u.at - at < used) {
                    if u.at > at {
                        used = u.at - at;
                    } else if !self.inline {
                        skipped = 1;
                        used = left.min(self.lo - at - 1);
                    }
                }
                if used > 0 {
                    ranges.push((at + skipped, at + skipped + used));
                }
                at += skipped + used;
                left -= used;
                if !flags.has(Flags::PEEK) && urgent.is_some_and(|u| at > u.at) {
                    urgent = None;
                }
                if left == 0 {
                    break;
                }
                continue;
            }
            if have >= target || self.done {
                break;
            }
            let over = self.error != 0 || self.state == State::Closed || self.shut_rd;
            if have > 0 && over {
                break;
            }
            if have == 0 && self.error != 0 {
                return (Outcome::Fails(self.error), at);
            }
            if have == 0 && self.shut_rd {
                return (Outcome::End, at);
            }
            return (Outcome::Waits(ranges), at);
        }
        let nothing = ranges.is_empty() && got == 0;
        (if nothing { Outcome::End } else { Outcome::Got(ranges) }, at)
    }

    /// As [`receive`](Self::receive), of a call that moves what there is into a pipe. It passes no
    /// urgent byte, whether that was received or is part of the stream, and does not wait at one.
    pub fn splice(&self, len: u64) -> (Outcome, u64) {
        let follows = |u: &Urgent| u.at >= self.copied && u.at < self.lo;
        match self.urgent.filter(follows) {
            Some(u) if u.at == self.copied => {
                let outcome = match self.error {
                    _ if self.done => Outcome::End,
                    0 if self.nonblocking && !self.shut_rd => Outcome::Waits(vec![]),
                    0 => Outcome::End,
                    error => Outcome::Fails(error),
                };
                (outcome, self.copied)
            }
            Some(u) => self.at(u.at).receive(len, Flags::default(), 0),
            None => self.receive(len, Flags::default(), 0),
        }
    }

    fn receive_urgent(&self, len: u64) -> Outcome {
        match self.urgent {
            _ if self.inline => Outcome::Fails(libc::EINVAL),
            None | Some(Urgent { read: true, .. }) => Outcome::Fails(libc::EINVAL),
            _ if self.state == State::Closed && !self.done => Outcome::Fails(libc::ENOTCONN),
            Some(_) if len == 0 => Outcome::Got(vec![]),
            Some(u) => Outcome::Got(vec![(u.at, u.at + 1)]),
        }
    }

    /// All before `to` was received.
    pub fn takes(&mut self, to: u64) {
        self.copied = to;
        self.lo = self.lo.max(to);
        if self.urgent.is_some_and(|u| to > u.at) {
            self.urgent = None;
        }
    }
}

/// Both ends.
pub type Pair = [End; 2];

/// The mask of poll for an end: the bits that it must have, and those that it may.
pub fn mask(pair: &Pair, side: Side) -> (Events, Events) {
    let (now, later) = (pair[side].mask(), pair[side].flushed().mask());
    let (mut must, mut may) = (now & later, now | later);
    let unread = if pair[1 - side].is_open() { pair[1 - side].unread() } else { 0 };
    if pair[side].shut_wr || unread <= ROOMY {
        must |= Events::OUT;
    }
    may |= Events::OUT;
    // Bytes that a reset has overtaken.
    if pair[side].cut {
        may |= Events::IN;
    }
    (must, may)
}

/// There is room for sure: sets by edge have told of it.
pub fn is_roomy(pair: &Pair, side: Side) -> bool {
    pair[1 - side].unread() <= ROOMY
}

/// `n` bytes were sent. They arrive later: [`arrives`].
pub fn sent(pair: &mut Pair, side: Side, n: u64) {
    let other = &mut pair[1 - side];
    other.hi += n;
    if n > 0 && resets_for_data(pair, side) {
        pair[1 - side].is_reset();
        pair[side].is_reset();
    }
}

/// Bytes that are sent there lead to a reset.
pub fn resets_for_data(pair: &Pair, side: Side) -> bool {
    let other = &pair[1 - side];
    !other.is_open() || other.state == State::Ended && other.shut_rd
}

/// All that was sent to this end has arrived.
pub fn arrives(pair: &mut Pair, side: Side) {
    pair[side] = pair[side].flushed();
    pair[1 - side].holds = false;
    let both = [0, 1].iter().all(|&s| !pair[s].is_open() || pair[s].shut_wr && pair[s].done);
    // The last acknowledgement has come.
    if pair[side].state == State::Closed && both && !pair[1 - side].fin {
        pair[1 - side].is_over();
    }
}

/// A FIN is sent.
fn ends(pair: &mut Pair, side: Side) {
    let other = &mut pair[1 - side];
    other.fin = other.is_open() && other.state != State::Closed;
    let answers = !other.is_open();
    let end = &mut pair[side];
    end.shut_wr = true;
    match end.state {
        State::Open => end.state = State::Ended,
        // The other side's kernel acknowledges at once.
        State::CloseWait if answers => end.is_over(),
        _ => {}
    }
}

/// `shutdown`: what it returns.
pub fn shutdown(pair: &mut Pair, side: Side, how: How) -> i32 {
    let end = &mut pair[side];
    let is_closed = end.state == State::Closed;
    if how != How::Wr {
        end.shut_rd = true;
    }
    if how != How::Rd {
        let first = !end.shut_wr;
        end.shut_wr = true;
        if first && !is_closed {
            ends(pair, side);
        }
    }
    if is_closed { libc::ENOTCONN } else { 0 }
}

/// The last descriptor is closed.
pub fn close(pair: &mut Pair, side: Side) {
    let end = pair[side];
    if end.state == State::Closed {
        return;
    }
    if end.linger || end.lo > end.copied {
        pair[side].is_over();
        pair[1 - side].is_reset();
    } else if !end.shut_wr {
        ends(pair, side);
    }
}

/// Whether it is known what a close would do.
pub fn is_close_known(pair: &Pair, side: Side) -> bool {
    let end = &pair[side];
    end.state == State::Closed || end.linger || end.lo > end.copied || end.lo == end.hi
}

/// A call that sends fails like this now, and what is left of the error.
pub fn send_error(end: &End) -> Option<i32> {
    let open = matches!(end.state, State::Open | State::CloseWait) && !end.shut_wr;
    (!open).then_some(if end.error != 0 { end.error } else { libc::EPIPE })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> Pair {
        [End { refs: 1, ..End::default() }; 2]
    }

    fn send(pair: &mut Pair, side: Side, n: u64) {
        sent(pair, side, n);
        arrives(pair, 1 - side);
    }

    #[test]
    fn an_end_that_closes_with_unread_bytes_resets_and_what_it_sent_before_is_received() {
        let mut p = pair();
        send(&mut p, 0, 10);
        send(&mut p, 1, 5);
        p[1].refs = 0;
        close(&mut p, 1);
        let none = Flags::default();
        assert_eq!(p[0].receive(100, none, 0).0, Outcome::Got(vec![(0, 5)]));
        p[0].takes(5);
        assert_eq!(p[0].receive(100, none, 0).0, Outcome::Fails(libc::ECONNRESET));
        p[0].error = 0;
        assert_eq!(p[0].receive(100, none, 0).0, Outcome::End);
        assert_eq!(send_error(&p[0]), Some(libc::EPIPE));
    }

    #[test]
    fn bytes_to_somebody_who_has_closed_are_answered_by_a_reset_that_says_epipe() {
        let mut p = pair();
        p[1].refs = 0;
        close(&mut p, 1);
        arrives(&mut p, 0);
        assert_eq!(p[0].state, State::CloseWait);
        sent(&mut p, 0, 1);
        assert_eq!((p[0].error, p[0].state), (libc::EPIPE, State::Closed));
        assert_eq!(p[0].receive(1, Flags::default(), 0).0, Outcome::End);
        assert!(mask(&p, 0).0.has(Events::HUP | Events::ERR | Events::RDHUP));
    }

    #[test]
    fn an_urgent_byte_is_left_out_and_ends_a_call() {
        let mut p = pair();
        send(&mut p, 0, 10);
        p[1].urgent = Some(Urgent { at: 4, read: false });
        let none = Flags::default();
        assert_eq!((p[1].inq(), p[1].at_mark()), (4, false));
        assert_eq!(p[1].receive(100, none, 0).0, Outcome::Got(vec![(0, 4)]));
        assert_eq!(p[1].receive(1, Flags::OOB, 0).0, Outcome::Got(vec![(4, 5)]));
        p[1].takes(4);
        assert!(p[1].at_mark());
        assert_eq!(p[1].receive(3, none, 0).0, Outcome::Got(vec![(5, 8)]));
    }

    #[test]
    fn a_splice_ends_at_an_urgent_byte() {
        let mut p = pair();
        send(&mut p, 0, 10);
        for (inline, read) in [(false, false), (false, true), (true, false)] {
            let mut end = End { inline, urgent: Some(Urgent { at: 4, read }), ..p[1] };
            assert_eq!(end.splice(100), (Outcome::Got(vec![(0, 4)]), 4));
            end.takes(4);
            assert_eq!(end.splice(100), (Outcome::End, 4));
            end.nonblocking = true;
            assert_eq!(end.splice(100), (Outcome::Waits(vec![]), 4));
            end.takes(5);
            assert_eq!(end.splice(100), (Outcome::Got(vec![(5, 10)]), 10));
        }
    }

    #[test]
    fn both_have_ended_their_streams() {
        let mut p = pair();
        assert_eq!(shutdown(&mut p, 0, How::Wr), 0);
        arrives(&mut p, 1);
        assert_eq!((p[0].state, p[1].state), (State::Ended, State::CloseWait));
        assert_eq!(shutdown(&mut p, 1, How::Wr), 0);
        arrives(&mut p, 0);
        assert_eq!((p[0].state, p[1].state), (State::Closed, State::Closed));
        assert_eq!(shutdown(&mut p, 0, How::Rd), libc::ENOTCONN);
    }

    #[test]
    fn bytes_that_may_have_arrived_may_be_received() {
        let mut p = pair();
        sent(&mut p, 0, 10);
        assert!(p[1].is_loose());
        assert!(matches!(p[1].receive(5, Flags::default(), 0).0, Outcome::Waits(_)));
        assert_eq!(p[1].flushed().receive(5, Flags::default(), 0).0, Outcome::Got(vec![(0, 5)]));
        let (must, may) = mask(&p, 1);
        assert!(!must.has(Events::IN) && may.has(Events::IN));
    }
}
