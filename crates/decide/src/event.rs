//! Events that a controller is told, and questions that it is asked.

use crate::reasons::Reason;

/// An event that a call site's copies, sends or reads caused. The call site's number goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A copy was elided that does what the last one did.
    ElidedAgain {
        /// Bytes that were not moved.
        bytes: usize,
    },
    /// Any other copy was elided, wholly or in part.
    Elided {
        /// Bytes that were not moved.
        bytes: usize,
    },
    /// A copy was not elided.
    Missed(Reason),
    /// A copy was looked at in vain.
    Looked,
    /// A copy of what the site had elided was executed.
    CopiedOut {
        /// Bytes of it.
        bytes: usize,
    },
    /// The site's copies are not made by the processor: experiments do not concern it.
    NeverTried,
    /// An input call received into an extent.
    Received,
    /// Memory was freed in which the site had left views.
    Freed,
    /// An output was gathered from what the site elided.
    Gathered {
        /// Bytes that the kernel reads from extents.
        bytes: usize,
        /// Those of them that are hardly in the cache any more: the copy would have brought them
        /// there.
        cold: usize,
    },
    /// Bytes were sent by reference.
    Lent {
        /// How many.
        bytes: usize,
        /// How many pages.
        pages: usize,
    },
    /// Pages that the site had lent or adopted were dropped.
    Dropped {
        /// How many.
        pages: usize,
    },
    /// A range was registered.
    Registered,
    /// Pages were moved out, or in.
    Moved {
        /// System calls.
        calls: u64,
        /// Pages.
        pages: usize,
    },
    /// The kernel refused to move pages, or to register them.
    Refused,
    /// Memory that was unmapped because of the site is not tracked any more: a page-table call.
    Untracked {
        /// Pages that the kernel clears as they are touched.
        pages: usize,
    },
    /// Pages that the site had unmapped were materialized before anybody touched them: one call.
    Materialized {
        /// Pages.
        pages: usize,
    },
    /// Pages were populated by one call, before they are touched, where the site had unmapped
    /// others.
    Populated {
        /// Pages.
        pages: usize,
    },
    /// The program touched what the site had left unmapped: one fault.
    Fault {
        /// Pages that it filled.
        pages: usize,
    },
    /// The program uses memory again that was freed while unmapped because of the site: one fault.
    Reused,
    /// From now on faults are answered on the core that took them, or not.
    AnswersNear(bool),
    /// The program's large copies have come to so many bytes by now, whatever became of them.
    Copied {
        /// All of them together.
        total: u64,
    },
}

impl Event {
    /// How many pages it made ready for eliding, or ordinary again: once for each buffer, where
    /// nothing else becomes of it.
    pub(crate) fn prepared_pages(self) -> usize {
        match self {
            Self::Moved { pages, .. }
            | Self::Untracked { pages }
            | Self::Materialized { pages }
            | Self::Populated { pages } => pages,
            _ => 0,
        }
    }

    /// Whether each elided copy causes it, also where nothing is done to pages any more.
    pub(crate) fn is_detour(self) -> bool {
        matches!(self, Self::Received | Self::Freed | Self::Gathered { .. })
    }
}

/// An act that is possible for a call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Elide this copy, or receive this input by reference: so many bytes. Asked once for each.
    Elide(usize),
    /// Elide this copy of so many bytes, which does what the last one did.
    ElideAgain(usize),
    /// Send so many bytes by reference at all.
    ByReference {
        /// How many.
        bytes: usize,
    },
    /// Send these bytes by reference for the site. Asked once for each send.
    Lend(usize),
    /// Make ordinary what the site had unmapped.
    GiveBack,
}
