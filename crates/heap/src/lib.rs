//! Our libraries' own allocator: the program's may be anything, may be in the middle of something,
//! and its memory may be tracked. This one maps its own pages with direct system calls.
//!
//! Rust aborts the process where an allocation fails, and the process is not ours to abort. So
//! where the kernel has no memory a reserve is handed out, and once half of it is gone nothing more
//! is tracked: what the other half must suffice for are the steps that undo tracking.
//! (`uncopy profile`'s library has the reserve, but follows on until it is used up.)
//!
//! unsafe: implements the allocator traits over `dlmalloc` and anonymous mappings.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use dlmalloc::{Allocator, Dlmalloc};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use uncopy_inject::Call;
use uncopy_kernel::lock::Lock;
use uncopy_kernel::{critical, inject, mapping, placement};
use uncopy_ranges::span::{PAGE, Span, page_up};

const RESERVE_SIZE: usize = 2 << 20;

/// Address space until it is needed.
#[repr(align(4096))]
struct Reserve {
    bytes: UnsafeCell<[u8; RESERVE_SIZE]>,
    used: AtomicUsize,
}
// SAFETY: each byte is handed out once.
unsafe impl Sync for Reserve {}

/// A static: dlmalloc's allocator of pages has nothing in hand that could lead to it, and is needed
/// before anything of ours is made.
static RESERVE: Reserve =
    Reserve { bytes: UnsafeCell::new([0; RESERVE_SIZE]), used: AtomicUsize::new(0) };

/// To dlmalloc: not to be released, not to be joined with mappings. (Bit 0 has a meaning of its
/// own.)
const FROM_RESERVE: u32 = 2;

impl Reserve {
    /// Takes a block. The caller holds the heap's lock.
    fn take(&self, size: usize) -> (*mut u8, usize, u32) {
        let used = self.used.load(Relaxed);
        if size > RESERVE_SIZE - used {
            return (core::ptr::null_mut(), 0, 0);
        }
        self.used.store(used + size, Relaxed);
        (self.bytes.get().cast::<u8>().wrapping_add(used), size, FROM_RESERVE)
    }
}

/// Whether there was no memory, so that half of the reserve is used up.
pub fn is_short() -> bool {
    RESERVE.used.load(Relaxed) > RESERVE_SIZE / 2
}

/// A core has not what of the reserve nobody needed.
pub fn leave_out_of_dumps() {
    let used = page_up(RESERVE.used.load(Relaxed));
    mapping::leave_out_of_dumps(Span::sized(
        RESERVE.bytes.get() as usize + used,
        RESERVE_SIZE - used,
    ));
}

/// Mappings of so many bytes go back to the kernel once nothing is in them.
const LARGE: usize = 1 << 20;

struct Mappings;

// SAFETY: hands out fresh private mappings, and takes back only those.
unsafe impl Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        // Gaps on both sides: dlmalloc gives back only what it has not joined with others.
        let gap = if size < LARGE { 0 } else { PAGE };
        // SAFETY: a new mapping where there is none.
        let mapped = inject::check(Call::Heap).and_then(|()| unsafe {
            mmap_anonymous(
                (placement::SMALL.next(size + 2 * gap) + gap) as *mut _,
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        });
        mapped.map_or_else(|_| RESERVE.take(size), |p| (p.cast(), size, 0))
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        core::ptr::null_mut()
    }

    fn free_part(&self, ptr: *mut u8, old: usize, new: usize) -> bool {
        // SAFETY: the tail of a mapping of ours that dlmalloc gives back.
        unsafe {
            inject::check(Call::Munmap)
                .and_then(|()| munmap(ptr.add(new).cast(), old - new))
                .is_ok()
        }
    }

    fn free(&self, ptr: *mut u8, size: usize) -> bool {
        // SAFETY: a mapping of ours that dlmalloc gives back.
        unsafe { inject::check(Call::Munmap).and_then(|()| munmap(ptr.cast(), size)).is_ok() }
    }

    fn can_release_part(&self, flags: u32) -> bool {
        // (dlmalloc hands the flags over without bit 0.)
        flags != FROM_RESERVE >> 1
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        uncopy_ranges::span::PAGE
    }
}

/// The allocator behind every `Box` and `Vec` of a library of ours. One in a process: all share the
/// reserve.
pub struct Heap {
    lock: Lock,
    inner: UnsafeCell<Dlmalloc<Mappings>>,
}

// SAFETY: `inner` is used only with the lock held.
unsafe impl Sync for Heap {}

impl Heap {
    /// An empty one.
    #[expect(clippy::new_without_default, reason = "a static, not a value to be made anew")]
    pub const fn new() -> Heap {
        Heap { lock: Lock::new(), inner: UnsafeCell::new(Dlmalloc::new_with_allocator(Mappings)) }
    }

    /// Before fork: nobody allocates until [`Heap::after_fork_parent`].
    pub fn before_fork(&self) {
        self.lock.lock();
    }

    /// After fork, in the parent.
    pub fn after_fork_parent(&self) {
        self.lock.unlock();
    }

    /// After fork, in the child.
    pub fn after_fork_child(&self) {
        self.lock.reset();
    }

    fn with<R>(&self, f: impl FnOnce(&mut Dlmalloc<Mappings>) -> R) -> R {
        // A signal handler that copies must not find its own thread holding the lock.
        critical::within(|| {
            self.lock.lock();
            // SAFETY: the lock is held; `f` does not come back here.
            let result = f(unsafe { &mut *self.inner.get() });
            self.lock.unlock();
            result
        })
    }
}

// SAFETY: dlmalloc's own contract is the same; sizes and alignments are passed through.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the trait's caller promises.
        self.with(|d| unsafe { d.malloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the trait's caller promises.
        self.with(|d| unsafe { d.free(ptr, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as the trait's caller promises.
        self.with(|d| unsafe { d.realloc(ptr, layout.size(), layout.align(), new_size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_handed_out_once_and_tells_when_half_is_gone() {
        let (first, size, _) = RESERVE.take(PAGES);
        let (second, ..) = RESERVE.take(PAGES);
        assert_eq!((second as usize - first as usize, size), (PAGES, PAGES));
        assert!(!is_short());
        let (third, ..) = RESERVE.take(RESERVE_SIZE / 2);
        assert!(!third.is_null() && is_short());
        assert!(RESERVE.take(RESERVE_SIZE / 2).0.is_null());
    }

    const PAGES: usize = 16 << 12;

    #[test]
    fn most_of_what_large_blocks_took_goes_back_to_the_kernel_though_small_ones_stay() {
        let heap = Heap::new();
        let (small, large) = (Layout::new::<[u8; 4000]>(), Layout::new::<[u8; 64 << 20]>());
        let filled = |layout: Layout| {
            // SAFETY: a block of the layout's size.
            unsafe {
                let block = heap.alloc(layout);
                assert!(!block.is_null());
                block.write_bytes(1, layout.size());
                block
            }
        };
        let some = || {
            (0..100).for_each(|_| {
                filled(small);
            });
        };
        some();
        let before = resident();
        let mut grown = filled(Layout::new::<[u8; 1 << 20]>());
        for size in [2, 4, 8, 16, 32].map(|mb| mb << 20) {
            some();
            let old = Layout::array::<u8>(size / 2).unwrap();
            // SAFETY: a block of `old`.
            grown = unsafe { heap.realloc(grown, old, size) };
            // SAFETY: it has `size` bytes now.
            unsafe { grown.write_bytes(1, size) };
        }
        let block = filled(large);
        some();
        // SAFETY: blocks of these sizes, which nobody uses.
        unsafe {
            heap.dealloc(block, large);
            heap.dealloc(grown, Layout::array::<u8>(32 << 20).unwrap());
        }
        // (One block's memory may stay: dlmalloc looks through its mappings rarely.)
        let stays = resident().saturating_sub(before);
        assert!(stays < 40 << 20, "{} MB stay", stays >> 20);
    }

    /// Bytes of memory that this process has.
    fn resident() -> usize {
        let said = std::fs::read_to_string("/proc/self/statm").unwrap();
        said.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }
}
