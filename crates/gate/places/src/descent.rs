//! Text of which it is not known where instructions begin: tables between functions, and functions
//! that the unwinder's tables do not have. A system call there counts if it can be come to: from an
//! address that a jump, a call or a computed address somewhere in the text names, that stands in
//! data, or that others call by its symbol; by instructions in order, and direct jumps.
//!
//! Instructions that name such an address are looked for at every byte, so more are found than
//! there are.

use crate::Trouble;
use crate::bytes::first_bytes;
use crate::frames;
use crate::object::{Object, Segment};
use crate::runs::{bytes_of_a_call, decode, is_call, possible_targets, runs};
use core::ops::Range;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use std::collections::HashSet;

/// The first system call in the object's text, of whatever kind.
///
/// # Errors
/// [`Trouble::NoFrames`] where bytes of a system call are in the text.
pub fn first_call(object: &Object<'_>) -> Result<Option<u64>, Trouble> {
    if object.text().all(|it| first_bytes(it.bytes).is_none()) {
        return Ok(None);
    }
    let mut room = Vec::new();
    let mut unsure: Vec<Segment<'_>> = Vec::new();
    for run in runs(object, &frames::functions(object)?) {
        if bytes_of_a_call(object, &run).is_none() {
            continue;
        }
        if !decode(&run, &mut room) {
            unsure.push(run);
        } else if let Some(it) = room.iter().find(|it| is_call(it)) {
            return Ok(Some(it.ip()));
        }
    }
    unsure.sort_unstable_by_key(|it| it.at);
    Ok(if unsure.is_empty() { None } else { come_to(object, &unsure) })
}

/// A system call that is come to in these runs of text, which are in order.
fn come_to(object: &Object<'_>, runs: &[Segment<'_>]) -> Option<u64> {
    let inside = |at: u64| {
        let run = runs.get(runs.partition_point(|it| it.end() <= at))?;
        (run.at <= at).then_some(run)
    };
    let mut all: Vec<u64> = runs.iter().map(|it| it.at).collect();
    all.extend_from_slice(&object.symbols);
    for text in object.text() {
        far_targets(&text, |at| all.push(at), &|at| inside(at).is_some());
    }
    // (A short jump comes from nearby.)
    for run in runs {
        for near in [run.at.saturating_sub(NEAR)..run.at, run.end()..run.end() + NEAR] {
            possible_targets(&part(object, near), |at| all.push(at));
        }
    }
    for data in object.data() {
        all.extend(data.words());
    }
    let mut seen = HashSet::new();
    while let Some(at) = all.pop() {
        let Some(run) = inside(at) else { continue };
        // (The last instruction may end behind the run.)
        let bytes = object.rest(at).unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
        while decoder.ip() < run.end() && decoder.can_decode() && seen.insert(decoder.ip()) {
            let it = decoder.decode();
            if it.is_invalid() {
                break;
            }
            if is_call(&it) {
                return Some(it.ip());
            }
            if it.near_branch_target() != 0 {
                all.push(it.near_branch_target());
            }
            if never_goes_on(&it) {
                break;
            }
        }
    }
    None
}

/// How far a short jump reaches.
const NEAR: u64 = 130;

/// The part of this that is text.
fn part<'a>(object: &Object<'a>, span: Range<u64>) -> Segment<'a> {
    let bytes = object.text().find_map(|it| {
        let (from, to) = (span.start.max(it.at), span.end.min(it.end()));
        (from < to).then(|| (from, &it.bytes[(from - it.at) as usize..(to - it.at) as usize]))
    });
    let (at, bytes) = bytes.unwrap_or((span.start, &[]));
    Segment { at, bytes, executable: true }
}

/// Tells `found` of the addresses that calls, jumps and computed addresses name by 32 bits, if they
/// are of interest (`is`).
fn far_targets(text: &Segment<'_>, mut found: impl FnMut(u64), is: &impl Fn(u64) -> bool) {
    for (i, it) in text.bytes.windows(6).enumerate() {
        let skip = match it {
            // call, jmp; `lea`; a conditional jump.
            [0xe8 | 0xe9, ..] => 1,
            [0x8d, how, ..] if how & 0xc7 == 0x05 => 2,
            [0x0f, 0x80..=0x8f, ..] => 2,
            _ => continue,
        };
        let by = [it[skip], it[skip + 1], it[skip + 2], it[skip + 3]];
        let next = text.at + (i + skip + 4) as u64;
        let to = next.wrapping_add(i32::from_le_bytes(by) as u64);
        if is(to) {
            found(to);
        }
    }
}

fn never_goes_on(it: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(it.mnemonic(), Jmp | Ret | Retf | Iret | Iretd | Iretq | Ud0 | Ud1 | Ud2 | Hlt | Int3)
}
