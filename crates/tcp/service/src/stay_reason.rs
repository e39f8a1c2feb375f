//! Why a connection is Linux's.

/// Why a connection, or one direction of it, is Linux's. docs/inside/tcp.md has them for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum StayReason {
    /// Its other end was not registered in time: its program is not under uncopy, or accepted it
    /// too late.
    PeerNotHere = 1,
    /// The socket that was registered is no connected TCP socket.
    NotConnected = 2,
    /// The program has as many connections, or as much memory, as one may.
    OverLimit = 3,
    /// The service could not make memory for it.
    NoMemory = 4,
    /// The service did not take the question (it has ended, or is behind).
    NoService = 5,
    /// The other end is on another host.
    Remote = 6,
    /// Its other end has not been registered yet.
    Waiting = 7,
    /// Direction: the receiver has not looked for bytes since both ends were registered.
    NotAwaited = 8,
    /// Direction: nothing was sent since both ends were registered and the receiver looks for
    /// bytes, or bytes are on their way by Linux.
    NotOffered = 9,
    /// Direction: the receiver asked for it, because it does what rings do not carry (exec, a
    /// descriptor that is sent on, io_uring).
    GivenBack = 10,
    /// Direction: the sender or the receiver has ended it.
    Ended = 11,
    /// Direction: the sender has left the ring: for urgent data, or because it does what rings do
    /// not carry.
    Left = 12,
    /// The program forked while it was asked about, or executed another one that has it.
    Forked = 13,
    /// The other end is another user's, and the service serves each user apart.
    OtherUser = 14,
    /// A filter is attached to the socket, its own or its listener's: the kernel alone heeds it.
    Filtered = 15,
    /// The program has set up io_uring: what it does with descriptors there nobody sees.
    IoUring = 16,
    /// The program has entered a sandbox, which might not forgive calls of ours.
    Sandbox = 17,
    /// The program uses it in a way that rings do not carry.
    Used = 18,
    /// The program has closed it, or ended, after too few calls for a ring to pay.
    Short = 19,
}

impl StayReason {
    /// All of them, by their number.
    pub const ALL: [Self; 19] = [
        Self::PeerNotHere,
        Self::NotConnected,
        Self::OverLimit,
        Self::NoMemory,
        Self::NoService,
        Self::Remote,
        Self::Waiting,
        Self::NotAwaited,
        Self::NotOffered,
        Self::GivenBack,
        Self::Ended,
        Self::Left,
        Self::Forked,
        Self::OtherUser,
        Self::Filtered,
        Self::IoUring,
        Self::Sandbox,
        Self::Used,
        Self::Short,
    ];

    /// Its short name, for tables, JSON and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PeerNotHere => "peer-not-here",
            Self::NotConnected => "not-connected",
            Self::OverLimit => "over-limit",
            Self::NoMemory => "no-memory",
            Self::NoService => "no-service",
            Self::Remote => "remote",
            Self::Waiting => "waiting",
            Self::NotAwaited => "not-awaited",
            Self::NotOffered => "not-offered",
            Self::GivenBack => "given-back",
            Self::Ended => "ended",
            Self::Left => "left",
            Self::Forked => "forked",
            Self::OtherUser => "other-user",
            Self::Filtered => "filtered",
            Self::IoUring => "io-uring",
            Self::Sandbox => "sandbox",
            Self::Used => "used",
            Self::Short => "short",
        }
    }

    /// The text on the screen.
    pub const fn text(self) -> &'static str {
        match self {
            Self::PeerNotHere => "the other end is not under uncopy",
            Self::NotConnected => "not a connected TCP socket",
            Self::OverLimit => "limit of the service reached",
            Self::NoMemory => "no memory for it, or no descriptors",
            Self::NoService => "no answer from the service",
            Self::Remote => "the other end is on another host, or in another network namespace",
            Self::Waiting => "the other end has not been shown yet",
            Self::NotAwaited => "the receiver has not looked for bytes yet",
            Self::NotOffered => "nothing was sent yet, or bytes are on their way by Linux",
            Self::GivenBack => "the receiver does what rings do not carry",
            Self::Ended => "this direction has ended",
            Self::Left => "the sender does what rings do not carry",
            Self::Forked => "shared with a forked process, or handed to an executed program",
            Self::OtherUser => "the other end is another user's",
            Self::Filtered => "a filter is attached to the socket",
            Self::IoUring => "the program uses io_uring",
            Self::Sandbox => "the program has entered a sandbox",
            Self::Used => "used as rings are not",
            Self::Short => "closed after too few calls for a ring to pay",
        }
    }

    /// The program has decided it by itself: a question to the service may still be under way.
    pub const fn is_programs_own(self) -> bool {
        matches!(self, Self::Forked | Self::IoUring | Self::Sandbox | Self::Used | Self::Filtered)
    }

    /// The reason of this number.
    pub fn of(word: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u64 == word)
    }
}
