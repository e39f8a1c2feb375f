//! Looks at all that is loaded, plans everything, then changes it.
//!
//! unsafe: promises that text stays as it is while it is read, and that what is planned is the
//! same program.

use crate::loaded::{self, Loaded, Mapping};
use crate::look::{Gate, code, is_what_its_file_has, makes_none, mappings, outside_is_as_usual};
use crate::look::{stays_as_loaded, untold};
use crate::patch::{self, Patch};
use crate::room::{self, SLOT, SLOTS};
use crate::trampoline::{self, Refers, trampoline};
use crate::{Judge, PENDING, RT_SIGRETURN, Reason, Refusal, cancellable, enter};
use core::ffi::CStr;
use core::ops::Range;
use uncopy_gate_places::object::{Object, Segment};
use uncopy_gate_places::{Place, places};
use uncopy_kernel::call::syscall4;

/// Leads all system calls of libc and of the dynamic linker through `judge`. Either all of them, or
/// none, and nothing has changed.
///
/// To be called while the process has one thread: in a constructor. It takes some 15 ms.
///
/// # Errors
/// Some call could not be led there, or is made elsewhere.
pub fn install(judge: Judge) -> Result<Gate, Refusal> {
    outside_is_as_usual()?;
    match loaded::threads() {
        Some(1) => {}
        Some(n) => return Err(Refusal::new(Reason::Code, format!("{n} threads run"))),
        None => return Err(untold()),
    }
    no_shadow_stack()?;
    let objects = loaded::objects();
    let maps = mappings()?;
    executable_is_known(&maps, &objects)?;
    let mut plan = Plan::default();
    for object in objects.iter().filter(|it| !is_the_kernels(it, &maps)) {
        // SAFETY: one thread runs, and unloads nothing here; text is changed below, when this is
        // used no more.
        let text = unsafe { object.object(&[]) };
        if object.has(enter::address()) {
            // (Its own system calls are made past the gate.)
            plan.changes(object, &text, &maps)?;
        } else if object.is_glibcs() || !text.has_no_bytes_of_a_call() {
            // (Most objects have not even the bytes of a call, and some have much data.)
            // SAFETY: as above.
            let data = unsafe { object.data() };
            // SAFETY: as above.
            let seen = unsafe { object.object(&data) };
            if object.is_glibcs() {
                plan.adds(object, &seen, &maps)?;
            } else {
                makes_none(object, &seen, &maps)?;
            }
        }
    }
    plan.cancels_as_known()?;
    if !enter::prepare(judge) {
        return Err(Refusal::new(Reason::Code, "it was installed before, or was to be"));
    }
    // SAFETY: the patches are jumps to trampolines, which do the same (`trampoline`), at places
    // that nobody enters but at their first instruction (`uncopy_gate_places`); one thread runs.
    if let Err(error) = unsafe { patch::apply(&plan.texts, &plan.patches) } {
        // (A jump that could not be taken back leads on as if it were not there.)
        enter::ends();
        return Err(Refusal::new(Reason::Code, error.to_string()));
    }
    Ok(Gate::new(plan.places, maps))
}

/// The changes to be made.
#[derive(Default)]
struct Plan {
    places: usize,
    /// The one in which threads are cancelled is among them.
    cancellable: bool,
    texts: Vec<Range<u64>>,
    patches: Vec<Patch>,
}

impl Plan {
    /// The object's text is to be changed, or refused.
    fn changes(
        &mut self,
        object: &Loaded,
        seen: &Object<'_>,
        maps: &[Mapping],
    ) -> Result<(), Refusal> {
        is_what_its_file_has(object, seen, maps)?;
        self.texts.extend(object.text().map(loaded::Part::pages));
        Ok(())
    }

    /// All system calls of an object are to be led elsewhere.
    fn adds(
        &mut self,
        object: &Loaded,
        seen: &Object<'_>,
        maps: &[Mapping],
    ) -> Result<(), Refusal> {
        self.changes(object, seen, maps)?;
        let found = places(seen).map_err(|trouble| {
            Refusal::new(Reason::PastUs, format!("{}: {trouble}", object.called()))
        })?;
        let texts = || seen.segments.iter().filter(|it| it.executable);
        let otherwise = |it: &&Place| {
            it.cancels.is_none() && texts().any(|text| asks_where_it_is(text, it.call))
        };
        if found.iter().any(|it| otherwise(&it)) {
            return Err(cancels_otherwise(object.called()));
        }
        self.add(object, &found)
    }

    fn add(&mut self, of: &Loaded, all: &[Place]) -> Result<(), Refusal> {
        let refers = Refers { pending: PENDING.as_ptr() as u64, enter: enter::address() };
        for place in all.iter().filter(|it| it.number != Some(RT_SIGRETURN)) {
            if let Some(to) = place.cancels {
                self.add_cancellable(of, place, to)?;
                continue;
            }
            if self.places == SLOTS {
                return Err(code(of, "more system calls than there is room for"));
            }
            let at = room::address() + (self.places * SLOT) as u64;
            let n = (place.end - place.from) as usize;
            // SAFETY: a part of the object's text, which is loaded.
            let bytes = unsafe { core::slice::from_raw_parts(place.from as *const u8, n) };
            let led = trampoline(place, bytes, at, refers).and_then(|it| {
                let from = place.from + uncopy_gate_places::JUMP;
                Some((trampoline::distance(from, it.entry)?, it))
            });
            let (jump, made) = led.ok_or_else(|| code(of, "no jump reaches so far"))?;
            self.patches.push(Patch { at, new: made.slot.to_vec(), old: Vec::new() });
            // (Nobody enters behind the jump: int3.)
            let mut new = vec![0xcc; n];
            new[0] = 0xe9;
            new[1..5].copy_from_slice(&jump);
            self.patches.push(Patch { at: place.from, new, old: bytes.to_vec() });
            self.places += 1;
        }
        Ok(())
    }

    /// The call in which threads are cancelled: `to` there.
    fn add_cancellable(&mut self, of: &Loaded, place: &Place, to: u64) -> Result<(), Refusal> {
        if self.cancellable {
            return Err(cancels_otherwise(of.called()));
        }
        let new = cancellable::text(place, to, cancellable::address());
        let new = new.ok_or_else(|| code(of, "no jump reaches so far"))?;
        // SAFETY: a part of the object's text, which is loaded.
        let old = unsafe { core::slice::from_raw_parts(place.from as *const u8, new.len()) };
        cancellable::prepare(place);
        self.patches.push(Patch { at: place.from, old: old.to_vec(), new });
        self.cancellable = true;
        Ok(())
    }

    /// glibc 2.41 and later cancel a thread in a call by where its instruction pointer is. A signal
    /// that arrives in a trampoline would be lost, so that call must be known.
    fn cancels_as_known(&self) -> Result<(), Refusal> {
        // SAFETY: a constant string of libc's.
        let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy();
        let minor =
            version.strip_prefix("2.").and_then(|it| it.split('.').next()?.parse::<u32>().ok());
        match minor {
            Some(..=40) => Ok(()),
            _ if self.cancellable => Ok(()),
            _ => Err(cancels_otherwise(&format!("glibc {version}"))),
        }
    }
}

/// All executable memory is text of an object as it was loaded, or the kernel's.
fn executable_is_known(maps: &[Mapping], objects: &[Loaded]) -> Result<(), Refusal> {
    for it in maps.iter().filter(|it| it.is_executable() && !it.is_the_kernels()) {
        stays_as_loaded(it)?;
        if !objects.iter().any(|object| object.has_text(&it.span)) {
            return Err(it.executable_memory());
        }
    }
    Ok(())
}

fn is_the_kernels(object: &Loaded, maps: &[Mapping]) -> bool {
    let kernels = maps.iter().filter(|it| it.is_the_kernels());
    object.text().any(|part| kernels.clone().any(|it| it.span.contains(&part.span.start)))
}

fn cancels_otherwise(who: &str) -> Refusal {
    Refusal::new(Reason::PastUs, format!("{who} cancels in other ways"))
}

/// Whether threads are cancelled by where they are in this call, whatever the version says: it
/// seems to be that of `__syscall_cancel_arch`.
fn asks_where_it_is(text: &Segment<'_>, call: u64) -> bool {
    // mov 16(%rsp), %r9; mov %r11, 8(%rsp)
    const ITS: [u8; 10] = [0x4c, 0x8b, 0x4c, 0x24, 16, 0x4c, 0x89, 0x5c, 0x24, 8];
    let before = call.checked_sub(text.at).and_then(|it| text.bytes.get(..it as usize));
    before.is_some_and(|it| it.ends_with(&ITS))
}

/// Unwinders count a signal's frames of shadow stacks, and a trampoline's frame is marked as one.
fn no_shadow_stack() -> Result<(), Refusal> {
    const ARCH_PRCTL: usize = 158;
    const ARCH_SHSTK_STATUS: usize = 0x5005;
    let mut status = 0_u64;
    // SAFETY: a word for the answer. (Kernels that have none refuse.)
    let told = unsafe { syscall4(ARCH_PRCTL, ARCH_SHSTK_STATUS, &raw mut status as usize, 0, 0) };
    if told == 0 && status != 0 {
        return Err(Refusal::new(Reason::Code, "a shadow stack is in use"));
    }
    Ok(())
}
