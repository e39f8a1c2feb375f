//! Where trampolines lie: text of our own library, kept free for them, of slots of one size.
//!
//! Unwinders and debuggers find one entry of `.eh_frame` for all of it, by which a frame there goes
//! on in the program's text, at the address that the instruction has there, with all registers as
//! they are. The program's own tables hold then for that address: landing pads, saved registers.
//! The entry computes: each slot has the same at the same offsets, and its last word has the
//! address of its call. (Nothing is registered with an unwinder: libgcc would take a lock for each
//! exception, which a child of `fork` may find taken for good.)
//!
//! Its frames are marked as a signal's: unwinders look up the address itself, not the byte before.
//!
//! Statics: instructions have nothing in hand.
//!
//! unsafe: the room is instructions.

use core::arch::global_asm;

/// The bytes of a slot, on which it is aligned.
pub(crate) const SLOT: usize = 128;
/// Displaced instructions before the call end here.
pub(crate) const ASKS: usize = 32;
/// From here on the stack pointer is lower by [`RED`],
pub(crate) const LOWER: usize = ASKS + 14;
/// up to here.
pub(crate) const RAISED: usize = LOWER + 13;
/// The call is made here, or behind a jump from here.
pub(crate) const MADE: usize = RAISED + 7;
/// The address of the call in the program's text.
pub(crate) const ORIGINAL: usize = SLOT - 8;
/// The red zone: what functions use below the stack pointer.
pub(crate) const RED: u8 = 128;

/// (glibc 2.36 and its dynamic linker have 572 calls.)
pub(crate) const SLOTS: usize = 1024;

global_asm!(
    ".pushsection .text.uncopy_gate_room, \"ax\", @progbits",
    ".globl uncopy_gate_room",
    ".hidden uncopy_gate_room",
    ".type uncopy_gate_room, @function",
    ".balign 4096",
    "uncopy_gate_room:",
    ".cfi_startproc",
    ".cfi_signal_frame",
    // DW_CFA_def_cfa_expression: rsp + (LOWER <= offset & offset < RAISED) << 7.
    ".cfi_escape 0x0f, 19",
    ".cfi_escape 0x77, 0",                                     // breg7 0
    ".cfi_escape 0x80, 0, 0x08, {mask}, 0x1a",                 // breg16 0, const1u, and
    ".cfi_escape 0x12, 0x08, {lower}, 0x2a",                   // dup, const1u, ge
    ".cfi_escape 0x16, 0x08, {raised}, 0x2d",                  // swap, const1u, lt
    ".cfi_escape 0x1a, 0x37, 0x24, 0x22",                      // and, lit7, shl, plus
    // DW_CFA_val_expression of the return address: the word of ORIGINAL, and
    // min(offset - ASKS, 0), and max(offset - MADE, 0).
    ".cfi_escape 0x16, 16, 32",
    // breg16 0, const1u, or, const1u, minus, deref
    ".cfi_escape 0x80, 0, 0x08, {mask}, 0x21, 0x08, 7, 0x1c, 0x06",
    ".cfi_escape 0x80, 0, 0x08, {mask}, 0x1a",                 // breg16 0, const1u, and
    ".cfi_escape 0x12, 0x08, {asks}, 0x1c",                    // dup, const1u, minus
    ".cfi_escape 0x12, 0x30, 0x2d, 0x1e",                      // dup, lit0, lt, mul
    ".cfi_escape 0x16, 0x08, {made}, 0x1c",                    // swap, const1u, minus
    ".cfi_escape 0x12, 0x30, 0x2b, 0x1e",                      // dup, lit0, gt, mul
    ".cfi_escape 0x22, 0x22",                                  // plus, plus
    ".skip {bytes}, 0xcc",
    ".cfi_endproc",
    ".size uncopy_gate_room, . - uncopy_gate_room",
    ".balign 4096, 0xcc",
    ".popsection",
    mask = const SLOT - 1,
    lower = const LOWER,
    raised = const RAISED,
    asks = const ASKS,
    made = const MADE,
    bytes = const SLOTS * SLOT,
);

const _: () = assert!(SLOT == 128 && RED == 128 && ORIGINAL == SLOT - 8);

unsafe extern "C" {
    fn uncopy_gate_room();
}

/// The first slot.
pub(crate) fn address() -> u64 {
    uncopy_gate_room as *const () as u64
}
