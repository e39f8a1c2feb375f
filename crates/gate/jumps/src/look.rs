//! Whether other ways lead to the kernel than those through the gate: of what is loaded.
//!
//! Text that nobody has looked at yet is copied by the kernel, and the copy is looked at: another
//! thread may unload it meanwhile. The dynamic linker's lock is held no longer than it takes to
//! list objects. (A child that is forked while another thread holds it finds it taken for good:
//! glibc frees others, not this one, and `dlopen` takes it.)
//!
//! unsafe: copies memory; reads an object's symbols.

use crate::enter;
use crate::loaded::{self, Loaded, Mapping};
use crate::{Reason, Refusal};
use uncopy_gate_places::first_call;
use uncopy_gate_places::object::{self, Object, Segment};
use uncopy_kernel::call::{syscall4, syscall6};
use uncopy_kernel::procfs;

/// The installed gate. It stays for as long as the process is there.
pub struct Gate {
    places: usize,
    /// Executable memory that was there. (Nothing of it is unloaded: the program, what it needs,
    /// and what is preloaded.)
    known: Vec<Mapping>,
}

impl Gate {
    pub(crate) fn new(places: usize, maps: Vec<Mapping>) -> Self {
        let known = maps.into_iter().filter(Mapping::is_executable).collect();
        Self { places, known }
    }

    /// How many system calls are led through it.
    pub const fn places(&self) -> usize {
        self.places
    }

    /// Whether what was loaded since (`dlopen`), and what the kernel has been told since, still
    /// leaves no other way to the kernel. Objects that libc opens itself (name services) are seen
    /// by this, too.
    ///
    /// It allocates, and may take the dynamic linker's lock.
    ///
    /// # Errors
    /// The other way that was found.
    pub fn look(&self) -> Result<(), Refusal> {
        enter::has_all()?;
        outside_is_as_usual()?;
        let mut found = self.looks();
        for _ in 0..TRIES {
            if !matches!(found, Err(Found::Loading(_))) {
                break;
            }
            a_while();
            found = self.looks();
        }
        found.map_err(|it| match it {
            Found::Loading(refusal) | Found::Other(refusal) => refusal,
        })
    }

    fn looks(&self) -> Result<(), Found> {
        let maps = mappings().map_err(Found::Other)?;
        let is_new = |it: &&Mapping| {
            it.is_executable() && !it.is_the_kernels() && !self.known.iter().any(|had| had.is(it))
        };
        let mut unsure = Vec::new();
        let mut room = vec![0; AT_ONCE];
        for it in maps.iter().filter(is_new) {
            stays_as_loaded(it).map_err(Found::Other)?;
            if !it.is_a_files() {
                return Err(Found::Other(it.executable_memory()));
            }
            match has_no_bytes_of_a_call(it, &mut room) {
                Some(true) => {}
                Some(false) => unsure.push(it),
                None => return Err(Found::Loading(it.executable_memory())),
            }
        }
        if unsure.is_empty() { Ok(()) } else { objects_have_none(&unsure, &maps) }
    }
}

/// Executable memory that is not as it is to be.
enum Found {
    /// A file's text that is no object's, or is there no more: `dlopen` maps an object before it
    /// lists it.
    Loading(Refusal),
    Other(Refusal),
}

/// So often a look waits for a `dlopen` on another thread: about a second.
const TRIES: u32 = 1000;

fn a_while() {
    const NANOSLEEP: usize = 35;
    let time = [0_u64, 1_000_000];
    // SAFETY: the time is on the stack. (By an instruction of ours: nothing is judged.)
    unsafe { syscall4(NANOSLEEP, time.as_ptr() as usize, 0, 0, 0) };
}

/// The objects whose text these mappings are make no calls.
fn objects_have_none(unsure: &[&Mapping], maps: &[Mapping]) -> Result<(), Found> {
    let with_symbols = |of: &Mapping, objects: &[Loaded]| {
        let object = objects.iter().find(|it| it.has_text(&of.span))?.clone();
        // SAFETY: it is loaded, and nobody unloads it meanwhile.
        let symbols = unsafe { object.symbols() };
        Some((object, symbols))
    };
    let all: Vec<_> = loaded::while_none_is_unloaded(|objects| {
        unsure.iter().map(|it| with_symbols(it, &objects)).collect()
    });
    for (mapping, found) in unsure.iter().zip(all) {
        let gone = || Found::Loading(mapping.executable_memory());
        let (object, symbols) = found.ok_or_else(gone)?;
        let copies = copies(&object).ok_or_else(gone)?;
        let segments = object.parts.iter().zip(&copies).map(|(part, bytes)| Segment {
            at: part.span.start,
            bytes,
            executable: part.executable,
        });
        let seen = Object { segments: segments.collect(), symbols, frames: object.frames };
        makes_none(&object, &seen, maps).map_err(Found::Other)?;
    }
    Ok(())
}

/// The loaded bytes of an object's file. `None`: it is there no more.
fn copies(object: &Loaded) -> Option<Vec<Vec<u8>>> {
    let copied = |part: &loaded::Part| {
        let mut bytes = vec![0; part.filled as usize];
        (bytes.is_empty() || copy(part.span.start, &mut bytes).is_some()).then_some(bytes)
    };
    object.parts.iter().map(copied).collect()
}

const AT_ONCE: usize = 256 << 10;

/// Whether a mapping has no bytes that could be a call. `None`: it is there no more.
fn has_no_bytes_of_a_call(mapping: &Mapping, room: &mut [u8]) -> Option<bool> {
    let mut at = mapping.span.start;
    // (Bytes of a call may lie across two pieces.)
    while at + 1 < mapping.span.end {
        let n = room.len().min((mapping.span.end - at) as usize);
        copy(at, &mut room[..n])?;
        if !object::has_no_bytes_of_a_call(&room[..n]) {
            return Some(false);
        }
        at += n as u64 - 1;
    }
    Some(true)
}

/// Copies memory of ours that may be there no more: all of it, or `None`.
fn copy(at: u64, to: &mut [u8]) -> Option<()> {
    const PROCESS_VM_READV: usize = 310;
    let (n, own) = (to.len(), enter::own_process() as usize);
    let (here, there) = ([to.as_mut_ptr() as usize, n], [at as usize, n]);
    let lists = [own, here.as_ptr() as usize, 1, there.as_ptr() as usize, 1, 0];
    // SAFETY: it writes `to`, and reads what is there, or says that nothing is.
    let done = unsafe { syscall6(PROCESS_VM_READV, lists) };
    (done == n as isize).then_some(())
}

/// An object as it is `seen` makes no system calls.
pub(crate) fn makes_none(
    object: &Loaded,
    seen: &Object<'_>,
    maps: &[Mapping],
) -> Result<(), Refusal> {
    if seen.has_no_bytes_of_a_call() {
        return Ok(());
    }
    is_what_its_file_has(object, seen, maps)?;
    let what = match first_call(seen) {
        Ok(None) => return Ok(()),
        Ok(Some(at)) => format!("a system call at {at:#x}"),
        Err(trouble) => trouble.to_string(),
    };
    Err(Refusal::new(Reason::PastUs, format!("{}: {what}", object.called())))
}

/// The object's text is what its file has: no breakpoint is in it, which would hide an instruction
/// (of a debugger, or of `perf`).
pub(crate) fn is_what_its_file_has(
    object: &Loaded,
    seen: &Object<'_>,
    maps: &[Mapping],
) -> Result<(), Refusal> {
    for text in seen.segments.iter().filter(|it| it.executable) {
        let part = object.text().find(|it| it.span.start == text.at);
        let pages = part.map(loaded::Part::pages);
        let mapping =
            maps.iter().find(|it| Some(&it.span) == pages.as_ref() && it.access == "r-xp");
        let what = match mapping.map(|it| it.file_has(text.at, text.bytes)) {
            Some(Some(true)) => continue,
            Some(Some(false)) => "its text is not what its file has",
            Some(None) => "its text cannot be compared with its file",
            None => "its text is not as it was loaded",
        };
        return Err(code(object, what));
    }
    Ok(())
}

/// This executable memory cannot be written, and changes with nobody else's.
pub(crate) fn stays_as_loaded(it: &Mapping) -> Result<(), Refusal> {
    if it.access == "r-xp" { Ok(()) } else { Err(it.executable_memory()) }
}

impl Mapping {
    /// It is of a file that has a name. (Others, as those of `memfd_create`, are made to be written
    /// while they are mapped.)
    fn is_a_files(&self) -> bool {
        self.name.starts_with('/') && !self.name.ends_with(" (deleted)")
    }

    /// It is not as it is to be.
    pub(crate) fn executable_memory(&self) -> Refusal {
        let what =
            format!("executable memory {} at {:#x} {}", self.access, self.span.start, self.name);
        Refusal::new(Reason::Code, what.trim_end())
    }
}

pub(crate) fn code(of: &Loaded, what: &str) -> Refusal {
    Refusal::new(Reason::Code, format!("{}: {what}", of.called()))
}

pub(crate) fn mappings() -> Result<Vec<Mapping>, Refusal> {
    loaded::mappings().ok_or_else(untold)
}

pub(crate) fn untold() -> Refusal {
    Refusal::new(Reason::Code, "/proc/self cannot be read")
}

pub(crate) fn outside_is_as_usual() -> Result<(), Refusal> {
    match procfs::is_filtered() {
        Some(false) => Ok(()),
        Some(true) => Err(Refusal::new(Reason::Sandbox, "a filter of system calls")),
        None => Err(untold()),
    }
}
