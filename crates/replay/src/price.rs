//! What each event costs: what it is measured to cost by `uncopy doctor`, and no more. (A controller may well weigh it otherwise: faults as
//! a sign of what is to come, say.)

use uncopy_decide::{COLD_OUTPUT, COLD_OUTPUT_8THS, Costs, Event, WARM_8THS};
use uncopy_ranges::span::PAGE;

/// What copying `bytes` costs, in ns.
pub(crate) fn copying(costs: &Costs, bytes: usize) -> i64 {
    at_most(bytes, costs.copy_mb) >> 20
}

/// So many at `each`: no more than can be added up.
fn at_most(many: usize, each: i64) -> i64 {
    i64::try_from(many).unwrap_or(i64::MAX).saturating_mul(each).min(1 << 52)
}

/// What `event` costs, in ns, where the copy that it is about, if any, is counted as executed elsewhere; less than nothing where that is
/// saved. `near`: faults are answered on the core that took them.
pub fn price(costs: &Costs, near: bool, event: Event) -> i64 {
    let c = costs;
    let fault = if near { c.fault_near } else { c.fault };
    let pages = at_most;
    let warm = |bytes| copying(c, bytes) * WARM_8THS / 8;
    match event {
        Event::ElidedAgain { bytes } => c.again - copying(c, bytes),
        Event::Elided { bytes } => c.elide - copying(c, bytes),
        Event::Looked => c.look,
        Event::CopiedOut { bytes } => c.elide + warm(bytes),
        Event::Received => c.input,
        Event::Freed => c.again,
        Event::Gathered { bytes, cold } => {
            // (A few cold bytes are a cache line or two.)
            let start = if cold >= PAGE { COLD_OUTPUT } else { 0 };
            let reading =
                warm(bytes.saturating_sub(cold)) + copying(c, cold) * COLD_OUTPUT_8THS / 8;
            c.output + start + reading
        }
        Event::Lent { bytes, pages: n } => {
            let saved = at_most(bytes, c.send_mb) >> 20;
            c.lend + pages(n, c.lend_page) - saved
        }
        Event::Dropped { pages: n } => pages(n, c.drop_page),
        Event::Registered => c.register,
        Event::Moved { calls, pages: n } => {
            pages(calls as usize, c.move_pages) + pages(n, c.move_page)
        }
        Event::Refused => c.refused,
        Event::Untracked { pages: n } => c.register + pages(n, c.fresh),
        Event::Materialized { pages: n } => c.move_pages + pages(n, c.fill),
        Event::Populated { pages: n } => c.move_pages + pages(n, c.fresh) * 2 / 5,
        Event::Fault { pages: n } => fault + pages(n, c.fill),
        Event::Reused => fault,
        // (What is wasted shows in what it took.)
        Event::Wasted { .. } | Event::Missed(_) | Event::NeverTimed | Event::FilledExtent => 0,
        Event::PageWork | Event::AnswersNear(_) | Event::Copied { .. } => 0,
    }
}
