//! Which file a command names, and which program the kernel will load for it.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use uncopy_executable::Executable;
use uncopy_measure::{Failure, elf, failure};

/// Why a command cannot be executed at all.
#[derive(Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The exit status that shells give for it.
    pub status: u8,
    /// The failure, without the command's name in front.
    pub text: Failure,
}

fn missing(text: Failure) -> Unusable {
    Unusable { status: 127, text }
}

fn not_executable(text: Failure) -> Unusable {
    Unusable { status: 126, text }
}

/// Finds the file of `command` as a shell does: with a slash in it it is a path, otherwise it is
/// looked for along `search` (`PATH`).
pub fn find(command: &OsStr, search: Option<&OsStr>) -> Result<PathBuf, Unusable> {
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return executable(&path).map(|()| path);
    }
    let search = search.unwrap_or(OsStr::new("/bin:/usr/bin"));
    let mut refused = None;
    if !command.is_empty() {
        for directory in std::env::split_paths(search) {
            let path = directory.join(command);
            match executable(&path) {
                Ok(()) => return Ok(path),
                Err(why) if why.status == 126 && !path.is_dir() => refused = refused.or(Some(why)),
                Err(_) => {}
            }
        }
    }
    Err(refused.unwrap_or_else(|| {
        missing(Failure::new("command not found").advise("check its name, or give its path"))
    }))
}

fn executable(path: &Path) -> Result<(), Unusable> {
    let attributes = path.metadata().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            missing(Failure::new("no such file").advise("check the path"))
        }
        _ => not_executable(Failure::new("cannot be reached").because(e)),
    })?;
    if attributes.is_dir() {
        return Err(not_executable(Failure::new("is a directory, not a program")));
    }
    if !attributes.is_file() || !may_execute(path) {
        return Err(not_executable(
            Failure::new("is not executable").advise("chmod +x makes it so"),
        ));
    }
    Ok(())
}

fn may_execute(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: `name` is a C string and outlives the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

/// The kernel follows this many `#!` lines.
const DEEPEST: usize = 5;

/// Follows `#!` lines from `file` to the program that is loaded in the end.
pub fn loaded(file: &Path) -> Result<PathBuf, Unusable> {
    let mut program = file.to_owned();
    for _ in 0..DEEPEST {
        let Some(next) = interpreter(&program).map_err(|e| {
            not_executable(failure!("{} cannot be read", program.display()).because(e))
        })?
        else {
            return Ok(program);
        };
        let next = PathBuf::from(next);
        executable(&next).map_err(|why| Unusable {
            status: why.status,
            text: why
                .text
                .within(format_args!("its interpreter {} (in the #! line)", next.display())),
        })?;
        program = next;
    }
    let endless = "its #! lines lead from one script to the next without an end";
    Err(not_executable(Failure::new(endless)))
}

/// The interpreter that the `#!` line of `path` names. A program that may be executed but not
/// read is no script to the kernel either.
fn interpreter(path: &Path) -> io::Result<Option<OsString>> {
    match elf::executable(path) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(e) => Err(e),
        Ok(Executable::Script(interpreter)) => Ok(Some(OsString::from_vec(interpreter))),
        Ok(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign_bytes::Damages;
    use uncopy_executable::look;

    /// See `foreign_bytes`.
    #[test]
    fn a_damaged_header_is_read_or_refused() {
        let mut whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        whole.truncate(1 << 16);
        bolero::check!().with_type::<Damages>().with_iterations(3000).for_each(|damages| {
            if let Executable::Program(program) = look(&*damages.done_to(&whole)) {
                let _ = program.machine.to_string();
            }
        });
    }
    use std::os::unix::fs::PermissionsExt;

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn commands_are_found_along_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("1"), directory.path().join("2"));
        std::fs::create_dir_all(first.join("folder")).unwrap();
        std::fs::create_dir(&second).unwrap();
        write(&first.join("tool"), "", 0o644);
        write(&second.join("tool"), "", 0o755);
        write(&second.join("plain"), "", 0o644);
        let search = std::env::join_paths([&first, &second]).unwrap();
        let find = |name: &str| find(OsStr::new(name), Some(&search));
        assert_eq!(find("tool"), Ok(second.join("tool")));
        assert_eq!(find("plain").unwrap_err().status, 126);
        assert_eq!(find("folder").unwrap_err().status, 127);
        assert_eq!(find("none").unwrap_err().status, 127);
        assert_eq!(find("").unwrap_err().status, 127);
        assert_eq!(find(first.join("folder").to_str().unwrap()).unwrap_err().status, 126);
    }

    #[test]
    fn scripts_are_followed_but_not_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        write(&path("one"), &format!("#!{}\n", path("two").display()), 0o755);
        write(&path("two"), "#!/bin/sh\n", 0o755);
        write(&path("loop"), &format!("#!{}\n", path("loop").display()), 0o755);
        write(&path("lost"), "#!/nowhere/at/all\n", 0o755);
        assert_eq!(loaded(&path("one")), Ok("/bin/sh".into()));
        assert_eq!(loaded(&path("loop")).unwrap_err().status, 126);
        assert_eq!(loaded(&path("lost")).unwrap_err().status, 127);
    }
}
