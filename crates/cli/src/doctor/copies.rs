//! The cost of copies that stay, over how far the destination begins ahead of the source within the
//! page: libc's routine and ours, and which one programs get here.

// Unsafe: calls both on memory of its own.

use comfy_table::Table;
use serde::Serialize;
use uncopy_copies::choice::{Asked, DEARER, Took, choose};
use uncopy_copies::features::Features;
use uncopy_copies::routine::{Routine, Vectors, of};
use uncopy_copies::{measure, near};
use uncopy_measure::{Failure, units};

use super::mapping::Mapping;
use super::{cells, sample};

/// Sizes: from the least that our routine takes over to the largest.
pub const SIZES: [usize; 6] = [near::LEAST, 4 << 10, 16 << 10, 64 << 10, 256 << 10, near::MOST];
/// Distances: on both sides of the reach, where programs have them (behind headers), and far from
/// it.
const AHEAD: [usize; 12] = [0, 1, 8, 16, 31, 32, 33, 48, near::REACH, near::REACH + 1, 2048, 4080];
/// Copied in one sample, so that reading the clock does not show.
const SAMPLE: usize = 64 << 10;

/// Copies of one size at one distance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Bytes ahead.
    pub ahead: usize,
    /// Bytes copied.
    pub bytes: usize,
    /// The time of libc's routine, in ns.
    pub libc_ns: f64,
    /// The time of ours.
    pub ours_ns: f64,
}

/// All of them, and the choice.
#[derive(Clone, Debug, Serialize)]
pub struct Grid {
    /// The copies.
    pub cells: Vec<Cell>,
    /// The vectors that ours works with here.
    #[serde(skip)]
    pub widest: Vectors,
    /// The result of the trial copy that every program makes when it starts: libc's routine, in
    /// units of what ours took.
    pub libc_over_ours: f64,
    /// Whether ours is taken for near copies.
    pub ours_taken: bool,
}

unsafe extern "C" fn libcs(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { libc::memmove(to.cast(), from.cast(), n).cast() }
}

/// Measures; calls `done` after each size.
pub fn measure(mut done: impl FnMut()) -> Result<Grid, Failure> {
    let widest = Features::own().widest();
    let Took { libc, ours } = measure::near_copy(libcs);
    let taken = choose(Asked::Auto, || Took { libc, ours }, Features::own);
    let memory = Mapping::map(2 * near::MOST + (2 << 12))?;
    memory.touch(memory.span());
    let mut cells = Vec::new();
    for bytes in SIZES {
        let from = memory.part(0, bytes).start;
        for ahead in AHEAD {
            let to = memory.part(near::MOST + ahead, bytes).start;
            let time = |copy: Routine| {
                // SAFETY: two parts of our own mapping, apart; the vectors are this processor's.
                let copy = || unsafe {
                    copy(to as *mut u8, from as *const u8, bytes);
                };
                sample::of(|| sample::time_of_each(SAMPLE.div_ceil(bytes), copy))
            };
            cells.push(Cell { ahead, bytes, libc_ns: time(libcs), ours_ns: time(of(widest)) });
        }
        done();
    }
    let libc_over_ours = libc as f64 / ours.max(1) as f64;
    Ok(Grid { cells, widest, libc_over_ours, ours_taken: taken.is_some() })
}

impl Grid {
    /// For people: a row for each distance, libc's time and ours for each size.
    pub fn text(&self) -> String {
        let mut sizes: Vec<usize> = self.cells.iter().map(|c| c.bytes).collect();
        sizes.dedup();
        let mut header = vec!["ns, libc / ours".to_owned()];
        header.extend(sizes.iter().map(|bytes| units::size(*bytes as u64)));
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let mut table: Table = cells::table(&header);
        let mut distances: Vec<usize> = self.cells.iter().map(|c| c.ahead).collect();
        distances.sort_unstable();
        distances.dedup();
        for ahead in distances {
            let cells = self.cells.iter().filter(|c| c.ahead == ahead);
            let times = cells
                .map(|c| format!("{} / {}", cells::number(c.libc_ns), cells::number(c.ours_ns)));
            let name = if near::is_near(ahead, 0, near::REACH) { "near" } else { "" };
            table.add_row([format!("{ahead:4} {name}")].into_iter().chain(times));
        }
        cells::right(&mut table, 1..sizes.len() + 1);
        let choice = if self.ours_taken {
            format!("programs get our routine ({}) for them", self.widest.name())
        } else {
            format!("libc's stays (ours is taken where that is more than {DEARER})")
        };
        format!(
            "{table}\nCopies, by how many bytes the destination begins ahead of the source within \
             the page.\n\
             Near ones (1 to {}, of {} to {}): libc's routine takes {:.1} times as long as ours \
             for the trial copy of each program;\n\
             {choice}.\n",
            near::REACH,
            units::size(near::LEAST as u64),
            units::size(near::MOST as u64),
            self.libc_over_ours,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sizes_and_distances_are_measured_and_the_choice_is_said() {
        let mut sizes = 0;
        let grid = measure(|| sizes += 1).unwrap();
        assert_eq!((sizes, grid.cells.len()), (SIZES.len(), SIZES.len() * AHEAD.len()));
        assert!(grid.cells.iter().all(|c| c.libc_ns > 0.0 && c.ours_ns > 0.0));
        let text = grid.text();
        assert_eq!(text.contains("libc's stays"), !grid.ours_taken, "{text}");
    }
}
