//! Where a recording goes: a file that is not there yet, or an older recording.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use uncopy_measure::{Failure, failure};
use uncopy_trace::{HEAD, is_recording};

/// Takes away what was recorded there before, and sees to it that something can be. Returns the
/// absolute path.
pub fn make_room(file: &Path) -> Result<PathBuf, Failure> {
    let named =
        |e: std::io::Error| failure!("--record={} cannot be written", file.display()).because(e);
    let path = std::path::absolute(file).map_err(named)?;
    match std::fs::symlink_metadata(&path) {
        Ok(found) => {
            let mut head = [0; HEAD];
            let read = |head: &mut [u8]| std::fs::File::open(&path)?.read_exact(head);
            if !found.is_file() || read(&mut head).is_err() || !is_recording(&head) {
                return Err(failure!(
                    "--record={}: there is something that is no recording",
                    file.display()
                )
                .advise("name another file"));
            }
            std::fs::remove_file(&path).map_err(named)?;
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(named(e)),
    }
    // (The library makes it when there is something to record, and has nobody to tell.)
    OpenOptions::new().write(true).create_new(true).open(&path).map_err(named)?;
    std::fs::remove_file(&path).map_err(named)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uncopy_trace::Head;

    #[test]
    fn an_older_recording_gives_way_and_nothing_else_does() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("trace");
        assert_eq!(make_room(&file), Ok(file.clone()));
        assert!(!file.exists());
        std::fs::write(&file, Head::default().bytes()).unwrap();
        assert_eq!(make_room(&file), Ok(file.clone()));
        assert!(!file.exists());
        for other in [&b"a letter"[..], &[0; 100], b""] {
            std::fs::write(&file, other).unwrap();
            assert!(
                make_room(&file)
                    .unwrap_err()
                    .to_string()
                    .ends_with("no recording; name another file")
            );
            assert_eq!(std::fs::read(&file).unwrap(), other);
        }
        assert!(make_room(directory.path()).is_err());
        assert!(make_room(&directory.path().join("nowhere/trace")).is_err());
    }
}
