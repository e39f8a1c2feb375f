//! How a copy is planned: which destination bytes become views, which are staged, which are copied.

use super::{EXTENT_MAX_PAGES, ISLAND_PAGES, NOBODY, Tracker};
use crate::extents::ExtentId;
use crate::memory::Memory;
use crate::plan::{Assign, Copy, CopyPlan, MAX_PIECES, add_to};
use crate::view::Segment;
use arrayvec::ArrayVec;
use core::sync::atomic::Ordering::Relaxed;
use uncopy_counters::add;
use uncopy_decide::{Act, Event, Operation, Reason, SiteId};
use uncopy_ranges::span::{PAGE, Span};

/// Segments of one side of a copy that are looked at: together they make no more parts than a plan
/// has room for. (These lists lie on the program's stack.)
const SIDE_MAX: usize = MAX_PIECES / 2;
/// Views shorter than this many bytes are staged again with their resident neighbours.
const SCRAP: usize = 1024;

/// Both sides of a copy: segments of the source, unmapped and resident runs of the destination.
#[derive(Default)]
struct Survey {
    sources: ArrayVec<Segment, SIDE_MAX>,
    runs: ArrayVec<(Span, bool), SIDE_MAX>,
}

impl Survey {
    fn viewed(&self) -> bool {
        self.sources.iter().any(|s| s.view.is_some()) || self.runs.iter().any(|r| r.1)
    }

    /// The two cut against each other.
    fn cut(&self, dst: usize, parts: &mut ArrayVec<Part, MAX_PIECES>) -> Result<(), Reason> {
        let mut runs = self.runs.iter();
        let mut run = *runs.next().ok_or(Reason::Fragmented)?;
        let mut at = dst;
        for s in &self.sources {
            let mut rest = *s;
            while !rest.span.is_empty() {
                if at >= run.0.end {
                    run = *runs.next().ok_or(Reason::Fragmented)?;
                }
                let len = rest.span.len().min(run.0.end - at);
                let (part, more) = rest.split(len);
                add_to(parts, (at, part, run.1))?;
                rest = more;
                at += len;
            }
        }
        Ok(())
    }
}

/// A part of a copy: destination address, source segment, whether the destination is unmapped.
type Part = (usize, Segment, bool);

impl<M: Memory> Tracker<M> {
    /// Plans the copy of `len` bytes from `src` to `dst`, for the call site that returns to
    /// `caller`. `is_input`: the source is believed to hold input data, so its resident pages may
    /// be moved. The ranges must not overlap.
    pub fn copy_begin(
        &mut self,
        dst: usize,
        src: usize,
        len: usize,
        caller: usize,
        is_input: bool,
        plan: &mut CopyPlan,
    ) {
        let (from, to) = (Span::sized(src, len), Span::sized(dst, len));
        self.control.did(|| Operation::Copy { to: dst, from: src, len, caller, input: is_input });
        plan.bypass = true;
        let site = self.control.site(caller, len);
        let planned = if from.overlaps(to) {
            Err(Reason::Overlap)
        } else if let Err(why) = self.books_have_room() {
            Err(why)
        } else if self.copy_again(to, src, site, plan) {
            Ok(())
        } else {
            self.concerned(from, to, site, is_input)
                .and_then(|()| self.copy_anew(from, to, site, is_input, plan))
        };
        if let Err(why) = planned {
            self.control.tell(site, Event::Missed(why));
        }
    }

    /// Copies of `len` bytes for `caller` are made by the kernel, from a kept file.
    pub fn never_tried(&mut self, caller: usize, len: usize) {
        let site = self.control.site(caller, len);
        self.control.tell(site, Event::NeverTried);
    }

    /// The program's large copies have come to `total` bytes by now, whatever became of them.
    pub fn copied(&mut self, total: u64) {
        if let Some(outcome) = self.control.tell(NOBODY, Event::Copied { total }) {
            add(&self.counters.trials, 1);
            add(&self.counters.trials_won, u64::from(outcome.won));
            self.counters.eliding_mb_ns.store(outcome.eliding, Relaxed);
            self.counters.copying_mb_ns.store(outcome.copying, Relaxed);
        }
    }

    /// A copy without any view on either side may be left to the program at once: in a program
    /// whose sites rest, most are so.
    ///
    /// # Errors
    /// Why it is.
    fn concerned(
        &mut self,
        from: Span,
        to: Span,
        site: SiteId,
        is_input: bool,
    ) -> Result<(), Reason> {
        let len = to.len();
        if self.views.touches(from) || self.views.touches(to) {
            return Ok(());
        }
        let registered = self.registered.touches(from) || self.registered.touches(to);
        if !registered {
            self.count_false_positive(from, to);
        }
        if is_input && len < self.control.threshold() {
            return Err(Reason::TooSmall);
        }
        if is_input && self.control.act(site, Act::Elide(len)) {
            return Ok(());
        }
        if !registered && self.control.act(site, Act::GiveBack) {
            self.came_beside(from, to, site);
        }
        if registered {
            // (A copy of what was not elided before it is no input's any more, whatever its own
            // site does.)
            self.count_useless_call(from, to, site, 1);
        }
        Err(if is_input { Reason::Resting } else { Reason::NotInput })
    }

    /// Plans a copy that is not what the last one was.
    ///
    /// # Errors
    /// Why it is to be executed as it is.
    fn copy_anew(
        &mut self,
        from: Span,
        to: Span,
        site: SiteId,
        is_input: bool,
        plan: &mut CopyPlan,
    ) -> Result<(), Reason> {
        let len = to.len();
        let mut survey = Survey::default();
        plan.fragmented = true;
        self.survey(from, to, &mut survey)?;
        let long = len >= self.control.threshold();
        if !(survey.viewed() || is_input && long) {
            plan.fragmented = false;
            return Err(if is_input { Reason::TooSmall } else { Reason::NotInput });
        }
        self.clock += 1;
        plan.site = site;
        let elide = self.control.act(site, Act::Elide(len));
        let rested = !elide && (long || self.was_left(to) || self.was_left(from));
        if rested && self.rested_copy(from) {
            self.survey(from, to, &mut survey)?;
        }
        // The first that stands in the way.
        let mut way = Ok(());
        let island = ISLAND_PAGES * PAGE;
        let bulk = survey.sources.iter().any(|s| s.view.is_none() && s.span.len() >= island);
        if elide && is_input && bulk {
            way = self.move_sources(from, site);
            self.survey(from, to, &mut survey)?;
        }
        // The steady state has nothing to move: the destination is unmapped but for its fringes.
        let resident = survey.runs.iter().any(|(s, unmapped)| !unmapped && s.len() >= island);
        let unmapped = survey.runs.iter().any(|(s, unmapped)| *unmapped && s.len() >= island);
        if elide && resident {
            way = way.and(self.unmap_destinations(from, to, site));
        }
        let untracks = unmapped && !elide;
        if untracks {
            add(&self.counters.backoff_copies, u64::from(rested));
            self.untrack_destinations(from, to, rested);
        }
        // Unmapped parts that are left then (parts of pages) would be copied to extents, and handed
        // on as small views, for as long as it rests.
        let parts = rested && self.views.touches(to);
        if parts {
            self.materialize_charged(to);
        }
        let changed = elide && resident || untracks || parts;
        if changed {
            self.survey(from, to, &mut survey)?;
        }
        let why = match way {
            Err(why) => why,
            Ok(()) if elide => Reason::Resident,
            Ok(()) if long => Reason::Resting,
            Ok(()) => Reason::TooSmall,
        };
        if !survey.viewed() {
            plan.fragmented = false;
            self.control.tell(site, Event::Looked);
            return Err(why);
        }
        plan.obstacle = Some(why);
        if let Err(why) = self.plan_copy(to.start, &survey, plan) {
            self.abandon(plan);
            // (Pages that could not be moved lie between the pieces.)
            return if why == Reason::Fragmented { way.and(Err(why)) } else { Err(why) };
        }
        plan.bypass = false;
        if plan.staged.is_empty() {
            self.commit(plan, false);
        }
        Ok(())
    }

    /// Whether the call site that left `span` unmapped, if one has, rests by now: short copies,
    /// which have no say themselves, would keep it so.
    fn was_left(&mut self, span: Span) -> bool {
        let site = self.views.segments(span).find_map(|s| s.view).map(|v| v.site);
        site.is_some_and(|site| self.control.act(site, Act::GiveBack))
    }

    /// The steady state: the whole source is one view, and the destination was just such a copy's
    /// before. Nothing is left to be done but to note it.
    #[inline]
    fn copy_again(&mut self, to: Span, src: usize, site: SiteId, plan: &mut CopyPlan) -> bool {
        if !self.control.act(site, Act::ElideAgain(to.len())) {
            return false;
        }
        let (extents, backing) = (&mut self.extents, &mut self.backing);
        let Some(extent) = self.views.follow(to, src, site, extents, backing) else { return false };
        self.clock += 1;
        let e = self.extents.get_mut(extent);
        e.used = self.clock;
        self.control.tell(site, Event::ElidedAgain { bytes: to.len() });
        add(&self.counters.elided_copies, 1);
        add(&self.counters.elided_bytes, to.len() as u64);
        plan.bypass = false;
        true
    }

    /// Looks at both sides of a copy once.
    ///
    /// # Errors
    /// They are too fragmented.
    fn survey(&self, from: Span, to: Span, survey: &mut Survey) -> Result<(), Reason> {
        survey.sources.clear();
        survey.runs.clear();
        for s in self.views.segments(from) {
            add_to(&mut survey.sources, s)?;
        }
        for d in self.views.segments(to) {
            let unmapped = d.view.is_some();
            match survey.runs.last_mut() {
                Some((run, u)) if *u == unmapped => run.end = d.span.end,
                _ => add_to(&mut survey.runs, (d.span, unmapped))?,
            }
        }
        Ok(())
    }

    /// Makes the planned views. Destination pages that were touched meanwhile get copies instead.
    pub fn copy_commit(&mut self, plan: &mut CopyPlan) {
        self.commit(plan, true);
    }

    fn commit(&mut self, plan: &mut CopyPlan, lock_was_dropped: bool) {
        let mut elided = 0;
        for a in plan.assigns.drain(..) {
            if lock_was_dropped {
                let viewed = self.assign_or_copy(a, plan.site, &mut plan.copies);
                elided += viewed;
                plan.reads_extents |= viewed < a.len;
            } else {
                let span = Span::sized(a.addr, a.len);
                let (extents, backing) = (&mut self.extents, &mut self.backing);
                self.views.assign(span, a.extent, a.offset, plan.site, extents, backing);
                if a.extent != ExtentId::NONE {
                    self.extents.get_mut(a.extent).used = self.clock;
                }
                elided += a.len;
            }
        }
        // Pins are needed only for what is still to be copied out of extents.
        if !plan.reads_extents {
            self.drop_pins(&mut plan.pins);
        }
        if elided > 0 {
            self.control.tell(plan.site, Event::Elided { bytes: elided });
            add(&self.counters.elided_copies, 1);
            add(&self.counters.elided_bytes, elided as u64);
        } else if let Some(why) = plan.obstacle {
            self.control.tell(plan.site, Event::Missed(why));
        }
        let (payer, read_out) = plan.read_out;
        if read_out > 0 {
            self.control.tell(payer, Event::CopiedOut { bytes: read_out });
        }
        let copied: usize = plan.copies.iter().chain(plan.staged.iter()).map(|c| c.len).sum();
        add(&self.counters.copied_bytes, copied as u64);
        self.gauges();
    }

    fn abandon(&mut self, plan: &mut CopyPlan) {
        self.unpin(&mut plan.pins);
        plan.staged.clear();
        plan.assigns.clear();
        plan.copies.clear();
        plan.reads_extents = false;
    }

    /// Decides for every destination byte: view, staged view, or copy.
    fn plan_copy(
        &mut self,
        dst: usize,
        survey: &Survey,
        plan: &mut CopyPlan,
    ) -> Result<(), Reason> {
        // Destination bytes to be staged together: where they begin, and how many.
        let mut staging: Option<(usize, usize)> = None;
        let mut parts = ArrayVec::new();
        survey.cut(dst, &mut parts)?;
        for (i, &(part, source, unmapped)) in parts.iter().enumerate() {
            let len = source.span.len();
            match source.view {
                // A short view beside resident bytes is staged with them: else a chain of
                // unaligned copies would gather one more scrap at every hop.
                Some(v) if unmapped && !Self::is_scrap(&parts, i) => {
                    self.flush_staging(&mut staging, plan)?;
                    self.pin(v.extent, &mut plan.pins)?;
                    let a = Assign { addr: part, len, extent: v.extent, offset: v.offset };
                    add_to(&mut plan.assigns, a)?;
                }
                view => {
                    let from = match view {
                        Some(v) if v.extent == ExtentId::NONE => return Err(Reason::Freed),
                        Some(v) => {
                            self.pin(v.extent, &mut plan.pins)?;
                            // (Bytes that were copied out before are as near as a copy would be.)
                            let first = self.extents.get(v.extent).rested <= 1;
                            if !unmapped && first && len >= self.control.threshold() {
                                let (site, bytes) = plan.read_out;
                                let site = if bytes == 0 { v.site } else { site };
                                plan.read_out = (site, bytes + len);
                            }
                            self.address(v.extent, v.offset)
                        }
                        None => source.span.start,
                    };
                    if unmapped {
                        plan.staged.push(Copy { to: part, from, len });
                        let (start, have) = staging.unwrap_or((part, 0));
                        staging = Some((start, have + len));
                    } else {
                        self.flush_staging(&mut staging, plan)?;
                        plan.reads_extents |= view.is_some();
                        plan.copies.push(Copy { to: part, from, len });
                    }
                }
            }
        }
        self.flush_staging(&mut staging, plan)?;
        // While parts are staged the destination may be touched: what is to read as zeros there has
        // no copy to fall back on.
        if !plan.staged.is_empty() && plan.assigns.iter().any(|a| a.extent == ExtentId::NONE) {
            return Err(Reason::Freed);
        }
        Ok(())
    }

    /// Whether the short view `parts[i]` lies beside bytes that must be staged anyway (perhaps with
    /// other short views between).
    fn is_scrap(parts: &[Part], i: usize) -> bool {
        let short = |p: &Part| {
            let (_, s, unmapped) = p;
            *unmapped && s.span.len() < SCRAP && s.view.is_some_and(|v| v.extent != ExtentId::NONE)
        };
        let staged = |p: &Part| p.2 && p.1.view.is_none();
        short(&parts[i])
            && (parts[..i].iter().rev().find(|p| !short(p)).is_some_and(staged)
                || parts[i + 1..].iter().find(|p| !short(p)).is_some_and(staged))
    }

    /// The bytes gathered in `staging` get an extent of their own; their planned copies, which
    /// name program addresses so far, go there.
    fn flush_staging(
        &mut self,
        staging: &mut Option<(usize, usize)>,
        plan: &mut CopyPlan,
    ) -> Result<(), Reason> {
        let Some((start, len)) = staging.take() else { return Ok(()) };
        let slack = start % PAGE;
        let extent = self.new_extent(slack + len)?;
        if plan.pins.try_push(extent).is_err() {
            self.drop_extent(extent);
            return Err(Reason::Fragmented);
        }
        self.extents.get_mut(extent).filled = (slack + len) as u32;
        let at = self.address(extent, slack as u32);
        for c in plan.staged.iter_mut().filter(|c| start <= c.to && c.to < start + len) {
            c.to = at + (c.to - start);
        }
        let a = Assign { addr: start, len, extent, offset: slack as u32 };
        add_to(&mut plan.assigns, a)
    }

    /// Moves resident pages of the source into extents, where they come in runs worth it.
    ///
    /// # Errors
    /// Returns the first reason why some of them stay.
    fn move_sources(&mut self, from: Span, site: SiteId) -> Result<(), Reason> {
        let mut way = Ok(());
        let mut at = from.start;
        while at < from.end {
            let (run, unmapped) = self.views.covered_run(at, from.end);
            at = run.end;
            let core = run.core();
            if unmapped || core.pages() < ISLAND_PAGES.max(self.control.threshold() / PAGE / 2) {
                continue;
            }
            let core = Span::sized(core.start, core.len().min(EXTENT_MAX_PAGES * PAGE));
            if let Err(why) = self.extent_allowed(core.pages()) {
                return way.and(Err(why));
            }
            let moved = match self.move_out(core, false, site) {
                Ok(moved) => moved,
                Err(why) => {
                    way = way.and(Err(why));
                    continue;
                }
            };
            way = way.and(moved.rest);
            if !moved.span.is_empty() {
                self.view_moved(moved, site);
            }
        }
        way
    }

    /// Unmaps resident pages of the destination, where the source is a view and they come in runs
    /// worth it.
    ///
    /// # Errors
    /// Returns the first reason why some of them stay resident.
    fn unmap_destinations(&mut self, from: Span, to: Span, site: SiteId) -> Result<(), Reason> {
        let mut way = Ok(());
        let distance = from.start.wrapping_sub(to.start);
        let mut at = to.start;
        while at < to.end {
            let (run, unmapped) = self.views.covered_run(at, to.end);
            at = run.end;
            let core = run.core();
            if unmapped || core.pages() < ISLAND_PAGES {
                continue;
            }
            let source = Span::sized(core.start.wrapping_add(distance), core.len());
            let viewed: usize = self
                .views
                .segments(source)
                .filter(|s| s.view.is_some_and(|v| v.extent != ExtentId::NONE))
                .map(|s| s.span.len())
                .sum();
            if viewed < core.len() - core.len() / 4 || viewed < ISLAND_PAGES * PAGE {
                continue;
            }
            way = way.and(self.unmap_resident(core, site));
        }
        way
    }

    /// Moves what is resident of `core`, whole pages whose content nobody is owed, out of the way.
    ///
    /// # Errors
    /// Returns the reason why some of it stays resident.
    pub(super) fn unmap_resident(&mut self, core: Span, site: SiteId) -> Result<(), Reason> {
        let moved = self.move_out(core, true, site);
        if let Ok(moved) = moved {
            self.backing.pool.hold(moved.slot, moved.span.pages(), NOBODY, false);
        }
        self.trim_pool();
        moved.and_then(|moved| moved.rest)
    }

    /// Where the source is not a view (or must not be spread further), unmapped pages of the
    /// destination that the copy overwrites are untracked.
    fn untrack_destinations(&mut self, from: Span, to: Span, viewed_too: bool) {
        let distance = from.start.wrapping_sub(to.start);
        let mut at = to.start;
        while at < to.end {
            let Some(s) = self.views.segments(Span::new(at, to.end)).next() else { break };
            at = s.span.end;
            let core = s.span.core();
            let source = Span::sized(core.start.wrapping_add(distance), core.len());
            if let Some(v) = s.view
                && core.pages() >= ISLAND_PAGES
                && (viewed_too || !self.views.touches(source))
            {
                self.untrack_and_populate(core, v.site);
            }
        }
    }
}
