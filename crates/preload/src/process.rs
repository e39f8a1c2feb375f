//! The one value that has this process's state. It is zeros at first (a test looks for it among
//! what takes no room in the library's file), and lies at a fixed address, so that code on the way
//! of every call has no pointer to follow.

use uncopy_process::process::Process;

/// See the module.
pub static PROCESS: Process = Process::new();
