//! Goes over text, from each address that the unwinder's tables name to the next, as far as that
//! is [needed](crate::needed).

use crate::Trouble;
use crate::frames::{self, Function};
use crate::marks::Marks;
use crate::needed::Needed;
use crate::object::{Object, Segment};
use crate::runs::{bytes_of_a_call, decode, is_call, possible_targets, runs};
use iced_x86::{Instruction, Mnemonic, OpKind};

/// The findings of a sweep.
pub(crate) struct Swept {
    pub functions: Vec<Function>,
    /// Where instructions of sound text begin.
    pub begins: Marks,
    /// The targets of direct jumps and calls, the addresses in text that are computed, and
    /// `endbr64`.
    pub landings: Marks,
    /// Addresses outside of text that instructions compute.
    pub computed: Vec<u64>,
    /// Each `syscall`, and an address before it from where all is sound.
    pub calls: Vec<(u64, u64)>,
}

/// How much of the text is decoded: what is found of calls, and of what is around them, is the
/// same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decodes {
    /// The text that [`needed`](crate::needed) names.
    Needed,
    /// All of it. (So slowly that only tests do it.)
    #[cfg(test)]
    All,
}

/// The object's text.
pub(crate) fn sweep(object: &Object<'_>, decodes: Decodes) -> Result<Swept, Trouble> {
    let functions = frames::functions(object)?;
    let mut swept = Swept {
        begins: Marks::new(object),
        landings: Marks::new(object),
        computed: Vec::new(),
        calls: Vec::new(),
        functions,
    };
    swept.functions.iter().for_each(|it| swept.landings.set(it.first));
    let runs = runs(object, &swept.functions);
    let (needed, mut done) = Needed::new(object, &runs, &swept.landings);
    if decodes != Decodes::Needed {
        done.fill(true);
    }
    let mut room = Vec::new();
    // The run before, if it is sound. (The tables say that a function ends before its call where
    // what they say holds no longer behind it: in `clone`.)
    let mut before: Option<Segment<'_>> = None;
    for (run, _) in runs.iter().zip(&done).filter(|it| *it.1) {
        let from = before.filter(|it| it.end() == run.at).map_or(run.at, |it| it.at);
        let sound = swept.goes_over(object, run, from, &mut room)?;
        before = sound.then_some(*run);
    }
    loop {
        swept.computed.sort_unstable();
        swept.computed.dedup();
        let mut more = needed.that_end_tables(&swept.computed);
        more.retain(|&i| !core::mem::replace(&mut done[i], true));
        if more.is_empty() {
            return Ok(swept);
        }
        for run in more.iter().map(|&i| &runs[i]) {
            swept.goes_over(object, run, run.at, &mut room)?;
        }
    }
}

impl Swept {
    /// Whether the run is sound.
    fn goes_over(
        &mut self,
        object: &Object<'_>,
        run: &Segment<'_>,
        from: u64,
        room: &mut Vec<Instruction>,
    ) -> Result<bool, Trouble> {
        let sound = decode(run, room);
        if sound {
            for it in &*room {
                self.note(object, it, from)?;
            }
        } else if let Some(at) = bytes_of_a_call(object, run) {
            return Err(Trouble::Unsure(at));
        } else {
            possible_targets(run, |at| self.landings.set(at));
        }
        Ok(sound)
    }

    fn note(&mut self, object: &Object<'_>, it: &Instruction, from: u64) -> Result<(), Trouble> {
        self.begins.set(it.ip());
        if it.mnemonic() == Mnemonic::Syscall {
            self.calls.push((it.ip(), from));
        } else if is_call(it) {
            return Err(Trouble::Other(it.ip()));
        } else if it.mnemonic() == Mnemonic::Endbr64 {
            self.landings.set(it.ip());
        } else if let OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 =
            it.op0_kind()
        {
            self.landings.set(it.near_branch_target());
        } else if it.is_ip_rel_memory_operand() {
            let to = it.ip_rel_memory_address();
            if object.is_text(to) {
                self.landings.set(to);
            } else if it.mnemonic() == Mnemonic::Lea {
                self.computed.push(to);
            }
        }
        Ok(())
    }
}
