//! What an executable's ELF header says about whether a library can be preloaded into it.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use object::elf;
use object::endian::{Endian, Endianness};
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};

/// Word size and architecture of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Whether addresses are 64 bits wide.
    pub is_64: bool,
    /// Byte order.
    pub big_endian: bool,
    /// The `e_machine` number.
    pub number: u16,
}

impl Machine {
    /// The machine that this program was built for.
    pub const OWN: Self = Self {
        is_64: cfg!(target_pointer_width = "64"),
        big_endian: cfg!(target_endian = "big"),
        number: if cfg!(target_arch = "x86_64") {
            elf::EM_X86_64.0
        } else if cfg!(target_arch = "aarch64") {
            elf::EM_AARCH64.0
        } else if cfg!(target_arch = "riscv64") {
            elf::EM_RISCV.0
        } else {
            elf::EM_NONE.0
        },
    };
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = if self.is_64 { 64 } else { 32 };
        let name = match elf::Machine(self.number) {
            elf::EM_X86_64 if self.is_64 => return write!(f, "x86-64"),
            elf::EM_X86_64 => return write!(f, "x32"),
            elf::EM_386 => return write!(f, "32-bit x86"),
            elf::EM_AARCH64 => return write!(f, "AArch64"),
            elf::EM_ARM => "ARM",
            elf::EM_RISCV => "RISC-V",
            elf::EM_PPC64 | elf::EM_PPC => "PowerPC",
            elf::EM_S390 => "S/390",
            elf::EM_MIPS => "MIPS",
            _ => return write!(f, "{bits}-bit machine number {}", self.number),
        };
        write!(f, "{bits}-bit {name}")
    }
}

/// What matters of a header.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    /// The machine it is for.
    pub machine: Machine,
    /// The dynamic loader that it asks for; a statically linked program has none.
    pub loader: Option<PathBuf>,
}

/// Reads the header of `path`; `None` if it is not an ELF file.
pub fn read(path: &Path) -> io::Result<Option<Header>> {
    Ok(header(&ReadCache::new(File::open(path)?)))
}

/// The same of a file's content.
pub fn header<'a>(file: impl ReadRef<'a>) -> Option<Header> {
    let ident = file.read_bytes_at(0, 16).ok().filter(|ident| ident.starts_with(&elf::ELFMAG))?;
    match elf::FileClass(ident[4]) {
        elf::ELFCLASS32 => parse::<elf::FileHeader32<Endianness>, _>(file, false),
        elf::ELFCLASS64 => parse::<elf::FileHeader64<Endianness>, _>(file, true),
        _ => None,
    }
}

fn parse<'a, H: FileHeader<Endian = Endianness>, R: ReadRef<'a>>(
    file: R,
    is_64: bool,
) -> Option<Header> {
    use std::os::unix::ffi::OsStrExt;

    let header = H::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let machine =
        Machine { is_64, big_endian: endian.is_big_endian(), number: header.e_machine(endian).0 };
    let loader = header
        .program_headers(endian, file)
        .unwrap_or_default()
        .iter()
        .find_map(|segment| segment.interpreter(endian, file).ok().flatten())
        .map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name)));
    Some(Header { machine, loader })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign_bytes::Damages;

    #[test]
    fn this_test_is_a_dynamic_program_of_our_own_machine() {
        let header = read(&std::env::current_exe().unwrap()).unwrap().unwrap();
        assert_eq!(header.machine, Machine::OWN);
        assert!(header.loader.is_some());
    }

    /// See `foreign_bytes`.
    #[test]
    fn a_damaged_header_is_read_or_refused() {
        let mut whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        whole.truncate(1 << 16);
        bolero::check!().with_type::<Damages>().with_iterations(3000).for_each(|damages| {
            if let Some(header) = header(&*damages.done_to(&whole)) {
                let _ = header.machine.to_string();
            }
        });
    }

    #[test]
    fn a_bare_header_is_static_and_names_its_machine() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("arm");
        let mut bytes = vec![0u8; 52];
        bytes[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
        bytes[16] = 2;
        bytes[18] = 40;
        bytes[20] = 1;
        std::fs::write(&path, bytes).unwrap();
        let header = read(&path).unwrap().unwrap();
        assert_eq!(header.machine.to_string(), "32-bit ARM");
        assert_eq!(header.loader, None);
    }

    #[test]
    fn text_empty_and_cut_off_files_are_not_programs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for content in
            [&b""[..], b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02"]
        {
            std::fs::write(&path, content).unwrap();
            assert_eq!(read(&path).unwrap(), None, "{content:?}");
        }
    }
}
