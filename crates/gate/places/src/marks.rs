//! A set of addresses of text: a bit for each byte.

use crate::object::Object;

/// See the module. Addresses outside of the text are not kept.
pub(crate) struct Marks {
    parts: Vec<(u64, u64, Vec<u64>)>,
}

impl Marks {
    pub fn new(object: &Object<'_>) -> Self {
        let part = |at: u64, end: u64| (at, end, vec![0; (end - at).div_ceil(64) as usize]);
        Self { parts: object.text().map(|it| part(it.at, it.end())).collect() }
    }

    pub fn set(&mut self, at: u64) {
        if let Some((from, _, bits)) = self.parts.iter_mut().find(|it| it.0 <= at && at < it.1) {
            bits[(at - *from) as usize / 64] |= 1 << ((at - *from) % 64);
        }
    }

    pub fn has(&self, at: u64) -> bool {
        let part = self.parts.iter().find(|it| it.0 <= at && at < it.1);
        part.is_some_and(|(from, _, bits)| {
            bits[(at - from) as usize / 64] >> ((at - from) % 64) & 1 == 1
        })
    }

    /// Whether it has any of these.
    pub fn any(&self, mut of: core::ops::Range<u64>) -> bool {
        of.any(|at| self.has(at))
    }
}
