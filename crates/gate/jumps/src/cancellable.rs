//! The call in which threads are cancelled (glibc 2.41 and later; `uncopy_gate_places` finds it).
//! Its function begins by a jump to [`address`], which has the call judged, and then goes on in the
//! function's text:
//!
//! ```text
//!      jmp ENTRY                    all arguments are as for a function in C
//! + 5: testb $8, (%r11)             where the thread's cancellation is
//!      jne to where a cancelled thread goes
//!      jmp to the call
//!      int3 ...
//!      syscall
//! ```
//!
//! A thread that is cancelled already goes on at once: its call is neither judged nor made. A
//! signal that cancels acts between the function's first instruction and the call. One that comes
//! before, on the way to the judge or while that waits, is found by the look, and one that comes
//! after the look acts. A call that the judge has made returns as one does that the kernel has
//! made; the thread's next call is then not.
//!
//! Statics: the instructions have nothing in hand.
//!
//! unsafe: the instructions.

use crate::trampoline::distance;
use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use uncopy_gate_places::{JUMP, Place};

/// In the first byte of where a thread's cancellation is: it is cancelled.
const CANCELLED: u8 = 8;

/// Where the function goes on; 0: this libc has none.
static GOES_ON: AtomicU64 = AtomicU64::new(0);

// Called as `__syscall_cancel_arch` is: where the thread's cancellation is, the number, six
// arguments, of which the last two are on the stack.
global_asm!(
    ".pushsection .text.uncopy_gate_cancellable, \"ax\", @progbits",
    ".globl uncopy_gate_cancellable",
    ".hidden uncopy_gate_cancellable",
    ".type uncopy_gate_cancellable, @function",
    ".balign 16",
    "uncopy_gate_cancellable:",
    ".cfi_startproc",
    "mov r11, rdi",
    "mov rax, rsi",
    "mov rdi, rdx",
    "mov rsi, rcx",
    "mov rdx, r8",
    "mov r10, r9",
    "mov r8, qword ptr [rsp + 8]",
    "mov r9, qword ptr [rsp + 16]",
    "test byte ptr [r11], {cancelled}",
    "jne 2f",
    "push r11",
    ".cfi_adjust_cfa_offset 8",
    // rcx: was it made? All others stay, but rax, if it was.
    "call uncopy_gate_enter",
    "pop r11",
    ".cfi_adjust_cfa_offset -8",
    "jrcxz 2f",
    "ret",
    "2:",
    "jmp qword ptr [rip + {goes_on}]",
    ".cfi_endproc",
    ".size uncopy_gate_cancellable, . - uncopy_gate_cancellable",
    ".popsection",
    goes_on = sym GOES_ON,
    cancelled = const CANCELLED,
);

unsafe extern "C" {
    fn uncopy_gate_cancellable();
}

/// Where the function's jump leads.
pub(crate) fn address() -> u64 {
    uncopy_gate_cancellable as *const () as u64
}

/// It is known where the function goes on: before there is the jump.
pub(crate) fn prepare(place: &Place) {
    GOES_ON.store(place.from + JUMP, Relaxed);
}

/// The text of the function up to its call, from which a cancelled thread goes `to` there. `None`:
/// no jump reaches so far.
pub(crate) fn text(place: &Place, to: u64, entry: u64) -> Option<Vec<u8>> {
    let mut text = vec![0xe9];
    text.extend(distance(place.from + JUMP, entry)?);
    text.extend([0x41, 0xf6, 0x03, CANCELLED, 0x0f, 0x85]);
    text.extend(distance(place.from + text.len() as u64 + 4, to)?);
    let behind = place.from + text.len() as u64 + 2;
    text.extend([0xeb, i8::try_from(place.call.checked_sub(behind)?).ok()? as u8]);
    text.resize((place.end - place.from) as usize, 0xcc);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_asks_the_judge_and_then_looks_whether_its_thread_is_cancelled() {
        let place = Place {
            from: 0x1000,
            call: 0x102c,
            end: 0x102c,
            number: None,
            begins: vec![0x1000],
            cancels: Some(0x5000),
        };
        let text = text(&place, 0x5000, 0x3005).unwrap();
        // From 0x1005 to 0x3005; from 0x100f to 0x5000; from 0x1011 to 0x102c.
        let mut expected = vec![0xe9, 0, 0x20, 0, 0, 0x41, 0xf6, 0x03, 8];
        expected.extend([0x0f, 0x85, 0xf1, 0x3f, 0, 0, 0xeb, 0x1b]);
        expected.resize(0x2c, 0xcc);
        assert_eq!(text, expected);
        assert_eq!(super::text(&place, 0x2_0000_0000, 0x3005), None);
    }
}
