//! The kernel's way with a file that is executed, and what its headers say about whether a library
//! can be preloaded into it.
//!
//! Little of the file is read, for that is done whenever a program under uncopy executes another
//! one; and no byte of it is trusted.

#![forbid(unsafe_code)]

mod machine;
mod sanitizer;

pub use machine::Machine;

/// A file's content.
pub trait Content {
    /// Reads a part of it, from `at` on; how many bytes that was. A part that cannot be read has
    /// none.
    fn read_some(&self, at: u64, into: &mut [u8]) -> usize;

    /// Reads from `at` on, as much as there is and fits; how many bytes that was.
    fn read(&self, at: u64, into: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < into.len() {
            match self.read_some(at.saturating_add(filled as u64), &mut into[filled..]) {
                0 => break,
                n => filled += n,
            }
        }
        filled
    }
}

impl Content for [u8] {
    fn read_some(&self, at: u64, into: &mut [u8]) -> usize {
        let Some(rest) = usize::try_from(at).ok().and_then(|at| self.get(at..)) else { return 0 };
        let n = rest.len().min(into.len());
        into[..n].copy_from_slice(&rest[..n]);
        n
    }
}

/// The file that is executed.
#[derive(Debug, PartialEq, Eq)]
pub enum Executable {
    /// A script, and the interpreter that its `#!` line names.
    Script(Vec<u8>),
    /// A program.
    Program(Program),
    /// Neither.
    Other,
}

/// The facts of a program that matter here.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// The machine it is for.
    pub machine: Machine,
    /// The dynamic loader that it asks for; a statically linked program has none.
    pub loader: Option<Vec<u8>>,
    /// The sanitizer that it was built with (looked for in programs of this machine).
    pub sanitizer: Option<&'static str>,
}

impl Program {
    /// Whether the dynamic loader would say that it cannot preload our library, or the program
    /// would not run under it. `loader` is the loader of programs that it can be preloaded into. (A
    /// static program has none that would say anything, and hands the environment on to those that
    /// have one.)
    pub fn minds_the_library(&self, loader: &[u8]) -> bool {
        let Some(own) = &self.loader else { return false };
        self.machine != Machine::OWN || name(own) != name(loader) || self.sanitizer.is_some()
    }
}

/// The last part of a path.
pub fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or(path)
}

/// So much of a script's first line does the kernel look at.
const LINE: usize = 256;
/// Most program headers, and most of a loader's path, that the kernel takes.
const HEADERS: usize = 64 << 10;
const PATH: u64 = 4096;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;

/// Looks at a file.
pub fn look(file: &(impl Content + ?Sized)) -> Executable {
    let mut start = [0; LINE];
    let n = file.read(0, &mut start);
    let start = &start[..n];
    if let Some(interpreter) = shebang(start) {
        return Executable::Script(interpreter.to_owned());
    }
    program(file, start).map_or(Executable::Other, Executable::Program)
}

/// The interpreter that a script's first line names.
fn shebang(start: &[u8]) -> Option<&[u8]> {
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|b| *b == b'\n').next()?;
    let name = line.trim_ascii_start().split(|b| b" \t\0".contains(b)).next()?;
    (!name.is_empty()).then_some(name)
}

/// A part of a program.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

/// The machine that a program is for, and its parts; `start` is the file's beginning.
fn parts(file: &(impl Content + ?Sized), start: &[u8]) -> Option<(Machine, Vec<Segment>)> {
    let ident = start.get(..16).filter(|ident| ident.starts_with(b"\x7fELF"))?;
    let wide = match ident[4] {
        1 => false,
        2 => true,
        _ => return None,
    };
    let big = match ident[5] {
        1 => false,
        2 => true,
        _ => return None,
    };
    let whole = start.get(..if wide { 64 } else { 52 })?;
    let number = |bytes: &[u8], at: usize, size: usize| number(bytes, at, size, big);
    let machine = Machine { is_64: wide, big_endian: big, number: number(whole, 18, 2)? as u16 };
    let (first, size, count) = if wide {
        (number(whole, 32, 8)?, number(whole, 54, 2)?, number(whole, 56, 2)?)
    } else {
        (number(whole, 28, 4)?, number(whole, 42, 2)?, number(whole, 44, 2)?)
    };
    let size = size as usize;
    let mut headers = vec![0; (size * count as usize).min(HEADERS)];
    let n = file.read(first, &mut headers);
    headers.truncate(n);
    let segments = headers
        .chunks_exact(size.max(if wide { 56 } else { 32 }))
        .filter_map(|one| {
            let (offset, address, bytes, word) = if wide { (8, 16, 32, 8) } else { (4, 8, 16, 4) };
            Some(Segment {
                kind: number(one, 0, 4)? as u32,
                offset: number(one, offset, word)?,
                address: number(one, address, word)?,
                bytes: number(one, bytes, word)?,
            })
        })
        .collect();
    Some((machine, segments))
}

fn program(file: &(impl Content + ?Sized), start: &[u8]) -> Option<Program> {
    let (machine, segments) = parts(file, start)?;
    let interpreter = segments.iter().find(|segment| segment.kind == PT_INTERP);
    let loader = interpreter.map(|segment| {
        let mut path = vec![0; segment.bytes.min(PATH) as usize];
        let n = file.read(segment.offset, &mut path);
        let end = path[..n].iter().position(|b| *b == 0).unwrap_or(n);
        path.truncate(end);
        path
    });
    let looks = loader.is_some() && machine == Machine::OWN;
    let sanitizer = if looks { sanitizer::of(file, &segments) } else { None };
    Some(Program { machine, loader, sanitizer })
}

/// A number of `size` bytes.
fn number(bytes: &[u8], at: usize, size: usize, big: bool) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    let join = |all: u64, byte: &u8| all << 8 | u64::from(*byte);
    Some(if big { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shebang_lines_are_read_as_the_kernel_does() {
        let script = |name: &[u8]| Executable::Script(name.to_owned());
        assert_eq!(look(&b"#!/bin/sh\necho"[..]), script(b"/bin/sh"));
        assert_eq!(look(&b"#! \t/usr/bin/env  python3"[..]), script(b"/usr/bin/env"));
        assert_eq!(look(&b"#!\n"[..]), Executable::Other);
    }

    #[test]
    fn this_test_is_a_dynamic_program_of_our_own_machine() {
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let Executable::Program(found) = look(&*file) else { panic!("no program") };
        assert_eq!((found.machine, found.sanitizer), (Machine::OWN, None));
        let loader = found.loader.as_deref().unwrap();
        assert!(loader.starts_with(b"/"));
        assert!(!found.minds_the_library(loader));
        assert!(found.minds_the_library(b"/lib/ld-musl-x86_64.so.1"), "another C library");
    }

    #[test]
    fn a_bare_header_is_static_and_names_its_machine() {
        let mut bytes = vec![0u8; 52];
        bytes[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
        bytes[16] = 2;
        bytes[18] = 40;
        bytes[20] = 1;
        let Executable::Program(found) = look(&*bytes) else { panic!("no program") };
        assert_eq!(found.machine.to_string(), "32-bit ARM");
        assert_eq!(found.loader, None);
        assert!(!found.minds_the_library(b"/lib64/ld-linux-x86-64.so.2"), "nobody says a word");
    }

    #[test]
    fn text_empty_and_cut_off_files_are_not_programs() {
        for content in [&b""[..], b"text", b"\x7fELF", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02"]
        {
            assert_eq!(look(content), Executable::Other, "{content:?}");
        }
    }
}
