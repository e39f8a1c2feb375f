//! Our own allocator: the program's may be anything, may be in the middle of something, and its
//! memory may be tracked. This one maps its own pages with direct system calls.
//!
//! unsafe: implements the allocator traits over `dlmalloc` and anonymous mappings.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use dlmalloc::{Allocator, Dlmalloc};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use uncopy_vm::critical;
use uncopy_vm::lock::Lock;

struct Mappings;

// SAFETY: hands out fresh private mappings, and takes back only those.
unsafe impl Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe {
            mmap_anonymous(
                core::ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        mapped.map_or((core::ptr::null_mut(), 0, 0), |p| (p.cast(), size, 0))
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        core::ptr::null_mut()
    }

    fn free_part(&self, ptr: *mut u8, old: usize, new: usize) -> bool {
        // SAFETY: the tail of a mapping of ours that dlmalloc gives back.
        unsafe { munmap(ptr.add(new).cast(), old - new).is_ok() }
    }

    fn free(&self, ptr: *mut u8, size: usize) -> bool {
        // SAFETY: a mapping of ours that dlmalloc gives back.
        unsafe { munmap(ptr.cast(), size).is_ok() }
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        uncopy_core::span::PAGE
    }
}

/// The allocator behind every `Box` and `Vec` of this library.
pub struct Heap {
    lock: Lock,
    inner: UnsafeCell<Dlmalloc<Mappings>>,
}

// SAFETY: `inner` is used only with the lock held.
unsafe impl Sync for Heap {}

/// The one heap.
#[global_allocator]
pub static HEAP: Heap =
    Heap { lock: Lock::new(), inner: UnsafeCell::new(Dlmalloc::new_with_allocator(Mappings)) };

impl Heap {
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
