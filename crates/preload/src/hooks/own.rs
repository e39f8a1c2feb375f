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
    (
        $( $doc:literal, $name:ident($($arg:ident: $type:ty),*) -> $result:ty,
            if { $($condition:tt)* } else $body:ident $(told in $register:literal)?; )*
        inputs: $( $in_doc:literal, $in:ident($($in_arg:ident: $in_type:ty),*),
            unless [$($unless:literal),*],
            else $in_body:ident told [$($told:literal)?]; )*
        lists: $( $list_doc:literal, $list:ident($($list_arg:ident: $list_type:ty),*),
            unless [$($list_unless:literal),*],
            at [$($at:literal),*], $few:tt, else $list_body:ident told [$($list_told:literal)?]; )*
        copies: $( $copy_doc:literal, $copy:ident, $large:ident, $near:ident; )*
        of_files: $( $file_doc:literal,
            $file:ident($($file_arg:ident: $file_type:ty),*) -> $file_result:ty; )*
    ) => {
        unsafe extern "C" {
            $(
                #[doc = $doc]
                ///
                /// # Safety
                /// As its man page says.
                #[link_name = concat!("uncopy_entry_", stringify!($name))]
                pub fn $name($($arg: $type),*) -> $result;
            )*
            $(
                #[doc = $in_doc]
                ///
                /// # Safety
                /// As its man page says.
                #[link_name = concat!("uncopy_entry_", stringify!($in))]
                pub fn $in($($in_arg: $in_type),*) -> ssize_t;
            )*
            $(
                #[doc = $list_doc]
                ///
                /// # Safety
                /// As its man page says.
                #[link_name = concat!("uncopy_entry_", stringify!($list))]
                pub fn $list($($list_arg: $list_type),*) -> ssize_t;
            )*
            $(
                #[doc = $copy_doc]
                ///
                /// # Safety
                /// As its man page says.
                #[link_name = concat!("uncopy_entry_", stringify!($copy))]
                pub fn $copy(dst: *mut c_void, src: *const c_void, n: usize) -> *mut c_void;
            )*
            $(
                #[doc = $file_doc]
                ///
                /// # Safety
                /// As its man page says.
                #[link_name = concat!("uncopy_entry_", stringify!($file))]
                pub fn $file($($file_arg: $file_type),*) -> $file_result;
            )*
        }
    };
}

with_rows!(declare);
