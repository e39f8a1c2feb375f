//! Turns of the rings and of the kernel. Connections that are ready are told of in rounds, as the
//! kernel does with its list of what is ready by level, where an entry that was told of goes to the
//! end. A round is what is queued, then what the kernel says. So nobody waits for more than one
//! round, whatever the others have.

use super::by_number::ByNumber;
use super::events::door;
use std::collections::VecDeque;
use std::sync::Arc;

/// The entries that are to be looked at, and whose turn it is.
#[derive(Debug)]
pub(super) struct Turns<T> {
    pub(super) entries: VecDeque<Arc<T>>,
    /// Of these, those that are still to be looked at in this round.
    left: usize,
    /// The program has left one of this round's as it was when it was told of it before.
    is_left: bool,
    /// It is the kernel's turn.
    kernel: bool,
    /// So many of what is queued come before something of Linux', and the others after it.
    before_linux: Option<usize>,
    /// So many of what is queued come before all that stands behind the door in what Linux says,
    /// and the others after it.
    before_rest: Option<usize>,
    /// The data that the kernel has told in its turn, where it had more than there was room for.
    told: ByNumber<u64, ()>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            left: 0,
            is_left: false,
            kernel: false,
            before_linux: None,
            before_rest: None,
            told: ByNumber::default(),
        }
    }
}

impl<T> Turns<T> {
    /// How many connections are to be looked at before it is the kernel's turn; and whether one of
    /// this round's before them was left as it was. Where none is left a round begins.
    pub(super) fn left(&mut self) -> (usize, bool) {
        if self.left == 0 {
            self.left = self.entries.len();
            self.is_left = false;
        }
        // (Some may have left the queue.)
        self.left = self.left.min(self.entries.len());
        (self.left.min(self.before_linux.unwrap_or(usize::MAX)), self.is_left)
    }

    /// A round of the rings' has begun, and is not over.
    pub(super) fn has_begun(&self) -> bool {
        self.left > 0
    }

    /// The next one.
    pub(super) fn next(&mut self) -> Option<Arc<T>> {
        self.left = self.left.saturating_sub(1);
        for before in [&mut self.before_linux, &mut self.before_rest] {
            *before = before.map(|before| before.saturating_sub(1));
        }
        self.entries.pop_front()
    }

    /// One of this round's was left as it was.
    pub(super) fn one_is_left(&mut self) {
        self.is_left = true;
    }

    /// It is the kernel's turn from now on.
    pub(super) fn kernel_is_next(&mut self) {
        self.kernel = true;
    }

    /// Entries that are queued from now on come after something of Linux'.
    pub(super) fn linux_follows(&mut self) {
        self.before_linux.get_or_insert(self.entries.len());
    }

    /// Entries that are queued from now on come after all that Linux has then.
    pub(super) fn rest_follows(&mut self) {
        self.before_rest.get_or_insert(self.entries.len());
    }

    /// Linux has said what it has. The entries before what stands behind the door are next; none of
    /// them, if the door does not say so.
    pub(super) fn linux_has_said(&mut self, door: bool) {
        let before_rest = self.before_rest.take();
        self.before_linux = before_rest.filter(|_| door);
    }

    /// A caller that looks asks the kernel when it likes: nothing waits for that.
    pub(super) fn linux_has_no_turn(&mut self) {
        self.before_linux = None;
        self.before_rest = None;
    }

    /// The entries before something of Linux' were told of: then it is the kernel's turn.
    pub(super) fn is_linux_next(&mut self) -> bool {
        let before = self.entries.len().min(self.before_linux.unwrap_or(usize::MAX));
        let is_next = before == 0 && self.before_linux.take().is_some();
        self.kernel |= is_next;
        is_next
    }

    /// It is the kernel's turn.
    pub(super) fn is_kernels(&mut self) -> bool {
        self.is_linux_next() || self.kernel
    }

    /// In its turn the kernel has said this, which is `all` of it or as much as there was room for.
    /// Its turn is over when all is said, or something is said again: the kernel's list goes round.
    pub(super) fn kernel_said(&mut self, mut said: impl Iterator<Item = u64>, all: bool) {
        let told = &mut self.told;
        let is_again = |data| data != door() && told.insert(data, ()).is_some();
        if all || said.any(is_again) {
            self.kernel = false;
            self.told.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel's list of so many that stay ready, and what it says where there is room for so
    /// many.
    struct Kernel(VecDeque<u64>);

    impl Kernel {
        fn says(&mut self, turns: &mut Turns<()>, room: usize) -> Vec<u64> {
            let said: Vec<u64> = self.0.iter().copied().take(room).collect();
            self.0.rotate_left(said.len());
            turns.kernel_said(said.iter().copied(), said.len() < room);
            said
        }
    }

    #[test]
    fn in_each_turn_of_the_kernels_all_are_told_of() {
        for ready in [1, 2, 3, 7, 10] {
            for room in [1, 2, 3, 8] {
                let (mut turns, mut kernel) = (Turns::default(), Kernel((0..ready).collect()));
                for _ in 0..100 {
                    turns.kernel_is_next();
                    let (mut told, mut calls) = (vec![0; ready as usize], 0);
                    while turns.is_kernels() {
                        calls += 1;
                        for data in kernel.says(&mut turns, room) {
                            told[data as usize] += 1;
                        }
                    }
                    assert!(told.iter().all(|&told| told > 0), "{ready}, {room}: {told:?}");
                    assert!(calls <= ready as usize / room + 1, "{ready}, {room}: {calls}");
                }
            }
        }
    }

    #[test]
    fn a_turn_ends_also_where_the_first_that_was_told_of_is_not_ready_any_more() {
        let (mut turns, mut kernel) = (Turns::default(), Kernel((0..4).collect()));
        turns.kernel_is_next();
        assert_eq!(kernel.says(&mut turns, 1), [0]);
        kernel.0.pop_back();
        for data in [1, 2, 3, 1] {
            assert!(turns.is_kernels());
            assert_eq!(kernel.says(&mut turns, 1), [data]);
        }
        assert!(!turns.is_kernels());
    }
}
