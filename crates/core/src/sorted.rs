//! A sorted map from addresses to views, made for runs of neighbours.
//!
//! Leaves of up to 64 entries in a vector, found by the first key of each. A lookup is two binary
//! searches over contiguous keys; the entries that follow are the next ones in memory. (A
//! `BTreeMap` spends most of an elided copy in `range`: measured at 64 KB, 12 copies, a third of
//! the server's time.) Splitting a leaf moves the vector of leaves: with 100,000 views that is
//! 2,000 words once in 32 insertions.

use crate::view::View;

const LEAF: usize = 64;

#[derive(Debug)]
struct Leaf {
    keys: Vec<usize>,
    views: Vec<View>,
}

impl Leaf {
    fn new() -> Self {
        Self { keys: Vec::with_capacity(LEAF), views: Vec::with_capacity(LEAF) }
    }
}

/// Where an entry is. Any insertion or removal makes it void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    leaf: usize,
    slot: usize,
}

/// The map. No leaf is empty.
#[derive(Debug, Default)]
pub struct Sorted {
    leaves: Vec<Leaf>,
    /// The first key of each leaf.
    firsts: Vec<usize>,
    count: usize,
}

impl Sorted {
    /// Empty.
    pub const fn new() -> Self {
        Self { leaves: Vec::new(), firsts: Vec::new(), count: 0 }
    }

    /// Whether there is room in the lists of leaves for `leaves` more.
    #[inline]
    pub fn reserve(&mut self, leaves: usize) -> bool {
        self.leaves.try_reserve(leaves).is_ok() && self.firsts.try_reserve(leaves).is_ok()
    }

    /// Entries.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The last entry whose key is at most `key`.
    #[inline]
    pub fn floor(&self, key: usize) -> Option<Cursor> {
        let leaf = self.firsts.partition_point(|f| *f <= key).checked_sub(1)?;
        let slot = self.leaves[leaf].keys.partition_point(|k| *k <= key) - 1;
        Some(Cursor { leaf, slot })
    }

    /// The first entry.
    pub fn first(&self) -> Option<Cursor> {
        (self.count > 0).then_some(Cursor { leaf: 0, slot: 0 })
    }

    /// The entry after `place`.
    #[inline]
    pub fn next(&self, at: Cursor) -> Option<Cursor> {
        let Cursor { leaf, slot } = at;
        if slot + 1 < self.leaves[leaf].keys.len() {
            Some(Cursor { leaf, slot: slot + 1 })
        } else {
            (leaf + 1 < self.leaves.len()).then_some(Cursor { leaf: leaf + 1, slot: 0 })
        }
    }

    /// The first entry whose key is at least `key`.
    #[inline]
    pub fn ceiling(&self, key: usize) -> Option<Cursor> {
        match self.floor(key) {
            Some(p) if self.key(p) == key => Some(p),
            Some(p) => self.next(p),
            None => self.first(),
        }
    }

    /// The key at `place`.
    #[inline]
    pub fn key(&self, at: Cursor) -> usize {
        self.leaves[at.leaf].keys[at.slot]
    }

    /// The view at `place`.
    #[inline]
    pub fn view(&self, at: Cursor) -> &View {
        &self.leaves[at.leaf].views[at.slot]
    }

    /// The view at `place`, to be changed.
    #[inline]
    pub fn view_mut(&mut self, at: Cursor) -> &mut View {
        &mut self.leaves[at.leaf].views[at.slot]
    }

    /// Adds an entry; there is none with this key.
    pub fn insert(&mut self, key: usize, view: View) {
        self.count += 1;
        let Some(at) = self.floor(key) else {
            if self.leaves.is_empty() {
                self.leaves.push(Leaf::new());
                self.firsts.push(key);
            }
            self.firsts[0] = key;
            return self.insert_in(0, 0, key, view);
        };
        debug_assert_ne!(self.key(at), key, "inserted twice");
        self.insert_in(at.leaf, at.slot + 1, key, view);
    }

    fn insert_in(&mut self, leaf: usize, slot: usize, key: usize, view: View) {
        let l = &mut self.leaves[leaf];
        l.keys.insert(slot, key);
        l.views.insert(slot, view);
        if l.keys.len() == LEAF {
            let mut right = Leaf::new();
            right.keys.extend(l.keys.drain(LEAF / 2..));
            right.views.extend(l.views.drain(LEAF / 2..));
            self.firsts.insert(leaf + 1, right.keys[0]);
            self.leaves.insert(leaf + 1, right);
        }
    }

    /// Takes out all entries with keys in `from..until`, in order.
    pub fn remove(&mut self, from: usize, until: usize, mut each: impl FnMut(usize, View)) {
        while let Some(p) = self.ceiling(from).filter(|p| self.key(*p) < until) {
            let l = &mut self.leaves[p.leaf];
            let end = l.keys.partition_point(|k| *k < until);
            self.count -= end - p.slot;
            for (k, v) in l.keys.drain(p.slot..end).zip(l.views.drain(p.slot..end)) {
                each(k, v);
            }
            if l.keys.is_empty() {
                self.leaves.remove(p.leaf);
                self.firsts.remove(p.leaf);
            } else {
                self.firsts[p.leaf] = l.keys[0];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extents::ExtentId;
    use std::collections::BTreeMap;

    #[test]
    fn it_agrees_with_a_btreemap() {
        let (mut map, mut model) = (Sorted::new(), BTreeMap::new());
        let mut seed = 1u64;
        for step in 0..20_000 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let key = (seed >> 33) as usize % 5000;
            let view = View { end: key + step, extent: ExtentId(step as u32), offset: 0, site: 0 };
            if seed >> 60 == 0 {
                let mut out = Vec::new();
                map.remove(key, key + 300, |k, v| out.push((k, v)));
                let gone: Vec<_> = model.range(key..key + 300).map(|(k, v)| (*k, *v)).collect();
                assert_eq!(out, gone);
                model.retain(|k, _| !(key..key + 300).contains(k));
            } else if model.insert(key, view).is_none() {
                map.insert(key, view);
            } else {
                *map.view_mut(map.floor(key).unwrap()) = view;
            }
            let probe = (seed >> 20) as usize % 5200;
            let floor = map.floor(probe).map(|p| (map.key(p), *map.view(p)));
            assert_eq!(floor, model.range(..=probe).next_back().map(|(k, v)| (*k, *v)));
            let ceiling = map.ceiling(probe).map(|p| map.key(p));
            assert_eq!(ceiling, model.range(probe..).next().map(|(k, _)| *k));
            assert_eq!(map.count(), model.len());
        }
        let mut all = Vec::new();
        let mut at = map.first();
        while let Some(p) = at {
            all.push(map.key(p));
            at = map.next(p);
        }
        assert_eq!(all, model.keys().copied().collect::<Vec<_>>());
    }
}
