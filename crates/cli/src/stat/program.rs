//! The content of a statistics file, read.

use std::mem::offset_of;

use uncopy_counters::stats_page::{COMMAND, Header, LAYOUT, MAGIC, StatsPage};
use uncopy_counters::{NAMES, Snapshot};
use uncopy_decide::{
    CLASS_BITS, CREDIT, CREDIT_MAX, PAUSES, Pauses, REASONS, RECORDS, Record, UNTRIED,
};
use uncopy_measure::units::{grouped, rough_size};

/// A program under uncopy at one moment.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub command: String,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
    /// The work that was done.
    pub counters: Snapshot,
    /// Whether no site elides at present, whatever its account says.
    pub none_elides: bool,
    /// The work for each call site and size class.
    pub sites: Vec<Site>,
}

/// A call site and size class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The return address; 0: all that have no line of their own.
    pub caller: u64,
    /// Smallest size in its class, in bytes.
    pub class: u64,
    /// Copies elided, wholly or in part.
    pub elided: u64,
    /// Bytes that those did not move.
    pub elided_bytes: u64,
    /// Faults charged to it.
    pub faults: u64,
    /// Pages that those filled.
    pub touched_pages: u64,
    /// Credit with the policy, in ns.
    pub credit: i64,
    /// Copies that it was left alone for.
    pub rested: u64,
    /// Copies that it is still left alone for.
    pub pause_left: u64,
    /// Whether nothing is elided for it at present, whatever its account says.
    pub abstains: bool,
    /// Copies that were looked at and not elided, in the order of [`REASONS`].
    pub reasons: Vec<u64>,
    /// The number of the last one's reason.
    pub last: usize,
}

/// The policy's view of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Copies are elided.
    Elides,
    /// Copies are elided; it has less than half of the credit that sites begin with.
    Watched,
    /// No site elides, whatever its account says.
    Abstains,
    /// It is left alone.
    Rests,
    /// Nothing was elided so far.
    Copies,
}

impl Decision {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Elides => "elides",
            Self::Watched => "watched",
            Self::Abstains => "abstains",
            Self::Rests => "rests",
            Self::Copies => "copies",
        }
    }

    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Elides, Self::Watched, Self::Abstains, Self::Rests, Self::Copies];

    /// The meaning of the decision.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Elides => "Copies are left out.",
            Self::Watched => {
                "Left out too, with less than half of the credit that a call site begins with."
            }
            Self::Abstains => {
                "No call site leaves any out just now: the program takes less time so, or it is \
                 being found out."
            }
            Self::Rests => "Left alone for a while, because it cost more than it saved.",
            Self::Copies => "None could be left out so far.",
        }
    }
}

impl Site {
    /// Copies looked at and not elided.
    pub fn missed(&self) -> u64 {
        self.reasons.iter().sum()
    }

    /// Copies that the site made, as far as anybody counted.
    pub fn seen(&self) -> u64 {
        let [resting, ..] = self.reasons[..] else { return self.elided };
        // Resting copies of tracked data are looked at (and counted down), others only counted
        // down.
        let looked_at = self.elided.saturating_add(self.missed() - resting);
        looked_at.saturating_add(self.rested.max(resting))
    }

    /// The policy's view of it.
    pub fn decision(&self) -> Decision {
        let only_rested = self.missed() > 0 && self.reasons.first() == Some(&self.missed());
        // (The line of all others has no class.)
        let elides_else = self.class > 0 && (self.elided > 0 || self.pause_left > 0 || only_rested);
        if self.abstains && elides_else {
            Decision::Abstains
        } else if self.pause_left > 0 {
            Decision::Rests
        } else if self.elided == 0 {
            Decision::Copies
        } else if self.credit > CREDIT / 2 {
            Decision::Elides
        } else {
            Decision::Watched
        }
    }

    /// Why that is so, in one sentence.
    pub fn why(&self) -> String {
        let micros = |ns: i64| grouped(ns.max(0) as u64 / 1000);
        let (credit, most) = (micros(self.credit), micros(CREDIT_MAX));
        let done = format!(
            "eliding {} copies ({}) has cost {} faults",
            grouped(self.elided),
            rough_size(self.elided_bytes as f64),
            grouped(self.faults)
        );
        match self.decision() {
            Decision::Elides | Decision::Watched => {
                format!("{done}, and {credit} us of credit are left (at most {most})")
            }
            Decision::Rests => format!(
                "{done}, and its credit was used up: after {} copies more it has {credit} us to \
                 try again with",
                grouped(self.pause_left)
            ),
            Decision::Abstains => {
                format!(
                    "{done}; no site elides just now, whatever its account says ({credit} us of \
                     credit)"
                )
            }
            Decision::Copies => match self.main_reason() {
                Some(why) => format!(
                    "of {} copies none could be elided, mostly: {why}",
                    grouped(self.missed())
                ),
                None => "nothing was elided so far".to_owned(),
            },
        }
    }

    /// The reason that most of its copies were not elided for.
    pub fn main_reason(&self) -> Option<&'static str> {
        let most = self.reasons.iter().enumerate().max_by_key(|(_, n)| **n)?;
        (*most.1 > 0).then(|| REASONS[most.0].1)
    }

    /// The reason of the last one that was not.
    pub fn last_reason(&self) -> Option<&'static str> {
        (self.missed() > 0).then(|| REASONS.get(self.last).map(|r| r.1)).flatten()
    }
}

/// Why a file was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It is cut off.
    Short,
    /// It is something else.
    Magic,
    /// It is of another version.
    Layout,
}

struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn long(&self, at: usize) -> u64 {
        self.0[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    fn short(&self, at: usize) -> u64 {
        self.0[at..].first_chunk().map_or(0, |bytes| u64::from(u32::from_ne_bytes(*bytes)))
    }
}

impl Program {
    /// The routine that is chosen, and the measurement behind that, in one sentence.
    pub fn why(&self) -> String {
        let c = &self.counters;
        let experiments = match c.trials {
            0 if self.none_elides => {
                return "No call site elides: whether that pays is still to be \
                found out here."
                    .into();
            }
            0 => {
                return "Whether eliding pays was not tried out yet: each call site's account \
                decides."
                    .into();
            }
            1 if c.trials_won == 1 => "one experiment, which found a gain".to_owned(),
            1 => "one experiment, which found no gain".to_owned(),
            n => format!(
                "{} experiments, {} of which found a gain",
                grouped(n),
                grouped(c.trials_won)
            ),
        };
        let who = if self.none_elides {
            "No call site elides"
        } else {
            "Each call site's account decides"
        };
        let micros = |ns: u64| format!("{:.1}", ns as f64 / 1000.0);
        format!(
            "{who}, after {experiments}: in the last one each MB that the program copies took {} \
             us of processor time where sites elided, and {} where none did.",
            micros(c.eliding_mb_ns),
            micros(c.copying_mb_ns),
        )
    }

    /// The PID namespace, as far as there is a header, also of another version.
    pub fn namespace(bytes: &[u8]) -> Option<u64> {
        let words = Words(bytes);
        let ours =
            bytes.len() >= size_of::<Header>() && words.long(offset_of!(Header, magic)) == MAGIC;
        ours.then(|| words.long(offset_of!(Header, namespace)))
    }

    /// Reads a file's content.
    ///
    /// # Errors
    /// [`Bad`].
    pub fn read(bytes: &[u8]) -> Result<Self, Bad> {
        let words = Words(bytes);
        if bytes.len() < size_of::<Header>() {
            return Err(Bad::Short);
        }
        if words.long(offset_of!(Header, magic)) != MAGIC {
            return Err(Bad::Magic);
        }
        if words.long(offset_of!(Header, layout)) != LAYOUT {
            return Err(Bad::Layout);
        }
        if bytes.len() != size_of::<StatsPage>() {
            return Err(Bad::Short);
        }
        let name = &bytes[offset_of!(Header, command)..][..COMMAND];
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        let counters = offset_of!(StatsPage, counters);
        Ok(Self {
            pid: words.long(offset_of!(Header, pid)) as u32,
            command: String::from_utf8_lossy(name).into_owned(),
            start_time: words.long(offset_of!(Header, start_time)),
            counters: Snapshot::from_values(
                (0..NAMES.len()).map(|i| words.long(counters + i * size_of::<u64>())),
            ),
            none_elides: none_elides(&words),
            sites: (0..RECORDS).filter_map(|i| site(&words, i)).collect(),
        })
    }
}

fn none_elides(words: &Words) -> bool {
    words.short(offset_of!(StatsPage, pauses) + offset_of!(Pauses, none_elides)) != 0
}

fn site(words: &Words, number: usize) -> Option<Site> {
    let at = offset_of!(StatsPage, records) + number * size_of::<Record>();
    let long = |field: usize| words.long(at + field);
    let key = long(offset_of!(Record, key));
    let pause = words.short(at + offset_of!(Record, pause)) as usize;
    let tried = pause & UNTRIED as usize == 0;
    let left = offset_of!(StatsPage, pauses) + pause % PAUSES * size_of::<u32>();
    let paused = long(offset_of!(Record, paused));
    // (Sites that share a place count each other's down.)
    let pause_left = if key == 0 { 0 } else { words.short(left).min(paused) };
    let first = at + offset_of!(Record, reasons);
    let site = Site {
        caller: key >> CLASS_BITS,
        class: if key == 0 { 0 } else { 1 << (key & ((1 << CLASS_BITS) - 1)) },
        elided: long(offset_of!(Record, elided)),
        elided_bytes: long(offset_of!(Record, elided_bytes)),
        faults: long(offset_of!(Record, faults)),
        touched_pages: long(offset_of!(Record, touched_pages)),
        credit: long(offset_of!(Record, credit)).cast_signed(),
        rested: paused - pause_left,
        pause_left,
        abstains: tried && none_elides(words),
        reasons: (0..REASONS.len()).map(|i| words.short(first + i * size_of::<u32>())).collect(),
        last: words.short(at + offset_of!(Record, last)) as usize,
    };
    let anything = site.seen() > 0 || site.faults > 0 || site.pause_left > 0;
    anything.then_some(site)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::foreign_bytes::Damages;
    use crate::stat::view::View;
    use crate::stat::{json, prometheus, text};

    fn put(bytes: &mut [u8], at: usize, value: u64) {
        bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }

    fn file() -> Vec<u8> {
        let mut bytes = vec![0; size_of::<StatsPage>()];
        put(&mut bytes, offset_of!(Header, magic), MAGIC);
        put(&mut bytes, offset_of!(Header, layout), LAYOUT);
        put(&mut bytes, offset_of!(Header, pid), 4711);
        bytes[offset_of!(Header, command)..][..4].copy_from_slice(b"cat\0");
        bytes
    }

    #[test]
    fn a_written_file_is_read() {
        let mut bytes = file();
        put(&mut bytes, offset_of!(StatsPage, counters), 12);
        let at = offset_of!(StatsPage, records) + size_of::<Record>();
        put(&mut bytes, at + offset_of!(Record, key), 0x1234 << CLASS_BITS | 16);
        put(&mut bytes, at + offset_of!(Record, elided), 5);
        put(&mut bytes, at + offset_of!(Record, paused), 256);
        let pauses = offset_of!(StatsPage, pauses);
        bytes[pauses..pauses + 4].copy_from_slice(&56u32.to_ne_bytes());
        let program = Program::read(&bytes).unwrap();
        assert_eq!((program.pid, program.command.as_str()), (4711, "cat"));
        assert_eq!(program.counters.elided_copies, 12);
        let [site] = &program.sites[..] else { panic!("{:?}", program.sites) };
        assert_eq!((site.caller, site.class), (0x1234, 65536));
        assert_eq!((site.rested, site.pause_left, site.seen()), (200, 56, 205));
        assert_eq!(site.decision(), Decision::Rests);
    }

    #[test]
    fn while_no_site_elides_those_that_are_not_tried_have_their_own_accounts() {
        let mut bytes = file();
        let record = |number| offset_of!(StatsPage, records) + number * size_of::<Record>();
        let slot = |number: usize| (10 + number) as u32;
        for (number, flags) in [(1, 0), (2, UNTRIED)] {
            put(&mut bytes, record(number) + offset_of!(Record, key), 0x1234 << CLASS_BITS | 16);
            put(&mut bytes, record(number) + offset_of!(Record, paused), 256);
            let pause = record(number) + offset_of!(Record, pause);
            bytes[pause..pause + 4].copy_from_slice(&(slot(number) | flags).to_ne_bytes());
            let left = offset_of!(StatsPage, pauses) + slot(number) as usize * size_of::<u32>();
            bytes[left..left + 4].copy_from_slice(&56u32.to_ne_bytes());
        }
        let decisions = |bytes: &[u8]| -> Vec<Decision> {
            Program::read(bytes).unwrap().sites.iter().map(Site::decision).collect()
        };
        assert_eq!(decisions(&bytes), [Decision::Rests, Decision::Rests]);
        let none_elides = offset_of!(StatsPage, pauses) + offset_of!(Pauses, none_elides);
        bytes[none_elides] = 1;
        assert_eq!(decisions(&bytes), [Decision::Abstains, Decision::Rests]);
    }

    #[test]
    fn a_site_that_came_while_none_elides_abstains() {
        let mut bytes = file();
        let record = offset_of!(StatsPage, records) + size_of::<Record>();
        put(&mut bytes, record + offset_of!(Record, key), 0x1234 << CLASS_BITS | 16);
        let first = record + offset_of!(Record, reasons);
        bytes[first..first + 4].copy_from_slice(&5u32.to_ne_bytes());
        let decision = |bytes: &[u8]| Program::read(bytes).unwrap().sites[0].decision();
        assert_eq!(decision(&bytes), Decision::Copies);
        bytes[offset_of!(StatsPage, pauses) + offset_of!(Pauses, none_elides)] = 1;
        assert_eq!(decision(&bytes), Decision::Abstains);
    }

    /// See `foreign_bytes`.
    #[test]
    fn a_damaged_file_is_read_or_refused_and_shown() {
        let mut whole = file();
        let records = offset_of!(StatsPage, records);
        put(&mut whole, records + size_of::<Record>(), 0x1234 << CLASS_BITS | 16);
        // (From the records on, so that the end that is damaged often are the first of them.)
        bolero::check!().with_type::<Damages>().with_iterations(1000).for_each(|damages| {
            let first = records + 3 * size_of::<Record>();
            let mut damaged = damages.done_to(&whole[..first]);
            if damaged.len() == first {
                damaged.extend_from_slice(&whole[first..]);
            }
            let _ = Program::namespace(&damaged);
            let Ok(program) = Program::read(&damaged) else { return };
            let views = [View { program, seconds: 1.0, before: Snapshot::default() }];
            let mut symbols = HashMap::new();
            let _ = text::program(&views[0], &mut symbols) + &text::list(&views);
            let _ = json::lines(&views, &mut symbols) + &prometheus::text(&views, &mut symbols);
        });
    }

    #[test]
    fn other_files_are_told_apart() {
        let whole = file();
        assert_eq!(Program::read(b"short").unwrap_err(), Bad::Short);
        assert_eq!(Program::read(&whole[..whole.len() - 1]).unwrap_err(), Bad::Short);
        assert_eq!(Program::read(&vec![0; whole.len()]).unwrap_err(), Bad::Magic);
        let mut other = whole;
        put(&mut other, offset_of!(Header, layout), LAYOUT + 1);
        assert_eq!(Program::read(&other).unwrap_err(), Bad::Layout);
    }
}
