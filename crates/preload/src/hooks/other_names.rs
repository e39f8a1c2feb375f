//! libc's second names for functions that we interpose: what was built against older headers calls `__mempcpy` or `__read`, and
//! meant the same. (`crates/preload/tests/interposed` finds those that are missing.)
//!
//! unsafe: see the crate; a jump leaves arguments and return address as they are.

use super::{descriptors, output, process, sockets, stdio, waiting};
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

/// The same of entries, by the name that they have within this library: their own name may be another library's in a program that has such.
macro_rules! same_entry {
    ($( $name:ident => $entry:ident; )*) => { $(
        /// Another name.
        ///
        /// # Safety
        /// As for the function that it jumps to.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(concat!("jmp uncopy_entry_", stringify!($entry)))
        }
    )* };
}

same_entry! {
    __mempcpy => mempcpy;
    __read => read;
    __pread64 => pread;
    __write => write;
    __send => send;
    __close => close;
    __poll => poll;
    cfree => free;
}

same! {
    __pwrite64 => output::pwrite;
    __dup2 => descriptors::dup2;
    __fcntl => descriptors::fcntl;
    __connect => sockets::connect;
    __select => waiting::select;
    _IO_fdopen => stdio::fdopen;
    _IO_fclose => stdio::fclose;
    __clone => process::clone;
    __pthread_mutex_init => process::pthread_mutex_init;
    _Exit => process::_exit;
}
