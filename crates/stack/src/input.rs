//! Input calls: bytes go into extents where the buffer is already a view, and stay where they are
//! otherwise; then only their origin is remembered.
//!
//! unsafe: carries out the copies of a committed plan.

use crate::buffers::{Buffers, Pieces, each, list, perhaps_tracked, piece, refused_input};
use crate::on::On;
use libc::iovec;
use uncopy_core::plan::InputPlan;
use uncopy_kernel::clock::Lap;
use uncopy_process::process::Process;
use uncopy_space::events::execute;
use uncopy_space::hold::{charging, note};
use uncopy_space::pages::CopyBytes;

/// Inputs smaller than this are not remembered as origins: what is copied of them is small.
const ORIGIN_MIN: usize = 1024;

/// Makes an input call into `buffers`. `as_it_is` makes the program's own call; `scattered` makes
/// it with other pieces in place of the buffers (of the same total length), or returns `None` if it
/// cannot. Both return what the libc function does: bytes, or -1 with errno
/// set.
pub fn input<const N: usize>(
    process: &'static Process,
    on: On,
    buffers: &Buffers<N>,
    copy_bytes: CopyBytes,
    as_it_is: impl FnOnce() -> isize,
    scattered: impl FnOnce(&mut Pieces) -> Option<isize>,
) -> isize {
    if !perhaps_tracked(process, buffers) {
        let received = as_it_is();
        remember(process, buffers.iter().copied(), received);
        return received;
    }
    let space = &process.space;
    let mut lap = process.calls.inputs.begin(|| space.clock());
    let mut plan = InputPlan::default();
    let planned = space.with(|b| charging(b, |b| b.input_begin(buffers, &mut plan)));
    if planned.is_none() || plan.bypass {
        space.evict_if_wanted();
        let received = as_it_is();
        remember(process, buffers.iter().copied(), received);
        return received;
    }
    let mut pieces: Pieces = plan.targets.iter().map(|t| piece(t.at, t.len)).collect();
    let made = on.takes(&process.calls, pieces.len(), buffers.len());
    lap.as_mut().map(Lap::pause);
    let made = if made { scattered(&mut pieces) } else { None };
    let (received, scattered) = match made {
        // The pieces are aligned otherwise than the program's buffer (O_DIRECT), or a part of the
        // buffer is not memory: the plain call knows the right answer.
        Some(-1) if refused_input(on) => (as_it_is(), false),
        Some(received) => (received, true),
        None => (as_it_is(), false),
    };
    let lap = lap.and_then(|lap| lap.resume(space.clock())).zip(planned);
    let bytes = if scattered { received.max(0) as usize } else { 0 };
    space.with_after_fork(|b| note(b, lap, |b| b.input_commit(&mut plan, bytes)));
    // SAFETY: the plan's own copies, its pins still held.
    unsafe { execute(&plan.copies, copy_bytes) };
    space.release(&mut plan.pins);
    remember(process, buffers.iter().copied(), received);
    received
}

/// Makes an input call into the `count` buffers that `iov` lists: see [`input`].
///
/// # Safety
/// As for [`each`].
pub unsafe fn input_listed(
    process: &'static Process,
    on: On,
    (iov, count): (*const iovec, usize),
    copy_bytes: CopyBytes,
    as_it_is: impl FnOnce() -> isize,
    scattered: impl FnOnce(&mut Pieces) -> Option<isize>,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        let mut buffers = Buffers::default();
        if list(process, iov, count, &mut buffers) {
            return input(process, on, &buffers, copy_bytes, as_it_is, scattered);
        }
        let received = as_it_is();
        remember(process, each(iov, count), received);
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
    if received < ORIGIN_MIN as isize || !process.space.wanted() {
        return;
    }
    let mut left = received as usize;
    for (addr, len) in buffers {
        let got = len.min(left);
        process.space.filter.input(addr, got);
        process.space.repeats.changed(addr, got);
        left -= got;
        if left == 0 {
            break;
        }
    }
    process.space.input_seen();
}
