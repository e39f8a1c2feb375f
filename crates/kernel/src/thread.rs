//! Threads of our own, made by `clone(2)` and not by libc.
//!
//! libc's `pthread_create` calls the program's `calloc`, whose lock a fork handler of the program's
//! may hold while our thread is made in the child; it lists the thread, so that `setuid` and its
//! kin are carried out in it too, and end the process where it answers otherwise than the program's
//! threads (ours has no capabilities); it counts it, which decides who is the last thread; and it
//! makes malloc and stdio take locks for ever after. None of that happens to a thread that libc
//! does not know.
//!
//! Such a thread has no thread-local storage of libc's: what `fs` points to is a `Block` of ours.
//! So nothing that runs on it may use `thread_local!` or `errno`; a use of the first crashes at
//! once (`OWN`). [`crate::critical`]'s own state of each thread is found by its distance from `fs`
//! alone, and there is room for it below the block.
//!
//! unsafe: makes a thread, in assembly because it begins on another stack; reads the word behind
//! `fs`.

use crate::call::syscall4;
use crate::critical;
use crate::inject;
use crate::lock::Lock;
use crate::placement;
use core::arch::naked_asm;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use uncopy_inject::Call;
use uncopy_ranges::span::{PAGE, page_up};

/// Of each thread, in bytes; the lowest page is its guard.
const STACK: usize = 512 << 10;

/// Stands where libc keeps the list of a thread's storage (`tcbhead_t.dtv`): no address, so code
/// that looks for thread-local storage on a thread of ours crashes there and then.
const OWN: usize = 0x8075_6e63_6f70_7900;

/// The block that `fs` points to on a thread of ours: the beginning of libc's `tcbhead_t`, as far
/// as compiled code may look.
#[repr(C, align(64))]
struct Block {
    /// Its own address: compiled code finds it there.
    itself: usize,
    dtv: usize,
    /// Its own address once more: what of libc asks which thread it is on (around cancellation)
    /// finds zeros here, and in what of the page lies behind.
    descriptor: usize,
    /// The other words that libc's code reads there: the stack protector's word at 0x28 among them.
    rest: [usize; 61],
}

/// Whether the calling thread is ours.
#[inline(always)]
pub fn is_ours() -> bool {
    let dtv: usize;
    // SAFETY: reads the second word behind `fs`, which libc and we both keep there.
    unsafe {
        core::arch::asm!(
            "mov {}, fs:[8]",
            out(reg) dtv,
            options(nostack, readonly, preserves_flags)
        );
    }
    dtv == OWN
}

/// Of a thread's memory, in bytes: its stack, what lies below `fs`, its block. Asked on a thread of
/// the program's.
fn size() -> usize {
    let fs: usize;
    // SAFETY: reads the address that the thread keeps of its own storage; a plain question.
    let errno = unsafe {
        core::arch::asm!(
            "mov {}, fs:[0]",
            out(reg) fs,
            options(nostack, readonly, preserves_flags)
        );
        libc::__errno_location() as usize
    };
    // (Nothing on a thread of ours sets `errno`. If something did, it would not be the stack's.)
    STACK + page_up(critical::below_fs().max(fs.wrapping_sub(errno))) + PAGE
}

/// The kind of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// All that it does is a critical section.
    pub inside: bool,
    /// It begins with a copy of the program's descriptors, and not with the same ones.
    pub own_table: bool,
}

/// A place for one thread at a time: its stack and its number. The stack is made once, used again
/// by later threads and by those of forked children, and never given back.
#[derive(Debug)]
pub struct ThreadSlot {
    map: AtomicPtr<u8>,
    number: AtomicI32,
}

impl Default for ThreadSlot {
    fn default() -> Self {
        Self::new()
    }
}

impl ThreadSlot {
    /// No thread.
    pub const fn new() -> Self {
        Self { map: AtomicPtr::new(core::ptr::null_mut()), number: AtomicI32::new(0) }
    }

    fn map(&self) -> Option<*mut u8> {
        let made = self.map.load(Ordering::Relaxed);
        if !made.is_null() {
            return Some(made);
        }
        inject::check(Call::Mmap).ok()?;
        let size = size();
        let at = placement::SMALL.next(size);
        // SAFETY: fresh memory of our own, of which the lowest page is given up as a guard.
        let map = unsafe {
            let none = ProtFlags::empty();
            let map = mmap_anonymous(at as *mut _, size, none, MapFlags::PRIVATE).ok()?;
            let map = map.cast::<u8>();
            let use_it = MprotectFlags::READ | MprotectFlags::WRITE;
            if mprotect(map.add(PAGE).cast(), size - PAGE, use_it).is_err() {
                let _ = munmap(map.cast(), size);
                return None;
            }
            map
        };
        self.map.store(map, Ordering::Relaxed);
        Some(map)
    }

    /// Makes a thread that runs `run(argument)`, with all signals blocked and a working directory
    /// of its own; its rights are the caller's. The thread that had the slot before has ended.
    /// Returns whether that worked.
    pub fn spawn(&'static self, run: extern "C" fn(usize), argument: usize, kind: Kind) -> bool {
        if inject::check(Call::Thread).is_err() {
            return false;
        }
        let Some(map) = self.map() else { return false };
        const _: () = assert!(size_of::<Block>() <= PAGE);
        // The thread has a copy of the caller's mask from its first instruction on.
        let mask = critical::block_signals();
        // SAFETY: memory of ours that nobody uses: stack, room for what lies below `fs`, and the
        // page that `fs` points to. The thread finds two words on its stack: see `clone`.
        let made = unsafe {
            let block = map.add(size() - PAGE).cast::<Block>();
            let at = block as usize;
            block.write(Block { itself: at, dtv: OWN, descriptor: at, rest: [0; 61] });
            critical::prepare_thread(block as usize, kind.inside);
            let top = map.add(STACK).cast::<usize>().sub(2);
            top.write(run as usize);
            top.add(1).write(argument);
            let table = if kind.own_table { 0 } else { libc::CLONE_FILES as usize };
            clone(
                FLAGS | table,
                top as usize,
                self.number.as_ptr(),
                core::ptr::null_mut(),
                block as usize,
            )
        };
        critical::restore_signals(mask);
        made > 0
    }

    /// Sends the thread `signal`, which it blocks; 0 is none. Returns whether it is there.
    pub fn signal(&self, signal: i32) -> bool {
        let pid = rustix::process::getpid().as_raw_pid() as usize;
        let number = self.number() as usize;
        // SAFETY: to our own thread.
        unsafe { syscall4(libc::SYS_tgkill as usize, pid, number, signal as usize, 0) == 0 }
    }

    /// Waits until the thread, which was told to end, is gone: the kernel lists it no more.
    pub fn await_end(&self) {
        while self.signal(0) {
            rustix::thread::sched_yield();
        }
    }

    /// The number of the thread that has the slot, or had it last.
    pub fn number(&self) -> i32 {
        self.number.load(Ordering::Relaxed)
    }
}

/// Runs `f`, which makes or ends threads of ours, with `lock` held. No handler of the program runs
/// on this thread meanwhile: it might come here again.
pub fn change<R>(lock: &Lock, f: impl FnOnce() -> R) -> R {
    let mask = critical::block_signals();
    lock.lock();
    let result = f();
    lock.unlock();
    critical::restore_signals(mask);
    result
}

/// A thread of this process with the same memory and handlers, but (without CLONE_FS) with a
/// working directory and root of its own: `setns` refuses a mount namespace to a process whose
/// threads share these. The kernel writes its number before it runs.
const FLAGS: usize = (libc::CLONE_VM
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID) as usize;

/// `clone(2)` as the kernel takes it. The thread pops what to run and its argument off its stack,
/// and ends when that returns.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn clone(
    flags: usize,
    stack: usize,
    number: *mut i32,
    cleared: *mut i32,
    tls: usize,
) -> isize {
    naked_asm!(
        "mov r10, rcx",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jnz 2f",
        // The outermost frame, for unwinders.
        "xor ebp, ebp",
        "pop rax",
        "pop rdi",
        // (The stack is at a page's beginning now, which is aligned as a call wants it.)
        "call rax",
        "xor edi, edi",
        "mov eax, {exit}",
        "syscall",
        "ud2",
        "2:",
        "ret",
        clone = const libc::SYS_clone,
        exit = const libc::SYS_exit,
    )
}

/// The system calls that a thread that only answers faults may still make: its own descriptors'
/// reports, memory, waiting, and where it runs. All else is refused to it, whatever rights its
/// process has.
const ALLOWED: [i64; 20] = [
    libc::SYS_ioctl,
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getscheduler,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_exit,
];

/// The calling thread gives up all that it can, for good: capabilities, the right to gain any by
/// executing, its directory, and all system calls but `ALLOWED`. A right that the kernel does not
/// let it give up it keeps: it has no use for it. (In the namespaces and with the user of the
/// thread that made it, it stays.) `passes`: no filter of system calls would end the process for
/// capset(2).
pub fn give_up_rights(passes: bool) {
    const LAST_CAPABILITY: usize = 63;
    let call = |n: i64, a: usize, b: usize, c: usize| {
        // SAFETY: calls that concern this thread alone; their structures outlive them.
        unsafe { syscall4(n as usize, a, b, c, 0) }
    };
    // (A directory that a thread of ours is in could not be unmounted.)
    call(libc::SYS_chdir, c"/".as_ptr() as usize, 0, 0);
    for capability in 0..=LAST_CAPABILITY {
        if call(libc::SYS_prctl, libc::PR_CAPBSET_DROP as usize, capability, 0) != 0 {
            break;
        }
    }
    if passes {
        // `struct __user_cap_header_struct` (version 3, this thread) and two of
        // `__user_cap_data_struct`.
        let (header, none) = ([0x2008_0522u32, 0], [0u32; 6]);
        call(libc::SYS_capset, header.as_ptr() as usize, none.as_ptr() as usize, 0);
    }
    call(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0);
    let filter = filter();
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let program = core::ptr::from_ref(&program) as usize;
    let mode = libc::SECCOMP_MODE_FILTER as usize;
    call(libc::SYS_prctl, libc::PR_SET_SECCOMP as usize, mode, program);
}

const RULES: usize = ALLOWED.len() + 5;

/// The filter for `seccomp(2)`: x86-64's numbers in [`ALLOWED`] pass, all else answers EPERM.
fn filter() -> [libc::sock_filter; RULES] {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
    const NUMBER: u32 = 0;
    const ARCHITECTURE: u32 = 4;
    const X86_64: u32 = 0xc000_003e;
    let rule = |code: u32, k: u32, jt: usize, jf: usize| libc::sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: jf as u8,
        k,
    };
    let refuse = RULES - 2;
    let mut rules =
        [rule(BPF_RET | BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0); RULES];
    rules[0] = rule(BPF_LD | BPF_W | BPF_ABS, ARCHITECTURE, 0, 0);
    rules[1] = rule(BPF_JMP | BPF_JEQ | BPF_K, X86_64, 0, refuse - 2);
    rules[2] = rule(BPF_LD | BPF_W | BPF_ABS, NUMBER, 0, 0);
    for (i, number) in ALLOWED.iter().enumerate() {
        let at = 3 + i;
        rules[at] = rule(BPF_JMP | BPF_JEQ | BPF_K, *number as u32, RULES - 2 - at, 0);
    }
    rules[RULES - 1] = rule(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0);
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Carries the filter out, as the kernel does.
    fn answer(architecture: u32, number: u32) -> u32 {
        let rules = filter();
        let (mut at, mut word) = (0, 0);
        loop {
            let r = rules[at];
            at += 1;
            match u32::from(r.code) & 7 {
                libc::BPF_LD => word = if r.k == 0 { number } else { architecture },
                libc::BPF_JMP => at += usize::from(if word == r.k { r.jt } else { r.jf }),
                _ => return r.k,
            }
        }
    }

    #[test]
    fn a_thread_of_ours_can_call_what_of_libc_asks_for_its_own_thread() {
        static SLOT: ThreadSlot = ThreadSlot::new();
        static KIND: AtomicI32 = AtomicI32::new(-1);
        unsafe extern "C" {
            fn pthread_setcanceltype(kind: i32, old: *mut i32) -> i32;
        }
        extern "C" fn run(_: usize) {
            let mut old = -1;
            // SAFETY: a valid place for what was set.
            unsafe { pthread_setcanceltype(1, &mut old) };
            KIND.store(old, Ordering::Relaxed);
        }
        assert!(SLOT.spawn(run, 0, Kind { inside: true, own_table: false }));
        SLOT.await_end();
        assert_eq!(KIND.load(Ordering::Relaxed), 0, "deferred, as of a thread that is new");
    }

    #[test]
    fn the_filter_lets_memory_calls_pass_and_refuses_all_others() {
        const X86_64: u32 = 0xc000_003e;
        for number in 0..600u32 {
            let pass = ALLOWED.contains(&i64::from(number));
            let wanted = if pass {
                libc::SECCOMP_RET_ALLOW
            } else {
                libc::SECCOMP_RET_ERRNO | libc::EPERM as u32
            };
            assert_eq!(answer(X86_64, number), wanted, "system call {number}");
        }
        assert_ne!(answer(0x4000_0003, libc::SYS_read as u32), libc::SECCOMP_RET_ALLOW, "32 bits");
    }
}
