//! Changes text: all of it, or nothing.
//!
//! Text is writable and executable at once while it is changed: a page that is writable only could
//! not be made executable again where a policy forbids that (SELinux' `execmod`, `PR_SET_MDWE`),
//! and the process would have no libc. In this order such a policy refuses the first step, and
//! nothing has changed. One thread runs, all signals are blocked, and nothing here calls libc.
//!
//! unsafe: writes into text.

use core::ops::Range;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use uncopy_inject::Call;
use uncopy_kernel::call::syscall4;
use uncopy_kernel::inject;

/// Bytes to be put in place of others.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    pub at: u64,
    pub new: Vec<u8>,
}

/// Memory of ours for trampolines, given back unless it is kept.
pub(crate) struct Area {
    span: Range<u64>,
    kept: bool,
}

impl Area {
    /// Zeros at `at`, if nothing is there.
    pub fn new(at: u64, bytes: u64) -> Result<Self, Errno> {
        inject::check(Call::Mmap)?;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where there is none.
        let got = unsafe { mmap_anonymous(at as *mut _, bytes as usize, access, flags) }? as u64;
        let area = Self { span: got..got + bytes, kept: false };
        // (Kernels before 4.17 take the address for a hint.)
        if got == at { Ok(area) } else { Err(Errno::EXIST) }
    }

    pub fn span(&self) -> Range<u64> {
        self.span.clone()
    }

    /// Puts bytes at an offset of it. (Before it is made executable.)
    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.span.end - self.span.start);
        let to = (self.span.start + offset) as *mut u8;
        // SAFETY: within the mapping, which is ours alone.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// From now on it is read only, and its first `text` bytes are text.
    pub fn finish(&mut self, text: u64) -> Result<(), Errno> {
        inject::check(Call::Mprotect)?;
        let (at, all) = (self.span.start, self.span.end - self.span.start);
        // SAFETY: both parts are of the mapping, which is ours.
        unsafe {
            mprotect(at as *mut _, text as usize, TEXT)?;
            mprotect((at + text) as *mut _, (all - text) as usize, MprotectFlags::READ)
        }
    }

    /// It stays for good.
    pub fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if !self.kept {
            let n = (self.span.end - self.span.start) as usize;
            // SAFETY: the mapping is ours, and nothing leads there.
            let _ = unsafe { munmap(self.span.start as *mut _, n) };
        }
    }
}

const RT_SIGPROCMASK: usize = 14;
const SIG_SETMASK: usize = 2;

fn set_mask(new: u64, old: &mut u64) {
    let (new, old): (*const u64, *mut u64) = (&new, old);
    // SAFETY: both are masks of eight bytes.
    unsafe { syscall4(RT_SIGPROCMASK, SIG_SETMASK, new as usize, old as usize, 8) };
}

/// Puts all patches into `texts`, which are the whole of these mappings, readable and executable.
///
/// # Errors
/// The kernel's: nothing is changed then.
///
/// # Safety
/// Patches lie in the texts, and executing them does what executing the bytes there does; no other
/// thread runs.
pub(crate) unsafe fn apply(texts: &[Range<u64>], patches: &[Patch]) -> Result<(), Errno> {
    let mut mask = 0;
    set_mask(u64::MAX, &mut mask);
    // SAFETY: the caller's promise; no handler runs.
    let done = unsafe { changed(texts, patches) };
    set_mask(mask, &mut 0);
    done
}

unsafe fn changed(texts: &[Range<u64>], patches: &[Patch]) -> Result<(), Errno> {
    for (i, it) in texts.iter().enumerate() {
        let both = TEXT | MprotectFlags::WRITE;
        // SAFETY: what is there stays, and stays executable.
        let done = inject::check(Call::Mprotect).and_then(|()| unsafe { set(it, both) });
        if let Err(error) = done {
            texts[..i].iter().for_each(as_it_was);
            return Err(error);
        }
    }
    for it in patches {
        // SAFETY: the caller's promise.
        unsafe { write(it.at, &it.new) };
    }
    texts.iter().for_each(as_it_was);
    Ok(())
}

const TEXT: MprotectFlags = MprotectFlags::READ.union(MprotectFlags::EXEC);

/// (A right less is refused to nobody, and no mapping is split: these are whole ones.)
fn as_it_was(text: &Range<u64>) {
    // SAFETY: nobody else writes there.
    let _ = unsafe { set(text, TEXT) };
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
