//! Extents are made, pinned, found, viewed and unpinned.

use super::limits::Lack;
use super::{EXTENT_MAX_PAGES, Tracker};
use crate::extents::ExtentId;
use crate::memory::Memory;
use crate::plan::{Assign, Copies, Copy, OutputPlan, Pins, add_to};
use crate::views::Reclaim;
use uncopy_decide::{Reason, SiteId};
use uncopy_ranges::span::{PAGE, page_up};

impl<M: Memory> Tracker<M> {
    pub(super) fn new_extent(&mut self, bytes: usize) -> Result<ExtentId, Reason> {
        let pages = page_up(bytes) / PAGE;
        self.extent_allowed(pages)?;
        let Some(page) = self.take_pages(pages) else {
            return Err(self.exhausted(Lack::Extents));
        };
        let at = self.backing.pool.address(page);
        Ok(self.extents.create(at, pages, 0, self.clock))
    }

    /// Whether an extent of `pages` may be made.
    pub(super) fn extent_allowed(&mut self, pages: usize) -> Result<(), Reason> {
        if self.views.count() > self.limits.views {
            return Err(self.exhausted(Lack::Views));
        }
        if !self.extents.reserve() {
            return Err(self.exhausted(Lack::Books));
        }
        let fits = pages <= EXTENT_MAX_PAGES
            && self.extents.bytes() + pages * PAGE <= self.limits.extent_bytes
            && self.memory.room();
        if fits { Ok(()) } else { Err(self.exhausted(Lack::Extents)) }
    }

    pub(super) fn drop_extent(&mut self, extent: ExtentId) {
        if let Some(e) = self.extents.drop_ref(extent) {
            self.backing.reclaim(e);
        }
    }

    pub(super) fn pin(&mut self, extent: ExtentId, pins: &mut Pins) -> Result<(), Reason> {
        if extent != ExtentId::NONE {
            add_to(pins, extent)?;
            self.extents.hold(extent);
        }
        Ok(())
    }

    /// Pins the extent of each piece of a plan once more, for owners that keep them when the plan
    /// is over.
    pub fn pin_pieces(&mut self, plan: &OutputPlan) {
        plan.extents.iter().for_each(|id| self.extents.hold(*id));
    }

    /// Unpins the extents of a plan.
    pub fn unpin(&mut self, pins: &mut Pins) {
        self.drop_pins(pins);
        self.gauges();
    }

    pub(super) fn drop_pins(&mut self, pins: &mut Pins) {
        for extent in pins.drain(..) {
            self.drop_extent(extent);
        }
    }

    pub(super) fn address(&self, extent: ExtentId, offset: u32) -> usize {
        self.extents.get(extent).at + offset as usize
    }

    /// Makes the unmapped part of `a` a view; the rest is to be copied. Returns the bytes viewed.
    pub(super) fn assign_or_copy(&mut self, a: Assign, site: SiteId, copies: &mut Copies) -> usize {
        let mut viewed = 0;
        let mut at = a.addr;
        let end = a.addr + a.len;
        while at < end {
            let (run, unmapped) = self.views.covered_run(at, end);
            let offset = a.offset.wrapping_add((at - a.addr) as u32);
            at = run.end;
            if unmapped {
                self.views.assign(
                    run,
                    a.extent,
                    offset,
                    site,
                    &mut self.extents,
                    &mut self.backing,
                );
                viewed += run.len();
            } else if a.extent != ExtentId::NONE {
                let from = self.address(a.extent, offset);
                copies.push(Copy { to: run.start, from, len: run.len() });
            }
        }
        if a.extent != ExtentId::NONE {
            self.extents.get_mut(a.extent).used = self.clock;
        }
        viewed
    }
}
