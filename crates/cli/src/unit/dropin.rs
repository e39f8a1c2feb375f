//! The drop-in's text and file.

use std::path::{Path, PathBuf};
use std::{fs, io};

use uncopy_measure::{Failure, failure, library};

use super::Unit;
use super::obstacles::Line;

/// Late in the order, so that the unit's own settings, and most others', come first.
const NAME: &str = "90-uncopy.conf";
/// The administrator's units and drop-ins.
const UNITS: &str = "/etc/systemd/system";

/// Where the unit's is.
pub fn path(unit: &str) -> PathBuf {
    Path::new(UNITS).join(format!("{unit}.d")).join(NAME)
}

/// The drop-in for a unit.
pub fn text(unit: &Unit, library: &Path, settings: &[(String, String)], let_in: &[Line]) -> String {
    let name = &unit.name;
    let mut text = format!(
        "# Written by 'uncopy enable {name}'; 'uncopy disable {name}' removes it.\n[Service]\n"
    );
    let preload = library::preload_value(library, unit.variable(library::PRELOAD).as_deref());
    let mut variables = vec![
        (library::PRELOAD.to_owned(), preload.to_string_lossy().into_owned()),
        (library::VARIABLE.to_owned(), library.display().to_string()),
    ];
    variables.extend_from_slice(settings);
    for (name, value) in variables {
        text += &format!("Environment={}\n", quoted(&format!("{name}={value}")));
    }
    for line in let_in {
        text += &format!("# {}\n{}\n", line.why, line.text);
    }
    text
}

/// As systemd reads one word back: its specifiers and escapes written twice.
fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"))
}

/// Puts the text there, if it is not there; returns whether it was not.
pub fn write(path: &Path, text: &str) -> Result<bool, Failure> {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(false);
    }
    let new = path.with_extension("conf.new");
    let put = || -> io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&new, text)?;
        // A reader finds the old one or this one meanwhile.
        fs::rename(&new, path)
    };
    put().map_err(|e| failed("write", path, &e))?;
    Ok(true)
}

/// Removes it, and its directory if nothing else is in there.
pub fn remove(path: &Path) -> Result<(), Failure> {
    fs::remove_file(path).map_err(|e| failed("remove", path, &e))?;
    if let Some(directory) = path.parent() {
        // (Others' drop-ins keep it.)
        let _ = fs::remove_dir(directory);
    }
    Ok(())
}

fn failed(what: &str, path: &Path, e: &io::Error) -> Failure {
    let failure = failure!("cannot {what} {}", path.display()).because(e);
    match e.kind() {
        io::ErrorKind::PermissionDenied => failure.advise("run this as root"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_once_and_removed_with_its_directory_unless_others_use_that() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.service.d").join(NAME);
        assert_eq!(write(&path, "a"), Ok(true));
        assert_eq!(write(&path, "a"), Ok(false));
        assert_eq!(write(&path, "b"), Ok(true));
        fs::write(path.with_file_name("other.conf"), "").unwrap();
        remove(&path).unwrap();
        assert!(!path.exists() && path.with_file_name("other.conf").exists());
        fs::remove_file(path.with_file_name("other.conf")).unwrap();
        write(&path, "a").unwrap();
        remove(&path).unwrap();
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn preloaded_libraries_stay_and_specifiers_are_not_expanded() {
        let mut unit = Unit { name: "x.service".into(), ..Unit::default() };
        unit.properties.push(("Environment".into(), "LD_PRELOAD=/j.so".into()));
        let settings = [("UNCOPY_THRESHOLD".to_owned(), "50%".to_owned())];
        let line = Line { text: "DeviceAllow=/dev/x rw".into(), why: "because".into() };
        assert_eq!(
            text(&unit, Path::new("/u.so"), &settings, &[line]),
            "# Written by 'uncopy enable x.service'; 'uncopy disable x.service' removes it.\n\
             [Service]\n\
             Environment=\"LD_PRELOAD=/u.so:/j.so\"\n\
             Environment=\"UNCOPY_LIBRARY=/u.so\"\n\
             Environment=\"UNCOPY_THRESHOLD=50%%\"\n\
             # because\n\
             DeviceAllow=/dev/x rw\n"
        );
    }
}
