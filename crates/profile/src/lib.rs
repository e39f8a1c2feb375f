//! `libuncopy_profile.so`: runs a program as it is and follows its I/O data, for `uncopy profile`.
//!
//! A library of its own, apart from `libuncopy.so`: nothing is elided, no call is made otherwise
//! than the program makes it, and every call's return address is wanted; what programs run under in
//! production pays nothing for that.
//!
//! unsafe, everywhere in this crate: these functions *are* the C ABI, and pass on what their
//! callers promise; a file's own reasons stand at its head.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`entry`] | entry points that hand the return address on |
//! | [`mod@hooks`] | what each call means for the data |
//! | [`copy`] | memcpy and its kin |
//! | [`blocks`] | free, realloc, munmap and whatever else ends or moves data |
//! | [`other_names`] | what libc exports under a second name |
//! | [`start`] | how it begins and ends, also in forked children |
//! | [`state`] | the one follower and its lock |
//! | [`inside`] | whether a thread is in here |
//! | [`sites`] | which file a return address lies in |
//! | [`book`] | the file that the command reads |
//! | [`watch`] | takes pages away to see whether they are touched |

// The one macro that does so defines functions that are unsafe as a whole.
#![allow(clippy::macro_metavars_in_unsafe)]
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

pub mod blocks;
pub mod book;
pub mod copy;
pub mod entry;
pub mod hooks;
pub mod inside;
pub mod other_names;
pub mod sites;
pub mod start;
pub mod state;
pub mod watch;

use uncopy_heap::Heap;

/// Behind every `Box` and `Vec` of this library. It is used by the constructor, which is the first,
/// and with the follower's lock held, signals blocked; so no handler finds its own thread inside,
/// and fork, which takes the follower's lock, finds the heap's free.
#[global_allocator]
static HEAP: Heap = Heap::new();
