//! A process that holds many views and copies among them.

// Unsafe: `memcpy` itself, from the library if it is in front, and the memory for it.

use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::{Deserialize, Serialize};
use uncopy_measure::facts::{self, Facts};
use uncopy_measure::medians::quotient;
use uncopy_measure::own_process::library_counters;
use uncopy_measure::side::Side;
use uncopy_measure::words::told;
use uncopy_measure::{Failure, failure};

use super::views_books::{VIEW, sample};

/// The hidden subcommand.
pub const NAME: &str = "__views-loop";
/// Destinations that are copied to in turns.
const DESTINATIONS: usize = 4;
/// Of the standing views, so many are compared at the end.
const COMPARED: usize = 256;

/// The task of the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Views that stand while others are timed.
    pub views: usize,
    /// Sizes of the copies that are timed.
    pub sizes: Vec<usize>,
}

/// The answer of the process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Nanoseconds of a copy, in samples, for every size.
    pub ns: Vec<Vec<f64>>,
    /// Bytes elided of those copied, for every size.
    pub elided_share: Vec<f64>,
    /// Bytes compared, for every size.
    pub verified_bytes: Vec<u64>,
    /// Views alive at the end; 0 without the library.
    pub live_views: u64,
    /// The facts of the process.
    pub facts: Facts,
}

/// Runs the process on one side.
pub fn run(task: &Task, side: Side, library: &Path) -> Result<Answer, Failure> {
    let mut command = side.own_command(NAME, library)?;
    if side == Side::Uncopy {
        // Making a view of memory that is not known yet does not pay at 16 KB: the policy would
        // soon let these copies be, and here they are wanted for the books that they fill.
        command.env("UNCOPY_BACKOFF", "no");
    }
    let output = command
        .arg(serde_json::to_string(task).expect("a task can be written"))
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|e| failure!("cannot start the {side} measurement").because(e))?;
    if !output.status.success() {
        return Err(failure!("the {side} measurement ended with {}", output.status));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| failure!("the {side} measurement answered nonsense").because(e))
}

/// The process's options.
#[derive(clap::Args)]
pub struct LoopArgs {
    #[arg(value_parser = told::<Task>)]
    task: Task,
}

/// Measures and answers.
pub fn main(args: &LoopArgs) -> Result<(), Failure> {
    let task = &args.task;
    let standing = Standing::new(task.views)?;
    let (mut ns, mut elided_share, mut verified_bytes) = (Vec::new(), Vec::new(), Vec::new());
    let mut live_views = 0;
    for &size in &task.sizes {
        let buffers = Buffers::new(size)?;
        verified_bytes.push(buffers.verify_copies()?);
        let mut copied = 0;
        (0..4).for_each(|turn| buffers.round(turn));
        let elided = || library_counters().map_or(0, |c| c.elided_bytes);
        let mut turn = 4;
        let before = elided();
        ns.push(sample(
            || {
                buffers.round(turn);
                turn += 1;
                copied += DESTINATIONS * size;
            },
            DESTINATIONS,
        ));
        elided_share.push(quotient((elided() - before) as f64, copied as f64));
        live_views = library_counters().map_or(0, |c| c.views);
        *verified_bytes.last_mut().expect("pushed") += buffers.verify_destinations(turn - 1)?;
    }
    if let Some(last) = verified_bytes.last_mut() {
        *last += standing.verify()?;
    }
    let facts = facts::of_process(std::process::id());
    let answer = Answer { ns, elided_share, verified_bytes, live_views, facts };
    uncopy_measure::print(&format!(
        "{}\n",
        serde_json::to_string(&answer).expect("it can be written")
    ))
}

/// Private memory of whole pages; never given back.
#[derive(Clone, Copy)]
struct Mapping {
    at: *mut u8,
    len: usize,
}

impl Mapping {
    fn map(len: usize) -> Result<Self, Failure> {
        // SAFETY: a new mapping that replaces nothing.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len.next_multiple_of(4096),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(Failure::new("cannot map memory").because(std::io::Error::last_os_error()));
        }
        // Huge pages would make the plain copies into fresh memory cheaper and cannot be moved.
        // SAFETY: advice on our own new mapping; a refusal changes nothing.
        unsafe { libc::madvise(at, len, libc::MADV_NOHUGEPAGE) };
        Ok(Self { at: at.cast(), len })
    }

    /// Memory that `content` was received into.
    fn received(content: &[u8]) -> Result<Self, Failure> {
        let failed =
            |e: std::io::Error| failure!("cannot pass a message through a socket pair").because(e);
        let memory = Self::map(content.len())?;
        let (mut here, mut there) = UnixStream::pair().map_err(failed)?;
        std::thread::scope(|threads| {
            let sender = threads.spawn(move || there.write_all(content));
            // SAFETY: the mapping has so many bytes, is zero at first, and only we know of it.
            let place = unsafe { std::slice::from_raw_parts_mut(memory.at, memory.len) };
            here.read_exact(place).map_err(failed)?;
            sender.join().expect("the sender does not panic").map_err(failed)
        })?;
        Ok(memory)
    }

    fn part(self, at: usize, len: usize) -> Self {
        assert!(at + len <= self.len);
        Self { at: self.at.wrapping_add(at), len }
    }

    fn check(self, expected: &[u8], what: &str) -> Result<u64, Failure> {
        // SAFETY: as in `received`; nobody writes to it now.
        let found = unsafe { std::slice::from_raw_parts(black_box(self.at), self.len) };
        match found.iter().zip(expected).position(|(f, e)| f != e) {
            None if found.len() == expected.len() => Ok(found.len() as u64),
            at => Err(failure!("WRONG DATA in {what}, offset {at:?}")),
        }
    }
}

/// Calls libc's `memcpy`, or that of the library in front, from the place where it is inlined:
/// each caller below is a call site of its own, with its own account with the policy.
#[inline(always)]
fn copy(to: Mapping, from: Mapping) {
    assert!(to.len <= from.len);
    // SAFETY: both are mapped, of that length, and apart.
    unsafe { libc::memcpy(black_box(to.at).cast(), black_box(from.at).cast(), to.len) };
}

fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// The views that stand.
struct Standing {
    memory: Mapping,
    count: usize,
}

impl Standing {
    #[inline(never)]
    fn new(count: usize) -> Result<Self, Failure> {
        let source = Mapping::received(&content(0, VIEW))?;
        let memory = Mapping::map(count * VIEW)?;
        for i in 0..count {
            copy(memory.part(i * VIEW, VIEW), source);
        }
        Ok(Self { memory, count })
    }

    fn verify(&self) -> Result<u64, Failure> {
        let expected = content(0, VIEW);
        let step = self.count.div_ceil(COMPARED).max(1);
        (0..self.count)
            .step_by(step)
            .map(|i| self.memory.part(i * VIEW, VIEW).check(&expected, "a standing copy"))
            .sum()
    }
}

/// Two sources, and where they are copied to in turns.
struct Buffers {
    size: usize,
    sources: [Mapping; 2],
    destinations: [Mapping; DESTINATIONS],
}

impl Buffers {
    fn new(size: usize) -> Result<Self, Failure> {
        let source = |seed| Mapping::received(&content(seed, size));
        let mut destinations = [Mapping { at: std::ptr::null_mut(), len: 0 }; DESTINATIONS];
        for destination in &mut destinations {
            *destination = Mapping::map(size)?;
        }
        Ok(Self { size, sources: [source(1)?, source(2)?], destinations })
    }

    #[inline(never)]
    fn round(&self, turn: usize) {
        let source = self.sources[turn % 2];
        for destination in self.destinations {
            copy(destination, source);
        }
    }

    /// Copies that are compared at once: their memory is apart, for it is resident afterwards.
    #[inline(never)]
    fn verify_copies(&self) -> Result<u64, Failure> {
        let mut bytes = 0;
        for (source, seed) in self.sources.into_iter().zip(1..) {
            let destination = Mapping::map(self.size)?;
            copy(destination, source);
            bytes += destination.check(&content(seed, self.size), "a copy")?;
        }
        Ok(bytes)
    }

    /// After the round of number `turn`.
    fn verify_destinations(&self, turn: usize) -> Result<u64, Failure> {
        let expected = content((turn % 2) as u64 + 1, self.size);
        self.destinations.iter().map(|d| d.check(&expected, "a timed copy")).sum()
    }
}
