//! Where programs under uncopy leave their statistics, and which of them are to be believed.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{AccessFlags, access, geteuid};
use uncopy_measure::{Failure, failure};

use super::process;
use super::program::{Bad, Program};

/// The end of a file's name while it is being made.
const NEW: &str = "new";
/// The end of the name of a file in which a program and its children are summed up.
const SUM: &str = "sum";
/// Nothing of ours is larger, in bytes.
const LARGEST: u64 = 16 << 20;
/// The time after which a file without a header never gets one.
const UNFINISHED: Duration = Duration::from_secs(60);

/// The directories that hold such files and belong to whom they say.
pub fn directories() -> Vec<PathBuf> {
    let mut bases: Vec<PathBuf> = Vec::new();
    bases
        .extend(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute()));
    bases.extend(entries(Path::new("/run/user")));
    bases.push("/dev/shm".into());
    let mut found: Vec<PathBuf> = bases.iter().flat_map(|base| entries(base)).collect();
    found.retain(|path| owner(path).is_some());
    found.sort();
    found.dedup();
    found
}

/// Why programs that this user starts here can leave no statistics, if they cannot.
pub fn unwritable() -> Option<String> {
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let session = session.filter(|path| path.is_absolute());
    let writable = |path: &Path| access(path, AccessFlags::W_OK);
    if session.is_some_and(|path| writable(&path).is_ok()) {
        return None;
    }
    writable(Path::new("/dev/shm")).err().map(|why| format!("/dev/shm: {}", why.desc()))
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(directory).into_iter().flatten();
    read.flatten().map(|entry| entry.path()).collect()
}

/// The user whose directory this is; `None` if it is not such a directory, or is somebody else's,
/// or open to others.
fn owner(directory: &Path) -> Option<u32> {
    let user = directory.file_name()?.to_str()?.strip_prefix("uncopy-")?.parse().ok()?;
    let found = fs::symlink_metadata(directory).ok()?;
    (found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0).then_some(user)
}

/// All programs that can be seen, by number. Files of processes that are gone are removed.
pub fn all() -> Vec<Program> {
    let mut found = BTreeMap::new();
    for directory in directories() {
        for path in entries(&directory) {
            if let Some(program) = look(&path, owner(&directory)) {
                found.insert(program.pid, program);
            }
        }
    }
    found.into_values().collect()
}

/// The program with this number.
///
/// # Errors
/// One line that says why there is none to be seen.
pub fn of(pid: u32) -> Result<Program, Failure> {
    let Some(real) = process::user(pid) else {
        return Err(failure!("there is no process {pid}"));
    };
    let mut refused = false;
    for directory in process::directory(pid).into_iter().chain(directories()) {
        let path = directory.join(pid.to_string());
        if let Some(program) = look(&path, owner(&directory)) {
            return Ok(program);
        }
        let answer = File::open(&path);
        refused |= answer.is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
    }
    let name = process::command(pid).unwrap_or_default();
    let loaded = process::has_library(pid);
    let me = geteuid();
    Err(if (refused || loaded.is_err()) && !me.is_root() && me.as_raw() != real {
        failure!("not permitted: process {pid} ({name}) belongs to user {real}")
            .advise("ask as that user, or as root")
    } else if loaded.is_err() {
        failure!(
            "process {pid} ({name}) publishes nothing, and whether it is under uncopy cannot be \
             told: its memory map may not be read here, which takes CAP_SYS_PTRACE for processes \
             with more rights than this one"
        )
    } else if loaded.is_ok_and(|loaded| !loaded) {
        failure!("process {pid} ({name}) is not under uncopy")
    } else {
        failure!(
            "process {pid} ({name}) is under uncopy, but publishes nothing: it has not copied 8 MB \
             so far (uncopy begins then), and has no connections under --tcp, has --stats=no, \
             could write neither XDG_RUNTIME_DIR nor /dev/shm, is in a sandbox, or is of another \
             version"
        )
    })
}

/// Reads one file; `None` if it is not to be believed. One that its process has left behind is
/// removed.
fn look(path: &Path, user: Option<u32>) -> Option<Program> {
    let name = path.file_name()?.to_str()?;
    let (number, unfinished) = match name.split_once('.') {
        Some((number, NEW | SUM)) => (number, true),
        Some(_) => return None,
        None => (name, false),
    };
    let pid: u32 = number.parse().ok()?;
    let (bytes, found) = read(path, user?).ok()?;
    let inode = found.ino();
    let here = process::namespace();
    let program = match (Program::read(&bytes), Program::namespace(&bytes)) {
        // Numbers of another namespace mean nothing here.
        (_, Some(namespace)) if Some(namespace) != here => return None,
        (Ok(program), _) if program.pid == pid && !unfinished => program,
        (Err(Bad::Magic), _) => return None,
        // Of another version, or not yet whole: only whether its process lives can be told.
        (_, namespace) => {
            let old = found.modified().is_ok_and(|t| t.elapsed().is_ok_and(|age| age > UNFINISHED));
            if (namespace.is_some() || old) && process::user(pid).is_none() {
                remove(path, inode);
            }
            return None;
        }
    };
    // The same number, but another process; or the same process, which executes another program
    // now.
    let same = process::start_time(pid) == Some(program.start_time);
    if !same || process::maps_file(pid, inode) == Some(false) {
        remove(path, inode);
        return None;
    }
    Some(program)
}

fn read(path: &Path, user: u32) -> io::Result<(Vec<u8>, Metadata)> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != user || found.len() > LARGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::with_capacity(found.len() as usize);
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok((bytes, found))
}

/// Unless the name is a newer file's by now.
fn remove(path: &Path, inode: u64) {
    if fs::symlink_metadata(path).is_ok_and(|found| found.ino() == inode) {
        let _ = fs::remove_file(path);
    }
}
