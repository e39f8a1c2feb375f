//! Following I/O data through a program that is left to copy it (`uncopy profile`; zIO 2.1, Table
//! 1).
//!
//! Every input gets a number, its bytes get *tags* (this input, this offset, this sequence of
//! copies); tags travel with copies, end where other bytes are put in their place, and are credited
//! at output. Credits lie in a [`layout::Tables`], which another process reads.
//!
//! Copies by inlined code, and bytes that the program writes itself, are not seen. So the follower
//! keeps fingerprints (8 bytes in every 256) of what arrived: bytes that are no longer those of the
//! input are not credited to it.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`layout`] | the words that a followed process leaves |
//! | [`follower`] | inputs, copies and outputs, as they happen |
//! | [`tags`] | which bytes of memory are which bytes of which input |
//! | [`inputs`] | the inputs that are somewhere still |
//! | `follower::watch` | which pages of a watched input are touched |
//! | [`part`] | the words, understood |
//! | [`predict`] | what uncopy would save |
#![forbid(unsafe_code)]

pub mod follower;
pub mod inputs;
pub mod layout;
pub mod part;
pub mod predict;
pub mod tags;

pub use self::follower::{Bounds, Follower, ProgramMemory, REST_MS};
pub use self::layout::Sizes;
