//! The one value that has a process's state, above the rooms that it consists of, and what concerns
//! several of them: forks, ends, rights, what is ours in the program's memory.
//!
//! Functions that need any of it are given the [`Process`](process::Process); the preload library
//! has the one static.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`process`] | the value |
//! | [`calls`] | what is remembered of the program's calls from one to the next |
//! | [`fork`] | what is done before and after |
//! | [`ends`] | the program forbids itself, or limits, what we need; a core is dumped |
//! | [`rights`] | our threads have no more rights than the program's |

pub mod calls;
pub mod ends;
pub mod fork;
pub mod process;
pub mod rights;
