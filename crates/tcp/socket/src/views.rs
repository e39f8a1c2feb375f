//! The owner of views gives each arena a region of its own.

use std::any::Any;
use std::sync::OnceLock;

/// A peer's arena as a region that views lie in.
pub trait Views: Any + Send + Sync {
    /// Views of it become memory of this process' own, as far as no call is reading it. Not with a
    /// lock held.
    fn recall(&self);
}

/// The region that the owner of views knows an arena by.
#[derive(Debug, Default)]
pub(crate) struct Known(OnceLock<Box<dyn Views>>);

impl Known {
    /// Made once. `None`: it could not be made.
    pub fn get<T: Views>(&self, make: impl FnOnce() -> Option<T>) -> Option<&T> {
        if self.0.get().is_none() {
            let made: Box<dyn Views> = Box::new(make()?);
            // (Another thread may have made one: this one ends.)
            let _ = self.0.set(made);
        }
        let known: &dyn Any = &**self.0.get()?;
        known.downcast_ref()
    }

    /// The region, if it was made.
    pub fn made(&self) -> Option<&dyn Views> {
        self.0.get().map(|known| &**known)
    }

    /// It ends.
    pub fn end(&mut self) {
        drop(self.0.take());
    }
}

impl std::fmt::Debug for dyn Views {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Views")
    }
}
