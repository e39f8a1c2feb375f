//! Whether the calling thread is in here: what it calls then is not followed.

use core::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// From now on it is, or is not.
pub fn set(inside: bool) {
    INSIDE.with(|i| i.set(inside));
}

/// Whether it is.
pub fn is() -> bool {
    INSIDE.with(Cell::get)
}
