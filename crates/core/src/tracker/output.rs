//! Output calls: viewed bytes are gathered from extents.

use super::Tracker;
use super::moving::POPULATE_MAX;
use crate::extents::ExtentId;
use crate::memory::Memory;
use crate::plan::{OutputPlan, add_to};
use uncopy_decide::{Operation, Reason};
use uncopy_ranges::span::{PAGE, Span};

/// After so many bytes received and sent, what was filled or sent before has left the cache (of one
/// core).
const WARM_BYTES: u64 = 1 << 20;

impl<M: Memory> Tracker<M> {
    /// Plans an output call from `buffers` (as for an input): viewed bytes come from extents.
    pub fn output_begin(&mut self, buffers: &[(usize, usize)], plan: &mut OutputPlan) {
        let mut planned = self.plan_output(buffers, plan).is_ok();
        if plan.worn {
            // (Pinned extents cannot be moved in.)
            self.unpin(&mut plan.pins);
            *plan = OutputPlan::default();
            self.rested_output(buffers);
            planned = self.plan_output(buffers, plan).is_ok();
        }
        if !planned && plan.is_full() {
            // (Else the kernel would fault on nearly every page.)
            self.unpin(&mut plan.pins);
            *plan = OutputPlan::default();
            self.fill_first(buffers);
        }
        plan.bypass = !planned || plan.gathered == 0;
        if planned && plan.gathered == 0 {
            self.count_useless_buffers(buffers);
        }
        if plan.bypass {
            self.unpin(&mut plan.pins);
        } else {
            plan.call = self.control.call();
            if plan.call != 0 {
                for &(addr, len) in buffers {
                    self.control.did(|| Operation::Send { call: plan.call, addr, len });
                }
            }
        }
    }

    /// Fills what is unmapped of `buffers`, up to [`POPULATE_MAX`] pages.
    fn fill_first(&mut self, buffers: &[(usize, usize)]) {
        let call = self.control.call();
        let mut left = POPULATE_MAX * PAGE;
        for &(addr, len) in buffers {
            if call != 0 {
                self.control.did(|| Operation::Send { call, addr, len });
            }
            let end = addr.saturating_add(len);
            let mut at = addr;
            while at < end && left > 0 {
                let (run, unmapped) = self.views.covered_run(at, end);
                at = run.end;
                if unmapped {
                    let part = Span::sized(run.start, run.len().min(left));
                    left -= part.len();
                    self.materialize_charged(part);
                }
            }
        }
        if call != 0 {
            self.control.did(|| Operation::Sent { call, bytes: 0 });
        }
    }

    fn plan_output(
        &mut self,
        buffers: &[(usize, usize)],
        plan: &mut OutputPlan,
    ) -> Result<(), Reason> {
        for &(addr, len) in buffers {
            let span = Span::sized(addr, len);
            let mut count = 0;
            let mut last_end = 0;
            let mut at = span.start;
            while let Some(s) = self.views.segments(Span::new(at, span.end)).next() {
                at = s.span.end;
                let mut extent = ExtentId::NONE;
                let from = match s.view {
                    // Empty memory is sent by nobody who means it: let the faults answer.
                    Some(v) if v.extent == ExtentId::NONE => return Err(Reason::Freed),
                    Some(v) => {
                        plan.worn |= self.is_worn(v);
                        let e = self.extents.get(v.extent);
                        plan.again |= e.passes > 0 || v.offset < e.mark;
                        if plan.payer == 0 && !e.adopted {
                            plan.payer = v.site;
                        }
                        if plan.pins.last() != Some(&v.extent) {
                            self.pin(v.extent, &mut plan.pins)?;
                        }
                        plan.gathered += s.span.len();
                        plan.cold += if self.is_warm(v.extent) { 0 } else { s.span.len() };
                        extent = v.extent;
                        self.address(v.extent, v.offset)
                    }
                    None => s.span.start,
                };
                if count > 0
                    && last_end == from
                    && plan.extents.last() == Some(&extent)
                    && let Some(last) = plan.pieces.last_mut()
                {
                    last.1 += s.span.len();
                } else {
                    add_to(&mut plan.pieces, (from, s.span.len()))?;
                    plan.extents.push(extent);
                    count += 1;
                }
                last_end = from + s.span.len();
            }
            if len == 0 {
                add_to(&mut plan.pieces, (addr, 0))?;
                plan.extents.push(ExtentId::NONE);
                count = 1;
            }
            add_to(&mut plan.per_buffer, count)?;
        }
        Ok(())
    }

    /// Whether an extent's bytes have passed so recently that they are still in the cache.
    fn is_warm(&self, extent: ExtentId) -> bool {
        self.traffic - self.extents.get(extent).warm <= WARM_BYTES
    }
}
