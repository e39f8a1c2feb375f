//! What unwinders are told of trampolines: a frame there goes on in the program's text, at the
//! address that the displaced instruction has there, with all registers as they are.
//!
//! So what the program's own tables say of that address holds: landing pads, saved registers. Each
//! trampoline has an entry, each of its rows a return address that is a constant. The frames are
//! marked as a signal's, for which unwinders look up the address itself, not the byte before.
//!
//! unsafe: tells libgcc's unwinder, the one by which libc cancels threads.

use crate::trampoline::Row;
use core::ffi::c_void;

const RSP: u8 = 7;
const RETURN: u8 = 16;

const DEF_CFA: u8 = 0x0c;
const DEF_CFA_OFFSET: u8 = 0x0e;
const ADVANCE_LOC2: u8 = 0x03;
const VAL_EXPRESSION: u8 = 0x16;
const OP_ADDR: u8 = 0x03;

/// The bytes of an entry are fewer.
pub(crate) const MOST: usize = 512;
/// The bytes of what is common to all, and of the end.
pub(crate) const COMMON: usize = 64;

/// The tables (`.eh_frame`), to lie anywhere.
pub(crate) struct Tables {
    bytes: Vec<u8>,
}

impl Tables {
    pub fn new() -> Self {
        let mut tables = Self { bytes: Vec::new() };
        let mut common = vec![0, 0, 0, 0, 1];
        common.extend_from_slice(b"zRS\0");
        // Factors 1 and -8; one byte more: addresses are absolute.
        common.extend([1, 0x78, RETURN, 1, 0]);
        common.extend([DEF_CFA, RSP, 0]);
        tables.entry(common);
        tables
    }

    /// The trampoline at `at`, of `n` bytes.
    pub fn add(&mut self, at: u64, n: usize, rows: &[Row]) {
        // (The distance to what is common: the entry's own length stands between.)
        let mut entry = (self.bytes.len() as u32 + 4).to_le_bytes().to_vec();
        entry.extend(at.to_le_bytes());
        entry.extend((n as u64).to_le_bytes());
        entry.push(0);
        let (mut from, mut lower) = (0, 0);
        for row in rows {
            if row.at > from {
                entry.push(ADVANCE_LOC2);
                entry.extend(((row.at - from) as u16).to_le_bytes());
                from = row.at;
            }
            if row.lower != lower {
                entry.push(DEF_CFA_OFFSET);
                // (Numbers of seven bits a byte.)
                entry.extend([(row.lower & 0x7f) | 0x80, row.lower >> 7]);
                lower = row.lower;
            }
            entry.extend([VAL_EXPRESSION, RETURN, 9, OP_ADDR]);
            entry.extend(row.original.to_le_bytes());
        }
        self.entry(entry);
    }

    fn entry(&mut self, mut entry: Vec<u8>) {
        // (DW_CFA_nop is zero.)
        entry.resize((entry.len() + 4).next_multiple_of(8) - 4, 0);
        self.bytes.extend((entry.len() as u32).to_le_bytes());
        self.bytes.extend(entry);
    }

    /// All of them.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.extend([0; 4]);
        self.bytes
    }
}

/// Tells libgcc.
///
/// # Safety
/// Tables are at `at`, for as long as the process is there.
pub(crate) unsafe fn tell(at: u64) {
    unsafe extern "C" {
        fn __register_frame(begin: *const c_void);
    }
    // SAFETY: the caller's promise.
    unsafe { __register_frame(at as *const c_void) };
}
