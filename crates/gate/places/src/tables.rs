//! Jump tables: offsets of 32 bits from the table's own address.

use crate::cursor::Cursor;
use crate::object::Object;

/// The entries of a jump table at `table`, if it is one, and their places: up to the next one, or
/// to the first entry that leads out of the text.
pub(crate) fn entries(object: &Object<'_>, table: u64, next: u64, mut found: impl FnMut(u64, u64)) {
    let Some(bytes) = object.rest(table) else { return };
    let mut entries = Cursor::new(table, bytes);
    while entries.at < next {
        let at = entries.at;
        let Some(by) = entries.u32() else { return };
        let to = table.wrapping_add(by as i32 as u64);
        if !object.is_text(to) {
            return;
        }
        found(at, to);
    }
}
