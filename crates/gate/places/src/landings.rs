//! Where text may be entered otherwise than from the instruction before, beyond what the sweep of
//! its instructions has found: see the crate.

use crate::Trouble;
use crate::cursor::Cursor;
use crate::frames;
use crate::object::Object;
use crate::sweep::Swept;

/// Adds them. What is said by data counts only where an instruction begins: a word that looks like
/// an address within one is none.
pub(crate) fn add(object: &Object<'_>, swept: &mut Swept) -> Result<(), Trouble> {
    let mut found: Vec<u64> = swept.functions.iter().map(|it| it.first).collect();
    found.extend_from_slice(&object.symbols);
    for function in &swept.functions {
        found.extend(frames::pads(object, function)?);
    }
    for data in object.data() {
        found.extend(data.words());
    }
    for (i, &table) in swept.computed.iter().enumerate() {
        let next = swept.computed.get(i + 1).copied().unwrap_or(u64::MAX);
        entries(object, table, next, |_, to| found.push(to));
    }
    for at in found {
        if swept.begins.has(at) {
            swept.landings.set(at);
        }
    }
    Ok(())
}

/// What stands in a jump table at `table`, if it is one, and where: up to the next one, or to the
/// first entry that leads out of the text.
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
