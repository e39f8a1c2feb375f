//! Reasons why a program cannot run under the library, found before it is started.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use uncopy_executable::{Machine, name};
use uncopy_measure::{Failure, elf, failure};

/// Why the library cannot be loaded into `program` (the file that the kernel loads in the end);
/// a sentence that begins with the file's name and ends with what to do.
pub fn obstacle(program: &Path) -> Option<Failure> {
    let shown = program.display();
    let what = privileges(program).or_else(|| match elf::read(program) {
        // Executable, but not to be looked into: the loader will not mind.
        Err(_) => None,
        // The kernel refuses it; a shell then takes it for its own script.
        Ok(None) => None,
        Ok(Some(header)) if header.machine != Machine::OWN => Some(
            failure!("is for {}, and this uncopy for {}", header.machine, Machine::OWN)
                .advise("use the uncopy of that architecture"),
        ),
        Ok(Some(header)) => match header.loader {
            None if is_loader(program) => None,
            None => Some(
                Failure::new("is statically linked, so no library can be preloaded into it")
                    .advise("use a dynamically linked build"),
            ),
            Some(loader) => {
                let own = own_loader()?;
                let others = name(&loader) != name(&own);
                others
                    .then(|| {
                        Failure::new("uses another C library")
                            .because(format_args!("its loader is {}", loader.escape_ascii()))
                            .advise(format_args!("use a build for {}", own.escape_ascii()))
                    })
                    .or_else(|| {
                        header.sanitizer.map(|sanitizer| {
                            failure!(
                                "was built with {sanitizer}, which wants to be the first library"
                            )
                            .advise("use a build without it")
                        })
                    })
            }
        },
    });
    what.map(|what| what.about(shown))
}

/// The loader drops preloaded libraries from programs that run with other rights than the
/// user's.
fn privileges(program: &Path) -> Option<Failure> {
    let mode = program.metadata().ok()?.permissions().mode();
    let bit = if mode & libc::S_ISUID != 0 {
        "setuid"
    } else if mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0 {
        "setgid"
    } else if has_capabilities(program) {
        return Some(
            Failure::new("has file capabilities, so the loader ignores LD_PRELOAD for it")
                .advise("use a copy without them ('setcap -r' removes them)"),
        );
    } else {
        return None;
    };
    let remedy = if bit == "setuid" { "u-s" } else { "g-s" };
    let advice = format!("use a copy without that bit ('chmod {remedy}' clears it)");
    Some(failure!("is {bit}, so the loader ignores LD_PRELOAD for it").advise(advice))
}

fn has_capabilities(program: &Path) -> bool {
    let Ok(path) = CString::new(program.as_os_str().as_bytes()) else { return false };
    // SAFETY: both names are C strings; with a size of 0 nothing is written.
    let size = unsafe {
        libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0)
    };
    size > 0
}

fn own_loader() -> Option<Vec<u8>> {
    elf::read(Path::new("/proc/self/exe")).ok()??.loader
}

/// The dynamic loader may be called as a program; it then preloads as ever.
fn is_loader(program: &Path) -> bool {
    let resolved = program.canonicalize();
    let name = resolved.as_deref().unwrap_or(program).file_name().unwrap_or_default();
    name.as_bytes().starts_with(b"ld-") || name.as_bytes().starts_with(b"ld.so")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;

    #[test]
    fn ordinary_programs_meet_no_obstacle() {
        assert_eq!(obstacle(&std::env::current_exe().unwrap()), None);
        assert_eq!(obstacle(Path::new("/bin/sh")), None);
        let loader = PathBuf::from(OsString::from_vec(own_loader().unwrap()));
        assert_eq!(obstacle(&loader), None, "{}", loader.display());
    }

    #[test]
    fn setgid_counts_only_with_group_execution() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("true");
        std::fs::copy("/bin/true", &path).unwrap();
        let with_mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            obstacle(&path)
        };
        assert_eq!(with_mode(0o755), None);
        assert!(with_mode(0o2755).unwrap().to_string().contains("setgid"));
        assert_eq!(with_mode(0o2745), None);
        assert!(with_mode(0o4755).unwrap().to_string().contains("setuid"));
    }
}
