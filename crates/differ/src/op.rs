//! The operations. Each means something whatever came before it: one on a descriptor that is not
//! there, or that a thread uses which waits, does nothing. So any part of a script is a script.

use core::fmt;
use core::str::FromStr;
use uncopy_torture::text::UnknownWord;
use uncopy_torture::{operations, words};

/// Number of a descriptor within its process: the first ones are the ends of the script's
/// connections.
pub type Handle = usize;

/// Descriptors that a process has at most.
pub const HANDLES: usize = 8;
/// Epoll sets that a process has at most.
pub const SETS: usize = 3;
/// No descriptor, or no set.
pub const NONE: usize = 9;

words! {
    /// The call that sends.
    SendBy {
        /// `write`.
        Write = "write",
        /// `writev`.
        Writev = "writev",
        /// `send`.
        Send = "send",
        /// `sendto`.
        Sendto = "sendto",
        /// `sendmsg`.
        Sendmsg = "sendmsg",
        /// `sendmmsg`, of two messages.
        Sendmmsg = "sendmmsg",
        /// `sendfile` from a file in memory.
        Sendfile = "sendfile",
        /// `splice` from a pipe.
        Splice = "splice",
    }
    /// The call that receives.
    RecvBy {
        /// `read`.
        Read = "read",
        /// `readv`.
        Readv = "readv",
        /// `recv`.
        Recv = "recv",
        /// `recvfrom`.
        Recvfrom = "recvfrom",
        /// `recvmsg`.
        Recvmsg = "recvmsg",
        /// `recvmmsg` of one message.
        Recvmmsg = "recvmmsg",
        /// `splice` into a pipe.
        Splice = "splice",
    }
    /// `shutdown`.
    How {
        /// SHUT_RD.
        Rd = "rd",
        /// SHUT_WR.
        Wr = "wr",
        /// SHUT_RDWR.
        Rdwr = "rdwr",
    }
    /// How a descriptor is closed.
    CloseBy {
        /// `close`.
        Close = "close",
        /// `close_range` of this number.
        Range = "close_range",
        /// `dup2` of another file onto its number.
        Dup2 = "dup2",
    }
    /// How a descriptor is duplicated.
    DupBy {
        /// `dup`.
        Dup = "dup",
        /// `dup2` onto a number that is free.
        Dup2 = "dup2",
        /// `dup3` with O_CLOEXEC.
        Dup3 = "dup3",
        /// F_DUPFD.
        Fcntl = "fcntl",
        /// F_DUPFD_CLOEXEC.
        Cloexec = "cloexec",
    }
    /// How O_NONBLOCK is set.
    NonblockBy {
        /// F_SETFL.
        Fcntl = "fcntl",
        /// FIONBIO.
        Ioctl = "ioctl",
    }
    /// An option.
    Opt {
        /// TCP_NODELAY.
        Nodelay = "nodelay",
        /// TCP_CORK.
        Cork = "cork",
        /// SO_LINGER with a time of 0: close resets.
        Linger = "linger0",
        /// SO_OOBINLINE.
        Inline = "oobinline",
        /// SO_RCVTIMEO of 20 ms.
        Rcvtimeo = "rcvtimeo",
        /// SO_KEEPALIVE.
        Keepalive = "keepalive",
    }
    /// The question that is asked.
    Ask {
        /// SO_ERROR.
        Error = "error",
        /// FIONREAD.
        Unread = "unread",
        /// SIOCATMARK.
        Mark = "mark",
        /// `getpeername`.
        Peer = "peer",
        /// `getsockname`.
        Name = "name",
        /// SO_TYPE and SO_PROTOCOL.
        Kind = "kind",
    }
    /// The call that waits for descriptors.
    PollBy {
        /// `poll`.
        Poll = "poll",
        /// `ppoll`.
        Ppoll = "ppoll",
        /// `select`.
        Select = "select",
        /// `pselect`.
        Pselect = "pselect",
    }
    /// The call that waits for a set.
    WaitBy {
        /// `epoll_wait`.
        Wait = "epoll_wait",
        /// `epoll_pwait`.
        Pwait = "epoll_pwait",
        /// `epoll_pwait2`.
        Pwait2 = "epoll_pwait2",
    }
    /// `epoll_ctl`.
    Ctl {
        /// EPOLL_CTL_ADD.
        Add = "add",
        /// EPOLL_CTL_MOD.
        Mod = "mod",
        /// EPOLL_CTL_DEL.
        Del = "del",
    }
    /// How long a call waits.
    Timeout {
        /// Not at all.
        No = "no",
        /// 15 ms.
        Short = "short",
        /// The call waits for ever.
        Ever = "ever",
    }
    /// The actor that carries an operation out.
    Actor {
        /// The first process.
        A = "a",
        /// A thread of its.
        A1 = "a1",
        /// Another one.
        A2 = "a2",
        /// Its forked child.
        Ax = "ax",
        /// The second process.
        B = "b",
        /// A thread of its.
        B1 = "b1",
        /// Another one.
        B2 = "b2",
        /// Its forked child.
        Bx = "bx",
    }
}

impl Actor {
    /// Its number.
    pub fn index(self) -> usize {
        self as usize
    }

    /// 0: the first process, or its child; 1: the second.
    pub fn side(self) -> usize {
        self.index() / 4
    }

    /// The process: 0 and 1, or 2 and 3 for their children.
    pub fn process(self) -> usize {
        self.side() + if self.is_child() { 2 } else { 0 }
    }

    /// A forked child.
    pub fn is_child(self) -> bool {
        self.index() % 4 == 3
    }

    /// The thread with which its process has begun.
    pub fn is_first(self) -> bool {
        matches!(self.index() % 4, 0 | 3)
    }
}

macro_rules! masks {
    ($( $(#[$doc:meta])* $name:ident { $( $(#[$vdoc:meta])* $constant:ident = $text:literal: $bit:expr, )* } )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(pub u32);

        impl $name {
            $( $(#[$vdoc])* pub const $constant: Self = Self($bit); )*

            /// It has all of `other`.
            pub fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl core::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl core::ops::BitAnd for $name {
            type Output = Self;
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut left = self.0;
                let mut between = "";
                $( if left & $bit != 0 {
                    write!(f, "{between}{}", $text)?;
                    between = "+";
                    left &= !$bit;
                } )*
                if left != 0 {
                    write!(f, "{between}0x{left:x}")?;
                    between = "+";
                }
                if between.is_empty() { f.write_str("-") } else { Ok(()) }
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                let mut all = Self::default();
                for word in text.split('+').filter(|word| *word != "-") {
                    all |= match word { $( $text => Self($bit), )* _ => return Err(UnknownWord) };
                }
                Ok(all)
            }
        }
    )* };
}

masks! {
    /// Flags of calls that send or receive, as Linux has them.
    Flags {
        /// MSG_OOB.
        OOB = "oob": 1,
        /// MSG_PEEK.
        PEEK = "peek": 2,
        /// MSG_TRUNC.
        TRUNC = "trunc": 0x20,
        /// MSG_DONTWAIT.
        DONTWAIT = "dontwait": 0x40,
        /// MSG_WAITALL.
        WAITALL = "waitall": 0x100,
        /// MSG_NOSIGNAL.
        NOSIGNAL = "nosignal": 0x4000,
        /// MSG_MORE.
        MORE = "more": 0x8000,
    }
    /// Events, as epoll has them; poll has the same.
    Events {
        /// EPOLLIN.
        IN = "in": 1,
        /// EPOLLPRI.
        PRI = "pri": 2,
        /// EPOLLOUT.
        OUT = "out": 4,
        /// EPOLLERR.
        ERR = "err": 8,
        /// EPOLLHUP.
        HUP = "hup": 0x10,
        /// EPOLLRDHUP.
        RDHUP = "rdhup": 0x2000,
        /// EPOLLONESHOT.
        ONESHOT = "oneshot": 1 << 30,
        /// EPOLLET.
        EDGE = "edge": 1 << 31,
    }
}

operations! {
    /// Sends `len` bytes in so many pieces.
    Send = "send" { h: Handle, len: usize, by: SendBy, flags: Flags, pieces: usize, }
    /// Receives at most `len` bytes.
    Recv = "recv" { h: Handle, len: usize, by: RecvBy, flags: Flags, pieces: usize, }
    /// Sends `len` bytes, waiting (by poll, or by a set, where the socket does not) until all are
    /// taken, or, with `fill`, until there is no more room.
    Stream = "stream" { h: Handle, len: usize, chunk: usize, fill: bool, edge: bool, }
    /// Receives until all is received that was sent.
    Drain = "drain" { h: Handle, chunk: usize, by: RecvBy, }
    /// `shutdown`.
    Shut = "shut" { h: Handle, how: How, }
    /// Closes a descriptor.
    Close = "close" { h: Handle, by: CloseBy, }
    /// `to` becomes a duplicate.
    Dup = "dup" { h: Handle, to: Handle, by: DupBy, }
    /// `close_range` of all numbers above those that the program has.
    CloseFrom = "closefrom" { }
    /// Sets or clears O_NONBLOCK.
    Nonblock = "nonblock" { h: Handle, on: bool, by: NonblockBy, }
    /// `setsockopt`.
    Set = "opt" { h: Handle, what: Opt, on: bool, }
    /// Asks about a socket.
    Ask = "ask" { h: Handle, what: Ask, }
    /// Waits for one or two descriptors, or a set.
    Poll = "poll" { h: Handle, events: Events, also: Handle, others: Events, set: usize, by: PollBy, wait: Timeout, }
    /// A new epoll set.
    NewSet = "newset" { s: usize, }
    /// Closes it.
    EndSet = "endset" { s: usize, }
    /// `epoll_ctl` for a socket.
    Control = "ctl" { s: usize, h: Handle, how: Ctl, events: Events, }
    /// `epoll_ctl` for a set that is in another one.
    Nest = "nest" { s: usize, within: usize, how: Ctl, events: Events, }
    /// Waits for a set.
    Wait = "wait" { s: usize, max: usize, by: WaitBy, wait: Timeout, }
    /// `fork`.
    Fork = "fork" { }
    /// A child executes this program anew.
    Exec = "exec" { }
    /// A child ends.
    Exit = "exit" { }
    /// SIGKILL for the process of the actor.
    Kill = "kill" { }
    /// Sends the descriptor to the other process, whose `to` it becomes.
    Pass = "pass" { h: Handle, to: Handle, }
    /// A signal to the actor's thread, while it waits: with SA_RESTART or without.
    Signal = "signal" { restart: bool, }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_the_same_after_writing_and_reading_them() {
        let flags = Flags::PEEK | Flags::WAITALL;
        assert_eq!(flags.to_string(), "peek+waitall");
        assert_eq!("peek+waitall".parse(), Ok(flags));
        assert_eq!("-".parse(), Ok(Events::default()));
        assert_eq!(Events::default().to_string(), "-");
        assert!("peek+".parse::<Flags>().is_err());
    }

    #[test]
    fn each_seat_has_its_process() {
        let of = |actor: Actor| (actor.side(), actor.process(), actor.is_first());
        assert_eq!(of(Actor::A2), (0, 0, false));
        assert_eq!(of(Actor::Ax), (0, 2, true));
        assert_eq!(of(Actor::B), (1, 1, true));
        assert_eq!(of(Actor::Bx), (1, 3, true));
    }
}
