//! Output calls: bytes that are views are gathered from their extents, never from an unmapped
//! page; what is sent again and again goes by reference.

use crate::buffers::{Buffers, Pieces, bytes, list, perhaps_tracked, piece, refused_for_pieces};
use crate::on::On;
use libc::iovec;
use uncopy_core::extents::ExtentId;
use uncopy_core::plan::OutputPlan;
use uncopy_core::tracker::{ADOPT_AFTER, ADOPT_MIN};
use uncopy_counters::add;
use uncopy_kernel::clock::Lap;
use uncopy_kernel::critical;
use uncopy_lend::kind::{Kind, fits};
use uncopy_lend::send::{Lent, Target};
use uncopy_process::process::Process;
use uncopy_ranges::span::Span;
use uncopy_space::hold::{charging, note};

/// What is known of a call that writes to a stream.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Where to, and how.
    pub target: Target,
    /// It asks for nothing that a call by reference could not do.
    pub plain: bool,
    /// Where the call returns to.
    pub caller: usize,
    /// Whether an address may be unmapped: it is not the running thread's stack.
    pub movable: fn(usize) -> bool,
}

/// Makes an output call from `buffers`. `gathered` makes it with other pieces in place of the
/// buffers. (Where `on` cannot take these, the call is made as it is, and faults supply the bytes.)
/// `stream` tells more of it, where it is one that may go by reference.
#[inline]
pub fn output<const N: usize>(
    process: &'static Process,
    on: On,
    buffers: &Buffers<N>,
    stream: Option<Stream>,
    as_it_is: impl FnOnce() -> isize,
    gathered: impl Fn(&Pieces) -> isize,
) -> isize {
    let stream = stream.filter(|_| bytes(buffers) >= process.lending.from());
    if !perhaps_tracked(process, buffers) {
        // (Most calls end here.)
        let adopted = stream.is_some_and(|s| adopt_repeats(process, buffers, &s));
        if !adopted {
            return as_it_is();
        }
    }
    output_tracked(process, on, buffers, stream, as_it_is, gathered)
}

/// Makes an output call from the `count` buffers that `iov` lists: see [`output`].
///
/// # Safety
/// As for [`each`](crate::buffers::each).
pub unsafe fn output_listed(
    process: &'static Process,
    on: On,
    (iov, count): (*const iovec, usize),
    stream: Option<Stream>,
    as_it_is: impl FnOnce() -> isize,
    gathered: impl Fn(&Pieces) -> isize,
) -> isize {
    let mut buffers = Buffers::default();
    // SAFETY: the caller's promise.
    if unsafe { list(process, iov, count, &mut buffers) } {
        output(process, on, &buffers, stream, as_it_is, gathered)
    } else {
        as_it_is()
    }
}

fn output_tracked(
    process: &'static Process,
    on: On,
    buffers: &[(usize, usize)],
    stream: Option<Stream>,
    as_it_is: impl FnOnce() -> isize,
    gathered: impl Fn(&Pieces) -> isize,
) -> isize {
    let space = &process.space;
    // (What may go by reference asks more questions, and is another work when it does.)
    let mut lap =
        if stream.is_none() { process.calls.outputs.begin(|| space.clock()) } else { None };
    let mut plan = OutputPlan::default();
    let plan_it = |plan: &mut OutputPlan| {
        *plan = OutputPlan::default();
        space.with(|b| charging(b, |b| b.output_begin(buffers, plan))).filter(|_| !plan.bypass)
    };
    let mut planned = plan_it(&mut plan);
    if let Some(s) = &stream {
        let again = if planned.is_some() {
            let resident =
                |(p, id): (&(usize, usize), &ExtentId)| (*id == ExtentId::NONE).then_some(*p);
            let pieces = plan.pieces.iter().zip(&plan.extents);
            adopt_repeats(process, &Buffers::of(pieces.filter_map(resident)), s)
        } else {
            adopt_repeats(process, buffers, s)
        };
        if again {
            space.release(&mut plan.pins);
            planned = plan_it(&mut plan);
        }
    }
    if planned.is_none() {
        return as_it_is();
    }
    let pieces: Pieces = plan.pieces.iter().map(|&(addr, len)| piece(addr, len)).collect();
    let lent = stream.map_or(Lent::No, |s| by_reference(process, &mut plan, &pieces, &s));
    let takes = lent != Lent::No || on.takes(&process.calls, pieces.len(), buffers.len());
    lap.as_mut().map(Lap::pause);
    let sent = match lent {
        Lent::No => takes.then(|| {
            warm(&plan);
            gathered(&pieces)
        }),
        Lent::Done(sent) => Some(sent),
        Lent::Rest(sent) => Some(sent as isize + gathered(&behind(&pieces, sent)).max(0)),
    };
    let lap = lap.and_then(|lap| lap.resume(space.clock())).zip(planned);
    let bytes = sent.unwrap_or(0).max(0) as usize;
    space.with_after_fork(|b| {
        note(b, lap, |b| b.output_done(&mut plan, bytes, lent != Lent::No));
    });
    match sent {
        // The pieces are aligned otherwise than the program's buffer (O_DIRECT), or a part of the
        // buffer is not memory: the plain call knows the right answer.
        Some(-1) if lent == Lent::No && refused_for_pieces() => as_it_is(),
        Some(sent) => sent,
        None => as_it_is(),
    }
}

/// Most bytes of one output that are fetched into the cache before the kernel reads them: half of what a
/// core's second-level cache commonly holds.
const WARM_MOST: usize = 512 << 10;
const CACHE_LINE: usize = 64;

/// Fetches the extents of an output that has left the cache. The kernel's own copy reads cold memory slowly
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

/// What is left of `pieces` after `sent` bytes.
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
    stream: &Stream,
) -> Lent {
    let space = &process.space;
    if plan.gathered < process.lending.from() {
        return Lent::No;
    }
    if !plan.again {
        add(&space.counters().unlent_sent_once, 1);
        return Lent::No;
    }
    if space.pauses().rests(stream.caller, bytes(&plan.pieces)) {
        add(&space.counters().unlent_resting, 1);
        return Lent::No;
    }
    let kind = if stream.plain { process.lending.kind(stream.target.fd) } else { None };
    let Some(kind) = kind.filter(|k| fits(*k, pieces)) else {
        add(&space.counters().unlent_peer, 1);
        return Lent::No;
    };
    space.with(|b| b.lend(plan, stream.caller, kind == Kind::PacedTcp));
    if plan.lent == 0 {
        return Lent::No;
    }
    let lent = process.lending.send(kind, &stream.target, pieces, plan.lent);
    if lent == Lent::No {
        add(&space.counters().unlent_refused, 1);
    }
    lent
}

/// Large resident buffers that were sent just like this some times already become views. Returns whether
/// any did.
fn adopt_repeats(process: &'static Process, buffers: &[(usize, usize)], stream: &Stream) -> bool {
    let space = &process.space;
    if !space.wanted() || !stream.plain {
        return false;
    }
    let mut adopted = false;
    for &(addr, len) in buffers {
        if len < ADOPT_MIN || space.repeats.sent(addr, len) < ADOPT_AFTER {
            continue;
        }
        let total = bytes(buffers);
        if !space.pauses().rests(stream.caller, total) {
            match adopt(process, Span::sized(addr, len), total, stream) {
                Some(true) => adopted = true,
                Some(false) => space.repeats.unfit(addr),
                None => {}
            }
        }
    }
    adopted
}

/// What the descriptor is, if it takes pages, these among them.
fn takes(process: &'static Process, span: Span, stream: &Stream) -> Option<Kind> {
    process.lending.kind(stream.target.fd).filter(|k| fits(*k, &[piece(span.start, span.len())]))
}

/// Makes a view of `span`, if it can; `None`: not just now.
#[cold]
fn adopt(process: &'static Process, span: Span, total: usize, stream: &Stream) -> Option<bool> {
    let space = &process.space;
    if critical::inside() {
        return None;
    }
    if !(stream.movable)(span.start) || !(stream.movable)(span.end - 1) {
        return Some(false);
    }
    let Some(kind) = takes(process, span, stream) else { return Some(false) };
    // (As for the first elided copy: starting makes a thread.)
    if !space.running() && (critical::in_handler() || !space.start()) {
        return None;
    }
    let paced = kind == Kind::PacedTcp;
    space.with(|b| b.adopt(span, stream.caller, total, paced))
}
