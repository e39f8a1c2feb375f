//! libc's second names for functions that we interpose: what was built against older headers calls
//! `__mempcpy` or `__read`, and meant the same. (`crates/preload/tests/interposed` finds those that
//! are missing.)
//!
//! unsafe: see the crate; a jump leaves arguments and return address as they are.

use super::{allocate, copy, descriptors, input, output, own, process, sockets, stdio, waiting};
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
    __read => input::read;
    __pread64 => input::pread;
    __write => output::write;
    __send => output::send;
    __close => descriptors::close;
    __open => own::open;
    __open64 => own::open64;
    __lseek => own::lseek;
    __poll => waiting::poll;
    cfree => allocate::free;
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
