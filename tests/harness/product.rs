//! The command under test, and where the repository is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::SystemTime;

use crate::verdict::Stop;

/// The repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The command: `UNCOPY` names it; else it is the release build.
pub fn uncopy() -> Result<&'static Path, Stop> {
    static FOUND: LazyLock<Result<PathBuf, Stop>> = LazyLock::new(find);
    FOUND.as_deref().map_err(Clone::clone)
}

/// The library that the command preloads: `UNCOPY_TEST_LIBRARY` names another one than that beside
/// it.
pub fn library() -> Result<PathBuf, Stop> {
    if let Some(named) = named_library() {
        return Ok(named);
    }
    let beside = uncopy()?.with_file_name("libuncopy.so");
    let installed = uncopy()?.with_file_name("../lib/uncopy/libuncopy.so");
    [beside, installed].into_iter().find(|path| path.exists()).ok_or_else(|| {
        Stop::Fail(
            "no libuncopy.so beside the command, nor where it is installed; run 'make build'"
                .into(),
        )
    })
}

/// The library that was named instead of the one beside the command.
pub fn named_library() -> Option<PathBuf> {
    let named = PathBuf::from(std::env::var_os("UNCOPY_TEST_LIBRARY")?);
    Some(std::path::absolute(&named).unwrap_or(named))
}

/// `uncopy run OPTIONS -- PROGRAM...`
pub fn under(options: &[&str], program: &[OsString]) -> Result<Vec<OsString>, Stop> {
    let mut words = vec![uncopy()?.into(), "run".into()];
    words.extend(options.iter().map(OsString::from));
    words.push("--".into());
    words.extend_from_slice(program);
    Ok(words)
}

fn find() -> Result<PathBuf, Stop> {
    if let Some(named) = std::env::var_os("UNCOPY") {
        let found = Path::new(&named).canonicalize().ok().filter(|path| path.is_file());
        return found.ok_or_else(|| {
            Stop::Fail(format!("UNCOPY names {}, and there is no such file", named.display()))
        });
    }
    // This program is target/PROFILE/deps/NAME.
    let own = std::env::current_exe()
        .map_err(|e| format!("where this program is cannot be told ({e})"))?;
    let built = own.ancestors().nth(3).unwrap_or(&own).join("release/uncopy");
    if !built.is_file() {
        return Err(Stop::Skip(
            "there is no release build; run 'make build', or name the command in UNCOPY".into(),
        ));
    }
    if newest_source() > built.metadata().and_then(|found| found.modified()).ok() {
        eprintln!(
            "note: the release build, which is tested, is older than the sources: 'make build' \
             makes it anew"
        );
    }
    Ok(built)
}

/// When the sources of what is tested were changed last.
fn newest_source() -> Option<SystemTime> {
    let mut left = vec![repository().join("crates")];
    let mut newest = None;
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() && entry.file_name() != "tests" => {
                    left.push(entry.path())
                }
                Ok(found) if found.is_file() => newest = newest.max(found.modified().ok()),
                _ => {}
            }
        }
    }
    newest
}
