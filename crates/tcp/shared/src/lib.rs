//! The memory that two programs of one host share for the TCP connections between them.
//!
//! A *region* is one sealed memfd that exactly two programs map. It has a *slot* for each of their
//! connections: two byte rings, one each way, and a header. Each program treats all of it as
//! written by an enemy: what it decides by is its own, what it reads from here is checked, and
//! payload is copied by instructions that do not mind when it changes meanwhile.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`layout`] | what lies where |
//! | [`ring`] | what producer and consumer publish, and the positions that each decides by |
//! | [`runs`] | which of a stream's bytes lie in blocks instead |
//! | [`returns`] | how blocks come back, in any order |
//! | [`closed`] | who gives back what nobody receives |
//! | [`mod@file`] | memory files, and the limit of their length |
//! | [`arena`] | the memfd of blocks, which one program writes |
//! | [`phase`] | whether a direction's bytes go through Linux or the ring, and in which order |
//! | [`wanted`] | who wants to be told, and the falling asleep that loses no wake-up |
//! | [`notice`] | which of many connections have news |
//! | [`region`] | the memfd, sealed and mapped |
//! | [`copy`] | bytes that may change while they are copied, to addresses that may lead nowhere |
//! | [`stores`] | whether they are stored through the caches or past them |
//! | [`ticks`](mod@ticks) | when something happened |
//! | [`sync`] | atomics, which the tests exchange for loom's |

#[cfg(not(all(loom, test)))]
pub mod arena;
pub mod closed;
#[cfg(not(all(loom, test)))]
pub mod copy;
#[cfg(not(all(loom, test)))]
pub mod file;
pub mod layout;
pub mod notice;
pub mod phase;
#[cfg(not(all(loom, test)))]
pub mod region;
pub mod returns;
pub mod ring;
pub mod runs;
#[cfg(not(all(loom, test)))]
pub mod stores;
pub mod sync;
pub mod ticks;
pub mod wanted;

/// The other side wrote what no honest one writes. The connection is lost (ECONNRESET), nothing
/// else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poisoned;
