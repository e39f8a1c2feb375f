//! Sanitizers replace the functions that a preload library replaces, and want to be the first. A
//! program has its sanitizer as a shared library, or exports what such a library would.

use crate::{Content, PT_DYNAMIC, PT_LOAD, Segment, number};

struct Sanitizer {
    name: &'static str,
    /// Parts of its shared library's name: gcc's, clang's.
    libraries: [&'static str; 2],
    /// A function of its own.
    function: &'static str,
}

const ALL: [Sanitizer; 5] = [
    Sanitizer {
        name: "AddressSanitizer",
        libraries: ["libasan.so", "clang_rt.asan"],
        function: "__asan_init",
    },
    Sanitizer {
        name: "ThreadSanitizer",
        libraries: ["libtsan.so", "clang_rt.tsan"],
        function: "__tsan_init",
    },
    Sanitizer {
        name: "MemorySanitizer",
        libraries: ["libmsan.so", "clang_rt.msan"],
        function: "__msan_init",
    },
    Sanitizer {
        name: "LeakSanitizer",
        libraries: ["liblsan.so", "clang_rt.lsan"],
        function: "__lsan_init",
    },
    Sanitizer {
        name: "HWAddressSanitizer",
        libraries: ["libhwasan.so", "clang_rt.hwasan"],
        function: "__hwasan_init",
    },
];

const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// Most entries that are looked at, and the longest name.
const ENTRIES: usize = 1024;
const NAME: usize = 64;
const SYMBOL: u64 = 24;
/// Longest chain of symbols with the same hash.
const CHAIN: u32 = 256;

/// The sanitizer of a 64-bit program of this machine, by its dynamic section.
pub(crate) fn of(file: &(impl Content + ?Sized), segments: &[Segment]) -> Option<&'static str> {
    let program = Dynamic::of(file, segments)?;
    let names = program.table(DT_STRTAB)?;
    let needed = program.entries.iter().filter(|(tag, _)| *tag == DT_NEEDED);
    let mut of_libraries = needed.filter_map(|(_, at)| {
        let mut name = [0; NAME];
        let n = file.read(names.checked_add(*at)?, &mut name);
        let name = name[..n].split(|b| *b == 0).next()?;
        let has = |part: &str| name.windows(part.len()).any(|window| window == part.as_bytes());
        ALL.iter().find(|one| one.libraries.iter().any(|part| has(part)))
    });
    let of_exports = || {
        let exports = program.exports()?;
        ALL.iter().find(|one| exports.have(one.function.as_bytes()))
    };
    of_libraries.next().or_else(of_exports).map(|one| one.name)
}

/// The dynamic section of a program.
struct Dynamic<'a, C: ?Sized> {
    file: &'a C,
    segments: &'a [Segment],
    entries: Vec<(u64, u64)>,
}

impl<'a, C: Content + ?Sized> Dynamic<'a, C> {
    fn of(file: &'a C, segments: &'a [Segment]) -> Option<Self> {
        let section = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
        let mut bytes = vec![0; (section.bytes as usize).min(16 * ENTRIES)];
        let n = file.read(section.offset, &mut bytes);
        let word = |at| number(&bytes[..n], at, 8, cfg!(target_endian = "big"));
        let entries = (0..n / 16)
            .map_while(|i| Some((word(16 * i)?, word(16 * i + 8)?)))
            .take_while(|(tag, _)| *tag != 0)
            .collect();
        Some(Self { file, segments, entries })
    }

    /// Where in the file it is that an entry names by its address.
    fn table(&self, tag: u64) -> Option<u64> {
        let (_, address) = self.entries.iter().find(|(found, _)| *found == tag)?;
        let loaded = self.segments.iter().filter(|segment| segment.kind == PT_LOAD);
        loaded.into_iter().find_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            (within < segment.bytes).then(|| segment.offset.checked_add(within))?
        })
    }

    fn number(&self, at: Option<u64>, size: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        let n = self.file.read(at?, &mut bytes[..size]);
        number(&bytes[..n], 0, size, cfg!(target_endian = "big"))
    }

    /// The exported symbols, by the table that the dynamic loader looks in.
    fn exports(&self) -> Option<Exports<'_, 'a, C>> {
        let (names, symbols) = (self.table(DT_STRTAB)?, self.table(DT_SYMTAB)?);
        let table = self.table(DT_GNU_HASH)?;
        let word = |i: u64| Some(self.number(table.checked_add(4 * i), 4)? as u32);
        let (buckets, first, filter, shift) = (word(0)?, word(1)?, word(2)?, word(3)?);
        Some(Exports { program: self, names, symbols, table, buckets, first, filter, shift })
    }
}

/// A program's table of what it exports (DT_GNU_HASH).
struct Exports<'p, 'a, C: ?Sized> {
    program: &'p Dynamic<'a, C>,
    names: u64,
    symbols: u64,
    table: u64,
    buckets: u32,
    first: u32,
    filter: u32,
    shift: u32,
}

impl<C: Content + ?Sized> Exports<'_, '_, C> {
    /// It has a function of this name.
    fn have(&self, name: &[u8]) -> bool {
        self.look_up(name).is_some()
    }

    fn look_up(&self, name: &[u8]) -> Option<()> {
        let u32_at = |at: Option<u64>| Some(self.program.number(at, 4)? as u32);
        let below = |at: u64, more: u64| at.checked_add(more);
        let filter = u64::from(self.filter);
        let hash = name.iter().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add((*b).into()));
        // (Most programs are known by the filter not to have it.)
        let word = u64::from(hash / 64).checked_rem(filter)?;
        let word = self.program.number(below(self.table, 16 + 8 * word), 8)?;
        if word >> (hash % 64) & word >> (hash.unbounded_shr(self.shift) % 64) & 1 == 0 {
            return None;
        }
        let bucket = below(self.table, 16 + 8 * filter)?;
        let chain = below(bucket, 4 * u64::from(self.buckets))?;
        let mut symbol = u32_at(below(bucket, 4 * u64::from(hash.checked_rem(self.buckets)?)))?;
        for _ in 0..CHAIN {
            let one = u32_at(below(chain, 4 * u64::from(symbol.checked_sub(self.first)?)))?;
            if one | 1 == hash | 1 {
                let at = below(self.symbols, SYMBOL * u64::from(symbol));
                let at = self.program.number(at, 4)?;
                let mut found = [0; NAME];
                let n = self.program.file.read(self.names.checked_add(at)?, &mut found);
                if found[..n].split(|b| *b == 0).next() == Some(name) {
                    return Some(());
                }
            }
            if one & 1 != 0 {
                return None;
            }
            symbol = symbol.checked_add(1)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// libc, as this program has it.
    fn libc() -> Vec<u8> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.ends_with("/libc.so.6")).unwrap();
        std::fs::read(&line[line.find('/').unwrap()..]).unwrap()
    }

    #[test]
    fn exports_of_a_program_are_found_as_the_dynamic_linker_finds_them() {
        let file = &*libc();
        let (_, segments) = crate::parts(file, &file[..256]).unwrap();
        let libc = Dynamic::of(file, &segments).unwrap();
        let exports = libc.exports().unwrap();
        for name in ["getpid", "sigaction", "memcpy", "__libc_malloc", "environ"] {
            assert!(exports.have(name.as_bytes()), "{name}");
        }
        for name in ["__asan_init", "no_such_function", "getpi", ""] {
            assert!(!exports.have(name.as_bytes()), "{name}");
        }
    }
}
