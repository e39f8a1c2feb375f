//! Touches: pages are composed from their views, and the views end.

use super::moving::POPULATE_MAX;
use super::{Fault, NOBODY, PIECES, Tracker};
use crate::extents::ExtentId;
use crate::memory::{FillError, Memory, Piece};
use uncopy_counters::add;
use uncopy_decide::{Act, Event, Operation, SiteId};
use uncopy_ranges::span::{PAGE, Span, page_down};

/// Sequential faults fill twice as many pages each time, up to this many.
const FAULT_AROUND_MAX: usize = 64;

impl<M: Memory> Tracker<M> {
    /// Whether the faults that come now were taken on the core that answers them.
    pub fn answers_near(&mut self, near: bool) {
        self.control.tell(NOBODY, Event::AnswersNear(near));
    }

    /// The program (or the kernel on its behalf) touched the missing page at `addr`.
    pub fn fault(&mut self, addr: usize) -> Fault {
        self.control.did(|| Operation::Touch { addr });
        let page = page_down(addr);
        match self.views.at(page) {
            None => self.bare_fault(page),
            Some((_, v)) if v.extent == ExtentId::NONE && self.empty_page(page) => {
                self.empty_fault(page, v.site)
            }
            Some((_, v)) => self.viewed_fault(page, v.site),
        }
    }

    /// A fault at a page without views.
    fn bare_fault(&mut self, page: usize) -> Fault {
        add(&self.counters.empty_faults, 1);
        let reach = self.before_dropped(within_reach(page));
        if reach.is_empty() {
            return Fault::Again;
        }
        match self.untracked_fault(reach) {
            Fault::Unknown => self.fault_while_leaving(page, true),
            known => known,
        }
    }

    /// A fault at a page that `site` emptied.
    fn empty_fault(&mut self, page: usize, site: SiteId) -> Fault {
        // Pages that are reported to be dropped have still to go: if they were ordinary by then,
        // the kernel would take what is written to them now.
        let reach = self.before_dropped(within_reach(page));
        if reach.is_empty() {
            return Fault::Again;
        }
        add(&self.counters.empty_faults, 1);
        let alone =
            self.is_lone(page, site) && self.materialize_pages(Span::sized(page, PAGE)).is_ok();
        if alone {
            self.lone_touch = (self.clock, page);
            self.displaced = self.displaced.saturating_sub(1);
            self.control.tell(site, Event::Reused);
            self.gauges();
            return Fault::Resolved;
        }
        // Freed memory is in use again: most likely all of it.
        let mut end = page + PAGE;
        while end < reach.end && self.empty_page(end) {
            end += PAGE;
        }
        self.control.tell(site, Event::Reused);
        self.untrack_and_populate(Span::new(page, end), site);
        self.gauges();
        Fault::Resolved
    }

    /// A fault at a page that has bytes of extents, for `site`.
    fn viewed_fault(&mut self, page: usize, site: SiteId) -> Fault {
        self.fault_around = if page == self.last_fault_end {
            (self.fault_around * 2).min(FAULT_AROUND_MAX)
        } else {
            1
        };
        // Touched in order: all of it is, most likely.
        let moved = match self.views.at(page) {
            Some((start, v)) if page == self.last_fault_end => self.move_in(page, start, v),
            _ => 0,
        };
        let mut end = page + moved.max(1) * PAGE;
        while moved == 0
            && end < page + self.fault_around * PAGE
            && self.views.at(end).is_some_and(|(_, n)| n.extent != ExtentId::NONE)
        {
            end += PAGE;
        }
        if moved == 0 && self.materialize_pages(Span::new(page, end)).is_err() {
            return Fault::Again;
        }
        add(&self.counters.faults, 1);
        add(&self.counters.touched_pages, ((end - page) / PAGE) as u64);
        self.last_fault_end = end;
        let filled = if moved == 0 { (end - page) / PAGE } else { 1 };
        self.control.tell(site, Event::Fault { pages: filled });
        self.gauges();
        Fault::Resolved
    }

    /// A missing page without views, the first of `reach`: dropped with `madvise` while resident,
    /// or added by the kernel when it grew a registered mapping.
    fn untracked_fault(&mut self, reach: Span) -> Fault {
        let first = self.registered.next_in(reach.start, reach.end);
        let Some(known) = first.filter(|r| r.start == reach.start) else {
            return Fault::Unknown;
        };
        let (run, _) = self.views.covered_run(known.start, known.end);
        self.untrack_pages(run);
        Fault::Resolved
    }

    /// Resolves a fault without changing the books (they are being duplicated by fork). The page
    /// must be named to [`Tracker::filled_meanwhile`] afterwards.
    pub fn fault_while_frozen(&mut self, addr: usize) -> Fault {
        let page = Span::sized(page_down(addr), PAGE);
        if !self.views.touches(page) {
            return self.fault_while_leaving(page.start, false);
        }
        match self.fill(page, false) {
            Err(_) => Fault::Again,
            Ok(()) => Fault::Resolved,
        }
    }

    /// The same for a page without views that is about to be unmapped: see [`Tracker::detach`].
    fn fault_while_leaving(&mut self, page: usize, end_views: bool) -> Fault {
        let page = Span::sized(page, PAGE);
        let Some(i) = self.leaving.iter().position(|l| l.views.touches(page)) else {
            return Fault::Unknown;
        };
        core::mem::swap(&mut self.views, &mut self.leaving[i].views);
        let filled = self.fill(page, end_views);
        core::mem::swap(&mut self.views, &mut self.leaving[i].views);
        if filled.is_ok() { Fault::Resolved } else { Fault::Again }
    }

    /// The page at `addr` was filled while the books were frozen.
    pub fn filled_meanwhile(&mut self, addr: usize) {
        let page = Span::sized(page_down(addr), PAGE);
        self.views.remove(page, &mut self.extents, &mut self.backing);
        for leaving in &mut self.leaving {
            leaving.views.remove(page, &mut self.extents, &mut self.backing);
        }
    }

    /// Fills the page at `addr` if it is missing, in a forked child, and ends its views there.
    pub fn materialize_page(&mut self, addr: usize) {
        let page = Span::sized(page_down(addr), PAGE);
        if self.views.touches(page) {
            while self.fill(page, true) == Err(FillError::Again) {}
        }
    }

    /// Whether a touched empty page gets memory for itself alone. Yes if a copy or an input came
    /// since the last such touch, that touch was not of the page before, and `site`, which emptied
    /// the page and pays, elides. A program whose buffer grows touches like this: it moves a few
    /// bytes to a larger block, or writes what ends it (the NUL of Python's `bytearray`), and then
    /// copies there.
    fn is_lone(&mut self, page: usize, site: SiteId) -> bool {
        let (clock, last) = self.lone_touch;
        site != NOBODY
            && clock != self.clock
            && page != last + PAGE
            && !self.control.act(site, Act::GiveBack)
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
            // Memory that is there ends to be a view at once: the program may write to it without a
            // fault.
            if end_views {
                let there = Span::sized(page, filled * PAGE);
                self.views.remove(there, &mut self.extents, &mut self.backing);
                add(&self.counters.materialized_pages, filled as u64);
            }
            result?;
            page = end;
        }
        Ok(())
    }

    pub(super) fn materialize_pages(&mut self, pages: Span) -> Result<(), FillError> {
        self.fill(pages, true)
    }

    /// Gives every unmapped page of `span` its content. `Err(Again)` means: read events, then call
    /// again.
    ///
    /// # Errors
    /// [`FillError::Again`].
    pub fn materialize(&mut self, span: Span) -> Result<(), FillError> {
        let span = span.covering_pages();
        self.move_in_within(span);
        let mut at = span.start;
        while at < span.end {
            let (run, unmapped) = self.views.covered_run(at, span.end);
            at = run.end;
            if unmapped {
                self.materialize_pages(run)?;
            }
        }
        self.gauges();
        Ok(())
    }

    /// Materializes `span` and untracks it.
    ///
    /// # Errors
    /// As for [`Tracker::materialize`].
    pub fn make_ordinary(&mut self, span: Span) -> Result<(), FillError> {
        self.materialize(span)?;
        self.unregister_within(span.covering_pages());
        self.gauges();
        Ok(())
    }
}

/// Adds a piece, joined to the one before where it follows it in memory.
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

/// The span that a fault at `page` may make ordinary.
fn within_reach(page: usize) -> Span {
    Span::new(page, page.saturating_add(POPULATE_MAX * PAGE))
}
