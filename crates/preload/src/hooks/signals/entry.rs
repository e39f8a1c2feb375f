//! The handler that the kernel has for each signal, and the fate of a signal that is not simply
//! handed on.
//!
//! unsafe: see the crate; jumps to, or calls, the handlers that the program installed, with the
//! kernel's own arguments.

use super::dying::{before_core_dump, before_end};
use super::table::{
    ADDRESS, DUMPING, ENDING, HANDLERS, HELD, ONCE, SAID, as_said, bit, borrowed, fault_of, locked,
};
use crate::hooks::entries;
use crate::real;
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{Ordering, Ordering::Relaxed};
use libc::{
    SA_RESETHAND, SA_SIGINFO, SIG_DFL, SIG_IGN, sigaction as Sigaction, siginfo_t, ucontext_t,
};
use uncopy_kernel::critical::{self, Thread};
use uncopy_kernel::{sleeping, user_access};
use uncopy_lend::left;
use uncopy_tcp_shared::copy;

/// Where the instruction pointer lies in the kernel's `ucontext`.
const RIP_AT: usize = core::mem::offset_of!(ucontext_t, uc_mcontext)
    + size_of::<libc::greg_t>() * libc::REG_RIP as usize;

/// The handler that the kernel has. It writes nothing to the stack and leaves it as the kernel did:
/// the program's handler may have just room enough, or none that may be written to.
#[unsafe(naked)]
pub(in crate::hooks) unsafe extern "C" fn entry(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    naked_asm!(
        // (The linker's; not to be exported.)
        ".hidden __start_uncopy_entries",
        ".hidden __stop_uncopy_entries",
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
        // In the middle of an access (`user_access`) to the program's memory, of a copy to or from
        // a ring, or of an entry that reads a list, it may be ours.
        "mov r9, qword ptr [rdx + {rip_at}]",
        "lea r10, [rip + uncopy_user_access_begins]",
        "lea r11, [rip + uncopy_user_access_ends]",
        "cmp r9, r10",
        "jb 2f",
        "cmp r9, r11",
        "jb {otherwise}",
        "2:",
        "lea r10, [rip + uncopy_shared_copy]",
        "lea r11, [rip + uncopy_shared_copy_ends]",
        "cmp r9, r10",
        "jb 3f",
        "cmp r9, r11",
        "jb {otherwise}",
        "3:",
        "lea r10, [rip + __start_uncopy_entries]",
        "lea r11, [rip + __stop_uncopy_entries]",
        "cmp r9, r10",
        "jb 4f",
        "cmp r9, r11",
        "jb {otherwise}",
        "4:",
        // About to sleep in a call of the program's: it does not.
        "lea r10, [rip + uncopy_sleeping_begins]",
        "lea r11, [rip + uncopy_sleeping_ends]",
        "cmp r9, r10",
        "jb 5f",
        "cmp r9, r11",
        "jb {otherwise}",
        "5:",
        "lea r9, [rcx - 1]",
        "bts qword ptr fs:[rax + {ran}], r9",
        "mov r9, qword ptr [rsp]",
        "mov qword ptr fs:[rax + {returns_to}], r9",
        "mov qword ptr fs:[rax + rcx * 8 + {frames}], rsp",
        "xor eax, eax",
        "jmp r8",
        inside = const Thread::INSIDE,
        ran = const Thread::RAN,
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
            let at = *rip as usize;
            if let Some(on) = user_access::goes_on(at)
                .or_else(|| copy::goes_on(at))
                .or_else(|| entries::goes_on(at))
            {
                *rip = on as i64;
                return;
            }
        }
        let rip = &mut (*of_interrupted).uc_mcontext.gregs[libc::REG_RIP as usize];
        if let Some(on) = sleeping::goes_on(*rip as usize) {
            *rip = on as i64;
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
                let sending = left::interrupted(signal, || *mask);
                critical::handler_runs(signal);
                let before = critical::handler_begins();
                handler(signal, info, context);
                critical::handler_ends(before);
                left::resumed(sending);
            }
        }
    }
}

/// The kernel has reset a handler that was to be called once, and the signal is put off: as it was.
/// (Without the lock, which this thread may hold.)
unsafe fn install_again(signal: c_int) {
    // SAFETY: what the kernel says, with our entry for a handler.
    unsafe {
        let mut now: Sigaction = core::mem::zeroed();
        if real::of_libc::sigaction(signal, core::ptr::null(), &mut now) == 0
            && now.sa_sigaction == SIG_DFL
            && now.sa_flags & SA_RESETHAND != 0
        {
            now.sa_sigaction = entry as *const () as usize;
            real::of_libc::sigaction(signal, &now, core::ptr::null_mut());
        }
    }
}

/// A held signal of which the program has no handler: the kernel's own action, with the registers
/// and details that the signal came with.
#[cold]
unsafe fn by_default(signal: c_int, info: *const siginfo_t, interrupted: *mut ucontext_t) {
    // SAFETY: `info` and `interrupted` are what the kernel gave.
    unsafe {
        let errno = *libc::__errno_location();
        if DUMPING.contains(&signal) && !borrowed() {
            before_core_dump();
        }
        if ENDING.contains(&signal) && !borrowed() {
            before_end();
        }
        locked(|| {
            if HANDLERS[signal as usize].load(Relaxed) == SIG_DFL {
                let fault = fault_of(signal).filter(|_| !borrowed());
                fault.into_iter().for_each(|f| user_access::is_caught(f, false));
                stop_holding(signal);
            }
        });
        critical::queue_again(signal, info);
        // (It may be blocked where the interrupted call, `ppoll` for one, has let it in for its
        // time only.)
        let mask = (&raw mut (*interrupted).uc_sigmask).cast::<u64>();
        *mask &= !bit(signal);
        *libc::__errno_location() = errno;
    }
}

/// Gives the kernel the default action of `signal`, if it has our entry in place of it. With the
/// lock held.
pub(in crate::hooks) unsafe fn stop_holding(signal: c_int) {
    // SAFETY: as the program said.
    unsafe {
        let mut now: Sigaction = core::mem::zeroed();
        if real::of_libc::sigaction(signal, core::ptr::null(), &mut now) == 0
            && now.sa_sigaction == entry as *const () as usize
        {
            let default = as_said(signal);
            real::of_libc::sigaction(signal, &default, core::ptr::null_mut());
        }
    }
}
