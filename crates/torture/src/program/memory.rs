//! The buffers of a script in the memory of this process.

use super::channels;
use super::given::Given;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ops::Range;
use core::ptr::null_mut;
use std::os::fd::AsRawFd;
use uncopy_torture::bytes;
use uncopy_torture::defined::Defined;
use uncopy_torture::op::{Heap, MapOf, Via};
use uncopy_torture::script::{self, Storage};

/// Size of a page.
pub const PAGE: usize = 4096;

/// The kind of a buffer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is none.
    Nothing,
    /// A heap block.
    Heap,
    /// A mapping: its address and length in bytes.
    Map { base: usize, len: usize, of: MapOf, whole: bool },
    /// A part of an array.
    Part(Storage),
}

/// A buffer.
#[derive(Debug)]
pub struct Buf {
    /// The kind.
    pub kind: Kind,
    /// Its first byte.
    pub at: usize,
    /// Its length.
    pub len: usize,
    /// The part with a known content.
    pub defined: Defined,
    /// The part that children find wiped,
    pub wiped: Defined,
    /// or not at all.
    pub withheld: Defined,
    /// The part that the kernel has (of it, or of memory that it was) by reference.
    pub given: Given,
}

struct Array<const N: usize>(UnsafeCell<[u8; N]>);
// SAFETY: parts of it are handed out; who uses which when is the script's order.
unsafe impl<const N: usize> Sync for Array<N> {}
static BSS: Array<{ 4 << 20 }> = Array(UnsafeCell::new([0; 4 << 20]));
static DATA: Array<{ 512 << 10 }> = Array(UnsafeCell::new([0xd7; 512 << 10]));

/// Where the arrays are.
pub struct Arrays {
    arena: usize,
    /// Of each thread, on its stack.
    pub stacks: Vec<usize>,
}

impl Arrays {
    /// Maps the arena.
    pub fn new(stacks: Vec<usize>) -> Self {
        Self { arena: map(script::room(Storage::Arena), MapOf::Anonymous) as usize, stacks }
    }

    /// The buffer that a script's line describes.
    pub fn buffer(&self, b: &script::Buffer) -> Buf {
        let base = match b.place {
            Storage::Dynamic => return Buf::nothing(),
            Storage::Bss => BSS.0.get() as usize,
            Storage::Data => DATA.0.get() as usize,
            Storage::Arena => self.arena,
            Storage::Stack(t) => self.stacks[t],
        };
        let (kind, defined) = (Kind::Part(b.place), Defined::all(b.len));
        Buf { kind, at: base + b.start, len: b.len, defined, ..Buf::nothing() }
    }
}

fn map(len: usize, of: MapOf) -> *mut c_void {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let file = (of == MapOf::File).then(|| channels::file(Via::File));
    let (flags, fd) = match (of, &file) {
        (MapOf::Shared, _) => (libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1),
        (MapOf::File, Some(f)) => {
            // SAFETY: sizes a file of our own.
            unsafe { libc::ftruncate(f.as_raw_fd(), len as i64) };
            (libc::MAP_PRIVATE, f.as_raw_fd())
        }
        _ => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(null_mut(), len, prot, flags, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED, "no memory");
    at
}

impl Buf {
    fn nothing() -> Self {
        let none = Defined::default;
        let (defined, wiped, withheld) = (none(), none(), none());
        Self {
            kind: Kind::Nothing,
            at: 0,
            len: 0,
            defined,
            wiped,
            withheld,
            given: Given::default(),
        }
    }

    /// Whether operations may make and free it.
    pub fn dynamic(&self) -> bool {
        !matches!(self.kind, Kind::Part(_))
    }

    /// Whether its memory is private and anonymous, and not backed by a file.
    pub fn anonymous(&self) -> bool {
        match self.kind {
            Kind::Map { of, .. } => of == MapOf::Anonymous,
            Kind::Part(place) => place != Storage::Data,
            Kind::Heap => true,
            Kind::Nothing => false,
        }
    }

    /// Cuts a range to the buffer.
    pub fn cut(&self, at: usize, len: usize) -> Range<usize> {
        let at = at.min(self.len);
        at..at + len.min(self.len - at)
    }

    /// Whole pages inside the buffer, cut to it: as offsets. How many there are does not depend on
    /// where the buffer lies.
    pub fn pages(&self, page: usize, pages: usize) -> Range<usize> {
        let count = (self.len + 1).saturating_sub(PAGE) / PAGE;
        let page = page.min(count);
        let pages = pages.min(count - page);
        let start = self.at.next_multiple_of(PAGE) - self.at + page * PAGE;
        start..start + pages * PAGE
    }

    /// The bytes that may be in `pages`: where in a heap block a page begins differs from run to
    /// run.
    pub fn perhaps_in(&self, pages: &Range<usize>) -> Range<usize> {
        match self.kind {
            Kind::Heap if !pages.is_empty() => {
                let start = pages.start / PAGE * PAGE;
                start..(start + pages.len() + PAGE).min(self.len)
            }
            _ => pages.clone(),
        }
    }

    /// The address of offset `at`.
    pub fn address(&self, at: usize) -> *mut u8 {
        (self.at + at) as *mut u8
    }

    /// The bytes of `range`.
    ///
    /// # Safety
    /// `range` lies in the buffer, and nobody else uses these bytes meanwhile.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes(&self, range: Range<usize>) -> &mut [u8] {
        // SAFETY: the caller's promise; the memory is initialised (undefined content is whatever
        // the allocator left, which was written once).
        unsafe { core::slice::from_raw_parts_mut(self.address(range.start), range.len()) }
    }

    /// Frees or unmaps it. Returns what libc did.
    pub fn free(&mut self) -> isize {
        self.before_reuse();
        let mut old = core::mem::replace(self, Self::nothing());
        if !matches!(old.kind, Kind::Part(_)) {
            self.given = core::mem::take(&mut old.given);
            self.given.outlive();
        }
        // SAFETY: the buffer is the script's, and nobody uses it after this.
        unsafe {
            match old.kind {
                Kind::Nothing => 0,
                Kind::Heap => {
                    libc::free(old.at as *mut c_void);
                    0
                }
                Kind::Map { base, len, .. } => libc::munmap(base as *mut c_void, len) as isize,
                Kind::Part(_) => {
                    *self = old;
                    0
                }
            }
        }
    }

    /// Before a heap block goes back to libc, which may write to it and hand it out again.
    fn before_reuse(&mut self) {
        if self.kind == Kind::Heap {
            self.given.take(0..usize::MAX);
            for r in core::mem::take(&mut self.wiped).within(0..self.len) {
                // SAFETY: changes only what children find.
                unsafe {
                    libc::madvise(self.address(r.start).cast(), r.len(), libc::MADV_KEEPONFORK)
                };
            }
        }
    }

    /// The memory as a child finds it.
    pub fn in_child(&mut self) {
        self.given = Given::default();
        self.defined = self.defined_in_child();
        if !self.withheld.within(0..self.len).is_empty() {
            *self = Self::nothing();
        }
    }

    /// The part that is known in a child.
    pub fn defined_in_child(&self) -> Defined {
        let mut defined = self.defined.clone();
        for r in self.wiped.within(0..self.len) {
            defined.remove(self.perhaps_in(&r));
            if self.kind != Kind::Heap {
                defined.insert(r);
            }
        }
        defined
    }

    /// There are new pages.
    pub fn as_new(&mut self, range: &Range<usize>) {
        self.wiped.remove(range.clone());
        self.withheld.remove(range.clone());
    }

    /// Its mapping may have become several.
    pub fn in_parts(&mut self) {
        if let Kind::Map { base, len, of, .. } = self.kind {
            self.kind = Kind::Map { base, len, of, whole: false };
        }
    }

    /// Becomes a new heap block.
    pub fn allocate(&mut self, size: usize, by: Heap) {
        let mut block = null_mut();
        let mut defined = Defined::default();
        // SAFETY: plain allocations.
        unsafe {
            match by {
                Heap::Malloc => block = libc::malloc(size),
                Heap::Calloc => {
                    block = libc::calloc(1, size);
                    defined = Defined::all(size);
                }
                Heap::Memalign => {
                    libc::posix_memalign(&mut block, PAGE, size);
                }
            }
        }
        assert!(!block.is_null(), "no memory");
        let given = core::mem::take(&mut self.given);
        let (kind, at) = (Kind::Heap, block as usize);
        *self = Self { kind, at, len: size, defined, given, ..Self::nothing() };
    }

    /// `realloc`.
    pub fn reallocate(&mut self, size: usize) {
        self.before_reuse();
        // SAFETY: a heap block of the script's.
        let block = unsafe { libc::realloc(self.at as *mut c_void, size) };
        assert!(!block.is_null(), "no memory");
        self.at = block as usize;
        self.defined.remove(size.min(self.len)..self.len);
        self.len = size;
    }

    /// Becomes a new mapping.
    pub fn map(&mut self, pages: usize, skew: usize, of: MapOf) {
        let len = pages * PAGE;
        let base = map(len, of) as usize;
        let at = base + skew.min(len);
        let usable = base + len - at;
        if of == MapOf::File {
            // The file holds something other than zeros. SAFETY: the new mapping.
            bytes::fill(77, 0, unsafe {
                core::slice::from_raw_parts_mut(at as *mut u8, usable.min(10_000))
            });
        }
        let kind = Kind::Map { base, len, of, whole: true };
        let (given, defined) = (core::mem::take(&mut self.given), Defined::all(usable));
        *self = Self { kind, at, len: usable, defined, given, ..Self::nothing() };
    }

    /// `mremap` to `pages` pages. Returns -1 with errno set if the kernel refuses.
    pub fn remap(&mut self, pages: usize) -> Option<isize> {
        let Kind::Map { base, len, of: MapOf::Anonymous, whole: true } = self.kind else {
            return None;
        };
        let skew = self.at - base;
        let new = (pages * PAGE).max(skew.next_multiple_of(PAGE) + PAGE);
        // SAFETY: a mapping of the script's, which may move.
        let at = unsafe { libc::mremap(base as *mut c_void, len, new, libc::MREMAP_MAYMOVE) };
        if at == libc::MAP_FAILED {
            return Some(-1);
        }
        self.kind = Kind::Map { base: at as usize, len: new, of: MapOf::Anonymous, whole: true };
        self.at = at as usize + skew;
        let old = self.len;
        self.len = new - skew;
        self.defined.remove(self.len..old.max(self.len));
        self.defined.insert(old..self.len.max(old));
        Some(0)
    }
}
