//! Output calls: bytes that are views are gathered from their extents, never from an unmapped
//! page; what is sent again and again goes by reference.

use crate::buffers::{Buffers, IovList, Pieces, bytes, each, list, perhaps_tracked, piece};
use crate::stack::{Host, Kept, Lending, Lent, Output};
use uncopy_core::extents::ExtentId;
use uncopy_core::plan::{MAX_PIECES, OutputPlan, Went};
use uncopy_core::tracker::ADOPT_AFTER;
use uncopy_counters::add;
use uncopy_kernel::critical;
use uncopy_process::process::Process;
use uncopy_ranges::span::Span;

/// Makes `call`, an output call from `buffers`. (Where the stack cannot make it otherwise it is
/// made as it is, and faults supply the bytes.)
#[inline]
pub fn output<const N: usize>(call: &mut impl Output, buffers: &Buffers<N>, host: &Host) -> isize {
    let lending = call.lending().filter(|l| bytes(buffers) >= l.from);
    if !perhaps_tracked(host.process, buffers) {
        // (Most calls end here.)
        let adopted = lending.is_some_and(|l| adopt_repeats(buffers, call, &l, host));
        if !adopted {
            return call.as_it_is();
        }
    }
    output_tracked(call, buffers, lending, host)
}

/// Whether an output from the buffers of a list may be made otherwise than as it is:
/// some perhaps hold tracked pages, or they have `from` bytes together. Most do not.
///
/// # Safety
/// As for [`each`].
#[inline(never)]
pub unsafe fn concerned(
    process: &'static Process,
    IovList { iov, count }: IovList,
    from: usize,
) -> bool {
    if count > MAX_PIECES || !process.space.wanted() {
        return false;
    }
    let mut bytes = 0_usize;
    // SAFETY: the caller's promise.
    for buffer in unsafe { each(iov, count) } {
        bytes = bytes.saturating_add(buffer.1);
        if bytes >= from || perhaps_tracked(process, &[buffer]) {
            return true;
        }
    }
    false
}

/// Makes an output call from the buffers of a list: see [`output`]. For those that are
/// [`concerned`].
///
/// # Safety
/// As for [`each`].
#[inline(never)]
pub unsafe fn output_listed(
    call: &mut impl Output,
    IovList { iov, count }: IovList,
    host: &Host,
) -> isize {
    let mut buffers = Buffers::default();
    // SAFETY: the caller's promise.
    if unsafe { list(host.process, iov, count, &mut buffers) } {
        output(call, &buffers, host)
    } else {
        call.as_it_is()
    }
}

#[inline(never)]
fn output_tracked(
    call: &mut impl Output,
    buffers: &[(usize, usize)],
    lending: Option<Lending>,
    host: &Host,
) -> isize {
    let space = &host.process.space;
    let mut plan = OutputPlan::default();
    let plan_it = |plan: &mut OutputPlan| {
        *plan = OutputPlan::default();
        space.with(|b| b.output_begin(buffers, plan)).filter(|_| !plan.bypass)
    };
    let mut planned = plan_it(&mut plan);
    if let Some(l) = &lending {
        let again = if planned.is_some() {
            let resident =
                |(p, id): (&(usize, usize), &ExtentId)| (*id == ExtentId::NONE).then_some(*p);
            let pieces = plan.pieces.iter().zip(&plan.extents);
            adopt_repeats(&Buffers::of(pieces.filter_map(resident)), call, l, host)
        } else {
            adopt_repeats(buffers, call, l, host)
        };
        if again {
            space.unpin(&mut plan.pins);
            planned = plan_it(&mut plan);
        }
    }
    if planned.is_some() && plan.again && call.settles(&plan, host.process) {
        space.unpin(&mut plan.pins);
        planned = plan_it(&mut plan);
    }
    if planned.is_none() {
        return call.as_it_is();
    }
    let pieces: Pieces = plan.pieces.iter().map(|&(addr, len)| piece(addr, len)).collect();
    let lent = lending
        .filter(|l| l.to_kernel)
        .map_or(Lent::No, |l| by_reference(host.process, &mut plan, &pieces, call, &l));
    let takes = lent != Lent::No || call.takes(pieces.len(), buffers.len());
    let mut went = if lent == Lent::No { Went::Copied } else { Went::Lent };
    let sent = match lent {
        Lent::No if takes && call.keeps(plan.gathered) => {
            keep(&plan, &pieces, call, host).map(|(sent, kept)| {
                went = Went::Kept(kept);
                sent
            })
        }
        Lent::No if takes => {
            warm(&plan);
            call.gather(&pieces)
        }
        Lent::No => None,
        Lent::Done(sent) => Some(sent),
        Lent::Rest(sent) => {
            let more = call.gather(&behind(&pieces, sent));
            Some(sent as isize + more.unwrap_or(0).max(0))
        }
    };
    let bytes = sent.unwrap_or(0).max(0) as usize;
    space.with_after_fork(|b| b.output_done(&mut plan, bytes, went));
    sent.unwrap_or_else(|| call.as_it_is())
}

/// Makes the call, whose stack may keep the extents. Returns what was sent, and how many bytes of
/// it the stack keeps.
fn keep(
    plan: &OutputPlan,
    pieces: &Pieces,
    call: &mut impl Output,
    host: &Host,
) -> Option<(isize, usize)> {
    host.process.space.with_after_fork(|b| b.pin_pieces(plan))?;
    call.keep(pieces, plan.extents.iter().map(|&id| Kept::new(host.process, id)).collect())
}

/// Most bytes of one output that are fetched into the cache before the kernel reads them: half of
/// what a core's second-level cache commonly holds.
const WARM_MOST: usize = 512 << 10;
const CACHE_LINE: usize = 64;

/// Fetches the extents of an output that has left the cache. The kernel's own copy reads cold
/// memory slowly
/// (it asks for one line after the other): 512 KB take it 122 us cold and 102 with this, where
/// the copy that was elided, and sending what it had brought into the cache, took 104
/// (`bench/experiments/cold_send.c`).
fn warm(plan: &OutputPlan) {
    if plan.cold <= plan.gathered / 2 || plan.gathered > WARM_MOST {
        return;
    }
    for (&(at, len), &id) in plan.pieces.iter().zip(&plan.extents) {
        if id != ExtentId::NONE {
            for line in (at..at + len).step_by(CACHE_LINE) {
                prefetch(line);
            }
        }
    }
}

/// Asks for the cache line of `address`, which need not be memory.
#[inline]
fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint: it reads nothing that the program sees, and never faults.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address as *const i8);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The rest of `pieces` behind the first `sent` bytes.
fn behind(pieces: &Pieces, sent: usize) -> Pieces {
    let mut before = 0;
    let mut rest = Pieces::new();
    for p in pieces {
        let skip = sent.saturating_sub(before).min(p.iov_len);
        before += p.iov_len;
        if skip < p.iov_len {
            rest.push(piece(p.iov_base as usize + skip, p.iov_len - skip));
        }
    }
    rest
}

/// Sends what of the plan may go by reference so, and the rest with it.
fn by_reference(
    process: &'static Process,
    plan: &mut OutputPlan,
    pieces: &Pieces,
    call: &mut impl Output,
    lending: &Lending,
) -> Lent {
    let space = &process.space;
    if plan.gathered < lending.from {
        return Lent::No;
    }
    if !plan.again {
        add(&space.counters().unlent_sent_once, 1);
        return Lent::No;
    }
    if space.pauses().rests(lending.caller, bytes(&plan.pieces)) {
        add(&space.counters().unlent_resting, 1);
        return Lent::No;
    }
    if !lending.plain || !call.can_lend(pieces) {
        add(&space.counters().unlent_peer, 1);
        return Lent::No;
    }
    space.with(|b| b.lend(plan, lending.caller));
    if plan.lent == 0 {
        return Lent::No;
    }
    let lent = call.lend(pieces, plan.lent);
    if lent == Lent::No {
        add(&space.counters().unlent_refused, 1);
    }
    lent
}

/// Large resident buffers that were sent just like this some times already become views. Returns
/// whether any did.
fn adopt_repeats(
    buffers: &[(usize, usize)],
    call: &mut impl Output,
    lending: &Lending,
    host: &Host,
) -> bool {
    let space = &host.process.space;
    if !space.wanted() || !lending.plain {
        return false;
    }
    let from = call.adopts_from();
    let mut adopted = false;
    for &(addr, len) in buffers {
        if len < from {
            continue;
        }
        space.large_seen();
        if space.repeats.sent(addr, len) < ADOPT_AFTER {
            continue;
        }
        let total = bytes(buffers);
        if !space.pauses().rests(lending.caller, total) {
            match adopt(Span::sized(addr, len), total, call, lending, host) {
                Some(true) => {
                    space.repeats.adopted(addr);
                    adopted = true;
                }
                Some(false) => space.repeats.unfit(addr),
                None => {}
            }
        }
    }
    adopted
}

/// Makes a view of `span`, if it can; `None`: not just now.
#[cold]
fn adopt(
    span: Span,
    total: usize,
    call: &mut impl Output,
    lending: &Lending,
    host: &Host,
) -> Option<bool> {
    let space = &host.process.space;
    if critical::inside() {
        return None;
    }
    if (host.on_own_stack)(span.start) || (host.on_own_stack)(span.end - 1) {
        return Some(false);
    }
    if !call.can_lend(&[piece(span.start, span.len())]) {
        return Some(false);
    }
    // (As for the first elided copy: starting makes a thread.)
    if !space.running() && (critical::in_handler() || !space.start()) {
        return None;
    }
    space.with(|b| (!lending.to_kernel || b.lends(total)) && b.adopt(span, lending.caller, total))
}
