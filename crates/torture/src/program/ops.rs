//! One operation on the buffers that it names.

use super::calls;
use super::channels::{Channel, DATAGRAM_MAX};
use super::log::{Note, errno};
use super::memory::{Buf, Kind, PAGE};
use super::signals;
use super::staged;
use core::ffi::c_void;
use core::hint::black_box;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use libc::iovec;
use uncopy_torture::bytes::{self, Digest};
use uncopy_torture::op::{Advice, CopyBy, Forbidden, Hold, InputBy, Op, OutputBy, Via, WriteBy};
use uncopy_torture::pieces::pieces;
use uncopy_torture::script::Storage;

/// Whether the script forks.
pub static FORKS: AtomicBool = AtomicBool::new(false);

/// MADV_GUARD_INSTALL and MADV_GUARD_REMOVE (Linux 6.13).
const GUARD_INSTALL: i32 = 102;
const GUARD_REMOVE: i32 = 103;

/// Messages that one datagram socket queues at least (`net.unix.max_dgram_qlen` is 10).
const MESSAGES: usize = 8;

/// Carries out `op`. `one` is the first buffer that it names, `two` the second if that is another.
pub fn carry_out(op: Op, one: &mut Buf, two: Option<&mut Buf>, note: &mut Note) {
    before_writing(op, one);
    match op {
        Op::Alloc { size, by, .. } if one.dynamic() => {
            note.result(one.free());
            one.allocate(size.max(1), by);
        }
        Op::Map { pages, skew, of, .. } if one.dynamic() => {
            note.result(one.free());
            one.map(pages.max(1), skew, of);
        }
        Op::Free { .. } if one.dynamic() => {
            note.result(one.free());
        }
        _ if one.kind == Kind::Nothing => note.add("nothing"),
        Op::Realloc { size, .. } if one.kind == Kind::Heap => one.reallocate(size.max(1)),
        Op::Remap { pages, .. } => match one.remap(pages) {
            Some(result) => {
                note.result(result);
            }
            None => note.add("not"),
        },
        Op::MapOver { page, pages, .. } => map_over(one, page, pages, note),
        Op::Advise { page, pages, how, .. } => advise(one, page, pages, how, note),
        Op::Protect { page, pages, then, .. } => protect(one, page, pages, then, note),
        Op::Lock { page, pages, .. } => lock(one, page, pages, note),
        Op::Hold { page, pages, how, .. } => hold(one, page, pages, how, note),
        Op::Give { at, len, by, pieces, key, .. } => {
            let range = one.defined.first_in(one.cut(at, len));
            let buffer = one.address(0);
            // SAFETY: in the buffer, which is this operation's.
            unsafe { one.given.give(buffer, range, by, pieces, key, note) };
        }
        Op::Take { .. } => one.given.take(0..usize::MAX),
        Op::Listed { at, len, within, by, via, pieces, key, .. } => match two {
            Some(list) => {
                let range = one.cut(at, len);
                let call = staged::Listed { by, via, pieces, key };
                call.carry_out(one, range, list, within, note);
            }
            None => note.add("not"),
        },
        Op::Clone { at, len, key, .. } => staged::clone_child(one, one.cut(at, len), key, note),
        Op::AltStack { at, times, key, .. } => staged::alternate_stack(one, at, times, key, note),
        Op::Mutex { at, kind, key, .. } => staged::mutex(one, at, kind, key, note),
        Op::Input { at, len, by, via, give, pieces, key, .. } => {
            Input { by, via, give, pieces, key }.carry_out(one, one.cut(at, len), note);
        }
        Op::Output { at, len, by, via, pieces, key, .. } => {
            let range = one.defined.first_in(one.cut(at, len));
            Output { by, via, pieces, key }.carry_out(one, range, note);
        }
        Op::Copy { to, from, len, by, site, .. } => {
            Copy { to, from, len, by, site }.carry_out(one, two, note);
        }
        Op::Write { at, len, by, key, .. } => write(one, at, len, by, key),
        Op::Read { at, len, .. } => read(one, one.cut(at, len), note),
        Op::Compare { at, with, len, .. } => compare(one, two, at, with, len, note),
        _ => note.add("not"),
    }
}

/// Reads the kernel's references to bytes that `op` is about to write before.
fn before_writing(op: Op, b: &mut Buf) {
    let range = match op {
        Op::Write { at, len, .. } | Op::Input { at, len, .. } | Op::Listed { at, len, .. } => {
            b.cut(at, len)
        }
        Op::Copy { to, len, .. } => b.cut(to, len),
        Op::Output { by: OutputBy::Vmsplice, .. } | Op::AltStack { .. } | Op::Mutex { .. } => {
            0..usize::MAX
        }
        _ => return,
    };
    b.given.take(range);
}

/// A digest of the bytes of `range` that have a known content.
pub fn read(b: &Buf, range: Range<usize>, note: &mut Note) {
    let mut digest = Digest::default();
    for part in b.defined.within(range) {
        digest.add(&(part.start as u64).to_le_bytes());
        // SAFETY: in the buffer, which is this operation's.
        digest.add(unsafe { b.bytes(part) });
    }
    note.digest(digest.value());
}

fn write(b: &mut Buf, at: usize, len: usize, by: WriteBy, key: u64) {
    let range = b.cut(at, len);
    // SAFETY: in the buffer, which is this operation's.
    unsafe {
        match by {
            WriteBy::Stores => bytes::fill(key, 0, b.bytes(range.clone())),
            WriteBy::Memset => {
                libc::memset(b.address(range.start).cast(), key as i32, range.len());
            }
        }
    }
    b.defined.insert(range);
}

/// A copy within a buffer, or from another one.
struct Copy {
    to: usize,
    from: usize,
    len: usize,
    by: CopyBy,
    site: usize,
}

impl Copy {
    fn carry_out(self, one: &mut Buf, two: Option<&mut Buf>, note: &mut Note) {
        let source: &Buf = two.as_deref().unwrap_or(one);
        let (d, s) = (one.cut(self.to, self.len), source.cut(self.from, self.len));
        let n = d.len().min(s.len());
        let (d, s) = (d.start..d.start + n, s.start..s.start + n);
        let (target, origin) = (one.address(d.start), source.address(s.start));
        let known = source.defined.clone();
        // SAFETY: both ranges lie in buffers that are this operation's.
        let end = unsafe { calls::copy(self.by, self.site, target, origin, n) };
        one.defined.copy(d.start, &known, s);
        note.add(end);
    }
}

fn compare(one: &Buf, two: Option<&mut Buf>, at: usize, with: usize, len: usize, note: &mut Note) {
    let other: &Buf = two.as_deref().unwrap_or(one);
    let a = one.defined.first_in(one.cut(at, len));
    let b = other.defined.first_in(other.cut(with, len));
    let n = a.len().min(b.len());
    let (a, b) = (one.address(a.start), other.address(b.start));
    // SAFETY: in buffers that are this operation's.
    let order = unsafe { libc::memcmp(black_box(a).cast(), black_box(b).cast(), n) };
    note.add(order.signum());
}

fn map_over(b: &mut Buf, page: usize, pages: usize, note: &mut Note) {
    let Kind::Map { .. } = b.kind else { return note.add("not") };
    let range = b.pages(page, pages);
    if range.is_empty() {
        return note.add("nothing");
    }
    b.in_parts();
    b.as_new(&range);
    // SAFETY: pages of a mapping that is this operation's.
    let at = unsafe {
        libc::mmap(
            b.address(range.start).cast(),
            range.len(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    note.result(if at == libc::MAP_FAILED { -1 } else { 0 });
    b.defined.insert(range);
}

/// The kernel's number of an advice.
fn number(how: Advice) -> i32 {
    match how {
        Advice::DontNeed => libc::MADV_DONTNEED,
        Advice::Free => libc::MADV_FREE,
        Advice::WillNeed => libc::MADV_WILLNEED,
        Advice::Cold => libc::MADV_COLD,
        Advice::PageOut => libc::MADV_PAGEOUT,
        Advice::HugePage => libc::MADV_HUGEPAGE,
        Advice::NoHugePage => libc::MADV_NOHUGEPAGE,
        Advice::Collapse => libc::MADV_COLLAPSE,
        Advice::WipeOnFork => libc::MADV_WIPEONFORK,
        Advice::KeepOnFork => libc::MADV_KEEPONFORK,
        Advice::DontFork => libc::MADV_DONTFORK,
        Advice::DoFork => libc::MADV_DOFORK,
        Advice::Mergeable => libc::MADV_MERGEABLE,
        Advice::Unmergeable => libc::MADV_UNMERGEABLE,
        Advice::DontDump => libc::MADV_DONTDUMP,
        Advice::DoDump => libc::MADV_DODUMP,
        Advice::Random => libc::MADV_RANDOM,
        Advice::Normal => libc::MADV_NORMAL,
        Advice::PopulateRead => libc::MADV_POPULATE_READ,
        Advice::PopulateWrite => libc::MADV_POPULATE_WRITE,
        Advice::DontNeedLocked => libc::MADV_DONTNEED_LOCKED,
        Advice::Guard => GUARD_INSTALL,
    }
}

fn advise(b: &mut Buf, page: usize, pages: usize, how: Advice, note: &mut Note) {
    let range = b.pages(page, pages);
    let elsewhere = matches!(b.kind, Kind::Heap | Kind::Part(Storage::Stack(_)));
    if range.is_empty() || !b.anonymous() || how == Advice::DontFork && elsewhere {
        return note.add("nothing");
    }
    if !matches!(how, Advice::DontNeed | Advice::Free | Advice::WillNeed | Advice::Cold) {
        b.in_parts();
    }
    let start: *mut c_void = b.address(range.start).cast();
    // SAFETY: pages of a buffer that is this operation's.
    let mut result = unsafe { libc::madvise(start, range.len(), number(how)) } as isize;
    if how == Advice::Guard && result == 0 {
        // SAFETY: as above.
        result = unsafe { libc::madvise(start, range.len(), GUARD_REMOVE) } as isize;
    }
    match how {
        Advice::Collapse => {}
        // Locked or not: that may be left from an earlier block there.
        _ if b.kind == Kind::Heap => note.add("heap"),
        _ => drop(note.result(result)),
    }
    match how {
        Advice::DontNeed | Advice::DontNeedLocked | Advice::Guard => {
            if result == 0 || b.kind == Kind::Heap {
                b.defined.remove(b.perhaps_in(&range));
            }
            if result == 0 && b.kind != Kind::Heap {
                b.defined.insert(range);
            }
        }
        // Zeros or what was there, as the kernel pleases.
        Advice::Free => b.defined.remove(b.perhaps_in(&range)),
        Advice::WipeOnFork if result == 0 => b.wiped.insert(range),
        Advice::KeepOnFork if result == 0 => b.wiped.remove(range),
        Advice::DontFork if result == 0 => b.withheld.insert(range),
        Advice::DoFork if result == 0 => b.withheld.remove(range),
        _ => {}
    }
}

/// Few enough pages for anybody's RLIMIT_MEMLOCK.
fn hold(b: &mut Buf, page: usize, pages: usize, how: Hold, note: &mut Note) {
    let range = b.pages(page, pages);
    let at: *const c_void = b.address(range.start).cast();
    b.in_parts();
    // SAFETY: pages of a buffer that is this operation's.
    let result = unsafe {
        match how {
            Hold::Now => libc::mlock(at, range.len()),
            Hold::OnFault => libc::mlock2(at, range.len(), libc::MLOCK_ONFAULT),
            Hold::No => libc::munlock(at, range.len()),
        }
    };
    note.result(result as isize);
}

fn lock(b: &Buf, page: usize, pages: usize, note: &mut Note) {
    let range = b.pages(page, pages);
    let at: *const c_void = b.address(range.start).cast();
    // SAFETY: pages of a buffer that is this operation's.
    unsafe {
        note.result(libc::mlock(at, range.len()) as isize);
        note.result(libc::munlock(at, range.len()) as isize);
    }
}

fn protect(b: &mut Buf, page: usize, pages: usize, then: Forbidden, note: &mut Note) {
    let range = b.pages(page, pages);
    if range.is_empty() {
        return note.add("nothing");
    }
    let (start, len) = (b.address(range.start), range.len());
    let readable = then == Forbidden::ReadOnly;
    // SAFETY: pages of a buffer that is this operation's; what touches them is guarded.
    unsafe {
        let prot = if readable { libc::PROT_READ } else { libc::PROT_NONE };
        note.result(libc::mprotect(start.cast(), len, prot) as isize);
        if readable {
            read(b, b.perhaps_in(&range), note);
        }
        match then {
            Forbidden::Input | Forbidden::ReadOnly => {
                let mut channel = Channel::new(Via::File, true);
                channel.feed(1, len);
                note.result(libc::pread(channel.raw(), start.cast(), len, 0));
            }
            Forbidden::Output => {
                let channel = Channel::new(Via::File, false);
                note.result(libc::pwrite(channel.raw(), start.cast(), len, 0));
            }
            Forbidden::Touch => {
                let faulted = signals::guarded(start as usize, len, || {
                    black_box(start.add(len / 2).read_volatile());
                });
                note.add(if faulted { "faulted" } else { "readable" });
            }
        }
        let both = libc::PROT_READ | libc::PROT_WRITE;
        note.result(libc::mprotect(start.cast(), len, both) as isize);
    }
}

/// The rest of a list behind its first `done` bytes.
fn rest(list: &[iovec], done: usize) -> Vec<iovec> {
    let mut skip = done;
    let mut left = Vec::new();
    for v in list {
        let n = skip.min(v.iov_len);
        skip -= n;
        if v.iov_len > n {
            left.push(iovec { iov_base: v.iov_base.wrapping_byte_add(n), iov_len: v.iov_len - n });
        }
    }
    left
}

struct Input {
    by: InputBy,
    via: Via,
    give: usize,
    pieces: usize,
    key: u64,
}

impl Input {
    fn carry_out(&self, b: &mut Buf, range: Range<usize>, note: &mut Note) {
        if self.by == InputBy::Recvmmsg && self.via == Via::Datagram {
            return self.messages(b, range, note);
        }
        let vectored = calls::input_is_vectored(self.by);
        let parts = pieces(range.len(), if vectored { self.pieces } else { 1 }, self.key);
        let list = calls::list(b.address(range.start), &parts);
        let mut channel = Channel::new(self.via, true);
        let give = self.give.min(channel.room);
        let feeding = channel.feed(self.key, give);
        // Part of a file lies before what is read.
        let skip =
            if calls::input_is_placed(self.by) { (self.key as usize % 5000).min(give) } else { 0 };
        let mut got = 0;
        loop {
            let left = rest(&list, got);
            if got > 0 && left.is_empty() {
                break;
            }
            let left = if left.is_empty() { list.clone() } else { left };
            // SAFETY: the pieces lie in the buffer, which is this operation's.
            let (n, extra) = unsafe { calls::input(self.by, channel.raw(), &left, skip) };
            if channel.waits() {
                if n < 0 && errno() == libc::EINTR {
                    continue;
                }
                got += n.max(0) as usize;
                if n > 0 && got < range.len() {
                    continue;
                }
                note.result(if n < 0 { n } else { got as isize });
            } else {
                got = note.result(n).max(0) as usize;
                note.add(extra);
            }
            break;
        }
        // With MSG_TRUNC a datagram's own length is told.
        let mut left = got.min(range.len());
        for (at, len) in parts {
            let n = len.min(left);
            b.defined.insert(range.start + at..range.start + at + n);
            left -= n;
        }
        drop(channel);
        if let Some(thread) = feeding {
            thread.join();
        }
    }

    fn messages(&self, b: &mut Buf, range: Range<usize>, note: &mut Note) {
        let parts = pieces(range.len(), self.pieces.min(MESSAGES), self.key);
        let mut channel = Channel::new(self.via, true);
        let lens: Vec<usize> = parts
            .iter()
            .map(|p| (p.1 + (self.key as usize & 63)).saturating_sub(31))
            .map(|n| n.min(DATAGRAM_MAX / 4))
            .collect();
        channel.feed_messages(self.key, &lens);
        let list = calls::list(b.address(range.start), &parts);
        // SAFETY: the pieces lie in the buffer, which is this operation's.
        let (n, got) = unsafe { calls::receive_messages(channel.raw(), &list) };
        note.result(n);
        for ((n, flags), (at, len)) in got.into_iter().zip(parts) {
            note.add(format_args!("{n}:{flags:x}"));
            b.defined.insert(range.start + at..range.start + at + n.min(len));
        }
    }
}

/// Writes to every page of `range` what is there: a page that was never written is the kernel's.
fn own_pages(b: &Buf, range: &Range<usize>) {
    let first = b.at + range.start;
    for at in (first..b.at + range.end).filter(|a| *a == first || a.is_multiple_of(PAGE)) {
        // SAFETY: in the buffer, which is this operation's.
        unsafe {
            let byte = at as *mut u8;
            byte.write_volatile(byte.read_volatile());
        }
    }
}

struct Output {
    by: OutputBy,
    via: Via,
    pieces: usize,
    key: u64,
}

impl Output {
    fn carry_out(&self, b: &mut Buf, range: Range<usize>, note: &mut Note) {
        let mut channel = Channel::new(self.via, false);
        let mut range = range.start..range.start + range.len().min(channel.room);
        if self.by == OutputBy::Vmsplice {
            // How many bytes fit depends on where in a page they lie.
            range.end = range.end.min(range.start + channel.room / 2);
        }
        if range.is_empty() {
            return note.add("nothing");
        }
        let mut count = if calls::output_is_vectored(self.by) { self.pieces } else { 1 };
        if self.via == Via::Datagram && self.by == OutputBy::Sendmmsg {
            count = count.min(MESSAGES);
        }
        let parts = pieces(range.len(), count, self.key);
        let list = calls::list(b.address(range.start), &parts);
        let skip = if calls::output_is_placed(self.by) { self.key as usize % 5000 } else { 0 };
        if self.by == OutputBy::Vmsplice {
            own_pages(b, &range);
        }
        let draining = channel.drain();
        let mut sent = 0;
        loop {
            let left = rest(&list, sent);
            let left = if sent == 0 { list.clone() } else { left };
            // SAFETY: the pieces lie in the buffer, which is this operation's.
            let n = unsafe { calls::output(self.by, channel.raw(), &left, skip) };
            if channel.waits() {
                if n < 0 && errno() == libc::EINTR {
                    continue;
                }
                sent += n.max(0) as usize;
                if n > 0 && sent < range.len() {
                    continue;
                }
                note.result(if n < 0 { n } else { sent as isize });
            } else {
                sent = note.result(n).max(0) as usize;
            }
            break;
        }
        if self.by == OutputBy::Vmsplice && !FORKS.load(Relaxed) {
            // The pipe holds the pages themselves. (Unless a fork by another thread came between.)
            write(b, range.start, 100.min(range.len()), WriteBy::Stores, self.key);
        }
        let (n, digest) = match (self.via, self.by) {
            (Via::Datagram, OutputBy::Sendmmsg) => {
                channel.messages(if sent > 0 { list.len() } else { 0 })
            }
            (Via::Datagram, _) => channel.messages(usize::from(sent > 0)),
            _ => channel.drained(draining),
        };
        note.add(n);
        note.digest(digest);
        if self.key.is_multiple_of(3) && self.by != OutputBy::Vmsplice {
            // SAFETY: the range lies in the buffer, which is this operation's.
            unsafe { super::unread::send(b.at + range.start, range.len(), self.key) };
        }
    }
}
