//! The tracker: what input, copy, output, touch and free do to views and extents.
//!
//! Two invariants carry everything:
//!
//! 1. A program page that has views is registered, missing, and tiled by views. A page without
//!    views is none of our business.
//! 2. Bytes `..filled` of an extent never change while it has references.
//!
//! Every change from "resident" to "unmapped" and back is made here, under the tracker's lock,
//! together with the kernel call that does it. Copies of bytes are handed to the caller.

use crate::counters::{Counters, add};
use crate::extents::{Extent, ExtentId, Extents};
use crate::filter::Filter;
use crate::memory::{FillError, Memory, Piece, Stop};
use crate::plan::{
    Assign, Copies, Copy, CopyPlan, InputPlan, MAX_PIECES, OutputPlan, Pins, Target,
};
use crate::policy::{self, Policy, SiteId};
use crate::ranges::Ranges;
use crate::runs::{FreeRuns, RecentRuns};
use crate::span::{PAGE, Span, page_down, page_up};
use crate::views::{Reclaim, Segment, View, Views};
use arrayvec::ArrayVec;
use core::sync::atomic::Ordering::Relaxed;
use std::collections::VecDeque;

/// A resident island shorter than this many pages, in a copy's source or destination, is copied
/// rather than moved: it is where the program keeps touching (headers, trailers).
const ISLAND_PAGES: usize = 4;
/// Free pages that the pool keeps ready, in pages; from twice as many on they are given back.
const READY_PAGES: usize = (16 << 20) / PAGE;
/// Unfilled tails of extents that wait for the next part of a message.
const OPEN_TAILS: usize = 64;
const OPEN_TAIL_PAGES: usize = (16 << 20) / PAGE;
/// Sequential faults fill twice as many pages each time, up to this many.
const FAULT_AROUND_MAX: usize = 64;
/// Distance within which an eviction takes a whole registered range, in bytes.
const NEAR: usize = 4 << 20;
/// Pages of freed memory that one touch gives back to the kernel's own care.
const EMPTY_AROUND: usize = 512;
/// Views shorter than this many bytes are staged again with their resident neighbours.
const SCRAP: usize = 1024;
/// Pieces that one call to [`Memory::fill`] describes at most.
const PIECES: usize = 2 * PAGE;
/// After so many ranges were unregistered the filter is made anew.
const FILTER_RENEWAL: usize = 32;
/// Largest extent, in pages: offsets are 32 bits wide.
const EXTENT_MAX_PAGES: usize = (1 << 30) / PAGE;

/// What may be used up at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes in live extents.
    pub extent_bytes: usize,
    /// Registered address ranges.
    pub ranges: usize,
    /// Views.
    pub views: usize,
}

/// The pool's page numbers: `0..boundary` are targets of moves, `boundary..pages` are ordinary
/// fresh memory for extents when no page is ready.
#[derive(Clone, Copy, Debug)]
pub struct PoolShape {
    /// First page that is not a target of moves.
    pub boundary: usize,
    /// Number of pages.
    pub pages: usize,
}

#[derive(Debug, Default)]
struct Pool {
    boundary: usize,
    /// Missing pages that moves may fill.
    vacant: FreeRuns,
    /// Runs given back last, of few different lengths: taken again first, while in the cache.
    recent: RecentRuns,
    /// Pages with memory behind them, moved in.
    ready: FreeRuns,
    /// Pages of the ordinary part, used before.
    ready_plain: FreeRuns,
    /// Pages of the ordinary part, never used or given back.
    fresh_plain: FreeRuns,
}

impl Pool {
    fn give(&mut self, page: usize, pages: usize) {
        if let Some((page, pages)) = self.recent.give(page, pages) {
            self.settle(page, pages);
        }
    }

    fn settle(&mut self, page: usize, pages: usize) {
        if page < self.boundary {
            self.ready.give(page, pages);
        } else {
            self.ready_plain.give(page, pages);
        }
    }

    fn take(&mut self, pages: usize) -> Option<usize> {
        self.recent
            .take(pages)
            .or_else(|| self.ready.take(pages))
            .or_else(|| self.ready_plain.take(pages))
            .or_else(|| self.fresh_plain.take(pages))
    }

    fn ready_pages(&self) -> usize {
        self.ready.pages() + self.ready_plain.pages() + self.recent.pages()
    }
}

impl Reclaim for Pool {
    fn reclaim(&mut self, e: Extent) {
        self.give(e.page, e.pages);
    }
}

/// What a fault turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The page (and perhaps pages around it) was filled.
    Resolved,
    /// Nothing of ours: the caller provides a zero page.
    Unknown,
    /// The memory map is changing: read events, then ask again.
    Again,
}

/// Segments of one side of a copy that are looked at: together they make no more parts than a plan
/// has room for. (These lists lie on the program's stack.)
const SIDE_MAX: usize = MAX_PIECES / 2;

/// Tracking that was taken out of the books; see [`Tracker::detach`].
#[derive(Debug)]
pub struct Detached {
    views: Vec<(usize, View)>,
    registered: Vec<Span>,
}

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
    fn parts(&self, dst: usize) -> Option<ArrayVec<Part, MAX_PIECES>> {
        let mut parts = ArrayVec::new();
        let mut runs = self.runs.iter();
        let mut run = *runs.next()?;
        let mut at = dst;
        for s in &self.sources {
            let mut rest = *s;
            while !rest.span.is_empty() {
                if at >= run.0.end {
                    run = *runs.next()?;
                }
                let len = rest.span.len().min(run.0.end - at);
                let (part, more) = rest.split(len);
                parts.try_push((at, part, run.1)).ok()?;
                rest = more;
                at += len;
            }
        }
        Some(parts)
    }
}

/// A part of a copy: destination address, source segment, whether the destination is unmapped.
type Part = (usize, Segment, bool);

/// All state of one process.
pub struct Tracker<M> {
    /// The machine.
    pub memory: M,
    views: Views,
    extents: Extents,
    pool: Pool,
    registered: Ranges,
    /// Never to be moved: the program gave these pages to the kernel by reference.
    excluded: Ranges,
    policy: Policy,
    limits: Limits,
    filter: &'static Filter,
    counters: &'static Counters,
    open: VecDeque<(ExtentId, usize)>,
    open_pages: usize,
    clock: u64,
    last_fault_end: usize,
    fault_around: usize,
    wants_eviction: bool,
    unregistered: usize,
    pieces: Vec<Piece>,
}

impl<M: Memory> Tracker<M> {
    /// A tracker with nothing tracked.
    pub fn new(
        memory: M,
        shape: PoolShape,
        limits: Limits,
        policy: Policy,
        filter: &'static Filter,
        counters: &'static Counters,
    ) -> Self {
        let mut pool = Pool { boundary: shape.boundary, ..Pool::default() };
        pool.vacant.give(0, shape.boundary);
        pool.fresh_plain.give(shape.boundary, shape.pages - shape.boundary);
        Self {
            memory,
            views: Views::new(),
            extents: Extents::new(),
            pool,
            registered: Ranges::new(),
            excluded: Ranges::new(),
            policy,
            limits,
            filter,
            counters,
            open: VecDeque::with_capacity(OPEN_TAILS + 1),
            open_pages: 0,
            clock: 0,
            last_fault_end: 0,
            fault_around: 1,
            wants_eviction: false,
            unregistered: 0,
            pieces: Vec::with_capacity(PIECES),
        }
    }

    // ---------------------------------------------------------------- copy

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
        plan.bypass = true;
        if from.overlaps(to) {
            return;
        }
        let mut survey = Survey::default();
        plan.fragmented = true;
        if !self.survey(from, to, &mut survey) {
            return;
        }
        if !(survey.viewed() || is_input && len >= self.policy.threshold) {
            plan.fragmented = false;
            return;
        }
        self.clock += 1;
        let site = self.policy.site(caller);
        plan.site = site;
        let elide = self.policy.allows(site, len);
        let island = ISLAND_PAGES * PAGE;
        let bulk = survey.sources.iter().any(|s| s.view.is_none() && s.span.len() >= island);
        if elide && is_input && bulk {
            self.move_sources(from, site);
            if !self.survey(from, to, &mut survey) {
                return;
            }
        }
        // The steady state has nothing to move: the destination is unmapped but for its fringes.
        let resident = survey.runs.iter().any(|(s, unmapped)| !unmapped && s.len() >= island);
        let unmapped = survey.runs.iter().any(|(s, unmapped)| *unmapped && s.len() >= island);
        if elide && resident {
            self.unmap_destinations(from, to, site);
        }
        // Resident data for an unmapped destination: where this site's data is known to go on
        // untouched, it goes into an extent; else the destination becomes ordinary again.
        let give_back = unmapped && (!elide || bulk && !self.policy.trusts(site));
        if give_back {
            let backing_off = !elide && len >= self.policy.threshold;
            add(&self.counters.backoff_copies, u64::from(backing_off));
            self.give_back_destinations(from, to, backing_off);
        }
        let changed = elide && resident || give_back;
        if changed && !self.survey(from, to, &mut survey) {
            return;
        }
        if !survey.viewed() {
            plan.fragmented = false;
            return;
        }
        plan.bypass = self.plan_copy(to.start, &survey, plan).is_none();
        if plan.bypass {
            self.abandon(plan);
        } else if plan.staged.is_empty() {
            self.commit(plan, false);
        }
    }

    /// Looks at both sides of a copy once. Returns false if they are too fragmented.
    fn survey(&self, from: Span, to: Span, survey: &mut Survey) -> bool {
        survey.sources.clear();
        survey.runs.clear();
        for s in self.views.segments(from) {
            if survey.sources.try_push(s).is_err() {
                return false;
            }
        }
        for d in self.views.segments(to) {
            let unmapped = d.view.is_some();
            match survey.runs.last_mut() {
                Some((run, u)) if *u == unmapped => run.end = d.span.end,
                _ => {
                    if survey.runs.try_push((d.span, unmapped)).is_err() {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Makes the planned views. Destination pages that were touched meanwhile get copies instead.
    pub fn copy_commit(&mut self, plan: &mut CopyPlan) {
        self.commit(plan, true);
    }

    fn commit(&mut self, plan: &mut CopyPlan, lock_was_dropped: bool) {
        let mut elided = 0;
        for a in plan.assigns.drain(..) {
            if lock_was_dropped {
                elided += self.assign_or_copy(a, plan.site, &mut plan.copies);
            } else {
                let span = Span::sized(a.addr, a.len);
                let (extents, pool) = (&mut self.extents, &mut self.pool);
                self.views.assign(span, a.extent, a.offset, plan.site, extents, pool);
                if a.extent != ExtentId::NONE {
                    self.extents.get_mut(a.extent).used = self.clock;
                }
                elided += a.len;
            }
        }
        // Pins are needed only for what is still to be copied out of extents.
        let pool = self.memory.pool_span();
        if !plan.copies.iter().any(|c| pool.contains(c.from)) {
            self.drop_pins(&mut plan.pins);
        }
        if elided > 0 {
            self.policy.earn(plan.site, elided);
            add(&self.counters.elided_copies, 1);
            add(&self.counters.elided_bytes, elided as u64);
        }
        let copied: usize = plan.copies.iter().chain(plan.staged.iter()).map(|c| c.len).sum();
        add(&self.counters.copied_bytes, copied as u64);
        self.gauges();
    }

    fn abandon(&mut self, plan: &mut CopyPlan) {
        self.release(&mut plan.pins);
        plan.staged.clear();
        plan.assigns.clear();
        plan.copies.clear();
    }

    /// Decides for every destination byte: view, staged view, or copy. `None`: too fragmented.
    fn plan_copy(&mut self, dst: usize, survey: &Survey, plan: &mut CopyPlan) -> Option<()> {
        // Destination bytes to be staged together: where they begin, and how many.
        let mut staging: Option<(usize, usize)> = None;
        let parts = survey.parts(dst)?;
        for (i, &(part, source, unmapped)) in parts.iter().enumerate() {
            let len = source.span.len();
            match source.view {
                // A short view beside resident bytes is staged with them: else a chain of
                // unaligned copies would gather one more scrap at every hop.
                Some(v) if unmapped && !Self::is_scrap(&parts, i) => {
                    self.flush_staging(&mut staging, plan)?;
                    self.pin(v.extent, &mut plan.pins)?;
                    let a = Assign { addr: part, len, extent: v.extent, offset: v.offset };
                    plan.assigns.try_push(a).ok()?;
                }
                view => {
                    let from = match view {
                        Some(v) if v.extent == ExtentId::NONE => return None,
                        Some(v) => {
                            self.pin(v.extent, &mut plan.pins)?;
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
                        plan.copies.push(Copy { to: part, from, len });
                    }
                }
            }
        }
        self.flush_staging(&mut staging, plan)
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
    ) -> Option<()> {
        let Some((start, len)) = staging.take() else { return Some(()) };
        let slack = start % PAGE;
        let extent = self.new_extent(slack + len)?;
        if plan.pins.try_push(extent).is_err() {
            self.drop_extent(extent);
            return None;
        }
        self.extents.get_mut(extent).filled = (slack + len) as u32;
        let at = self.address(extent, slack as u32);
        for c in plan.staged.iter_mut().filter(|c| start <= c.to && c.to < start + len) {
            c.to = at + (c.to - start);
        }
        plan.assigns.try_push(Assign { addr: start, len, extent, offset: slack as u32 }).ok()
    }

    /// Moves resident pages of the source into extents, where they come in runs worth it.
    fn move_sources(&mut self, from: Span, site: SiteId) {
        let mut at = from.start;
        while at < from.end {
            let (run, unmapped) = self.views.covered_run(at, from.end);
            at = run.end;
            let core = run.core();
            if unmapped || core.pages() < ISLAND_PAGES.max(self.policy.threshold / PAGE / 2) {
                continue;
            }
            let core = Span::sized(core.start, core.len().min(EXTENT_MAX_PAGES * PAGE));
            if self.extents.bytes() + core.len() > self.limits.extent_bytes {
                self.exhausted();
                return;
            }
            let Some((slot, moved)) = self.move_out(core, false, site) else {
                continue;
            };
            let pages = moved.pages();
            self.clock += 1;
            let extent = self.extents.create(slot, pages, (pages * PAGE) as u32, self.clock);
            self.views.assign(moved, extent, 0, site, &mut self.extents, &mut self.pool);
            self.drop_extent(extent);
        }
    }

    /// Unmaps resident pages of the destination, where the source is a view and they come in runs
    /// worth it. Their pages are recycled.
    fn unmap_destinations(&mut self, from: Span, to: Span, site: SiteId) {
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
            if let Some((slot, moved)) = self.move_out(core, true, site) {
                self.pool.give(slot, moved.pages());
            }
            self.trim_pool();
        }
    }

    /// Where the source is not a view (or must not be spread further), unmapped pages of the
    /// destination that the copy overwrites become ordinary fresh memory again.
    fn give_back_destinations(&mut self, from: Span, to: Span, viewed_too: bool) {
        let distance = from.start.wrapping_sub(to.start);
        let mut at = to.start;
        while at < to.end {
            let Some(s) = self.views.segments(Span::new(at, to.end)).next() else { break };
            at = s.span.end;
            let core = s.span.core();
            let source = Span::sized(core.start.wrapping_add(distance), core.len());
            if s.view.is_some()
                && core.pages() >= ISLAND_PAGES
                && (viewed_too || !self.views.touches(source))
            {
                self.give_back(core);
            }
        }
    }

    /// Ends the views of whole pages and lets the kernel provide fresh ones when they are touched.
    fn give_back(&mut self, pages: Span) {
        self.views.remove(pages, &mut self.extents, &mut self.pool);
        self.memory.unregister(pages);
        add(&self.counters.registrations, 1);
        self.forget_registration(pages);
    }

    /// Registers `span` and moves its pages to vacant pool pages. Returns the first pool page and
    /// what of the span is now unmapped (tiled by empty views).
    fn move_out(&mut self, span: Span, discard: bool, site: SiteId) -> Option<(usize, Span)> {
        if self.excluded.touches(span) || !self.register(span, site) {
            return None;
        }
        let pages = span.pages();
        let Some(slot) = self.pool.vacant.take(pages) else {
            self.exhausted();
            return None;
        };
        let mut taken = self.memory.take(span, slot, false);
        let mut calls = 1;
        let moved = taken.pages;
        let mut gone = moved;
        if discard && taken.stop == Stop::Hole {
            // A destination that was never touched (fresh from the allocator) has holes.
            let rest = Span::new(span.start + moved * PAGE, span.end);
            taken = self.memory.take(rest, slot + moved, true);
            calls += 1;
            gone += taken.pages;
            self.memory.discard(slot + moved, taken.pages);
        }
        add(&self.counters.moves, calls);
        add(&self.counters.moved_pages, moved as u64);
        if matches!(taken.stop, Stop::Busy | Stop::Unsuitable) {
            add(&self.counters.refusals, 1);
            self.policy.charge(site, policy::REFUSED_COST);
        }
        self.policy.charge(site, policy::MOVE_COST * calls as i64);
        self.pool.vacant.give(slot + moved, pages - moved);
        let unmapped = Span::sized(span.start, gone * PAGE);
        self.views.assign(unmapped, ExtentId::NONE, 0, site, &mut self.extents, &mut self.pool);
        if discard {
            return (moved > 0).then(|| (slot, Span::sized(span.start, moved * PAGE)));
        }
        if moved == 0 {
            return None;
        }
        Some((slot, unmapped))
    }

    /// `span` is not registered any more. The filter, which only ever adds, is made anew now and then:
    /// else calls on memory that was tracked once would take the lock for ever. (While it is being
    /// made it may deny what is tracked: then faults answer.)
    fn forget_registration(&mut self, span: Span) {
        self.registered.remove(span);
        self.unregistered += 1;
        if self.unregistered >= FILTER_RENEWAL {
            self.unregistered = 0;
            self.filter.track_only(self.registered.iter());
        }
    }

    fn register(&mut self, span: Span, site: SiteId) -> bool {
        let mut gaps: ArrayVec<Span, MAX_PIECES> = ArrayVec::new();
        while let Some(gap) = self.registered.next_gap(span.start, span.end) {
            if gaps.is_full() {
                return false;
            }
            if self.registered.count() >= self.limits.ranges {
                self.exhausted();
                return false;
            }
            add(&self.counters.registrations, 1);
            self.policy.charge(site, policy::REGISTER_COST);
            if self.memory.register(gap).is_err() {
                add(&self.counters.refusals, 1);
                self.policy.charge(site, policy::REFUSED_COST);
                return false;
            }
            self.registered.insert(gap);
            self.filter.track(gap);
            gaps.push(gap);
        }
        // New ranges are trusted only when no unmap of the same addresses is still on its way
        // to us: its event would end the views of the new mapping.
        if !gaps.is_empty() && self.memory.map_changing() {
            for gap in gaps {
                self.memory.unregister(gap);
                self.registered.remove(gap);
            }
            return false;
        }
        true
    }

    // --------------------------------------------------------------- input

    /// Plans an input call into `buffers` (address, length): unmapped pages are received into
    /// extents, resident ones in place.
    pub fn input_begin(
        &mut self,
        buffers: impl Iterator<Item = (usize, usize)>,
        plan: &mut InputPlan,
    ) {
        self.clock += 1;
        let mut any = false;
        for (addr, len) in buffers {
            let buffer = Span::sized(addr, len);
            let mut at = buffer.start;
            while at < buffer.end {
                let (run, unmapped) = self.views.covered_run(at, buffer.end);
                if unmapped && self.give_back_paused(run) {
                    continue;
                }
                at = run.end;
                any |= unmapped;
                let planned = if unmapped {
                    self.plan_receive(run, plan)
                } else {
                    Self::target(run, None, run.start, plan)
                };
                if planned.is_none() {
                    self.input_abandon(plan);
                    return;
                }
            }
        }
        if !any {
            self.input_abandon(plan);
        }
    }

    /// Memory that was freed, and whose call site is being left alone because the program
    /// touches what it gets there: ordinary again before it is received into.
    fn give_back_paused(&mut self, run: Span) -> bool {
        let mut given = false;
        let mut at = run.start;
        while let Some(s) = self.views.segments(Span::new(at, run.end)).next() {
            at = s.span.end;
            let core = s.span.core();
            let empty = s.view.is_some_and(|v| {
                v.extent == ExtentId::NONE && self.policy.backoff && self.policy.paused(v.site)
            });
            if empty && core.pages() >= ISLAND_PAGES {
                self.give_back(core);
                given = true;
            }
        }
        given
    }

    fn target(
        run: Span,
        extent: Option<(ExtentId, u32)>,
        at: usize,
        plan: &mut InputPlan,
    ) -> Option<()> {
        plan.targets.try_push(Target { addr: run.start, len: run.len(), extent, at }).ok()
    }

    fn plan_receive(&mut self, run: Span, plan: &mut InputPlan) -> Option<()> {
        let mut run = run;
        // The next part of a message goes on where the last part ended.
        if let Some((start, v)) = self.views.ending_at(run.start)
            && v.extent != ExtentId::NONE
        {
            let end = v.offset as usize + (run.start - start);
            let e = self.extents.get(v.extent);
            if e.filled as usize == end && !e.filling && e.capacity() > end {
                let part = Span::sized(run.start, run.len().min(e.capacity() - end));
                let useful = self.extents.get(v.extent).useful;
                self.pin(v.extent, &mut plan.pins)?;
                self.extents.get_mut(v.extent).useful = useful;
                self.extents.get_mut(v.extent).filling = true;
                let at = self.address(v.extent, end as u32);
                Self::target(part, Some((v.extent, end as u32)), at, plan).or_else(|| {
                    self.extents.get_mut(v.extent).filling = false;
                    None
                })?;
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
                return None;
            }
            let e = self.extents.get_mut(extent);
            e.filled = slack as u32;
            e.filling = true;
            let at = self.address(extent, slack as u32);
            Self::target(part, Some((extent, slack as u32)), at, plan)?;
            run = Span::new(part.end, run.end);
        }
        Some(())
    }

    fn input_abandon(&mut self, plan: &mut InputPlan) {
        for t in plan.targets.drain(..) {
            if let Some((extent, _)) = t.extent {
                self.extents.get_mut(extent).filling = false;
            }
        }
        self.release(&mut plan.pins);
        plan.bypass = true;
    }

    /// `received` bytes arrived, in the order of the plan's targets: they become views. What must
    /// be copied (pages touched while the call waited) is in `plan.copies`; release afterwards.
    pub fn input_commit(&mut self, plan: &mut InputPlan, received: usize) {
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
            if got == 0 {
                continue;
            }
            let site = self.views.at(t.addr).map_or(0, |(_, v)| v.site);
            let a = Assign { addr: t.addr, len: got, extent, offset };
            taken += self.assign_or_copy(a, site, &mut plan.copies);
            self.keep_tail_open(extent);
        }
        if plan.copies.is_empty() {
            self.release(&mut plan.pins);
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
            if self.extents.alive(id) && !self.extents.get(id).filling {
                let (page, pages) = self.extents.trim(id);
                self.pool.give(page, pages);
            }
        }
    }

    // -------------------------------------------------------------- output

    /// Plans an output call from `buffers` (address, length): viewed bytes come from extents.
    pub fn output_begin(
        &mut self,
        buffers: impl Iterator<Item = (usize, usize)>,
        plan: &mut OutputPlan,
    ) {
        plan.bypass = self.plan_output(buffers, plan).is_none() || plan.gathered == 0;
        if plan.bypass {
            self.release(&mut plan.pins);
        } else {
            add(&self.counters.output_bytes, plan.gathered as u64);
        }
    }

    fn plan_output(
        &mut self,
        buffers: impl Iterator<Item = (usize, usize)>,
        plan: &mut OutputPlan,
    ) -> Option<()> {
        for (addr, len) in buffers {
            let span = Span::sized(addr, len);
            let mut count = 0;
            let mut last_end = 0;
            let mut at = span.start;
            while let Some(s) = self.views.segments(Span::new(at, span.end)).next() {
                at = s.span.end;
                let from = match s.view {
                    // Empty memory is sent by nobody who means it: let the faults answer.
                    Some(v) if v.extent == ExtentId::NONE => return None,
                    Some(v) => {
                        if plan.pins.last() != Some(&v.extent) {
                            self.pin(v.extent, &mut plan.pins)?;
                        }
                        plan.gathered += s.span.len();
                        self.address(v.extent, v.offset)
                    }
                    None => s.span.start,
                };
                if count > 0 && last_end == from {
                    plan.pieces.last_mut()?.1 += s.span.len();
                } else {
                    plan.pieces.try_push((from, s.span.len())).ok()?;
                    count += 1;
                }
                last_end = from + s.span.len();
            }
            if len == 0 {
                plan.pieces.try_push((addr, 0)).ok()?;
                count = 1;
            }
            plan.per_buffer.try_push(count).ok()?;
        }
        Some(())
    }

    // ------------------------------------------------------- touch and end

    /// The program (or the kernel on its behalf) touched the missing page at `addr`.
    pub fn fault(&mut self, addr: usize) -> Fault {
        let page = page_down(addr);
        let Some((_, v)) = self.views.at(page) else {
            add(&self.counters.empty_faults, 1);
            return self.untracked_fault(page);
        };
        if v.extent == ExtentId::NONE && self.empty_page(page) {
            // Freed memory is in use again: the kernel's own faults are ten times cheaper.
            add(&self.counters.empty_faults, 1);
            let reach = Span::new(page, page.saturating_add(EMPTY_AROUND * PAGE));
            let mut end = page + PAGE;
            while end < reach.end && self.empty_page(end) {
                end += PAGE;
            }
            self.policy.fault(v.site, 0);
            self.give_back(Span::new(page, end));
            self.gauges();
            return Fault::Resolved;
        }
        self.fault_around = if page == self.last_fault_end {
            (self.fault_around * 2).min(FAULT_AROUND_MAX)
        } else {
            1
        };
        let mut end = page + PAGE;
        while end < page + self.fault_around * PAGE
            && self.views.at(end).is_some_and(|(_, n)| n.extent != ExtentId::NONE)
        {
            end += PAGE;
        }
        if self.materialize_pages(Span::new(page, end)).is_err() {
            return Fault::Again;
        }
        add(&self.counters.faults, 1);
        self.last_fault_end = end;
        self.policy.fault(v.site, (end - page) / PAGE);
        self.gauges();
        Fault::Resolved
    }

    /// A missing page without views: given back with `madvise` while resident, or added by the
    /// kernel when it grew a registered mapping.
    fn untracked_fault(&mut self, page: usize) -> Fault {
        let reach = page.saturating_add(EMPTY_AROUND * PAGE);
        let Some(known) = self.registered.next_in(page, reach).filter(|r| r.start == page) else {
            return Fault::Unknown;
        };
        let (run, _) = self.views.covered_run(page, known.end);
        self.give_back(run);
        Fault::Resolved
    }

    /// Resolves a fault without changing the books (they are being duplicated by fork). The page
    /// must be named to [`Tracker::filled_meanwhile`] afterwards.
    pub fn fault_while_frozen(&mut self, addr: usize) -> Fault {
        let page = Span::sized(page_down(addr), PAGE);
        if !self.views.touches(page) {
            return Fault::Unknown;
        }
        match self.fill(page, false) {
            Err(_) => Fault::Again,
            Ok(()) => Fault::Resolved,
        }
    }

    /// The page at `addr` was filled while the books were frozen.
    pub fn filled_meanwhile(&mut self, addr: usize) {
        let page = Span::sized(page_down(addr), PAGE);
        self.views.remove(page, &mut self.extents, &mut self.pool);
    }

    /// Fills the page at `addr` if it is missing, in a forked child, and ends its views there.
    pub fn refill(&mut self, addr: usize) {
        let page = Span::sized(page_down(addr), PAGE);
        if self.views.touches(page) {
            while self.fill(page, true) == Err(FillError::Again) {}
        }
    }

    fn empty_page(&self, page: usize) -> bool {
        self.views.at(page).is_some_and(|(_, v)| v.extent == ExtentId::NONE && v.end >= page + PAGE)
    }

    fn fill(&mut self, pages: Span, end_views: bool) -> Result<(), FillError> {
        let mut page = pages.start;
        while page < pages.end {
            // As many pages at once as the list describes without growing: a fault during fork
            // must not allocate. One page has at most PAGE pieces.
            self.pieces.clear();
            let mut end = page;
            while end < pages.end && self.pieces.len() <= PIECES - PAGE {
                for s in self.views.segments(Span::sized(end, PAGE)) {
                    let len = s.span.len();
                    let piece = match s.view {
                        Some(v) if v.extent != ExtentId::NONE => {
                            Piece::Bytes { from: self.address(v.extent, v.offset), len }
                        }
                        _ => Piece::Zero { len },
                    };
                    push_piece(&mut self.pieces, piece);
                }
                end += PAGE;
            }
            let (filled, result) = self.memory.fill(Span::new(page, end), &self.pieces);
            // What is there ends to be a view at once: the program may write to it without a fault.
            if end_views {
                let there = Span::sized(page, filled * PAGE);
                self.views.remove(there, &mut self.extents, &mut self.pool);
                add(&self.counters.materialized_pages, filled as u64);
            }
            result?;
            page = end;
        }
        Ok(())
    }

    fn materialize_pages(&mut self, pages: Span) -> Result<(), FillError> {
        self.fill(pages, true)
    }

    /// Fills every unmapped page of `span`; with `forget`, its pages are not ours any more
    /// afterwards (unregistered). `Err(Again)` means: read events, then call again.
    ///
    /// # Errors
    /// [`FillError::Again`].
    pub fn materialize(&mut self, span: Span, forget: bool) -> Result<(), FillError> {
        let span = span.hull();
        let mut at = span.start;
        while at < span.end {
            let (run, unmapped) = self.views.covered_run(at, span.end);
            at = run.end;
            if unmapped {
                self.materialize_pages(run)?;
            }
        }
        if forget {
            let mut at = span.start;
            while let Some(r) = self.registered.next_in(at, span.end) {
                self.memory.unregister(r);
                add(&self.counters.registrations, 1);
                self.forget_registration(r);
                at = r.end;
            }
        }
        self.gauges();
        Ok(())
    }

    /// The program freed `len` bytes at `addr`: nobody is owed their content any more.
    pub fn freed(&mut self, addr: usize, len: usize) {
        let span = Span::sized(addr, len);
        let mut at = span.start;
        while at < span.end {
            let (run, unmapped) = self.views.covered_run(at, span.end);
            at = run.end;
            if unmapped {
                let first = self.views.at(run.start).map(|(_, v)| v);
                let site = first.map_or(0, |v| v.site);
                // Input that nobody copied or sent: this site's buffers are better left resident.
                let wasted =
                    |v: &View| v.extent != ExtentId::NONE && !self.extents.get(v.extent).useful;
                if first.as_ref().is_some_and(wasted) {
                    self.policy.charge(site, policy::WASTED_INPUT_COST);
                }
                self.views.assign(run, ExtentId::NONE, 0, site, &mut self.extents, &mut self.pool);
            }
        }
        self.trim_pool();
        self.gauges();
    }

    /// The kernel removed the mapping of `span` (munmap, brk, a mapping over it): all that was
    /// known of it is void.
    pub fn unmapped(&mut self, span: Span) {
        self.views.remove(span.hull(), &mut self.extents, &mut self.pool);
        self.forget_registration(span.hull());
        self.excluded.remove(span.hull());
        add(&self.counters.events, 1);
        self.gauges();
    }

    /// The kernel is about to drop the pages of `span` (MADV_DONTNEED, MADV_FREE, ...): unmapped
    /// pages read as zeros from now on. Resident pages are not ours.
    pub fn removed(&mut self, span: Span) {
        self.freed(span.start, span.len());
        add(&self.counters.events, 1);
    }

    /// The kernel moved the mapping of `len` bytes at `from` to `to`, with its missing pages and
    /// its registration.
    pub fn remapped(&mut self, from: usize, to: usize, len: usize) {
        let (old, new) = (Span::sized(from, len), Span::sized(to, len));
        self.views.remove(new, &mut self.extents, &mut self.pool);
        self.registered.remove(new);
        let moved: Vec<Span> = {
            let mut found = Vec::new();
            let mut at = old.start;
            while let Some(r) = self.registered.next_in(at, old.end) {
                found.push(r);
                at = r.end;
            }
            found
        };
        self.views.shift(old, to.wrapping_sub(from) as isize, &mut self.extents);
        for r in moved {
            self.registered.remove(r);
            let there = Span::sized(r.start - from + to, r.len());
            self.registered.insert(there);
            self.filter.track(there);
        }
        add(&self.counters.events, 1);
    }

    /// Pages of `span` must never be moved: the kernel holds them by reference (vmsplice,
    /// MSG_ZEROCOPY) beyond the call. They must be resident already.
    pub fn exclude(&mut self, span: Span) {
        self.excluded.insert(span.hull());
    }

    /// Forgets all tracking of `span` without touching memory or kernel: its mapping is about to
    /// go away inside the allocator, and its addresses may come back before the kernel's report.
    pub fn forget(&mut self, span: Span) {
        self.views.remove(span.core(), &mut self.extents, &mut self.pool);
        self.forget_registration(span.core());
        self.gauges();
    }

    /// Takes all tracking of `span` out of the books, whose mapping is about to be removed: the
    /// addresses may belong to somebody else before the kernel's report of it is read. The extents
    /// stay, for [`Tracker::reattach`].
    pub fn detach(&mut self, span: Span) -> Detached {
        let mut views = Vec::new();
        self.views.detach(span, &mut self.extents, &mut views);
        let mut registered = Vec::new();
        let mut at = span.start;
        while let Some(r) = self.registered.next_in(at, span.end) {
            registered.push(r);
            at = r.end;
        }
        self.registered.remove(span);
        Detached { views, registered }
    }

    /// The mapping is gone: so is what was detached.
    pub fn drop_detached(&mut self, detached: Detached) {
        for (_, v) in detached.views {
            self.drop_extent(v.extent);
        }
        self.gauges();
    }

    /// The mapping was not removed after all.
    pub fn reattach(&mut self, detached: Detached) {
        for r in detached.registered {
            self.registered.insert(r);
        }
        for (start, v) in detached.views {
            let span = Span::new(start, v.end);
            let (extents, pool) = (&mut self.extents, &mut self.pool);
            self.views.assign(span, v.extent, v.offset, v.site, extents, pool);
            self.drop_extent(v.extent);
        }
    }

    /// Whether any page of `span` is unmapped by us or registered.
    pub fn tracks(&self, span: Span) -> bool {
        self.views.touches(span) || self.registered.touches(span)
    }

    /// The unmapped stretches of `span`.
    pub fn unmapped_in(&self, span: Span) -> Vec<Span> {
        self.views.segments(span).filter(|s| s.view.is_some()).map(|s| s.span).collect()
    }

    /// Whether any byte of `span` is a view.
    pub fn views_in(&self, span: Span) -> bool {
        self.views.touches(span)
    }

    // ---------------------------------------------------------------- fork

    /// In a forked child: registers every range anew with the child's own userfaultfd (already
    /// in `memory`). Where that is refused, the views are handed to `write_out`: their pages are
    /// ordinary missing ones in the child, if they are mapped at all.
    pub fn register_all_again(&mut self, mut write_out: impl FnMut(Copy)) {
        let ranges: Vec<Span> = self.registered.iter().collect();
        for r in ranges {
            if self.memory.register(r).is_err() {
                self.write_out(r, &mut write_out);
                self.unmapped(r);
            }
        }
    }

    /// In a forked child where nobody can answer faults: hands every view to `write_out`, after
    /// which nothing is tracked. `unregister`: the child has a userfaultfd of its own (else
    /// `memory` has its parent's, which must not be used).
    pub fn give_up(&mut self, unregister: bool, mut write_out: impl FnMut(Copy)) {
        let all = Span::new(0, page_down(usize::MAX));
        if unregister {
            self.registered.iter().for_each(|r| self.memory.unregister(r));
        }
        self.write_out(all, &mut write_out);
        self.views.remove(all, &mut self.extents, &mut self.pool);
        self.registered.clear();
        self.filter.track_only(core::iter::empty());
        self.gauges();
    }

    fn write_out(&self, span: Span, write_out: &mut impl FnMut(Copy)) {
        for (to, v) in self.views.iter_from(span.start).take_while(|(s, _)| *s < span.end) {
            if v.extent != ExtentId::NONE {
                write_out(Copy { to, from: self.address(v.extent, v.offset), len: v.end - to });
            }
        }
    }

    /// A vacant pool page, taken for good: its first touch wakes the monitor.
    pub fn spare_pool_page(&mut self) -> Option<usize> {
        self.pool.vacant.take(1).map(|page| self.memory.pool_span().start + page * PAGE)
    }

    /// Everything that is tracked, from the lowest address to the highest.
    pub fn everything(&self) -> Option<Span> {
        let first = self.registered.iter().next()?.start;
        let last = self.registered.iter().last()?.end;
        Some(Span::new(first, last))
    }

    // ----------------------------------------------------- limits and pool

    fn exhausted(&mut self) {
        add(&self.counters.exhausted, 1);
        self.wants_eviction = true;
    }

    /// Whether a limit was met and [`Tracker::evict`] should be called.
    pub fn wants_eviction(&self) -> bool {
        self.wants_eviction
    }

    /// Materializes and unregisters least-recently-used views (zIO 3.1.7), about `pages` of them.
    /// The caller drops the lock between calls. Returns whether more should follow.
    ///
    /// # Errors
    /// [`FillError::Again`]: read events first.
    pub fn evict(&mut self, pages: usize) -> Result<bool, FillError> {
        let over = |t: &Self| {
            t.extents.bytes() > t.limits.extent_bytes / 4 * 3
                || t.registered.count() > t.limits.ranges / 4 * 3
                || t.views.count() > t.limits.views / 4 * 3
        };
        if !over(self) {
            self.wants_eviction = false;
            return Ok(false);
        }
        let mut used: Vec<u64> = self.extents.iter().map(|(_, e)| e.used).collect();
        let oldest = used.len().div_ceil(8).saturating_sub(1);
        let limit = if used.is_empty() { 0 } else { *used.select_nth_unstable(oldest).1 };
        let mut victims: Vec<Span> = Vec::new();
        let mut found = 0;
        for (start, v) in self.views.iter_from(0) {
            if found >= pages {
                break;
            }
            let old = v.extent == ExtentId::NONE || self.extents.get(v.extent).used <= limit;
            if old && victims.last().is_none_or(|l| start >= l.end) {
                // Whole registered ranges, where they are not huge: a hole would make two of one.
                let near = Span::sized(page_down(start).saturating_sub(NEAR), 2 * NEAR);
                let mut hull = Span::new(start, v.end).hull();
                if let Some(r) = self.registered.around(start)
                    && r.intersect(near) == r
                {
                    hull = r;
                }
                found += hull.pages();
                victims.push(hull);
            }
        }
        if victims.is_empty() {
            self.wants_eviction = false;
            return Ok(false);
        }
        for hull in victims {
            self.materialize(hull, true)?;
            add(&self.counters.evicted_views, 1);
        }
        self.trim_pool();
        self.gauges();
        self.wants_eviction = over(self);
        Ok(self.wants_eviction)
    }

    fn new_extent(&mut self, bytes: usize) -> Option<ExtentId> {
        let pages = page_up(bytes) / PAGE;
        if pages > EXTENT_MAX_PAGES
            || self.extents.bytes() + pages * PAGE > self.limits.extent_bytes
            || self.views.count() > self.limits.views
        {
            self.exhausted();
            return None;
        }
        let Some(page) = self.pool.take(pages) else {
            self.exhausted();
            return None;
        };
        Some(self.extents.create(page, pages, 0, self.clock))
    }

    fn drop_extent(&mut self, extent: ExtentId) {
        if let Some(e) = self.extents.drop_ref(extent) {
            self.pool.reclaim(e);
        }
    }

    fn pin(&mut self, extent: ExtentId, pins: &mut Pins) -> Option<()> {
        if extent != ExtentId::NONE {
            pins.try_push(extent).ok()?;
            self.extents.hold(extent);
            self.extents.get_mut(extent).useful = true;
        }
        Some(())
    }

    /// Lets go of extents that a plan held.
    pub fn release(&mut self, pins: &mut Pins) {
        self.drop_pins(pins);
        self.gauges();
    }

    fn drop_pins(&mut self, pins: &mut Pins) {
        for extent in pins.drain(..) {
            self.drop_extent(extent);
        }
    }

    fn address(&self, extent: ExtentId, offset: u32) -> usize {
        self.memory.pool_span().start + self.extents.get(extent).page * PAGE + offset as usize
    }

    /// Makes the unmapped part of `a` a view; the rest is to be copied. Returns the bytes viewed.
    fn assign_or_copy(&mut self, a: Assign, site: SiteId, copies: &mut Copies) -> usize {
        let mut viewed = 0;
        let mut at = a.addr;
        let end = a.addr + a.len;
        while at < end {
            let (run, unmapped) = self.views.covered_run(at, end);
            let offset = a.offset.wrapping_add((at - a.addr) as u32);
            at = run.end;
            if unmapped {
                self.views.assign(run, a.extent, offset, site, &mut self.extents, &mut self.pool);
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

    fn trim_pool(&mut self) {
        if self.pool.ready_pages() <= 2 * READY_PAGES {
            return;
        }
        while self.pool.ready_pages() > READY_PAGES {
            if let Some((page, pages)) = self.pool.recent.take_any() {
                self.pool.settle(page, pages);
            } else if let Some((page, pages)) = self.pool.ready.take_longest() {
                self.memory.discard(page, pages);
                self.pool.vacant.give(page, pages);
            } else if let Some((page, pages)) = self.pool.ready_plain.take_longest() {
                self.memory.discard(page, pages);
                self.pool.fresh_plain.give(page, pages);
            } else {
                return;
            }
        }
    }

    fn gauges(&self) {
        let c = self.counters;
        c.extents.store(self.extents.count() as u64, Relaxed);
        c.extent_bytes.store(self.extents.bytes() as u64, Relaxed);
        c.views.store(self.views.count() as u64, Relaxed);
        c.pool_free_bytes.store((self.pool.ready_pages() * PAGE) as u64, Relaxed);
        c.registered_ranges.store(self.registered.count() as u64, Relaxed);
    }

    /// Checks the invariants that the books alone can show (for tests).
    pub fn check(&self) -> Result<(), String> {
        let mut refs = std::collections::HashMap::new();
        let mut last = Span::new(0, 0);
        let mut previous: Option<(usize, View)> = None;
        for (start, v) in self.views.iter_from(0) {
            let adjacent = previous.is_some_and(|(_, p)| p.end == start);
            if start < last.end || v.end <= start {
                return Err(format!("views overlap or are empty at {start:#x}"));
            }
            let aligned = start.is_multiple_of(PAGE) && last.end.is_multiple_of(PAGE);
            if !adjacent && !aligned {
                return Err(format!("views do not tile pages before {start:#x}"));
            }
            if self.registered.next_gap(start, v.end).is_some() {
                return Err(format!("view at {start:#x} is not registered"));
            }
            if v.extent != ExtentId::NONE {
                *refs.entry(v.extent).or_insert(0u32) += 1;
                let e = self.extents.get(v.extent);
                if v.offset as usize + (v.end - start) > e.filled as usize {
                    return Err(format!("view at {start:#x} reaches behind what is filled"));
                }
            }
            last = Span::new(start, v.end);
            previous = Some((start, *v));
        }
        if !last.end.is_multiple_of(PAGE) {
            return Err("the last views do not tile their page".into());
        }
        for (id, e) in self.extents.iter() {
            let counted = refs.get(&id).copied().unwrap_or(0);
            if e.refs != counted {
                return Err(format!("{id:?} has {} references, {counted} views", e.refs));
            }
        }
        Ok(())
    }
}

/// Adds a piece, joined to the one before where it follows it in the pool.
fn push_piece(pieces: &mut Vec<Piece>, piece: Piece) {
    match (pieces.last_mut(), piece) {
        (Some(Piece::Bytes { from, len }), Piece::Bytes { from: next, len: more })
            if *from + *len == next =>
        {
            *len += more;
        }
        (Some(Piece::Zero { len }), Piece::Zero { len: more }) => *len += more,
        _ => pieces.push(piece),
    }
}
