//! Which runs of text have to be decoded: those with calls and what is beside them (the *zone*),
//! and those that may say of the zone where it is entered. Most text does neither.
//!
//! Nothing is missed: what could lead into the zone is looked for at every byte, and a run that has
//! such bytes is decoded, which says whether it does. Jump tables end where the next one begins, so
//! text that may compute an address within one that leads into the zone is decoded, too.

use crate::bytes::first_bytes;
use crate::marks::Marks;
use crate::object::{Object, Segment};
use crate::runs::{bytes_of_a_call, possible_targets};
use crate::tables::entries;

/// See the module.
pub(crate) struct Needed<'a> {
    object: &'a Object<'a>,
    zone: Marks,
    /// Addresses outside of text that runs may compute, in order, each with the run's index.
    tables: Vec<(u64, usize)>,
}

/// How far behind a byte the 32 bits begin that say where a call, a jump, or an operand leads that
/// begins with it; 0: none does. (An operand begins with the byte that says how it is encoded.)
const FAR: [u8; 256] = {
    let mut all = [0; 256];
    (all[0xe8], all[0xe9], all[0x0f], all[0xc7]) = (1, 1, 2, 2);
    let mut operand = 0x05;
    while operand <= 0x3d {
        all[operand] = 1;
        operand += 8;
    }
    all
};

/// A short jump reaches less far.
const NEAR: u64 = 130;

/// The displaced instructions end before so many bytes behind the first of a call: the last one
/// begins within the five bytes of a jump, and has no more than 15.
const BEHIND: u64 = 20;

impl<'a> Needed<'a> {
    /// Of these runs, of which `firsts` are entered anyway; and which they are.
    pub fn new(object: &'a Object<'a>, runs: &[Segment<'_>], firsts: &Marks) -> (Self, Vec<bool>) {
        let mut needed = around_calls(object, runs);
        let mut zone = Marks::new(object);
        for (run, _) in runs.iter().zip(&needed).filter(|it| *it.1) {
            (run.at..run.end()).filter(|&at| !firsts.has(at)).for_each(|at| zone.set(at));
        }
        let mut all = Self { object, zone, tables: Vec::new() };
        let near = close(runs, &needed);
        for (i, run) in runs.iter().enumerate() {
            needed[i] = needed[i] || all.leads_there(run, i, near[i]);
        }
        all.tables.sort_unstable();
        let mut known = None;
        for &(table, i) in &all.tables {
            let leads = match known {
                Some((same, leads)) if same == table => leads,
                _ => all.last_into_zone(table, u64::MAX).is_some(),
            };
            known = Some((table, leads));
            needed[i] |= leads;
        }
        (all, needed)
    }

    /// Whether a run may have a jump, or an operand, that leads into the zone: which is `near` if
    /// short jumps reach it. Notes what the run may compute.
    fn leads_there(&mut self, run: &Segment<'_>, index: usize, near: bool) -> bool {
        let mut leads = false;
        if near {
            possible_targets(run, |at| leads |= self.zone.has(at));
        }
        for (i, &byte) in run.bytes.iter().enumerate() {
            let skip = FAR[usize::from(byte)];
            if skip == 0 {
                continue;
            }
            let skip = usize::from(skip);
            // (A conditional jump, or `xbegin`.)
            if skip == 2 && !matches!(run.bytes[i..], [0x0f, 0x80..=0x8f, ..] | [0xc7, 0xf8, ..]) {
                continue;
            }
            let Some(&[a, b, c, d]) = run.bytes.get(i + skip..i + skip + 4) else { continue };
            let by = i32::from_le_bytes([a, b, c, d]);
            let to = (run.at + (i + skip + 4) as u64).wrapping_add(by as u64);
            leads |= self.zone.has(to);
            if byte & 0xc7 != 0x05 {
                continue;
            }
            // (A value of so many bytes may follow.)
            leads |= [1, 2, 4].iter().any(|n| self.zone.has(to.wrapping_add(*n)));
            let is_lea = i > 0 && run.bytes[i - 1] == 0x8d;
            if is_lea && !self.object.is_text(to) {
                self.tables.push((to, index));
            }
        }
        leads
    }

    /// Where the last entry of a jump table stands that leads into the zone.
    fn last_into_zone(&self, table: u64, next: u64) -> Option<u64> {
        let mut last = None;
        entries(self.object, table, next, |at, to| {
            if self.zone.has(to) {
                last = Some(at);
            }
        });
        last
    }

    /// Runs that may compute an address within one of these tables, before an entry that leads into
    /// the zone.
    pub fn that_end_tables(&self, computed: &[u64]) -> Vec<usize> {
        let mut all = Vec::new();
        for (i, &table) in computed.iter().enumerate() {
            let next = computed.get(i + 1).copied().unwrap_or(u64::MAX);
            let Some(last) = self.last_into_zone(table, next) else { continue };
            let from = self.tables.partition_point(|it| it.0 <= table);
            let within = self.tables[from..].iter().take_while(|it| it.0 <= last);
            all.extend(within.map(|it| it.1));
        }
        all
    }
}

/// The runs from which a short jump may reach one of these.
fn close(runs: &[Segment<'_>], these: &[bool]) -> Vec<bool> {
    let mut all = vec![false; runs.len()];
    let mut end = 0;
    for (i, run) in runs.iter().enumerate() {
        all[i] = run.at < end + NEAR;
        end = if these[i] { run.end() } else { end };
    }
    let mut at = u64::MAX;
    for (i, run) in runs.iter().enumerate().rev() {
        all[i] |= run.end() + NEAR > at;
        at = if these[i] { run.at } else { at };
    }
    all
}

/// The runs that have bytes of a call, each with the one before it, and with what is close behind
/// the call.
fn around_calls(object: &Object<'_>, runs: &[Segment<'_>]) -> Vec<bool> {
    let mut all = vec![false; runs.len()];
    for (i, run) in runs.iter().enumerate() {
        let Some(mut call) = bytes_of_a_call(object, run) else { continue };
        all[i.saturating_sub(1)] = true;
        all[i] = true;
        while let Some(next) = first_bytes(&run.bytes[(call + 1 - run.at) as usize..]) {
            call += 1 + next as u64;
        }
        let close = runs[i..].iter().take_while(|it| it.at < call + BEHIND).count();
        all[i..i + close].fill(true);
    }
    all
}
