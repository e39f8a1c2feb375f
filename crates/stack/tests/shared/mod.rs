//! A stack for tests: messages lie in memory between both ends, where the receiver finds them, and
//! takes them over by reference.

use super::PROCESS;
use super::copy_bytes;
use std::collections::VecDeque;
use std::sync::Mutex;
use uncopy_core::regions::{Owner, Region, RegionId};
use uncopy_ranges::span::Span;
use uncopy_stack::buffers::{Buffers, Pieces, piece};
use uncopy_stack::stack::{Input, Output};

/// Calls return to here.
const CALLER: usize = 0x5ead;

/// Spans that came back to a ring. They are put there in the middle of whatever let go of them
/// last: nothing else is done with this lock held.
type Inbox = Mutex<Vec<Span>>;

fn release(inbox: usize, span: Span) {
    // SAFETY: leaked by `Ring::new`.
    let inbox = unsafe { &*(inbox as *const Inbox) };
    inbox.lock().expect("nobody panics with it").push(span);
}

/// A connection through memory.
pub struct Ring {
    memory: Span,
    region: Option<RegionId>,
    /// Spans that were sent and not received yet, in order.
    arrived: VecDeque<Span>,
    /// Free spans, in address order.
    free: Vec<Span>,
    /// Spans that views refer to.
    out: Vec<Span>,
    inbox: &'static Inbox,
    referred: u64,
}

impl Ring {
    /// Shared with other processes, as a service's would be.
    pub fn shared(room: usize) -> Self {
        Self::new(room, libc::MAP_SHARED)
    }

    /// Private memory, whose pages may be moved.
    pub fn private(room: usize) -> Self {
        Self::new(room, libc::MAP_PRIVATE)
    }

    fn new(room: usize, kind: i32) -> Self {
        super::tracks();
        // SAFETY: a new mapping of the kernel's choice.
        let at = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), room, access, kind | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: ours; huge pages cannot be moved.
        unsafe { libc::madvise(at, room, libc::MADV_NOHUGEPAGE) };
        let memory = Span::sized(at as usize, room);
        let inbox: &'static Inbox = Box::leak(Box::default());
        let owner = Owner { release, token: std::ptr::from_ref(inbox) as usize };
        let movable = kind == libc::MAP_PRIVATE;
        let region = PROCESS.space.begin_region(Region { span: memory, movable, owner });
        let (arrived, out, free) = (VecDeque::new(), Vec::new(), vec![memory]);
        Self { memory, region, arrived, free, out, inbox, referred: 0 }
    }

    pub fn region(&self) -> Option<RegionId> {
        self.region
    }

    /// Messages that were taken over.
    pub fn referred(&self) -> u64 {
        self.referred
    }

    /// Bytes that are in use by views.
    pub fn out(&self) -> usize {
        self.out.iter().map(|s| s.len()).sum()
    }

    pub fn is_short_of_room(&self) -> bool {
        self.free.iter().map(|s| s.len()).sum::<usize>() < super::MESSAGE
    }

    /// Spans that came back are free again.
    pub fn reattach_leaving(&mut self) {
        let back = std::mem::take(&mut *self.inbox.lock().expect("nobody panics with it"));
        for span in back {
            let i = self.out.iter().position(|o| *o == span);
            self.out.swap_remove(i.expect("what came back had been handed over, once"));
            self.give(span);
        }
    }

    fn give(&mut self, span: Span) {
        let i = self.free.partition_point(|f| f.start < span.start);
        self.free.insert(i, span);
        self.free.dedup_by(|next, before| {
            let joined = before.end == next.start;
            before.end = if joined { next.end } else { before.end };
            joined
        });
    }

    /// Writes to the spans that are free.
    pub fn scribble(&mut self) {
        for span in &self.free {
            // SAFETY: nobody uses it.
            unsafe { std::ptr::write_bytes(span.start as *mut u8, 0xdb, span.len()) };
        }
    }

    /// All is over: everything has to be back, and the region ends.
    pub fn end(&mut self) {
        self.reattach_leaving();
        assert_eq!(self.out(), 0, "something never came back");
        assert!(
            self.region.is_none_or(|region| PROCESS.space.end_region(region)),
            "the region does not end"
        );
        // SAFETY: nobody uses it any more.
        unsafe { libc::munmap(self.memory.start as *mut _, self.memory.len()) };
    }

    pub fn sending<'a>(&'a mut self, buffer: &Buffers<1>) -> Sending<'a> {
        Sending { ring: self, buffer: buffer[0] }
    }

    pub fn receiving<'a>(&'a mut self, buffer: &Buffers<1>) -> Receiving<'a> {
        Receiving { ring: self, buffer: buffer[0] }
    }

    /// Where the next `most` bytes lie, as far as they have arrived.
    fn next(&self, most: usize) -> Vec<Span> {
        let mut left = most;
        let cut = |s: &Span| {
            let part = Span::sized(s.start, s.len().min(left));
            left -= part.len();
            part
        };
        self.arrived.iter().map(cut).take_while(|s| !s.is_empty()).collect()
    }

    /// The next `bytes` bytes were received.
    fn advance(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            let first = self.arrived.front_mut().expect("they have arrived");
            let n = first.len().min(left);
            first.start += n;
            left -= n;
            if first.is_empty() {
                self.arrived.pop_front();
            }
        }
    }
}

/// A call that sends.
pub struct Sending<'a> {
    ring: &'a mut Ring,
    buffer: (usize, usize),
}

impl Output for Sending<'_> {
    fn as_it_is(&mut self) -> isize {
        let (addr, len) = self.buffer;
        let whole = Pieces::from_iter([piece(addr, len)]);
        self.gather(&whole).expect("any pieces will do")
    }

    fn gather(&mut self, pieces: &Pieces) -> Option<isize> {
        let mut sent = 0;
        for p in pieces {
            let mut from = Span::sized(p.iov_base as usize, p.iov_len);
            while !from.is_empty() {
                let Some(free) = self.ring.free.pop() else { return Some(sent) };
                let n = free.len().min(from.len());
                // SAFETY: free memory of the ring; bytes of the call.
                unsafe { copy_bytes(free.start as *mut u8, from.start as *const u8, n) };
                self.ring.arrived.push_back(Span::sized(free.start, n));
                from.start += n;
                sent += n as isize;
                if n < free.len() {
                    self.ring.give(Span::new(free.start + n, free.end));
                }
            }
        }
        Some(sent)
    }
}

/// A call that receives.
pub struct Receiving<'a> {
    ring: &'a mut Ring,
    buffer: (usize, usize),
}

impl Input for Receiving<'_> {
    fn as_it_is(&mut self) -> isize {
        let (addr, len) = self.buffer;
        let mut whole = Pieces::from_iter([piece(addr, len)]);
        self.scatter(&mut whole).expect("any pieces will do")
    }

    fn scatter(&mut self, pieces: &mut Pieces) -> Option<isize> {
        let mut received = 0;
        for p in pieces {
            let mut to = Span::sized(p.iov_base as usize, p.iov_len);
            for from in self.ring.next(to.len()) {
                // SAFETY: arrived bytes; the call's own room for them.
                unsafe { copy_bytes(to.start as *mut u8, from.start as *const u8, from.len()) };
                to.start += from.len();
                received += from.len() as isize;
                self.ring.advance(from.len());
                self.ring.give(from);
            }
        }
        Some(received)
    }

    fn by_reference(
        &mut self,
        room: usize,
        _: impl FnMut(usize) -> bool,
        mut hand_over: impl FnMut(&[(RegionId, Span)], usize) -> bool,
    ) -> Option<isize> {
        let region = self.ring.region?;
        let ranges = self.ring.next(room);
        let received: Vec<_> = ranges.iter().map(|range| (region, *range)).collect();
        if !hand_over(&received, CALLER) {
            return None;
        }
        let bytes = ranges.iter().map(|r| r.len()).sum();
        self.ring.advance(bytes);
        self.ring.out.extend(ranges);
        self.ring.referred += 1;
        Some(bytes as isize)
    }
}
