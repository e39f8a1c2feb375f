//! Epoll sets: what a wait must tell and what it may.

use super::end::Side;
use super::{Because, Call, Mismatch, Said, World};
use crate::op::Events;

/// A member of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// An end of a connection, by this number.
    End {
        /// The connection.
        connection: usize,
        /// Its end.
        side: Side,
        /// The descriptor.
        number: i32,
    },
    /// A set of the same process.
    Set(usize),
}

impl Member {
    /// Whether it is this end: a connection, a side.
    fn is_of(self, end: (usize, Side)) -> bool {
        matches!(self, Self::End { connection, side, .. } if (connection, side) == end)
    }
}

/// A member and how it was added.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The member.
    pub member: Member,
    /// The events that are asked for.
    pub events: Events,
    /// The program's data.
    pub token: u64,
    /// EPOLLONESHOT has told once.
    pub rests: bool,
    /// By edge: something has happened since it was told,
    pub armed: bool,
    /// and of that this was told.
    pub said: Events,
    /// Its process has closed what it was added by, and another one still holds the end: Linux goes
    /// on telling of it, the library does not.
    pub stale: bool,
    /// So many waits on end have told of others and not of this one.
    pub waited: u32,
}

/// Where rings take turns with the kernel, all that is so is told within so many waits.
const TURNS: u32 = 16;

/// A set.
#[derive(Clone, Debug, Default)]
pub struct Set {
    /// Its descriptor.
    pub number: i32,
    /// The entries that are in it.
    pub entries: Vec<Entry>,
}

impl World {
    /// The events that an entry must tell and those that it may. Its whole mask is the third.
    pub(super) fn entry(&self, side: Side, entry: &Entry) -> (Events, Events, Events) {
        let asked = entry.events | Events::ERR | Events::HUP;
        let (must, may) = match entry.member {
            Member::End { connection, side, .. } => self.mask(connection, side),
            Member::Set(inner) => {
                let (must, may) = self.set_is_ready(side, inner);
                let is = |ready| if ready { Events::IN } else { Events::default() };
                (is(must), is(may || self.by_turns))
            }
        };
        let (must, may, none) = (must & asked, may & asked, Events::default());
        let edge = entry.events.has(Events::EDGE);
        match entry.rests {
            true => (none, none, none),
            false if entry.stale && self.by_turns => (none, may, none),
            // Whether an inner set has told anew is Linux's affair.
            false if edge && (!entry.armed || matches!(entry.member, Member::Set(_))) => {
                (none, may, must)
            }
            false if edge => (Events(must.0 & !entry.said.0), may, must),
            false => (must, may, must),
        }
    }

    /// A wait for the set must find something, or may.
    pub fn set_is_ready(&self, side: Side, set: usize) -> (bool, bool) {
        let none = Events::default();
        let Some(set) = &self.sets[side][set] else { return (false, false) };
        set.entries.iter().fold((false, false), |(must, may), entry| {
            let (more, perhaps, _) = self.entry(side, entry);
            (must || more != none, may || perhaps != none)
        })
    }

    /// The ends in a set, and in those that are in it.
    pub fn ends_of(&self, side: Side, set: usize) -> Vec<(usize, Side)> {
        let Some(Some(set)) = self.sets[side].get(set) else { return vec![] };
        let members = set.entries.iter().flat_map(|entry| match entry.member {
            Member::End { connection, side, .. } => vec![(connection, side)],
            Member::Set(inner) => self.ends_of(side, inner),
        });
        members.collect()
    }

    /// Something has happened to an end: sets by edge tell of it.
    pub(super) fn happens(&mut self, connection: usize, side: Side, what: Events) {
        let by_turns = self.by_turns;
        for entry in self.sets.iter_mut().flatten().flatten().flat_map(|set| &mut set.entries) {
            let is = entry.member.is_of((connection, side));
            let asked = entry.events | Events::ERR | Events::HUP;
            if is && (asked & what).0 != 0 {
                // (Linux tells again of all that is so.)
                entry.said.0 &= if by_turns { !what.0 } else { 0 };
                entry.armed = true;
            }
        }
    }

    /// A process has closed its last descriptor of an end, which others hold.
    pub(super) fn is_held_elsewhere(&mut self, process: usize, end: (usize, Side)) {
        let handles = self.processes[process].handles.iter().flatten();
        let has = handles.clone().any(|handle| (handle.connection, handle.side) == end);
        if has || process >= self.sets.len() {
            return;
        }
        let sets = self.sets[process].iter_mut().flatten();
        for entry in sets.flat_map(|set| &mut set.entries) {
            let is = entry.member.is_of(end);
            entry.stale |= is;
        }
    }

    /// An end is no more.
    pub(super) fn leaves_sets(&mut self, connection: usize, side: Side) {
        for set in self.sets.iter_mut().flatten().flatten() {
            set.entries.retain(|entry| !entry.member.is_of((connection, side)));
        }
    }

    /// A set by rings that was waited for has told of what was so `before`, and was taken since: by
    /// edge too, where it had told of that already (docs/inside/tcp-differences.md).
    pub fn told_before(&self, call: &Call, said: &Said, before: &Self) -> bool {
        let once = |entry: &Entry| entry.events.has(Events::ONESHOT);
        let knows = |set: &Set| !set.entries.iter().any(once);
        let is_known = |side: Side, set: usize| self.sets[side][set].as_ref().is_some_and(knows);
        self.by_turns
            && matches!(*call, Call::Wait { side, set, .. } if is_known(side, set))
            && before.clone().take(call, said, Because::Later).is_ok()
    }

    /// The events that a wait has told are judged, and noted. `late`: it waited while things
    /// happened.
    pub(super) fn told(
        &mut self,
        side: Side,
        set: usize,
        max: usize,
        told: &[(u64, Events)],
        late: bool,
    ) -> Result<bool, Mismatch> {
        let none = Events::default();
        if told.len() > max {
            return Err(mismatch!("{} events, where {max} were asked for", told.len()));
        }
        let Some(Set { entries, .. }) = self.sets[side][set].clone() else { return Ok(false) };
        let mut exact = !late;
        let mut wholes = vec![];
        for (i, &(token, events)) in told.iter().enumerate() {
            let Some(at) = entries.iter().position(|entry| entry.token == token) else {
                return Err(mismatch!(
                    "an event of something that is not in the set (token {token})"
                ));
            };
            if told[..i].iter().any(|other| other.0 == token) {
                return Err(mismatch!("token {token} is told of twice"));
            }
            let (must, may, whole) = self.entry(side, &entries[at]);
            wholes.push((token, whole));
            if events == none || !may.has(events) {
                return Err(mismatch!("token {token} says {events}, may say {may}"));
            }
            // (The next one tells the events that are lacking.)
            if !late && !events.has(whole) && !self.by_turns {
                return Err(mismatch!("token {token} says {events}, must say {whole}"));
            }
            exact &= must == may && (events.has(whole) || late);
        }
        for entry in entries.iter().filter(|entry| told.iter().all(|t| t.0 != entry.token)) {
            let (must, may, _) = self.entry(side, entry);
            let others_first = self.by_turns && !told.is_empty() && entry.waited < TURNS;
            if must != none && told.len() < max && !late && !others_first {
                return Err(mismatch!("token {} is not told of, must say {must}", entry.token));
            }
            exact &= may == none;
        }
        let left: Vec<bool> =
            entries.iter().map(|entry| self.entry(side, entry).0 != none).collect();
        let by_turns = self.by_turns;
        let Some(set) = &mut self.sets[side][set] else { return Ok(false) };
        for (entry, left) in set.entries.iter_mut().zip(left) {
            let now = told.iter().find(|t| t.0 == entry.token).map(|t| t.1);
            entry.waited = if left && now.is_none() { entry.waited + 1 } else { 0 };
            if let Some(events) = now {
                entry.said |= events;
                entry.armed = by_turns
                    && wholes
                        .iter()
                        .any(|&(token, whole)| token == entry.token && !entry.said.has(whole));
                entry.rests |= entry.events.has(Events::ONESHOT);
            } else if told.len() < max && !late && !(left && by_turns) {
                // It was looked at, and had nothing.
                entry.armed = false;
            }
        }
        Ok(exact)
    }
}
