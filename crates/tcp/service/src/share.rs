//! How much of the descriptors that there are one user's programs may cost: those that the service
//! holds for them, and those that it has sent and they have not taken
//! (Linux counts both, and refuses what is over to all of the service's user).

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    used: Arc<AtomicUsize>,
    most: usize,
}

impl Share {
    /// So many.
    pub fn new(most: usize) -> Self {
        Self { used: Arc::default(), most }
    }

    /// So many, if there is room for them.
    pub fn take(&self, count: usize) -> Option<Taken> {
        let mut taken = Taken { share: self.clone(), count: 0 };
        taken.more(count).then_some(taken)
    }

    /// There is room for so many.
    pub fn has(&self, count: usize) -> bool {
        self.used.load(Relaxed).saturating_add(count) <= self.most
    }
}

/// A part of a share, until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    share: Share,
    count: usize,
}

impl Taken {
    /// So many more. False: there is no room.
    pub fn more(&mut self, count: usize) -> bool {
        let most = self.share.most;
        let fits = |used: usize| used.checked_add(count).filter(|sum| *sum <= most);
        let took = self.share.used.fetch_update(Relaxed, Relaxed, fits).is_ok();
        self.count += if took { count } else { 0 };
        took
    }

    /// So many less.
    pub fn less(&mut self, count: usize) {
        self.count -= count;
        self.share.used.fetch_sub(count, Relaxed);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.less(self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_share_is_given_back_and_no_more_is_given_than_there_is() {
        let share = Share::new(10);
        let mut some = share.take(8).unwrap();
        assert!(share.has(2) && !share.has(3) && share.take(3).is_none() && !some.more(3));
        assert!(some.more(2) && !share.has(1));
        some.less(5);
        assert!(share.take(5).is_some());
        drop(some);
        assert!(share.has(10) && !share.has(11));
    }
}
