//! Our own allocator: the program's may be anything, and in the middle of something.
//!
//! unsafe: implements the allocator traits over `dlmalloc` and anonymous mappings.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use dlmalloc::{Allocator, Dlmalloc};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use uncopy_core::span::PAGE;
use uncopy_vm::lock::Lock;

struct Mappings;

// SAFETY: hands out fresh private mappings, and takes back only those.
unsafe impl Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped =
            unsafe { mmap_anonymous(core::ptr::null_mut(), size, access, MapFlags::PRIVATE) };
        mapped.map_or((core::ptr::null_mut(), 0, 0), |p| (p.cast(), size, 0))
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        core::ptr::null_mut()
    }

    fn free_part(&self, ptr: *mut u8, old: usize, new: usize) -> bool {
        // SAFETY: the tail of a mapping of ours that dlmalloc gives back.
        unsafe { munmap(ptr.add(new).cast(), old - new) }.is_ok()
    }

    fn free(&self, ptr: *mut u8, size: usize) -> bool {
        // SAFETY: a mapping of ours that dlmalloc gives back.
        unsafe { munmap(ptr.cast(), size) }.is_ok()
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

/// The allocator behind every `Box` and `Vec` of this library. It is used by the constructor and with the
/// follower's lock held, signals blocked; so no handler finds its own thread holding the lock here, and fork,
/// which takes the follower's lock, finds this one free.
struct Heap {
    lock: Lock,
    inner: UnsafeCell<Dlmalloc<Mappings>>,
}

// SAFETY: `inner` is used only with the lock held.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap =
    Heap { lock: Lock::new(), inner: UnsafeCell::new(Dlmalloc::new_with_allocator(Mappings)) };

impl Heap {
    fn with<R>(&self, f: impl FnOnce(&mut Dlmalloc<Mappings>) -> R) -> R {
        self.lock.lock();
        // SAFETY: the lock is held; `f` does not come back here.
        let result = f(unsafe { &mut *self.inner.get() });
        self.lock.unlock();
        result
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
