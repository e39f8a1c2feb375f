//! The places of an object: its system calls, and what is displaced for each.

use crate::Trouble;
use crate::cancels;
use crate::landings;
use crate::marks::Marks;
use crate::object::{Object, Segment};
use crate::runs::decode;
use crate::sweep::{self, Decodes, Swept};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// A system call, and the instructions around it that are displaced by a jump at `from`.
///
/// Where there is room before the call it is not displaced itself (`end == call`): what comes back
/// from there goes on at the `syscall`, or behind it. Else it is (`end >= call + 2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The first displaced instruction.
    pub from: u64,
    /// The `syscall`.
    pub call: u64,
    /// Behind the last displaced instruction: at least [`JUMP`] bytes behind `from`.
    pub end: u64,
    /// The call's number, if the instructions before say it.
    pub number: Option<u32>,
    /// Where the displaced instructions begin, `from` first.
    pub begins: Vec<u64>,
    /// Where a cancelled thread goes, if this is the call in which threads are: all of its function
    /// before the call is displaced, and looks whether the thread is cancelled.
    pub cancels: Option<u64>,
}

/// The bytes of a jump.
pub const JUMP: u64 = 5;
/// The bytes of a `syscall`.
pub const CALL: u64 = 2;

impl Place {
    /// Whether the `syscall` itself is displaced.
    pub const fn moves_the_call(&self) -> bool {
        self.end > self.call
    }
}

/// All places of an object, in order. No two overlap.
///
/// # Errors
/// One call cannot be led elsewhere, or it is not known whether there are more.
pub fn places(object: &Object<'_>) -> Result<Vec<Place>, Trouble> {
    found(object, Decodes::Needed)
}

pub(crate) fn found(object: &Object<'_>, decodes: Decodes) -> Result<Vec<Place>, Trouble> {
    let mut swept = sweep::sweep(object, decodes)?;
    landings::add(object, &mut swept)?;
    let mut firsts: Vec<u64> = swept.functions.iter().map(|it| it.first).collect();
    firsts.extend_from_slice(&object.symbols);
    firsts.sort_unstable();
    let mut places: Vec<Place> = Vec::with_capacity(swept.calls.len());
    let mut all = Vec::new();
    for of_a_run in swept.calls.chunk_by(|a, b| a.1 == b.1) {
        instructions(object, of_a_run, &mut all);
        for &(call, _) in of_a_run {
            let next = swept.calls.get(places.len() + 1).map_or(u64::MAX, |it| it.0);
            if let Some((first, to)) = cancels::function(object, call) {
                places.push(cancellable(&all, &swept, (first, call, to))?);
                continue;
            }
            let chosen = |how: Choice| place(&all, &swept, call, how);
            let is_first = |it: &Place| firsts.binary_search(&it.from).is_ok();
            let mut found = chosen(before).or_else(|| chosen(around));
            // A patch at a function's first byte is taken away by others: a probe of the kernel
            // ends by putting back the bytes that the file has there. So that byte is left alone if
            // that can be.
            if found.as_ref().is_some_and(is_first) {
                let alone = |it: &Place| !is_first(it) && it.end + APART <= next;
                found = chosen(behind).filter(alone).or(found);
            }
            let place = found.ok_or(Trouble::NoRoom(call))?;
            if places.last().is_some_and(|it| place.from < it.end.max(it.call + CALL)) {
                return Err(Trouble::NoRoom(call));
            }
            places.push(place);
        }
    }
    Ok(places)
}

/// The place of the call in which threads are cancelled: its function up to the call.
fn cancellable(
    all: &[Instruction],
    swept: &Swept,
    (first, call, to): (u64, u64, u64),
) -> Result<Place, Trouble> {
    let of = |it: &&Instruction| (first..call).contains(&it.ip());
    let begins: Vec<u64> = all.iter().filter(of).map(Instruction::ip).collect();
    let entered = swept.landings.any(first + 1..call + 1);
    if entered || begins.first() != Some(&first) {
        return Err(Trouble::NoRoom(call));
    }
    Ok(Place { from: first, call, end: call, number: None, begins, cancels: Some(to) })
}

/// The instructions around these calls, which have the same sound text before them.
fn instructions(object: &Object<'_>, calls: &[(u64, u64)], all: &mut Vec<Instruction>) {
    let (sound, last) = (calls[0].1, calls[calls.len() - 1].0);
    let bytes = object.rest(sound).unwrap_or_default();
    let upto = ((last + CALL - sound) as usize + BEHIND).min(bytes.len());
    decode(&Segment { at: sound, bytes: &bytes[..upto], executable: true }, all);
}

/// So many bytes behind a call are looked at: more than a place has.
const BEHIND: usize = 64;

/// A place has fewer bytes before its call.
const APART: u64 = 32;

/// How instructions are chosen: the first of them, and what is behind the last one.
type Choice = fn(&[Instruction], usize, &Marks) -> Option<(usize, usize)>;

fn place(all: &[Instruction], swept: &Swept, call: u64, chosen: Choice) -> Option<Place> {
    let i = all.binary_search_by_key(&call, Instruction::ip).ok()?;
    let (first, behind) = chosen(all, i, &swept.landings)?;
    let place = Place {
        from: all[first].ip(),
        call,
        end: all[behind - 1].next_ip(),
        number: number(&all[..=i], &swept.landings),
        begins: all[first..behind].iter().map(Instruction::ip).collect(),
        cancels: None,
    };
    // (Also within an instruction: a jump past the prefix `lock`.) A jump that lands on the call
    // itself would make it without being asked.
    let entered = swept.landings.any(place.from + 1..place.end.max(call + 1));
    let known = place.begins.iter().all(|&at| swept.begins.has(at));
    (!entered && known && place.end - place.from >= JUMP).then_some(place)
}

/// Instructions before the call: the first of them, and the call.
fn before(all: &[Instruction], call: usize, landings: &Marks) -> Option<(usize, usize)> {
    let mut first = call;
    while all[call].ip() - all[first].ip() < JUMP {
        if landings.has(all[first].ip()) || first == 0 || !can_move(&all[first - 1]) {
            return None;
        }
        first -= 1;
    }
    Some((first, call))
}

/// The call, what can be displaced before it, and what more is needed behind it.
fn around(all: &[Instruction], call: usize, landings: &Marks) -> Option<(usize, usize)> {
    let mut first = call;
    while all[call].next_ip() - all[first].ip() < JUMP
        && !landings.has(all[first].ip())
        && first > 0
        && can_move(&all[first - 1])
    {
        first -= 1;
    }
    upto(all, (first, call), landings)
}

/// The call, and what is needed behind it.
fn behind(all: &[Instruction], call: usize, landings: &Marks) -> Option<(usize, usize)> {
    upto(all, (call, call), landings)
}

fn upto(
    all: &[Instruction],
    (first, call): (usize, usize),
    landings: &Marks,
) -> Option<(usize, usize)> {
    let mut behind = call + 1;
    while all[behind - 1].next_ip() - all[first].ip() < JUMP {
        let next = all.get(behind)?;
        if landings.has(next.ip()) || !can_move(next) {
            return None;
        }
        behind += 1;
    }
    Some((first, behind))
}

/// The instruction does the same elsewhere: it is one of those that are known to, and names no
/// address relative to itself.
fn can_move(it: &Instruction) -> bool {
    is_plain(it.mnemonic()) && !it.is_ip_rel_memory_operand()
}

/// It changes at most its first operand, and flags.
fn is_plain(it: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        it,
        Mov | Movzx
            | Movsx
            | Movsxd
            | Lea
            | Xor
            | Or
            | And
            | Add
            | Sub
            | Cmp
            | Test
            | Neg
            | Not
            | Shl
            | Shr
            | Sar
            | Nop
            | Movd
            | Movq
            | Movaps
            | Movups
            | Movdqa
            | Movdqu
            | Pxor
            | Cmova
            | Cmovae
            | Cmovb
            | Cmovbe
            | Cmove
            | Cmovg
            | Cmovge
            | Cmovl
            | Cmovle
            | Cmovne
            | Cmovns
            | Cmovs
    )
}

/// The number of the call that is the last of these, if it is certain: nobody enters between the
/// instruction that sets it and the call.
fn number(upto: &[Instruction], landings: &Marks) -> Option<u32> {
    let mut later = upto.last()?;
    for it in upto.iter().rev().skip(1) {
        if landings.any(it.ip() + 1..later.ip() + 1) || !is_plain(it.mnemonic()) {
            return None;
        }
        if it.op0_kind() == OpKind::Register && is_rax(it.op0_register()) {
            return set(it);
        }
        later = it;
    }
    None
}

/// The value that an instruction gives to `rax`, if it stands in it.
fn set(it: &Instruction) -> Option<u32> {
    let whole = matches!(it.op0_register(), Register::EAX | Register::RAX);
    match (it.mnemonic(), it.op1_kind()) {
        (Mnemonic::Mov, OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64)
            if whole =>
        {
            Some(it.immediate(1) as u32)
        }
        (Mnemonic::Xor, OpKind::Register) if whole && it.op1_register() == it.op0_register() => {
            Some(0)
        }
        _ => None,
    }
}

fn is_rax(it: Register) -> bool {
    matches!(it, Register::AL | Register::AH | Register::AX | Register::EAX | Register::RAX)
}
