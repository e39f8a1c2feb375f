//! `mremap(2)` of what has become several mappings.
//!
//! Registering a part of a mapping makes several of it, and they do not always merge again when it
//! ends (parts that were first touched apart have each their own `anon_vma`). The kernel moves or
//! grows one mapping at a time and answers EFAULT; the program, which made one, must not see that.
//!
//! unsafe: see the crate; moves the program's own mappings as the program asked.

use crate::process::PROCESS;
use crate::real;
use core::ffi::{c_int, c_void};
use libc::{EFAULT, EINVAL, ENOMEM, MAP_FAILED, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};
use rustix::fs::{Mode, OFlags};
use uncopy_inject::Call;
use uncopy_kernel::descriptors::OwnFd;
use uncopy_kernel::inject;
use uncopy_ranges::span::{PAGE, Span, page_up};

/// `mremap(2)`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    addr: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let span = Span::sized(addr as usize, page_up(old));
    super::ours::alter(addr, old);
    if flags & MREMAP_FIXED != 0 {
        super::ours::alter(to, new);
    }
    let was_ours = super::ours::make_ordinary(addr as usize, old);
    let excluded = PROCESS.space.unmapping(span);
    // SAFETY: as this function.
    let moved = unsafe { remap(addr, old, new, flags, to, was_ours) };
    PROCESS.space.await_line();
    if moved == MAP_FAILED {
        excluded.iter().for_each(|parts| PROCESS.space.put_exclusions(parts));
        return moved;
    }
    let there = Span::sized(moved as usize, page_up(new));
    let grown = Span::new(span.end, there.end);
    PROCESS.space.mapped_anew(if there.start == span.start { grown } else { there });
    // What the kernel or children know of the memory moves with it.
    if let Some(excluded) = excluded {
        PROCESS.space.put_exclusions(&excluded.moved(span, there));
        if flags & MREMAP_DONTUNMAP != 0 {
            PROCESS.space.put_exclusions(&excluded.of_mapping());
        }
    }
    moved
}

unsafe fn remap(
    addr: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
    was_ours: bool,
) -> *mut c_void {
    let span = Span::sized(addr as usize, page_up(old));
    // SAFETY: the program's own arguments (the last one is read only with MREMAP_FIXED).
    unsafe {
        let moved = super::ours::with_room(MAP_FAILED, || real::mremap(addr, old, new, flags, to));
        if moved != MAP_FAILED
            || !PROCESS.space.may_have_split_mappings()
            || *libc::__errno_location() != EFAULT
        {
            return moved;
        }
        match piecewise(span, page_up(new), flags, to, was_ours) {
            Ok(at) => at as *mut c_void,
            Err(errno) => {
                *libc::__errno_location() = errno;
                MAP_FAILED
            }
        }
    }
}

unsafe fn piecewise(
    old: Span,
    new: usize,
    flags: c_int,
    to: *mut c_void,
    was_ours: bool,
) -> Result<usize, c_int> {
    if old.is_empty() || flags & !(MREMAP_MAYMOVE | MREMAP_FIXED) != 0 {
        return Err(EFAULT);
    }
    let fixed = flags & MREMAP_FIXED != 0;
    let Some(mappings) = mappings() else {
        // SAFETY: as this function.
        return unsafe {
            if was_ours {
                // (It is private, anonymous and writable.)
                in_a_new_place(old, new, flags, to, true)
            } else {
                by_pages(old, new, flags, to)
            }
        };
    };
    let (pieces, writable) = private_pieces(&mappings, old).ok_or(EFAULT)?;
    let last = *pieces.last().ok_or(EFAULT)?;
    // SAFETY: mappings of the program that it asked to move, shrink or grow; the target is fresh
    // or the one that it named.
    unsafe {
        if !fixed && new <= old.len() {
            let rest = old.len() - new;
            let cut = rest == 0 || real::munmap((old.start + new) as *mut _, rest) == 0;
            return if cut { Ok(old.start) } else { Err(ENOMEM) };
        }
        let more = new.saturating_sub(old.len());
        if !fixed {
            let grown = real::mremap(
                last.start as *mut _,
                last.len(),
                last.len() + more,
                0,
                last.start as *mut _,
            );
            if grown != MAP_FAILED {
                return Ok(old.start);
            }
            if flags & MREMAP_MAYMOVE == 0 {
                return Err(ENOMEM);
            }
        } else if old.overlaps(Span::sized(to as usize, new)) {
            return Err(EINVAL);
        }
        // A place for the whole, then each piece moves into it; the last one grows.
        let place = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_NORESERVE
            | if fixed { libc::MAP_FIXED } else { 0 };
        let hint = if fixed { to } else { core::ptr::null_mut() };
        let at = real::mmap(hint, new, libc::PROT_NONE, place, -1, 0);
        if at == MAP_FAILED {
            return Err(ENOMEM);
        }
        let at = at as usize;
        for (i, p) in pieces.iter().enumerate() {
            let offset = p.start - old.start;
            if offset >= new {
                real::munmap(p.start as *mut _, p.len());
                continue;
            }
            let length = p.len().min(new - offset);
            let target = length + if *p == last { more } else { 0 };
            if target < p.len() {
                real::munmap((p.start + target) as *mut _, p.len() - target);
            }
            if shift(p.start, length, target, at + offset).is_err() {
                let returned = pieces[..i].iter().all(|back| {
                    let from = at + (back.start - old.start);
                    (0..TRIES).any(|_| shift(from, back.len(), back.len(), back.start).is_ok())
                });
                // (Else something of the program's is there still.)
                if !returned {
                    return Err(ENOMEM);
                }
                real::munmap(at as *mut _, new);
                return in_a_new_place(old, new, flags, to, writable);
            }
        }
        Ok(at)
    }
}

/// How often a piece is tried to be put back where it was.
const TRIES: usize = 1000;

/// Where the kernel does not tell the mappings (no /proc, no descriptors left), or does not move them:
/// the content goes to a new mapping. `writable`: the old ones are private, anonymous, to be read and
/// written.
unsafe fn in_a_new_place(
    old: Span,
    new: usize,
    flags: c_int,
    to: *mut c_void,
    writable: bool,
) -> Result<usize, c_int> {
    if !writable {
        return Err(EFAULT);
    }
    if flags & MREMAP_MAYMOVE == 0 {
        return Err(ENOMEM);
    }
    let fixed = flags & MREMAP_FIXED != 0;
    if fixed && old.overlaps(Span::sized(to as usize, new)) {
        return Err(EINVAL);
    }
    // SAFETY: as in `piecewise`; a part of the old range that is no memory answers EFAULT.
    unsafe {
        let place =
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | if fixed { libc::MAP_FIXED } else { 0 };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let hint = if fixed { to } else { core::ptr::null_mut() };
        let at = real::mmap(hint, new, access, place, -1, 0);
        if at == MAP_FAILED {
            return Err(ENOMEM);
        }
        let len = old.len().min(new);
        let mut done = 0;
        while done < len {
            let piece = |p: usize| libc::iovec { iov_base: p as *mut _, iov_len: len - done };
            let (here, there) = (piece(at as usize + done), piece(old.start + done));
            let n = libc::process_vm_readv(libc::getpid(), &here, 1, &there, 1, 0);
            if n <= 0 {
                real::munmap(at, new);
                return Err(EFAULT);
            }
            done += n as usize;
        }
        real::munmap(old.start as *mut _, old.len());
        Ok(at as usize)
    }
}

/// Where the kernel does not tell the mappings, and nothing says that they are ours (their registration ended, and the kernel did not join them): a page is of one
/// mapping. (Of more than one the kernel may move some, and refuse then: since Linux 6.17.)
unsafe fn by_pages(old: Span, new: usize, flags: c_int, to: *mut c_void) -> Result<usize, c_int> {
    let fixed = flags & MREMAP_FIXED != 0;
    if flags & MREMAP_MAYMOVE == 0 {
        return Err(EFAULT);
    }
    if fixed && old.overlaps(Span::sized(to as usize, new)) {
        return Err(EINVAL);
    }
    // SAFETY: as in `piecewise`.
    unsafe {
        let place = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_NORESERVE
            | if fixed { libc::MAP_FIXED } else { 0 };
        let hint = if fixed { to } else { core::ptr::null_mut() };
        let at = real::mmap(hint, new, libc::PROT_NONE, place, -1, 0);
        if at == MAP_FAILED {
            return Err(ENOMEM);
        }
        let at = at as usize;
        // The last page takes what is more along.
        let kept = old.len().min(new);
        let (most, last) = (kept - PAGE, new - (kept - PAGE));
        let moved = shift_pages(old.start, most, at);
        if moved < most
            || !(0..TRIES).any(|_| shift(old.start + most, PAGE, last, at + most).is_ok())
        {
            shift_pages(at, moved, old.start);
            real::munmap((at + moved) as *mut _, new - moved);
            return Err(EFAULT);
        }
        if kept < old.len() {
            real::munmap((old.start + kept) as *mut _, old.len() - kept);
        }
        Ok(at)
    }
}

/// Moves so many bytes. Returns how many the kernel took.
unsafe fn shift_pages(from: usize, len: usize, to: usize) -> usize {
    let mut done = 0;
    // SAFETY: as in `piecewise`.
    let page = |at| (0..TRIES).any(|_| unsafe { shift(from + at, PAGE, PAGE, to + at) }.is_ok());
    while done < len && page(done) {
        done += PAGE;
    }
    done
}

unsafe fn shift(from: usize, len: usize, new: usize, to: usize) -> Result<(), ()> {
    inject::check(Call::Mremap).map_err(drop)?;
    // SAFETY: as in `piecewise`.
    let moved = unsafe {
        real::mremap(from as *mut _, len, new, MREMAP_MAYMOVE | MREMAP_FIXED, to as *mut _)
    };
    if moved == MAP_FAILED { Err(()) } else { Ok(()) }
}

/// All mappings of this process, as the kernel lists them.
fn mappings() -> Option<Vec<u8>> {
    let mut text = Vec::new();
    inject::check(Call::Open).ok()?;
    let maps =
        rustix::fs::open(c"/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map(OwnFd::from)
            .ok()?;
    let mut chunk = [0u8; 4096];
    loop {
        match rustix::io::read(&maps, &mut chunk[..]).ok()? {
            0 => return Some(text),
            n => text.extend_from_slice(&chunk[..n]),
        }
    }
}

/// The mappings that make up `span`, if they are all private, anonymous and alike, and whether they can
/// be read and written.
fn private_pieces(mappings: &[u8], span: Span) -> Option<(Vec<Span>, bool)> {
    let mut pieces = Vec::new();
    let mut protection: Option<String> = None;
    let mut at = span.start;
    for line in String::from_utf8_lossy(mappings).lines() {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let mapping =
            Span::new(usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        let piece = mapping.intersect(span);
        if piece.is_empty() {
            continue;
        }
        let (mode, inode) = (fields.next()?, fields.nth(2)?);
        if piece.start != at || inode != "0" || !mode.ends_with('p') {
            return None;
        }
        if protection.get_or_insert_with(|| mode.to_owned()) != mode {
            return None;
        }
        at = piece.end;
        pieces.push(piece);
    }
    let writable = protection.is_some_and(|p| p.starts_with("rw-"));
    (at == span.end).then_some((pieces, writable))
}
