//! The pairs. Threads share them; each key's part has a lock.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

const PARTS: usize = 64;

/// A value, with the number that its client gave it to be told again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// The client's own.
    pub flags: u32,
    /// The value.
    pub bytes: Box<[u8]>,
}

type Part = HashMap<Box<[u8]>, Value>;

/// See above.
#[derive(Debug)]
pub struct Store {
    hasher: RandomState,
    parts: [Mutex<Part>; PARTS],
}

impl Default for Store {
    fn default() -> Self {
        Self { hasher: RandomState::new(), parts: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Store {
    fn with<R>(&self, key: &[u8], use_it: impl FnOnce(&mut Part) -> R) -> R {
        let part = &self.parts[self.hasher.hash_one(key) as usize % PARTS];
        // (Nothing of ours panics while it holds one.)
        use_it(&mut part.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hands the value to `use_it`, if there is one.
    pub fn get(&self, key: &[u8], use_it: impl FnOnce(&Value)) {
        self.with(key, |part| {
            if let Some(value) = part.get(key) {
                use_it(value);
            }
        });
    }

    /// Sets the value of `key`.
    pub fn set(&self, key: &[u8], flags: u32, bytes: &[u8]) {
        self.with(key, |part| match part.get_mut(key) {
            Some(value) => {
                value.flags = flags;
                if value.bytes.len() == bytes.len() {
                    value.bytes.copy_from_slice(bytes);
                } else {
                    value.bytes = bytes.into();
                }
            }
            None => {
                part.insert(key.into(), Value { flags, bytes: bytes.into() });
            }
        });
    }

    /// From now on there is none. True: there was one.
    pub fn delete(&self, key: &[u8]) -> bool {
        self.with(key, |part| part.remove(key).is_some())
    }
}
