//! The files that are copied: a directory of our own, gone at the end.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use uncopy_measure::{Failure, failure};

use crate::content::{Expected, fill};

/// Bytes of the pieces that a large file's content is made of.
const UNIT: usize = 1 << 20;

/// The content's pieces: a file of `size` bytes is so many of such a size.
pub fn unit(size: usize) -> usize {
    if size.is_multiple_of(UNIT) { UNIT } else { size }
}

/// A directory with a source and a target.
pub struct WorkDirectory {
    directory: PathBuf,
    /// Name of the file system.
    pub file_system: &'static str,
}

impl WorkDirectory {
    /// In `directory`, or where memory is a file system.
    pub fn new(directory: Option<&Path>, needed: usize) -> Result<Self, Failure> {
        let memory = Path::new("/dev/shm");
        let parent = match directory {
            Some(directory) => directory.to_owned(),
            None if kind(memory) == "tmpfs" => memory.to_owned(),
            None => std::env::temp_dir(),
        };
        if free(&parent) < needed as u64 {
            return Err(
                failure!("{} has no room for {needed} bytes", parent.display()).advise("see --dir")
            );
        }
        let directory = parent.join(format!("uncopy-bench-{}", std::process::id()));
        fs::create_dir(&directory)
            .map_err(|e| failure!("cannot make {}", directory.display()).because(e))?;
        Ok(Self { file_system: kind(&parent), directory })
    }

    /// The file that is copied.
    pub fn source(&self) -> PathBuf {
        self.directory.join("source")
    }

    /// The copy.
    pub fn target(&self) -> PathBuf {
        self.directory.join("target")
    }

    /// Any other file.
    pub fn other(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Makes the source.
    pub fn fill(&self, size: usize) -> Result<(), Failure> {
        let path = self.source();
        let write = || {
            let mut file = BufWriter::new(File::create(&path)?);
            let mut bytes = vec![0; unit(size)];
            for id in 0..size / unit(size) {
                fill(&mut bytes, id as u64);
                file.write_all(&bytes)?;
            }
            file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
        };
        write().map_err(|e: std::io::Error| failure!("cannot write {}", path.display()).because(e))
    }

    /// Compares every byte of the copy.
    pub fn compare(&self, size: usize) -> Result<u64, Failure> {
        let path = self.target();
        let failed = |e| failure!("cannot read {}", path.display()).because(e);
        let mut file = File::open(&path).map_err(failed)?;
        let mut expected = Expected::new(unit(size));
        let mut piece = vec![0; 256 << 10];
        let mut at = 0;
        loop {
            let count = file.read(&mut piece).map_err(failed)?;
            if count == 0 {
                let same = at == size as u64;
                let wrong = || failure!("WRONG DATA: the copy has {at} bytes, not {size}");
                return if same { Ok(at) } else { Err(wrong()) };
            }
            expected.compare(at, &piece[..count], |n| n)?;
            at += count as u64;
        }
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn statfs(path: &Path) -> Option<libc::statfs> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
    let mut answer = std::mem::MaybeUninit::uninit();
    // SAFETY: a C string, and room for the answer, which is filled on success.
    unsafe { (libc::statfs(path.as_ptr(), answer.as_mut_ptr()) == 0).then(|| answer.assume_init()) }
}

fn kind(path: &Path) -> &'static str {
    match statfs(path).map(|s| s.f_type) {
        Some(libc::TMPFS_MAGIC) => "tmpfs",
        Some(libc::EXT4_SUPER_MAGIC) => "ext4",
        Some(libc::XFS_SUPER_MAGIC) => "xfs",
        Some(libc::BTRFS_SUPER_MAGIC) => "btrfs",
        Some(libc::OVERLAYFS_SUPER_MAGIC) => "overlayfs",
        _ => "another file system",
    }
}

fn free(path: &Path) -> u64 {
    statfs(path).map_or(0, |s| s.f_bavail * s.f_bsize.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_compared_and_the_directory_goes() {
        for size in [5000, 3 << 20] {
            let place = WorkDirectory::new(Some(&std::env::temp_dir()), size).unwrap();
            place.fill(size).unwrap();
            fs::copy(place.source(), place.target()).unwrap();
            assert_eq!(place.compare(size), Ok(size as u64));
            let mut bytes = fs::read(place.target()).unwrap();
            bytes[size - 1] ^= 1;
            fs::write(place.target(), &bytes).unwrap();
            assert!(place.compare(size).unwrap_err().to_string().starts_with("WRONG DATA"));
            fs::write(place.target(), &bytes[1..]).unwrap();
            assert!(place.compare(size).is_err());
            let directory = place.directory.clone();
            drop(place);
            assert!(!directory.exists());
        }
    }
}
