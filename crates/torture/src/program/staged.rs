//! Operations on memory that was copied to just before: lists of pieces, alternate stacks, mutexes;
//! and what a child made by `clone` does with a buffer.
//!
//! unsafe: hands parts of the operation's buffers to libc.

use super::channels::Channel;
use super::log::{Note, errno};
use super::memory::{Buf, Kind, PAGE};
use super::{calls, channels, raw, threads};
use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::hint::black_box;
use core::mem::{MaybeUninit, zeroed};
use core::ops::Range;
use core::ptr::null_mut;
use libc::{iovec, msghdr};
use std::os::fd::AsRawFd;
use uncopy_torture::bytes::{self, Digest};
use uncopy_torture::op::{ListedBy, MapOf, Mutex, Via};
use uncopy_torture::pieces::pieces;

/// The bytes that are copied to the buffer before, at most.
const STAGED: usize = 64 << 10;
/// An alternate stack's size at least: the handler's own needs, and what uncopy is known to need.
const ALTERNATE: usize = 96 << 10;
/// Stack of a child.
const CHILD_STACK: usize = 256 << 10;

/// Memory that a received message lies in, to be copied from.
struct Staging {
    base: *mut u8,
    len: usize,
}

impl Staging {
    fn new(len: usize) -> Self {
        let (len, both) = (len.next_multiple_of(PAGE), libc::PROT_READ | libc::PROT_WRITE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let base = unsafe { libc::mmap(null_mut(), len, both, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED, "no memory");
        Self { base: base.cast(), len }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: its own mapping.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// `image` is received, and copied to offset `at` of the buffer.
fn stage(b: &mut Buf, at: usize, image: &[u8]) {
    let to = b.address(at);
    let staging = Staging::new(image.len() + PAGE);
    let file = channels::file(Via::File);
    raw::write_all(file.as_raw_fd(), image);
    // SAFETY: as much as there is room for, in both.
    unsafe {
        let from = staging.base.add(to as usize % PAGE);
        libc::pread(file.as_raw_fd(), from.cast(), image.len(), 0);
        calls::memcpy(to.cast(), from.cast(), image.len());
    }
    b.defined.insert(at..at + image.len());
}

fn content(len: usize, key: u64) -> Vec<u8> {
    let mut content = vec![0; len];
    bytes::fill(key, 0, &mut content);
    content
}

/// A call whose list, and header, lie in memory that was copied to just before.
pub struct Listed {
    pub by: ListedBy,
    pub via: Via,
    pub pieces: usize,
    pub key: u64,
}

impl Listed {
    fn is_input(&self) -> bool {
        use ListedBy::*;
        matches!(self.by, Readv | Preadv | Recvmsg | RawReadv | RawRecvmsg)
    }

    /// Makes the call on `range` of `b`. Its list lies in `list`, from about the middle of what was
    /// copied there.
    pub fn carry_out(
        self,
        b: &mut Buf,
        range: Range<usize>,
        list: &mut Buf,
        within: usize,
        note: &mut Note,
    ) {
        let Self { by, via, key, .. } = self;
        let input = self.is_input();
        let range = if input { range } else { b.defined.first_in(range) };
        let via = if matches!(via, Via::File | Via::Pipe) { via } else { Via::Unix };
        let mut channel = Channel::new(via, input);
        let range = range.start..range.start + range.len().min(channel.room);
        let parts = pieces(range.len(), self.pieces.clamp(1, 100), key);
        let pieces = calls::list(b.address(range.start), &parts);
        let size = size_of::<msghdr>() + size_of_val(&pieces[..]);
        let whole = list.cut(within, STAGED);
        if range.is_empty() || whole.len() < size + 8 {
            return note.add("nothing");
        }
        list.given.take(whole.clone());
        let middle = whole.start + (whole.len() - size - 8) / 2;
        let at = list.address(middle) as usize;
        let header = middle + at.next_multiple_of(8) - at;
        let first = list.address(header + size_of::<msghdr>()).cast::<iovec>();
        let mut image = content(whole.len(), key ^ 1);
        put_list(&mut image[header - whole.start..], first, &pieces);
        if input {
            channel.feed(key, range.len());
        }
        stage(list, whole.start, &image);
        let m = list.address(header).cast::<msghdr>();
        // SAFETY: the list and the header lie there, and the pieces in the buffer, which is this
        // operation's.
        let result = unsafe { calls::listed(by, channel.raw(), first, pieces.len(), m) };
        note.result(result);
        if matches!(by, ListedBy::Recvmsg | ListedBy::RawRecvmsg) {
            // SAFETY: as above.
            note.add(unsafe { (*m).msg_flags } & !libc::MSG_EOR);
        }
        // Addresses are of this run only.
        list.defined.remove(middle..middle + size + 8);
        if input {
            let mut left = result.max(0) as usize;
            for (at, len) in parts {
                let n = len.min(left);
                b.defined.insert(range.start + at..range.start + at + n);
                left -= n;
            }
        } else {
            let (n, digest) = channel.drained(None);
            note.add(n);
            note.digest(digest);
        }
    }
}

/// Writes a header, and behind it the list of `pieces` that it names at `first`.
fn put_list(image: &mut [u8], first: *mut iovec, pieces: &[iovec]) {
    assert!(image.len() >= size_of::<msghdr>() + size_of_val(pieces));
    // SAFETY: nothing but the list; both are plain words, and the image has room for them.
    unsafe {
        let mut m: msghdr = zeroed();
        m.msg_iov = first;
        m.msg_iovlen = pieces.len() as _;
        let to = image.as_mut_ptr();
        to.cast::<msghdr>().write_unaligned(m);
        let to = to.add(size_of::<msghdr>());
        to.copy_from_nonoverlapping(pieces.as_ptr().cast(), size_of_val(pieces));
    }
}

// ------------------------------------------------------------------ alternate stacks

thread_local! {
    /// Where this thread's handler expects its stack, what it may work with, and how often it was
    /// right.
    static ALTERNATE_AT: Cell<(usize, usize, usize, usize)> = const { Cell::new((0, 0, 0, 0)) };
}

/// The handler's own copies.
const COPIED: usize = 20 << 10;

extern "C" fn on_alternate(_: c_int) {
    let mut local = [0_u8; 8 << 10];
    // SAFETY: errno is this thread's; the memory is what the operation has made for it.
    unsafe {
        let errno = *libc::__errno_location();
        let (start, len, work, right) = ALTERNATE_AT.get();
        bytes::fill(right as u64, 0, &mut local);
        let here = (&raw const local) as usize;
        let (from, to) = (work as *mut u8, (work + 2 * COPIED) as *mut u8);
        bytes::fill(right as u64, 0, core::slice::from_raw_parts_mut(from, COPIED));
        calls::memcpy(to.cast(), from.cast(), COPIED);
        let same = libc::memcmp(to.cast(), black_box(&local).as_ptr().cast(), local.len()) == 0;
        if same && here >= start && here - start < len {
            ALTERNATE_AT.set((start, len, work, right + 1));
        }
        *libc::__errno_location() = errno;
    }
}

/// The buffer is this thread's alternate stack for a while.
pub fn alternate_stack(b: &mut Buf, at: usize, times: usize, key: u64, note: &mut Note) {
    let range = b.cut(at, 2 * ALTERNATE);
    if range.len() < ALTERNATE {
        return note.add("nothing");
    }
    let work = Staging::new(4 * COPIED);
    let image = content(range.len(), key);
    ALTERNATE_AT.set((b.at + range.start, range.len(), work.base as usize, 0));
    // SAFETY: the handler is written for it, and the stack is the operation's until the old one is
    // set again.
    unsafe {
        let mut act: libc::sigaction = zeroed();
        act.sa_sigaction = on_alternate as *const () as usize;
        act.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &act, null_mut());
        let new = libc::stack_t {
            ss_sp: b.address(range.start).cast(),
            ss_flags: 0,
            ss_size: range.len(),
        };
        let mut old: libc::stack_t = zeroed();
        if key.is_multiple_of(2) {
            stage(b, range.start, &image);
        }
        note.result(libc::sigaltstack(&new, &mut old) as isize);
        for _ in 0..times.min(10) {
            // (With the timer's signal held off, which could be handled there in the middle.)
            if !key.is_multiple_of(3) {
                super::signals::blocked(|| stage(b, range.start, &image));
            }
            libc::raise(libc::SIGUSR1);
        }
        note.result(libc::sigaltstack(&old, null_mut()) as isize);
    }
    note.add(format_args!("{} right", ALTERNATE_AT.get().3));
    b.defined.remove(range);
}

// ------------------------------------------------------------------ mutexes

unsafe extern "C" {
    fn pthread_mutexattr_setrobust(a: *mut libc::pthread_mutexattr_t, robust: c_int) -> c_int;
    fn pthread_mutexattr_setprotocol(a: *mut libc::pthread_mutexattr_t, protocol: c_int) -> c_int;
    fn pthread_mutex_consistent(m: *mut libc::pthread_mutex_t) -> c_int;
    fn pthread_mutex_timedlock(m: *mut libc::pthread_mutex_t, end: *const libc::timespec) -> c_int;
}

/// A mutex in the middle of what was copied there, whose owner ends.
pub fn mutex(b: &mut Buf, at: usize, kind: Mutex, key: u64, note: &mut Note) {
    let range = b.cut(at, STAGED);
    let size = size_of::<libc::pthread_mutex_t>();
    if range.len() < size + 16 {
        return note.add("nothing");
    }
    stage(b, range.start, &content(range.len(), key));
    let middle = range.start + (range.len() - size - 16) / 2;
    let mutex = (b.address(middle) as usize).next_multiple_of(16) as *mut libc::pthread_mutex_t;
    let words = [range.start, range.len(), b.at, mutex as usize];
    // SAFETY: the mutex is the operation's; the thread that locks it is joined.
    unsafe {
        let mut attributes = MaybeUninit::uninit();
        libc::pthread_mutexattr_init(attributes.as_mut_ptr());
        // PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_INHERIT
        note.add(pthread_mutexattr_setrobust(attributes.as_mut_ptr(), 1));
        if kind == Mutex::Inherit {
            note.add(pthread_mutexattr_setprotocol(attributes.as_mut_ptr(), 1));
        }
        note.add(libc::pthread_mutex_init(mutex, attributes.as_ptr()));
        let owner = threads::spawn(move || {
            let [start, len, base, mutex] = words;
            let result = libc::pthread_mutex_lock(mutex as *mut _);
            // Its memory is copied elsewhere, which leaves it unmapped.
            let staging = Staging::new(len + PAGE);
            let from = (base + start) as *const u8;
            let to = staging.base.add(from as usize % PAGE);
            calls::memcpy(to.cast(), from.cast(), len);
            result
        });
        note.add(owner.join());
        for _ in 0..2 {
            let mut end: libc::timespec = zeroed();
            libc::clock_gettime(libc::CLOCK_REALTIME, &mut end);
            end.tv_sec += 5;
            let result = pthread_mutex_timedlock(mutex, &end);
            note.add(result);
            if result == libc::EOWNERDEAD {
                note.add(pthread_mutex_consistent(mutex));
            }
            if result == 0 || result == libc::EOWNERDEAD {
                note.add(libc::pthread_mutex_unlock(mutex));
            }
        }
        note.add(libc::pthread_mutex_destroy(mutex));
        libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
    }
    b.defined.remove(middle..middle + size + 16);
}

// ------------------------------------------------------------------ clone

/// The means of the child. (It allocates nothing: libc's locks are as they were in its parent.)
struct Cloned<'a> {
    b: &'a Buf,
    known: &'a [Range<usize>],
    range: Range<usize>,
    key: u64,
    answer: i32,
}

fn digest_of(b: &Buf, parts: &[Range<usize>]) -> u64 {
    let mut digest = Digest::default();
    for part in parts {
        // SAFETY: in the buffer, which is this operation's.
        digest.add(unsafe { b.bytes(part.clone()) });
    }
    digest.value()
}

extern "C" fn cloned(argument: *mut c_void) -> c_int {
    // SAFETY: the parent's variable, of which this is the child's copy; the parts lie in the
    // buffer.
    unsafe {
        let c = &*argument.cast::<Cloned>();
        let mut answer = [digest_of(c.b, c.known), 0, 0];
        bytes::fill(c.key, 0, c.b.bytes(c.range.clone()));
        let whole = [c.range.clone()];
        answer[1] = digest_of(c.b, &whole);
        let half = c.range.len() / 2;
        let (from, to) = (c.b.address(c.range.start), c.b.address(c.range.start + half));
        calls::memcpy(to.cast(), from.cast(), half);
        answer[2] = digest_of(c.b, &whole);
        let answer = answer.map(u64::to_le_bytes);
        i32::from(!raw::write_all(c.answer, answer.as_flattened()))
    }
}

/// A child by `clone`.
pub fn clone_child(b: &mut Buf, range: Range<usize>, key: u64, note: &mut Note) {
    let shared = matches!(b.kind, Kind::Map { of: MapOf::Shared, .. });
    if shared || range.is_empty() || !b.withheld.within(0..b.len).is_empty() {
        return note.add("not");
    }
    let known = b.defined_in_child().within(range.clone());
    let before = b.defined.within(range.clone());
    let (r, w, _) = channels::small_pipe(PAGE);
    let stack = Staging::new(CHILD_STACK);
    let mut c = Cloned { b, known: &known, range, key, answer: w.as_raw_fd() };
    let flags = libc::SIGCHLD | if key.is_multiple_of(3) { libc::CLONE_FILES } else { 0 };
    let mut status = 0;
    // SAFETY: the child has a stack of its own and copies of all it uses.
    unsafe {
        let top = stack.base.add(CHILD_STACK).cast();
        let pid = libc::clone(cloned, top, flags, (&raw mut c).cast());
        if pid < 0 {
            note.result(-1);
            return;
        }
        while libc::waitpid(pid, &mut status, 0) < 0 && errno() == libc::EINTR {}
    }
    note.add(format_args!("status {status:x}"));
    drop(w);
    let mut answer = [0; 24];
    note.add(raw::read(r.as_raw_fd(), &mut answer));
    for word in answer.as_chunks::<8>().0 {
        note.digest(u64::from_le_bytes(*word));
    }
    // Nothing of that is seen here.
    note.digest(digest_of(b, &before));
}
