//! Where the log is.

use std::path::{Path, PathBuf};

use uncopy_measure::Failure;

/// The directory that was named, or this user's.
///
/// # Errors
/// None was named, and this user has no home.
pub fn chosen(named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(state) = of("XDG_STATE_HOME") {
        return Ok(Path::new(&state).join("uncopy/log"));
    }
    match of("HOME").filter(|home| home != "/") {
        Some(home) => Ok(Path::new(&home).join(".local/state/uncopy/log")),
        None if nix::unistd::geteuid().is_root() => Ok("/var/lib/uncopy/log".into()),
        None => {
            Err(Failure::new("this user has no home for a log")
                .advise("name a directory: --log=DIR"))
        }
    }
}
