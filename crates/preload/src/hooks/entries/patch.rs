//! Writes the addresses of libc's functions into the entries.
//!
//! unsafe: code is replaced by other code.

use super::places::{beginnings, calls, exits, exits_of_files};
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use rustix::mm::{MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use uncopy_ranges::span::Span;

/// Bytes of a jump or call to an address within 2 GB, the first of which is one of these.
const JUMP: usize = 5;
const JMP: u8 = 0xe9;
const CALL: u8 = 0xe8;
/// The byte that a debugger or the kernel (uprobes) puts where it wants to be told.
const BREAKPOINT: u8 = 0xcc;

/// Lets every entry jump to libc's function itself. For the constructor.
///
/// The code is written where it cannot be executed, and put in place when it cannot be written any
/// more. Where that is not allowed (a policy against code that is made at run time), or where
/// somebody has put a breakpoint on the beginning of an entry, all stays as it was, and costs what
/// a jump through a pointer does.
pub fn go_directly() {
    // SAFETY: the first byte of an entry.
    if beginnings().any(|at| unsafe { *at } == BREAKPOINT) {
        return;
    }
    let spots = || exits().chain(exits_of_files()).chain(calls());
    let code = spots()
        .map(|(at, _)| Span::sized(at, JUMP))
        .reduce(|a, b| Span::new(a.start.min(b.start), a.end.max(b.end)));
    let Some(code) = code.map(Span::covering_pages) else { return };
    // SAFETY: new memory, which takes the place of the same code but for the jumps.
    unsafe {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let nowhere = core::ptr::null_mut();
        let Ok(copy) = rustix::mm::mmap_anonymous(nowhere, code.len(), rights, MapFlags::PRIVATE)
        else {
            return;
        };
        let bytes = core::slice::from_raw_parts_mut(copy.cast::<u8>(), code.len());
        core::ptr::copy_nonoverlapping(code.start as *const u8, bytes.as_mut_ptr(), code.len());
        for (at, cell) in spots() {
            aim(&mut bytes[at - code.start..][..JUMP], at, cell.load(Ordering::Relaxed));
        }
        let rights = MprotectFlags::READ | MprotectFlags::EXEC;
        let place = code.start as *mut c_void;
        // (Other threads, of a program that loads the library late, find the one or the other: the
        // kernel does it in one step.)
        let put = || {
            let flags = MremapFlags::MAYMOVE;
            rustix::mm::mremap_fixed(copy, code.len(), code.len(), flags, place).is_ok()
        };
        // (Once more: should the kernel find that it has no memory, it has taken away by then what
        // was in the place. Nothing can be called after that.)
        let done = rustix::mm::mprotect(copy, code.len(), rights).is_ok() && (put() || put());
        if !done {
            _ = rustix::mm::munmap(copy, code.len());
        }
    }
}

/// Lets the jump or call in `code`, whose place is `at`, lead to `to`, if that is near enough.
fn aim(code: &mut [u8], at: usize, to: *mut c_void) {
    let distance = (to as usize).wrapping_sub(at + JUMP) as isize;
    if !to.is_null()
        && [JMP, CALL].contains(&code[0])
        && let Ok(distance) = i32::try_from(distance)
    {
        code[1..].copy_from_slice(&distance.to_le_bytes());
    }
}
