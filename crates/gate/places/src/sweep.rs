//! Goes over text once, from each address that the unwinder's tables name to the next.

use crate::Trouble;
use crate::descent;
use crate::frames::{self, Function};
use crate::marks::Marks;
use crate::object::{Object, Segment};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

/// What was found.
pub(crate) struct Swept {
    pub functions: Vec<Function>,
    /// Where instructions of sound text begin.
    pub begins: Marks,
    /// What direct jumps and calls lead to, what is computed of addresses in text, and `endbr64`.
    pub landings: Marks,
    /// Addresses outside of text that instructions compute.
    pub computed: Vec<u64>,
    /// Each `syscall`, and an address before it from where all is sound.
    pub calls: Vec<(u64, u64)>,
}

/// The object's text.
pub(crate) fn sweep(object: &Object<'_>) -> Result<Swept, Trouble> {
    let functions = frames::functions(object)?;
    let mut swept = Swept {
        begins: Marks::new(object),
        landings: Marks::new(object),
        computed: Vec::new(),
        calls: Vec::new(),
        functions,
    };
    let mut room = Vec::new();
    // The run before, if it is sound. (The tables say that a function ends before its call where
    // what they say holds no longer behind it: in `clone`.)
    let mut before: Option<Segment<'_>> = None;
    for run in runs(object, &swept.functions) {
        let from = before.filter(|it| it.end() == run.at).map_or(run.at, |it| it.at);
        before = decode(&run, &mut room).then_some(run);
        if before.is_some() {
            for it in &room {
                swept.note(object, it, from)?;
            }
        } else if let Some(at) = bytes_of_a_call(object, &run) {
            return Err(Trouble::Unsure(at));
        } else {
            possible_targets(&run, |at| swept.landings.set(at));
        }
    }
    Ok(swept)
}

/// The first system call in the object's text, of whatever kind.
///
/// # Errors
/// [`Trouble::NoFrames`] where bytes of a system call are in the text.
pub fn first_call(object: &Object<'_>) -> Result<Option<u64>, Trouble> {
    // Most objects have not even the bytes, and some are large.
    if !object.text().any(|it| first_bytes(it.bytes).is_some()) {
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
    Ok(if unsure.is_empty() { None } else { descent::first_call(object, &unsure) })
}

impl Swept {
    fn note(&mut self, object: &Object<'_>, it: &Instruction, from: u64) -> Result<(), Trouble> {
        self.begins.set(it.ip());
        if it.mnemonic() == Mnemonic::Syscall {
            self.calls.push((it.ip(), from));
        } else if is_call(it) {
            return Err(Trouble::Other(it.ip()));
        } else if it.mnemonic() == Mnemonic::Endbr64 {
            self.landings.set(it.ip());
        } else if let OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 =
            it.op0_kind()
        {
            self.landings.set(it.near_branch_target());
        } else if it.is_ip_rel_memory_operand() {
            let to = it.ip_rel_memory_address();
            if object.is_text(to) {
                self.landings.set(to);
            } else if it.mnemonic() == Mnemonic::Lea {
                self.computed.push(to);
            }
        }
        Ok(())
    }
}

/// The runs of text between addresses that the tables name, in order.
fn runs<'a>(object: &Object<'a>, functions: &[Function]) -> Vec<Segment<'a>> {
    let mut all = Vec::new();
    for text in object.text() {
        let inside = |at: &u64| text.at < *at && *at < text.end();
        let mut edges: Vec<u64> =
            functions.iter().flat_map(|it| [it.first, it.end]).filter(inside).collect();
        edges.extend([text.at, text.end()]);
        edges.sort_unstable();
        edges.dedup();
        all.extend(edges.windows(2).map(|edge| {
            let bytes = &text.bytes[(edge[0] - text.at) as usize..(edge[1] - text.at) as usize];
            Segment { at: edge[0], bytes, executable: true }
        }));
    }
    all
}

/// Decodes a run; whether it is sound.
pub(crate) fn decode(run: &Segment<'_>, into: &mut Vec<Instruction>) -> bool {
    into.clear();
    let mut decoder = Decoder::with_ip(64, run.bytes, run.at, DecoderOptions::NONE);
    while decoder.can_decode() {
        // (What is cut off at the end of the run is invalid, too.)
        let it = decoder.decode();
        if it.is_invalid() {
            return false;
        }
        into.push(it);
    }
    true
}

pub(crate) fn is_call(it: &Instruction) -> bool {
    match it.mnemonic() {
        Mnemonic::Syscall | Mnemonic::Sysenter => true,
        Mnemonic::Int => it.code() == Code::Int_imm8 && it.immediate8() == 0x80,
        _ => false,
    }
}

/// Where bytes of a system call begin in a run; they may end behind it.
fn bytes_of_a_call(object: &Object<'_>, run: &Segment<'_>) -> Option<u64> {
    let longer = object.rest(run.at).and_then(|it| it.get(..=run.bytes.len()));
    first_bytes(longer.unwrap_or(run.bytes)).map(|at| run.at + at as u64)
}

fn first_bytes(of: &[u8]) -> Option<usize> {
    // `syscall`, `sysenter`, `int 0x80`.
    of.windows(2).position(|it| matches!(it, [0x0f, 0x05 | 0x34] | [0xcd, 0x80]))
}

/// Where direct jumps lead to that begin anywhere in a run.
pub(crate) fn possible_targets(run: &Segment<'_>, mut found: impl FnMut(u64)) {
    for i in 0..run.bytes.len() {
        let rest = &run.bytes[i..];
        let at = run.at + i as u64;
        let far = |opcode: usize| {
            let by = rest.get(opcode..opcode + 4)?.try_into().ok().map(i32::from_le_bytes)?;
            Some(at.wrapping_add(opcode as u64 + 4).wrapping_add(by as u64))
        };
        let target = match rest {
            [0x70..=0x7f | 0xe0..=0xe3 | 0xeb, by, ..] => {
                Some(at.wrapping_add(2).wrapping_add(*by as i8 as u64))
            }
            [0xe8 | 0xe9, ..] => far(1),
            [0x0f, 0x80..=0x8f, ..] | [0xc7, 0xf8, ..] => far(2),
            _ => None,
        };
        target.into_iter().for_each(&mut found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_that_begins_anywhere_in_unsound_text_is_a_possible_one() {
        let bytes = [0xff, 0xeb, 0x02, 0xe9, 0, 1, 0, 0, 0x0f, 0x84, 0xf0, 0xff, 0xff, 0xff];
        let mut all = Vec::new();
        let run = Segment { at: 0x1000, bytes: &bytes, executable: true };
        possible_targets(&run, |at| all.push(at));
        assert_eq!(all, [0x1005, 0x1108, 0xffe]);
    }
}
