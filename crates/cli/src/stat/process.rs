//! The facts that `/proc` has about a process.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs::Current;
use procfs::process::Process;

/// The user that it runs as; `None` if there is no such process.
pub fn user(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|found| found.uid())
}

/// Its name.
pub fn command(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|text| text.trim_end().to_owned())
}

/// When it started, in clock ticks since boot.
pub fn start_time(pid: u32) -> Option<u64> {
    Some(Process::new(pid.cast_signed()).ok()?.stat().ok()?.starttime)
}

/// Seconds since then.
pub fn age(start_time: u64) -> f64 {
    let uptime = procfs::Uptime::current().map_or(0.0, |now| now.uptime);
    (uptime - start_time as f64 / procfs::ticks_per_second() as f64).max(0.0)
}

/// The PID namespace that we are in.
pub fn namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
}

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file's inode number; 0: none.
    pub inode: u64,
    /// The file's path, or a name in brackets.
    pub path: String,
}

/// Its memory map; an error where that is not permitted. (procfs refuses a whole map in which one
/// path is no UTF-8.)
pub fn maps(pid: u32) -> std::io::Result<Vec<Mapping>> {
    let text = fs::read(format!("/proc/{pid}/maps"))?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(mapping).collect())
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let (word, more) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = more;
        word
    };
    let (start, end) = word().split_once('-')?;
    let _permissions = word();
    let offset = u64::from_str_radix(word(), 16).ok()?;
    let _device = word();
    let inode = word().parse().ok()?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let path = rest.trim_start().to_owned();
    Some(Mapping { start: hex(start)?, end: hex(end)?, offset, inode, path })
}

/// Whether it has the file with this inode number mapped (one that was killed and is not yet waited
/// for has nothing mapped); `None` if that cannot be told.
pub fn maps_file(pid: u32, inode: u64) -> Option<bool> {
    let maps = maps(pid).ok()?;
    Some(maps.iter().any(|m| m.inode == inode && m.path.contains("/uncopy-")))
}

/// The directory of its statistics, where its memory map tells.
pub fn directory(pid: u32) -> Option<PathBuf> {
    let maps = maps(pid).ok()?;
    let path = maps.iter().map(|m| Path::new(&m.path)).find(|path| {
        let directory = path.parent().and_then(Path::file_name).and_then(|n| n.to_str());
        directory.is_some_and(|n| n.starts_with("uncopy-"))
    });
    path?.parent().map(Path::to_owned)
}

/// Whether the library is loaded in it.
pub fn has_library(pid: u32) -> std::io::Result<bool> {
    let maps = maps(pid)?;
    Ok(maps.iter().any(|m| m.path.ends_with("/libuncopy.so")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_memory_map_is_read_with_blanks_in_its_path() {
        let line = "7f00-8f00 r-xp 00001000 fd:01 4711                       /a b/lib.so";
        let expected = Mapping {
            start: 0x7f00,
            end: 0x8f00,
            offset: 0x1000,
            inode: 4711,
            path: "/a b/lib.so".into(),
        };
        assert_eq!(mapping(line), Some(expected));
        assert_eq!(mapping("nonsense"), None);
    }

    #[test]
    fn this_process_is_found_and_young() {
        let me = std::process::id();
        assert!(age(start_time(me).unwrap()) < 3600.0);
        assert!(maps(me).unwrap().iter().any(|m| m.path == "[stack]"));
        assert!(!has_library(me).unwrap());
    }
}
