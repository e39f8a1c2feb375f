//! `mremap(2)` of what has become several mappings.
//!
//! Registering a part of a mapping makes several of it, and they do not always merge again when it
//! ends (parts that were first touched apart have each their own `anon_vma`). The kernel moves or
//! grows one mapping at a time and answers EFAULT; the program, which made one, must not see that.
//!
//! unsafe: see the crate; moves the program's own mappings as the program asked.

use crate::real;
use core::ffi::{c_int, c_void};
use libc::{EFAULT, EINVAL, ENOMEM, MAP_FAILED, MREMAP_FIXED, MREMAP_MAYMOVE};
use rustix::fs::{Mode, OFlags};
use uncopy_core::span::{Span, page_up};
use uncopy_vm::space;

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
    super::memory::hand_back(addr as usize, old);
    // SAFETY: the program's own arguments (the last one is read only with MREMAP_FIXED).
    unsafe {
        let moved = real::mremap(addr, old, new, flags, to);
        if moved != MAP_FAILED || !space::running() || *libc::__errno_location() != EFAULT {
            return moved;
        }
        match piecewise(Span::sized(addr as usize, page_up(old)), page_up(new), flags, to) {
            Ok(at) => at as *mut c_void,
            Err(errno) => {
                *libc::__errno_location() = errno;
                MAP_FAILED
            }
        }
    }
}

unsafe fn piecewise(old: Span, new: usize, flags: c_int, to: *mut c_void) -> Result<usize, c_int> {
    if old.is_empty() || flags & !(MREMAP_MAYMOVE | MREMAP_FIXED) != 0 {
        return Err(EFAULT);
    }
    let pieces = private_pieces(old).ok_or(EFAULT)?;
    let last = *pieces.last().ok_or(EFAULT)?;
    let fixed = flags & MREMAP_FIXED != 0;
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
                for back in &pieces[..i] {
                    let from = at + (back.start - old.start);
                    let _ = shift(from, back.len(), back.len(), back.start);
                }
                real::munmap(at as *mut _, new);
                return Err(ENOMEM);
            }
        }
        Ok(at)
    }
}

unsafe fn shift(from: usize, len: usize, new: usize, to: usize) -> Result<(), ()> {
    // SAFETY: as in `piecewise`.
    let moved = unsafe {
        real::mremap(from as *mut _, len, new, MREMAP_MAYMOVE | MREMAP_FIXED, to as *mut _)
    };
    if moved == MAP_FAILED { Err(()) } else { Ok(()) }
}

/// The mappings that make up `span`, if they are all private, anonymous and alike.
fn private_pieces(span: Span) -> Option<Vec<Span>> {
    let mut text = Vec::new();
    let maps =
        rustix::fs::open(c"/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .ok()?;
    let mut chunk = [0u8; 4096];
    loop {
        match rustix::io::read(&maps, &mut chunk[..]).ok()? {
            0 => break,
            n => text.extend_from_slice(&chunk[..n]),
        }
    }
    let mut pieces = Vec::new();
    let mut protection = None;
    let mut at = span.start;
    for line in core::str::from_utf8(&text).ok()?.lines() {
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
        if *protection.get_or_insert(mode) != mode {
            return None;
        }
        at = piece.end;
        pieces.push(piece);
    }
    (at == span.end).then_some(pieces)
}
