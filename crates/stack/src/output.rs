//! Output calls: bytes that are views are gathered from their extents, never from an unmapped
//! page.

use crate::buffers::{Pieces, perhaps_tracked, piece, refused_for_pieces, spans};
use libc::iovec;
use uncopy_core::plan::OutputPlan;
use uncopy_vm::space;

/// Makes an output call from `buffers`. `gathered` makes it with other pieces in place of the
/// buffers; it is told how many pieces stand for each buffer, and returns `None` if this
/// descriptor cannot take them (the call is then made as it is, and faults supply the bytes).
pub fn output(
    buffers: &[iovec],
    as_it_is: impl FnOnce() -> isize,
    gathered: impl FnOnce(&Pieces) -> Option<isize>,
) -> isize {
    if !perhaps_tracked(buffers) {
        return as_it_is();
    }
    let mut plan = OutputPlan::default();
    let planned = space::with(|b| b.output_begin(spans(buffers), &mut plan));
    if planned.is_none() || plan.bypass {
        return as_it_is();
    }
    let pieces: Pieces = plan.pieces.iter().map(|&(addr, len)| piece(addr, len)).collect();
    let sent = gathered(&pieces);
    space::release(&mut plan.pins);
    match sent {
        // The pieces are aligned otherwise than the program's buffer (O_DIRECT), or a part of the
        // buffer is not memory: the plain call knows the right answer.
        Some(-1) if refused_for_pieces() => as_it_is(),
        Some(sent) => sent,
        None => as_it_is(),
    }
}
