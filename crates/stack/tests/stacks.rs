//! Two stacks under one test: Linux's sockets, and one of this test's own whose bytes lie in shared
//! memory. Both carry the same messages between buffers that become views, in a process with a
//! tracker and a monitor of its own; and every byte has to arrive.
//!
//! `UNCOPY_STACK_SEEDS=n` runs n seeds, `UNCOPY_STACK_SEED=s` runs one. Where this process may have
//! no userfaultfd, that is said, and everything is copied: then only the bytes are tested.

// Unsafe: the buffers, which are reached by address, and the calls of both stacks.

mod shared;

use shared::Ring;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use uncopy_decide::{Choice, Costs};
use uncopy_process::process::Process;
use uncopy_ranges::span::{PAGE, Span};
use uncopy_space::space::Settings;
use uncopy_stack::buffers::{Buffers, IovList, Pieces, piece};
use uncopy_stack::calls::{InputCall, OutputCall};
use uncopy_stack::copy::{Source, copy};
use uncopy_stack::endpoint;
use uncopy_stack::input::input;
use uncopy_stack::output::{output, output_listed};
use uncopy_stack::stack::{Host, KeptPieces, Output};

static PROCESS: Process = Process::new();

fn host() -> Host {
    Host { process: &PROCESS, copy_bytes, on_own_stack: |_| false }
}

const BUFFER: usize = 64 * PAGE;
/// Largest message: what a connection holds.
const MESSAGE: usize = 40 * PAGE;

unsafe extern "C" fn copy_bytes(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    // SAFETY: as `memmove`.
    unsafe { libc::memmove(to.cast(), from.cast(), n).cast() }
}

/// Held for writing by tests that look at what exactly happened: a fork, or an unmapping by another
/// thread, lets calls be made without us, and brings home what was abroad.
static ALONE: RwLock<()> = RwLock::new(());

fn alone() -> RwLockWriteGuard<'static, ()> {
    ALONE.write().unwrap_or_else(PoisonError::into_inner)
}

fn among_others() -> RwLockReadGuard<'static, ()> {
    ALONE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Has this process a tracker? (Once for all tests.)
fn tracks() -> bool {
    static TRACKS: OnceLock<bool> = OnceLock::new();
    *TRACKS.get_or_init(|| {
        let settings = Settings {
            backoff: false,
            extent_bytes: 64 << 20,
            ranges: 0,
            costs: Costs::REFERENCE,
            controller: Choice::default(),
            record: None,
            copy_bytes,
            alone: || (),
            books_short: || false,
            times: || PROCESS.space.times(),
            started: || (),
        };
        extern "C" fn before() {
            PROCESS.space.before_fork();
        }
        extern "C" fn parent() {
            PROCESS.space.after_fork_parent();
        }
        extern "C" fn child() {
            PROCESS.space.after_fork_child(|| ());
        }
        // SAFETY: handlers that live as long as the process.
        unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
        let tracks = PROCESS.space.init(16 << 10, settings).is_ok() && PROCESS.space.start();
        if !tracks {
            eprintln!("no userfaultfd here: nothing is elided, only the bytes are tested");
        }
        tracks
    })
}

/// A way for messages of up to [`MESSAGE`] bytes from one buffer to another, over some stack.
trait Connection {
    fn send(&mut self, buffer: &Buffers<1>) -> isize;
    fn receive(&mut self, buffer: &Buffers<1>) -> isize;
    /// Between two calls: the stack does what it has to do.
    fn rest(&mut self) {}
}

/// Linux's sockets.
struct Sockets([i32; 2]);

impl Sockets {
    fn new() -> Self {
        let mut fds = [0; 2];
        // SAFETY: two descriptors.
        let made =
            unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, fds.as_mut_ptr()) };
        assert_eq!(made, 0);
        let room = (4 * MESSAGE) as i32;
        // SAFETY: an option of four bytes.
        unsafe {
            let at = (&raw const room).cast();
            libc::setsockopt(fds[0], libc::SOL_SOCKET, libc::SO_SNDBUF, at, 4);
        }
        Self(fds)
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        // SAFETY: ours.
        self.0.iter().for_each(|fd| unsafe {
            libc::close(*fd);
        });
    }
}

impl Connection for Sockets {
    fn send(&mut self, buffer: &Buffers<1>) -> isize {
        let (fd, (addr, n)) = (self.0[0], buffer[0]);
        // SAFETY: the buffer is the test's.
        unsafe { endpoint::send(fd, &OutputCall::Write { buf: addr as *const _, n }, 0, &host()) }
    }

    fn receive(&mut self, buffer: &Buffers<1>) -> isize {
        let (fd, (addr, n)) = (self.0[1], buffer[0]);
        let call = InputCall::Read { buf: addr as *mut _, n };
        // SAFETY: the buffer is the test's.
        unsafe { endpoint::receive(fd, &call, None, 0, &host()) }
    }
}

impl Connection for Ring {
    fn send(&mut self, buffer: &Buffers<1>) -> isize {
        output(&mut self.sending(buffer), buffer, &host())
    }

    fn receive(&mut self, buffer: &Buffers<1>) -> isize {
        input(&mut self.receiving(buffer), buffer, &host())
    }

    fn rest(&mut self) {
        self.reattach_leaving();
        if self.is_short_of_room() {
            PROCESS.space.recall(self.region());
            self.reattach_leaving();
        }
    }
}

/// Private memory, and beside it what must be in it.
struct Buffer {
    at: *mut u8,
    right: Vec<u8>,
}

impl Buffer {
    fn new() -> Self {
        // SAFETY: a new mapping of the kernel's choice.
        let at = unsafe {
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), BUFFER, access, kind, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: ours; huge pages cannot be moved.
        unsafe { libc::madvise(at, BUFFER, libc::MADV_NOHUGEPAGE) };
        Self { at: at.cast(), right: vec![0; BUFFER] }
    }

    fn address(&self, at: usize) -> usize {
        self.at as usize + at
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        // SAFETY: inside the mapping, which no reference is to.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(at), bytes.len()) };
        self.right[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(self.at.add(at), bytes.as_mut_ptr(), len) };
        bytes
    }

    fn check(&self, at: usize, len: usize, what: &str) {
        let wrong = (at..at + len).zip(self.read(at, len)).find(|(i, b)| self.right[*i] != *b);
        assert_eq!(wrong, None, "{what}: wrong byte");
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // (The library in front of libc would tell: the memory is about to go.)
        let gone = PROCESS.space.detach(Span::sized(self.at as usize, BUFFER));
        // SAFETY: ours.
        unsafe { libc::munmap(self.at.cast(), BUFFER) };
        if let Some(gone) = gone {
            PROCESS.space.after_unmapping(gone, true);
        }
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// A place in a buffer, and how much follows it.
    fn range(&mut self) -> (usize, usize) {
        let at = if self.below(2) == 0 { self.below(16) * PAGE } else { self.below(16 * PAGE) };
        let len = if self.below(4) == 0 { 1 + self.below(PAGE) } else { 1 + self.below(MESSAGE) };
        (at, len)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Sends what `from` holds, and receives it into `to`.
fn carry(c: &mut impl Connection, from: &Buffer, to: &mut Buffer, random: &mut Random) {
    let (at, len) = random.range();
    let (start, _) = random.range();
    c.rest();
    let sent = c.send(&Buffers::one(from.address(at), len));
    assert_eq!(sent, len as isize, "a message that fits is sent whole");
    let mut got = 0;
    while got < len {
        // (Sometimes in parts.)
        let room = if random.below(3) == 0 { 1 + random.below(len - got) } else { len - got };
        let n = c.receive(&Buffers::one(to.address(start + got), room));
        assert!(
            n > 0 && n as usize <= room,
            "{n} bytes were received where there is room for {room}"
        );
        got += n as usize;
    }
    to.right[start..start + len].copy_from_slice(&from.right[at..at + len]);
}

fn copy_between(from: &Buffer, to: &mut Buffer, random: &mut Random) {
    let (at, len) = random.range();
    let (start, _) = random.range();
    let (dst, src) = (to.address(start), from.address(at));
    // SAFETY: both are in their mappings, which are two.
    unsafe {
        if !copy(&PROCESS, dst, src, len, 0x77, Source::Input, copy_bytes) {
            copy_bytes(dst as *mut u8, src as *const u8, len);
        }
    }
    to.right[start..start + len].copy_from_slice(&from.right[at..at + len]);
}

fn run(seed: u64, c: &mut impl Connection) {
    let mut random = Random(seed);
    let mut buffers = [Buffer::new(), Buffer::new(), Buffer::new()];
    for _ in 0..80 {
        let (i, j) = (random.below(3), 1 + random.below(2));
        let [from, to] = buffers.get_disjoint_mut([i, (i + j) % 3]).expect("two of three");
        match random.below(8) {
            0..4 => carry(c, from, to, &mut random),
            4 | 5 => copy_between(from, to, &mut random),
            6 => {
                let (at, len) = random.range();
                let bytes = random.bytes(len.min(3 * PAGE));
                from.write(at, &bytes);
            }
            _ => {
                let (at, len) = random.range();
                from.check(at, len, "read on the way");
            }
        }
    }
    for b in &buffers {
        b.check(0, BUFFER, "read at the end");
    }
}

fn seeds(mut f: impl FnMut(u64)) {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let all = match number("UNCOPY_STACK_SEED") {
        Some(s) => s..s + 1,
        None => 0..number("UNCOPY_STACK_SEEDS").unwrap_or(20),
    };
    for seed in all {
        // (Said where a test fails.)
        eprintln!("UNCOPY_STACK_SEED={seed}");
        f(seed);
    }
}

#[test]
fn every_byte_arrives_over_linux_sockets() {
    let _others = among_others();
    tracks();
    seeds(|seed| run(seed, &mut Sockets::new()));
}

#[test]
fn every_byte_arrives_over_a_stack_whose_bytes_lie_in_shared_memory() {
    run_over(Ring::shared);
}

#[test]
fn every_byte_arrives_over_a_stack_whose_pages_may_be_moved() {
    run_over(Ring::private);
}

fn run_over(ring: impl Fn(usize) -> Ring) {
    let _others = among_others();
    let tracks = tracks();
    let mut referred = 0;
    seeds(|seed| {
        let mut ring = ring(4 * MESSAGE);
        run(seed, &mut ring);
        referred += ring.referred();
        // (The buffers are gone.)
        ring.end();
    });
    assert!(!tracks || referred > 20, "only {referred} messages were taken over by reference");
}

#[test]
fn pages_are_moved_to_a_buffer_that_is_put_in_place_and_the_ring_gets_others() {
    let _alone = alone();
    let mut ring = Ring::private(4 * MESSAGE);
    if !tracks() {
        return;
    }
    let before = PROCESS.space.counters().moved_in_pages.load(Relaxed);
    let buffer = received(&mut ring, 4);
    PROCESS.space.materialize_if_possible(Span::sized(buffer.address(0), BUFFER));
    let moved = PROCESS.space.counters().moved_in_pages.load(Relaxed) - before;
    assert!(moved >= (MESSAGE / PAGE) as u64, "only {moved} pages were moved");
    buffer.check(0, BUFFER, "moved");
    ring.reattach_leaving();
    assert_eq!(ring.out(), 0);
    let next = received(&mut ring, 5);
    next.check(0, BUFFER, "from the same part of the ring");
    buffer.check(0, BUFFER, "after the ring was used again");
    drop((buffer, next));
    ring.end();
}

/// Received into a fresh buffer: it is a view of the ring.
fn received(ring: &mut Ring, seed: u64) -> Buffer {
    let mut random = Random(seed);
    let mut from = Buffer::new();
    from.write(0, &random.bytes(MESSAGE));
    let mut to = Buffer::new();
    assert_eq!(ring.send(&Buffers::one(from.address(0), MESSAGE)), MESSAGE as isize);
    assert_eq!(ring.receive(&Buffers::one(to.address(0), MESSAGE)), MESSAGE as isize);
    to.right[..MESSAGE].copy_from_slice(&from.right[..MESSAGE]);
    to
}

#[test]
fn a_range_that_is_received_by_reference_comes_back_when_the_buffer_is_gone() {
    let _alone = alone();
    let mut ring = Ring::shared(4 * MESSAGE);
    if !tracks() {
        return;
    }
    let before = PROCESS.space.counters().elided_bytes.load(Relaxed);
    let buffer = received(&mut ring, 1);
    assert_eq!(ring.referred(), 1);
    assert!(PROCESS.space.counters().elided_bytes.load(Relaxed) >= before + MESSAGE as u64);
    ring.reattach_leaving();
    assert_eq!(ring.out(), MESSAGE, "it came back while it is viewed");
    buffer.check(0, BUFFER, "a view of the ring");
    drop(buffer);
    ring.reattach_leaving();
    assert_eq!(ring.out(), 0);
    ring.end();
}

/// An output that keeps what it is given, as a log would: extents by reference, other bytes copied.
#[derive(Default)]
struct Keeper {
    parts: Vec<Part>,
    kept: KeptPieces,
}

enum Part {
    Extent(Span),
    Copied(Vec<u8>),
}

impl Part {
    fn bytes(&self) -> Vec<u8> {
        match self {
            // SAFETY: kept, and never changed.
            Self::Extent(at) => unsafe {
                std::slice::from_raw_parts(at.start as *const u8, at.len()).to_vec()
            },
            Self::Copied(bytes) => bytes.clone(),
        }
    }
}

impl Output for Keeper {
    fn as_it_is(&mut self) -> isize {
        panic!("nothing of it is a view")
    }

    fn gather(&mut self, _: &Pieces) -> Option<isize> {
        panic!("it is to be kept")
    }

    fn keeps(&self, _: usize) -> bool {
        true
    }

    fn keep(&mut self, pieces: &Pieces, kept: KeptPieces) -> Option<(isize, usize)> {
        for (p, kept) in pieces.iter().zip(&kept) {
            let at = Span::sized(p.iov_base as usize, p.iov_len);
            let part = Part::Extent(at);
            self.parts.push(match kept {
                Some(_) => part,
                None => Part::Copied(part.bytes()),
            });
        }
        self.kept = kept;
        Some((pieces.iter().map(|p| p.iov_len as isize).sum(), 0))
    }
}

#[test]
fn bytes_that_an_output_keeps_stay_after_its_buffer_was_overwritten_and_unmapped() {
    let _alone = alone();
    let mut ring = Ring::shared(4 * MESSAGE);
    if !tracks() {
        return;
    }
    let mut buffer = received(&mut ring, 6);
    let mut keeper = Keeper::default();
    let sent = output(&mut keeper, &Buffers::one(buffer.address(0), BUFFER), &host());
    assert_eq!(sent, BUFFER as isize);
    let extents: usize = keeper
        .parts
        .iter()
        .map(|part| if let Part::Extent(at) = part { at.len() } else { 0 })
        .sum();
    assert_eq!(extents, MESSAGE, "what was received is kept by reference");
    let right = buffer.right.clone();
    buffer.write(0, &vec![0xee; BUFFER]);
    drop(buffer);
    ring.reattach_leaving();
    assert_eq!(ring.out(), MESSAGE, "it came back while it is kept");
    let kept: Vec<u8> = keeper.parts.iter().flat_map(Part::bytes).collect();
    assert!(kept == right, "what is kept has changed");
    keeper.kept.clear();
    ring.reattach_leaving();
    assert_eq!(ring.out(), 0, "it did not come back");
    ring.end();
}

#[test]
fn each_piece_that_an_output_keeps_comes_back_whatever_becomes_of_the_others() {
    let _alone = alone();
    let mut ring = Ring::shared(4 * MESSAGE);
    if !tracks() {
        return;
    }
    let buffers = [received(&mut ring, 6), received(&mut ring, 7)];
    let list = buffers.each_ref().map(|b| piece(b.address(0), MESSAGE));
    let mut keeper = Keeper::default();
    // SAFETY: a list of two buffers.
    let sent = unsafe {
        output_listed(&mut keeper, IovList { iov: list.as_ptr(), count: list.len() }, &host())
    };
    assert_eq!(sent, 2 * MESSAGE as isize);
    drop(buffers);
    ring.reattach_leaving();
    assert_eq!((keeper.parts.len(), ring.out()), (2, 2 * MESSAGE));
    keeper.kept.remove(0);
    ring.reattach_leaving();
    assert_eq!(ring.out(), MESSAGE, "it waits for the other one");
    keeper.kept.clear();
    ring.reattach_leaving();
    assert_eq!(ring.out(), 0, "it did not come back");
    ring.end();
}

#[test]
fn bytes_that_are_called_back_stay_what_they_were() {
    let _alone = alone();
    let mut ring = Ring::shared(4 * MESSAGE);
    if !tracks() {
        return;
    }
    let buffer = received(&mut ring, 2);
    assert_eq!(ring.referred(), 1);
    PROCESS.space.recall(ring.region());
    ring.reattach_leaving();
    assert_eq!(ring.out(), 0, "not all came back");
    ring.scribble();
    buffer.check(0, BUFFER, "brought home");
    drop(buffer);
    ring.end();
}

#[test]
fn a_child_reads_what_its_parent_received_though_the_ring_is_used_again() {
    let _alone = alone();
    let mut ring = Ring::shared(4 * MESSAGE);
    if !tracks() {
        return;
    }
    let buffer = received(&mut ring, 3);
    assert_eq!(ring.referred(), 1);
    let mut pipe = [0; 2];
    // SAFETY: two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: the child reads memory, one byte of a pipe, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut go = 0u8;
        // SAFETY: as above.
        unsafe {
            libc::read(pipe[0], (&raw mut go).cast(), 1);
            let at = std::slice::from_raw_parts(buffer.at, BUFFER);
            libc::_exit(i32::from(at != buffer.right));
        }
    }
    assert!(child > 0);
    // All views are home, so the ring is the sender's again.
    ring.reattach_leaving();
    assert_eq!(ring.out(), 0, "a view of shared memory would be the child's too");
    ring.scribble();
    let mut status = -1;
    // SAFETY: our child and our pipe.
    unsafe {
        assert_eq!(libc::write(pipe[1], b"g".as_ptr().cast(), 1), 1);
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        pipe.iter().for_each(|fd| {
            libc::close(*fd);
        });
    }
    assert_eq!(status, 0, "the child read other bytes than its parent");
    buffer.check(0, BUFFER, "in the parent");
    drop(buffer);
    ring.end();
}
