//! The copier: an ordinary program that copies a file to a socket or a file, in one of the ways
//! that Linux has.

// Unsafe: descriptors and mappings are handed to the kernel's own calls, by intention.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::Instant;

use nix::sys::resource::UsageWho;
use serde::{Deserialize, Serialize};
use uncopy_measure::own_process::{cpu_ns, library_counters};
use uncopy_measure::words::told;
use uncopy_measure::{Failure, failure};

use crate::receiver::{Address, Done, Order, Stream};
use crate::sender::named;

/// The hidden subcommand.
pub const NAME: &str = "__file-copier";

/// How a file is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CopyMethod {
    /// `read` and `write`, piece by piece.
    Read,
    /// To a socket written from a mapping, to a file copied from mapping to mapping.
    Mmap,
    /// `sendfile`.
    Sendfile,
    /// `splice` into a pipe and out of it.
    Splice,
    /// `copy_file_range`.
    Range,
}

impl CopyMethod {
    /// The name that people write.
    pub fn text(self) -> &'static str {
        match self {
            Self::Read => "read, write",
            Self::Mmap => "mmap",
            Self::Sendfile => "sendfile",
            Self::Splice => "splice",
            Self::Range => "copy_file_range",
        }
    }
}

/// Where to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Target {
    /// A receiver.
    Socket(Address),
    /// A file, which is made anew each time.
    File(PathBuf),
}

/// The copier's orders.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyPlan {
    /// The file.
    pub from: PathBuf,
    /// Where to.
    pub to: Target,
    /// How.
    pub way: CopyMethod,
    /// Bytes that are read at a time.
    pub piece: usize,
}

/// The copier's options.
#[derive(clap::Args)]
pub struct CopierArgs {
    #[arg(value_parser = told::<CopyPlan>)]
    plan: CopyPlan,
}

/// Carries out the orders on standard input until it ends; a message is a whole file.
pub fn main(args: &CopierArgs) -> Result<(), Failure> {
    serve(&args.plan).map_err(|e| failure!("file copier: {e}"))
}

fn serve(plan: &CopyPlan) -> io::Result<()> {
    let socket = match &plan.to {
        Target::Socket(address) => Some(Stream::connect(address)?),
        Target::File(_) => None,
    };
    let mut copier = Copier { plan, buffer: vec![0; plan.piece], pipe: None };
    let mut copied_once = false;
    for line in io::stdin().lock().lines() {
        let order: Order = serde_json::from_str(&line?)?;
        let begin = Instant::now();
        let cpu = cpu_ns(UsageWho::RUSAGE_SELF)?;
        let mut done = Done::default();
        while done.messages < order.messages
            || order.messages == 0 && begin.elapsed().as_nanos() < u128::from(order.nanos)
        {
            match copier.copy(socket.as_ref().map(|s| s.fd().as_raw_fd())) {
                Ok(()) => done.messages += 1,
                // A way that fails at its first step has moved nothing.
                Err(e) if !copied_once && e.raw_os_error().is_some_and(is_refusal) => {
                    done.refused = Some(named(&e));
                    break;
                }
                Err(e) => return Err(e),
            }
            copied_once = true;
        }
        done.cpu_ns = cpu_ns(UsageWho::RUSAGE_SELF)? - cpu;
        done.elapsed_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        done.preloaded = library_counters().is_some();
        let mut out = io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&done)?)?;
        out.flush()?;
    }
    Ok(())
}

fn is_refusal(errno: i32) -> bool {
    [libc::EINVAL, libc::EOPNOTSUPP, libc::ENOSYS, libc::EPERM, libc::EXDEV, libc::EBADF]
        .contains(&errno)
}

/// The result of a call that moves bytes; interrupted calls are made again.
fn moved(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(n) = usize::try_from(call()) {
            return Ok(n);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

struct Copier<'a> {
    plan: &'a CopyPlan,
    buffer: Vec<u8>,
    pipe: Option<[OwnedFd; 2]>,
}

impl Copier<'_> {
    /// Copies the file once.
    fn copy(&mut self, socket: Option<RawFd>) -> io::Result<()> {
        let from = File::open(&self.plan.from)?;
        let size = usize::try_from(from.metadata()?.len()).map_err(io::Error::other)?;
        let target = match &self.plan.to {
            Target::Socket(_) => None,
            Target::File(path) => {
                let mut options = OpenOptions::new();
                Some(options.read(true).write(true).create(true).truncate(true).open(path)?)
            }
        };
        let (input, output) = (
            from.as_raw_fd(),
            target.as_ref().map(AsRawFd::as_raw_fd).or(socket).expect("a file or a socket"),
        );
        match self.plan.way {
            CopyMethod::Read => self.by_reading(input, output),
            CopyMethod::Mmap => by_mapping(input, target.as_ref(), output, size),
            CopyMethod::Sendfile => each(size, |left| {
                // SAFETY: both descriptors are ours; there is no offset to write to.
                unsafe { libc::sendfile(output, input, std::ptr::null_mut(), left) }
            }),
            CopyMethod::Splice => self.by_splicing(input, output, size),
            CopyMethod::Range => each(size, |left| {
                let none = std::ptr::null_mut();
                // SAFETY: as above.
                unsafe { libc::copy_file_range(input, none, output, none, left, 0) }
            }),
        }
    }

    fn by_reading(&mut self, input: RawFd, output: RawFd) -> io::Result<()> {
        loop {
            let (at, len) = (self.buffer.as_mut_ptr(), self.buffer.len());
            // SAFETY: the buffer has so many bytes.
            let read = moved(|| unsafe { libc::read(input, at.cast(), len) })?;
            if read == 0 {
                return Ok(());
            }
            write_all(output, &self.buffer[..read])?;
        }
    }

    fn by_splicing(&mut self, input: RawFd, output: RawFd, size: usize) -> io::Result<()> {
        if self.pipe.is_none() {
            self.pipe = Some(pipe()?);
        }
        let [out, into] =
            self.pipe.as_ref().expect("made above").each_ref().map(AsRawFd::as_raw_fd);
        let none = std::ptr::null_mut();
        let splice = |from: RawFd, to: RawFd, len: usize| {
            // SAFETY: descriptors of ours, and no offsets to write to.
            moved(|| unsafe { libc::splice(from, none, to, none, len, libc::SPLICE_F_MOVE) })
        };
        let mut left = size;
        while left > 0 {
            let taken = splice(input, into, left)?;
            if taken == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= taken;
            let mut inside = taken;
            while inside > 0 {
                inside -= splice(out, output, inside)?;
            }
        }
        Ok(())
    }
}

fn pipe() -> io::Result<[OwnedFd; 2]> {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors; they are ours alone.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        // As much as an unprivileged user may have; a refusal leaves 64 KB.
        libc::fcntl(fds[1], libc::F_SETPIPE_SZ, 1 << 20);
        Ok(fds.map(|fd| OwnedFd::from_raw_fd(fd)))
    }
}

/// Calls `step` with what is left until nothing is.
fn each(size: usize, mut step: impl FnMut(usize) -> isize) -> io::Result<()> {
    let mut left = size;
    while left > 0 {
        match moved(|| step(left))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => left -= n,
        }
    }
    Ok(())
}

fn write_all(output: RawFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the buffer has so many bytes.
        let n = moved(|| unsafe { libc::write(output, bytes.as_ptr().cast(), bytes.len()) })?;
        bytes = &bytes[n..];
    }
    Ok(())
}

fn by_mapping(input: RawFd, target: Option<&File>, output: RawFd, size: usize) -> io::Result<()> {
    let source = Mapping::new(input, size, libc::PROT_READ)?;
    // SAFETY: mapped and readable; nobody truncates the file.
    let bytes = unsafe { std::slice::from_raw_parts(source.at, size) };
    let Some(target) = target else { return write_all(output, bytes) };
    target.set_len(size as u64)?;
    let copy = Mapping::new(output, size, libc::PROT_READ | libc::PROT_WRITE)?;
    // SAFETY: two mappings of `size` bytes of different files.
    unsafe { libc::memcpy(copy.at.cast(), source.at.cast(), size) };
    Ok(())
}

struct Mapping {
    at: *mut u8,
    len: usize,
}

impl Mapping {
    fn new(fd: RawFd, len: usize, protection: i32) -> io::Result<Self> {
        // SAFETY: a new mapping that replaces nothing.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { at: at.cast(), len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and used by nobody any more.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}
