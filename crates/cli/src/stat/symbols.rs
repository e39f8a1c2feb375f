//! Which function and library an address of a running process belongs to.

use std::collections::HashMap;
use std::fs::File;

use cpp_demangle::DemangleOptions;
use object::elf::FileHeader64;
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, ReadCache, ReadRef, SymbolKind, elf};
use uncopy_measure::library::FILE_NAME;
use uncopy_measure::printable::printable;

use super::process::{self, Mapping};

/// Where a call was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The nearest function that has a name, and how far into it; else how far into the file.
    pub function: String,
    /// The file's name.
    pub library: String,
}

impl std::fmt::Display for Location {
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
    pub fn place(&mut self, address: u64) -> Location {
        if address == 0 {
            return Location { function: "(all others)".into(), library: String::new() };
        }
        // The call lies before what it returns to.
        let at = address - 1;
        let unknown = Location { function: format!("{address:#x}"), library: String::new() };
        let Some(m) = self.maps.iter().find(|m| m.start <= at && at < m.end) else {
            return unknown;
        };
        if !m.path.starts_with('/') {
            return Location { library: m.path.clone(), ..unknown };
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
        if library == FILE_NAME {
            return shared(named);
        }
        let function = named.unwrap_or_else(|| format!("+{:#x}", offset + 1));
        Location { function, library }
    }
}

/// The account that all calls of a function share whose callers uncopy does not tell apart: it has
/// the address of uncopy's own entry of that name.
fn shared(entry: Option<String>) -> Location {
    let name = entry.as_deref().and_then(|name| name.rsplit("::").next()?.split('+').next());
    let function = name.filter(|name| !name.is_empty()).unwrap_or("a call").to_owned();
    Location { function, library: "wherever it is called".into() }
}

/// The symbols of files, by their own addresses: for processes that are gone.
#[derive(Debug, Default)]
pub struct Files(HashMap<String, Option<Functions>>);

impl Files {
    /// Where the call that returns to `address` of the file was made.
    pub fn place(&mut self, path: &str, address: u64) -> Location {
        if path.is_empty() {
            return Location { function: format!("{address:#x}"), library: "no file".into() };
        }
        let library = path.rsplit('/').next().unwrap_or(path).to_owned();
        let found = self.0.entry(path.to_owned()).or_insert_with(|| functions(path));
        let named = found.as_ref().and_then(|f| f.named(address.saturating_sub(1)));
        Location { function: named.unwrap_or_else(|| format!("+{address:#x}")), library }
    }
}

impl Functions {
    /// Those of a file's content.
    fn of<'a>(content: impl ReadRef<'a>) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(content).ok()?;
        let endian = header.endian().ok()?;
        let mut found = Self::default();
        for segment in header.program_headers(endian, content).ok()? {
            if segment.p_type(endian) == elf::PT_LOAD {
                let (offset, length) = segment.file_range(endian);
                found.segments.push((offset, length, segment.p_vaddr(endian)));
            }
        }
        let file = ElfFile::<FileHeader64<Endianness>, _>::parse(content).ok()?;
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

    fn name(&self, offset: u64) -> Option<String> {
        let inside = |s: &&(u64, u64, u64)| s.0 <= offset && offset - s.0 < s.1;
        let segment = self.segments.iter().find(inside)?;
        self.named((offset - segment.0).wrapping_add(segment.2))
    }

    /// The function at an address of the file's own.
    fn named(&self, address: u64) -> Option<String> {
        let behind = self.names.partition_point(|(start, ..)| *start <= address);
        let (start, size, name) = self.names[..behind].last()?;
        // Between two functions: a static one without a name.
        (*size == 0 || address - start < *size)
            .then(|| format!("{name}+{:#x}", address - start + 1))
    }
}

fn functions(path: &str) -> Option<Functions> {
    Functions::of(&ReadCache::new(File::open(path).ok()?))
}

/// A name that C++ or Rust has mangled as it was written, without parameters and hash; any other
/// name as it is.
fn readable(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    let cpp = cpp_demangle::Symbol::new(name).ok().filter(|_| name.starts_with("_Z"));
    cpp.and_then(|symbol| symbol.demangle_with_options(&options).ok())
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use bolero::check;

    use super::*;
    use crate::foreign_bytes::Damages;

    #[test]
    fn an_account_of_all_callers_is_named_after_the_call_and_not_after_uncopy() {
        let named = |entry: &str| shared(Some(entry.to_owned())).to_string();
        assert_eq!(named("realloc+0x1"), "realloc (wherever it is called)");
        assert_eq!(
            named("uncopy::hooks::entries::own::sendto+0x1"),
            "sendto (wherever it is called)"
        );
        assert_eq!(shared(None).to_string(), "a call (wherever it is called)");
    }

    #[test]
    fn a_function_of_libc_is_found_by_an_address_in_it() {
        let address = libc::getenv as *const () as u64;
        let place = Symbols::of(std::process::id()).place(address + 4);
        assert_eq!(place.function, "getenv+0x4");
        assert!(place.library.starts_with("libc"), "{place:?}");
    }

    #[test]
    fn mangled_names_are_read_and_others_stay() {
        assert_eq!(readable("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(readable("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(readable("_ZNK3foo3barEv"), "foo::bar");
        assert_eq!(readable("_ZN3fooC1Ev"), "foo::foo");
        assert_eq!(
            readable("_ZNSt6vectorIiSaIiEE9push_backERKi"),
            "std::vector<int, std::allocator<int> >::push_back"
        );
        for name in ["memcpy", "_ZN99shortE", "_ZN", "i"] {
            assert_eq!(readable(name), name);
        }
    }

    /// See `foreign_bytes`.
    #[test]
    fn a_damaged_library_has_the_symbols_that_can_be_read() {
        let whole = std::fs::read("/proc/self/maps").unwrap();
        let maps = String::from_utf8_lossy(&whole);
        let libc = maps
            .lines()
            .find_map(|line| line.split(' ').next_back().filter(|p| p.contains("/libgcc_s")));
        let whole = std::fs::read(libc.expect("a small library")).unwrap();
        let addresses = [0, 0x1000, 0x5000, u64::MAX - 1, u64::MAX];
        check!().with_type::<Damages>().with_iterations(300).for_each(|damages| {
            if let Some(functions) = Functions::of(&*damages.done_to(&whole)) {
                for address in addresses {
                    let _ = (functions.name(address), functions.named(address));
                }
            }
        });
    }

    #[test]
    fn any_name_can_be_read() {
        check!().with_iterations(20_000).for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            for mangled in
                [text.as_ref(), &format!("_Z{text}"), &format!("_R{text}"), &format!("_ZN{text}E")]
            {
                readable(mangled);
            }
        });
    }

    #[test]
    fn an_address_that_is_nobodys_stays_a_number() {
        let place = Symbols::of(std::process::id()).place(0x10);
        assert_eq!(place.to_string(), "0x10");
    }
}
