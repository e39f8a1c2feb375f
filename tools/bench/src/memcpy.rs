//! `uncopy-bench memcpy`: what the library costs a copy that it has nothing to do with.

// Unsafe: `memcpy` itself and the memory for it, mapped rather than allocated so that both sides
// copy between the same places of a page.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use uncopy_measure::medians::{median, quotient, round};
use uncopy_measure::side::Side;
use uncopy_measure::{Failure, cores, failure, library, progress, units};

/// The hidden subcommand that copies.
pub const LOOP_NAME: &str = "__memcpy-loop";

const SIZES: [usize; 14] = [
    8,
    16,
    32,
    64,
    128,
    256,
    512,
    1 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
];

/// Options of `uncopy-bench memcpy`.
#[derive(Debug, clap::Args)]
pub struct MemcpyArgs {
    /// Times that plain and uncopy are measured in turns; medians are shown
    #[arg(
        long,
        value_name = "N",
        default_value = "11",
        value_parser = clap::value_parser!(u16).range(1..),
    )]
    repeats: u16,
    /// Core to run on [default: the first one]
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// The preload library [default: as for 'uncopy run']
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Results {
    bench: &'static str,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    size: usize,
    plain_ns: f64,
    /// Plain once more: what it differs by is noise.
    again_ns: f64,
    uncopy_ns: f64,
    difference_ns: f64,
    ratio: f64,
    /// The same in a process in which other copies are being elided.
    eliding_ns: f64,
    eliding_difference_ns: f64,
    eliding_ratio: f64,
}

/// Times of a process, for every size: before it does any input, and after an elided copy.
type Times = [Vec<f64>; 2];

/// Measures and prints.
pub fn main(args: &MemcpyArgs) -> Result<(), Failure> {
    let library = library::find(args.library.as_deref())?;
    let core = match args.core {
        Some(core) => core,
        None => cores::available()?[0],
    };
    cores::pin(core)?;
    let bar = progress::bar(usize::from(args.repeats) * 3);
    let mut times: BTreeMap<Side, Vec<Times>> = BTreeMap::new();
    for turn in 0..usize::from(args.repeats) {
        for side in Side::three_in_turn(turn) {
            bar.set_message(side.to_string());
            times.entry(side).or_default().push(times_of(side, &library)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let rows = SIZES.iter().enumerate().map(|(i, &size)| {
        let of = |side, state: usize| median(times[&side].iter().map(|t| t[state][i]));
        let [(plain, uncopy), (plain_later, eliding)] =
            [0, 1].map(|state| (of(Side::Plain, state), of(Side::Uncopy, state)));
        Row {
            size,
            plain_ns: round(plain, 2),
            again_ns: round(of(Side::Again, 0), 2),
            uncopy_ns: round(uncopy, 2),
            difference_ns: round(uncopy - plain, 2),
            ratio: round(quotient(uncopy, plain), 3),
            eliding_ns: round(eliding, 2),
            eliding_difference_ns: round(eliding - plain_later, 2),
            eliding_ratio: round(quotient(eliding, plain_later), 3),
        }
    });
    let results = Results { bench: "memcpy", rows: rows.collect() };
    if args.json {
        let json = serde_json::to_string(&results).expect("results can be written");
        return uncopy_measure::print(&format!("{json}\n"));
    }
    uncopy_measure::print(&format!(
        "{}\nns a call, both buffers hot in the cache and unknown to uncopy; the fastest of many \
         batches,\n\
         medians of {} processes a side. again: plain once more, noise. Eliding: in a process that \
         elides other copies meanwhile.\n",
        table(&results.rows),
        args.repeats
    ))
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(units::TABLE_STYLE).set_header([
        "size",
        "plain",
        "again",
        "uncopy",
        "difference",
        "ratio",
        "eliding",
        "difference",
        "ratio",
    ]);
    for row in rows {
        table.add_row([
            units::size(row.size as u64),
            format!("{:.2}", row.plain_ns),
            format!("{:.2}", row.again_ns),
            format!("{:.2}", row.uncopy_ns),
            format!("{:+.2}", row.difference_ns),
            format!("{:.3}", row.ratio),
            format!("{:.2}", row.eliding_ns),
            format!("{:+.2}", row.eliding_difference_ns),
            format!("{:.3}", row.eliding_ratio),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn times_of(side: Side, library: &Path) -> Result<Times, Failure> {
    let output = side
        .own_command(LOOP_NAME, library)?
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|e| failure!("cannot start the {side} measurement").because(e))?;
    if !output.status.success() {
        return Err(failure!("the {side} measurement ended with {}", output.status));
    }
    serde_json::from_slice(&output.stdout)
        .ok()
        .filter(|times: &Times| times.iter().all(|t| t.len() == SIZES.len()))
        .ok_or_else(|| failure!("the {side} measurement answered nonsense"))
}

/// Prints the nanoseconds of a call for every size.
pub fn loop_main() -> Result<(), Failure> {
    let buffers = Buffers::map()?;
    // The time that a call takes, not the time for a processor to wake up.
    let awake = Instant::now();
    while awake.elapsed() < Duration::from_millis(20) {
        buffers.copy(64, 1000);
    }
    let measure = || SIZES.iter().map(|size| fastest(&buffers, *size)).collect();
    let before = measure();
    let _kept = copy_of_input()?;
    let times: Times = [before, measure()];
    let json = serde_json::to_string(&times).expect("numbers can be written");
    uncopy_measure::print(&format!("{json}\n"))
}

/// Time of a call in the fastest batch.
fn fastest(buffers: &Buffers, size: usize) -> f64 {
    const BATCH: Duration = Duration::from_micros(50);
    const TOTAL: Duration = Duration::from_millis(20);
    let time = |calls: u32| {
        let start = Instant::now();
        buffers.copy(size, calls);
        start.elapsed()
    };
    let mut calls = 1;
    while time(calls) < BATCH {
        calls *= 2;
    }
    let begin = Instant::now();
    let mut best = Duration::MAX;
    while begin.elapsed() < TOTAL {
        best = best.min(time(calls));
    }
    best.as_nanos() as f64 / f64::from(calls)
}

/// Receives a message and copies it: from here on uncopy has something to look after. The buffers
/// must be kept.
fn copy_of_input() -> Result<[Vec<u8>; 2], Failure> {
    use std::io::{Read, Write};
    const MESSAGE: usize = 256 << 10;
    let failed =
        |e: std::io::Error| failure!("cannot pass a message through a socket pair").because(e);
    let (mut here, mut there) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
    let sender = std::thread::spawn(move || there.write_all(&vec![0x5a; MESSAGE]));
    let mut received = vec![0; MESSAGE];
    here.read_exact(&mut received).map_err(failed)?;
    sender.join().expect("the sender does not panic").map_err(failed)?;
    let mut copy = vec![0; MESSAGE];
    black_box(&mut copy).copy_from_slice(black_box(&received));
    Ok([received, copy])
}

const HUGE_PAGE: usize = 2 << 20;

struct Buffers {
    from: *const u8,
    to: *mut u8,
}

impl Buffers {
    /// Two buffers at fixed offsets in huge pages, if there are any: where the pages lie in
    /// physical memory must not decide which side is faster.
    fn map() -> Result<Self, Failure> {
        let size = 3 * HUGE_PAGE;
        // SAFETY: a new mapping that replaces nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Failure::new("cannot map memory").because(std::io::Error::last_os_error()));
        }
        // SAFETY: advice on our own new mapping; a refusal changes nothing.
        unsafe { libc::madvise(start, size, libc::MADV_HUGEPAGE) };
        let start: *mut u8 = start.cast();
        let first = start.wrapping_add(start.align_offset(HUGE_PAGE));
        // SAFETY: two huge pages from `first` lie within the three that were mapped.
        unsafe { first.write_bytes(0x5a, 2 * HUGE_PAGE) };
        // The places within a page differ, so that loads do not wait for stores of the same name.
        Ok(Self { from: first.wrapping_add(64), to: first.wrapping_add(HUGE_PAGE + 2048 + 64) })
    }

    fn copy(&self, size: usize, calls: u32) {
        debug_assert!(size <= HUGE_PAGE / 2);
        // From the library if it is in front: the address comes from the loader.
        let memcpy = black_box(libc::memcpy as unsafe extern "C" fn(_, _, _) -> _);
        for _ in 0..calls {
            // SAFETY: both buffers have at least half a huge page and do not overlap.
            unsafe { memcpy(self.to.cast(), self.from.cast(), black_box(size)) };
        }
    }
}
