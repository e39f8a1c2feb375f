//! The books of an arena of blocks. Nothing here touches a byte: an arena is so many pages, a block
//! some of them in a row.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`pages`] | which pages are free: the lowest that fit are taken, so few are in use, and warm |
//! | [`out`] | what one peer has been given, and how much of that it has given back, in any order |
#![forbid(unsafe_code)]

pub mod out;
pub mod pages;
