//! Which pages of a watched input the program touches: one input at a time, wherever its copies
//! are.
//!
//! Pages are moved out and in by somebody else (`uncopy-profile`'s `watch`); here is only what that
//! means for the bytes of the input.

use super::Follower;
use crate::inputs::{Here, Watch};
use crate::layout::{NODES, header, node};
use crate::tags::Piece;
use uncopy_ranges::span::{PAGE, Span, page_down};

impl Follower<'_> {
    /// The input that is watched.
    pub fn watching(&self) -> Option<u32> {
        self.watched
    }

    /// Watches `input` from now on.
    pub fn watch(&mut self, input: u32) {
        if let Some(i) = self.inputs.get(input) {
            i.watch = Some(Box::default());
            self.watched = Some(input);
            self.book.add_head(header::PROBES, 1);
            self.book.add(NODES, i.root as usize, node::PROBES, 1);
        }
    }

    /// Watches nothing from now on.
    pub fn unwatch(&mut self) {
        self.watched = None;
    }

    /// How many inputs have come from the site of `input`, which is the last of them.
    pub fn arrivals(&mut self, input: u32) -> u64 {
        let Some(i) = self.inputs.get(input) else { return 0 };
        self.book.get(NODES, i.root as usize, node::OPS)
    }

    /// Whether every byte of the watched input has left.
    pub fn watched_has_left(&mut self) -> bool {
        let Some(id) = self.watched else { return true };
        self.inputs.get(id).is_none_or(|i| i.left.total() == i.len)
    }

    /// Where bytes of the watched input lie.
    pub fn watched_places(&self) -> Vec<Span> {
        let mine = |p: &Piece| Some(p.tag.input) == self.watched;
        self.tags.iter().filter(mine).map(|p| p.span).collect()
    }

    /// The pages in `span` on which bytes of the watched input lie.
    pub fn watchable(&self, span: Span) -> Vec<Span> {
        let mut pages: Vec<Span> = Vec::new();
        for p in self.tags.within(span).filter(|p| Some(p.tag.input) == self.watched) {
            let its = p.span.covering_pages();
            match pages.last_mut() {
                Some(last) if last.end >= its.start => last.end = last.end.max(its.end),
                _ => pages.push(its),
            }
        }
        pages
    }

    /// A touch of `pages` will show.
    pub fn shows(&mut self, pages: Span) {
        self.each(
            pages,
            |watch, start, end| watch.watched.add(start, end),
            |here, start, end| {
                here.shown.add(start, end);
            },
        );
    }

    /// The page of `addr` was touched, which no longer shows; `addr` is the byte.
    pub fn touched(&mut self, addr: usize) {
        let page = Span::sized(page_down(addr), PAGE);
        let Some(id) = self.watched else { return };
        let here = |p: &Piece| p.tag.input == id && p.span.contains(addr);
        if self.tags.within(page).any(|p| here(&p)) {
            let root = self.inputs.get(id).map_or(0, |i| i.root);
            self.book.add(NODES, root as usize, node::FAULTS, 1);
            self.each(
                page,
                |watch, start, end| watch.touched.add(start, end),
                |here, start, end| {
                    here.touched.add(start, end);
                },
            );
        } else {
            // A neighbour on the page.
            self.hides(page);
        }
    }

    /// Changes on `pages` are not known any more.
    pub fn hides(&mut self, pages: Span) {
        let hide = |watch: &mut Watch, start, end| {
            watch.watched.remove_but(start, end, &watch.touched);
            0
        };
        self.each(pages, hide, |here, start, end| {
            here.shown.remove_but(start, end, &here.touched);
        });
    }

    /// Does something for the bytes of the watched input in `span`, and for them where their node
    /// has them; writes down how much there is.
    fn each(
        &mut self,
        span: Span,
        mut f: impl FnMut(&mut Watch, usize, usize) -> usize,
        mut here: impl FnMut(&mut Here, usize, usize),
    ) {
        let Some(id) = self.watched else { return };
        let pieces: Vec<_> = self.tags.within(span).filter(|p| p.tag.input == id).collect();
        let Some(input) = self.inputs.get(id) else { return };
        let Some(watch) = &mut input.watch else { return };
        let root = input.root as usize;
        let change = |before: usize, after: usize| (after as u64).wrapping_sub(before as u64);
        let before = (watch.watched.total(), watch.touched.total());
        for p in pieces {
            let (start, end) = (p.tag.offset, p.tag.offset + p.span.len());
            f(watch, start, end);
            let place = watch.here.entry(p.tag.node).or_default();
            let before = (place.shown.total(), place.touched.total());
            here(place, start, end);
            let after = (place.shown.total(), place.touched.total());
            let node = p.tag.node as usize;
            self.book.add(NODES, node, node::SHOWN, change(before.0, after.0));
            self.book.add(NODES, node, node::TOUCHED_HERE, change(before.1, after.1));
        }
        let after = (watch.watched.total(), watch.touched.total());
        self.book.add(NODES, root, node::WATCHED, change(before.0, after.0));
        self.book.add(NODES, root, node::TOUCHED, change(before.1, after.1));
    }
}
