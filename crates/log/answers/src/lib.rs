//! A sync may return before its bytes are durable if nothing that follows from it leaves the
//! process before they are: the answer waits, not the program.
//!
//! All that leaves a process is a system call, and each one is judged below libc (`uncopy_gate`).
//! Bytes for an internet stream go into a queue; all else waits in its call. Which files are to
//! become durable, and how, is the caller's: here they are numbers.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`calls`] | what a system call means: the table; pure |
//! | [`mappings`] | whether a process shares memory that it can write to; pure |
//! | `sockets` | what the kernel knows of a descriptor |
//! | `bytes` | what a call is about to send |
//! | `gate` | the gate below libc, and why it is not to be had |
//! | [`outputs`] | the one value of a process: numbers, queues, who waits |
//! | `judge` | a system call is made, put off, or left to the kernel |
//! | `flushing` | the thread that makes syncs durable and sends what may leave |

mod bytes;
pub mod calls;
mod flushing;
mod gate;
mod judge;
pub mod mappings;
pub mod outputs;
mod sockets;

pub use gate::found;
pub use outputs::{Outputs, Settings, Trial};
pub use uncopy_log_book::as_ever::AsEver;

/// As the library has it: the thread that flushes is none of libc's, whose allocator may ask for
/// its thread's locale.
#[cfg(test)]
#[global_allocator]
static HEAP: uncopy_heap::Heap = uncopy_heap::Heap::new();
