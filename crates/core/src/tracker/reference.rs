//! Input by reference: what was received lies in somebody else's region already, and the program's
//! buffer becomes a view of it.
//!
//! It is a copy that is elided, and so the call site's account decides. Resident pages of the
//! buffer are moved out of the way, where they come in runs worth that; the parts of pages at its
//! ends are copied.

use super::{EXTENT_MAX_PAGES, ISLAND_PAGES, Tracker};
use crate::memory::Memory;
use crate::plan::{Assign, InputPlan, MAX_PIECES};
use crate::regions::RegionId;
use arrayvec::ArrayVec;
use uncopy_counters::add;
use uncopy_decide::{Act, Event, Reason, SiteId};
use uncopy_ranges::span::{PAGE, Span};

impl<M: Memory> Tracker<M> {
    /// Makes `buffers` (address and length of each, as for [`Tracker::input_begin`]) views of
    /// `received`, ranges of regions that their owners hand over, as far as these reach. Bytes that
    /// have to be copied are in `plan.copies`; release afterwards.
    ///
    /// # Errors
    /// Why nothing was done: the ranges are still their owner's, and what they hold is to be
    /// received as any input is.
    pub fn input_by_reference(
        &mut self,
        buffers: &[(usize, usize)],
        received: &[(RegionId, Span)],
        caller: usize,
        plan: &mut InputPlan,
    ) -> Result<(), Reason> {
        let total = received.iter().map(|(_, r)| r.len()).sum();
        if total < self.control.threshold() {
            return Err(Reason::TooSmall);
        }
        if !fit(buffers, total) {
            return Err(Reason::Overlap);
        }
        self.books_have_room()?;
        let site = self.control.site(caller, total);
        // (Nobody counts these bytes as copied, in neither way.)
        self.control.tell(site, Event::NeverTried);
        if !self.control.act(site, Act::Elide(total)) {
            self.control.tell(site, Event::Missed(Reason::Resting));
            return Err(Reason::Resting);
        }
        self.clock += 1;
        if let Err(why) = self.take_in(received, plan) {
            self.control.tell(site, Event::Missed(why));
            return Err(why);
        }
        let (viewed, way) = self.view_received(buffers, received, site, plan);
        self.traffic += total as u64;
        if viewed > 0 {
            self.control.tell(site, Event::Elided { bytes: viewed });
            add(&self.counters.elided_copies, 1);
            add(&self.counters.elided_bytes, viewed as u64);
            add(&self.counters.input_bytes, viewed as u64);
        } else {
            self.control.tell(site, Event::Missed(way.err().unwrap_or(Reason::Resident)));
        }
        add(&self.counters.copied_bytes, (total - viewed) as u64);
        if plan.copies.is_empty() {
            self.drop_pins(&mut plan.pins);
        }
        self.gauges();
        Ok(())
    }

    /// Adds the parts of `span` that are no views to `parts`: whether they are the program's memory
    /// nobody knows. Returns whether there was room for all.
    pub fn bare(&self, span: Span, parts: &mut ArrayVec<Span, MAX_PIECES>) -> bool {
        let mut at = span.start;
        while at < span.end {
            let (run, viewed) = self.views.covered_run(at, span.end);
            if !viewed && parts.try_push(run).is_err() {
                return false;
            }
            at = run.end;
        }
        true
    }

    /// Makes an extent of each range, pinned; of none, if one cannot be.
    fn take_in(
        &mut self,
        received: &[(RegionId, Span)],
        plan: &mut InputPlan,
    ) -> Result<(), Reason> {
        for &(region, span) in received {
            if let Err(why) = self.take_one_in(region, span, plan) {
                for (id, &(region, _)) in plan.pins.drain(..).zip(received) {
                    // (Nobody else has seen it.)
                    let _ = self.extents.drop_ref(id);
                    self.backing.regions.withdraw(region);
                }
                return Err(why);
            }
        }
        Ok(())
    }

    fn take_one_in(
        &mut self,
        region: RegionId,
        span: Span,
        plan: &mut InputPlan,
    ) -> Result<(), Reason> {
        if plan.pins.is_full() || span.len() > EXTENT_MAX_PAGES * PAGE {
            return Err(Reason::Fragmented);
        }
        self.extent_allowed(0)?;
        if !self.backing.regions.hand_over(region, span) {
            return Err(Reason::ExhaustedBooks);
        }
        plan.pins.push(self.extents.create_foreign(region, span, self.clock));
        Ok(())
    }

    /// Makes the buffers views of what was taken in, as far as that can be. Returns how many bytes
    /// are, and what stood first in the way of the others.
    fn view_received(
        &mut self,
        buffers: &[(usize, usize)],
        received: &[(RegionId, Span)],
        site: SiteId,
        plan: &mut InputPlan,
    ) -> (usize, Result<(), Reason>) {
        let (mut viewed, mut way) = (0, Ok(()));
        let mut rooms = buffers.iter().map(|&(addr, len)| Span::sized(addr, len));
        let mut room = Span::new(0, 0);
        for (i, (_, range)) in received.iter().enumerate() {
            let mut offset = 0;
            while offset < range.len() {
                if room.is_empty() {
                    let Some(next) = rooms.next() else { return (viewed, way) };
                    room = next;
                    continue;
                }
                let to = Span::sized(room.start, room.len().min(range.len() - offset));
                room = Span::new(to.end, room.end);
                way = way.and(self.make_way(to, site));
                let (addr, len) = (to.start, to.len());
                let a = Assign { addr, len, extent: plan.pins[i], offset: offset as u32 };
                viewed += self.assign_or_copy(a, site, &mut plan.copies);
                offset += len;
            }
        }
        (viewed, way)
    }

    /// Moves resident pages of `to`, which is about to be overwritten, out of the way, where they
    /// come in runs worth it.
    fn make_way(&mut self, to: Span, site: SiteId) -> Result<(), Reason> {
        let mut way = Ok(());
        let mut at = to.start;
        while at < to.end {
            let (run, unmapped) = self.views.covered_run(at, to.end);
            at = run.end;
            let core = run.core();
            if !unmapped && core.pages() >= ISLAND_PAGES {
                way = way.and(self.unmap_resident(core, site));
            }
        }
        way
    }
}

/// Whether `total` bytes fit in the buffers, of which none overlaps another: these are filled in
/// their order.
fn fit(buffers: &[(usize, usize)], total: usize) -> bool {
    let room = buffers.iter().fold(0usize, |n, b| n.saturating_add(b.1));
    let span = |b: &(usize, usize)| Span::sized(b.0, b.1);
    let apart = |(i, b)| buffers[..i].iter().all(|a| !span(a).overlaps(span(b)));
    total <= room && buffers.iter().enumerate().all(apart)
}
