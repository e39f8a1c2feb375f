//! A thread's rights: its real and saved user and group. A right that it can come back to does not
//! count as given up.
//!
//! unsafe: asks the kernel for the ids of the calling thread.

use crate::call::syscall4;
use core::sync::atomic::{AtomicU32, Ordering};

/// The ids of a thread at some time.
#[derive(Debug, Default)]
pub struct Ids([AtomicU32; 4]);

impl Ids {
    /// Nobody's.
    pub const fn new() -> Self {
        Self([const { AtomicU32::new(0) }; 4])
    }

    /// Those of the calling thread now.
    pub fn note(&self) {
        for (word, id) in self.0.iter().zip(ids()) {
            word.store(id, Ordering::Relaxed);
        }
    }

    /// Whether the calling thread has others now.
    pub fn are_others(&self) -> bool {
        self.0.iter().zip(ids()).any(|(word, id)| word.load(Ordering::Relaxed) != id)
    }
}

fn ids() -> [u32; 4] {
    let ask = |call: i64| {
        let mut three = [0u32; 3];
        let [real, effective, saved] = &mut three;
        let at = |id: &mut u32| core::ptr::from_mut(id) as usize;
        // SAFETY: writes three numbers of ours.
        unsafe { syscall4(call as usize, at(real), at(effective), at(saved), 0) };
        [three[0], three[2]]
    };
    let ([user, saved_user], [group, saved_group]) =
        (ask(libc::SYS_getresuid), ask(libc::SYS_getresgid));
    [user, saved_user, group, saved_group]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_changed_nothing_has_the_ids_that_were_noted() {
        let ids = Ids::new();
        ids.note();
        assert!(!ids.are_others());
        ids.0[1].fetch_add(1, Ordering::Relaxed);
        assert!(ids.are_others());
    }
}
