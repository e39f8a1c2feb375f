//! Which function and library an address of a running process belongs to.

use std::collections::HashMap;
use std::fs::File;

use object::elf::FileHeader64;
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, ReadCache, SymbolKind, elf};

use super::process::{self, Mapping};
use crate::printable::printable;

/// Where a call was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The nearest function that has a name, and how far into it; else how far into the file.
    pub function: String,
    /// The file's name.
    pub library: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.library.is_empty() {
            return f.write_str(&printable(&self.function));
        }
        write!(f, "{} ({})", printable(&self.function), printable(&self.library))
    }
}

/// Knows the memory map of one process, and the symbols of its files as far as they were asked for.
#[derive(Debug)]
pub struct Symbols {
    pid: u32,
    maps: Vec<Mapping>,
    files: HashMap<String, Option<Functions>>,
}

/// The functions of a file, and where its segments lie: (file offset, length, address).
#[derive(Debug, Default)]
struct Functions {
    segments: Vec<(u64, u64, u64)>,
    /// Address, size, name; by address.
    names: Vec<(u64, u64, String)>,
}

impl Symbols {
    /// Those of a process; of one that may not be looked at, none.
    pub fn of(pid: u32) -> Self {
        Self { pid, maps: process::maps(pid).unwrap_or_default(), files: HashMap::new() }
    }

    /// Where the call that returns to `address` was made.
    pub fn place(&mut self, address: u64) -> Place {
        if address == 0 {
            return Place { function: "(all others)".into(), library: String::new() };
        }
        // The call lies before what it returns to.
        let at = address - 1;
        let unknown = Place { function: format!("{address:#x}"), library: String::new() };
        let Some(m) = self.maps.iter().find(|m| m.start <= at && at < m.end) else {
            return unknown;
        };
        if !m.path.starts_with('/') {
            return Place { library: m.path.clone(), ..unknown };
        }
        let path = m.path.trim_end_matches(" (deleted)").to_owned();
        let offset = at - m.start + m.offset;
        let library = path.rsplit('/').next().unwrap_or(&path).to_owned();
        let pid = self.pid;
        let functions = self.files.entry(path).or_insert_with_key(|path| {
            // As the process sees it: it may live in a container.
            functions(&format!("/proc/{pid}/root{path}")).or_else(|| functions(path))
        });
        let named = functions.as_ref().and_then(|f| f.name(offset));
        let function = named.unwrap_or_else(|| format!("+{:#x}", offset + 1));
        Place { function, library }
    }
}

/// The symbols of files, by their own addresses: for processes that are gone.
#[derive(Debug, Default)]
pub struct Files(HashMap<String, Option<Functions>>);

impl Files {
    /// Where the call that returns to `address` of the file was made.
    pub fn place(&mut self, path: &str, address: u64) -> Place {
        if path.is_empty() {
            return Place { function: format!("{address:#x}"), library: "no file".into() };
        }
        let library = path.rsplit('/').next().unwrap_or(path).to_owned();
        let found = self.0.entry(path.to_owned()).or_insert_with(|| functions(path));
        let named = found.as_ref().and_then(|f| f.named(address.saturating_sub(1)));
        Place { function: named.unwrap_or_else(|| format!("+{address:#x}")), library }
    }
}

impl Functions {
    fn name(&self, offset: u64) -> Option<String> {
        let inside = |s: &&(u64, u64, u64)| s.0 <= offset && offset < s.0 + s.1;
        let segment = self.segments.iter().find(inside)?;
        self.named(offset - segment.0 + segment.2)
    }

    /// The function at an address of the file's own.
    fn named(&self, address: u64) -> Option<String> {
        let behind = self.names.partition_point(|(start, ..)| *start <= address);
        let (start, size, name) = self.names[..behind].last()?;
        // Between two functions: a static one without a name.
        (*size == 0 || address < start + size).then(|| format!("{name}+{:#x}", address + 1 - start))
    }
}

fn functions(path: &str) -> Option<Functions> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let mut found = Functions::default();
    for segment in header.program_headers(endian, &cache).ok()? {
        if segment.p_type(endian) == elf::PT_LOAD {
            let (offset, length) = segment.file_range(endian);
            found.segments.push((offset, length, segment.p_vaddr(endian)));
        }
    }
    let file = ElfFile::<FileHeader64<Endianness>, _>::parse(&cache).ok()?;
    for symbol in file.dynamic_symbols().chain(file.symbols()) {
        if symbol.is_definition()
            && symbol.kind() == SymbolKind::Text
            && let Ok(name) = symbol.name()
        {
            found.names.push((symbol.address(), symbol.size(), readable(name)));
        }
    }
    found.names.sort();
    found.names.dedup_by_key(|n| n.0);
    Some(found)
}

/// A name as its language writes it: Rust's and C++'s without types and hash; any other as it is.
fn readable(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if !name.starts_with("_Z") {
        return name.to_owned();
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let symbol = cpp_demangle::Symbol::new(name).ok();
    symbol
        .and_then(|symbol| symbol.demangle_with_options(&options).ok())
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_libc_is_found_by_an_address_in_it() {
        let address = libc::getenv as *const () as u64;
        let place = Symbols::of(std::process::id()).place(address + 4);
        assert_eq!(place.function, "getenv+0x4");
        assert!(place.library.starts_with("libc"), "{place:?}");
    }

    #[test]
    fn mangled_names_become_what_was_written_and_others_stay() {
        for (mangled, written) in [
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvC1a1b", "a::b"),
            ("_ZN3fooC1Ev", "foo::foo"),
            (
                "_ZNSt6vectorIcSaIcEE17_M_realloc_insertIJRKcEEEvN9__gnu_cxx17__normal_iteratorIPcS1_EEDpOT_",
                "std::vector<char, std::allocator<char> >::_M_realloc_insert<char const&>",
            ),
        ] {
            assert_eq!(readable(mangled), written);
        }
        assert!(readable("_ZNK3foo3barEv").starts_with("foo::bar"));
        for name in ["memcpy", "_ZN99shortE", "_ZN", "_start", "zread"] {
            assert_eq!(readable(name), name);
        }
    }

    #[test]
    fn an_address_that_is_nobodys_stays_a_number() {
        let place = Symbols::of(std::process::id()).place(0x10);
        assert_eq!(place.to_string(), "0x10");
    }
}
