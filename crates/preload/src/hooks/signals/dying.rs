//! The program is about to die of a signal: before it dumps core everything is put in place; before
//! another one ends it its summary is said.
//!
//! Statics: a dying process has nothing else to stand on.
//!
//! unsafe: runs on another stack.

use crate::process::PROCESS;
use crate::summary;
use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, Ordering};

/// For whoever dies: its own stack may be small, or nearly used up.
#[repr(align(16))]
struct LastStack(UnsafeCell<[u8; LAST_STACK]>);

/// The stack that the tracker needs at most, and as much again.
const LAST_STACK: usize = 64 << 10;

// SAFETY: used by one thread, the one that changed DYING.
unsafe impl Sync for LastStack {}

static LAST: LastStack = LastStack(UnsafeCell::new([0; LAST_STACK]));

/// The result.
static DYING: AtomicU8 = AtomicU8::new(NOBODY);

const NOBODY: u8 = 0;

const AT_WORK: u8 = 1;

const DONE: u8 = 2;

/// Materializes everything, before the kernel dumps core.
pub(in crate::hooks) fn before_core_dump() {
    once(before_core);
}

/// Says the summary, before the kernel ends the program.
pub(in crate::hooks) fn before_end() {
    once(summarize);
}

fn once(what: extern "C" fn()) {
    match DYING.compare_exchange(NOBODY, AT_WORK, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            let top = LAST.0.get() as usize + LAST_STACK;
            // SAFETY: nobody else uses that stack, which is mapped.
            unsafe { on_stack(top, what) };
            DYING.store(DONE, Ordering::Release);
        }
        // Another thread is at it. (Not for ever, if that one is killed alone by a debugger.)
        Err(_) => {
            let _ = (0..LAST_TRIES).any(|_| {
                // SAFETY: a plain call.
                unsafe { libc::sched_yield() };
                DYING.load(Ordering::Acquire) == DONE
            });
        }
    }
}

const LAST_TRIES: usize = 1_000_000;

extern "C" fn before_core() {
    PROCESS.before_core_dump();
}

extern "C" fn summarize() {
    summary::end();
}

/// Calls `f` on another stack, which ends at `top`.
#[unsafe(naked)]
unsafe extern "C" fn on_stack(top: usize, f: extern "C" fn()) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}

/// In a process of its own nobody has died yet.
pub(super) fn nobody() {
    DYING.store(NOBODY, Ordering::Relaxed);
}
