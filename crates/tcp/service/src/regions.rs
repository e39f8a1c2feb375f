//! Which slots of which regions are whose. A region belongs to two programs. The service reads what
//! they write into it for one purpose: to learn which slots both have closed. It neither maps a
//! region nor believes it beyond that: a program that lies gives away a slot of its own.

use crate::ends::EndName;
use crate::matching::Registration;
use crate::owner::Owner;
use crate::protocol::StayReason;
use crate::share::Taken;
use std::os::fd::OwnedFd;
use std::time::SystemTime;
use uncopy_tcp_shared::layout::{HEADER, PAGE, SLOT, header_at, slot_at};
use uncopy_tcp_shared::notice::SLOTS;
use uncopy_tcp_shared::region;

/// A region and its two programs (side 0, side 1).
#[derive(Debug)]
pub struct PairRegion {
    /// Its number.
    pub id: u64,
    /// The memory.
    pub memory: OwnedFd,
    /// Its programs.
    pub programs: [u64; 2],
    /// The owners of the programs.
    pub owners: [Owner; 2],
    /// The shares that the memory's descriptor counts against.
    _taken: Vec<Taken>,
    /// Which of them still live.
    pub alive: [bool; 2],
    /// Which of them have its descriptor.
    pub sent: [bool; 2],
    /// The generation of each slot in use.
    slots: [u32; SLOTS],
    free: Vec<u8>,
    /// The connection that each slot in use is for.
    names: Vec<Option<Named>>,
}

/// A connection that has a slot.
#[derive(Clone, Copy, Debug)]
struct Named {
    /// The name by side 0.
    name: EndName,
    since: SystemTime,
    /// The tokens by which its programs have registered it.
    tokens: [u64; 2],
}

/// A slot that was given.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// The region's place in the list.
    pub region: usize,
    /// The slot.
    pub slot: usize,
    /// Its generation.
    pub generation: u32,
}

/// A program that is one side of a connection.
pub type Side = (u64, Owner);

/// Those of one user, or those between programs of several.
#[derive(Debug, Default)]
pub struct Regions {
    /// The list.
    pub held: Vec<PairRegion>,
    generation: u32,
    scan: usize,
}

/// Where in a header a side says that it has closed the slot.
const fn closed_at(side: usize) -> usize {
    HEADER - 128 + side * 64 + 4
}

impl PairRegion {
    /// Gives back what both sides have closed.
    fn scan(&mut self) {
        for slot in 0..SLOTS {
            if self.slots[slot] == 0 {
                continue;
            }
            if self.header(slot).is_some_and(|header| self.is_closed(slot, &header)) {
                self.clear(slot);
                self.slots[slot] = 0;
                self.names[slot] = None;
                self.free.push(slot as u8);
            }
        }
    }

    /// Both sides have closed it, or are gone, as they say in its header.
    pub fn is_closed(&self, slot: usize, header: &[u8; HEADER]) -> bool {
        (0..2).all(|side| {
            let word = &header[closed_at(side)..closed_at(side) + 4];
            !self.alive[side] || word == self.slots[slot].to_ne_bytes()
        })
    }

    /// The slot is as new, but for warm pages. Where the rings grew beyond their first page, the
    /// rest is given back.
    fn clear(&self, slot: usize) {
        let at = (slot_at(slot) + header_at()) as u64;
        let _ = rustix::io::pwrite(&self.memory, &[0; HEADER], at);
        if self.bytes() > ((SLOTS + 1) * PAGE) as u64 {
            let page = at / PAGE as u64 * PAGE as u64;
            let end = (slot_at(slot) + SLOT) as u64;
            for (from, to) in [(slot_at(slot) as u64, page), (page + PAGE as u64, end)] {
                let flags =
                    rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
                let _ = rustix::fs::fallocate(&self.memory, flags, from, to - from);
            }
        }
    }

    /// A side has not got the memory: it comes again with its next connection. The slot was this
    /// one's, and is closed there.
    pub fn is_missed(&mut self, side: usize, slot: usize, generation: u32) {
        self.sent[side] = false;
        if self.slots.get(slot).is_some_and(|own| *own == generation && generation != 0) {
            self.closes(side, slot);
        }
    }

    /// A side has closed a slot without having looked at it.
    fn closes(&self, side: usize, slot: usize) {
        let at = slot_at(slot) + header_at() + closed_at(side);
        let _ = rustix::io::pwrite(&self.memory, &self.slots[slot].to_ne_bytes(), at as u64);
    }

    /// Memory in use.
    pub fn bytes(&self) -> u64 {
        rustix::fs::fstat(&self.memory).map_or(0, |stat| stat.st_blocks as u64 * 512)
    }

    /// A slot that was given is this connection's.
    pub fn name(&mut self, slot: usize, name: EndName, tokens: [u64; 2], since: SystemTime) {
        self.names[slot] = Some(Named { name, since, tokens });
    }

    /// The connections: slot, generation, name, since when.
    pub fn named(&self) -> impl Iterator<Item = (usize, u32, EndName, SystemTime)> {
        self.names.iter().enumerate().filter_map(|(slot, name)| {
            let Named { name, since, .. } = (*name)?;
            Some((slot, self.slots[slot], name, since))
        })
    }

    /// The header of a slot, as both sides have written it.
    pub fn header(&self, slot: usize) -> Option<[u8; HEADER]> {
        let mut header = [0; HEADER];
        let at = (slot_at(slot) + header_at()) as u64;
        (rustix::io::pread(&self.memory, &mut header, at) == Ok(HEADER)).then_some(header)
    }

    /// Slots in use.
    pub fn used(&self) -> usize {
        SLOTS - self.free.len()
    }
}

impl Regions {
    /// A slot for a connection between two programs, of a region that they have: `a` will be the
    /// side that [`PairRegion::programs`] says.
    pub fn give(&mut self, a: u64, b: u64) -> Option<Given> {
        let of_both = |held: &PairRegion| {
            held.alive == [true; 2] && (held.programs == [a, b] || held.programs == [b, a])
        };
        let with_room = |list: &[PairRegion]| {
            list.iter().position(|held| of_both(held) && !held.free.is_empty())
        };
        let mut found = with_room(&self.held);
        if found.is_none() && !self.held.is_empty() {
            // One region for each question, in turn: closed slots are found again before long, and
            // no question takes long.
            let count = self.held.len();
            if let Some(i) =
                (1..=count).map(|i| (self.scan + i) % count).find(|&i| of_both(&self.held[i]))
            {
                self.scan = i;
                self.held[i].scan();
                found = with_room(&self.held);
            }
        }
        self.give_of(found?)
    }

    /// A slot of a new region, of this number. `taken`: what its memory's descriptor counts
    /// against.
    pub fn make(
        &mut self,
        id: u64,
        sides: [Side; 2],
        taken: Vec<Taken>,
    ) -> Result<Given, StayReason> {
        let memory = region::create().map_err(|_| StayReason::NoMemory)?;
        self.held.push(PairRegion {
            id,
            memory,
            programs: sides.map(|(program, _)| program),
            owners: sides.map(|(_, owner)| owner),
            _taken: taken,
            alive: [true; 2],
            sent: [false; 2],
            slots: [0; SLOTS],
            free: (0..=u8::MAX).rev().collect(),
            names: vec![None; SLOTS],
        });
        self.give_of(self.held.len() - 1).ok_or(StayReason::NoMemory)
    }

    fn give_of(&mut self, region: usize) -> Option<Given> {
        self.generation = self.generation.wrapping_add(1).max(1);
        let held = &mut self.held[region];
        let slot = held.free.pop()? as usize;
        held.slots[slot] = self.generation;
        Some(Given { region, slot, generation: self.generation })
    }

    /// A program has gone. Calls `left` with each other program and the region that it shared with
    /// it.
    pub fn forget(&mut self, program: u64, mut left: impl FnMut(u64, u64)) {
        for held in &mut self.held {
            for side in 0..2 {
                if held.programs[side] == program {
                    held.alive[side] = false;
                    let other = held.programs[1 - side];
                    if other != program && held.alive[1 - side] {
                        left(other, held.id);
                    }
                }
            }
        }
        self.held.retain(|held| held.alive[0] && held.alive[1]);
    }

    /// A program has closed what it has registered by this name, without having looked at its slot.
    /// False: it is none of these.
    pub fn take_back(&mut self, registration: Registration) -> bool {
        for held in &self.held {
            for side in (0..2).filter(|&side| held.programs[side] == registration.program) {
                let named =
                    |of: &Option<Named>| of.is_some_and(|n| n.tokens[side] == registration.token);
                if let Some(slot) = held.names.iter().position(named) {
                    held.closes(side, slot);
                    return true;
                }
            }
        }
        false
    }

    /// The region of this number, of which `program` is this side.
    pub fn of_side(&mut self, program: u64, region: u64, side: usize) -> Option<&mut PairRegion> {
        self.held.iter_mut().find(|held| held.id == region && held.programs[side] == program)
    }

    /// The program on the other side of a region, of which `program` is this side.
    pub fn other_side(&self, program: u64, region: u64, side: usize) -> Option<u64> {
        let of = |held: &&PairRegion| held.id == region && held.programs[side] == program;
        Some(self.held.iter().find(of)?.programs[1 - side])
    }

    /// Those of a program.
    pub fn of(&self, program: u64) -> impl Iterator<Item = &PairRegion> {
        self.held.iter().filter(move |held| held.programs.contains(&program))
    }

    /// Those of an owner.
    pub fn of_owner(&self, owner: Owner) -> impl Iterator<Item = &PairRegion> {
        self.held.iter().filter(move |held| held.owners.contains(&owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(held: &PairRegion, slot: usize, side: usize, generation: u32) {
        let at = (slot_at(slot) + header_at() + closed_at(side)) as u64;
        rustix::io::pwrite(&held.memory, &generation.to_ne_bytes(), at).unwrap();
    }

    #[test]
    fn slots_that_both_closed_are_given_again_and_others_are_not() {
        let mut regions = Regions::default();
        let mut last = 0;
        let mut give = |regions: &mut Regions, a: u64, b: u64| {
            regions.give(a, b).unwrap_or_else(|| {
                last += 1;
                let sides = [a, b].map(|program| (program, Owner::User(7)));
                regions.make(last, sides, vec![]).unwrap()
            })
        };
        let given: Vec<_> = (0..SLOTS).map(|_| give(&mut regions, 1, 2)).collect();
        assert_eq!(regions.held.len(), 1);
        close(&regions.held[0], 7, 0, given[7].generation);
        close(&regions.held[0], 9, 0, given[9].generation);
        close(&regions.held[0], 9, 1, given[9].generation);
        // Closed by somebody who had it before.
        close(&regions.held[0], 11, 0, given[11].generation);
        close(&regions.held[0], 11, 1, given[11].generation.wrapping_sub(1));
        let slot_of = |slot: usize| given.iter().position(|g| g.slot == slot).unwrap();
        assert_eq!(given[slot_of(9)].generation, given[9].generation);
        let again = give(&mut regions, 2, 1);
        assert_eq!((again.region, again.slot), (0, 9));
        assert_eq!(give(&mut regions, 1, 2).region, 1, "no other slot was free");
        assert_eq!(regions.of(1).map(PairRegion::used).sum::<usize>(), SLOTS + 1);
        assert_eq!(regions.of_owner(Owner::User(7)).count(), 2);
        assert_eq!(regions.of_owner(Owner::User(8)).count(), 0);
        let region = regions.held[0].id;
        assert_eq!(regions.other_side(1, region, 0), Some(2));
        assert_eq!(
            [(2, region, 0), (1, region, 1), (1, 99, 0)]
                .map(|(p, r, s)| regions.other_side(p, r, s)),
            [None; 3]
        );
        let mut left = vec![];
        regions.forget(1, |program, region| left.push((program, region)));
        assert_eq!(left, [(2, 1), (2, 2)]);
        assert!(regions.held.is_empty());
    }
}
