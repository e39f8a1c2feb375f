//! What a filter of system calls (seccomp) lets through that was there before the program: a
//! service manager's, a container's. The kernel tells nobody. A filter may end a program for a
//! call, so the calls are made by a child, which may die of them; where it does, another child goes
//! on behind them. The program's own process makes none of them before.
//!
//! A child is a process of its own memory, made by `clone(2)`, which our threads take too. It makes
//! system calls only. The program hears nothing of it: it has no signal at its end. The parent
//! sleeps in `clone(2)` until the child has ended, however it does (CLONE_VFORK): so it makes no
//! call for that which nobody knows yet. It has no limit of time: who answers calls for a filter,
//! and does not answer one of these, has the program wait. A child that has ended is reaped by
//! `wait4(2)`, where the first one has found that that ends nobody. Else a zombie of it stays until
//! the program ends.
//!
//! unsafe: system calls, and a page of memory that both processes have.

use crate::call::syscall6;
use crate::procfs;
use crate::uffd;
use core::fmt::{self, Display};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Calls that are good for one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Group {
    /// A survey's own: its children are reaped. (The first one, so that they can be.)
    Reaping,
    /// userfaultfd(2), where the device is not to be had.
    Userfaultfd,
    /// The books, the thread that answers faults, the twin allocator.
    Elision,
    /// Output by reference.
    Lending,
    /// The thread that answers faults is bound to a core.
    Binding,
    /// It gives its capabilities up.
    Rights,
    /// Blocks: memory that peers map; and what their users could do to each other anyway, without
    /// which they share none.
    Blocks,
    /// Connections through shared memory.
    Connections,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; GROUPS] = [
        Self::Reaping,
        Self::Userfaultfd,
        Self::Elision,
        Self::Lending,
        Self::Binding,
        Self::Rights,
        Self::Blocks,
        Self::Connections,
    ];
}

const GROUPS: usize = 8;

/// What became of a group's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All were made.
    Passes,
    /// This one was refused.
    Refused(&'static str),
    /// This one ended the process.
    Ends(&'static str),
}

/// Why calls that may fail are not made all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// This one would end the program.
    Ends(&'static str),
    /// Nobody knows: no child could be made.
    Unknown,
}

impl Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ends(call) => write!(f, "a filter of system calls ends programs for {call}"),
            Self::Unknown => {
                f.write_str("no child could ask a filter of system calls what it ends")
            }
        }
    }
}

/// What a child knows of its earlier calls.
struct State {
    process: usize,
    userfaultfd: isize,
    memory: isize,
    words: [u64; 64],
}

struct Call {
    name: &'static str,
    make: fn(&mut State) -> isize,
}

const fn call(name: &'static str, make: fn(&mut State) -> isize) -> Call {
    Call { name, make }
}

fn made(number: i64, arguments: [usize; 4]) -> isize {
    let [a, b, c, d] = arguments;
    // SAFETY: calls of a process that ends after them, on nothing, or on its own state.
    unsafe { syscall6(number as usize, [a, b, c, d, 0, 0]) }
}

/// No descriptor.
const NONE: usize = usize::MAX;

fn fcntl(state: &mut State, what: i32, value: usize) -> isize {
    made(libc::SYS_fcntl, [state.memory as usize, what as usize, value, 0])
}

/// A lock of the memory's first byte.
fn lock(state: &mut State, what: i32, kind: i32) -> isize {
    // SAFETY: plain data.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    (lock.l_type, lock.l_len) = (kind as i16, 1);
    fcntl(state, what, (&raw mut lock) as usize)
}

/// Copies a word of this process by its number.
fn across(state: &mut State, number: i64) -> isize {
    let (mut from, mut to) = (1u64, 0u64);
    let part = |at: *mut u64| libc::iovec { iov_base: at.cast(), iov_len: size_of::<u64>() };
    let (here, there) = (part(&raw mut to), part(&raw mut from));
    let (here, there) = ((&raw const here) as usize, (&raw const there) as usize);
    // SAFETY: words of this function's own.
    unsafe { syscall6(number as usize, [state.process, here, 1, there, 1, 0]) }
}

fn words(state: &mut State) -> usize {
    state.words.as_mut_ptr() as usize
}

/// Waits for nothing, for no time.
fn at_once(state: &mut State) -> isize {
    state.words[..2].fill(0);
    made(libc::SYS_ppoll, [0, 0, words(state), 0])
}

/// Waits until this child has ended, for a moment.
fn reap(child: usize) -> isize {
    loop {
        let waited = made(libc::SYS_wait4, [child, 0, libc::__WALL as usize, 0]);
        if waited != -(libc::EINTR as isize) {
            return waited;
        }
    }
}

const DEVICE_FLAGS: usize = (libc::O_RDWR | libc::O_CLOEXEC) as usize;
const UFFD_FLAGS: usize = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;

/// The calls of each group. (Of some the kernel makes nothing, so that they change nothing: a
/// filter judges them before.)
static CALLS: [&[Call]; GROUPS] = [
    &[call("wait4", |_| reap(NONE))],
    &[call("userfaultfd", |state| {
        state.userfaultfd = made(libc::SYS_userfaultfd, [UFFD_FLAGS, 0, 0, 0]);
        state.userfaultfd
    })],
    &[
        call("ioctl", |state| {
            let path = c"/dev/userfaultfd".as_ptr() as usize;
            let at = libc::AT_FDCWD as usize;
            let device = made(libc::SYS_openat, [at, path, DEVICE_FLAGS, 0]);
            if device >= 0 {
                let new = uffd::NEW as usize;
                state.userfaultfd = made(libc::SYS_ioctl, [device as usize, new, UFFD_FLAGS, 0]);
            }
            for request in uffd::REQUESTS {
                made(libc::SYS_ioctl, [state.userfaultfd as usize, request as usize, 0, 0]);
            }
            0
        }),
        call("chdir", |_| made(libc::SYS_chdir, [c"/".as_ptr() as usize, 0, 0, 0])),
        call("getresuid", |state| {
            let at = words(state);
            made(libc::SYS_getresuid, [at, at + 8, at + 16, 0])
        }),
        call("kill", |state| made(libc::SYS_kill, [state.process, 0, 0, 0])),
        call("ppoll", at_once),
        call("close_range", |_| made(libc::SYS_close_range, [1 << 30, 1 << 30, 0, 0])),
        call("madvise", |_| made(libc::SYS_madvise, [0, 0, libc::MADV_DONTNEED as usize, 0])),
        call("mremap", |_| made(libc::SYS_mremap, [0; 4])),
        call("process_vm_readv", |state| {
            made(libc::SYS_process_vm_readv, [state.process, 0, 0, 0])
        }),
        call("process_vm_writev", |state| {
            made(libc::SYS_process_vm_writev, [state.process, 0, 0, 0])
        }),
        call("sysinfo", |state| made(libc::SYS_sysinfo, [words(state), 0, 0, 0])),
        call("tgkill", |state| made(libc::SYS_tgkill, [state.process, state.process, 0, 0])),
        call("prctl", |_| {
            made(libc::SYS_prctl, [libc::PR_SET_NAME as usize, c"uncopy".as_ptr() as usize, 0, 0]);
            made(libc::SYS_prctl, [libc::PR_CAPBSET_DROP as usize, 1000, 0, 0]);
            made(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0]);
            let filter = libc::SECCOMP_MODE_FILTER as usize;
            made(libc::SYS_prctl, [libc::PR_SET_SECCOMP as usize, filter, 0, 0])
        }),
    ],
    &[
        call("pipe2", |state| made(libc::SYS_pipe2, [words(state), UFFD_FLAGS, 0, 0])),
        call("splice", |_| made(libc::SYS_splice, [NONE, 0, NONE, 0])),
        call("vmsplice", |_| made(libc::SYS_vmsplice, [NONE, 0, 0, 0])),
    ],
    &[
        call("sched_getaffinity", |state| {
            made(libc::SYS_sched_getaffinity, [0, size_of::<[u64; 64]>(), words(state), 0])
        }),
        call("sched_setaffinity", |state| {
            made(libc::SYS_sched_setaffinity, [0, size_of::<[u64; 64]>(), words(state), 0])
        }),
        call("sched_getscheduler", |_| made(libc::SYS_sched_getscheduler, [0; 4])),
        call("getcpu", |state| made(libc::SYS_getcpu, [words(state), 0, 0, 0])),
    ],
    &[call("capset", |_| {
        let (header, none) = ([0x2008_0522u32, 0], [0u32; 6]);
        made(libc::SYS_capset, [header.as_ptr() as usize, none.as_ptr() as usize, 0, 0])
    })],
    &[
        call("memfd_create", |state| {
            let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize;
            let name = c"uncopy-survey".as_ptr() as usize;
            state.memory = made(libc::SYS_memfd_create, [name, flags, 0, 0]);
            state.memory
        }),
        // (Of any other length the limit of files' might end the process.)
        call("ftruncate", |state| made(libc::SYS_ftruncate, [state.memory as usize, 0, 0, 0])),
        call("fstatfs", |state| {
            made(libc::SYS_fstatfs, [state.memory as usize, words(state), 0, 0])
        }),
        call("fcntl", |state| {
            let took = lock(state, libc::F_OFD_SETLK, libc::F_RDLCK);
            let asked = lock(state, libc::F_OFD_GETLK, libc::F_WRLCK);
            let sealed = fcntl(state, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK as usize);
            took.min(asked).min(sealed).min(fcntl(state, libc::F_GET_SEALS, 0))
        }),
        call("prctl", |_| made(libc::SYS_prctl, [libc::PR_GET_DUMPABLE as usize, 0, 0, 0])),
        // (Who may not look into others, or change them, is given nothing that they map.)
        call("process_vm_readv", |state| across(state, libc::SYS_process_vm_readv)),
        call("process_vm_writev", |state| across(state, libc::SYS_process_vm_writev)),
    ],
    &[
        call("socket", |_| {
            let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
            made(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize, 0, 0])
        }),
        call("connect", |_| made(libc::SYS_connect, [NONE, 0, 0, 0])),
        call("sendmsg", |_| made(libc::SYS_sendmsg, [NONE, 0, 0, 0])),
        call("recvmsg", |_| made(libc::SYS_recvmsg, [NONE, 0, 0, 0])),
        call("getsockopt", |_| made(libc::SYS_getsockopt, [NONE, 0, 0, 0])),
        call("setsockopt", |_| made(libc::SYS_setsockopt, [NONE, 0, 0, 0])),
        call("eventfd2", |_| made(libc::SYS_eventfd2, [0, UFFD_FLAGS, 0, 0])),
        call("epoll_create1", |_| {
            made(libc::SYS_epoll_create1, [libc::EPOLL_CLOEXEC as usize, 0, 0, 0])
        }),
        call("epoll_ctl", |_| made(libc::SYS_epoll_ctl, [NONE, 0, 0, 0])),
        call("epoll_pwait", |_| made(libc::SYS_epoll_pwait, [NONE, 0, 0, 0])),
        call("ppoll", at_once),
        call("madvise", |_| made(libc::SYS_madvise, [0, 0, libc::MADV_DONTDUMP as usize, 0])),
        call("fcntl", |_| made(libc::SYS_fcntl, [NONE, libc::F_GET_SEALS as usize, 0, 0])),
        call("ioctl", |_| made(libc::SYS_ioctl, [NONE, libc::FIONREAD as usize, 0, 0])),
    ],
];

/// The page that a child writes.
#[derive(Debug)]
#[repr(C)]
struct Page {
    /// Groups that are done with.
    done: AtomicU32,
    /// Which call of the next one is being made.
    at: AtomicU32,
    /// Of each group 1 more than which call was refused first, or 0.
    refused: [AtomicU32; GROUPS],
}

/// What was found out. Zeros at first.
#[derive(Debug)]
pub struct Survey {
    /// How many filters were in force then, and 1 more; 0: nobody has looked; [`UNTOLD`].
    filters: AtomicU32,
    /// Of each group: 0 where it passes, else twice which call does not, from 1 on, and 1 more
    /// where that ends the process; [`UNKNOWN`].
    found: [AtomicU32; GROUPS],
}

impl Default for Survey {
    fn default() -> Self {
        Self::new()
    }
}

/// No child could be made.
const UNKNOWN: u32 = u32::MAX;

/// How many filters are in force is not told.
const UNTOLD: u32 = u32::MAX;

impl Survey {
    /// Nobody has looked.
    pub const fn new() -> Self {
        Self { filters: AtomicU32::new(0), found: [const { AtomicU32::new(0) }; GROUPS] }
    }

    /// Looks, where a filter is in force: before the program can have put one of its own in force,
    /// and while it has one thread.
    pub fn look(&self) {
        let filters = procfs::filters();
        // (Where that is not told there may be one. Children live where there is none.)
        if filters != Some(0) {
            self.survey();
        }
        self.filters.store(filters.map_or(UNTOLD, |filters| filters + 1), Relaxed);
        uffd::CALL_ENDS.store(self.obstacle(Group::Userfaultfd).is_some(), Relaxed);
    }

    /// What was found out of these calls. `None`: nothing.
    pub fn found(&self, group: Group) -> Option<Outcome> {
        if self.filters.load(Relaxed) == 0 { None } else { self.outcome(group) }
    }

    fn outcome(&self, group: Group) -> Option<Outcome> {
        let found = self.found[group as usize].load(Relaxed);
        let name = |found: u32| CALLS[group as usize][(found / 2 - 1) as usize].name;
        (found != UNKNOWN).then(|| match found {
            0 => Outcome::Passes,
            _ if found % 2 == 1 => Outcome::Ends(name(found)),
            _ => Outcome::Refused(name(found)),
        })
    }

    /// Why these calls are not to be made, even where they may be refused: no child has lived
    /// through them. (Where no filter was in force none had to.)
    pub fn obstacle(&self, group: Group) -> Option<Obstacle> {
        match self.found(group) {
            Some(Outcome::Passes | Outcome::Refused(_)) => None,
            Some(Outcome::Ends(call)) => Some(Obstacle::Ends(call)),
            None => Some(Obstacle::Unknown),
        }
    }

    /// Whether these calls may be made now: no filter is in force; or they pass those that were
    /// when somebody [looked](Self::look), and no other is in force since.
    pub fn passes(&self, group: Group) -> bool {
        match procfs::filters() {
            Some(0) => true,
            Some(filters) => {
                self.filters.load(Relaxed) == filters + 1
                    && self.found(group) == Some(Outcome::Passes)
            }
            None => procfs::is_filtered() == Some(false),
        }
    }

    fn survey(&self) {
        self.found.iter().for_each(|found| found.store(UNKNOWN, Relaxed));
        let Some(shared) = Shared::new() else { return };
        let page = shared.page();
        let mut next = 0;
        while next < GROUPS
            && let Some(child) = run(page, next)
        {
            let done = page.done.load(Relaxed) as usize;
            for (found, refused) in self.found.iter().zip(&page.refused).take(done).skip(next) {
                found.store(2 * refused.load(Relaxed), Relaxed);
            }
            if let Some(found) = self.found.get(done) {
                found.store(2 * (page.at.load(Relaxed) + 1) + 1, Relaxed);
            }
            next = done + 1;
            if !matches!(self.outcome(Group::Reaping), Some(Outcome::Ends(_))) {
                reap(child);
            }
        }
    }
}

/// A page that a child shares.
struct Shared(*mut Page);

impl Shared {
    fn new() -> Option<Self> {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANON);
        let arguments = [0, size_of::<Page>(), access as usize, flags as usize, NONE, 0];
        // SAFETY: a new mapping.
        let at = unsafe { syscall6(libc::SYS_mmap as usize, arguments) };
        (at > 0).then_some(Self(at as *mut Page))
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped, zeros at first, and changed by atomics only.
        unsafe { &*self.0 }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        made(libc::SYS_munmap, [self.0 as usize, size_of::<Page>(), 0, 0]);
    }
}

/// A child has made the calls from this group on, as far as it lived, and has ended. `None`: there
/// is none.
fn run(page: &Page, from: usize) -> Option<usize> {
    page.done.store(from as u32, Relaxed);
    page.at.store(0, Relaxed);
    // (Its memory is its own, and nobody hears of its end.)
    let child = made(libc::SYS_clone, [libc::CLONE_VFORK as usize, 0, 0, 0]);
    if child == 0 {
        makes(page, from);
    }
    usize::try_from(child).ok()
}

/// The child's life.
fn makes(page: &Page, from: usize) -> ! {
    // (A core of one byte is none, whoever is handed cores.)
    let limit = [1u64, 1];
    let core = libc::RLIMIT_CORE as usize;
    made(libc::SYS_prlimit64, [0, core, limit.as_ptr() as usize, 0]);
    let process = made(libc::SYS_getpid, [0; 4]) as usize;
    let mut state = State { process, userfaultfd: -1, memory: -1, words: [0; 64] };
    for (group, calls) in CALLS.iter().enumerate().skip(from) {
        let mut refused = 0;
        for (i, call) in calls.iter().enumerate() {
            page.at.store(i as u32, Relaxed);
            if (call.make)(&mut state) < 0 && refused == 0 {
                refused = i as u32 + 1;
            }
        }
        page.refused[group].store(refused, Relaxed);
        page.at.store(0, Relaxed);
        page.done.store(group as u32 + 1, Relaxed);
    }
    loop {
        made(libc::SYS_exit_group, [0; 4]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs it on a thread on which these calls are answered so.
    fn under<T: Send + 'static>(
        filters: &'static [(i64, u32)],
        run: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let run = || {
            filters.iter().for_each(|(number, answer)| filter(*number, *answer));
            run()
        };
        std::thread::spawn(run).join().unwrap()
    }

    /// Puts a filter in force on this thread.
    fn filter(number: i64, answer: u32) {
        use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
        let rule =
            |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
        let rules = [
            rule(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
            rule(BPF_JMP | BPF_JEQ | BPF_K, number as u32, 0, 1),
            rule(BPF_RET | BPF_K, answer, 0, 0),
            rule(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
        ];
        let program = libc::sock_fprog { len: 4, filter: rules.as_ptr().cast_mut() };
        assert_eq!(made(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0]), 0);
        let at = (&raw const program) as usize;
        assert_eq!(made(libc::SYS_seccomp, [1, 0, at, 0]), 0);
    }

    const EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    const NOTHING: i64 = libc::SYS_swapoff;

    fn found() -> [Option<Outcome>; GROUPS] {
        let survey = Survey::new();
        survey.look();
        Group::ALL.map(|group| survey.found(group))
    }

    #[test]
    fn what_no_filter_minds_passes() {
        use Outcome::Passes;
        let found = under(&[(NOTHING, EPERM)], found);
        // (Elision's and output's calls fail for other reasons: they name nothing.)
        assert_eq!(found[4..7], [Some(Passes); 3], "{found:?}");
        let ends = |outcome: &Option<Outcome>| matches!(outcome, Some(Outcome::Ends(_)) | None);
        assert!(!found.iter().any(ends), "{found:?}");
    }

    #[test]
    fn a_refused_call_is_named_and_others_pass() {
        let found = under(&[(libc::SYS_fstatfs, EPERM), (libc::SYS_capset, EPERM)], found);
        let all = [Outcome::Passes, Outcome::Refused("capset"), Outcome::Refused("fstatfs")];
        assert_eq!(found[4..7], all.map(Some), "{found:?}");
    }

    #[test]
    fn calls_that_end_a_process_are_named_and_the_program_lives() {
        for how in
            [libc::SECCOMP_RET_KILL_PROCESS, libc::SECCOMP_RET_KILL_THREAD, libc::SECCOMP_RET_TRAP]
        {
            let numbers = [
                libc::SYS_userfaultfd,
                libc::SYS_process_vm_writev,
                libc::SYS_vmsplice,
                libc::SYS_eventfd2,
            ];
            let filters: Vec<(i64, u32)> = numbers.map(|number| (number, how)).into();
            let found = under(filters.leak(), found);
            let ends = |name| Some(Outcome::Ends(name));
            assert_eq!(found[1], ends("userfaultfd"), "{found:?}");
            assert_eq!(found[2], ends("process_vm_writev"), "{found:?}");
            assert_eq!(found[3], ends("vmsplice"), "{found:?}");
            assert_eq!(found[4..6], [Some(Outcome::Passes); 2], "{found:?}");
            assert_eq!(found[6..], [ends("process_vm_writev"), ends("eventfd2")], "{found:?}");
        }
    }

    #[test]
    fn what_waits_for_a_child_ends_nobody() {
        let numbers = [
            libc::SYS_wait4,
            libc::SYS_waitid,
            libc::SYS_nanosleep,
            libc::SYS_clock_nanosleep,
            libc::SYS_kill,
        ];
        for number in numbers {
            for how in [libc::SECCOMP_RET_KILL_PROCESS, libc::SECCOMP_RET_TRAP, EPERM] {
                let filters: Vec<(i64, u32)> = vec![(number, how)];
                let found = under(filters.leak(), found);
                let ends = |name| (how != EPERM).then_some(Outcome::Ends(name));
                let reaps = ends("wait4").filter(|_| number == libc::SYS_wait4);
                assert_eq!(found[0], reaps.or(Some(Outcome::Refused("wait4"))), "{found:?}");
                let kills = ends("kill").filter(|_| number == libc::SYS_kill);
                let is_kill = |outcome: &Option<Outcome>| *outcome == ends("kill");
                assert_eq!(kills.is_some(), how != EPERM && is_kill(&found[2]), "{found:?}");
                assert_eq!(found[4..7], [Some(Outcome::Passes); 3], "{found:?}");
            }
        }
    }

    #[test]
    fn a_child_that_ends_is_reaped_where_that_passes() {
        // (A thread sees its own children.)
        let children = |numbers: &'static [(i64, u32)]| {
            under(numbers, || {
                found();
                std::fs::read_to_string("/proc/thread-self/children").unwrap()
            })
        };
        let killed = (libc::SYS_vmsplice, libc::SECCOMP_RET_KILL_PROCESS);
        assert_eq!(children(Box::leak(Box::new([killed]))), "");
        let waiting = (libc::SYS_wait4, libc::SECCOMP_RET_KILL_PROCESS);
        let left = children(Box::leak(Box::new([killed, waiting])));
        assert_eq!(left.split_whitespace().count(), 3, "{left}");
    }

    #[test]
    fn the_parents_signals_stay_as_they_are() {
        let lines = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let of = |line: &&str| line.starts_with("Sig") || line.starts_with("ShdPnd");
            status.lines().filter(of).map(str::to_owned).collect::<Vec<_>>()
        };
        let (before, after) = under(&[(libc::SYS_vmsplice, libc::SECCOMP_RET_TRAP)], move || {
            let before = lines();
            found();
            (before, lines())
        });
        assert_eq!(before, after);
    }

    #[test]
    fn calls_are_not_made_where_no_child_can_make_them() {
        let obstacles = |numbers: &'static [(i64, u32)]| {
            under(numbers, || {
                let survey = Survey::new();
                survey.look();
                let found = Group::ALL.map(|group| survey.obstacle(group));
                (found, survey.passes(Group::Blocks))
            })
        };
        let (found, passes) = obstacles(&[(libc::SYS_clone, EPERM)]);
        assert_eq!((found, passes), ([Some(Obstacle::Unknown); GROUPS], false));
        // No /proc can be opened: that tells of no filter.
        let (found, passes) = obstacles(&[(libc::SYS_open, EPERM), (libc::SYS_openat, EPERM)]);
        assert_eq!((found, passes), ([None; GROUPS], false));
        const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
        let (found, passes) = obstacles(&[
            (libc::SYS_open, EPERM),
            (libc::SYS_openat, EPERM),
            (libc::SYS_splice, KILL),
        ]);
        assert_eq!((found[3], passes), (Some(Obstacle::Ends("splice")), false));
        assert!(found[..3].iter().chain(&found[4..]).all(Option::is_none), "{found:?}");
    }

    #[test]
    fn each_call_of_the_thread_that_answers_faults_is_looked_at() {
        for (number, name) in [
            (libc::SYS_chdir, "chdir"),
            (libc::SYS_getresuid, "getresuid"),
            (libc::SYS_kill, "kill"),
            (libc::SYS_ppoll, "ppoll"),
            (libc::SYS_prctl, "prctl"),
        ] {
            let filters: Vec<(i64, u32)> = vec![(number, libc::SECCOMP_RET_KILL_PROCESS)];
            let found = under(filters.leak(), found);
            assert_eq!(found[2], Some(Outcome::Ends(name)), "{found:?}");
        }
    }

    #[test]
    fn where_no_child_can_be_made_nothing_passes() {
        let found = under(&[(libc::SYS_clone, EPERM)], || {
            let survey = Survey::new();
            survey.look();
            Group::ALL.map(|group| survey.passes(group))
        });
        assert_eq!(found, [false; GROUPS]);
    }

    #[test]
    fn a_filter_that_came_later_is_not_known() {
        under(&[(NOTHING, EPERM)], || {
            let survey = Survey::new();
            assert!(!survey.passes(Group::Blocks), "nobody has looked");
            survey.look();
            assert!(survey.passes(Group::Blocks));
            filter(NOTHING, EPERM);
            assert!(!survey.passes(Group::Blocks) && !survey.passes(Group::Rights));
        });
        let survey = Survey::new();
        survey.look();
        assert!(survey.passes(Group::Blocks), "no filter");
    }
}
