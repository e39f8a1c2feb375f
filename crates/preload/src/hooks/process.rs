//! fork, clone, exec and _exit.
//!
//! `fork` itself is not interposed: its handlers (`pthread_atfork`, see [`crate::start`]) also run
//! when libc forks by itself (daemon, forkpty). vfork and posix_spawn share the memory map, and
//! with it the monitor: nothing to do.
//!
//! unsafe: see the crate; the variadic exec functions are entered in assembly, because Rust
//! (stable) cannot define them.

use super::executed::{self, Executed, From};
use super::unwaited::written_by_kernel;
use crate::process::PROCESS;
use crate::{real, start, summary};
use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use uncopy_kernel::user_access;
use uncopy_tcp_socket::StayReason;

type Strings = *const *const c_char;

/// `_Fork(3)`: fork without the handlers, for signal handlers: the child goes on without us.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> c_int {
    // SAFETY: the program's own call.
    with_everything_ordinary(|| unsafe { real::plain_fork() }, |pid| *pid == 0)
}

/// `clone(2)`, libc's: without CLONE_VM the child has a copy of the memory but no way back to us,
/// so everything is materialized before.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    f: *mut c_void,
    stack: *mut c_void,
    flags: c_int,
    arg: *mut c_void,
    ptid: *mut c_void,
    tls: *mut c_void,
    ctid: *mut c_void,
) -> c_int {
    // SAFETY: the program's own arguments (those that its flags do not name are not read).
    unsafe {
        if flags & libc::CLONE_VM != 0 || f.is_null() {
            if flags & libc::CLONE_CHILD_CLEARTID != 0 {
                written_by_kernel(ctid as usize, size_of::<c_int>());
            }
            return real::clone(f, stack, flags, arg, ptid, tls, ctid);
        }
        // The child begins there and does not come back here. (Its copy of `run` is its own.)
        let run = Run { f: core::mem::transmute::<*mut c_void, Main>(f), arg };
        let child = (begin as *const ()).cast_mut().cast();
        let run = core::ptr::from_ref(&run).cast_mut().cast();
        with_everything_ordinary(
            || real::clone(child, stack, flags, run, ptid, tls, ctid),
            |_| false,
        )
    }
}

type Main = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The function that a child of [`clone`] is to run.
struct Run {
    f: Main,
    arg: *mut c_void,
}

/// The beginning of such a child: it goes on without us.
unsafe extern "C" fn begin(run: *const Run) -> c_int {
    // SAFETY: [`clone`]'s, in this process's own copy of its parent's memory.
    unsafe {
        let Run { f, arg } = run.read();
        child_goes_on_without_us();
        f(arg)
    }
}

fn child_goes_on_without_us() {
    super::signals::own();
    start::alone();
}

/// `pthread_mutex_init(3)`: of a robust mutex the kernel marks the owner's death, of one that
/// inherits priority it writes the owner's number.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut libc::pthread_mutex_t,
    attributes: *const libc::pthread_mutexattr_t,
) -> c_int {
    // SAFETY: the program's own arguments; questions about its attributes.
    unsafe {
        let result = real::pthread_mutex_init(mutex, attributes);
        if result == 0 && !attributes.is_null() {
            let (mut robust, mut protocol) = (0, 0);
            libc::pthread_mutexattr_getrobust(attributes, &mut robust);
            libc::pthread_mutexattr_getprotocol(attributes, &mut protocol);
            if robust == libc::PTHREAD_MUTEX_ROBUST || protocol == libc::PTHREAD_PRIO_INHERIT {
                written_by_kernel(mutex as usize, size_of::<libc::pthread_mutex_t>());
            }
        }
        result
    }
}

/// Runs a call that copies the address space behind libc's back; `is_child` knows the child by the
/// result, if it comes back here at all. (Our heap is not locked meanwhile, because a child that
/// does not come back could not unlock it.)
pub(super) fn with_everything_ordinary<R>(
    call: impl FnOnce() -> R,
    is_child: impl FnOnce(&R) -> bool,
) -> R {
    PROCESS.log.before_bare_fork();
    PROCESS.freeze_with_everything_ordinary();
    let result = call();
    if is_child(&result) {
        child_goes_on_without_us();
    } else {
        PROCESS.space.thaw();
        PROCESS.log.after_bare_fork_parent();
    }
    result
}

/// Keeps us preloaded in what is executed: our library first in the environment's LD_PRELOAD, also
/// where the program made up an environment of its own. Where we cannot be loaded we are left out
/// of it.
fn with_environment<R>(envp: Strings, what: Executed, call: impl FnOnce(Strings) -> R) -> R {
    PROCESS.before_exec();
    PROCESS.log.executes(|| handed_on(envp, what, call))
}

/// As [`with_environment`], where this process goes on.
fn handed_on<R>(envp: Strings, what: Executed, call: impl FnOnce(Strings) -> R) -> R {
    // (The file is looked at below, which others may hear of.)
    PROCESS.log.await_to_execute();
    PROCESS.log.before_exec();
    summary::before_exec();
    let made = start::exec_entry().and_then(|ours| {
        if !executed::takes(ours.library, what) {
            environment_without(ours.library, envp)
        } else if ours.follows {
            environment(ours, envp)
        } else {
            None
        }
    });
    match made {
        Some(made) => call(made.list.as_ptr()),
        None => call(envp),
    }
}

/// An environment that is made up.
struct ChangedEnvironment {
    list: Vec<*const c_char>,
    /// The lines that are new in it.
    _lines: Vec<Vec<u8>>,
}

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// The entries of an environment, up to its end or to one that cannot be read (`None`).
fn entries(envp: Strings) -> impl Iterator<Item = Option<*const c_char>> {
    let all = (0..)
        .take_while(move |_| !envp.is_null())
        .map(move |i| user_access::read(envp.wrapping_add(i)));
    all.take_while(|entry| entry.is_none_or(|entry| !entry.is_null()))
}

/// The libraries that a value of LD_PRELOAD names.
fn libraries(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|b| matches!(b, b':' | b' '))
}

/// The environment to be handed on in place of `envp`. `None`: that is as it should be, or it
/// cannot be read, and the kernel will say so.
fn environment(ours: &start::ExecEntry, envp: Strings) -> Option<ChangedEnvironment> {
    // This runs between vfork and exec too: nothing here outlives the call or changes what the
    // parent sees.
    let mut list: Vec<*const c_char> = Vec::new();
    let mut line = [PRELOAD, ours.library].concat();
    // The last of several counts.
    let mut preload: Option<(*const c_char, Vec<u8>)> = None;
    let mut named = vec![false; ours.settings.len()];
    for entry in entries(envp) {
        let entry = entry?;
        if user_access::begins_with(entry, PRELOAD)? {
            let text = user_access::string(entry)?;
            let value = text[PRELOAD.len()..].to_vec();
            if libraries(&value).any(|p| p == ours.library) {
                return None;
            }
            list.extend(preload.replace((entry, value)).map(|(earlier, _)| earlier));
            continue;
        }
        if user_access::begins_with(entry, PREFIX)? {
            for (setting, named) in ours.settings.iter().zip(&mut named) {
                let name = setting.to_bytes().split_inclusive(|b| *b == b'=').next()?;
                *named |= user_access::begins_with(entry, name)?;
            }
        }
        list.push(entry);
    }
    if let Some((_, value)) = preload.filter(|(_, v)| !v.is_empty()) {
        line.push(b':');
        line.extend_from_slice(&value);
    }
    line.push(0);
    list.push(line.as_ptr().cast());
    // The options travel with the library.
    let settings = ours.settings.iter().zip(&named).filter(|(_, named)| !**named);
    list.extend(settings.map(|(setting, _)| setting.as_ptr()));
    list.push(core::ptr::null());
    Some(ChangedEnvironment { list, _lines: vec![line] })
}

/// The environment without our library in LD_PRELOAD; `None` as above.
fn environment_without(library: &[u8], envp: Strings) -> Option<ChangedEnvironment> {
    let mut made = ChangedEnvironment { list: Vec::new(), _lines: Vec::new() };
    let mut found = false;
    for entry in entries(envp) {
        let entry = entry?;
        if user_access::begins_with(entry, PRELOAD)? {
            let text = user_access::string(entry)?;
            let value = &text[PRELOAD.len()..];
            if libraries(value).any(|p| p == library) {
                found = true;
                // (Others' names, and what stands between them, stay as they were.)
                let mut others = Vec::new();
                for name in value.split_inclusive(|b| matches!(b, b':' | b' ')) {
                    if libraries(name).next() != Some(library) {
                        others.extend_from_slice(name);
                    }
                }
                while others.last().is_some_and(|b| matches!(b, b':' | b' ')) {
                    others.pop();
                }
                if !others.is_empty() {
                    let line = [PRELOAD, &others, b"\0"].concat();
                    made.list.push(line.as_ptr().cast());
                    made._lines.push(line);
                }
                continue;
            }
        }
        made.list.push(entry);
    }
    made.list.push(core::ptr::null());
    found.then_some(made)
}

/// The prefix of the names of our settings.
const PREFIX: &[u8] = start::PREFIX.as_bytes();

/// `execve(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        with_environment(envp, Executed::Path(path, From::Here), |e| real::execve(path, argv, e))
    }
}

/// `execvpe(3)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        with_environment(envp, Executed::Named(file, From::Here), |e| real::execvpe(file, argv, e))
    }
}

unsafe extern "C" {
    static environ: Strings;
}

/// `execv(3)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the program's own arguments and environment.
    unsafe { execve(path, argv, environ) }
}

/// `execvp(3)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the program's own arguments and environment.
    unsafe { execvpe(file, argv, environ) }
}

/// `execveat(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    dir: c_int,
    path: *const c_char,
    argv: Strings,
    envp: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        with_environment(envp, Executed::At(dir, path), |e| {
            real::execveat(dir, path, argv, e, flags)
        })
    }
}

/// `fexecve(3)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let itself = Executed::At(fd, c"".as_ptr());
        with_environment(envp, itself, |e| real::fexecve(fd, argv, e))
    }
}

/// Where a relative path begins of what is executed after these actions.
fn begins(actions: *const c_void) -> From {
    if actions.is_null() { From::Here } else { From::Somewhere }
}

/// `posix_spawn(3)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut c_int,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let what = Executed::Path(path, begins(actions));
        handed_on(envp, what, |e| real::posix_spawn(pid, path, actions, attributes, argv, e))
    }
}

/// `posix_spawn_file_actions_adddup2(3)`: a connection is Linux's from now on, for the child knows
/// nothing of rings. EBUSY: it cannot be, because the other side has ended the stream, another
/// process holds this end too, and something lies unread.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    old: c_int,
    new: c_int,
) -> c_int {
    if PROCESS.tcp.in_use() {
        super::files::used_past(old);
        if !PROCESS.tcp.is_used_past(old) {
            return libc::EBUSY;
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { real::posix_spawn_file_actions_adddup2(actions, old, new) }
}

/// `posix_spawnp(3)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut c_int,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let what = Executed::Named(file, begins(actions));
        handed_on(envp, what, |e| real::posix_spawnp(pid, file, actions, attributes, argv, e))
    }
}

/// Defines a variadic exec function: the five arguments that came in registers are put on the
/// stack; `collect` gets (path, those five, those that came on the stack).
macro_rules! variadic_exec {
    ($name:ident, $collect:ident, $doc:literal) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// The caller keeps the contract of the man page.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> c_int {
            naked_asm!(
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "lea rdx, [rsp + 48]",
                "call {collect}",
                "add rsp, 40",
                "ret",
                collect = sym $collect,
            )
        }
    };
}

variadic_exec!(execl, collect_execl, "`execl(3)`.");
variadic_exec!(execlp, collect_execlp, "`execlp(3)`.");
variadic_exec!(execle, collect_execle, "`execle(3)`.");

/// The arguments up to the null one, and the one behind it (an environment, for `execle`; else at
/// worst a word of the caller's stack, which nobody uses).
unsafe fn arguments(registers: Strings, stack: Strings) -> (Vec<*const c_char>, *const c_char) {
    // SAFETY: `registers` holds five arguments, `stack` the rest, ended by a null one.
    unsafe {
        let at = |i: usize| if i < 5 { *registers.add(i) } else { *stack.add(i - 5) };
        let mut list = Vec::new();
        loop {
            let arg = at(list.len());
            list.push(arg);
            if arg.is_null() {
                let behind = at(list.len());
                return (list, behind);
            }
        }
    }
}

unsafe extern "C" fn collect_execl(
    path: *const c_char,
    registers: Strings,
    stack: Strings,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { execv(path, arguments(registers, stack).0.as_ptr()) }
}

unsafe extern "C" fn collect_execlp(
    file: *const c_char,
    registers: Strings,
    stack: Strings,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { execvp(file, arguments(registers, stack).0.as_ptr()) }
}

unsafe extern "C" fn collect_execle(
    path: *const c_char,
    registers: Strings,
    stack: Strings,
) -> c_int {
    // SAFETY: the program's own arguments; the environment follows the null argument.
    unsafe {
        let (argv, envp) = arguments(registers, stack);
        execve(path, argv.as_ptr(), envp.cast())
    }
}

/// `_exit(2)`: shells and forked children end by it. Their summary is said, and what others wait
/// for is sent.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    PROCESS.log.program_ends();
    PROCESS.tcp.before_end();
    PROCESS.tcp.program_ends();
    summary::end();
    // SAFETY: the program's own call.
    unsafe { real::_exit(status) }
}

/// The program enters a sandbox.
pub(super) fn before_sandbox() {
    // (Limits that are looked up later may be out of reach.)
    PROCESS.space.read_limits();
    if PROCESS.space.wanted() {
        PROCESS.stand_down();
    } else {
        PROCESS.space.statistics.close();
    }
    PROCESS.tcp.stop(StayReason::Sandbox);
    PROCESS.log.stop(uncopy_log_service::PlainReason::PastUs);
    super::signals::let_all_go();
}
