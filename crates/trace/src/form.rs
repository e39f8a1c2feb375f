//! Which words an entry consists of: a kind, and up to four numbers.

use arrayvec::ArrayVec;
use uncopy_decide::{Event, Operation, REASONS, Refusal};
use uncopy_ranges::span::Span;

/// Most words of an entry.
pub(crate) const WORDS: usize = 5;
pub(crate) type Words = ArrayVec<u64, WORDS>;

/// Kinds from here on are events.
pub(crate) const EVENTS: u8 = 64;

fn words<const N: usize>(of: [usize; N]) -> Words {
    of.into_iter().map(|w| w as u64).collect()
}

/// Kind and words of an operation.
pub(crate) fn of_operation(operation: Operation) -> (u8, Words) {
    match operation {
        Operation::Copy { to, from, len, caller, input } => {
            (u8::from(input), words([to, from, len, caller]))
        }
        Operation::Receive { call, addr, len } => (2, words([call as usize, addr, len])),
        Operation::Received { call, bytes } => (3, words([call as usize, bytes])),
        Operation::Send { call, addr, len } => (4, words([call as usize, addr, len])),
        Operation::Sent { call, bytes } => (5, words([call as usize, bytes])),
        Operation::Freed(span) => (6, words([span.start, span.len()])),
        Operation::Unmapped(span) => (7, words([span.start, span.len()])),
        Operation::Remapped { from, to, len } => (8, words([from, to, len])),
        Operation::Untracked(span) => (9, words([span.start, span.len()])),
        Operation::MadeOrdinary(span) => (10, words([span.start, span.len()])),
        Operation::MadeResident(span) => (11, words([span.start, span.len()])),
        Operation::Touch { addr } => (12, words([addr])),
        Operation::Refused { span, why } => (14, words([span.start, span.len(), why as usize])),
    }
}

/// How many words an operation or event of this kind has; `None`: there is no such kind.
pub(crate) fn count(kind: u8) -> Option<usize> {
    const OPERATIONS: [usize; 15] = [4, 4, 3, 2, 3, 2, 2, 2, 3, 2, 2, 2, 1, 2, 3];
    // (And the site.)
    const TOLD: [usize; 21] = [1, 1, 1, 0, 1, 0, 0, 0, 2, 2, 1, 0, 2, 0, 1, 1, 1, 1, 0, 1, 1];
    match kind {
        0..EVENTS => OPERATIONS.get(kind as usize).copied(),
        _ => TOLD.get((kind - EVENTS) as usize).map(|n| n + 1),
    }
}

/// Where programs have memory: below this.
const ADDRESSES: usize = 1 << 47;
/// Most bytes that one copy, input or output is about: no buffer is larger than what a program has.
const BYTES: usize = 1 << 36;

fn is_possible(operation: Operation) -> bool {
    let there = |addr: usize, len: usize| len <= ADDRESSES && addr <= ADDRESSES - len;
    match operation {
        Operation::Copy { to, from, len, .. } => len <= BYTES && there(to, len) && there(from, len),
        Operation::Remapped { from, to, len } => there(to, len) && there(from, len),
        Operation::Received { bytes, .. } | Operation::Sent { bytes, .. } => bytes <= BYTES,
        Operation::Touch { addr } => there(addr, 1),
        Operation::Receive { addr, len, .. } | Operation::Send { addr, len, .. } => {
            len <= BYTES && there(addr, len)
        }
        // (All of a program's memory may be meant.)
        Operation::Freed(span)
        | Operation::Unmapped(span)
        | Operation::Untracked(span)
        | Operation::MadeOrdinary(span)
        | Operation::MadeResident(span)
        | Operation::Refused { span, .. } => span.end <= ADDRESSES,
    }
}

/// The operation of this kind and these words, which are as many as [`count`] says; `None`: no
/// operation, or none that a program can do.
pub(crate) fn operation(kind: u8, words: &[u64]) -> Option<Operation> {
    let w = |i: usize| words[i] as usize;
    let call = || u32::try_from(words[0]).ok();
    let operation = match kind {
        0 | 1 => {
            Operation::Copy { to: w(0), from: w(1), len: w(2), caller: w(3), input: kind == 1 }
        }
        2 => Operation::Receive { call: call()?, addr: w(1), len: w(2) },
        3 => Operation::Received { call: call()?, bytes: w(1) },
        4 => Operation::Send { call: call()?, addr: w(1), len: w(2) },
        5 => Operation::Sent { call: call()?, bytes: w(1) },
        6 => Operation::Freed(Span::sized(w(0), w(1))),
        7 => Operation::Unmapped(Span::sized(w(0), w(1))),
        8 => Operation::Remapped { from: w(0), to: w(1), len: w(2) },
        9 => Operation::Untracked(Span::sized(w(0), w(1))),
        10 => Operation::MadeOrdinary(Span::sized(w(0), w(1))),
        11 => Operation::MadeResident(Span::sized(w(0), w(1))),
        12 => Operation::Touch { addr: w(0) },
        // (Version 2 does not say why.)
        13 => Operation::Refused { span: Span::sized(w(0), w(1)), why: Refusal::Other },
        14 => {
            let why = *Refusal::ALL.get(w(2))?;
            Operation::Refused { span: Span::sized(w(0), w(1)), why }
        }
        _ => return None,
    };
    is_possible(operation).then_some(operation)
}

/// Kind and words of an event, but for whom it is about.
pub(crate) fn of_event(event: Event) -> (u8, Words) {
    let (kind, words) = match event {
        Event::ElidedAgain { bytes } => (0, words([bytes])),
        Event::Elided { bytes } => (1, words([bytes])),
        Event::Missed(why) => (2, words([why as usize])),
        Event::Looked => (3, words([])),
        Event::CopiedOut { bytes } => (4, words([bytes])),
        Event::NeverTried => (5, words([])),
        Event::Received => (6, words([])),
        Event::Freed => (7, words([])),
        Event::Gathered { bytes, cold } => (8, words([bytes, cold])),
        Event::Lent { bytes, pages } => (9, words([bytes, pages])),
        Event::Dropped { pages } => (10, words([pages])),
        Event::Registered => (11, words([])),
        Event::Moved { calls, pages } => (12, words([calls as usize, pages])),
        Event::Refused => (13, words([])),
        Event::Untracked { pages } => (14, words([pages])),
        Event::Materialized { pages } => (15, words([pages])),
        Event::Populated { pages } => (16, words([pages])),
        Event::Fault { pages } => (17, words([pages])),
        Event::Reused => (18, words([])),
        Event::AnswersNear(near) => (19, words([usize::from(near)])),
        Event::Copied { total } => (20, words([total as usize])),
    };
    (EVENTS + kind, words)
}

/// The event of this kind and these words.
pub(crate) fn event(kind: u8, words: &[u64]) -> Option<Event> {
    let w = |i: usize| words[i] as usize;
    Some(match kind.checked_sub(EVENTS)? {
        0 => Event::ElidedAgain { bytes: w(0) },
        1 => Event::Elided { bytes: w(0) },
        2 => Event::Missed(REASONS.get(w(0))?.0),
        3 => Event::Looked,
        4 => Event::CopiedOut { bytes: w(0) },
        5 => Event::NeverTried,
        6 => Event::Received,
        7 => Event::Freed,
        8 => Event::Gathered { bytes: w(0), cold: w(1) },
        9 => Event::Lent { bytes: w(0), pages: w(1) },
        10 => Event::Dropped { pages: w(0) },
        11 => Event::Registered,
        12 => Event::Moved { calls: words[0], pages: w(1) },
        13 => Event::Refused,
        14 => Event::Untracked { pages: w(0) },
        15 => Event::Materialized { pages: w(0) },
        16 => Event::Populated { pages: w(0) },
        17 => Event::Fault { pages: w(0) },
        18 => Event::Reused,
        19 => Event::AnswersNear(w(0) != 0),
        20 => Event::Copied { total: words[0] },
        _ => return None,
    })
}
