//! The headers of an executable, and whether they let a library be preloaded into it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use uncopy_executable::{Content, Executable, Program, look};

struct Opened(File);

impl Content for Opened {
    fn read_some(&self, at: u64, into: &mut [u8]) -> usize {
        self.0.read_at(into, at).unwrap_or(0)
    }
}

/// The kernel's reading of `path`.
pub fn executable(path: &Path) -> io::Result<Executable> {
    Ok(look(&Opened(File::open(path)?)))
}

/// Reads the headers of `path`; `None` if it is not an ELF file.
pub fn read(path: &Path) -> io::Result<Option<Program>> {
    Ok(match executable(path)? {
        Executable::Program(program) => Some(program),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_program() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        assert_eq!(read(&path).unwrap(), None);
    }
}
