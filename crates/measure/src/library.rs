//! Where `libuncopy.so` is, and how it is put in front of what is preloaded already.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use uncopy_executable::Machine;

use crate::failure::Failure;
use crate::{elf, failure};

/// The preload library's file name.
pub const FILE_NAME: &str = "libuncopy.so";
/// The file name of the library for `uncopy profile`.
const PROFILER: &str = "libuncopy_profile.so";
/// Names the library for `uncopy` and tells programs under it where it is.
pub const VARIABLE: &str = "UNCOPY_LIBRARY";
/// The loader's list of libraries that come first.
pub const PRELOAD: &str = "LD_PRELOAD";

/// Why a library cannot be put in front of programs.
#[derive(Debug)]
pub enum Unusable {
    /// There is none at this path, or it cannot be reached.
    Missing(PathBuf, io::Error),
    /// It cannot be read.
    Unreadable(PathBuf, io::Error),
    /// It is no library at all.
    NoLibrary(PathBuf),
    /// It is for another architecture.
    Machine(PathBuf, Machine),
    /// Its path has a space or colon, which `LD_PRELOAD` cannot carry.
    Path(PathBuf),
}

impl Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path, why) => {
                write!(f, "the library {} cannot be used ({why})", path.display())
            }
            Self::Unreadable(path, why) => {
                write!(f, "the library {} cannot be read ({why})", path.display())
            }
            Self::NoLibrary(path) => write!(f, "{} is not a library", path.display()),
            Self::Machine(path, machine) => {
                let own = Machine::OWN;
                write!(f, "the library {} is for {machine}, not {own}", path.display())
            }
            Self::Path(path) => write!(
                f,
                "the library's path {} has a space or colon in it, which {PRELOAD} cannot carry",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Unusable {}

/// Finds the library: `given` (`--library`), else the variable, else next to this program, else
/// where `make install` puts it.
///
/// # Errors
/// It is not there, or cannot be preloaded.
pub fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return usable(path).map_err(|why| {
            Failure::new(why).advise(format_args!("give --library the path of {FILE_NAME}"))
        });
    }
    if let Some(path) = std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
        return usable(Path::new(&path)).map_err(|why| {
            Failure::new(why).advise(format_args!("set or unset {VARIABLE}, which names it"))
        });
    }
    beside(FILE_NAME)
}

/// The library called `name` next to this program, or where `make install` puts it.
fn beside(name: &str) -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(|e| {
        Failure::new("cannot tell where uncopy itself is").because(e).advise("give --library PATH")
    })?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    let candidates = [directory.join(name), directory.join("../lib/uncopy").join(name)];
    match candidates.iter().find(|c| c.exists()) {
        Some(path) => {
            usable(path).map_err(|why| Failure::new(why).advise("build or install it again"))
        }
        None => Err(failure!(
            "{name} is neither in {} nor in {}",
            directory.display(),
            directory.with_file_name("lib/uncopy").display(),
        )
        .advise("build or install it, or give --library PATH")),
    }
}

/// The library that follows a program's data, for `uncopy profile`: it lies beside the other one.
///
/// # Errors
/// It is not there, or cannot be preloaded.
pub fn find_profiler() -> Result<PathBuf, Failure> {
    match std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
        Some(other) => usable(&Path::new(&other).with_file_name(PROFILER)).map_err(|why| {
            Failure::new(why)
                .advise(format_args!("{VARIABLE} names the library that it must lie beside"))
        }),
        None => beside(PROFILER),
    }
}

/// Checks that the loader can preload `path` into a program like this one.
fn usable(path: &Path) -> Result<PathBuf, Unusable> {
    let named = || path.to_owned();
    let absolute = path.canonicalize().map_err(|why| Unusable::Missing(named(), why))?;
    match elf::read(&absolute) {
        Ok(Some(header)) if header.machine == Machine::OWN => {}
        Ok(Some(header)) => return Err(Unusable::Machine(named(), header.machine)),
        Ok(None) => return Err(Unusable::NoLibrary(named())),
        Err(why) => return Err(Unusable::Unreadable(named(), why)),
    }
    if absolute.as_os_str().as_bytes().iter().any(|b| b" :\t\n".contains(b)) {
        return Err(Unusable::Path(absolute));
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

/// The rest of `previous` without `library`; nothing if that is nothing.
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
