//! Connections by number. A number that was given once is never given again: so an event of a
//! connection that was closed meanwhile finds nothing.

use crate::event::Id;

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// See above.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: vec![], free: vec![] }
    }
}

impl<T> Slots<T> {
    /// The number that `make` makes a value for.
    pub fn insert<E>(&mut self, make: impl FnOnce(Id) -> Result<T, E>) -> Result<Id, E> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.slots.push(Slot { generation: 0, value: None });
                self.slots.len() - 1
            }
        };
        let id = Id::new(index, self.slots[index].generation);
        match make(id) {
            Ok(value) => {
                self.slots[index].value = Some(value);
                Ok(id)
            }
            Err(error) => {
                self.free.push(index);
                Err(error)
            }
        }
    }

    pub fn get(&self, id: Id) -> Option<&T> {
        let slot = self.slots.get(id.index())?;
        slot.value.as_ref().filter(|_| slot.generation == id.generation())
    }

    pub fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index())?;
        slot.value.as_mut().filter(|_| slot.generation == id.generation())
    }

    pub fn remove(&mut self, id: Id) -> Option<T> {
        let slot = self.slots.get_mut(id.index())?;
        if slot.generation != id.generation() {
            return None;
        }
        let value = slot.value.take()?;
        // (A slot whose numbers are used up rests.)
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(id.index());
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_given_again_when_its_slot_is() {
        let mut slots = Slots::default();
        let first = slots.insert(|_| Ok::<_, ()>("first")).unwrap();
        assert_eq!(slots.remove(first), Some("first"));
        let second = slots.insert(|_| Ok::<_, ()>("second")).unwrap();
        assert_eq!((first.index(), second.index()), (0, 0));
        assert_ne!(first, second);
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get(second), Some(&"second"));
    }

    #[test]
    fn a_value_that_cannot_be_made_takes_no_slot() {
        let mut slots = Slots::<u8>::default();
        assert_eq!(slots.insert(|_| Err("no")), Err("no"));
        assert_eq!(slots.insert(|_| Ok::<_, ()>(7)).unwrap().index(), 0);
    }
}
