//! `uncopy options`: the table of options as text.

use uncopy_measure::{Failure, variables};
use uncopy_options::OPTIONS;

/// Prints the table.
pub fn main() -> Result<(), Failure> {
    uncopy_measure::print(&text())
}

/// The table.
pub fn text() -> String {
    let mut table =
        crate::table::table(&["option", "variable", "default", "accepts", "meaning"], 120);
    for spec in OPTIONS {
        table.add_row([
            format!("--{}", spec.name),
            spec.env.to_owned(),
            variables::default_text(spec),
            variables::range(spec),
            spec.help.to_owned(),
        ]);
    }
    for column in table.column_iter_mut().take(4) {
        column.set_constraint(comfy_table::ColumnConstraint::ContentWidth);
    }
    format!("{table}\n")
}
