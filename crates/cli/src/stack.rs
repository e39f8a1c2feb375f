//! Room on the stack, also where `ulimit -s` leaves little: the definitions of all subcommands are
//! made there.

use std::process::ExitCode;
use std::thread::Builder;

use nix::sys::resource::{Resource, getrlimit};

/// The bytes that the command needs at most, and as much again.
const ROOM: usize = 2 << 20;

/// Calls `program`, on a stack of its own where this thread's is small. (Otherwise not: what the
/// kernel keeps for a thread, as the signal at its parent's death, goes to the program that
/// `uncopy run` becomes.)
pub fn with_room(program: fn() -> ExitCode) -> ExitCode {
    let small = getrlimit(Resource::RLIMIT_STACK).is_ok_and(|(soft, _)| soft < ROOM as u64);
    if !small {
        return program();
    }
    match Builder::new().stack_size(ROOM).spawn(program) {
        Ok(thread) => thread.join().unwrap_or(ExitCode::FAILURE),
        // (No memory for it: then on the one that there is.)
        Err(_) => program(),
    }
}
