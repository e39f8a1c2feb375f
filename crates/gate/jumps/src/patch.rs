//! Changes text: all of it, or nothing.
//!
//! Text is writable and executable at once while it is changed: a page that is writable only could
//! not be made executable again where a policy forbids that (SELinux' `execmod`, `PR_SET_MDWE`),
//! and the process would have no libc. In this order such a policy refuses the first step, and
//! nothing has changed. One thread runs, all signals are blocked, and nothing here calls libc.
//!
//! unsafe: writes into text.

use core::fmt;
use core::ops::Range;
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, mprotect};
use uncopy_inject::Call;
use uncopy_kernel::call::syscall4;
use uncopy_kernel::inject;

/// Bytes to be put in place of others.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    pub at: u64,
    pub new: Vec<u8>,
    /// The bytes that are there; empty: nobody comes there but by another patch.
    pub old: Vec<u8>,
}

const RT_SIGPROCMASK: usize = 14;
const SIG_SETMASK: usize = 2;

fn set_mask(new: u64, old: &mut u64) {
    let (new, old): (*const u64, *mut u64) = (&new, old);
    // SAFETY: both are masks of eight bytes.
    unsafe { syscall4(RT_SIGPROCMASK, SIG_SETMASK, new as usize, old as usize, 8) };
}

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// Nothing is changed.
    Before(Errno),
    /// Text does what it did before, or some of it has its patches; some can still be written.
    After(Errno),
}

impl fmt::Display for Failed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Before(error) => write!(to, "text cannot be changed: {error}"),
            Self::After(error) => write!(to, "text cannot be made as it was: {error}"),
        }
    }
}

/// Puts all patches into `texts`, which are the whole of these mappings, readable and executable.
///
/// # Errors
/// See [`Failed`].
///
/// # Safety
/// Patches lie in the texts, and executing them does what executing the bytes there does; no other
/// thread runs.
pub(crate) unsafe fn apply(texts: &[Range<u64>], patches: &[Patch]) -> Result<(), Failed> {
    let mut mask = 0;
    set_mask(u64::MAX, &mut mask);
    // SAFETY: the caller's promise; no handler runs.
    let done = unsafe { changed(texts, patches) };
    set_mask(mask, &mut 0);
    done
}

unsafe fn changed(texts: &[Range<u64>], patches: &[Patch]) -> Result<(), Failed> {
    for (i, it) in texts.iter().enumerate() {
        let both = TEXT | MprotectFlags::WRITE;
        // SAFETY: what is there stays, and stays executable.
        let done = inject::check(Call::Mprotect).and_then(|()| unsafe { set(it, both) });
        if let Err(error) = done {
            as_they_were(&texts[..i]).map_err(Failed::After)?;
            return Err(Failed::Before(error));
        }
    }
    for it in patches {
        // SAFETY: the caller's promise.
        unsafe { write(it.at, &it.new) };
    }
    let done = inject::check(Call::Mprotect).and_then(|()| as_they_were(texts));
    let Err(error) = done else { return Ok(()) };
    // SAFETY: as above.
    unsafe { take_back(texts, patches) };
    as_they_were(texts).map_err(Failed::After)?;
    Err(Failed::Before(error))
}

/// Writes what was there, where text can be written again.
///
/// # Safety
/// As [`apply`]'s, once all was written.
unsafe fn take_back(texts: &[Range<u64>], patches: &[Patch]) {
    for text in texts {
        // SAFETY: what is there stays, and stays executable.
        if unsafe { set(text, TEXT | MprotectFlags::WRITE) }.is_err() {
            continue;
        }
        for it in patches.iter().filter(|it| text.contains(&it.at)) {
            // SAFETY: the caller's promise.
            unsafe { write(it.at, &it.old) };
        }
    }
}

const TEXT: MprotectFlags = MprotectFlags::READ.union(MprotectFlags::EXEC);

/// All of them, whatever becomes of one.
fn as_they_were(texts: &[Range<u64>]) -> Result<(), Errno> {
    let mut all = Ok(());
    for it in texts {
        // SAFETY: nobody else writes there.
        all = all.and(unsafe { set(it, TEXT) });
    }
    all
}

/// # Safety
/// Nobody relies on another access.
unsafe fn set(pages: &Range<u64>, access: MprotectFlags) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { mprotect(pages.start as *mut _, (pages.end - pages.start) as usize, access) }
}

/// Byte by byte: it may be `memcpy` that is changed.
///
/// # Safety
/// The bytes are there and can be written.
unsafe fn write(at: u64, bytes: &[u8]) {
    for (i, &byte) in bytes.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { ((at as usize + i) as *mut u8).write_volatile(byte) };
    }
}
