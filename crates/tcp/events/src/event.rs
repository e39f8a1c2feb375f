//! An event, and its connection.

/// A connection, or a listener, of one context. No two ever have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub u64);

impl Id {
    pub(crate) fn new(index: usize, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | index as u64)
    }

    pub(crate) fn index(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The kinds of an event: several at once, perhaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct What(pub u32);

impl What {
    /// A listener has accepted this connection.
    pub const ACCEPTED: Self = Self(1);
    /// It is connected.
    pub const CONNECTED: Self = Self(2);
    /// Bytes have come.
    pub const RECEIVED: Self = Self(4);
    /// There is room again, after a `send` that did not take everything.
    pub const ROOM: Self = Self(8);
    /// The other end sends no more. Told once.
    pub const ENDED: Self = Self(16);
    /// It cannot go on: [`Event::error`] says why. Told once.
    pub const FAILED: Self = Self(32);
    /// This listener could not accept a connection: [`Event::error`] says why.
    pub const REFUSED: Self = Self(64);

    /// It is a listener's: about connections that come.
    pub fn is_of_listener(self) -> bool {
        self.has(Self::ACCEPTED) || self.has(Self::REFUSED)
    }

    /// All of `other` is so.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// No more bytes will come.
    pub fn is_over(self) -> bool {
        self.has(Self::ENDED) || self.has(Self::FAILED)
    }
}

impl std::ops::BitOrAssign for What {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// An event. Of one connection there is at most one in a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The connection (or, where one could not be accepted, the listener).
    pub connection: Id,
    /// The value that the program gave it to be known by; of an accepted connection, its
    /// listener's.
    pub data: u64,
    /// The kinds of the event.
    pub what: What,
    /// Of what failed: an `errno`. Else 0.
    pub error: i32,
}
