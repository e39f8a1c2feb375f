//! Runs of text: what is decoded at once.

use crate::bytes::first_bytes;
use crate::frames::Function;
use crate::object::{Object, Segment};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic};

/// The runs of text between addresses that the tables name, in order.
pub(crate) fn runs<'a>(object: &Object<'a>, functions: &[Function]) -> Vec<Segment<'a>> {
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
        // (An instruction that is cut off at the end of the run is invalid, too.)
        let it = decoder.decode();
        if it.is_invalid() {
            return false;
        }
        into.push(it);
    }
    true
}

/// It calls the kernel.
pub(crate) fn is_call(it: &Instruction) -> bool {
    match it.mnemonic() {
        Mnemonic::Syscall | Mnemonic::Sysenter => true,
        Mnemonic::Int => it.code() == Code::Int_imm8 && it.immediate8() == 0x80,
        _ => false,
    }
}

/// Where bytes of a system call begin in a run; they may end behind it.
pub(crate) fn bytes_of_a_call(object: &Object<'_>, run: &Segment<'_>) -> Option<u64> {
    let longer = object.rest(run.at).and_then(|it| it.get(..=run.bytes.len()));
    first_bytes(longer.unwrap_or(run.bytes)).map(|at| run.at + at as u64)
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
