//! The program's signal handlers are entered through ours, so that none runs while its thread holds the
//! tracker's lock (see `uncopy_vm::critical`). The program sees its own handlers everywhere.
//!
//! Of some signals our entry stands in the kernel also where the program has no handler (*held* signals): of SIGSEGV and
//! SIGBUS once the program's pointers are read (see `uncopy_vm::reading`), of those that dump core once anything may be
//! unmapped. There the default action comes after ours. Only where the program ignores them it does so in the kernel: what it
//! executes must find them ignored.
//!
//! What the kernel says is the truth; our table adds to it only where the kernel has our entry. So it does not matter who
//! changed a handler past us, or in a child that shares our memory but not its handlers (vfork).
//!
//! unsafe: see the crate; jumps to, or calls, the handlers that the program installed, with the kernel's own arguments.

use crate::real;
use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{
    AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed,
};
use libc::{
    SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_SIGINFO, SIG_DFL, SIG_ERR, SIG_IGN,
    sigaction as Sigaction, siginfo_t, stack_t, ucontext_t,
};
use uncopy_ranges::span::Span;
use uncopy_stack::buffers::HIGHEST_ADDRESS;
use uncopy_vm::critical::{SIGNALS, Thread};
use uncopy_vm::lock::Lock;
use uncopy_vm::reading::{self, Fault};
use uncopy_vm::{critical, lend, space};

/// The program's handler of each signal, with the marks below; `SIG_DFL` of held signals. Of use only where the kernel has our
/// entry.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(SIG_DFL) }; SIGNALS];
/// There is more to do than to jump there.
const MARKED: usize = 1 << 63;
/// It is called once (`SA_RESETHAND`).
const ONCE: usize = 1 << 62;
const ADDRESS: usize = ONCE - 1;

/// What the program said beside the handler, where it said something else than the kernel knows.
struct Said {
    flags: AtomicI32,
    mask: AtomicU64,
}
static SAID: [Said; SIGNALS] =
    [const { Said { flags: AtomicI32::new(0), mask: AtomicU64::new(0) } }; SIGNALS];

/// Held signals, as a mask.
static HELD: AtomicU64 = AtomicU64::new(0);

/// Around all of that, and every change of the kernel's. Its holder is in a critical section: no handler comes here meanwhile.
static LOCK: Lock = Lock::new();

fn locked<R>(f: impl FnOnce() -> R) -> R {
    critical::within(|| {
        // (Where nobody heeds forks, a child would find it held for ever.)
        let heeded = OWNER.load(Relaxed) != 0;
        if heeded {
            LOCK.lock();
        }
        let result = f();
        if heeded {
            LOCK.unlock();
        }
        result
    })
}

/// The kernel's: the action says where its handler returns to.
const SA_RESTORER: c_int = 0x0400_0000;

/// Whose table this is; 0 until that is known, and where nobody heeds forks.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// This process has the table, and heeds forks: at its start, or as fork's child.
pub fn own() {
    // (A sandbox may forbid the question: then nobody asks whose the table is.)
    // SAFETY: a plain question.
    let owner = if reading::without_calls() { 0 } else { unsafe { libc::getpid() } };
    OWNER.store(owner, Relaxed);
    LOCK.reset();
    DYING.store(NOBODY, Relaxed);
}

/// Before fork.
pub fn before_fork() {
    LOCK.lock();
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    LOCK.unlock();
}

/// Whether our memory is another process's, which waits for this one (vfork): it has its own handlers, but the table is not its.
fn borrowed() -> bool {
    let owner = OWNER.load(Relaxed);
    // SAFETY: a plain question.
    owner != 0 && owner != unsafe { libc::getpid() } && space::alive()
}

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

fn fault_of(signal: c_int) -> Option<Fault> {
    match signal {
        libc::SIGSEGV => Some(Fault::Segv),
        libc::SIGBUS => Some(Fault::Bus),
        _ => None,
    }
}

/// Where the instruction pointer lies in the kernel's `ucontext`.
const RIP_AT: usize = core::mem::offset_of!(ucontext_t, uc_mcontext)
    + size_of::<libc::greg_t>() * libc::REG_RIP as usize;

/// What the kernel has for a handler. It writes nothing to the stack and leaves it as the kernel did: the program's handler may
/// have just room enough, or none that may be written to.
#[unsafe(naked)]
unsafe extern "C" fn entry(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    naked_asm!(
        "mov rax, qword ptr [rip + uncopy_thread@GOTTPOFF]",
        "cmp word ptr fs:[rax + {inside}], 0",
        "jne {otherwise}",
        // Marked ones are negative; so is what SIG_DFL and SIG_IGN become.
        "mov ecx, edi",
        "lea r8, [rip + {handlers}]",
        "mov r8, qword ptr [r8 + rcx * 8]",
        "lea r9, [r8 - 2]",
        "test r9, r9",
        "js {otherwise}",
        // In the middle of a careful reading it may be ours.
        "mov r9, qword ptr [rdx + {rip_at}]",
        "lea r10, [rip + uncopy_reading_begins]",
        "lea r11, [rip + uncopy_reading_ends]",
        "cmp r9, r10",
        "jb 2f",
        "cmp r9, r11",
        "jb {otherwise}",
        "2:",
        "mov r9, qword ptr [rsp]",
        "mov qword ptr fs:[rax + {returns_to}], r9",
        "mov qword ptr fs:[rax + rcx * 8 + {frames}], rsp",
        "xor eax, eax",
        "jmp r8",
        inside = const Thread::INSIDE,
        returns_to = const Thread::RETURNS_TO,
        frames = const Thread::FRAMES,
        rip_at = const RIP_AT,
        handlers = sym HANDLERS,
        otherwise = sym otherwise,
    )
}

unsafe extern "C" fn otherwise(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: called by the kernel, with its arguments; the handler was installed for this signal
    // by the program and takes one or three of them.
    unsafe {
        let held = HELD.load(Relaxed) & bit(signal) != 0;
        let of_interrupted = context.cast::<ucontext_t>();
        if held && fault_of(signal).is_some() && (*info).si_code > 0 {
            let rip = &mut (*of_interrupted).uc_mcontext.gregs[libc::REG_RIP as usize];
            if let Some(on) = reading::goes_on(*rip as usize) {
                *rip = on as i64;
                return;
            }
        }
        let told = held || SAID[signal as usize].flags.load(Relaxed) & SA_SIGINFO != 0;
        let word = &HANDLERS[signal as usize];
        if critical::inside() {
            if !held && word.load(Relaxed) & ONCE != 0 {
                install_again(signal);
            }
            let mask = (&raw mut (*of_interrupted).uc_sigmask).cast::<u64>();
            let info = if told { info } else { core::ptr::null_mut() };
            critical::put_off(signal, info, &mut *mask);
            return;
        }
        let handler = word.load(Ordering::Acquire);
        if held && handler & ONCE != 0 {
            let _ = word.compare_exchange(handler, SIG_DFL, Ordering::AcqRel, Relaxed);
        }
        match handler & ADDRESS {
            SIG_DFL if held => by_default(signal, info, of_interrupted),
            // (Changed meanwhile.)
            SIG_DFL | SIG_IGN => {}
            address => {
                let handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                    core::mem::transmute(address);
                let mask = (&raw const (*of_interrupted).uc_sigmask).cast::<u64>();
                let sending = lend::interrupted(signal, || *mask);
                let before = critical::handler_begins();
                handler(signal, info, context);
                critical::handler_ends(before);
                lend::resumed(sending);
            }
        }
    }
}

/// The kernel has reset a handler that was to be called once, and the signal is put off: as it was. (Without the lock, which
/// this thread may hold.)
unsafe fn install_again(signal: c_int) {
    // SAFETY: what the kernel says, with our entry for a handler.
    unsafe {
        let mut now: Sigaction = core::mem::zeroed();
        if real::sigaction(signal, core::ptr::null(), &mut now) == 0
            && now.sa_sigaction == SIG_DFL
            && now.sa_flags & SA_RESETHAND != 0
        {
            now.sa_sigaction = entry as *const () as usize;
            real::sigaction(signal, &now, core::ptr::null_mut());
        }
    }
}

/// A held signal of which the program has no handler: the kernel's own action, with the registers and details that the signal
/// came with.
#[cold]
unsafe fn by_default(signal: c_int, info: *const siginfo_t, interrupted: *mut ucontext_t) {
    // SAFETY: `info` and `interrupted` are what the kernel gave.
    unsafe {
        let errno = *libc::__errno_location();
        if DUMPING.contains(&signal) && !borrowed() {
            before_core_dump();
        }
        locked(|| {
            if HANDLERS[signal as usize].load(Relaxed) == SIG_DFL {
                let fault = fault_of(signal).filter(|_| !borrowed());
                fault.into_iter().for_each(|f| reading::is_caught(f, false));
                let_go(signal);
            }
        });
        critical::queue_again(signal, info);
        // (It may be blocked where the interrupted call, `ppoll` for one, has let it in for its time only.)
        let mask = (&raw mut (*interrupted).uc_sigmask).cast::<u64>();
        *mask &= !bit(signal);
        *libc::__errno_location() = errno;
    }
}

/// Gives the kernel the default action of `signal`, if it has our entry in place of it. With the lock held.
unsafe fn let_go(signal: c_int) {
    // SAFETY: as the program said.
    unsafe {
        let mut now: Sigaction = core::mem::zeroed();
        if real::sigaction(signal, core::ptr::null(), &mut now) == 0
            && now.sa_sigaction == entry as *const () as usize
        {
            let default = as_said(signal);
            real::sigaction(signal, &default, core::ptr::null_mut());
        }
    }
}

/// The default action of a held signal, with what the program said beside it.
fn as_said(signal: c_int) -> Sigaction {
    let said = &SAID[signal as usize];
    // SAFETY: plain data, of which zeros are valid.
    let mut action: Sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = SIG_DFL;
    action.sa_flags = said.flags.load(Relaxed);
    set_mask(&mut action, said.mask.load(Relaxed));
    action
}

/// The kernel's part of libc's signal set.
fn mask_of(action: &Sigaction) -> u64 {
    // SAFETY: a set of signals is words.
    unsafe { (&raw const action.sa_mask).cast::<u64>().read() }
}

fn set_mask(action: &mut Sigaction, mask: u64) {
    // SAFETY: a set of signals is words.
    unsafe { (&raw mut action.sa_mask).cast::<u64>().write(mask) }
}

/// The program said so. (libc adds where handlers return to.)
fn note(signal: c_int, action: &Sigaction, by_libc: bool) {
    let said = &SAID[signal as usize];
    said.flags.store(action.sa_flags | if by_libc { SA_RESTORER } else { 0 }, Relaxed);
    said.mask.store(mask_of(action), Relaxed);
}

/// Our entry, where the program says `said`: what stands in our table, and what the kernel gets.
fn through_us(said: &Sigaction, held: bool) -> (usize, Sigaction) {
    let mut action = *said;
    action.sa_sigaction = entry as *const () as usize;
    if said.sa_sigaction == SIG_DFL {
        // On the alternate stack, as a stack that is used up has no room; and nothing comes between.
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        set_mask(&mut action, !0);
        return (SIG_DFL, action);
    }
    if held {
        // What happened must be known, and our entry stay.
        action.sa_flags |= SA_SIGINFO;
        action.sa_flags &= !SA_RESETHAND;
    }
    // (One that may be interrupted by the same signal must be counted.)
    let marks = match said.sa_flags {
        f if f & SA_RESETHAND != 0 => MARKED | ONCE,
        f if f & SA_NODEFER != 0 => MARKED,
        _ => 0,
    };
    (said.sa_sigaction | marks, action)
}

/// Holds the signals of `mask`. Returns false where that is not for us to do.
fn hold(mask: u64) -> bool {
    if borrowed() {
        return false;
    }
    locked(|| {
        for signal in (1..SIGNALS as c_int).filter(|s| mask & bit(*s) != 0) {
            if HELD.load(Relaxed) & bit(signal) == 0 {
                // SAFETY: with the lock held; a signal that there is.
                unsafe { hold_one(signal) };
            }
        }
    });
    true
}

unsafe fn hold_one(signal: c_int) {
    // SAFETY: what the kernel has, entered through us.
    unsafe {
        let mut now: Sigaction = core::mem::zeroed();
        if real::sigaction(signal, core::ptr::null(), &mut now) != 0 {
            return;
        }
        if now.sa_sigaction == SIG_IGN {
            HELD.fetch_or(bit(signal), Relaxed);
            return;
        }
        let word = &HANDLERS[signal as usize];
        if now.sa_sigaction == entry as *const () as usize {
            now.sa_sigaction = word.load(Relaxed) & ADDRESS;
        } else if now.sa_sigaction != SIG_DFL {
            // Installed past us: the program's own, and ours to be left alone.
            return;
        }
        note(signal, &now, false);
        let (handler, action) = through_us(&now, true);
        word.store(handler, Ordering::Release);
        HELD.fetch_or(bit(signal), Ordering::SeqCst);
        if real::sigaction(signal, &action, core::ptr::null_mut()) == 0
            && let Some(fault) = fault_of(signal)
        {
            reading::is_caught(fault, true);
        }
    }
}

/// The program's pointers are going to be read. Returns false where this process cannot prepare for that.
pub fn catch_faults() -> bool {
    hold(bit(libc::SIGSEGV) | bit(libc::SIGBUS))
}

/// Those whose default action is a core dump.
const DUMPING: [c_int; 10] = [
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGSYS,
];

/// From now on pages may be unmapped, which a core would lack.
pub fn hold_dumping() {
    hold(DUMPING.iter().fold(0, |mask, signal| mask | bit(*signal)));
}

/// For whoever dies: its own stack may be small, or nearly used up.
#[repr(align(16))]
struct LastStack(UnsafeCell<[u8; LAST_STACK]>);
/// What the tracker needs at most, and as much again.
const LAST_STACK: usize = 64 << 10;
// SAFETY: used by one thread, the one that changed DYING.
unsafe impl Sync for LastStack {}
static LAST: LastStack = LastStack(UnsafeCell::new([0; LAST_STACK]));
/// What has come of it.
static DYING: AtomicU8 = AtomicU8::new(NOBODY);
const NOBODY: u8 = 0;
const AT_WORK: u8 = 1;
const DONE: u8 = 2;

/// Everything in place, before the kernel dumps core.
fn before_core_dump() {
    match DYING.compare_exchange(NOBODY, AT_WORK, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            let top = LAST.0.get() as usize + LAST_STACK;
            // SAFETY: nobody else uses that stack, which is mapped.
            unsafe { on_stack(top, put_in_place) };
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

extern "C" fn put_in_place() {
    space::before_core_dump();
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

/// Gives all default actions back to the kernel: the program enters a sandbox, which may forbid what ours takes.
pub fn let_all_go() {
    if borrowed() {
        return;
    }
    reading::no_calls();
    locked(|| {
        for signal in (1..SIGNALS as c_int).filter(|s| HELD.load(Relaxed) & bit(*s) != 0) {
            if HANDLERS[signal as usize].load(Relaxed) == SIG_DFL {
                fault_of(signal).into_iter().for_each(|f| reading::is_caught(f, false));
                // SAFETY: with the lock held.
                unsafe { let_go(signal) };
                HELD.fetch_and(!bit(signal), Relaxed);
            }
        }
    });
    OWNER.store(0, Relaxed);
}

/// Changes what is done about `signal`, or tells it. `ask` is the program's own call, with what we have in place of its
/// arguments.
unsafe fn change(
    signal: c_int,
    new: Option<&Sigaction>,
    old: &mut Sigaction,
    by_libc: bool,
    ask: impl Fn(Option<&Sigaction>, &mut Sigaction) -> c_int,
) -> c_int {
    locked(|| {
        let word = &HANDLERS[signal as usize];
        let before = word.load(Ordering::Acquire);
        let said = as_said(signal);
        let held = HELD.load(Relaxed) & bit(signal) != 0;
        let ours = new.and_then(|new| {
            let theirs = new.sa_sigaction == SIG_IGN
                || new.sa_sigaction == SIG_DFL && !held
                || new.sa_sigaction & !ADDRESS != 0;
            let ours = through_us(new, held);
            // (What stands in the table already does nobody harm.)
            (!theirs && (ours.0 == before || !borrowed())).then_some(ours)
        });
        let fault = fault_of(signal).filter(|_| held && new.is_some() && !borrowed());
        let result = match (ours, new) {
            (Some((handler, action)), Some(new)) => {
                // Known before the kernel can call it.
                word.store(handler, Ordering::Release);
                let result = if handler == SIG_DFL {
                    // SAFETY: with a place to return to, which the program need not have given.
                    unsafe { real::sigaction(signal, &action, old) }
                } else {
                    ask(Some(&action), old)
                };
                if result == 0 {
                    note(signal, new, by_libc);
                    fault.into_iter().for_each(|f| reading::is_caught(f, true));
                } else {
                    word.store(before, Ordering::Release);
                }
                result
            }
            _ => {
                // What is read from now on goes through the kernel.
                fault.into_iter().for_each(|f| reading::is_caught(f, false));
                ask(new, old)
            }
        };
        if result == 0 && old.sa_sigaction == entry as *const () as usize {
            if before & ADDRESS == SIG_DFL {
                old.sa_sigaction = SIG_DFL;
                old.sa_flags = said.sa_flags;
                set_mask(old, mask_of(&said));
            } else {
                const OURS: c_int = SA_SIGINFO | SA_RESETHAND;
                old.sa_sigaction = before & ADDRESS;
                old.sa_flags = old.sa_flags & !OURS | said.sa_flags & OURS;
            }
        }
        result
    })
}

/// `sigaction(2)`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const Sigaction,
    old: *mut Sigaction,
) -> c_int {
    if !(1..SIGNALS as c_int).contains(&signal) {
        // SAFETY: the program's own arguments.
        return unsafe { real::sigaction(signal, new, old) };
    }
    // SAFETY: the program's own arguments, read and written as libc does (which crashes where they lead nowhere), but not
    // while a signal would be put off.
    unsafe {
        let new = new.as_ref().copied();
        let mut was: Sigaction = core::mem::zeroed();
        let result = change(signal, new.as_ref(), &mut was, true, |new, old| {
            real::sigaction(signal, new.map_or(core::ptr::null(), core::ptr::from_ref), old)
        });
        if result == 0 && !old.is_null() {
            *old = was;
        }
        result
    }
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}
// SAFETY: plain words.
unsafe impl reading::Plain for KernelAction {}

/// `rt_sigaction(2)`, the system call.
///
/// # Safety
/// As for [`sigaction`]; its pointers may lead nowhere.
pub(super) unsafe fn rt_sigaction(
    signal: c_int,
    new: *const c_void,
    old: *mut c_void,
    size: usize,
) -> isize {
    let (new, old) = (new.cast::<KernelAction>(), old.cast::<KernelAction>());
    let call = |new: *const KernelAction, old: *mut KernelAction| {
        // SAFETY: the program's own call.
        unsafe {
            real::syscall(
                libc::SYS_rt_sigaction as isize,
                signal as usize,
                new as usize,
                old as usize,
                size,
                0,
                0,
            )
        }
    };
    let given = if new.is_null() { None } else { reading::read(new) };
    if !(1..SIGNALS as c_int).contains(&signal) || size != 8 || !new.is_null() && given.is_none() {
        return call(new, old);
    }
    // SAFETY: the same, in libc's words.
    unsafe {
        let given = given.map(|k| {
            let mut action: Sigaction = core::mem::zeroed();
            action.sa_sigaction = k.handler;
            action.sa_flags = k.flags as c_int;
            action.sa_restorer = core::mem::transmute::<usize, Option<extern "C" fn()>>(k.restorer);
            set_mask(&mut action, k.mask);
            action
        });
        let restorer =
            |a: &Sigaction| core::mem::transmute::<Option<extern "C" fn()>, usize>(a.sa_restorer);
        let mut was: Sigaction = core::mem::zeroed();
        let result = change(signal, given.as_ref(), &mut was, false, |new, old| {
            let new = new.map(|a| KernelAction {
                handler: a.sa_sigaction,
                flags: a.sa_flags as u32 as u64,
                restorer: restorer(a),
                mask: mask_of(a),
            });
            let mut before = KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 };
            let result =
                call(new.as_ref().map_or(core::ptr::null(), core::ptr::from_ref), &mut before);
            old.sa_sigaction = before.handler;
            old.sa_flags = before.flags as c_int;
            old.sa_restorer =
                core::mem::transmute::<usize, Option<extern "C" fn()>>(before.restorer);
            set_mask(old, before.mask);
            result as c_int
        });
        let was = KernelAction {
            handler: was.sa_sigaction,
            flags: was.sa_flags as u32 as u64,
            restorer: restorer(&was),
            mask: mask_of(&was),
        };
        if result == 0 && !old.is_null() && !reading::write(old, &was) {
            *libc::__errno_location() = libc::EFAULT;
            return -1;
        }
        result as isize
    }
}

/// `__sigaction`: another name of it.
///
/// # Safety
/// As for [`sigaction`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction(
    signal: c_int,
    new: *const Sigaction,
    old: *mut Sigaction,
) -> c_int {
    // SAFETY: the same function.
    unsafe { sigaction(signal, new, old) }
}

/// `sigaltstack(2)`: the kernel writes to it also while the tracker's lock is held, so nothing of it is ever unmapped.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int {
    if new.is_null() || !space::wanted() {
        // SAFETY: the program's own arguments.
        return unsafe { real::sigaltstack(new, old) };
    }
    let span = |s: &stack_t| {
        let memory = (s.ss_sp as usize).saturating_add(s.ss_size) < HIGHEST_ADDRESS;
        match s.ss_flags & libc::SS_DISABLE {
            0 if memory => Span::sized(s.ss_sp as usize, s.ss_size).hull(),
            _ => Span::sized(0, 0),
        }
    };
    // SAFETY: the program's own arguments; what the kernel has read and written is there.
    unsafe {
        let serving = space::serving();
        if serving && let Some(given) = reading::read(new) {
            space::keep_resident(span(&given));
        }
        if serving {
            return real::sigaltstack(new, old);
        }
        // Nothing is unmapped yet: what is asked of the kernel first need not be read with care. (The two may be the same.)
        let mut before: stack_t = core::mem::zeroed();
        let same = core::ptr::addr_eq(old, new);
        let result = real::sigaltstack(new, if same { &raw mut before } else { old });
        if result == 0 {
            space::keep_resident(span(&*new));
            if same {
                *old = before;
            }
        }
        result
    }
}

unsafe fn install(signal: c_int, handler: usize, flags: c_int, block_itself: bool) -> usize {
    // SAFETY: plain data; the program's handler.
    unsafe {
        let mut new: Sigaction = core::mem::zeroed();
        let mut old: Sigaction = core::mem::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = flags;
        if block_itself {
            libc::sigaddset(&mut new.sa_mask, signal);
        }
        if handler == SIG_ERR {
            *libc::__errno_location() = libc::EINVAL;
            return SIG_ERR;
        }
        if sigaction(signal, &new, &mut old) == 0 { old.sa_sigaction } else { SIG_ERR }
    }
}

unsafe fn bsd(signal: c_int, handler: usize) -> usize {
    let interrupts =
        INTERRUPTING.load(Ordering::Relaxed).unbounded_shr((signal as u32).wrapping_sub(1)) & 1;
    let flags = if interrupts != 0 { 0 } else { libc::SA_RESTART };
    // SAFETY: the program's own arguments.
    unsafe { install(signal, handler, flags, true) }
}

/// Signals after which `signal`'s handlers are to interrupt calls.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// `siginterrupt(3)`: whether a signal interrupts calls, now and after a later `signal`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(signal: c_int, interrupt: c_int) -> c_int {
    // SAFETY: plain data.
    unsafe {
        let mut action: Sigaction = core::mem::zeroed();
        if sigaction(signal, core::ptr::null(), &mut action) != 0 {
            return -1;
        }
        // (A signal's number is one of 1 to 64 here.)
        let bit = 1 << (signal - 1);
        if interrupt != 0 {
            INTERRUPTING.fetch_or(bit, Ordering::Relaxed);
            action.sa_flags &= !libc::SA_RESTART;
        } else {
            INTERRUPTING.fetch_and(!bit, Ordering::Relaxed);
            action.sa_flags |= libc::SA_RESTART;
        }
        sigaction(signal, &action, core::ptr::null_mut())
    }
}

/// `signal(2)`, with glibc's (BSD) meaning.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the program's own arguments.
    unsafe { bsd(signal, handler) }
}

/// `bsd_signal`: the same.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsd_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the program's own arguments.
    unsafe { bsd(signal, handler) }
}

/// `ssignal`: the same.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssignal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the program's own arguments.
    unsafe { bsd(signal, handler) }
}

/// `sysv_signal`: one shot, not blocking itself.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the program's own arguments.
    unsafe { install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER, false) }
}

/// `__sysv_signal`: the same.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the program's own arguments.
    unsafe { sysv_signal(signal, handler) }
}

/// X/Open's `sigset`, with glibc's meaning.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigset(signal: c_int, handler: usize) -> usize {
    const SIG_HOLD: usize = 2;
    // SAFETY: sets and actions of ours; the program's handler.
    unsafe {
        let mut this: libc::sigset_t = core::mem::zeroed();
        let mut blocked: libc::sigset_t = core::mem::zeroed();
        if libc::sigaddset(&mut this, signal) != 0 {
            return SIG_ERR;
        }
        let hold = handler == SIG_HOLD;
        let mut before: Sigaction = core::mem::zeroed();
        if hold {
            if sigaction(signal, core::ptr::null(), &mut before) != 0 {
                return SIG_ERR;
            }
        } else {
            before.sa_sigaction = install(signal, handler, 0, false);
            if before.sa_sigaction == SIG_ERR {
                return SIG_ERR;
            }
        }
        let how = if hold { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
        if libc::sigprocmask(how, &this, &mut blocked) != 0 {
            return SIG_ERR;
        }
        if libc::sigismember(&blocked, signal) == 1 { SIG_HOLD } else { before.sa_sigaction }
    }
}

/// X/Open's `sigignore`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigignore(signal: c_int) -> c_int {
    // SAFETY: no handler.
    if unsafe { install(signal, SIG_IGN, 0, false) } == SIG_ERR { -1 } else { 0 }
}
