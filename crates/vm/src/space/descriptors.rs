//! Our descriptors: where they live, that the program's `close` spares them, and that they make way where it wants their numbers.

use super::hold::Hold;
use super::life::off;
use super::{COUNTERS, GATE};
use crate::pages::Fds;
use crate::uffd::{Maker, duplicate};
use core::sync::atomic::{AtomicI32, Ordering};

/// Where our descriptors live: high, but not so high that the table grows for them alone.
pub(super) fn descriptor_floor() -> i32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.unwrap_or(1024).min(1024).saturating_sub(16) as i32
}

/// A duplicate of `fd` where our descriptors live.
///
/// # Errors
/// When no descriptor is free there.
pub fn lift(fd: impl rustix::fd::AsFd) -> rustix::io::Result<rustix::fd::OwnedFd> {
    duplicate(fd, descriptor_floor())
}

static PID: AtomicI32 = AtomicI32::new(0);

pub(super) fn pid() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

pub(crate) fn in_own_process() -> bool {
    PID.load(Ordering::Relaxed) == pid()
}

pub(super) static OURS: [AtomicI32; 3] = [const { AtomicI32::new(-1) }; 3];

/// Our descriptors: `close` and its kin leave them alone.
pub fn descriptors() -> [i32; 3] {
    [0, 1, 2].map(|i| OURS[i].load(Ordering::Relaxed))
}

/// Those of the two userfaultfds, if the program's table has them. Also while a fork is under way.
pub(crate) fn program_descriptors() -> Option<[i32; 2]> {
    GATE.lock();
    let [program, pool, _] = descriptors();
    GATE.unlock();
    (program >= 0 && pool >= 0).then_some([program, pool])
}

pub(super) fn publish_descriptors(fds: Option<&Fds>, maker: &Maker) {
    PID.store(pid(), Ordering::Relaxed);
    use rustix::fd::AsRawFd;
    let device = match maker {
        Maker::Device(fd) => fd.as_raw_fd(),
        Maker::SystemCall => -1,
    };
    let [program, pool] =
        fds.map_or([-1; 2], |f| [f.program.fd().as_raw_fd(), f.pool.fd().as_raw_fd()]);
    let all = [program, pool, device];
    for (to, fd) in OURS.iter().zip(all) {
        to.store(fd, Ordering::Relaxed);
    }
}

/// The program wants the number `fd` for itself (dup2): ours moves elsewhere.
pub fn make_way(fd: i32) {
    // A child of vfork has a table of its own, but our memory: there they may go.
    if !descriptors().contains(&fd) || !in_own_process() {
        return;
    }
    let mut hold = Hold::take();
    let Some(s) = hold.space() else { return };
    use rustix::fd::AsRawFd;
    if let Maker::Device(d) = &mut s.maker
        && d.as_raw_fd() == fd
    {
        match duplicate(&*d, fd + 1).or_else(|_| duplicate(&*d, 0)) {
            Ok(other) => *d = other,
            // The number is the program's: not ours to close, or to use.
            Err(_) => {
                core::mem::forget(core::mem::replace(&mut s.maker, Maker::SystemCall));
            }
        }
    }
    let fds = match &mut s.books {
        Some(b) => &mut b.memory.fds,
        None => &mut s.fds,
    };
    if let Some(f) = fds
        && f.numbers().contains(&fd)
        && f.lift(fd + 1).or_else(|_| f.lift(0)).is_err()
    {
        // The monitor has its own: what is tracked is served.
        core::mem::forget(fds.take());
        off(&COUNTERS.off_descriptors);
        GATE.stand_down();
    }
    let fds = match &s.books {
        Some(b) => &b.memory.fds,
        None => &s.fds,
    };
    publish_descriptors(fds.as_ref(), &s.maker);
}
