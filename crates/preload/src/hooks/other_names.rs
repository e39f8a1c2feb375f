//! libc's second names for functions that we interpose: what was built against older headers calls
//! `__mempcpy` or `__read`, and meant the same. (`crates/preload/tests/interposed` finds those that
//! are missing.)
//!
//! unsafe: see the crate; a jump leaves arguments and return address as they are.

use super::{allocate, copy, descriptors, input, output, own, process, sockets, stdio, waiting};
use core::arch::naked_asm;
use uncopy_real::with_table;

macro_rules! same {
    ({ $( $alone:ident => $function:path; )* }
    $( $group:ident $module:ident::$name:ident [$($same:ident)*] [$($other:ident)*]
        $( ($($arg:ident: $type:ty),*) -> $result:ty $(, else $early:expr)? )?;
        $(by $number:ident $( ($($word:literal)*) $(if $guard:ident)? )?)?
        $(not $not:literal)? $(-)?;
        $place:ident, $why:literal;
    )*) => {
        $( jump!($alone => $function); )*
        $( $( jump!($same => $module::$name); )* )*
    };
}

macro_rules! jump {
    ($name:ident => $function:path) => {
        /// Another name.
        ///
        /// # Safety
        /// As for the function that it jumps to.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!("jmp {function}", function = sym $function)
        }
    };
}

// (These lead to the ways in of their functions.)
with_table!(same {
    __open => own::open;
    __open64 => own::open64;
    __lseek => own::lseek;
});
