//! Input calls: bytes go into extents where the buffer is already a view, and stay where they are
//! otherwise; then only their origin is remembered.
//!
//! unsafe: carries out the copies of a committed plan.

use crate::buffers::{Buffers, Pieces, bytes, each, list, perhaps_tracked, piece};
use crate::stack::{Host, Input};
use libc::iovec;
use uncopy_core::plan::InputPlan;
use uncopy_core::regions::RegionId;
use uncopy_process::process::Process;
use uncopy_ranges::span::Span;
use uncopy_space::events::execute;
use uncopy_space::space::{Books, ORIGIN_MIN};

/// Makes `call`, an input call into `buffers`.
#[inline]
pub fn input<const N: usize>(call: &mut impl Input, buffers: &Buffers<N>, host: &Host) -> isize {
    let answered = call.by_reference(bytes(buffers), |region, ranges, caller| {
        hand_over(buffers, region, ranges, caller, host)
    });
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

/// Makes the buffers views of `ranges`, received bytes that lie in `region`, and copies what has to
/// be. Returns false where nothing has happened.
fn hand_over(
    buffers: &[(usize, usize)],
    region: RegionId,
    ranges: &[Span],
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
    let take = |b: &mut Books| b.input_by_reference(buffers, region, ranges, caller, &mut plan);
    let taken = space.with(take).is_some_and(|taken| taken.is_ok());
    if taken {
        // SAFETY: the plan's own copies, its pins still held.
        unsafe { execute(&plan.copies, host.copy_bytes) };
        space.unpin(&mut plan.pins);
    } else {
        space.evict_if_wanted();
    }
    taken
}

/// Makes an input call into the `count` buffers that `iov` lists: see [`input`].
///
/// # Safety
/// As for [`each`].
pub unsafe fn input_listed(
    call: &mut impl Input,
    (iov, count): (*const iovec, usize),
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
