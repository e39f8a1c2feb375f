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
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    addr: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let span = Span::sized(addr as usize, page_up(old));
    super::memory_common::alter(addr, old);
    if flags & MREMAP_FIXED != 0 {
        super::memory_common::alter(to, new);
    }
    let was_ours = super::memory_common::make_ordinary(addr as usize, old);
    let excluded = PROCESS.space.unmapping(span);
    // SAFETY: as this function.
    let remap = || unsafe { remap(addr, old, new, flags, to, was_ours) };
    // (Memory in the place that the program names ends, unless the kernel would take none of it.)
    let named = names_a_place(span, to as usize, new, flags)
        && !span.overlaps(Span::sized(to as usize, page_up(new)));
    let moved = if named {
        super::memory_common::over(to, new, || {
            let moved = remap();
            (moved, moved != MAP_FAILED)
        })
    } else {
        remap()
    };
    PROCESS.space.await_line();
    if moved == MAP_FAILED {
        excluded.iter().for_each(|parts| PROCESS.space.put_exclusions(parts));
        return moved;
    }
    let there = Span::sized(moved as usize, page_up(new));
    let grown = Span::new(span.end, there.end);
    if !named {
        super::memory_common::mapped_anew(if there.start == span.start { grown } else { there });
    }
    // Exclusions by the kernel or by children move with the memory.
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
        let whole = || {
            super::memory_common::with_room(MAP_FAILED, || real::mremap(addr, old, new, flags, to))
        };
        let asked = Asked { old: span, new: page_up(new), flags, to };
        let in_parts = || piecewise(asked, was_ours);
        if !PROCESS.space.may_have_split_mappings() {
            return whole();
        }
        // Before it refuses the kernel may have done a part of it: moved the first of several
        // mappings (since Linux 6.17, up to one that is registered), or cut off what is too much
        // (before).
        let first = if names_a_place(span, to as usize, new, flags)
            && are_several(span).unwrap_or(was_ours)
        {
            in_parts()
        } else {
            Err(Stop::NotForUs)
        };
        let result = match first {
            Err(Stop::NotForUs) => {
                let moved = whole();
                if moved != MAP_FAILED || *libc::__errno_location() != EFAULT {
                    return moved;
                }
                in_parts()
            }
            known => known,
        };
        match result {
            Ok(at) => at as *mut c_void,
            Err(stop) => {
                *libc::__errno_location() = stop.errno();
                MAP_FAILED
            }
        }
    }
}

/// Whether the program names a place, and the kernel would take it.
fn names_a_place(from: Span, to: usize, new: usize, flags: c_int) -> bool {
    let named = MREMAP_MAYMOVE | MREMAP_FIXED;
    let aligned = |at: usize| at.is_multiple_of(PAGE);
    flags & named == named
        && aligned(from.start)
        && aligned(to)
        && new > 0
        && to.checked_add(new).is_some_and(|end| end <= super::memory_common::ADDRESSES)
}

/// Why memory was not moved in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// It is not what we can have split, or not to be moved: nothing was done. To the program it is
    /// EFAULT, as the kernel says of several mappings.
    NotForUs,
    /// With this error; what could be put back was.
    Failed(c_int),
}

impl Stop {
    fn errno(self) -> c_int {
        match self {
            Self::NotForUs => EFAULT,
            Self::Failed(errno) => errno,
        }
    }
}

/// The call that the program makes.
#[derive(Clone, Copy)]
struct Asked {
    /// Its range, in whole pages.
    old: Span,
    /// The length that is wanted, in whole pages.
    new: usize,
    flags: c_int,
    /// The place that it names, with MREMAP_FIXED.
    to: *mut c_void,
}

impl Asked {
    fn may_move(self) -> bool {
        self.flags & MREMAP_MAYMOVE != 0
    }

    fn fixed(self) -> bool {
        self.flags & MREMAP_FIXED != 0
    }

    fn stays(self) -> bool {
        self.flags & MREMAP_DONTUNMAP != 0
    }
}

unsafe fn piecewise(asked: Asked, was_ours: bool) -> Result<usize, Stop> {
    let Asked { old, new, flags, .. } = asked;
    if old.is_empty() || flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) != 0 {
        return Err(Stop::NotForUs);
    }
    if asked.stays() && new != old.len() {
        return Err(Stop::NotForUs);
    }
    let Some(mappings) = mappings() else {
        // SAFETY: as this function.
        return unsafe {
            match by_pages(asked) {
                // (It is private, anonymous and writable.)
                Err(Stop::NotForUs) if was_ours => in_a_new_place(asked, true),
                known => known,
            }
        };
    };
    let (pieces, writable) = private_pieces(&mappings, old).ok_or(Stop::NotForUs)?;
    let last = *pieces.last().ok_or(Stop::NotForUs)?;
    // SAFETY: as this function.
    unsafe {
        if !asked.fixed()
            && !asked.stays()
            && let Some(known) = where_it_is(asked, last)
        {
            return known;
        }
        in_pieces(asked, &pieces, writable)
    }
}

/// Cuts off what is too much, or has the `last` piece grow where it is. `None`: it has to move.
unsafe fn where_it_is(asked: Asked, last: Span) -> Option<Result<usize, Stop>> {
    let Asked { old, new, .. } = asked;
    // SAFETY: mappings of the program that it asked to shrink or grow.
    unsafe {
        if new <= old.len() {
            let rest = old.len() - new;
            let cut = rest == 0 || real::munmap((old.start + new) as *mut _, rest) == 0;
            return Some(if cut { Ok(old.start) } else { Err(Stop::Failed(ENOMEM)) });
        }
        let (at, len) = (last.start as *mut c_void, last.len() + (new - old.len()));
        if real::mremap(at, last.len(), len, 0, at) != MAP_FAILED {
            return Some(Ok(old.start));
        }
    }
    if asked.may_move() { None } else { Some(Err(Stop::Failed(ENOMEM))) }
}

/// Moves each piece into a place for the whole; the last one grows.
unsafe fn in_pieces(asked: Asked, pieces: &[Span], writable: bool) -> Result<usize, Stop> {
    let Asked { old, new, .. } = asked;
    let more = new.saturating_sub(old.len());
    // SAFETY: mappings of the program that it asked to move; the target is fresh or the one that it
    // named.
    unsafe {
        let mut place = Place::take(asked)?;
        let mut left = old;
        let mut held = Vec::new();
        for p in pieces {
            let part = p.intersect(Span::sized(old.start, new));
            if part.is_empty() {
                break;
            }
            let target = Span::sized(place.0.start + (part.start - old.start), part.len());
            // (The last one: nothing has to be put back after it.)
            let grows = Some(p) == pieces.last() && more > 0;
            let done = if grows {
                left.end = part.start;
                shift(part, target.start, part.len() + more)
            } else {
                leave(part, target.start)
            };
            if let Err(refused) = done {
                place.not_taken(target.start, part.len() + if grows { more } else { 0 }, refused);
                if !held.iter().rev().all(|&(part, target)| put_back(target, part)) {
                    // Something of the program's is there still.
                    return Err(Stop::Failed(ENOMEM));
                }
                // (In a place that the program named the new memory takes its place in one step.)
                let named = asked.fixed();
                if named && writable && !asked.stays() && refused == Refused::Before {
                    return in_a_new_place(asked, writable);
                }
                place.give_up();
                if named && refused == Refused::ByKernel {
                    return Err(Stop::Failed(ENOMEM));
                }
                return in_a_new_place(asked, writable);
            }
            held.push((part, target));
        }
        if !left.is_empty() && !asked.stays() {
            real::munmap(left.start as *mut _, left.len());
        }
        Ok(place.0.start)
    }
}

/// How often a piece is tried to be moved or put back, where a test makes that fail.
const TRIES: usize = 1000;

/// Addresses for the whole, which nobody else gets while the pieces come.
struct Place(Span);

impl Place {
    /// `new` bytes, where the program wants them or anywhere.
    unsafe fn take(asked: Asked) -> Result<Self, Stop> {
        let Asked { old, new, to, .. } = asked;
        let fixed = asked.fixed();
        if fixed && old.overlaps(Span::sized(to as usize, new)) {
            return Err(Stop::Failed(EINVAL));
        }
        let place = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_NORESERVE
            | if fixed { libc::MAP_FIXED } else { 0 };
        let hint = if fixed { to } else { core::ptr::null_mut() };
        // SAFETY: fresh addresses, or those that the program wants to be mapped over.
        let at = unsafe { real::mmap(hint, new, libc::PROT_NONE, place, -1, 0) };
        if at == MAP_FAILED {
            return Err(Stop::Failed(ENOMEM));
        }
        Ok(Self(Span::sized(at as usize, new)))
    }

    /// The `len` bytes that were to come to `at` did not. Where the kernel refused, these addresses
    /// may be another thread's by now, and are left alone; what lies behind goes back at once: with
    /// a mapping less the kernel takes the pieces back as it took them.
    unsafe fn not_taken(&mut self, at: usize, len: usize, refused: Refused) {
        if refused == Refused::ByKernel {
            let behind = Span::new(at + len, self.0.end);
            self.0.end = at;
            // SAFETY: as in `give_up`.
            unsafe { Self(behind).give_up() };
        }
    }

    unsafe fn give_up(self) {
        if !self.0.is_empty() {
            // SAFETY: of our own, or left empty by a piece.
            unsafe { real::munmap(self.0.start as *mut _, self.0.len()) };
        }
    }
}

/// Where the kernel does not tell the mappings (no /proc, no descriptors left), or does not move
/// them: the content goes to a new mapping. `writable`: the old ones are private, anonymous, to be
/// read and written.
unsafe fn in_a_new_place(asked: Asked, writable: bool) -> Result<usize, Stop> {
    let Asked { old, new, to, .. } = asked;
    if !writable || asked.stays() {
        return Err(Stop::Failed(EFAULT));
    }
    if !asked.may_move() {
        return Err(Stop::Failed(ENOMEM));
    }
    let fixed = asked.fixed();
    if fixed && old.overlaps(Span::sized(to as usize, new)) {
        return Err(Stop::Failed(EINVAL));
    }
    // SAFETY: as in `piecewise`; a part of the old range that is no memory answers EFAULT.
    unsafe {
        let place =
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | if fixed { libc::MAP_FIXED } else { 0 };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let hint = if fixed { to } else { core::ptr::null_mut() };
        let at = real::mmap(hint, new, access, place, -1, 0);
        if at == MAP_FAILED {
            return Err(Stop::Failed(ENOMEM));
        }
        let len = old.len().min(new);
        let mut done = 0;
        while done < len {
            let piece = |p: usize| libc::iovec { iov_base: p as *mut _, iov_len: len - done };
            let (here, there) = (piece(at as usize + done), piece(old.start + done));
            // (A thread's number: the first thread may have ended.)
            let n = libc::process_vm_readv(libc::gettid(), &here, 1, &there, 1, 0);
            if n <= 0 {
                real::munmap(at, new);
                return Err(Stop::Failed(EFAULT));
            }
            done += n as usize;
        }
        real::munmap(old.start as *mut _, old.len());
        Ok(at as usize)
    }
}

/// Where the kernel does not tell the mappings: a page is of one. (Of more than one the kernel may
/// move some, and refuse then: since Linux 6.17.)
unsafe fn by_pages(asked: Asked) -> Result<usize, Stop> {
    let Asked { old, new, .. } = asked;
    if !asked.may_move() || asked.stays() {
        return Err(Stop::NotForUs);
    }
    let fixed = asked.fixed();
    // SAFETY: as in `piecewise`.
    unsafe {
        let mut place = Place::take(asked)?;
        let at = place.0.start;
        // The last page takes what is more along.
        let kept = old.len().min(new);
        let (most, page) = (kept - PAGE, Span::sized(old.start + kept - PAGE, PAGE));
        let (moved, refused) = leave_pages(Span::sized(old.start, most), at);
        let refused = match refused {
            Ok(()) => tried(|| shift(page, at + most, new - most)),
            refused => refused,
        };
        if let Err(refused) = refused {
            let len = if moved == most { new - most } else { PAGE };
            place.not_taken(at + moved, len, refused);
            let back = leave_pages(Span::sized(at, moved), old.start).0 == moved;
            // (A place that the program named is mapped over next.)
            if back && !fixed {
                place.give_up();
            }
            return Err(match refused {
                _ if !back => Stop::Failed(ENOMEM),
                Refused::ByKernel if fixed => Stop::Failed(EFAULT),
                _ => Stop::NotForUs,
            });
        }
        let rest = Span::new(page.end, old.end);
        for left in [Span::sized(old.start, most), rest] {
            if !left.is_empty() {
                real::munmap(left.start as *mut _, left.len());
            }
        }
        Ok(at)
    }
}

/// Leaves the pages of `from`, for addresses from `to` on. Returns how many bytes the kernel took,
/// and why not all.
unsafe fn leave_pages(from: Span, to: usize) -> (usize, Result<(), Refused>) {
    for done in (0..from.len()).step_by(PAGE) {
        let page = Span::sized(from.start + done, PAGE);
        // SAFETY: as in `piecewise`.
        let left = tried(|| unsafe { leave(page, to + done) });
        if left.is_err() {
            return (done, left);
        }
    }
    (from.len(), Ok(()))
}

/// The pages that were moved from `there` to `at` go back. Returns whether it does.
unsafe fn put_back(at: Span, there: Span) -> bool {
    // SAFETY: as in `piecewise`.
    tried(|| unsafe { leave(at, there.start) }).is_ok()
}

/// Makes `call`, again where a test had it fail.
fn tried(call: impl Fn() -> Result<(), Refused>) -> Result<(), Refused> {
    let again = |result: &Result<(), Refused>| *result == Err(Refused::Before);
    (0..TRIES).map(|_| call()).find(|result| !again(result)).unwrap_or(Err(Refused::Before))
}

/// Why a piece did not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// A test wanted that: the kernel was not asked.
    Before,
    /// The kernel did. It unmaps the target first, and asks for limits then.
    ByKernel,
}

/// Moves what is mapped at `from` to `to`. The addresses stay taken, by empty memory: were they
/// free, another thread might map there, and a call that puts the mapping back, or unmaps what is
/// left, would take it away from that one.
unsafe fn leave(from: Span, to: usize) -> Result<(), Refused> {
    // SAFETY: as in `piecewise`.
    unsafe { moved(from, to, from.len(), MREMAP_DONTUNMAP) }
}

/// Moves what is mapped at `from` to `to`, where it is `len` long from then on.
unsafe fn shift(from: Span, to: usize, len: usize) -> Result<(), Refused> {
    // SAFETY: as in `piecewise`.
    unsafe { moved(from, to, len, 0) }
}

unsafe fn moved(from: Span, to: usize, len: usize, more: c_int) -> Result<(), Refused> {
    inject::check(Call::Mremap).map_err(|_| Refused::Before)?;
    let flags = MREMAP_MAYMOVE | MREMAP_FIXED | more;
    // SAFETY: as in `piecewise`.
    let there = unsafe { real::mremap(from.start as *mut _, from.len(), len, flags, to as *mut _) };
    if there == MAP_FAILED { Err(Refused::ByKernel) } else { Ok(()) }
}

/// All mappings of this process, as the kernel lists them.
fn mappings() -> Option<Vec<u8>> {
    let mut text = Vec::new();
    inject::check(Call::Open).ok()?;
    // (Of the process it would be the first thread's, which may have ended.)
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let maps = rustix::fs::open(c"/proc/thread-self/maps", flags, Mode::empty());
    let maps = maps.map(OwnFd::from).ok()?;
    let mut chunk = [0u8; 4096];
    loop {
        match rustix::io::read(&maps, &mut chunk[..]).ok()? {
            0 => return Some(text),
            n => text.extend_from_slice(&chunk[..n]),
        }
    }
}

/// Whether `span` is made up of several mappings that could be one. `None`: the kernel does not
/// tell.
fn are_several(span: Span) -> Option<bool> {
    let pieces = private_pieces(&mappings()?, span);
    Some(pieces.is_some_and(|(pieces, _)| pieces.len() > 1))
}

/// The mappings that make up `span`, if they are all private, anonymous and alike, and whether they
/// can be read and written.
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
