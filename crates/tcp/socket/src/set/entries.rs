//! Which connections are in a set, and which is which: by its number, and by the program's data,
//! which is all the kernel says.

use super::by_number::ByNumber;
use super::entry::Entry;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// See above.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) by_fd: ByNumber<RawFd, Arc<Entry>>,
    pub(super) by_data: ByNumber<u64, Vec<Arc<Entry>>>,
    /// Those of which every wait looks: a parent process attached them, for notices of their region
    /// are the parent's.
    pub(super) swept: Vec<Arc<Entry>>,
}

impl Entries {
    pub(super) fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let older = self.remove(entry.fd);
        self.by_data.entry(entry.data.load(Relaxed)).or_default().push(entry.clone());
        self.by_fd.insert(entry.fd, entry);
        older
    }

    pub(super) fn remove(&mut self, fd: RawFd) -> Option<Arc<Entry>> {
        let entry = self.by_fd.remove(&fd)?;
        self.forget_data(&entry);
        self.swept.retain(|other| !Arc::ptr_eq(other, &entry));
        Some(entry)
    }

    /// Removes this one, unless another has its number by now.
    pub(super) fn forget(&mut self, entry: &Entry) {
        if self.has(entry) {
            self.remove(entry.fd);
        }
    }

    /// The connection of this number, as it was added.
    pub(super) fn of_number(&self, fd: RawFd) -> Option<Arc<Entry>> {
        self.by_fd.get(&fd).filter(|entry| entry.has_its_number()).cloned()
    }

    pub(super) fn has(&self, entry: &Entry) -> bool {
        self.by_fd.get(&entry.fd).is_some_and(|other| std::ptr::eq(&raw const **other, entry))
    }

    /// Every wait looks at it, as long as it is in the set.
    pub(super) fn sweep(&mut self, entry: &Arc<Entry>) {
        if self.has(entry) && !self.swept.iter().any(|other| Arc::ptr_eq(other, entry)) {
            self.swept.push(entry.clone());
        }
    }

    pub(super) fn of_data(&self, data: u64) -> Same {
        match self.by_data.get(&data).map(Vec::as_slice) {
            None => Same::None,
            Some([one]) => Same::One([one.clone()]),
            Some(several) => Same::Several(several.to_vec()),
        }
    }

    fn forget_data(&mut self, entry: &Arc<Entry>) {
        let data = entry.data.load(Relaxed);
        if let Some(same) = self.by_data.get_mut(&data) {
            same.retain(|other| !Arc::ptr_eq(other, entry));
            if same.is_empty() {
                self.by_data.remove(&data);
            }
        }
    }

    pub(super) fn change_data(&mut self, entry: &Arc<Entry>, data: u64) {
        // (Another thread may have closed it.)
        if entry.data.load(Relaxed) != data && self.has(entry) {
            self.forget_data(entry);
            entry.data.store(data, Relaxed);
            self.by_data.entry(data).or_default().push(entry.clone());
        }
    }
}

/// Entries with the same data.
pub(super) enum Same {
    None,
    One([Arc<Entry>; 1]),
    Several(Vec<Arc<Entry>>),
}

impl Same {
    pub(super) fn as_slice(&self) -> &[Arc<Entry>] {
        match self {
            Self::None => &[],
            Self::One(one) => one,
            Self::Several(several) => several,
        }
    }
}
