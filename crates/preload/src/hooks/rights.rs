//! The calls by which a program gives up rights, or moves to other namespaces: our threads follow
//! ([`uncopy_process::rights`]).
//!
//! unsafe: see the crate.

use crate::process::PROCESS;
use crate::real;
use core::ffi::{c_char, c_int, c_void};
use libc::{gid_t, uid_t};

/// `CLONE_NEWTIME` (Linux 5.6).
const CLONE_NEWTIME: c_int = 0x80;

/// Defines calls that are made as they are, and of which `follow` is told where they succeed.
macro_rules! followed {
    ($( $name:ident($($arg:ident: $type:ty),*) => $follow:ident, $doc:literal; )*) => { $(
        #[doc = $doc]
        ///
        /// # Safety
        /// The caller keeps the contract of the man page.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: the program's own arguments.
            let result = unsafe { real::$name($($arg),*) };
            if result == 0 {
                PROCESS.$follow();
            }
            result
        }
    )* };
}

followed! {
    setuid(user: uid_t) => ids_changed, "`setuid(2)`.";
    seteuid(user: uid_t) => ids_changed, "`seteuid(2)`.";
    setreuid(real: uid_t, effective: uid_t) => ids_changed, "`setreuid(2)`.";
    setresuid(real: uid_t, effective: uid_t, saved: uid_t) => ids_changed, "`setresuid(2)`.";
    setgid(group: gid_t) => ids_changed, "`setgid(2)`.";
    setegid(group: gid_t) => ids_changed, "`setegid(2)`.";
    setregid(real: gid_t, effective: gid_t) => ids_changed, "`setregid(2)`.";
    setresgid(real: gid_t, effective: gid_t, saved: gid_t) => ids_changed, "`setresgid(2)`.";
    setgroups(count: usize, groups: *const gid_t) => rights_changed, "`setgroups(2)`.";
    initgroups(user: *const c_char, group: gid_t) => rights_changed, "`initgroups(3)`.";
    capset(header: *mut c_void, data: *const c_void) => rights_lessened, "`capset(2)`.";
    chroot(path: *const c_char) => rights_changed, "`chroot(2)`.";
    pivot_root(new: *const c_char, old: *const c_char) => rights_changed, "`pivot_root(2)`.";
}

/// `prctl(2)`: a program that enters a sandbox is left alone from then on, because the sandbox may
/// kill it for our system calls.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(op: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if op == libc::PR_SET_SECCOMP {
        super::process::before_sandbox();
    }
    // SAFETY: the program's own arguments (those that the operation does not have are not read).
    let result = unsafe { real::prctl(op, a, b, c, d) };
    const GIVES_UP: [c_int; 4] = [
        libc::PR_SET_NO_NEW_PRIVS,
        libc::PR_CAPBSET_DROP,
        libc::PR_SET_SECUREBITS,
        libc::PR_CAP_AMBIENT,
    ];
    if result == 0 && GIVES_UP.contains(&op) {
        PROCESS.rights_lessened();
    }
    if result == 0 && op == libc::PR_SET_DUMPABLE && a != 1 {
        PROCESS.tcp.is_secret();
    }
    result
}

/// `unshare(2)`: what concerns all threads is refused to a process that has several. Of other
/// namespaces a thread leaves its own, and ours stays behind: it is made anew.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    const OF_ALL_THREADS: c_int =
        libc::CLONE_NEWUSER | libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_VM;
    // (Where children's processes or clocks change, threads stay where they are; and none can be
    // made any more.)
    const NOT_OURS: c_int = libc::CLONE_FILES
        | libc::CLONE_FS
        | libc::CLONE_SYSVSEM
        | libc::CLONE_NEWPID
        | CLONE_NEWTIME;
    // SAFETY: the program's own argument.
    let call = || unsafe { real::unshare(flags) };
    if flags & OF_ALL_THREADS != 0 {
        return PROCESS.without_our_threads(call);
    }
    let result = call();
    if result == 0 && flags & !NOT_OURS != 0 {
        PROCESS.rights_changed();
    }
    result
}

/// `setns(2)`: entering a user or time namespace is refused to a process of several threads. (The
/// caller may leave open which kind of namespace the descriptor is of.)
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real::setns(fd, kind) };
    if kind == 0 || kind & (libc::CLONE_NEWUSER | CLONE_NEWTIME) != 0 {
        return PROCESS.without_our_threads(call);
    }
    let result = call();
    if result == 0 && kind & !libc::CLONE_NEWPID != 0 {
        PROCESS.rights_changed();
    }
    result
}

/// After a system call made by number: what it changed of the calling thread.
pub(super) fn after(number: i64, result: isize) {
    const SYS_LANDLOCK_RESTRICT_SELF: i64 = 446;
    if result != 0 {
        return;
    }
    match number {
        libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setreuid
        | libc::SYS_setregid
        | libc::SYS_setresuid
        | libc::SYS_setresgid => PROCESS.ids_changed(),
        libc::SYS_capset | SYS_LANDLOCK_RESTRICT_SELF => PROCESS.rights_lessened(),
        libc::SYS_setgroups | libc::SYS_chroot | libc::SYS_pivot_root => PROCESS.rights_changed(),
        _ => {}
    }
}
