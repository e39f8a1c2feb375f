//! The slot of the room that a place's jump leads to. The layout of a slot is the same for all.
//!
//! ```text
//!          the displaced instructions before the call
//! ASKS:    mov PENDING(%rip), %rcx; jrcxz made                (nop: one of ALWAYS, or not known)
//!          lea -128(%rsp), %rsp                               past the red zone
//! LOWER:   call ENTER                                         rcx: was it made?
//!          lea 128(%rsp), %rsp
//! RAISED:  jrcxz made
//!          jmp behind the call
//! MADE:    jmp to the call                                    or, if that is displaced:
//!          syscall; the displaced instructions behind it; jmp to the end
//! ```
//!
//! A system call leaves all registers but rcx, r11 and rax, flags too; so no instruction here
//! changes others. Nothing is on the stack when the call is made: a child may come back on another
//! one.

use crate::ALWAYS;
use crate::room::{ASKS, LOWER, MADE, ORIGINAL, RAISED, RED, SLOT};
use uncopy_gate_places::{CALL, Place};

/// The addresses that trampolines refer to.
#[derive(Clone, Copy)]
pub(crate) struct Refers {
    pub pending: u64,
    pub enter: u64,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trampoline {
    /// The whole slot.
    pub slot: [u8; SLOT],
    /// Where it is entered.
    pub entry: u64,
}

/// How far `to` is from `from`, if a jump reaches it.
pub(crate) fn distance(from: u64, to: u64) -> Option<[u8; 4]> {
    i32::try_from(to.wrapping_sub(from) as i64).ok().map(i32::to_le_bytes)
}

struct Writer {
    at: u64,
    slot: [u8; SLOT],
    next: usize,
}

impl Writer {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let to = self.next..self.next + bytes.len();
        self.slot[..ORIGINAL].get_mut(to.clone())?.copy_from_slice(bytes);
        self.next = to.end;
        Some(())
    }

    /// An instruction that ends with the distance to an address.
    fn put_to(&mut self, instruction: &[u8], to: u64) -> Option<()> {
        self.put(instruction)?;
        self.put(&distance(self.at + self.next as u64 + 4, to)?)
    }

    fn jrcxz(&mut self, to: usize) -> Option<()> {
        let by = i8::try_from(to - (self.next + 2)).ok()?;
        self.put(&[0xe3, by as u8])
    }
}

/// The trampoline of a place whose text is `text`, in the slot at `at`; `None`: it is too far away,
/// or does not fit.
pub(crate) fn trampoline(
    place: &Place,
    text: &[u8],
    at: u64,
    refers: Refers,
) -> Option<Trampoline> {
    let (before, rest) = text.split_at((place.call - place.from) as usize);
    let entry = ASKS.checked_sub(before.len())?;
    let mut to = Writer { at, slot: [0xcc; SLOT], next: entry };
    to.put(before)?;
    if place.number.is_none_or(|it| ALWAYS.contains(&it)) {
        // (`enter` knows which.)
        to.put(&[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0])?;
    } else {
        to.put_to(&[0x48, 0x8b, 0x0d], refers.pending)?;
        to.jrcxz(MADE)?;
    }
    to.put(&[0x48, 0x8d, 0x64, 0x24, RED.wrapping_neg()])?;
    debug_assert_eq!(to.next, LOWER);
    to.put_to(&[0xe8], refers.enter)?;
    to.put(&[0x48, 0x8d, 0xa4, 0x24, RED, 0, 0, 0])?;
    debug_assert_eq!(to.next, RAISED);
    to.jrcxz(MADE)?;
    if place.moves_the_call() {
        to.put_to(&[0xe9], at + MADE as u64 + CALL)?;
        to.put(rest)?;
        to.put_to(&[0xe9], place.end)?;
    } else {
        to.put_to(&[0xe9], place.call + CALL)?;
        to.put_to(&[0xe9], place.call)?;
    }
    to.slot[ORIGINAL..].copy_from_slice(&place.call.to_le_bytes());
    Some(Trampoline { slot: to.slot, entry: at + entry as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERS: Refers = Refers { pending: 0x3000, enter: 0x4000 };
    /// mov $N, %eax; syscall; cmp $-4096, %rax
    const TEXT: [u8; 13] = [0xb8, 1, 0, 0, 0, 0x0f, 5, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff];

    fn before(number: Option<u32>) -> Place {
        let begins = vec![0x1000];
        Place { from: 0x1000, call: 0x1005, end: 0x1005, number, begins, cancels: None }
    }

    #[test]
    fn a_call_with_room_before_it_stays_where_it_is() {
        let made = trampoline(&before(Some(1)), &TEXT[..5], 0x2000, REFERS).unwrap();
        assert_eq!(made.entry, 0x2000 + 27);
        let mut expected = vec![0xcc; 27];
        expected.extend_from_slice(&TEXT[..5]);
        // From 0x2027 to 0x3000.
        expected.extend([0x48, 0x8b, 0x0d, 0xd9, 0x0f, 0, 0, 0xe3, 25]);
        expected.extend([0x48, 0x8d, 0x64, 0x24, 0x80]);
        // From 0x2033 to 0x4000.
        expected.extend([0xe8, 0xcd, 0x1f, 0, 0, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
        // From 0x2042 to 0x1007, from 0x2047 to 0x1005.
        expected.extend([0xe3, 5, 0xe9, 0xc5, 0xef, 0xff, 0xff, 0xe9, 0xbe, 0xef, 0xff, 0xff]);
        expected.resize(ORIGINAL, 0xcc);
        expected.extend(0x1005_u64.to_le_bytes());
        assert_eq!(made.slot.as_slice(), expected);
    }

    #[test]
    fn a_sync_and_an_unknown_number_do_not_look_at_the_word() {
        let looks = |number| {
            let made = trampoline(&before(number), &TEXT[..5], 0x2000, REFERS).unwrap();
            made.slot[ASKS..].starts_with(&[0x48, 0x8b, 0x0d])
        };
        assert!(looks(Some(1)) && !looks(Some(74)) && !looks(None));
    }

    #[test]
    fn a_call_without_room_before_it_is_made_in_the_trampoline() {
        let place = Place {
            from: 0x1005,
            call: 0x1005,
            end: 0x100d,
            number: Some(1),
            begins: vec![0x1005, 0x1007],
            cancels: None,
        };
        let made = trampoline(&place, &TEXT[5..], 0x2000, REFERS).unwrap();
        assert_eq!(made.entry, 0x2000 + ASKS as u64);
        assert_eq!(made.slot[MADE..MADE + 8], TEXT[5..]);
        // Where the judge has made it: to behind the `syscall`, which is two bytes.
        assert_eq!(made.slot[RAISED + 2..MADE], [0xe9, 2, 0, 0, 0]);
        let jump = MADE + 8;
        assert_eq!(made.slot[jump], 0xe9);
        let by = i32::from_le_bytes(made.slot[jump + 1..jump + 5].try_into().unwrap());
        assert_eq!(0x2000 + jump as i64 + 5 + i64::from(by), 0x100d);
    }

    #[test]
    fn a_place_that_no_jump_reaches_has_no_trampoline() {
        assert!(trampoline(&before(Some(1)), &TEXT[..5], 0x2_0000_0000, REFERS).is_none());
    }

    #[test]
    fn a_place_with_more_instructions_than_a_slot_takes_has_no_trampoline() {
        let text = [0x90; 40];
        let place = Place {
            from: 0x1000,
            call: 0x1021,
            end: 0x1021,
            number: Some(1),
            begins: (0x1000..0x1021).collect(),
            cancels: None,
        };
        assert!(trampoline(&place, &text[..33], 0x2000, REFERS).is_none());
    }
}
