//! Looks at all that is loaded, plans everything, then changes it.
//!
//! unsafe: promises that text stays as it is while it is read, and that what is planned is the
//! same program.

use crate::loaded::{self, Loaded, Mapping};
use crate::patch::{self, Patch};
use crate::room::{self, SLOT, SLOTS};
use crate::trampoline::{self, Refers, trampoline};
use crate::{Judge, PENDING, RT_SIGRETURN, Reason, Refusal, enter};
use core::ffi::CStr;
use core::ops::Range;
use uncopy_gate_places::{Place, first_call, places};
use uncopy_kernel::call::syscall4;
use uncopy_kernel::procfs;

/// The installed gate. It stays for as long as the process is there.
pub struct Gate {
    places: usize,
    /// The objects that were looked at.
    known: Vec<Identity>,
}

/// Where an object's text begins, its name, and its file.
type Identity = (u64, String, String);

impl Gate {
    /// How many system calls are led through it.
    pub const fn places(&self) -> usize {
        self.places
    }

    /// Whether what was loaded since (`dlopen`), and what the kernel has been told since, still
    /// leaves no other way to the kernel. What libc opens itself (name services) is seen by this,
    /// too.
    ///
    /// # Errors
    /// What is another way.
    pub fn look(&self) -> Result<(), Refusal> {
        outside_is_as_usual()?;
        for _ in 0..TRIES {
            match loaded::while_none_is_unloaded(|objects| self.looks(&objects)) {
                Err(Found::Loading(_)) => a_while(),
                Err(Found::Other(refusal)) => return Err(refusal),
                Ok(()) => return Ok(()),
            }
        }
        loaded::while_none_is_unloaded(|objects| self.looks(&objects)).map_err(Found::refusal)
    }

    fn looks(&self, objects: &[Loaded]) -> Result<(), Found> {
        let maps = mappings().map_err(Found::Other)?;
        executable_is_known(&maps, objects)?;
        let new = |it: &&Loaded| identity(it, &maps).is_some_and(|it| !self.known.contains(&it));
        for object in objects.iter().filter(new) {
            // SAFETY: it is loaded, and nobody unloads it meanwhile; text is changed by nobody.
            unsafe { makes_none(object) }.map_err(Found::Other)?;
        }
        Ok(())
    }
}

/// Executable memory that is not as it is to be.
enum Found {
    /// A file's text that is no object's: `dlopen` maps an object before it lists it.
    Loading(Refusal),
    Other(Refusal),
}

impl Found {
    fn refusal(self) -> Refusal {
        match self {
            Self::Loading(it) | Self::Other(it) => it,
        }
    }
}

/// So often a look waits for a `dlopen` on another thread: about a second.
const TRIES: u32 = 1000;

fn a_while() {
    const NANOSLEEP: usize = 35;
    let time = [0_u64, 1_000_000];
    // SAFETY: the time is on the stack. (By an instruction of ours: nothing is judged.)
    unsafe { syscall4(NANOSLEEP, time.as_ptr() as usize, 0, 0, 0) };
}

/// Leads all system calls of libc and of the dynamic linker through `judge`. Either all of them, or
/// none, and nothing has changed.
///
/// To be called while the process has one thread: in a constructor. It takes some 25 ms.
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
    cancels_as_known()?;
    no_shadow_stack()?;
    let objects = loaded::objects();
    let maps = mappings()?;
    executable_is_known(&maps, &objects).map_err(Found::refusal)?;
    let mut plan = Plan { places: 0, texts: Vec::new(), patches: Vec::new() };
    for object in objects.iter().filter(|it| !is_the_kernels(it, &maps)) {
        if object.has(enter::address()) {
            // (Its own system calls are made past the gate.)
            plan.changes(object, &maps)?;
        } else if object.is_glibcs() {
            // SAFETY: one thread runs, and unloads nothing here.
            let data = unsafe { object.data() };
            // SAFETY: as above; text is changed below, when this is used no more.
            let seen = unsafe { object.object(&data) };
            plan.changes(object, &maps)?;
            let found = places(&seen).map_err(|trouble| {
                Refusal::new(Reason::PastUs, format!("{}: {trouble}", object.called()))
            })?;
            if seen.segments.iter().any(|it| it.executable && asks_where_it_is(it.bytes)) {
                return Err(cancels_otherwise(object.called()));
            }
            plan.add(object, &found)?;
        } else {
            // SAFETY: as above.
            unsafe { makes_none(object) }?;
        }
    }
    if !enter::prepare(judge) {
        return Err(Refusal::new(Reason::Code, "it was installed before, or was to be"));
    }
    // SAFETY: the patches are jumps to trampolines, which do the same (`trampoline`), at places
    // that nobody enters but at their first instruction (`uncopy_gate_places`); one thread runs.
    unsafe { patch::apply(&plan.texts, &plan.patches) }
        .map_err(|error| Refusal::new(Reason::Code, error.to_string()))?;
    Ok(Gate {
        places: plan.places,
        known: objects.iter().filter_map(|it| identity(it, &maps)).collect(),
    })
}

/// What is to be changed.
struct Plan {
    places: usize,
    texts: Vec<Range<u64>>,
    patches: Vec<Patch>,
}

impl Plan {
    /// The object's text is to be changed. It is what its file has: no breakpoint is in it, which
    /// would hide an instruction (of a debugger, or of `perf`).
    fn changes(&mut self, object: &Loaded, maps: &[Mapping]) -> Result<(), Refusal> {
        for part in object.text() {
            let pages = part.pages();
            let mapping = maps.iter().find(|it| it.span == pages && it.access == "r-xp");
            // SAFETY: it is loaded, and stays.
            let same = mapping.and_then(|it| unsafe { it.has_what_its_file_has(part) });
            let what = match same {
                Some(true) => {
                    self.texts.push(pages);
                    continue;
                }
                Some(false) => "its text is not what its file has",
                None if mapping.is_none() => "its text is not as it was loaded",
                None => "its text cannot be compared with its file",
            };
            return Err(code(object, what));
        }
        Ok(())
    }

    fn add(&mut self, of: &Loaded, all: &[Place]) -> Result<(), Refusal> {
        let refers = Refers { pending: PENDING.as_ptr() as u64, enter: enter::address() };
        for place in all.iter().filter(|it| it.number != Some(RT_SIGRETURN)) {
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
            self.patches.push(Patch { at, new: made.slot.to_vec() });
            // (Nobody enters behind the jump: int3.)
            let mut new = vec![0xcc; n];
            new[0] = 0xe9;
            new[1..5].copy_from_slice(&jump);
            self.patches.push(Patch { at: place.from, new });
            self.places += 1;
        }
        Ok(())
    }
}

fn code(of: &Loaded, what: &str) -> Refusal {
    Refusal::new(Reason::Code, format!("{}: {what}", of.called()))
}

fn is_the_kernels(object: &Loaded, maps: &[Mapping]) -> bool {
    let kernels = maps.iter().filter(|it| it.is_the_kernels());
    object.text().any(|part| kernels.clone().any(|it| it.span.contains(&part.span.start)))
}

fn identity(object: &Loaded, maps: &[Mapping]) -> Option<Identity> {
    let begins = object.text().map(|it| it.span.start).min()?;
    let file = maps.iter().find(|it| it.span.contains(&begins))?.file.clone();
    Some((begins, object.name.clone(), file))
}

/// # Safety
/// The object stays loaded, and nobody changes its text meanwhile.
unsafe fn makes_none(object: &Loaded) -> Result<(), Refusal> {
    // SAFETY: the caller's promise.
    let found = unsafe {
        // (Most objects have not even the bytes of a call, and some have much data.)
        if object.object(&[]).has_no_bytes_of_a_call() {
            return Ok(());
        }
        first_call(&object.object(&object.data()))
    };
    none_of_its_own(object, found)
}

fn none_of_its_own(
    object: &Loaded,
    found: Result<Option<u64>, uncopy_gate_places::Trouble>,
) -> Result<(), Refusal> {
    let what = match found {
        Ok(None) => return Ok(()),
        Ok(Some(at)) => format!("a system call at {at:#x}"),
        Err(trouble) => trouble.to_string(),
    };
    Err(Refusal::new(Reason::PastUs, format!("{}: {what}", object.called())))
}

/// All executable memory is text of an object as it was loaded, or the kernel's.
fn executable_is_known(maps: &[Mapping], objects: &[Loaded]) -> Result<(), Found> {
    let known: Vec<Range<u64>> =
        objects.iter().flat_map(|it| it.text().map(loaded::Part::pages)).collect();
    for it in maps.iter().filter(|it| it.is_executable() && !it.is_the_kernels()) {
        let inside = |known: &Range<u64>| known.start <= it.span.start && it.span.end <= known.end;
        let as_loaded = it.access == "r-xp";
        if !as_loaded || !known.iter().any(inside) {
            let what =
                format!("executable memory {} at {:#x} {}", it.access, it.span.start, it.name);
            let refusal = Refusal::new(Reason::Code, what.trim_end());
            let loading = as_loaded && it.name.starts_with('/');
            return Err(if loading { Found::Loading(refusal) } else { Found::Other(refusal) });
        }
    }
    Ok(())
}

fn mappings() -> Result<Vec<Mapping>, Refusal> {
    loaded::mappings().ok_or_else(untold)
}

fn untold() -> Refusal {
    Refusal::new(Reason::Code, "/proc/self cannot be read")
}

fn outside_is_as_usual() -> Result<(), Refusal> {
    match procfs::is_filtered() {
        Some(false) => Ok(()),
        Some(true) => Err(Refusal::new(Reason::Sandbox, "a filter of system calls")),
        None => Err(untold()),
    }
}

/// glibc 2.41 and later cancel a thread in a call by where its instruction pointer is: a signal
/// that arrives in a trampoline would be lost.
fn cancels_as_known() -> Result<(), Refusal> {
    // SAFETY: a constant string of libc's.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy();
    let minor = version.strip_prefix("2.").and_then(|it| it.split('.').next()?.parse::<u32>().ok());
    match minor {
        Some(..=40) => Ok(()),
        _ => Err(cancels_otherwise(&format!("glibc {version}"))),
    }
}

fn cancels_otherwise(who: &str) -> Refusal {
    Refusal::new(Reason::PastUs, format!("{who} cancels in other ways"))
}

/// Whether that is so by the text: a call of `__syscall_cancel_arch`, whatever the version says.
fn asks_where_it_is(text: &[u8]) -> bool {
    // mov 16(%rsp), %r9; mov %r11, 8(%rsp); syscall
    const ITS: [u8; 12] = [0x4c, 0x8b, 0x4c, 0x24, 16, 0x4c, 0x89, 0x5c, 0x24, 8, 0x0f, 0x05];
    text.windows(ITS.len()).any(|it| it == ITS)
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
