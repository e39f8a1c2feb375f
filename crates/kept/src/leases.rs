//! The thread that holds leases on kept files (`fcntl(2)`, `F_SETLEASE`).
//!
//! A read lease is granted while nobody has the file open for writing. A process that opens it so,
//! or truncates it, then waits in the kernel until we have given the lease up: we are told by a
//! signal to this thread alone, which has all signals blocked. All there is to do is to take the
//! file off the shelf; what was read of it never changes.
//!
//! The files are opened anew, in a descriptor table of this thread's own. A duplicate of the
//! program's descriptor would keep its locks (`flock`) and its lease alive; closing any descriptor
//! of the file in the program's table would drop its POSIX locks.
//!
//! unsafe: system calls on this thread's own descriptors and signals.

use crate::shelf::{self, Shelved, empty, stamp_of};
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use rustix::fd::AsRawFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::Write;
use uncopy_counters::add;
use uncopy_inject::Call;
use uncopy_kernel::call::syscall4;
use uncopy_kernel::descriptors::{OwnFd, keep_only};
use uncopy_kernel::inject;
use uncopy_kernel::lock::Lock;
use uncopy_kernel::thread::{self, Kind, ThreadSlot};
use uncopy_kernel::uffd::{Fds, Uffd};
use uncopy_shelf::{FILES, Outcome, Stamp};
use uncopy_space::space::{Books, Space};

const NONE: u8 = 0;
const STARTING: u8 = 1;
const RUNS: u8 = 2;
/// How often idle files are looked for, in seconds.
const TICK: i64 = 1;

/// The thread, and the shelf that it looks at.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    pub(crate) shelf: Shelved,
    state: AtomicU8,
    stop: AtomicBool,
    slot: ThreadSlot,
    /// Held by who makes or ends the thread: it has one slot.
    change: Lock,
}

impl Leases {
    pub(crate) const fn new() -> Self {
        Self {
            shelf: Shelved::new(),
            state: AtomicU8::new(NONE),
            stop: AtomicBool::new(false),
            slot: ThreadSlot::new(),
            change: Lock::new(),
        }
    }
}

impl Leases {
    /// Whether the thread runs, or will: it is one more than the program knows of.
    pub(crate) fn running(&self) -> bool {
        self.state.load(Ordering::Acquire) != NONE
    }

    /// Makes the thread. Returns whether there is one.
    pub(crate) fn start(&'static self) -> bool {
        thread::change(&self.change, || {
            if self.running() {
                return true;
            }
            self.state.store(STARTING, Ordering::Release);
            let made = self.slot.spawn(
                run,
                core::ptr::from_ref(self) as usize,
                Kind { inside: false, own_table: false },
            );
            if !made {
                self.state.store(NONE, Ordering::Release);
            }
            made
        })
    }

    /// The thread looks at the shelf. (One that is being made does so first of all.)
    pub(crate) fn wake(&self) {
        if self.state.load(Ordering::Acquire) == RUNS {
            self.slot.signal(libc::SIGIO);
        }
    }

    /// Ends the thread and waits until it is gone, with all leases given up.
    pub(crate) fn stop(&self) {
        thread::change(&self.change, || {
            self.stop.store(true, Ordering::Release);
            self.shelf.with(|s| s.leave_all());
            while self.state.load(Ordering::Acquire) == STARTING {
                rustix::thread::sched_yield();
            }
            if self.state.load(Ordering::Acquire) == RUNS {
                while self.slot.signal(libc::SIGIO) {
                    rustix::thread::sched_yield();
                }
                self.state.store(NONE, Ordering::Release);
            }
            self.stop.store(false, Ordering::Release);
        });
    }

    /// After fork, in the child: the thread was not taken along.
    pub(crate) fn is_gone(&self) {
        self.state.store(NONE, Ordering::Relaxed);
        self.stop.store(false, Ordering::Relaxed);
        self.change.reset();
    }

    /// All that the thread does.
    fn look_after(&'static self) {
        let _ = rustix::thread::set_name(c"uncopy-files");
        let Some(space) = self.shelf.space() else { return };
        let fds = own_descriptors(space);
        let mut keeper = Keeper { leases: self, space, held: [const { None }; FILES], fds };
        if keeper.fds.is_none() {
            // Memory of wanted files goes again; nobody has used it. And the thread ends: the table
            // that it was left with may hold the program's files open.
            self.shelf.forbid();
            self.shelf.with(|s| s.leave_all());
        }
        self.state.store(RUNS, Ordering::Release);
        let mut heard = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        loop {
            keeper.look(heard);
            if self.stop.load(Ordering::Acquire) || !self.shelf.allowed() {
                break;
            }
            wait(self.shelf.with(|s| s.is_empty()) == Some(false));
            heard = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        }
        if !self.stop.load(Ordering::Acquire) {
            self.state.store(NONE, Ordering::Release);
        }
    }
}

extern "C" fn run(leases: usize) {
    // SAFETY: `start` made this thread with the address of what is never given back.
    let leases: &'static Leases = unsafe { &*(leases as *const Leases) };
    leases.look_after();
}

/// Waits until there is something to do; not for long while files may become idle.
fn wait(tick: bool) {
    let set = 1u64 << (libc::SIGIO - 1);
    let timeout = libc::timespec { tv_sec: TICK, tv_nsec: 0 };
    let address = core::ptr::from_ref(&set) as usize;
    let until = if tick { core::ptr::from_ref(&timeout) as usize } else { 0 };
    if inject::check(Call::Hear).is_ok() {
        // SAFETY: waits for a signal that this thread blocks; the arguments outlive the call.
        unsafe {
            syscall4(libc::SYS_rt_sigtimedwait as usize, address, 0, until, 8);
        }
    }
}

/// Leaves this thread with a descriptor table of its own, which holds the userfaultfds only.
fn own_descriptors(space: &'static Space) -> Option<Fds> {
    let numbers = space.with_after_fork(|b| b.memory.fds.as_ref().map(Fds::numbers)).flatten()?;
    if !keep_only(numbers) {
        return None;
    }
    let [program, pool] = numbers;
    // SAFETY: this thread's own table has just these, and only this thread uses them.
    let fds = unsafe { Fds { program: Uffd::from_raw(program), pool: Uffd::from_raw(pool) } };
    // (The program may have put another file there a moment before.)
    fds.program.map_changing()?;
    Some(fds)
}

/// Why no lease was to be had.
enum Refusal {
    Writer,
    Owner,
    FileSystem,
    Missed,
    Other,
}

struct Keeper {
    leases: &'static Leases,
    space: &'static Space,
    /// The files whose leases are held, by their places on the shelf.
    held: [Option<OwnFd>; FILES],
    fds: Option<Fds>,
}

impl Keeper {
    /// Does what there is to do, breaking leases first: somebody waits for that since `heard`.
    fn look(&mut self, heard: rustix::time::Timespec) {
        let now = shelf::now();
        for i in 0..FILES {
            let Some(file) = &self.held[i] else { continue };
            let broken = !lease_holds(file);
            let kept = self.leases.shelf.with(|s| {
                let was_kept = s.is_kept(i);
                if broken {
                    // Off the shelf first: from here on its reads are plain.
                    s.leave(i, now);
                }
                was_kept
            }) == Some(true);
            if broken || !kept {
                self.give_up(i);
            }
            if broken && kept {
                let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
                let ns = (t.tv_sec - heard.tv_sec) * 1_000_000_000 + (t.tv_nsec - heard.tv_nsec);
                self.space.counters().lease_answer_ns_max.fetch_max(ns as u64, Ordering::Relaxed);
                add(&self.space.counters().lease_breaks, 1);
            }
        }
        self.leases.shelf.with(|s| s.leave_idle(now));
        while let Some(Some((i, fd, stamp, span))) = self.leases.shelf.with(|s| s.wanted()) {
            let usable = self.fds.is_some();
            let outcome = if usable { self.obtain(i, fd, &stamp) } else { Outcome::Refused };
            if matches!(outcome, Outcome::Leased { .. }) {
                // (Where it is not granted the memory is ordinary: slower, not wrong.)
                let _ = self.with_books(|b| b.take_over(span));
            }
            let now = shelf::now();
            self.leases.shelf.with(|s| s.settle(i, outcome, now));
        }
        while let Some(Some((i, span))) = self.leases.shelf.with(|s| s.leaving()) {
            self.give_up(i);
            self.with_books(|b| b.untrack(span));
            empty(span);
            self.leases.shelf.with(|s| s.gone(i));
        }
        self.leases.shelf.count();
    }

    fn with_books<R>(&mut self, f: impl FnOnce(&mut Books) -> R) -> Option<R> {
        self.space.with_fds(&mut self.fds, f)
    }

    /// Ends the lease: those that wait for that go on.
    fn give_up(&mut self, i: usize) {
        if let Some(file) = self.held[i].take() {
            // Closing ends it too, if this should fail.
            let _ = fcntl(&file, F_SETLEASE, libc::F_UNLCK as usize);
        }
    }

    /// Opens the program's file `fd` anew and takes a lease on it, if it is still at `stamp`.
    fn obtain(&mut self, i: usize, fd: i32, stamp: &Stamp) -> Outcome {
        let c = self.space.counters();
        let counter = match lease(fd, stamp, self.leases.slot.number()) {
            Ok((file, timed)) => {
                add(&c.leases, 1);
                self.held[i] = Some(file);
                return Outcome::Leased { timed };
            }
            Err(Refusal::Missed) => {
                add(&c.no_lease_other, 1);
                return Outcome::Missed;
            }
            Err(Refusal::Writer) => &c.no_lease_writer,
            Err(Refusal::Owner) => &c.no_lease_owner,
            Err(Refusal::FileSystem) => &c.no_lease_file_system,
            Err(Refusal::Other) => &c.no_lease_other,
        };
        add(counter, 1);
        Outcome::Refused
    }
}

const F_SETLEASE: usize = 1024;
const F_GETLEASE: usize = 1025;
const F_SETOWN_EX: usize = 15;

fn fcntl(file: &OwnFd, op: usize, argument: usize) -> Result<usize, Errno> {
    let fd = file.as_raw_fd() as usize;
    // SAFETY: the operations used here take a number, or a structure that outlives the call.
    let n = unsafe { syscall4(libc::SYS_fcntl as usize, fd, op, argument, 0) };
    usize::try_from(n).map_err(|_| Errno::from_raw_os_error(-n as i32))
}

fn lease_holds(file: &OwnFd) -> bool {
    let held = inject::check(Call::LeaseHeld).and_then(|()| fcntl(file, F_GETLEASE, 0));
    held == Ok(libc::F_RDLCK as usize)
}

fn open(directory: &str, fd: i32, flags: OFlags) -> Result<OwnFd, Errno> {
    inject::check(Call::Reopen)?;
    let mut path = [0u8; 64];
    write!(&mut path[..], "{directory}/{fd}\0").map_err(|_| Errno::NAMETOOLONG)?;
    let path = core::ffi::CStr::from_bytes_until_nul(&path).map_err(|_| Errno::INVAL)?;
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map(OwnFd::from)
}

fn stamped(file: &OwnFd, stamp: &Stamp) -> bool {
    let stat = inject::check(Call::Fstat).and_then(|()| rustix::fs::fstat(file));
    stat.ok().and_then(|s| stamp_of(&s)).as_ref() == Some(stamp)
}

/// File systems whose leases hold off every change: those of one machine, in the kernel.
const FILE_SYSTEMS: [i64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

/// The file, opened anew and leased, and whether reads set its time of access.
fn lease(fd: i32, stamp: &Stamp, thread: i32) -> Result<(OwnFd, bool), Refusal> {
    let other = |_| Refusal::Other;
    // Looked at before it is opened: another file may have got the number, and opening some does
    // something.
    let seen = match open("/proc/self/fd", fd, OFlags::PATH) {
        Ok(seen) if stamped(&seen, stamp) => seen,
        Ok(_) | Err(Errno::NOENT) => return Err(Refusal::Missed),
        Err(_) => return Err(Refusal::Other),
    };
    let system = rustix::fs::fstatvfs(&seen).map_err(other)?;
    let kind = rustix::fs::fstatfs(&seen).map_err(other)?;
    use rustix::fs::StatVfsMountFlags as Mount;
    let timed = !system.f_flag.intersects(Mount::NOATIME | Mount::RDONLY);
    let always = timed && !system.f_flag.contains(Mount::RELATIME);
    if !FILE_SYSTEMS.contains(&(kind.f_type as i64)) || always {
        return Err(Refusal::FileSystem);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open("/proc/thread-self/fd", seen.as_raw_fd(), flags).map_err(other)?;
    // To `thread` alone. (`F_OWNER_TID`)
    let owner = [0i32, thread];
    let taken = inject::check(Call::Lease)
        .and_then(|()| fcntl(&file, F_SETOWN_EX, owner.as_ptr() as usize))
        .and_then(|_| fcntl(&file, F_SETLEASE, libc::F_RDLCK as usize));
    match taken {
        // Only now is it certain that nothing changes.
        Ok(_) if stamped(&file, stamp) => Ok((file, timed)),
        Ok(_) => Err(Refusal::Missed),
        Err(Errno::AGAIN) => Err(Refusal::Writer),
        Err(Errno::ACCESS) => Err(Refusal::Owner),
        Err(Errno::INVAL) => Err(Refusal::FileSystem),
        Err(_) => Err(Refusal::Other),
    }
}
