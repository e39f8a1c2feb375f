//! Calls of this library to libc reach libc itself, whoever else exports the name.
//!
//! The dynamic linker looks names up in the program first, then in what is preloaded before us:
//! where a program defines `getpid`, or another library stops the clock (libfaketime), it would be
//! them that we call, in the middle of calls of theirs. [`bind`] puts libc's functions in place of
//! theirs.
//!
//! It is the first thing that is done, and calls nothing: no name can be trusted before. So there
//! is no slice that is compared, and none that is copied, for that may become a call of `bcmp` or
//! `memcpy`.
//!
//! A static: entries of the dynamic linker's have nothing in hand.
//!
//! unsafe: reads what the dynamic linker has laid out, of this library and of libc, by the layouts
//! of ELF.

use core::arch::asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::mm::{MprotectFlags, mprotect};

/// An entry of a dynamic section.
#[repr(C)]
struct Dynamic {
    tag: usize,
    value: usize,
}

/// A loaded object, as the dynamic linker shows it to debuggers.
#[repr(C)]
struct Loaded {
    base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const Loaded,
}

#[repr(C)]
struct Debugging {
    version: c_int,
    first: *const Loaded,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

#[repr(C)]
struct Relocation {
    at: usize,
    /// The symbol's number and the kind.
    info: u64,
    addend: usize,
}

/// A library whose versions of symbols are needed.
#[repr(C)]
struct Needed {
    version: u16,
    count: u16,
    file: u32,
    versions: u32,
    next: u32,
}

/// One of these versions.
#[repr(C)]
struct NeededVersion {
    hash: u32,
    flags: u16,
    index: u16,
    name: u32,
    next: u32,
}

/// A version that a library defines.
#[repr(C)]
struct Defined {
    version: u16,
    flags: u16,
    index: u16,
    count: u16,
    hash: u32,
    names: u32,
    next: u32,
}

#[repr(C)]
struct FileHeader {
    ident: [u8; 16],
    kind: u16,
    machine: u16,
    version: u32,
    entry: usize,
    segments: usize,
    sections: usize,
    flags: u32,
    size: u16,
    segment_size: u16,
    segment_count: u16,
}

#[repr(C)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    physical: usize,
    file_size: usize,
    size: usize,
    alignment: usize,
}

const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_SONAME: usize = 14;
const DT_JMPREL: usize = 23;
const DT_PLTRELSZ: usize = 2;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;
const DT_VERDEF: usize = 0x6fff_fffc;
const DT_VERNEED: usize = 0x6fff_fffe;
const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
const PT_GNU_RELRO: u32 = 0x6474_e552;
/// Symbols that are found by their version only.
const HIDDEN: u16 = 0x8000;
const PAGE: usize = 4096;

unsafe extern "C" {
    /// The dynamic linker's.
    static _r_debug: Debugging;
}

/// Set once all is bound.
static BOUND: AtomicBool = AtomicBool::new(false);

/// Lets this library call libc's own functions. For the constructor, and for calls that come before
/// it; once is enough.
///
/// A variable (`environ`) stays the program's, as it is for libc. Where something is not as it
/// always is, nothing changes.
pub fn bind() {
    if BOUND.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: called once this library is relocated, as all that runs in it.
    if unsafe { bind_all() }.is_some() {
        BOUND.store(true, Ordering::Release);
    }
}

/// libc's own function of this name, of the version that programs are linked with today.
pub fn of_libc(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: libc is loaded, and never unloaded.
    unsafe {
        let libc = Object::named(c"libc.so.6".as_ptr())?;
        libc.function(name.as_ptr(), None)
    }
}

unsafe fn bind_all() -> Option<()> {
    // SAFETY: the linker's places in this library, which is loaded.
    unsafe {
        let own = Object::own()?;
        let relro = own.relro();
        let mut writable = false;
        for (table, size) in [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)] {
            let Some(first) = own.table::<Relocation>(table) else { continue };
            for i in 0..own.value(size)? / size_of::<Relocation>() {
                let one = &*first.add(i);
                if !matches!(one.info as u32, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
                    continue;
                }
                let Some(function) = own.imported((one.info >> 32) as usize) else { continue };
                let place = (own.base + one.at) as *mut *mut c_void;
                if *place == function {
                    continue;
                }
                if !writable && place as usize >= relro.0 && (place as usize) < relro.1 {
                    let rights = MprotectFlags::READ | MprotectFlags::WRITE;
                    mprotect(relro.0 as *mut c_void, relro.1 - relro.0, rights).ok()?;
                    writable = true;
                }
                place.write_volatile(function);
            }
        }
        if writable {
            mprotect(relro.0 as *mut c_void, relro.1 - relro.0, MprotectFlags::READ).ok()?;
        }
        Some(())
    }
}

/// Something that is loaded.
#[derive(Clone, Copy)]
struct Object {
    base: usize,
    dynamic: *const Dynamic,
    names: *const c_char,
}

impl Object {
    unsafe fn new(loaded: &Loaded) -> Option<Self> {
        let Loaded { base, dynamic, .. } = *loaded;
        let mut object = Self { base, dynamic, names: core::ptr::null() };
        // SAFETY: a dynamic section that is loaded.
        object.names = unsafe { object.table(DT_STRTAB)? };
        Some(object)
    }

    /// This library.
    unsafe fn own() -> Option<Self> {
        let dynamic: *const Dynamic;
        // SAFETY: the linker's name for a place in this library.
        unsafe {
            asm!(".hidden _DYNAMIC", "lea {}, [rip + _DYNAMIC]", out(reg) dynamic,
                options(nomem, nostack, preserves_flags));
            let mut at = _r_debug.first;
            while let Some(loaded) = at.as_ref() {
                if loaded.dynamic == dynamic {
                    return Self::new(loaded);
                }
                at = loaded.next;
            }
        }
        None
    }

    /// The library that is loaded by this name.
    unsafe fn named(name: *const c_char) -> Option<Self> {
        // SAFETY: the dynamic linker's list.
        unsafe {
            let mut at = _r_debug.first;
            while let Some(loaded) = at.as_ref() {
                if !loaded.dynamic.is_null()
                    && let Some(object) = Self::new(loaded)
                    && let Some(own) = object.value(DT_SONAME)
                    && same(object.names.add(own), name)
                {
                    return Some(object);
                }
                at = loaded.next;
            }
        }
        None
    }

    unsafe fn value(&self, tag: usize) -> Option<usize> {
        let mut at = self.dynamic;
        // SAFETY: a dynamic section, which ends with a null entry.
        unsafe {
            while (*at).tag != 0 {
                if (*at).tag == tag {
                    return Some((*at).value);
                }
                at = at.add(1);
            }
        }
        None
    }

    /// The table that an entry of the dynamic section leads to. (The dynamic linker has made
    /// addresses of some, of others not.)
    unsafe fn table<T>(&self, tag: usize) -> Option<*const T> {
        // SAFETY: as `value`.
        let value = unsafe { self.value(tag) }?;
        let at = if value < self.base { value + self.base } else { value };
        Some(at as *const T)
    }

    /// libc's function for the symbol of this number, where it is one that this library takes of
    /// others.
    unsafe fn imported(&self, number: usize) -> Option<*mut c_void> {
        // SAFETY: tables of this library's, and numbers that stand in its relocations.
        unsafe {
            let symbol = &*self.table::<Symbol>(DT_SYMTAB)?.add(number);
            if symbol.section != 0 {
                return None;
            }
            let index = *self.table::<u16>(DT_VERSYM)?.add(number) & !HIDDEN;
            let mut needed = self.table::<Needed>(DT_VERNEED)?;
            loop {
                let mut version =
                    needed.byte_add((*needed).versions as usize).cast::<NeededVersion>();
                for _ in 0..(*needed).count {
                    if (*version).index & !HIDDEN == index {
                        let of = Self::named(self.names.add((*needed).file as usize))?;
                        return of.function(
                            self.names.add(symbol.name as usize),
                            Some(self.names.add((*version).name as usize)),
                        );
                    }
                    version = version.byte_add((*version).next as usize);
                }
                if (*needed).next == 0 {
                    return None;
                }
                needed = needed.byte_add((*needed).next as usize);
            }
        }
    }

    /// The function called `name` of this version (`None`: of the one that is linked with today)
    /// that it exports.
    unsafe fn function(
        &self,
        name: *const c_char,
        version: Option<*const c_char>,
    ) -> Option<*mut c_void> {
        // SAFETY: tables of a library that is loaded, by the layout of DT_GNU_HASH.
        unsafe {
            let symbols = self.table::<Symbol>(DT_SYMTAB)?;
            let header = self.table::<u32>(DT_GNU_HASH)?;
            let (buckets, first, filter) = (*header, *header.add(1), *header.add(2));
            let bucket = header.add(4 + 2 * filter as usize);
            let chain = bucket.add(buckets as usize);
            let hash = gnu_hash(name);
            let mut number = *bucket.add((hash % buckets.max(1)) as usize);
            if number < first {
                return None;
            }
            loop {
                let one = *chain.add((number - first) as usize);
                let symbol = &*symbols.add(number as usize);
                if one | 1 == hash | 1
                    && symbol.section != 0
                    && same(self.names.add(symbol.name as usize), name)
                    && self.is_of(number as usize, version)
                {
                    let at = self.base + symbol.value;
                    return match symbol.info & 15 {
                        STT_FUNC => Some(at as *mut c_void),
                        STT_GNU_IFUNC => {
                            let choose: extern "C" fn() -> *mut c_void = core::mem::transmute(at);
                            Some(choose())
                        }
                        _ => None,
                    };
                }
                if one & 1 != 0 {
                    return None;
                }
                number += 1;
            }
        }
    }

    /// Whether the symbol of this number has this version.
    unsafe fn is_of(&self, number: usize, version: Option<*const c_char>) -> bool {
        // SAFETY: as above.
        unsafe {
            let Some(versions) = self.table::<u16>(DT_VERSYM) else { return false };
            let index = *versions.add(number);
            let Some(version) = version else { return index & HIDDEN == 0 };
            let Some(mut defined) = self.table::<Defined>(DT_VERDEF) else { return false };
            loop {
                if (*defined).index == index & !HIDDEN {
                    let named = *defined.byte_add((*defined).names as usize).cast::<u32>();
                    return same(self.names.add(named as usize), version);
                }
                if (*defined).next == 0 {
                    return false;
                }
                defined = defined.byte_add((*defined).next as usize);
            }
        }
    }

    /// The memory that the dynamic linker made read-only once this library was relocated.
    unsafe fn relro(&self) -> (usize, usize) {
        // SAFETY: the library begins with its file's header.
        unsafe {
            let header = &*(self.base as *const FileHeader);
            let first = (self.base + header.segments) as *const Segment;
            for i in 0..header.segment_count as usize {
                let segment = &*first.add(i);
                if segment.kind == PT_GNU_RELRO {
                    let start = self.base + segment.address;
                    return (start & !(PAGE - 1), (start + segment.size) & !(PAGE - 1));
                }
            }
            (0, 0)
        }
    }
}

/// Whether two strings are the same.
unsafe fn same(a: *const c_char, b: *const c_char) -> bool {
    // SAFETY: strings.
    unsafe {
        let mut i = 0;
        loop {
            let (x, y) = (a.add(i).read_volatile(), b.add(i).read_volatile());
            if x != y || x == 0 {
                return x == y;
            }
            i += 1;
        }
    }
}

unsafe fn gnu_hash(name: *const c_char) -> u32 {
    let mut hash = 5381u32;
    // SAFETY: a string.
    unsafe {
        let mut at = name;
        while at.read_volatile() != 0 {
            hash = hash.wrapping_mul(33).wrapping_add(u32::from(*at as u8));
            at = at.add(1);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function that the dynamic linker finds in libc for this process.
    fn looked_up(name: &CStr) -> *mut c_void {
        // SAFETY: plain look-ups.
        unsafe {
            let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            assert!(!libc.is_null());
            libc::dlsym(libc, name.as_ptr())
        }
    }

    #[test]
    fn libcs_own_functions_are_found_as_the_dynamic_linker_finds_them() {
        // (One of many versions, and some of which libc chooses by the processor.)
        for name in [c"getpid", c"sigaction", c"realpath", c"dlsym", c"memset", c"strlen"] {
            assert_eq!(of_libc(name), Some(looked_up(name)), "{name:?}");
        }
        assert_eq!(of_libc(c"environ"), None, "no function");
        assert_eq!(of_libc(c"no_such_function"), None);
    }

    /// As `/proc/self/maps` has it: the linker's places lie there.
    #[test]
    fn memory_that_the_dynamic_linker_made_read_only_is_found() {
        // SAFETY: this program is loaded.
        let (start, end) = unsafe { Object::own().unwrap().relro() };
        assert!(start < end);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.starts_with(&format!("{start:x}-")));
        assert!(line.unwrap().contains(" r--p "), "{line:?}");
    }

    /// Of a version that is not the newest one.
    #[test]
    fn a_function_is_found_by_its_version() {
        // SAFETY: libc is loaded; a plain look-up.
        unsafe {
            let libc = Object::named(c"libc.so.6".as_ptr()).unwrap();
            let old = c"GLIBC_2.2.5".as_ptr();
            let found = libc.function(c"memcpy".as_ptr(), Some(old));
            let by_linker =
                libc::dlvsym(libc::RTLD_DEFAULT, c"memcpy".as_ptr(), c"GLIBC_2.2.5".as_ptr());
            assert_eq!(found, Some(by_linker));
            assert_eq!(libc.function(c"memcpy".as_ptr(), Some(c"GLIBC_9".as_ptr())), None);
        }
    }
}
