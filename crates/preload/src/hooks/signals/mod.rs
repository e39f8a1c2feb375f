//! The program's signal handlers are entered through ours, so that none runs while its thread holds
//! the tracker's lock (see `uncopy_kernel::critical`). The program sees its own handlers
//! everywhere.
//!
//! Of some signals our entry stands in the kernel also where the program has no handler (*held*
//! signals): of SIGSEGV and SIGBUS once the program's pointers are read (see
//! `uncopy_kernel::user_access`), of those that dump core once anything may be unmapped, of those
//! that end a program as a rule where it is to say a summary (`--verbose`). There the default
//! action comes after ours. Only where the program ignores them it does so in the kernel: what it
//! executes must find them ignored.
//!
//! Where nothing of ours runs that a handler could interrupt (all is switched off, or not begun
//! yet), and where another library chains handlers behind us, all these calls are the next
//! library's as they are.
//!
//! The kernel's answer is the truth; our table adds to it only where the kernel has our entry. So
//! it does not matter who changed a handler past us, or in a child that shares our memory but not
//! its handlers (vfork).
//!
//!
//! | module | one idea |
//! | --- | --- |
//! | `table` | what the program said of each signal |
//! | `entry` | what the kernel has for a handler |
//! | `held` | signals that always come to us |
//! | `dying` | before a signal ends the program: a core is made whole, a summary said |
//! | [`action`] | `sigaction` |
//! | [`older`] | `signal` and its kin |
//! | [`stack`] | `sigaltstack` |

pub mod action;
mod dying;
mod entry;
mod held;
pub mod older;
pub mod stack;
mod table;

pub(super) use action::rt_sigaction;
pub(super) use held::let_all_go;
pub use held::{catch_faults, hold_dumping, hold_ending};
pub(super) use stack::sigaltstack;
pub use table::{after_fork_parent, before_fork, enter};

/// This process has the table, and handles forks: at its start, or as fork's child.
pub fn own() {
    table::own();
    dying::nobody();
}
