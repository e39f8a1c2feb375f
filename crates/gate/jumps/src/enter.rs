//! From a trampoline to the judge, and back with all registers as the kernel would leave them.
//!
//! A call that comes here unasked (its number is one of [`ALWAYS`], or is not known) is looked at
//! first: whether it is one that is judged.
//!
//! The frame on the program's stack: the red zone (the trampoline has stepped over it), flags, the
//! call's registers, and, if it is judged, what the processor has of vector registers. On an
//! alternate signal stack with little room left the latter, and the judge, are on a stack of ours:
//! one of a few, with a lock each, and with all signals blocked but those of faults, whose handlers
//! run on that stack (a judge may read by pointers that lead nowhere, and have the fault handled).
//!
//! A lock has the number of the thread that is on the stack. A forked child finds all locks zero
//! (`MADV_WIPEONFORK`), a child that has the same memory finds them as they are. A thread that died
//! on a stack (a child of `vfork` that was killed) is found out when all are taken.
//!
//! Statics: the instructions have nothing in hand.
//!
//! unsafe: the instructions, and what they hand over.

use crate::{ALWAYS, Call, Judge, PENDING, Reason, Refusal, SIGALTSTACK, Verdict};
use core::arch::global_asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;
use uncopy_kernel::call::syscall4;

static JUDGE: OnceLock<Judge> = OnceLock::new();

/// The parts that are saved of the processor's state (`XCR0`); 0: those that `fxsave` saves.
static STATE: AtomicU64 = AtomicU64::new(0);
/// The bytes that it takes.
static STATE_BYTES: AtomicU64 = AtomicU64::new(512);

/// Some thread of the process has, or had, an alternate signal stack: whether a call is on one is
/// worth a question. (None stays over `execve`.)
static ALTERNATE: AtomicBool = AtomicBool::new(false);

/// Below this much room on an alternate signal stack, a stack of ours is used: [`NEEDED`], and what
/// a handler needs that interrupts the judge (the kernel's frame is 11 KB where it saves tiles).
static LITTLE: AtomicU64 = AtomicU64::new(NEEDED + FOR_A_HANDLER);
/// 128 of the red zone, 200 of registers, up to 2,752 of vectors, 4 KB for the judge.
const NEEDED: u64 = 7 << 10;
const FOR_A_HANDLER: u64 = 5 << 10;

/// The stacks of ours.
#[repr(C, align(64))]
struct Stacks(UnsafeCell<[[u8; STACK]; STACKS]>);
const STACK: usize = 1 << STACK_SHIFT;
const STACK_SHIFT: u32 = 16;
const STACKS: usize = 8;
// SAFETY: only the instructions below touch one, of a thread that has its lock.
unsafe impl Sync for Stacks {}
static OURS: Stacks = Stacks(UnsafeCell::new([[0; STACK]; STACKS]));

/// The words that a forked child finds as zeros, a page.
#[repr(C, align(4096))]
struct Wiped {
    /// Of each stack: the thread that is on it.
    locks: [AtomicU32; STACKS],
    /// The process whose memory this is; 0: not known yet.
    process: AtomicU32,
    _rest: [u8; PAGE - 4 * STACKS - 4],
}
const PAGE: usize = 4096;
static WIPED: Wiped = Wiped {
    locks: [const { AtomicU32::new(0) }; STACKS],
    process: AtomicU32::new(0),
    _rest: [0; PAGE - 4 * STACKS - 4],
};
/// How often a stack was left: a thread that waits for one sleeps here.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// Nothing is judged any more: a filter of system calls, or a dispatch of them to the program, is
/// in force or about to be, which might end the process for a call of the gate's.
static OVER: AtomicBool = AtomicBool::new(false);

/// Somebody made memory executable that may not have been: what is in it nobody has looked at.
static CODE_MADE: AtomicBool = AtomicBool::new(false);

/// The numbers that [`NUMBERS`] has. (A call beyond is judged always: nobody knows what it is.)
const KNOWN: u32 = 512;
/// A bit for each of [`ALWAYS`].
static NUMBERS: [u32; KNOWN as usize / 32] = {
    let mut bits = [0; KNOWN as usize / 32];
    let mut i = 0;
    while i < ALWAYS.len() {
        bits[ALWAYS[i] as usize / 32] |= 1 << (ALWAYS[i] % 32);
        i += 1;
    }
    bits
};

// From a trampoline: all registers are the program's but rcx and r11. Returns with rcx: 0 if the
// call is to be made, else it was, and rax is its result. Unwinders are told where each of them is:
// in `vfork` libc has the return address in rdi.
global_asm!(
    ".pushsection .text.uncopy_gate_enter, \"ax\", @progbits",
    ".globl uncopy_gate_enter",
    ".hidden uncopy_gate_enter",
    ".type uncopy_gate_enter, @function",
    ".balign 16",
    "uncopy_gate_enter:",
    ".cfi_startproc",
    "pushfq",
    ".cfi_adjust_cfa_offset 8",
    "push rbp",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset 6, -24",
    "mov rbp, rsp",
    ".cfi_def_cfa_register 6",
    "cld",
    // A `Call`, at rbp - 56.
    "push r9",
    ".cfi_offset 9, -32",
    "push r8",
    ".cfi_offset 8, -40",
    "push r10",
    ".cfi_offset 10, -48",
    "push rdx",
    ".cfi_offset 1, -56",
    "push rsi",
    ".cfi_offset 4, -64",
    "push rdi",
    ".cfi_offset 5, -72",
    "push rax",
    ".cfi_offset 0, -80",
    "push rbx",
    ".cfi_offset 3, -88",
    // rbp - 72: signals, then the verdict; - 80: the signal mask, or the type of cancellation;
    // - 104: the alternate stack, a `stack_t`; - 120: a time.
    "sub rsp, 56",
    "mov qword ptr [rbp - 72], 0",
    "cmp byte ptr [rip + {over}], 0",
    "jne 8f",
    "cmp qword ptr [rip + {pending}], 0",
    "jne 35f",
    "cmp eax, {known}",
    "jae 35f",
    "lea rcx, [rip + {numbers}]",
    "bt dword ptr [rcx], eax",
    "jnc 8f",
    // Some only as their arguments are: mmap; mprotect, pkey_mprotect; sendto, sendmmsg; sendmsg.
    "cmp eax, 9",
    "je 31f",
    "cmp eax, 10",
    "je 32f",
    "cmp eax, 329",
    "je 32f",
    "cmp eax, 44",
    "je 33f",
    "cmp eax, 307",
    "je 33f",
    "cmp eax, 46",
    "jne 35f",
    "test edx, {zerocopy}",
    "jz 8f",
    "jmp 35f",
    "33:",
    "test r10d, {zerocopy}",
    "jz 8f",
    "jmp 35f",
    "31:",
    "test r10d, 1", // MAP_SHARED, MAP_SHARED_VALIDATE
    "jnz 35f",
    "32:",
    "test edx, 4", // PROT_EXEC
    "jz 8f",
    "35:",
    // With this flag unaligned accesses are signals.
    "test byte ptr [rbp + 10], 4", // AC
    "jz 36f",
    "pushfq",
    "and dword ptr [rsp], {unaligned}",
    "popfq",
    "36:",
    "xor ebx, ebx",
    "cmp byte ptr [rip + {alternate}], 0",
    "je 2f",
    "mov eax, {sigaltstack}",
    "xor edi, edi",
    "lea rsi, [rbp - 104]",
    "syscall",
    "test eax, eax",
    "jnz 2f",
    "test byte ptr [rbp - 96], 1", // SS_ONSTACK
    "jz 2f",
    "mov rax, rsp",
    "sub rax, qword ptr [rbp - 104]",
    "cmp rax, qword ptr [rip + {little}]",
    "jae 2f",
    "mov qword ptr [rbp - 72], {blocked}",
    "mov eax, 14",  // rt_sigprocmask
    "xor edi, edi", // SIG_BLOCK
    "lea rsi, [rbp - 72]",
    "lea rdx, [rbp - 80]",
    "mov r10d, 8",
    "syscall",
    "mov eax, 186", // gettid
    "syscall",
    "mov r9d, eax",
    "20:",
    "mov r8d, dword ptr [rip + {left}]",
    "lea rdx, [rip + {locks}]",
    "mov ebx, 1",
    "22:",
    "xor eax, eax",
    "lock cmpxchg dword ptr [rdx + 4 * rbx - 4], r9d",
    "je 3f",
    "inc ebx",
    "cmp ebx, {stacks}",
    "jbe 22b",
    // Of who is dead it is taken over, by the process itself: a child that has the same memory may
    // not see its threads.
    "mov eax, 39", // getpid
    "syscall",
    "cmp eax, dword ptr [rdx + {process}]",
    "jne 25f",
    "mov ebx, 1",
    "23:",
    "mov edi, dword ptr [rdx + 4 * rbx - 4]",
    "test edi, edi",
    "jz 20b",
    "xor esi, esi",
    "mov eax, 200", // tkill
    "syscall",
    "cmp eax, -3", // ESRCH
    "jne 24f",
    "mov eax, edi",
    "lock cmpxchg dword ptr [rdx + 4 * rbx - 4], r9d",
    "je 3f",
    "24:",
    "inc ebx",
    "cmp ebx, {stacks}",
    "jbe 23b",
    "25:",
    "mov qword ptr [rbp - 120], 0",
    "mov qword ptr [rbp - 112], {again}",
    "mov eax, {futex}",
    "lea rdi, [rip + {left}]",
    "mov esi, 128", // FUTEX_WAIT_PRIVATE
    "mov edx, r8d",
    "lea r10, [rbp - 120]",
    "syscall",
    "jmp 20b",
    "3:",
    "mov eax, ebx",
    "shl rax, {shift}",
    "lea rsp, [rip + {ours}]",
    "add rsp, rax",
    // A handler of a fault (of who reads by pointers of the program's) is put on this one, too.
    "push 0",
    "push 2", // SS_DISABLE
    "push 0",
    "mov eax, {sigaltstack}",
    "mov rdi, rsp",
    "xor esi, esi",
    "syscall",
    "2:",
    "sub rsp, qword ptr [rip + {bytes}]",
    "and rsp, -64",
    "mov eax, dword ptr [rip + {state}]",
    "mov edx, dword ptr [rip + {state} + 4]",
    "mov ecx, eax",
    "or ecx, edx",
    "jz 4f",
    // (The bytes of the header that it does not write must be zero when it is loaded.)
    "xor ecx, ecx",
    "mov qword ptr [rsp + 512], rcx",
    "mov qword ptr [rsp + 520], rcx",
    "mov qword ptr [rsp + 528], rcx",
    "mov qword ptr [rsp + 536], rcx",
    "mov qword ptr [rsp + 544], rcx",
    "mov qword ptr [rsp + 552], rcx",
    "mov qword ptr [rsp + 560], rcx",
    "mov qword ptr [rsp + 568], rcx",
    "xsave64 [rsp]",
    "jmp 5f",
    "4:",
    "fxsave64 [rsp]",
    "5:",
    // libc enables cancellation at any moment around some calls. A frame that it unwinds must be
    // none of Rust's, so cancellation waits meanwhile. (On the stack of ours no signal comes that
    // would cancel.) libc is called by its address: a stub of the linker's (`.plt`) has no entry in
    // `.eh_frame` where lld made it, and a thread that is cancelled there runs no cleanup handler.
    "test ebx, ebx",
    "jnz 21f",
    "mov edi, {deferred}",
    "lea rsi, [rbp - 80]",
    "call qword ptr [rip + {set_cancel_type}@GOTPCREL]",
    "21:",
    "lea rdi, [rbp - 56]",
    "call {judge}",
    "mov qword ptr [rbp - 72], rax",
    "test ebx, ebx",
    "jnz 9f",
    "cmp dword ptr [rbp - 80], {asynchronous}",
    "jne 9f",
    "mov edi, {asynchronous}",
    "xor esi, esi",
    "call qword ptr [rip + {set_cancel_type}@GOTPCREL]",
    "9:",
    "mov eax, dword ptr [rip + {state}]",
    "mov edx, dword ptr [rip + {state} + 4]",
    "mov ecx, eax",
    "or ecx, edx",
    "jz 6f",
    "xrstor64 [rsp]",
    "jmp 7f",
    "6:",
    "fxrstor64 [rsp]",
    "7:",
    "test ebx, ebx",
    "jz 8f",
    "lea rsp, [rbp - 120]",
    "mov dword ptr [rbp - 96], 0", // (It is in use, says the kernel.)
    "mov eax, {sigaltstack}",
    "lea rdi, [rbp - 104]",
    "xor esi, esi",
    "syscall",
    "lea rdi, [rip + {locks}]",
    "mov dword ptr [rdi + 4 * rbx - 4], 0",
    "lock inc dword ptr [rip + {left}]",
    "mov eax, {futex}",
    "lea rdi, [rip + {left}]",
    "mov esi, 129", // FUTEX_WAKE_PRIVATE
    "mov edx, 1",
    "syscall",
    "mov eax, 14",
    "mov edi, 2",
    "lea rsi, [rbp - 80]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "8:",
    "mov rcx, qword ptr [rbp - 72]",
    "lea rsp, [rbp - 64]",
    "pop rbx",
    ".cfi_restore 3",
    "pop rax",
    ".cfi_restore 0",
    "pop rdi",
    ".cfi_restore 5",
    "pop rsi",
    ".cfi_restore 4",
    "pop rdx",
    ".cfi_restore 1",
    "pop r10",
    ".cfi_restore 10",
    "pop r8",
    ".cfi_restore 8",
    "pop r9",
    ".cfi_restore 9",
    "pop rbp",
    ".cfi_def_cfa 7, 16",
    ".cfi_restore 6",
    "popfq",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".size uncopy_gate_enter, . - uncopy_gate_enter",
    ".popsection",
    alternate = sym ALTERNATE,
    blocked = const !(1_i32 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1)),
    sigaltstack = const SIGALTSTACK,
    futex = const 202,
    little = sym LITTLE,
    over = sym OVER,
    pending = sym PENDING,
    known = const KNOWN,
    numbers = sym NUMBERS,
    zerocopy = const libc::MSG_ZEROCOPY,
    unaligned = const !(1_i32 << 18),
    locks = sym WIPED,
    process = const core::mem::offset_of!(Wiped, process),
    stacks = const STACKS,
    left = sym LEFT,
    again = const AGAIN,
    ours = sym OURS,
    shift = const STACK_SHIFT,
    bytes = sym STATE_BYTES,
    state = sym STATE,
    judge = sym judge,
    deferred = const DEFERRED,
    asynchronous = const ASYNCHRONOUS,
    set_cancel_type = sym pthread_setcanceltype,
);

/// After so many ns who waits for a stack looks again whether somebody died on one.
const AGAIN: i32 = 10_000_000;

unsafe extern "C" {
    fn uncopy_gate_enter();
}

unsafe extern "C" {
    // (Of libc's, without a system call. Cancellation that it enables acts at once: it unwinds.)
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}
const DEFERRED: c_int = 0;
const ASYNCHRONOUS: c_int = 1;

/// Whether the call was made. (A handler that runs on top of it may cancel the thread: the unwinder
/// comes by here.)
extern "C-unwind" fn judge(call: *mut Call) -> u64 {
    let judge = JUDGE.get().expect("a judge was set before the jumps");
    // SAFETY: the instructions above made it on the stack; nobody else knows it.
    let seen = unsafe { *call };
    // (Each call that makes a child is judged: so it is known before there is one that has the
    // same memory.)
    if WIPED.process.load(Relaxed) == 0 {
        WIPED.process.store(own_process(), Relaxed);
    }
    if seen.number as u32 == SIGALTSTACK {
        ALTERNATE.fetch_or(seen.args[0] != 0, Relaxed);
        if PENDING.load(Relaxed) == 0 {
            return 0;
        }
    }
    if makes_code(&seen) {
        CODE_MADE.store(true, Relaxed);
    }
    match judge(&seen) {
        Verdict::GoOn => {
            // (A child that has the same memory has a filter of its own.)
            if filters(&seen) && WIPED.process.load(Relaxed) == own_process() {
                OVER.store(true, Relaxed);
            }
            0
        }
        Verdict::Made(result) => {
            // SAFETY: as above.
            unsafe { (*call).number = result as u64 };
            1
        }
    }
}

/// Whether the call makes memory executable that is there. (`mmap` makes new one.)
fn makes_code(call: &Call) -> bool {
    const MPROTECT: u32 = 10;
    const PKEY_MPROTECT: u32 = 329;
    matches!(call.number as u32, MPROTECT | PKEY_MPROTECT)
        && call.args[2] & libc::PROT_EXEC as u64 != 0
}

/// Whether the call puts a filter of system calls in force, or has them dispatched to the program
/// (then a call of the gate's would be a signal, SIGSYS).
fn filters(call: &Call) -> bool {
    const PRCTL: u32 = 157;
    const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
    const SECCOMP: u32 = 317;
    const SECCOMP_SET_MODE_FILTER: u64 = 1;
    match call.number as u32 {
        PRCTL => match call.args[0] as i32 {
            libc::PR_SET_SECCOMP => true,
            PR_SET_SYSCALL_USER_DISPATCH => call.args[1] != 0,
            _ => false,
        },
        SECCOMP => call.args[0] & 0xffff_ffff <= SECCOMP_SET_MODE_FILTER,
        _ => false,
    }
}

/// Whether the gate has all calls, of all code that it has looked at, and will have them.
pub(crate) fn has_all() -> Result<(), Refusal> {
    if OVER.load(Relaxed) {
        return Err(Refusal::new(Reason::Sandbox, "a filter of system calls"));
    }
    if CODE_MADE.load(Relaxed) {
        return Err(Refusal::new(Reason::Code, "memory was made executable"));
    }
    Ok(())
}

/// Nothing is judged from now on.
pub(crate) fn ends() {
    OVER.store(true, Relaxed);
}

/// (By an instruction of ours: the function of that name may be judged.)
pub(crate) fn own_process() -> u32 {
    const GETPID: usize = 39;
    // SAFETY: it changes nothing.
    unsafe { syscall4(GETPID, 0, 0, 0, 0) as u32 }
}

/// Where trampolines lead.
pub(crate) fn address() -> u64 {
    uncopy_gate_enter as *const () as u64
}

/// Sets the judge, before there are jumps. Whether there was none.
pub(crate) fn prepare(with: Judge) -> bool {
    let mut stack = MaybeUninit::<libc::stack_t>::uninit();
    let place = stack.as_mut_ptr() as usize;
    // (By an instruction of ours: the function of that name may be ours, too.)
    // SAFETY: a valid place for what this thread has; nothing is changed.
    let told = unsafe { syscall4(SIGALTSTACK as usize, 0, place, 0, 0) } == 0;
    // SAFETY: it was written if that worked.
    let none = told && unsafe { stack.assume_init() }.ss_flags & libc::SS_DISABLE != 0;
    ALTERNATE.store(!none, Relaxed);
    // SAFETY: it asks what the kernel has told this process; 0: nothing.
    let frame = unsafe { libc::getauxval(AT_MINSIGSTKSZ) };
    LITTLE.store(NEEDED + FOR_A_HANDLER.max(frame + (2 << 10)), Relaxed);
    if let Some((state, bytes)) = state() {
        STATE_BYTES.store(bytes, Relaxed);
        STATE.store(state, Relaxed);
    }
    after_fork_in_child();
    WIPED.process.store(own_process(), Relaxed);
    const MADVISE: usize = 28;
    const WIPED_IN_CHILDREN: usize = libc::MADV_WIPEONFORK as usize;
    // (Kernels before 4.14 do not know it. `after_fork_in_child` does the same.)
    // SAFETY: a page of ours, which a child may find as zeros.
    unsafe { syscall4(MADVISE, &raw const WIPED as usize, PAGE, WIPED_IN_CHILDREN, 0) };
    JUDGE.set(with).is_ok()
}

/// In a child that has a copy of the memory: the threads that were on the gate's stacks are not
/// here. (The kernel has seen to it, from Linux 4.14 on.)
pub fn after_fork_in_child() {
    WIPED.locks.iter().for_each(|it| it.store(0, Relaxed));
    WIPED.process.store(0, Relaxed);
}

/// The bytes of the kernel's frame for a handler.
const AT_MINSIGSTKSZ: libc::c_ulong = 51;

/// In ECX of leaf 1: the kernel says what it saves.
const OSXSAVE: u32 = 1 << 27;
/// The leaf that says where which state is saved.
const LAYOUT: u32 = 0xd;
/// No code of ours, and none that we call, changes these: rights of pages (9), tiles (17, 18).
const NOBODYS: u64 = 1 << 9 | 1 << 17 | 1 << 18;

/// Which state is saved, and its bytes. `None`: this processor has no `xsave`.
fn state() -> Option<(u64, u64)> {
    // SAFETY: every x86-64 processor has leaf 1. (Newer compilers know.)
    #[allow(unused_unsafe)]
    let ecx = unsafe { __cpuid(1) }.ecx;
    if ecx & OSXSAVE == 0 {
        return None;
    }
    // SAFETY: OSXSAVE says that it can be asked.
    let state = unsafe { kernels_mask() } & !NOBODYS;
    // (The first two, and the header.)
    let mut bytes = 512 + 64;
    for bit in (2..63).filter(|bit| state >> bit & 1 == 1) {
        // SAFETY: a processor with `xsave` has the leaf.
        #[allow(unused_unsafe)]
        let part = unsafe { __cpuid_count(LAYOUT, bit) };
        bytes = bytes.max(u64::from(part.ebx) + u64::from(part.eax));
    }
    Some((state, bytes))
}

/// Which registers the kernel saves.
///
/// # Safety
/// The processor has `xgetbv`.
#[target_feature(enable = "xsave")]
unsafe fn kernels_mask() -> u64 {
    // SAFETY: the caller's promise; register 0 is always there.
    #[allow(unused_unsafe)]
    unsafe {
        _xgetbv(0)
    }
}
