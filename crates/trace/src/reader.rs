//! Bytes to entries.

use crate::form::{self, EVENTS, Words};
use crate::head::{HEAD, Head};
use crate::start::{BadStart, Start};
use crate::words::{Known, get_plain};
use core::fmt;
use uncopy_decide::{Event, Operation, SiteId, Times};

/// Why something is no recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bad {
    /// Its first bytes are others.
    Head(&'static str),
    /// The settings in force when it began are cut off or no text.
    NoStart,
    /// It is not understood.
    Start(BadStart),
    /// It has fewer bytes of entries than it says.
    CutOff {
        /// It has so many.
        has: usize,
        /// It says so many.
        says: u64,
    },
    /// At this byte there is no entry.
    Entry(usize),
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(why) => f.write_str(why),
            Self::NoStart => f.write_str("its head is cut off or no text"),
            Self::Start(why) => why.fmt(f),
            Self::CutOff { has, says } => {
                write!(f, "it is cut off: {has} bytes of entries, not {says}")
            }
            Self::Entry(place) => write!(f, "what stands at byte {place} is no entry"),
        }
    }
}

impl core::error::Error for Bad {}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Time since the recording began: of the program's last operation.
    pub at: Times,
    /// The content of the entry.
    pub what: EntryKind,
}

/// The content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// The program did something.
    Did(Operation),
    /// The controller was told this.
    Told(SiteId, Event),
}

/// A whole recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The settings that were in force.
    pub start: Start,
    /// The events, in order.
    pub entries: Vec<Entry>,
    /// Whether more happened than there was room for.
    pub full: bool,
}

impl Trace {
    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// [`Bad`]: what is wrong with them, and where.
    pub fn read(bytes: &[u8]) -> Result<Self, Bad> {
        let head = Head::read(bytes).map_err(Bad::Head)?;
        let behind = &bytes[HEAD..];
        let text = behind.get(..head.text as usize);
        let text = text.and_then(|text| core::str::from_utf8(text).ok());
        let start = Start::read(text.ok_or(Bad::NoStart)?).map_err(Bad::Start)?;
        let behind = &behind[head.text as usize..];
        let used = usize::try_from(head.used).ok().filter(|used| *used <= behind.len());
        let used = used.ok_or(Bad::CutOff { has: behind.len(), says: head.used })?;
        let mut left = &behind[..used];
        let (mut known, mut at, mut entries) = (Known::new(), Times::default(), Vec::new());
        while !left.is_empty() {
            let place = bytes.len() - behind.len() + used - left.len();
            let what = entry(&mut left, &mut known, &mut at);
            let what = what.ok_or(Bad::Entry(place))?;
            entries.push(Entry { at, what });
        }
        Ok(Self { start, entries, full: head.full })
    }
}

fn entry(left: &mut &[u8], known: &mut Known, at: &mut Times) -> Option<EntryKind> {
    let (&kind, rest) = left.split_first()?;
    *left = rest;
    let mut count = form::count(kind)?;
    let mut site = 0;
    if kind < EVENTS {
        // (Some years at most.)
        let later = |time: u64, more: u64| time.checked_add(more).filter(|t| *t < 1 << 56);
        at.wall = later(at.wall, get_plain(left)?)?;
        at.cpu = later(at.cpu, get_plain(left)?)?;
    } else {
        site = SiteId::try_from(get_plain(left)?).ok()?;
        count -= 1;
    }
    let mut words = Words::new();
    for _ in 0..count {
        words.push(known.get(left)?);
    }
    if kind < EVENTS {
        form::operation(kind, &words).map(EntryKind::Did)
    } else {
        form::event(kind, &words).map(|event| EntryKind::Told(site, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::Writer;
    use uncopy_decide::{Costs, REASONS, Reason, Refusal};
    use uncopy_ranges::span::Span;

    fn start() -> Start {
        Start {
            command: "a\nb".to_owned(),
            controller: "accounts".to_owned(),
            threshold: 16384,
            backoff: true,
            extent_bytes: 1 << 30,
            ranges: 100,
            costs: Costs { fault: 7, ..Costs::REFERENCE },
        }
    }

    fn operations() -> Vec<Operation> {
        let (addr, len, call) = (0x7fff_dead_b000, 65536, 9);
        [
            Operation::Copy { to: addr, from: 0x1234, len, caller: usize::MAX, input: false },
            Operation::Copy { to: 0, from: addr, len, caller: 1 << 63, input: true },
            Operation::Receive { call, addr, len },
            Operation::Received { call, bytes: 1 },
            Operation::Send { call: u32::MAX, addr, len },
            Operation::Sent { call, bytes: 2 },
            Operation::Freed(Span::sized(addr, len)),
            Operation::Unmapped(Span::sized(addr, len)),
            Operation::Remapped { from: addr, to: 3, len },
            Operation::Untracked(Span::sized(addr, len)),
            Operation::MadeOrdinary(Span::sized(addr, len)),
            Operation::MadeResident(Span::sized(addr, len)),
            Operation::Touch { addr },
        ]
        .into_iter()
        .chain(Refusal::ALL.map(|why| Operation::Refused { span: Span::sized(addr, len), why }))
        .collect()
    }

    fn events() -> Vec<Event> {
        let (bytes, pages) = (12345, 16);
        let mut all = vec![
            Event::ElidedAgain { bytes },
            Event::Elided { bytes },
            Event::Looked,
            Event::CopiedOut { bytes },
            Event::NeverTried,
            Event::Received,
            Event::Freed,
            Event::Gathered { bytes, cold: 7 },
            Event::Lent { bytes, pages },
            Event::Dropped { pages },
            Event::Registered,
            Event::Moved { calls: 3, pages },
            Event::Refused,
            Event::Untracked { pages },
            Event::Materialized { pages },
            Event::Populated { pages },
            Event::Fault { pages },
            Event::Reused,
            Event::AnswersNear(true),
            Event::Copied { total: u64::MAX },
        ];
        all.extend(REASONS.iter().map(|(reason, ..)| Event::Missed(*reason)));
        all
    }

    fn file() -> (Vec<u8>, Vec<Entry>) {
        let (mut writer, mut bytes, mut entries) = (Writer::new(), Vec::new(), Vec::new());
        let mut at = Times::default();
        for (i, operation) in operations().into_iter().enumerate() {
            at = Times { cpu: at.cpu + i as u64, wall: at.wall + 1000 * i as u64 };
            bytes.extend(writer.did(at, operation));
            entries.push(Entry { at, what: EntryKind::Did(operation) });
        }
        for (site, event) in (0..=65_535).rev().zip(events()) {
            bytes.extend(writer.told(site, event));
            entries.push(Entry { at, what: EntryKind::Told(site, event) });
        }
        let text = start().to_string();
        let head = Head { text: text.len() as u32, used: bytes.len() as u64, full: true };
        ([&head.bytes()[..], text.as_bytes(), &bytes].concat(), entries)
    }

    #[test]
    fn a_written_recording_is_read_back() {
        let (bytes, entries) = file();
        let start = Start { command: "ab".to_owned(), ..start() };
        assert_eq!(Trace::read(&bytes), Ok(Trace { start, entries, full: true }));
    }

    #[test]
    fn a_refusal_of_an_older_version_has_no_reason() {
        let (span, why) = (Span::sized(0x1000, 0x3000), Refusal::Other);
        assert_eq!(form::operation(13, &[0x1000, 0x3000]), Some(Operation::Refused { span, why }));
        let (mut bytes, entries) = file();
        bytes[8] = 2;
        assert_eq!(Trace::read(&bytes).unwrap().entries, entries);
    }

    #[test]
    fn bytes_behind_the_entries_are_not_looked_at() {
        let (mut bytes, entries) = file();
        bytes.extend([0xff; 100]);
        assert_eq!(Trace::read(&bytes).unwrap().entries, entries);
    }

    #[test]
    fn a_file_that_is_no_recording_is_said_to_be_none_and_why() {
        let (bytes, _) = file();
        let said = |bytes: &[u8]| Trace::read(bytes).unwrap_err().to_string();
        assert_eq!(said(&bytes[..20]), "it is shorter than a recording's head");
        assert_eq!(said(&[0; 100]), "it is no recording of uncopy's");
        assert_eq!(said(&bytes[..40]), "its head is cut off or no text");
        assert!(said(&bytes[..bytes.len() - 1]).starts_with("it is cut off: "));
        let mut other = bytes.clone();
        other[8] = 9;
        assert_eq!(said(&other), "it was recorded by another version of uncopy");
        let mut last = bytes.clone();
        *last.last_mut().unwrap() = 0x81; // a number that goes on
        assert!(said(&last).ends_with("is no entry"));
        assert!(Reason::Resting as usize == 0, "so the last entry's word is one byte");
    }
}
