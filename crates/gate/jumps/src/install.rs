//! Looks at all that is loaded, plans everything, then changes it.
//!
//! unsafe: promises that text stays as it is while it is read, and that what is planned is the
//! same program.

use crate::loaded::{self, Loaded, Mapping};
use crate::patch::{self, Area, Patch};
use crate::trampoline::{self, Refers, trampoline};
use crate::unwinding::{self, Tables};
use crate::{Judge, PENDING, RT_SIGRETURN, Reason, Refusal, enter};
use core::ffi::CStr;
use core::ops::Range;
use uncopy_gate_places::{Place, first_call, places};
use uncopy_kernel::procfs;

/// The installed gate. It stays for as long as the process is there.
pub struct Gate {
    places: usize,
    /// Where the trampolines are.
    areas: Vec<Range<u64>>,
    /// The objects that were looked at: where their text begins, and their names.
    known: Vec<(u64, String)>,
}

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
        let objects = loaded::objects();
        let mappings = mappings()?;
        executable_is_known(&mappings, &objects, &self.areas)?;
        let new = |it: &&Loaded| identity(it).is_some_and(|it| !self.known.contains(&it));
        for object in objects.iter().filter(new) {
            // SAFETY: it is loaded (whoever unloads it meanwhile is the caller's affair: `dlclose`
            // is a call that waits for this one); text is changed by nobody.
            let data = unsafe { object.data() };
            // SAFETY: as above.
            none_of_its_own(object, first_call(&unsafe { object.object(&data) }))?;
        }
        Ok(())
    }
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
    let objects = loaded::objects();
    let maps = mappings()?;
    executable_is_known(&maps, &objects, &[])?;
    let mut plan = Plan { places: 0, texts: Vec::new(), patches: Vec::new(), areas: Vec::new() };
    for object in objects.iter().filter(|it| !is_passed(it, &maps)) {
        // SAFETY: one thread runs, and unloads nothing here.
        let data = unsafe { object.data() };
        // SAFETY: as above; text is changed below, when this is used no more.
        let seen = unsafe { object.object(&data) };
        if object.is_glibcs() {
            let found = places(&seen).map_err(|trouble| {
                Refusal::new(Reason::PastUs, format!("{}: {trouble}", object.called()))
            })?;
            plan.add(object, &maps, &found)?;
        } else {
            none_of_its_own(object, first_call(&seen))?;
        }
    }
    if !enter::prepare(judge) {
        return Err(Refusal::new(Reason::Code, "it was installed before, or was to be"));
    }
    // SAFETY: the patches are jumps to trampolines, which do the same (`trampoline`), at places
    // that nobody enters but at their first instruction (`uncopy_gate_places`); one thread runs.
    unsafe { patch::apply(&plan.texts, &plan.patches) }
        .map_err(|error| Refusal::new(Reason::Code, format!("text cannot be changed: {error}")))?;
    for (area, tables) in &mut plan.areas {
        area.keep();
        // SAFETY: the area has them there, and is kept.
        unsafe { unwinding::tell(*tables) };
    }
    Ok(Gate {
        places: plan.places,
        areas: plan.areas.iter().map(|(area, _)| area.span()).collect(),
        known: objects.iter().filter_map(identity).collect(),
    })
}

/// What is to be changed.
struct Plan {
    places: usize,
    texts: Vec<Range<u64>>,
    patches: Vec<Patch>,
    /// Each with where the unwinder's tables are in it.
    areas: Vec<(Area, u64)>,
}

impl Plan {
    fn add(&mut self, of: &Loaded, maps: &[Mapping], all: &[Place]) -> Result<(), Refusal> {
        let code = |what: String| Refusal::new(Reason::Code, format!("{}: {what}", of.called()));
        let all: Vec<_> = all.iter().filter(|it| it.number != Some(RT_SIGRETURN)).collect();
        if all.is_empty() {
            return Ok(());
        }
        for part in of.text() {
            let pages = part.pages();
            if !maps.iter().any(|it| it.span == pages && it.access == "r-xp") {
                return Err(code("its text is not as it was loaded".into()));
            }
            self.texts.push(pages);
        }
        let text = trampoline::MOST * all.len();
        let tables = unwinding::MOST * all.len() + unwinding::COMMON;
        let page = |n: usize| (n as u64).next_multiple_of(PAGE);
        let (text, tables) = (page(text), page(tables));
        let near =
            of.text().map(|it| it.span.start).min().zip(of.text().map(|it| it.span.end).max());
        let (low, high) = near.expect("it has places");
        let mut area = gaps(&mappings()?, &(low..high), text + tables)
            .find_map(|at| Area::new(at, text + tables).ok())
            .ok_or_else(|| code("no room near its text".into()))?;
        let refers = Refers { pending: PENDING.as_ptr() as u64, enter: enter::address() };
        let begin = area.span().start;
        let mut offset = 0;
        let mut told = Tables::new();
        for place in &all {
            let at = begin + offset;
            let n = place.end - place.from;
            // SAFETY: a part of the object's text, which is loaded.
            let bytes = unsafe { core::slice::from_raw_parts(place.from as *const u8, n as usize) };
            let jump = trampoline::distance(place.from + uncopy_gate_places::JUMP, at);
            let made = trampoline(place, bytes, at, refers);
            let (jump, made) =
                jump.zip(made).ok_or_else(|| code("no jump reaches so far".into()))?;
            area.put(offset, &made.code);
            told.add(at, made.code.len(), &made.rows);
            offset += (made.code.len() as u64).next_multiple_of(16);
            // (Nobody enters behind the jump: int3.)
            let mut new = vec![0xcc; n as usize];
            new[0] = 0xe9;
            new[1..5].copy_from_slice(&jump);
            self.patches.push(Patch { at: place.from, new });
        }
        area.put(text, &told.finish());
        area.finish(text).map_err(|error| code(format!("trampolines: {error}")))?;
        self.places += all.len();
        self.areas.push((area, begin + text));
        Ok(())
    }
}

const PAGE: u64 = 4096;

/// Where `n` bytes are free from which jumps reach all of `text` and back, the nearest first: below
/// some mapping, directly, or where the program's own next mappings do not come soon. (Not below a
/// stack: it grows.)
fn gaps(maps: &[Mapping], text: &Range<u64>, n: u64) -> impl Iterator<Item = u64> + use<> {
    // (Some less than a jump reaches.)
    const REACH: u64 = 0x7f00_0000;
    const APART: u64 = 64 << 20;
    let far = |at: u64| text.end.max(at + n) - text.start.min(at);
    let mut all: Vec<u64> = maps
        .windows(2)
        .filter(|it| it[1].name != "[stack]")
        .flat_map(|it| {
            let free = it[0].span.end..it[1].span.start;
            let below = [n, n + APART].map(|bytes| free.end.checked_sub(bytes));
            below.into_iter().flatten().filter(move |&at| at >= free.start)
        })
        .filter(|&at| far(at) < REACH)
        .collect();
    all.sort_by_key(|&at| far(at));
    all.into_iter()
}

/// It has no system calls that are of interest: the kernel's own, and ours, which are made past
/// the gate.
fn is_passed(object: &Loaded, maps: &[Mapping]) -> bool {
    let kernels = maps.iter().filter(|it| it.is_the_kernels());
    object.has(enter::address())
        || object.text().any(|part| kernels.clone().any(|it| it.span.contains(&part.span.start)))
}

fn identity(object: &Loaded) -> Option<(u64, String)> {
    let begins = object.text().map(|it| it.span.start).min()?;
    Some((begins, object.name.clone()))
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

/// All executable memory is text of an object as it was loaded, the kernel's, or ours.
fn executable_is_known(
    maps: &[Mapping],
    objects: &[Loaded],
    ours: &[Range<u64>],
) -> Result<(), Refusal> {
    let mut known: Vec<Range<u64>> =
        objects.iter().flat_map(|it| it.text().map(loaded::Part::pages)).collect();
    known.extend_from_slice(ours);
    for it in maps.iter().filter(|it| it.is_executable() && !it.is_the_kernels()) {
        let inside = |known: &Range<u64>| known.start <= it.span.start && it.span.end <= known.end;
        if it.access != "r-xp" || !known.iter().any(inside) {
            let what =
                format!("executable memory {} at {:#x} {}", it.access, it.span.start, it.name);
            return Err(Refusal::new(Reason::Code, what.trim_end()));
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
        _ => Err(Refusal::new(Reason::PastUs, format!("glibc {version} cancels in other ways"))),
    }
}
