//! Where the log's bytes lie, what makes them durable, and how held bytes get into their file.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`store`] | the trait: memory, `flush`, `home` |
//! | [`kinds`] | a log's file is made and opened, by the kind of store |
//! | [`direct`] | a preallocated file, written by O_DIRECT and RWF_DSYNC |
//! | [`dax`] | a file of persistent memory, mapped with MAP_SYNC |
//! | [`memory`] | a file in memory: outlives programs, not power |
//! | [`mod@home`] | whole blocks past the page cache, the rest through it |
//! | [`held_memory`] | memory that outlives the program: a tmpfs file; room is taken first |
//! | [`failed`] | what did not work, and what to do |
//! | `file` | what stores have in common |
//! | [`staging`] | where records are put together: aligned as O_DIRECT wants it |
//!
//! Every system call is made through the injector ([`uncopy_kernel::inject`]), so that tests can
//! make it fail.

pub mod dax;
pub mod direct;
pub mod failed;
mod file;
pub mod held_memory;
pub mod home;
pub mod kinds;
pub mod memory;
pub mod staging;
pub mod store;

pub use failed::Failed;
pub use held_memory::HeldMemory;
pub use home::{Homed, home};
pub use kinds::{create, open};
pub use store::{Kind, Store};
