//! A set that is itself waited for, by another set or by poll.

use super::Set;
use super::entry::Entry;
use crate::lock::lock;
use libc::EPOLLET;
use rustix::event::PollFlags;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use uncopy_tcp_shared::wanted::Doors;

impl Set {
    /// It is itself waited for, by another set or by poll: from now on the kernel's set is ready when a ring has news.
    pub fn nest(&self) {
        if !self.queue.nested.swap(true, AcqRel) {
            let all: Vec<_> = lock(&self.entries).by_fd.values().cloned().collect();
            all.iter().for_each(|entry| self.sweep(entry));
        }
        self.tell_kernel();
    }

    pub(super) fn sweep(&self, entry: &Arc<Entry>) {
        let mut swept = lock(&self.swept);
        if !swept.iter().any(|other| Arc::ptr_eq(other, entry)) {
            swept.push(entry.clone());
        }
    }

    /// Where it is nested: makes the kernel's set ready if something is there; else whoever brings something knocks.
    pub(super) fn tell_kernel(&self) {
        let swept = lock(&self.swept).clone();
        for entry in swept {
            if entry.off.load(Acquire) || !entry.flow.is_attached() {
                continue;
            }
            let asked = entry.events.load(Relaxed);
            entry.flow.arm(PollFlags::from_bits_retain(asked as u16), Doors::wake(self.door));
            if Self::now(&entry.flow, asked).0 != 0 && asked & EPOLLET as u32 == 0 {
                self.wake();
            }
        }
    }
}
