//! `uncopy options`: the table of options as text.

use comfy_table::{ContentArrangement, Table};
use uncopy_options::OPTIONS;

use crate::{Outcome, units, variables};

/// Prints the table.
pub fn main() -> Outcome {
    let mut table = Table::new();
    table
        .load_style(units::TABLE_STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["option", "variable", "default", "accepts", "meaning"]);
    if table.width().is_none() {
        table.set_width(120);
    }
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
    crate::print(&format!("{table}\n"))
}
