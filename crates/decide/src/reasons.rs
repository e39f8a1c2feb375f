//! Why a copy is not elided, and why memory is not moved: what stood in the way, as a value.

macro_rules! reasons {
    ($( $(#[doc = $doc:literal])* $name:ident $text:literal )*) => {
        /// Why a copy was not elided.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason { $( $(#[doc = $doc])* $name, )* }

        /// All of them, their names, and what they mean.
        pub const REASONS: &[(Reason, &str, &str)] =
            &[ $( (Reason::$name, $text, concat!($($doc),*)), )* ];
    };
}

reasons! {
    /// The policy leaves the call site alone for a while.
    Resting "resting"
    /// Shorter than the threshold.
    TooSmall "too_small"
    /// Neither input nor a copy of it.
    NotInput "not_input"
    /// Too many pieces for one plan; its halves are tried, and counted, by themselves.
    Fragmented "fragmented"
    /// Source and destination overlap.
    Overlap "overlap"
    /// One side stays in memory: resident in pieces too short to move, or its mapping is changing.
    Resident "resident"
    /// The source is freed memory.
    Freed "freed"
    /// No room for an extent.
    ExhaustedExtents "exhausted_extents"
    /// The cap on registered ranges.
    ExhaustedMappings "exhausted_mappings"
    /// The cap on views.
    ExhaustedViews "exhausted_views"
    /// No memory for the books.
    ExhaustedBooks "exhausted_books"
    /// The kernel refused: pinned, shared after fork, or of another userfaultfd.
    RefusedBusy "refused_busy"
    /// The kernel refused: contended.
    RefusedAgain "refused_again"
    /// The kernel refused: no memory, or too many mappings.
    RefusedNoMemory "refused_no_memory"
    /// The kernel refused: not private anonymous memory, or locked.
    RefusedUnsuitable "refused_unsuitable"
    /// The kernel refused otherwise.
    RefusedOther "refused_other"
}

/// Why memory was not registered, or not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel: pinned by a device, shared after fork, or of another userfaultfd (EBUSY).
    Busy,
    /// The kernel: contended (EAGAIN).
    Again,
    /// The kernel: no memory, or too many mappings (ENOMEM).
    NoMemory,
    /// The kernel: a sandbox forbids the call (EPERM, EACCES, ENOSYS).
    Permission,
    /// The kernel: not private anonymous memory, or locked (EINVAL and its kin).
    Unsuitable,
    /// The kernel, otherwise.
    Other,
    /// The kernel was not asked: the memory has to stay where it is, or its mapping is changing.
    Stays,
}

impl Refusal {
    /// All of them, each at its own number.
    pub const ALL: [Self; 7] = [
        Self::Busy,
        Self::Again,
        Self::NoMemory,
        Self::Permission,
        Self::Unsuitable,
        Self::Other,
        Self::Stays,
    ];
}

impl From<Refusal> for Reason {
    fn from(why: Refusal) -> Self {
        match why {
            Refusal::Busy => Self::RefusedBusy,
            Refusal::Again => Self::RefusedAgain,
            Refusal::NoMemory => Self::RefusedNoMemory,
            Refusal::Unsuitable => Self::RefusedUnsuitable,
            Refusal::Permission | Refusal::Other => Self::RefusedOther,
            Refusal::Stays => Self::Resident,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_refusals_stand_at_their_own_numbers() {
        assert!(REASONS.iter().enumerate().all(|(i, (r, ..))| *r as usize == i));
        assert!(Refusal::ALL.iter().enumerate().all(|(i, r)| *r as usize == i));
    }
}
