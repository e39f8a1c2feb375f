//! System calls in which a thread sleeps in a call of the program's, and that a signal is to end.
//! Before it sleeps a call looks for what it waits for, in the program; a handler that runs
//! meanwhile interrupts nothing, where Linux would be in the call and end it. So the call asks
//! whether one has run, and sleeps only where none has. One that comes between the question and the
//! system call is known by where it interrupts: then the call goes on as if it had been asleep.
//!
//! unsafe: the instructions, and whatever the call is.

use crate::critical::Thread;
use core::arch::global_asm;

// (number, arguments) -> what the kernel says.
global_asm!(
    ".pushsection .text.uncopy_sleeping, \"ax\", @progbits",
    ".globl uncopy_sleeping",
    ".hidden uncopy_sleeping",
    ".type uncopy_sleeping, @function",
    ".globl uncopy_sleeping_begins",
    ".hidden uncopy_sleeping_begins",
    ".globl uncopy_sleeping_ends",
    ".hidden uncopy_sleeping_ends",
    ".globl uncopy_sleeping_interrupted",
    ".hidden uncopy_sleeping_interrupted",
    ".balign 16",
    "uncopy_sleeping:",
    ".cfi_startproc",
    "mov rax, rdi",
    "mov r11, rsi",
    "mov rdi, qword ptr [r11]",
    "mov rsi, qword ptr [r11 + 8]",
    "mov rdx, qword ptr [r11 + 16]",
    "mov r10, qword ptr [r11 + 24]",
    "mov r8, qword ptr [r11 + 32]",
    "mov r9, qword ptr [r11 + 40]",
    "mov rcx, qword ptr [rip + uncopy_thread@GOTTPOFF]",
    "uncopy_sleeping_begins:",
    "cmp qword ptr fs:[rcx + {ran}], 0",
    "jne uncopy_sleeping_interrupted",
    "syscall",
    "uncopy_sleeping_ends:",
    "ret",
    "uncopy_sleeping_interrupted:",
    "mov rax, {interrupted}",
    "ret",
    ".cfi_endproc",
    ".size uncopy_sleeping, . - uncopy_sleeping",
    ".popsection",
    ran = const Thread::RAN,
    interrupted = const -libc::EINTR,
);

unsafe extern "C" {
    fn uncopy_sleeping(number: usize, arguments: &[usize; 6]) -> isize;
    fn uncopy_sleeping_begins();
    fn uncopy_sleeping_ends();
    fn uncopy_sleeping_interrupted();
}

/// Where a call goes on that a handler of the program's interrupts at `rip`, if it is about to
/// sleep there.
pub fn goes_on(rip: usize) -> Option<usize> {
    let of = |f: unsafe extern "C" fn()| f as *const () as usize;
    (of(uncopy_sleeping_begins)..of(uncopy_sleeping_ends))
        .contains(&rip)
        .then(|| of(uncopy_sleeping_interrupted))
}

/// A system call that leaves errno alone, in which this thread sleeps until there is something, or
/// a handler of the program's runs. EINTR also where one has run since
/// [`crate::critical::forget_handlers`].
///
/// # Safety
/// The caller keeps the contract of the system call.
pub unsafe fn sleep(number: usize, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's promise.
    unsafe { uncopy_sleeping(number, &arguments) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::critical;

    /// poll(2) of nothing, for 1 ms.
    fn naps() -> isize {
        // SAFETY: no list.
        unsafe { sleep(libc::SYS_poll as usize, [0, 0, 1, 0, 0, 0]) }
    }

    #[test]
    fn a_thread_that_was_interrupted_before_it_sleeps_does_not_sleep() {
        assert_eq!(naps(), 0);
        critical::handler_runs(libc::SIGUSR1);
        assert_eq!(naps(), -libc::EINTR as isize);
        let before = critical::forget_handlers();
        assert_eq!(naps(), 0);
        critical::remember_handlers(before);
        assert_eq!(naps(), -libc::EINTR as isize);
        critical::forget_handlers();
    }

    #[test]
    fn a_thread_that_is_about_to_sleep_goes_on_interrupted() {
        let of = |f: unsafe extern "C" fn()| f as *const () as usize;
        let (begins, ends) = (of(uncopy_sleeping_begins), of(uncopy_sleeping_ends));
        assert_eq!(goes_on(begins), Some(of(uncopy_sleeping_interrupted)));
        // (`syscall` has two bytes.)
        assert_eq!(goes_on(ends - 2), goes_on(begins));
        assert_eq!((goes_on(begins - 1), goes_on(ends)), (None, None));
    }
}
