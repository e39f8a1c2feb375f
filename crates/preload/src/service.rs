//! Starts the service of connections within this host, where none answers: the command `uncopy`
//! that lies beside this library, as a process of its own. It is nobody's child, has nothing of the
//! program's but its user, and ends when the last program has gone.
//!
//! A static: the function that starts it is given nothing.
//!
//! unsafe: makes processes that share our memory until they execute; system calls past libc, which
//! must not be entered there.

use crate::hooks::cancelling;
use crate::process::PROCESS;
use crate::real;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use uncopy_kernel::call::{syscall4, syscall6};
use uncopy_kernel::survey::Group;
use uncopy_kernel::{critical, procfs};
use uncopy_tcp_calls::{Blocks, Settings, Waiting};
use uncopy_tcp_service::{Rendezvous, commands};

/// The hidden subcommand.
const COMMAND: &CStr = c"__tcp-service";
/// Enough for three system calls.
const STACK: usize = 16 << 10;

/// The program that is executed.
struct Service {
    /// Where the command may be: beside the library, or where `make install` puts it.
    files: Vec<CString>,
    which: Rendezvous,
}

static SERVICE: AtomicPtr<Service> = AtomicPtr::new(core::ptr::null_mut());

/// Connections within this host are carried from now on. `library` is our own path; `name`, where
/// one is given, the service's; `spins`: calls look again and again for a while before they sleep;
/// `after`: calls after which a connection is registered, where a test says it; `blocks`: which
/// messages go in memory that the receiver maps.
pub fn begin(
    library: &[u8],
    name: Option<String>,
    after: Option<u32>,
    spins: bool,
    blocks: Blocks,
) {
    let which = name.map_or(Rendezvous::OfUser, Rendezvous::Named);
    let files = commands(Path::new(OsStr::from_bytes(library)));
    let files = files.into_iter().flat_map(|file| CString::new(file.into_os_string().into_vec()));
    let files = files.collect();
    let service = Box::new(Service { files, which: which.clone() });
    SERVICE.store(Box::into_raw(service), Ordering::Release);
    PROCESS.tcp.begin(Settings {
        service: which,
        waiting: if spins { Waiting::Adaptive } else { Waiting::Sleep },
        start,
        after,
        blocks,
        no_blocks,
        may_hold: |bytes| PROCESS.space.may_hold(bytes),
        counters: PROCESS.space.counters(),
        publish: || PROCESS.space.statistics.publish(),
        sleeps: critical::forget_handlers,
        has_slept: critical::remember_handlers,
        ends: cancelling::point,
        is_to_end: cancelling::is_to_end,
        goes_on,
    });
}

/// Why this program gives and takes no blocks, where that is known.
fn no_blocks() -> Option<&'static AtomicU64> {
    let counters = PROCESS.space.counters();
    if !PROCESS.space.survey().passes(Group::Blocks) {
        return Some(&counters.tcp_blocks_filtered);
    }
    // (The service lets none through: a domain of Landlock's shows nowhere.)
    (procfs::no_new_privs() == Some(true)).then_some(&counters.tcp_blocks_no_new_privs)
}

/// Whether all handlers that ran want interrupted calls to go on.
fn goes_on() -> bool {
    let ran = critical::handlers_that_ran();
    (1..=64).filter(|signal| ran >> (signal - 1) & 1 != 0).all(|signal| {
        // SAFETY: plain data; a question.
        unsafe {
            let mut now: libc::sigaction = core::mem::zeroed();
            real::of_libc::sigaction(signal, core::ptr::null(), &mut now) == 0
                && now.sa_flags & libc::SA_RESTART != 0
        }
    })
}

fn stack() -> Vec<u128> {
    vec![0; STACK / size_of::<u128>()]
}

fn end_of(stack: &mut [u128]) -> *mut c_void {
    stack.as_mut_ptr_range().end.cast()
}

/// The state that the child between needs.
struct Between {
    executes: Executes,
    stack: *mut c_void,
}

/// The state that its child needs.
struct Executes {
    service: *const Service,
    name: *const c_char,
}

/// Starts it. It need not come to be: then it is not found.
fn start() {
    let service = SERVICE.load(Ordering::Acquire);
    // SAFETY: made once, never freed.
    let Some(known) = (unsafe { service.as_ref() }) else { return };
    // (Of the user that the program is now.)
    let Ok(name) = CString::new(known.which.own()) else { return };
    let (mut one, mut two) = (stack(), stack());
    let executes = Executes { service, name: name.as_ptr() };
    let between = Between { executes, stack: end_of(&mut two) };
    let mask = critical::block_signals();
    // (Without a signal at its end it is no child that the program's `wait` would find.)
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    let null = core::ptr::null_mut();
    let argument = (&raw const between).cast_mut().cast();
    // SAFETY: it runs on a stack of ours, and this thread waits until it has ended.
    unsafe {
        let begins = (child as *const ()).cast_mut().cast();
        let child = real::clone(begins, end_of(&mut one), flags, argument, null, null, null);
        if child > 0 {
            let wall = 0x4000_0000; // __WALL
            syscall4(libc::SYS_wait4 as usize, child as usize, 0, wall, 0);
        }
    }
    critical::restore_signals(mask);
}

/// Makes the service's process, and ends: so that is nobody's child.
extern "C" fn child(between: *const Between) -> c_int {
    // SAFETY: the parent's, which waits. System calls only.
    unsafe {
        syscall4(libc::SYS_setsid as usize, 0, 0, 0, 0);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK;
        let null = core::ptr::null_mut();
        let begins = (grandchild as *const ()).cast_mut().cast();
        let executes = (&raw const (*between).executes).cast_mut().cast();
        real::clone(begins, (*between).stack, flags, executes, null, null, null);
        loop {
            syscall4(libc::SYS_exit as usize, 0, 0, 0, 0);
        }
    }
}

extern "C" fn grandchild(executes: *const Executes) -> c_int {
    const UNSHARE: usize = 2;
    const AT_FDCWD: usize = -100isize as usize;
    // SAFETY: as above. (Its table of descriptors is its own: no CLONE_FILES.)
    unsafe {
        let Executes { service, name } = *executes;
        syscall4(libc::SYS_close_range as usize, 0, u32::MAX as usize, UNSHARE, 0);
        for _ in 0..3 {
            let null = c"/dev/null".as_ptr() as usize;
            syscall4(libc::SYS_openat as usize, AT_FDCWD, null, libc::O_RDWR as usize, 0);
        }
        syscall4(libc::SYS_chdir as usize, c"/".as_ptr() as usize, 0, 0, 0);
        critical::restore_signals(0);
        let arguments = [c"uncopy".as_ptr(), COMMAND.as_ptr(), name, core::ptr::null()];
        let environment = [core::ptr::null::<u8>()];
        for file in &(*service).files {
            let (file, arguments) = (file.as_ptr() as usize, arguments.as_ptr() as usize);
            let environment = environment.as_ptr() as usize;
            syscall6(libc::SYS_execve as usize, [file, arguments, environment, 0, 0, 0]);
        }
        loop {
            syscall4(libc::SYS_exit as usize, 1, 0, 0, 0);
        }
    }
}
