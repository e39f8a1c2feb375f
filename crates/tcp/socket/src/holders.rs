//! How many processes hold a connection that nobody has registered yet: forked children hold it
//! too. Only where one process is left it may be registered, for the others would go on sending and
//! receiving by Linux.
//!
//! unsafe: pages that a process and its children share.

use crate::lock::{Guarded, lock};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use uncopy_kernel::placement;

const PAGE: usize = 4096;
const WORDS: usize = PAGE / size_of::<AtomicU32>();

#[derive(Debug)]
struct Page(NonNull<AtomicU32>);

// SAFETY: atomics.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    fn new() -> Result<Self, Errno> {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        let at = placement::SMALL.next(PAGE) as *mut _;
        // SAFETY: a new mapping.
        let at = unsafe { mmap_anonymous(at, PAGE, flags, MapFlags::SHARED) }?;
        NonNull::new(at.cast()).map(Self).ok_or(Errno::NOMEM)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at < WORDS);
        // SAFETY: within the page.
        unsafe { self.0.add(at).as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: ours.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), PAGE) };
    }
}

/// Where the next connection's word is. A child does not go on with its parent's page.
#[derive(Debug, Default)]
pub(crate) struct Words(Option<(Arc<Page>, usize)>);

impl Words {
    fn next(&mut self) -> Result<(Arc<Page>, usize), Errno> {
        let (page, at) = match self.0.take() {
            Some((page, at)) if at < WORDS => (page, at),
            _ => (Arc::new(Page::new()?), 0),
        };
        self.0 = Some((page.clone(), at + 1));
        Ok((page, at))
    }
}

/// Of one connection. None: this process alone.
#[derive(Debug, Default)]
pub(crate) struct Holders(Guarded<Option<(Arc<Page>, usize)>>);

impl Holders {
    /// This process alone holds it.
    pub fn sole(&self) -> bool {
        lock(&self.0).as_ref().is_none_or(|(page, at)| page.word(*at).load(Acquire) == 1)
    }

    /// A child will hold it too.
    pub fn one_more(&self, words: &mut Words) -> Result<(), Errno> {
        let mut word = lock(&self.0);
        if word.is_none() {
            let (page, at) = words.next()?;
            page.word(at).store(1, Relaxed);
            *word = Some((page, at));
        }
        if let Some((page, at)) = &*word {
            page.word(*at).fetch_add(1, AcqRel);
        }
        Ok(())
    }

    /// As another value of the same connection.
    pub fn take_over(&self, other: &Self) {
        let word = lock(&other.0).take();
        *lock(&self.0) = word;
    }

    pub fn hold(&self) {
        self.0.hold();
    }

    pub fn let_go(&self) {
        self.0.let_go();
    }

    /// This process does not hold it any more.
    pub fn one_less(&self) {
        if let Some((page, at)) = lock(&self.0).take() {
            page.word(at).fetch_sub(1, AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_may_be_shown_again_when_all_but_one_have_closed_it() {
        let (mut words, holders) = (Words::default(), Holders::default());
        assert!(holders.sole());
        holders.one_more(&mut words).unwrap();
        assert!(!holders.sole());
        // As the child does: it shares the page.
        let child = Holders(Guarded::new(lock(&holders.0).clone()));
        holders.one_less();
        assert!(child.sole());
    }

    #[test]
    fn a_page_that_is_full_is_followed_by_another() {
        let mut words = Words::default();
        let all: Vec<Holders> = (0..WORDS + 10).map(|_| Holders::default()).collect();
        for holders in &all {
            holders.one_more(&mut words).unwrap();
        }
        assert!(all.iter().all(|holders| !holders.sole()));
    }
}
