//! Regions: memory that extents lie in, and whose it is.
//!
//! The pool is ours. Every other region is somebody else's: the receive buffer of a user-level TCP
//! service, the blocks of a log. Its owner hands ranges of it over, filled; from then on nobody
//! writes there. When the last reference to such an extent goes, its range is *released*: it waits
//! in a queue until a caller takes it, to tell the owner without the lock. Each range that was
//! handed over is released once. A release needs no memory: room for it is made when the range is
//! handed over.

use uncopy_ranges::span::Span;

/// Names a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(u32);

impl RegionId {
    /// The pool: the only region whose pages are ours.
    pub const POOL: Self = Self(0);
}

/// The owner of a region, who gets ranges of it back.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// Called with `token` and a range that nobody uses any more. It is called without the lock, by
    /// whatever thread let go of the range last, in a signal handler too: it may not wait, nor call
    /// into us.
    pub release: fn(usize, Span),
    /// The value that the owner knows itself by. It has to be good until every range that was
    /// handed over has come back.
    pub token: usize,
}

/// Memory of somebody else's.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Where it is.
    pub span: Span,
    /// Whether its pages may be moved to the program's: it is private anonymous memory, and where
    /// its owner finds pages missing in what was released it gets fresh ones.
    pub movable: bool,
    /// The owner, who gets its ranges back.
    pub owner: Owner,
}

/// A range that nobody uses any more.
#[derive(Clone, Copy, Debug)]
pub struct Release {
    /// The region that it is of.
    pub region: RegionId,
    /// The span that was handed over, whole.
    pub span: Span,
    /// The owner, who is to be told.
    pub owner: Owner,
}

impl Release {
    /// Tells the owner. (Without the lock.)
    pub fn carry_out(self) {
        (self.owner.release)(self.owner.token, self.span);
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    region: Region,
    /// Its extents.
    extents: usize,
    /// Releases of it that wait to be taken.
    waiting: usize,
    /// Nothing more of it is taken.
    closed: bool,
    /// It is a parent process's: whatever ends here is no business of its owner's.
    inherited: bool,
}

/// Every region but the pool.
#[derive(Debug, Default)]
pub struct Regions {
    /// By number, less one.
    slots: Vec<Option<Slot>>,
    vacant: Vec<u32>,
    /// All extents of all of them.
    extents: usize,
    releases: Vec<Release>,
}

impl Regions {
    /// None.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new(), extents: 0, releases: Vec::new() }
    }

    /// One more; `None`: it is empty, or there is no memory for the books of it.
    pub fn begin(&mut self, region: Region) -> Option<RegionId> {
        let fits = self.slots.len() < u32::MAX as usize
            && self.slots.try_reserve(1).is_ok()
            && self.vacant.try_reserve(self.slots.capacity() - self.vacant.len()).is_ok();
        if region.span.is_empty() || !fits {
            return None;
        }
        let slot = Slot { region, extents: 0, waiting: 0, closed: false, inherited: false };
        let i = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[i as usize] = Some(slot);
        Some(RegionId(i + 1))
    }

    /// Nothing more of `id` will be handed over. Returns whether it is gone: nothing of it is in
    /// use, and no release of it waits.
    pub fn end(&mut self, id: RegionId) -> bool {
        let Some(slot) = self.slot_mut(id) else { return true };
        slot.closed = true;
        let gone = slot.extents == 0 && slot.waiting == 0;
        if gone {
            self.vacate(id);
        }
        gone
    }

    /// Whether `span` may become an extent in `id`, which counts from now on.
    #[must_use]
    pub fn hand_over(&mut self, id: RegionId, span: Span) -> bool {
        let Self { slots, extents, releases, .. } = self;
        let Some(slot) = index(id).and_then(|i| slots.get_mut(i)?.as_mut()) else { return false };
        let inside = !span.is_empty() && slot.region.span.intersect(span) == span;
        let taken = inside && !slot.closed && releases.try_reserve(*extents + 1).is_ok();
        if taken {
            slot.extents += 1;
            *extents += 1;
        }
        taken
    }

    /// Takes back the span that was just handed over and not used after all: it is its owner's,
    /// without a release.
    pub fn withdraw(&mut self, id: RegionId) {
        self.extents -= 1;
        if let Some(slot) = self.slot_mut(id) {
            slot.extents -= 1;
        }
    }

    /// An extent over `span` in `id` has ended.
    pub fn release(&mut self, id: RegionId, span: Span) {
        self.extents -= 1;
        let Some(slot) = self.slot_mut(id) else { return };
        slot.extents -= 1;
        if slot.inherited {
            if slot.extents == 0 {
                self.vacate(id);
            }
            return;
        }
        slot.waiting += 1;
        let owner = slot.region.owner;
        debug_assert!(self.releases.len() < self.releases.capacity(), "no room was made for it");
        self.releases.push(Release { region: id, span, owner });
    }

    /// Whether releases wait.
    #[inline]
    pub fn releases_wait(&self) -> bool {
        !self.releases.is_empty()
    }

    /// A release, to be carried out.
    pub fn take_release(&mut self) -> Option<Release> {
        let release = self.releases.pop()?;
        if let Some(slot) = self.slot_mut(release.region) {
            slot.waiting -= 1;
        }
        Some(release)
    }

    /// All extents that lie in any of them.
    pub const fn extents(&self) -> usize {
        self.extents
    }

    /// Whether pages of `id` may be moved to the program's.
    pub fn movable(&self, id: RegionId) -> bool {
        self.slot(id).is_some_and(|s| s.region.movable && !s.inherited)
    }

    /// Whether `span` lies in `id`.
    pub fn holds(&self, id: RegionId, span: Span) -> bool {
        self.slot(id).is_some_and(|s| s.region.span.intersect(span) == span)
    }

    /// In a forked child: a region belongs to the process that began it. Extents still in use of it
    /// here end without a release.
    pub fn inherited(&mut self) {
        self.releases.clear();
        for i in 0..self.slots.len() {
            let Some(slot) = &mut self.slots[i] else { continue };
            (slot.waiting, slot.closed, slot.inherited) = (0, true, true);
            if slot.extents == 0 {
                self.vacate(RegionId(i as u32 + 1));
            }
        }
    }

    fn vacate(&mut self, id: RegionId) {
        if let Some(i) = index(id) {
            self.slots[i] = None;
            self.vacant.push(i as u32);
        }
    }

    fn slot(&self, id: RegionId) -> Option<&Slot> {
        self.slots.get(index(id)?)?.as_ref()
    }

    fn slot_mut(&mut self, id: RegionId) -> Option<&mut Slot> {
        self.slots.get_mut(index(id)?)?.as_mut()
    }
}

fn index(id: RegionId) -> Option<usize> {
    (id.0 as usize).checked_sub(1)
}
