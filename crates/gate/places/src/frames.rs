//! Which functions an object has, by the tables of the unwinder: `.eh_frame_hdr` lists the entries
//! of `.eh_frame`, each of which describes a run of text. (The formats are in the Linux Standard
//! Base, "Exception Frames", and in DWARF.)

use crate::Trouble;
use crate::cursor::Cursor;
use crate::object::Object;

/// A run of text that the tables describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its first instruction.
    pub first: u64,
    /// Behind its last one.
    pub end: u64,
    /// The address that offsets of its landing pads count from.
    pub base: u64,
    /// Where its landing pads are listed, if it has any.
    pub pads: Option<u64>,
}

/// The fields that several entries have in common.
struct Common {
    address: u8,
    pads: u8,
    has_more: bool,
    /// Frames of signals. They begin a byte early, in the instruction before: unwinders look up the
    /// byte before a return address.
    signal: bool,
}

const OMITTED: u8 = 0xff;

/// All of them.
pub(crate) fn functions(object: &Object<'_>) -> Result<Vec<Function>, Trouble> {
    object.frames.and_then(|at| listed(object, at)).ok_or(Trouble::NoFrames)
}

fn listed(object: &Object<'_>, at: u64) -> Option<Vec<Function>> {
    let mut table = Cursor::new(at, object.rest(at)?);
    let (version, frames, count, entries) = (table.u8()?, table.u8()?, table.u8()?, table.u8()?);
    // (As every linker writes it: count and pairs of 32 bits, the latter relative to the table.)
    if (version, count, entries) != (1, 0x03, 0x3b) {
        return None;
    }
    table.encoded(frames)?;
    let count = table.u32()?;
    let mut all = Vec::new();
    for _ in 0..count {
        let _first = table.u32()?;
        all.push(function(object, at.wrapping_add(table.u32()? as i32 as u64))?);
    }
    Some(all)
}

fn function(object: &Object<'_>, at: u64) -> Option<Function> {
    let mut all = Cursor::new(at, object.rest(at)?);
    let n = sized(&mut all)?;
    let mut entry = all.part(n)?;
    let here = entry.at;
    let common = common(object, here.wrapping_sub(u64::from(entry.u32()?)))?;
    let base = entry.encoded(common.address)?;
    let length = entry.encoded(common.address & 0x0f)?;
    let mut pads = None;
    if common.has_more {
        let n = entry.uleb()?;
        let mut more = entry.part(n)?;
        if common.pads != OMITTED {
            pads = Some(more.encoded(common.pads)?).filter(|&it| it != 0);
        }
    }
    let first = base + u64::from(common.signal);
    Some(Function { first, end: base.checked_add(length)?, base, pads })
}

fn common(object: &Object<'_>, at: u64) -> Option<Common> {
    let mut all = Cursor::new(at, object.rest(at)?);
    let n = sized(&mut all)?;
    let mut entry = all.part(n)?;
    let (identifier, version) = (entry.u32()?, entry.u8()?);
    if identifier != 0 || !matches!(version, 1 | 3) {
        return None;
    }
    let what = entry.text()?;
    // The factors of code and data, and the register of the return address.
    entry.uleb()?;
    entry.uleb()?;
    if version == 1 {
        entry.u8()?;
    } else {
        entry.uleb()?;
    }
    let mut common = Common { address: 0, pads: OMITTED, has_more: false, signal: false };
    for letter in what {
        match letter {
            b'z' => {
                common.has_more = true;
                entry.uleb()?;
            }
            b'R' => common.address = entry.u8()?,
            b'L' => common.pads = entry.u8()?,
            b'P' => {
                // (Where the personality stands; only how long that is matters.)
                let how = entry.u8()?;
                entry.encoded(how & 0x0f)?;
            }
            b'S' => common.signal = true,
            _ => return None,
        }
    }
    Some(common)
}

/// The length of an entry. (Ones of 64 bits are nobody's.)
fn sized(all: &mut Cursor<'_>) -> Option<u64> {
    all.u32().filter(|&n| n != 0 && n != u32::MAX).map(u64::from)
}

/// The landing pads of a function.
pub(crate) fn pads(object: &Object<'_>, function: &Function) -> Result<Vec<u64>, Trouble> {
    let Some(at) = function.pads else { return Ok(Vec::new()) };
    listed_pads(object, function.base, at).ok_or(Trouble::NoFrames)
}

fn listed_pads(object: &Object<'_>, base: u64, at: u64) -> Option<Vec<u64>> {
    let mut table = Cursor::new(at, object.rest(at)?);
    let how = table.u8()?;
    let base = if how == OMITTED { base } else { table.encoded(how)? };
    if table.u8()? != OMITTED {
        table.uleb()?;
    }
    let how = table.u8()?;
    let n = table.uleb()?;
    let mut sites = table.part(n)?;
    let mut all = Vec::new();
    while !sites.is_done() {
        sites.encoded(how)?;
        sites.encoded(how)?;
        let pad = sites.encoded(how)?;
        sites.uleb()?;
        if pad != 0 {
            all.push(base.wrapping_add(pad));
        }
    }
    Some(all)
}
