//! Where measured costs are kept, and how `uncopy run` finds them again.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use uncopy_decide::Costs;

use crate::failure;
use crate::failure::Failure;
use crate::machine::Machine;

/// First line of the file; another number is another form.
const FORM: &str = "uncopy costs 4";

/// Where the costs of this machine are kept for this user.
pub fn path() -> Option<PathBuf> {
    // SAFETY: the call takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    place(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"), root)
}

/// A relative directory counts as none, as the XDG specification has it.
fn place(cache: Option<OsString>, home: Option<OsString>, root: bool) -> Option<PathBuf> {
    let absolute = |d: Option<OsString>| d.map(PathBuf::from).filter(|d| d.is_absolute());
    let directory = absolute(cache)
        .or_else(|| absolute(home).map(|home| home.join(".cache")))
        .or_else(|| root.then(|| PathBuf::from("/var/cache")))?;
    Some(directory.join("uncopy").join("costs"))
}

/// The contents of the cache.
#[derive(Debug, PartialEq, Eq)]
pub enum Cached {
    /// No file, or none that may be read.
    Nothing,
    /// Measured on another machine or kernel, or written by another version.
    Foreign,
    /// Damaged.
    Bad(Failure),
    /// These.
    Costs(Costs),
}

/// Reads the costs of `machine` from `path`. The machine is asked for only if there is a file.
pub fn read(path: &Path, machine: impl FnOnce() -> Machine) -> Cached {
    let mut text = String::new();
    // Much more than we write is not ours.
    let read = File::open(path).and_then(|file| file.take(4096).read_to_string(&mut text));
    match read {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::InvalidData => return Cached::Foreign,
        Err(_) => return Cached::Nothing,
    }
    let mut lines = text.lines();
    if lines.next() != Some(FORM) {
        return Cached::Foreign;
    }
    let machine = machine();
    let mut field = |name: &str| lines.next().and_then(|line| line.strip_prefix(name));
    if field("cpu=") != Some(&machine.cpu) || field("kernel=") != Some(&machine.kernel) {
        return Cached::Foreign;
    }
    let costs = field("costs=").unwrap_or("costs are missing");
    match Costs::parse(costs) {
        Ok(costs) => Cached::Costs(costs),
        Err(why) => Cached::Bad(
            failure!("the measured costs in {} are ignored: {why}", path.display())
                .advise("'uncopy doctor' writes them anew"),
        ),
    }
}

/// The costs of this machine, which `uncopy run` hands to the library, if they were measured.
pub fn handed_on() -> Option<String> {
    match read(&path()?, Machine::own) {
        Cached::Costs(costs) => Some(costs.to_string()),
        Cached::Bad(why) => {
            crate::outcome::complain(&why);
            None
        }
        Cached::Nothing | Cached::Foreign => None,
    }
}

/// Writes the costs of `machine`; a reader meanwhile finds the old ones or the new ones.
pub fn write(path: &Path, machine: &Machine, costs: &Costs) -> Result<(), Failure> {
    let text = format!("{FORM}\ncpu={}\nkernel={}\ncosts={costs}\n", machine.cpu, machine.kernel);
    let new = path.with_file_name(format!("costs.{}", std::process::id()));
    let write = || {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        let mut file = File::create_new(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, path)
    };
    write().map_err(|e| {
        // It may not be there at all.
        let _ = fs::remove_file(&new);
        failure!("the costs cannot be kept in {}", path.display()).because(e)
    })
}

/// Removes the costs; says whether there were any.
pub fn forget(path: &Path) -> Result<bool, Failure> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(failure!("{} cannot be removed", path.display()).because(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine { cpu: "Some CPU / 6".to_owned(), kernel: "6.18.1".to_owned() }
    }

    #[test]
    fn costs_are_found_again_until_they_are_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/costs");
        assert_eq!(read(&path, machine), Cached::Nothing);
        let costs = Costs { fault: 5, ..Costs::REFERENCE };
        for _ in 0..2 {
            write(&path, &machine(), &costs).unwrap();
            assert_eq!(read(&path, machine), Cached::Costs(costs));
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert_eq!((forget(&path), forget(&path)), (Ok(true), Ok(false)));
        assert_eq!(read(&path, machine), Cached::Nothing);
    }

    #[test]
    fn costs_of_another_machine_kernel_or_form_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("costs");
        write(&path, &machine(), &Costs::REFERENCE).unwrap();
        assert_eq!(read(&path, || Machine { cpu: "Other".into(), ..machine() }), Cached::Foreign);
        let newer = || Machine { kernel: "6.18.2".into(), ..machine() };
        assert_eq!(read(&path, newer), Cached::Foreign);
        let text = fs::read_to_string(&path).unwrap();
        for other in [text.replace(FORM, "uncopy costs 0"), String::new(), "\u{fe}".repeat(9000)] {
            fs::write(&path, other).unwrap();
            assert_eq!(read(&path, machine), Cached::Foreign);
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert_eq!(read(&path, machine), Cached::Foreign);
    }

    #[test]
    fn a_damaged_file_is_told_of_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("costs");
        write(&path, &machine(), &Costs::REFERENCE).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        for (damage, what) in [("fault=", "falt="), ("costs=", "prices="), ("=11000", "=many")] {
            fs::write(&path, text.replacen(damage, what, 1)).unwrap();
            let Cached::Bad(why) = read(&path, machine) else { panic!("{damage}") };
            let why = why.to_string();
            assert!(why.contains("uncopy doctor") && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn the_cache_is_where_the_xdg_specification_has_it() {
        let at = |cache: Option<&str>, home: Option<&str>, root| {
            place(cache.map(Into::into), home.map(Into::into), root)
                .map(|p| p.display().to_string())
        };
        assert_eq!(at(Some("/c"), Some("/h"), true).unwrap(), "/c/uncopy/costs");
        assert_eq!(at(Some("c"), Some("/h"), true).unwrap(), "/h/.cache/uncopy/costs");
        assert_eq!(at(None, None, true).unwrap(), "/var/cache/uncopy/costs");
        assert_eq!(at(None, Some(""), false), None);
    }
}
