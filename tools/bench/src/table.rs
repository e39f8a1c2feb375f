//! Tables as wide as the terminal; those of tests do not depend on who runs them.

use comfy_table::Table;
use uncopy_measure::units;

/// A table as wide as the terminal, or so wide where there is none.
pub fn table(header: &[&str], width: u16) -> Table {
    units::table(header, width, !cfg!(test))
}
