//! The ways in by the names that they have within this library: by their own another library's may
//! be found, which the program has put before us.
//!
//! unsafe: they are assembly, which [`entries`](super::entries) has.

use super::rows::with_rows;
use core::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use libc::{
    epoll_event, iovec, msghdr, off_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t,
    timespec,
};

/// Declares each of them.
macro_rules! declare {
    ($( $kind:ident: $(
        $doc:literal, $name:ident $args:tt -> $result:ty $(, $way_in:tt)?;
    )* )*) => {
        unsafe extern "C" {
            $( $(
                #[doc = $doc]
                ///
                /// # Safety
                /// The caller keeps the contract of the man page.
                #[link_name = concat!("uncopy_entry_", stringify!($name))]
                pub fn $name $args -> $result;
            )* )*
        }
    };
}

with_rows!(declare);
