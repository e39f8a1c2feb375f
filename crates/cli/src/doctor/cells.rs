//! How the tables look.

use std::ops::Range;

use comfy_table::{CellAlignment, Table};
use uncopy_measure::units;

/// Nanoseconds.
pub fn number(ns: f64) -> String {
    if ns < 10.0 { format!("{ns:.1}") } else { units::grouped(ns.round() as u64) }
}

/// A table as wide as the terminal.
pub fn table(header: &[&str]) -> Table {
    crate::table::table(header, 120)
}

/// These columns' numbers stand below each other.
pub fn right(table: &mut Table, columns: Range<usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}
