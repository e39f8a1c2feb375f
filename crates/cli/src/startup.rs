//! Remembers how the process was started, before Rust's runtime changes it: `uncopy run` hands
//! its program exactly what it was given itself.
//!
//! The runtime ignores SIGPIPE and opens `/dev/null` on closed standard descriptors before
//! `main` runs, so the only place to look is an `.init_array` function.

// Unsafe: the two system calls below have no safe wrapper that may run before `main`.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Bit 0 to 2: descriptor was closed. Bit 3: SIGPIPE was ignored.
static AT_START: AtomicU8 = AtomicU8::new(0);
const SIGPIPE_IGNORED: u8 = 1 << 3;

extern "C" fn look() {
    let mut seen = 0;
    for fd in 0..3 {
        // SAFETY: F_GETFD touches no memory and any descriptor number may be asked for.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            seen |= 1 << fd;
        }
    }
    // SAFETY: all zeros is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only asks; `action` is ours to be written.
    let asked = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) };
    if asked == 0 && action.sa_sigaction == libc::SIG_IGN {
        seen |= SIGPIPE_IGNORED;
    }
    AT_START.store(seen, Relaxed);
}

// SAFETY: the loader calls every function of this section once before `main`; `look` needs
// nothing that is set up later.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;

/// Puts SIGPIPE and the standard descriptors back as they were; only to be called just before
/// another program is executed.
pub fn restore() {
    let seen = AT_START.load(Relaxed);
    let pipe = if seen & SIGPIPE_IGNORED != 0 { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: both dispositions are always valid for SIGPIPE.
    unsafe { libc::signal(libc::SIGPIPE, pipe) };
    for fd in 0..3 {
        if seen & (1 << fd) != 0 {
            // SAFETY: the descriptor is the runtime's /dev/null, and nothing is printed after this.
            unsafe { libc::close(fd) };
        }
    }
}
