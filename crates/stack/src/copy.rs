//! Copies in the program's memory.
//!
//! unsafe: carries out what the tracker planned, on addresses that the program named.

use uncopy_core::plan::CopyPlan;
use uncopy_counters::add;
use uncopy_process::process::Process;
use uncopy_space::events::execute;
use uncopy_space::pages::CopyBytes;

/// Copies that are too fragmented are halved down to this many bytes.
const PART_MIN: usize = 16 << 10;

/// The source of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Data of an input call, or a copy of it, as far as the filter knows.
    Input,
    /// Anything else.
    Other,
    /// A kept file, which the kernel copies: what that takes says nothing about copies.
    KeptFile,
}

/// Copies `len` bytes from `src` to `dst`, as views where that is possible. Returns false if
/// nothing of it is tracked: the caller executes the copy as it is.
///
/// # Safety
/// `src` and `dst` are valid for reading and writing `len` bytes, as for `memcpy`.
pub unsafe fn copy(
    process: &'static Process,
    dst: usize,
    src: usize,
    len: usize,
    caller: usize,
    source: Source,
    copy_bytes: CopyBytes,
) -> bool {
    let kept = source == Source::KeptFile;
    let space = &process.space;
    let mut plan = CopyPlan::default();
    let planned = space.with(|b| {
        if kept {
            b.never_tried(caller, len);
        }
        b.copy_begin(dst, src, len, caller, source != Source::Other, &mut plan);
    });
    if planned.is_none() || plan.bypass {
        if planned.is_some() {
            space.evict_if_wanted();
        } else if space.running() {
            add(&space.counters().forked_copies, 1);
        }
        let split = planned.is_some() && plan.fragmented && len >= 2 * PART_MIN;
        if split {
            for (at, len) in [(0, len / 2), (len / 2, len - len / 2)] {
                // SAFETY: parts of what the caller vouches for; they do not overlap, or the copy
                // would not be called fragmented.
                unsafe {
                    if !copy(process, dst + at, src + at, len, caller, source, copy_bytes) {
                        copy_bytes((dst + at) as *mut u8, (src + at) as *const u8, len);
                    }
                }
            }
        }
        return split;
    }
    if !plan.staged.is_empty() {
        // SAFETY: from the source that the caller vouches for into a pinned, private extent.
        unsafe { execute(&plan.staged, copy_bytes) };
        space.with_after_fork(|b| b.copy_commit(&mut plan));
    }
    // SAFETY: into the destination that the caller vouches for, from the source or from pinned
    // extents.
    unsafe { execute(&plan.copies, copy_bytes) };
    space.unpin(&mut plan.pins);
    true
}
