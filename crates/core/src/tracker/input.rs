//! Input calls: what is unmapped is received into extents.

use super::{EXTENT_MAX_PAGES, ISLAND_PAGES, OPEN_TAILS, Tracker};
use crate::extents::{Extent, ExtentId};
use crate::memory::Memory;
use crate::plan::{Assign, InputPlan, Target, add_to};
use uncopy_counters::add;
use uncopy_decide::{Act, Event, Operation, Reason};
use uncopy_ranges::span::{PAGE, Span};

const OPEN_TAIL_PAGES: usize = (16 << 20) / PAGE;

impl<M: Memory> Tracker<M> {
    /// Plans an input call into `buffers` (address, length; a list of ours, for the program's own
    /// must not be read under the lock): unmapped pages are received into extents, resident ones in
    /// place.
    pub fn input_begin(&mut self, buffers: &[(usize, usize)], plan: &mut InputPlan) {
        plan.bypass = self.books_have_room().is_err();
        if plan.bypass {
            return;
        }
        self.clock += 1;
        let mut any = false;
        for &(addr, len) in buffers {
            let buffer = Span::sized(addr, len);
            let mut at = buffer.start;
            while at < buffer.end {
                let (run, unmapped) = self.views.covered_run(at, buffer.end);
                if unmapped && self.make_resting_ordinary(run) {
                    continue;
                }
                at = run.end;
                any |= unmapped;
                let planned = if unmapped {
                    self.plan_receive(run, plan)
                } else {
                    Self::target(run, None, run.start, plan)
                };
                if planned.is_err() {
                    self.input_abandon(plan);
                    return;
                }
            }
        }
        if !any {
            self.input_abandon(plan);
            self.count_useless_buffers(buffers);
            return;
        }
        plan.call = self.control.call();
        if plan.call != 0 {
            for &(addr, len) in buffers {
                self.control.did(|| Operation::Receive { call: plan.call, addr, len });
            }
        }
    }

    /// Makes memory ordinary that a resting call site had unmapped, before it is received into: a
    /// buffer that comes round would be received into extents for as long as the site rests.
    fn make_resting_ordinary(&mut self, run: Span) -> bool {
        let mut given = false;
        let mut at = run.start;
        while let Some(s) = self.views.segments(Span::new(at, run.end)).next() {
            at = s.span.end;
            let core = s.span.core();
            let paused = s.view.filter(|v| self.control.act(v.site, Act::GiveBack));
            let Some(v) = paused else { continue };
            if core.pages() < ISLAND_PAGES {
                // (Parts of pages.)
                given |= self.materialize_charged(s.span);
            } else if v.extent == ExtentId::NONE {
                self.untrack_and_populate(core, v.site);
                given = true;
            } else {
                // (Not all of it need be overwritten: what it holds stays.)
                given |= self.make_ordinary(core).is_ok();
            }
        }
        given
    }

    fn target(
        run: Span,
        extent: Option<(ExtentId, u32)>,
        at: usize,
        plan: &mut InputPlan,
    ) -> Result<(), Reason> {
        let target = Target { addr: run.start, len: run.len(), extent, at };
        add_to(&mut plan.targets, target)
    }

    fn plan_receive(&mut self, run: Span, plan: &mut InputPlan) -> Result<(), Reason> {
        let mut run = run;
        // The next part of a message goes on where the last part ended.
        if let Some((start, v)) = self.views.ending_at(run.start)
            && v.extent != ExtentId::NONE
        {
            let end = v.offset as usize + (run.start - start);
            let e = self.extents.get(v.extent);
            if e.filled as usize == end && !e.filling && e.capacity() > end {
                let part = Span::sized(run.start, run.len().min(e.capacity() - end));
                self.pin(v.extent, &mut plan.pins)?;
                self.extents.get_mut(v.extent).filling = true;
                let at = self.address(v.extent, end as u32);
                let planned = Self::target(part, Some((v.extent, end as u32)), at, plan);
                if planned.is_err() {
                    self.extents.get_mut(v.extent).filling = false;
                    return planned;
                }
                run = Span::new(part.end, run.end);
            }
        }
        while !run.is_empty() {
            // Congruent with the program's page, so that a page can go back by moving.
            let slack = run.start % PAGE;
            let part = Span::sized(run.start, run.len().min(EXTENT_MAX_PAGES * PAGE - slack));
            let extent = self.new_extent(slack + part.len())?;
            if plan.pins.try_push(extent).is_err() {
                self.drop_extent(extent);
                return Err(Reason::Fragmented);
            }
            let e = self.extents.get_mut(extent);
            e.filled = slack as u32;
            e.filling = true;
            let at = self.address(extent, slack as u32);
            Self::target(part, Some((extent, slack as u32)), at, plan)?;
            run = Span::new(part.end, run.end);
        }
        Ok(())
    }

    fn input_abandon(&mut self, plan: &mut InputPlan) {
        for t in plan.targets.drain(..) {
            if let Some((extent, _)) = t.extent {
                self.extents.get_mut(extent).filling = false;
            }
        }
        self.unpin(&mut plan.pins);
        plan.bypass = true;
    }

    /// `received` bytes arrived, in the order of the plan's targets: they become views. Bytes that
    /// must be copied (pages touched while the call waited) are in `plan.copies`; release
    /// afterwards.
    pub fn input_commit(&mut self, plan: &mut InputPlan, received: usize) {
        if plan.call != 0 {
            self.control.did(|| Operation::Received { call: plan.call, bytes: received });
        }
        let mut left = received;
        let mut taken = 0;
        for t in plan.targets.drain(..) {
            let got = t.len.min(left);
            left -= got;
            let Some((extent, offset)) = t.extent else {
                continue;
            };
            let e = self.extents.get_mut(extent);
            e.filling = false;
            e.filled = offset + got as u32;
            self.traffic += got as u64;
            e.warm = self.traffic;
            // (It was made ready, whether anything came for it or not.)
            let site = self.views.at(t.addr).map_or(0, |(_, v)| v.site);
            self.control.tell(site, Event::Received);
            if got == 0 {
                continue;
            }
            let a = Assign { addr: t.addr, len: got, extent, offset };
            taken += self.assign_or_copy(a, site, &mut plan.copies);
            self.keep_tail_open(extent);
        }
        if plan.copies.is_empty() {
            self.unpin(&mut plan.pins);
        }
        add(&self.counters.input_bytes, taken as u64);
        self.gauges();
    }

    /// An extent with room left waits for the next part; the longest-waiting ones are trimmed.
    fn keep_tail_open(&mut self, extent: ExtentId) {
        let e = self.extents.get(extent);
        let spare = e.pages - (e.filled as usize).div_ceil(PAGE);
        if let Some(i) = self.open.iter().position(|(id, _)| *id == extent) {
            self.open_pages -= self.open.remove(i).map_or(0, |(_, p)| p);
        }
        if spare == 0 {
            return;
        }
        self.open.push_back((extent, spare));
        self.open_pages += spare;
        while self.open.len() > OPEN_TAILS || self.open_pages > OPEN_TAIL_PAGES {
            let Some((id, pages)) = self.open.pop_front() else {
                break;
            };
            self.open_pages -= pages;
            // (It may have ended, and its number be another's since, which has no room, or is not
            // ours.)
            let is_open = |e: &Extent| {
                !e.filling && !e.is_foreign() && e.pages > (e.filled as usize).div_ceil(PAGE)
            };
            if self.extents.alive(id) && is_open(self.extents.get(id)) {
                let (at, pages) = self.extents.trim(id);
                self.backing.pool.give(self.backing.pool.page(at), pages);
            }
        }
    }
}
