//! Where text may be entered otherwise than from the instruction before, beyond what the sweep of
//! its instructions has found: see the crate.

use crate::Trouble;
use crate::frames;
use crate::object::Object;
use crate::sweep::Swept;
use crate::tables::entries;

/// Adds them. Addresses in data count only where an instruction begins: a word that looks like an
/// address within one is none.
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
