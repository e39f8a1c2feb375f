//! Sending by reference: pages that stay as they are for ever go to a socket or a pipe without
//! being copied.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`send`] | one send, whose result is what the plain call's would have been |
//! | [`kind`] | what a descriptor of the program's is |
//! | [`left`] | a send that is left in the middle |
//! | [`pipes`], `slot` | our pipes; one of them |
//! | `pieces` | the pieces of a call |
//! | `ask` | what is asked of the program's descriptors |

mod ask;
pub mod kind;
pub mod left;
mod pacing;
mod pieces;
pub mod pipes;
pub mod send;
mod slot;
