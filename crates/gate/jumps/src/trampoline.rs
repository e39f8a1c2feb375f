//! What a place's jump leads to.
//!
//! ```text
//!     the displaced instructions before the call
//!     (number not known) lea -N(%rax), %ecx; jrcxz judged     for each of ALWAYS
//!     movabs $PENDING, %rcx; mov (%rcx), %rcx; jrcxz made     (not for one of ALWAYS)
//! judged:
//!     lea -128(%rsp), %rsp                                    past the red zone
//!     movabs $ENTER, %r11; call *%r11                         rcx: was it made?
//!     lea 128(%rsp), %rsp
//!     jrcxz made
//!     jmp behind the call
//! made:
//!     jmp to the call                                         or, if that is displaced:
//!     syscall; the displaced instructions behind it; jmp to the end
//! ```
//!
//! A system call leaves all registers but rcx, r11 and rax, flags too; so no instruction here
//! changes others. Nothing is on the stack when the call is made: a child may come back on another
//! one.

use crate::ALWAYS;
use uncopy_gate_places::{CALL, Place};

/// What trampolines refer to.
#[derive(Clone, Copy)]
pub(crate) struct Refers {
    pub pending: u64,
    pub enter: u64,
}

/// What a frame is from an instruction of a trampoline on, until the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The instruction, from the trampoline's beginning.
    pub at: usize,
    /// The stack pointer is so much lower than it is at `original`.
    pub lower: u8,
    /// What of the program goes on here, by the address that it has in its text.
    pub original: u64,
}

/// See the module.
pub(crate) struct Trampoline {
    pub code: Vec<u8>,
    pub rows: Vec<Row>,
}

/// The red zone: what functions use below the stack pointer.
const RED: u8 = 128;
/// More than a trampoline has.
pub(crate) const MOST: usize = 256;

/// How far `to` is from `from`, if a jump reaches it.
pub(crate) fn distance(from: u64, to: u64) -> Option<[u8; 4]> {
    i32::try_from(to.wrapping_sub(from) as i64).ok().map(i32::to_le_bytes)
}

struct Writer<'a> {
    at: u64,
    place: &'a Place,
    text: &'a [u8],
    made: Trampoline,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.made.code.extend_from_slice(bytes);
    }

    fn row(&mut self, lower: u8, original: u64) {
        self.made.rows.push(Row { at: self.made.code.len(), lower, original });
    }

    /// Displaced instructions that begin in `within`.
    fn displaced(&mut self, within: core::ops::Range<u64>) {
        let place = self.place;
        for (i, &begin) in place.begins.iter().enumerate().filter(|it| within.contains(it.1)) {
            let end = place.begins.get(i + 1).copied().unwrap_or(place.end);
            self.row(0, begin);
            let bytes = (begin - place.from) as usize..(end - place.from) as usize;
            self.made.code.extend_from_slice(&self.text[bytes]);
        }
    }

    /// `jrcxz` to where [`Self::here`] says.
    fn if_zero(&mut self) -> usize {
        self.put(&[0xe3, 0]);
        self.made.code.len()
    }

    fn here(&mut self, from: usize) {
        let by = self.made.code.len() - from;
        self.made.code[from - 1] = i8::try_from(by).expect("trampolines are short") as u8;
    }

    fn jump(&mut self, to: u64) -> Option<()> {
        let next = self.at + self.made.code.len() as u64 + 5;
        self.put(&[0xe9]);
        self.put(&distance(next, to)?);
        Some(())
    }
}

/// The trampoline at `at` of a place whose text is `text`; `None` if it is too far away.
pub(crate) fn trampoline(
    place: &Place,
    text: &[u8],
    at: u64,
    refers: Refers,
) -> Option<Trampoline> {
    let made = Trampoline { code: Vec::with_capacity(MOST), rows: Vec::new() };
    let mut to = Writer { at, place, text, made };
    to.displaced(place.from..place.call);
    to.row(0, place.call);
    let always = place.number.is_some_and(|it| ALWAYS.contains(&it));
    let mut judged = Vec::new();
    let mut goes_on = Vec::new();
    if place.number.is_none() {
        // lea -N(%rax), %ecx: the kernel looks at 32 bits, too. Then lea -MORE(%rcx), %ecx.
        let (mut from, mut register) = (0, 0x88);
        for number in ALWAYS {
            to.put(&[0x8d, register]);
            to.put(&(from - number as i32).to_le_bytes());
            judged.push(to.if_zero());
            (from, register) = (number as i32, 0x89);
        }
    }
    if !always {
        to.put(&[0x48, 0xb9]); // movabs $, %rcx
        to.put(&refers.pending.to_le_bytes());
        to.put(&[0x48, 0x8b, 0x09]); // mov (%rcx), %rcx
        goes_on.push(to.if_zero());
    }
    judged.into_iter().for_each(|it| to.here(it));
    to.put(&[0x48, 0x8d, 0x64, 0x24, RED.wrapping_neg()]); // lea -128(%rsp), %rsp
    to.row(RED, place.call);
    to.put(&[0x49, 0xbb]); // movabs $, %r11
    to.put(&refers.enter.to_le_bytes());
    to.put(&[0x41, 0xff, 0xd3]); // call *%r11
    to.put(&[0x48, 0x8d, 0xa4, 0x24, RED, 0, 0, 0]); // lea 128(%rsp), %rsp
    to.row(0, place.call);
    goes_on.push(to.if_zero());
    if place.moves_the_call() {
        to.put(&[0xeb, CALL as u8]);
        goes_on.into_iter().for_each(|it| to.here(it));
        to.displaced(place.call..place.end);
        to.row(0, place.end);
        to.jump(place.end)?;
    } else {
        to.jump(place.call + CALL)?;
        goes_on.into_iter().for_each(|it| to.here(it));
        to.jump(place.call)?;
    }
    Some(to.made)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERS: Refers = Refers { pending: 0x1111_2222_3333_4444, enter: 0x5555_6666_7777_8888 };
    /// mov $N, %eax; syscall; cmp $-4096, %rax
    const TEXT: [u8; 13] = [0xb8, 1, 0, 0, 0, 0x0f, 5, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff];

    fn before(number: Option<u32>) -> Place {
        Place { from: 0x1000, call: 0x1005, end: 0x1005, number, begins: vec![0x1000] }
    }

    #[test]
    fn a_call_with_room_before_it_stays_where_it_is() {
        let made = trampoline(&before(Some(1)), &TEXT, 0x2000, REFERS).unwrap();
        let mut expected = TEXT[..5].to_vec();
        expected.extend([0x48, 0xb9, 0x44, 0x44, 0x33, 0x33, 0x22, 0x22, 0x11, 0x11]);
        expected.extend([0x48, 0x8b, 0x09, 0xe3, 33]);
        expected.extend([0x48, 0x8d, 0x64, 0x24, 0x80]);
        expected.extend([0x49, 0xbb, 0x88, 0x88, 0x77, 0x77, 0x66, 0x66, 0x55, 0x55]);
        expected.extend([0x41, 0xff, 0xd3, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
        expected.extend([0xe3, 5]);
        // From 0x2035 to 0x1007, from 0x203a to 0x1005.
        expected.extend([0xe9, 0xd2, 0xef, 0xff, 0xff, 0xe9, 0xcb, 0xef, 0xff, 0xff]);
        assert_eq!(made.code, expected);
        let row = |at, lower, original| Row { at, lower, original };
        let rows = [row(0, 0, 0x1000), row(5, 0, 0x1005), row(25, 128, 0x1005), row(46, 0, 0x1005)];
        assert_eq!(made.rows, rows);
    }

    #[test]
    fn a_sync_does_not_look_at_the_word_and_an_unknown_number_is_compared_with_all_of_them() {
        let word = REFERS.pending.to_le_bytes();
        let looks = |code: &[u8]| code.windows(8).any(|it| it == word);
        let sync = trampoline(&before(Some(74)), &TEXT, 0x2000, REFERS).unwrap().code;
        assert!(!looks(&sync));
        let unknown = trampoline(&before(None), &TEXT, 0x2000, REFERS).unwrap().code;
        assert!(looks(&unknown) && unknown.len() <= MOST);
        let mut value = 0_i64;
        let mut compared = Vec::new();
        for it in unknown[5..].chunks(8).take(ALWAYS.len()) {
            assert_eq!((it[0], it[6]), (0x8d, 0xe3));
            value -= i64::from(i32::from_le_bytes(it[2..6].try_into().unwrap()));
            compared.push(value as u32);
        }
        assert_eq!(compared, ALWAYS);
    }

    #[test]
    fn a_call_without_room_before_it_is_made_in_the_trampoline() {
        let place = Place {
            from: 0x1005,
            call: 0x1005,
            end: 0x100d,
            number: Some(1),
            begins: vec![0x1005, 0x1007],
        };
        let made = trampoline(&place, &TEXT[5..], 0x2000, REFERS).unwrap();
        let end = made.code.len();
        assert_eq!(made.code[end - 13..end - 5], TEXT[5..]);
        let to = i32::from_le_bytes(made.code[end - 4..].try_into().unwrap());
        assert_eq!(0x2000 + end as i64 + i64::from(to), 0x100d);
        assert_eq!(made.rows.last(), Some(&Row { at: end - 5, lower: 0, original: 0x100d }));
    }

    #[test]
    fn a_place_that_no_jump_reaches_has_no_trampoline() {
        assert!(trampoline(&before(Some(1)), &TEXT, 0x2_0000_0000, REFERS).is_none());
    }
}
