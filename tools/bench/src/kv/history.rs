//! Which value a request may find. Requests on several connections are under way at once, so that
//! may be one of several; never one that was replaced before the request began.

/// Not answered yet.
const UNANSWERED: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Set {
    key: u32,
    begun: u64,
    answered: u64,
}

/// Sets, by number, in the order in which they began.
#[derive(Debug)]
pub struct History {
    sets: Vec<Set>,
    /// Of each key, when the last began of those that are answered.
    replaced: Vec<u64>,
    clock: u64,
}

impl History {
    /// Of so many keys, none of which has a value.
    pub fn new(keys: usize) -> Self {
        Self { sets: vec![], replaced: vec![0; keys], clock: 0 }
    }

    /// A set begins: its number.
    pub fn begins(&mut self, key: usize) -> u32 {
        self.clock += 1;
        self.sets.push(Set { key: key as u32, begun: self.clock, answered: UNANSWERED });
        u32::try_from(self.sets.len() - 1).expect("fewer sets than that")
    }

    /// It is answered.
    pub fn answered(&mut self, number: u32) {
        self.clock += 1;
        let set = &mut self.sets[number as usize];
        set.answered = self.clock;
        let replaced = &mut self.replaced[set.key as usize];
        *replaced = (*replaced).max(set.begun);
    }

    /// A request for this key begins: to be handed to [`History::may_find`].
    pub fn asks(&self, key: usize) -> u64 {
        self.replaced[key]
    }

    /// Whether a request for `key` may find what set `number` gave: not if that was answered before
    /// another began that was answered itself before the request began.
    pub fn may_find(&self, key: usize, asked: u64, number: u32) -> bool {
        let set = self.sets.get(number as usize).filter(|set| set.key as usize == key);
        set.is_some_and(|set| set.answered >= asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_was_replaced_before_the_request_began_is_wrong() {
        let mut history = History::new(2);
        let first = history.begins(0);
        history.answered(first);
        let early = history.asks(0);
        let second = history.begins(0);
        // Both may be found while the second is under way, ...
        assert!(history.may_find(0, early, first) && history.may_find(0, early, second));
        history.answered(second);
        // ... also by a request that began meanwhile, ...
        assert!(history.may_find(0, early, first));
        // ... but not by one that began after.
        let late = history.asks(0);
        assert!(!history.may_find(0, late, first) && history.may_find(0, late, second));
    }

    #[test]
    fn of_sets_that_overlap_either_may_be_the_last() {
        let mut history = History::new(1);
        let (first, second) = (history.begins(0), history.begins(0));
        history.answered(second);
        history.answered(first);
        let asked = history.asks(0);
        assert!(history.may_find(0, asked, first) && history.may_find(0, asked, second));
    }

    #[test]
    fn a_value_of_another_key_or_of_no_set_is_wrong() {
        let mut history = History::new(2);
        let set = history.begins(1);
        assert!(!history.may_find(0, 0, set) && !history.may_find(1, 0, set + 1));
    }
}
