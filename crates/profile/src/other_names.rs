//! libc's second names for functions that we interpose: what was built against older headers calls
//! `__mempcpy` or `__read`, and meant the same. (`crates/preload/tests/interposed` finds those that
//! are missing.)
//!
//! unsafe: see the crate; a jump leaves arguments and return address as they are.

use crate::hooks::{fread, fwrite, pread64, pwrite64, read, recvfrom, send, write};
use crate::{blocks, copy};
use core::arch::naked_asm;

macro_rules! same {
    ($( $name:ident => $function:path; )*) => { $(
        /// Another name.
        ///
        /// # Safety
        /// As for the function that it jumps to.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!("jmp {function}", function = sym $function)
        }
    )* };
}

same! {
    __mempcpy => copy::mempcpy;
    __read => read::entry;
    __pread64 => pread64::entry;
    __write => write::entry;
    __pwrite64 => pwrite64::entry;
    __send => send::entry;
    __clone => blocks::clone;
    _IO_fread => fread::entry;
    _IO_fwrite => fwrite::entry;
}

/// `recvfrom(2)` with a known buffer size: its seven arguments become the six that [`recvfrom`]
/// takes.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk() {
    naked_asm!(
        "cmp rcx, rdx",
        "jb 2f",
        "mov rcx, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "jmp {recvfrom}",
        "2:",
        "jmp {failed}",
        recvfrom = sym recvfrom::entry,
        failed = sym copy::overflows,
    )
}
