//! The fault-handling thread: answers touches of unmapped pages, also those that the kernel makes
//! on the program's behalf, and heeds the kernel's reports of changes to the memory map.
//!
//! unsafe: makes a thread. It is made through libc (not `clone`), so that `setuid` and its kin
//! reach it too: no thread of ours keeps privileges that the program has dropped.

use crate::uffd::{Event, Msg};
use crate::{critical, freeze, space};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsRawFd, BorrowedFd};
use uncopy_core::tracker::Fault;

const STACK: usize = 256 << 10;
/// Faults that wait for the memory map to settle; more wait in the kernel.
const WAITING_MAX: usize = 64;

/// Makes the thread; returns whether that worked.
pub(crate) fn spawn() -> bool {
    // SAFETY: plain pthread calls; the thread runs `run` and touches no stack of ours. All signals
    // are blocked while it is made, so it starts (and stays) with all blocked.
    unsafe {
        let mut all = core::mem::zeroed();
        let mut old = core::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let mut attr = core::mem::zeroed();
        let mut thread = core::mem::zeroed();
        let errno = *libc::__errno_location();
        let made = libc::pthread_attr_init(&mut attr) == 0
            && libc::pthread_attr_setstacksize(&mut attr, STACK) == 0
            && libc::pthread_attr_setdetachstate(&mut attr, libc::PTHREAD_CREATE_DETACHED) == 0
            && libc::pthread_create(&mut thread, &attr, run, core::ptr::null_mut()) == 0;
        libc::pthread_attr_destroy(&mut attr);
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, core::ptr::null_mut());
        *libc::__errno_location() = errno;
        made
    }
}

extern "C" fn run(_: *mut libc::c_void) -> *mut libc::c_void {
    critical::forever();
    let _ = rustix::thread::set_name(c"uncopy");
    let fds = space::for_monitor(|b, _| {
        [b.memory.fds.program.fd().as_raw_fd(), b.memory.fds.pool.fd().as_raw_fd()]
    });
    let Some([program, pool]) = fds else {
        return core::ptr::null_mut();
    };
    keep_only([program, pool]);
    // SAFETY: the space keeps both open for the life of the process, and this thread's own table
    // of descriptors keeps them open even if the program closes everything.
    let (program, pool) =
        unsafe { (BorrowedFd::borrow_raw(program), BorrowedFd::borrow_raw(pool)) };
    let mut waiting = Waiting { pages: [0; WAITING_MAX], count: 0 };
    loop {
        let mut fds = [PollFd::new(&program, PollFlags::IN), PollFd::new(&pool, PollFlags::IN)];
        let patience = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000 };
        let timeout = (waiting.count > 0).then_some(&patience);
        let _ = poll(&mut fds, timeout);
        if fds[1].revents().contains(PollFlags::IN) {
            space::for_monitor(|b, _| {
                for m in b.memory.fds.pool.read(&mut [Msg::default(); 32]) {
                    if let Event::Fault(addr) = m.event() {
                        b.memory.provide_pool_zero(addr);
                    }
                }
            });
        }
        // Reports are read with the lock held: once the kernel lets the reported call return,
        // nobody sees the books without it.
        space::for_monitor(|b, frozen| {
            waiting.try_again(b, frozen);
            if frozen && !freeze::has_room() || waiting.count > WAITING_MAX / 2 {
                return;
            }
            for m in b.memory.fds.program.read(&mut [Msg::default(); 32]) {
                match m.event() {
                    Event::Fault(addr) => waiting.answer(b, frozen, addr),
                    event if frozen => {
                        freeze::push(event);
                    }
                    event => report(b, event),
                }
            }
        });
    }
}

/// Leaves this thread with a descriptor table of its own that holds only ours: what the program
/// closes is closed, and what it closes of ours stays open here.
fn keep_only(ours: [i32; 2]) {
    let (low, high) = (ours[0].min(ours[1]) as u32, ours[0].max(ours[1]) as u32);
    // SAFETY: from the first call on the table is this thread's alone (CLOSE_RANGE_UNSHARE).
    unsafe {
        let close = |from: u32, to: u32, flags: usize| {
            let call = libc::SYS_close_range as usize;
            if from <= to {
                critical::syscall4(call, from as usize, to as usize, flags, 0)
            } else {
                0
            }
        };
        const UNSHARE: usize = 2;
        if close(high + 1, u32::MAX, UNSHARE) != 0 {
            return;
        }
        close(low + 1, high - 1, 0);
        if low > 0 {
            close(0, low - 1, 0);
        }
    }
}

/// Heeds a report.
pub(crate) fn report(books: &mut space::Books, event: Event) {
    match event {
        Event::Unmap(span) => books.unmapped(span),
        Event::Remove(span) => books.removed(span),
        Event::Remap(from, to, len) => books.remapped(from, to, len),
        Event::Fault(_) | Event::Other(_) => {}
    }
}

/// Faults that cannot be answered while the memory map is changing.
struct Waiting {
    pages: [usize; WAITING_MAX],
    count: usize,
}

impl Waiting {
    fn answer(&mut self, books: &mut space::Books, frozen: bool, addr: usize) {
        if !Self::resolve(books, frozen, addr) && self.count < WAITING_MAX {
            self.pages[self.count] = addr;
            self.count += 1;
        }
    }

    fn try_again(&mut self, books: &mut space::Books, frozen: bool) {
        let pages = self.pages;
        let count = core::mem::take(&mut self.count);
        for &addr in &pages[..count] {
            if frozen && !freeze::has_room() {
                self.pages[self.count] = addr;
                self.count += 1;
                continue;
            }
            self.answer(books, frozen, addr);
        }
    }

    /// Returns false if it has to be tried again.
    fn resolve(books: &mut space::Books, frozen: bool, addr: usize) -> bool {
        let outcome = if frozen {
            let line = freeze::push(Event::Fault(addr));
            let outcome = books.fault_while_frozen(addr);
            if outcome != Fault::Resolved {
                freeze::cancel(line);
            }
            outcome
        } else {
            books.fault(addr)
        };
        match outcome {
            Fault::Resolved => true,
            Fault::Unknown => books.memory.provide_zero(addr),
            Fault::Again => false,
        }
    }
}
