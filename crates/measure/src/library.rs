//! Where `libuncopy.so` is, and how it is put in front of what is preloaded already.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use uncopy_executable::Machine;

use crate::elf;

/// The preload library's file name.
pub const FILE_NAME: &str = "libuncopy.so";
/// The file name of the library for `uncopy profile`.
const PROFILER: &str = "libuncopy_profile.so";
/// Names the library for `uncopy` and tells programs under it where it is.
pub const VARIABLE: &str = "UNCOPY_LIBRARY";
/// The loader's list of libraries that come first.
pub const PRELOAD: &str = "LD_PRELOAD";

/// Finds the library: `given` (`--library`), else the variable, else next to this program, else
/// where `make install` puts it. The error is a sentence that says what to do.
pub fn find(given: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = given {
        return usable(path)
            .map_err(|why| format!("{why}; give --library the path of {FILE_NAME}"));
    }
    if let Some(path) = std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
        return usable(Path::new(&path))
            .map_err(|why| format!("{why}; set or unset {VARIABLE}, which names it"));
    }
    beside(FILE_NAME)
}

/// The library called `name` next to this program, or where `make install` puts it.
fn beside(name: &str) -> Result<PathBuf, String> {
    let program = std::env::current_exe()
        .map_err(|e| format!("cannot tell where uncopy itself is ({e}); give --library PATH"))?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    let candidates = [directory.join(name), directory.join("../lib/uncopy").join(name)];
    match candidates.iter().find(|c| c.exists()) {
        Some(path) => usable(path),
        None => Err(format!(
            "{name} is neither in {} nor in {}; build or install it, or give --library PATH",
            directory.display(),
            directory.with_file_name("lib/uncopy").display(),
        )),
    }
}

/// The library that follows a program's data, for `uncopy profile`: it lies beside the other one.
pub fn find_profiler() -> Result<PathBuf, String> {
    match std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
        Some(other) => usable(&Path::new(&other).with_file_name(PROFILER))
            .map_err(|why| format!("{why}; {VARIABLE} names the library that it must lie beside")),
        None => beside(PROFILER),
    }
}

/// Checks that the loader can preload `path` into a program like this one.
fn usable(path: &Path) -> Result<PathBuf, String> {
    let shown = path.display();
    let absolute =
        path.canonicalize().map_err(|e| format!("the library {shown} cannot be used ({e})"))?;
    match elf::read(&absolute) {
        Ok(Some(header)) if header.machine == Machine::OWN => {}
        Ok(Some(header)) => {
            return Err(format!(
                "the library {shown} is for {}, not {}",
                header.machine,
                Machine::OWN
            ));
        }
        Ok(None) => return Err(format!("{shown} is not a library")),
        Err(e) => return Err(format!("the library {shown} cannot be read ({e})")),
    }
    if absolute.as_os_str().as_bytes().iter().any(|b| b" :\t\n".contains(b)) {
        return Err(format!(
            "the library's path {} has a space or colon in it, which {PRELOAD} cannot carry",
            absolute.display()
        ));
    }
    Ok(absolute)
}

/// The value of `LD_PRELOAD` with `library` in front of `previous`, and in there only once.
pub fn preload_value(library: &Path, previous: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().as_bytes().to_vec();
    if let Some(rest) = without(library, previous) {
        value.push(b':');
        value.extend_from_slice(rest.as_bytes());
    }
    OsString::from_vec(value)
}

/// What stays of `previous` without `library`; nothing if that is nothing.
pub fn without(library: &Path, previous: Option<&OsStr>) -> Option<OsString> {
    let ours = library.as_os_str().as_bytes();
    let others: Vec<&[u8]> = previous?
        .as_bytes()
        .split(|b| b" :".contains(b))
        .filter(|entry| !entry.is_empty() && *entry != ours)
        .collect();
    (!others.is_empty()).then(|| OsString::from_vec(others.join(&b':')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_and_once() {
        let ours = Path::new("/l/libuncopy.so");
        let with = |previous: &str| preload_value(ours, Some(OsStr::new(previous)));
        assert_eq!(preload_value(ours, None), "/l/libuncopy.so");
        assert_eq!(with(""), "/l/libuncopy.so");
        assert_eq!(with("a.so b.so"), "/l/libuncopy.so:a.so:b.so");
        assert_eq!(with("a.so:/l/libuncopy.so"), "/l/libuncopy.so:a.so");
        assert_eq!(without(ours, Some(OsStr::new("/l/libuncopy.so"))), None);
    }
}
