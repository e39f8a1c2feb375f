//! Where an object's text calls the kernel, and which instructions there can be displaced by a jump
//! of five bytes.
//!
//! **Where instructions begin.** The text of a shared object has no list of them. The unwinder's
//! tables (`.eh_frame_hdr`), which are loaded with it, say where nearly every function begins and
//! ends. The text between two such addresses is decoded from the first one. If the decoder comes
//! out at the second one exactly, and met nothing invalid, it is *sound*. In text that is not, no
//! instruction is believed in: a system call's bytes there are [`Trouble::Unsure`]. Only text is
//! decoded that has a call, or that has bytes that may lead near one.
//!
//! **Instructions that can be displaced** move data or compute, name no address relative to
//! themselves, and are entered by nobody but at the first one. A *landing* is an address that text
//! may be entered at otherwise than from the instruction before it:
//!
//! - the target of a direct jump, call or loop,
//! - an address in text that an instruction computes (`lea`), or that stands in the object's data:
//!   functions, labels whose address is taken,
//! - an entry of a jump table: offsets of 32 bits from the table's own address, which an
//!   instruction computes,
//! - a landing pad of exceptions and cancellation, by the tables of the unwinder,
//! - the first instruction of a function, and every `endbr64`.
//!
//! Addresses behind a call are none here: calls are not displaced, so the address that they return
//! to can only be the first of the displaced instructions. A computed `goto` relative to a label in
//! text reaches only what the list above does not have if its function calls the kernel itself,
//! behind such a label, with a number that was set before the `goto`.
//!
//! Of other objects only whether they have a system call matters ([`first_call`]). In text that is
//! not sound it counts if anything seems to lead there.
//!
//! **The call in which threads are cancelled** (glibc 2.41) is none that can be displaced like
//! others: its function is, as a whole (`cancels`).
//!
//! The rules err on the side of [`Trouble`]: an object with a place that has no room is left alone
//! as a whole.
#![forbid(unsafe_code)]

#[cfg(test)]
mod by_objdump;
mod bytes;
mod cancels;
#[cfg(test)]
mod compared;
mod cursor;
mod descent;
mod frames;
mod landings;
#[cfg(test)]
mod linked;
mod marks;
mod needed;
pub mod object;
mod places;
mod runs;
mod sweep;
mod tables;

pub use descent::first_call;
pub use places::{CALL, JUMP, Place, places};

use core::fmt;

/// Why an object is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No five bytes around the system call at this address can be displaced.
    NoRoom(u64),
    /// The instruction at this address calls the kernel, but is no `syscall` (`int 0x80`,
    /// `sysenter`).
    Other(u64),
    /// The bytes at this address may be a system call, and it is not known where instructions begin
    /// there.
    Unsure(u64),
    /// The unwinder's tables are missing, or not of the usual form.
    NoFrames,
}

impl fmt::Display for Trouble {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom(at) => write!(to, "the system call at {at:#x} has no room for a jump"),
            Self::Other(at) => write!(to, "int 0x80 or sysenter at {at:#x}"),
            Self::Unsure(at) => write!(to, "{at:#x} may be a system call, or may not"),
            Self::NoFrames => write!(to, "it has no table of its functions"),
        }
    }
}
