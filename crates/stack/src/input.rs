//! Input calls: bytes go into extents where the buffer is already a view, and stay where they are
//! otherwise; then only their origin is remembered.
//!
//! unsafe: carries out the copies of a committed plan.

use crate::buffers::{Buffers, IovList, Pieces, bytes, each, list, perhaps_tracked, piece};
use crate::stack::{Host, Input};
use arrayvec::ArrayVec;
use uncopy_core::plan::InputPlan;
use uncopy_core::regions::RegionId;
use uncopy_process::process::Process;
use uncopy_ranges::span::{PAGE, Span};
use uncopy_space::events::execute;
use uncopy_space::space::{Books, ORIGIN_MIN};
use uncopy_tcp_shared::copy;

/// Makes `call`, an input call into `buffers`.
#[inline]
pub fn input<const N: usize>(call: &mut impl Input, buffers: &Buffers<N>, host: &Host) -> isize {
    let answered = call.by_reference(
        bytes(buffers),
        |bytes| can_be_written(buffers, bytes, host),
        |ranges, caller| hand_over(buffers, ranges, caller, host),
    );
    let received = match answered {
        Some(received) => received,
        None => receive(call, buffers, host),
    };
    remember(host.process, buffers.iter().copied(), received);
    received
}

#[inline]
fn receive(call: &mut impl Input, buffers: &[(usize, usize)], host: &Host) -> isize {
    if perhaps_tracked(host.process, buffers) {
        receive_tracked(call, buffers, host)
    } else {
        // (Most calls end here.)
        call.as_it_is()
    }
}

#[inline(never)]
fn receive_tracked(call: &mut impl Input, buffers: &[(usize, usize)], host: &Host) -> isize {
    let space = &host.process.space;
    let mut plan = InputPlan::default();
    let planned = space.with(|b| b.input_begin(buffers, &mut plan));
    if planned.is_none() || plan.bypass {
        space.evict_if_wanted();
        return call.as_it_is();
    }
    let mut pieces: Pieces = plan.targets.iter().map(|t| piece(t.at, t.len)).collect();
    let takes = call.takes(pieces.len(), buffers.len());
    let scattered = if takes { call.scatter(&mut pieces) } else { None };
    let received = scattered.unwrap_or_else(|| call.as_it_is());
    let bytes = scattered.unwrap_or(0).max(0) as usize;
    space.with_after_fork(|b| b.input_commit(&mut plan, bytes));
    // SAFETY: the plan's own copies, its pins still held.
    unsafe { execute(&plan.copies, host.copy_bytes) };
    space.unpin(&mut plan.pins);
    received
}

/// Makes the buffers views of `ranges`, received bytes that lie in regions, and copies what has to
/// be. Returns false where nothing has happened.
fn hand_over(
    buffers: &[(usize, usize)],
    ranges: &[(RegionId, Span)],
    caller: usize,
    host: &Host,
) -> bool {
    let mut ends =
        buffers.iter().filter(|b| b.1 > 0).flat_map(|&(addr, len)| [addr, addr + len - 1]);
    if ends.any(host.on_own_stack) {
        return false;
    }
    let space = &host.process.space;
    let mut plan = InputPlan::default();
    let take = |b: &mut Books| b.input_by_reference(buffers, ranges, caller, &mut plan);
    let taken = space.with(take).is_some_and(|taken| taken.is_ok());
    if taken {
        for c in plan.copies.iter() {
            // SAFETY: from a range that is pinned, to the program's buffer, whatever that is.
            // (Where there is nothing the bytes are lost, as the buffer is.)
            let _ = unsafe { copy::copy(c.to as *mut u8, c.from as *const u8, c.len) };
        }
        space.unpin(&mut plan.pins);
    } else {
        space.evict_if_wanted();
    }
    taken
}

/// Whether the first `bytes` of the buffers are memory that can be written: what is viewed is, and
/// a byte of each other page says it of itself.
fn can_be_written(buffers: &[(usize, usize)], mut bytes: usize, host: &Host) -> bool {
    let mut bare = ArrayVec::new();
    let mut all = |b: &mut Books| {
        buffers.iter().all(|&(addr, len)| {
            let part = len.min(bytes);
            bytes -= part;
            b.bare(Span::sized(addr, part), &mut bare)
        })
    };
    if host.process.space.with(&mut all) != Some(true) {
        return false;
    }
    let first_bytes = |part: &Span| (part.start..part.end).step_by(PAGE).chain([part.end - 1]);
    bare.iter().flat_map(first_bytes).all(copy::can_be_written)
}

/// Makes an input call into the buffers of a list: see [`input`].
///
/// # Safety
/// As for [`each`].
pub unsafe fn input_listed(
    call: &mut impl Input,
    IovList { iov, count }: IovList,
    host: &Host,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        let mut buffers = Buffers::default();
        if list(host.process, iov, count, &mut buffers) {
            return input(call, &buffers, host);
        }
        let received = call.as_it_is();
        remember(host.process, each(iov, count), received);
        received
    }
}

/// Remembers where input data lies, so that its first copy may move it.
#[inline]
pub fn remember(
    process: &'static Process,
    buffers: impl Iterator<Item = (usize, usize)>,
    received: isize,
) {
    let space = &process.space;
    if received < ORIGIN_MIN as isize || !space.wanted() {
        return;
    }
    let mut left = received as usize;
    for (addr, len) in buffers {
        let got = len.min(left);
        space.filter.input(addr, got);
        space.repeats.changed(addr, got);
        left -= got;
        if left == 0 {
            break;
        }
    }
}
