//! `uncopy-bench echo`: what is printed of the rows of the echo server.

use uncopy_measure::echo::{EchoArgs, Row, measure};
use uncopy_measure::{Failure, complain, library, print, units, userfaultfd};

use super::echo_table::{notes, table};

/// Measures and prints.
pub fn main(args: &EchoArgs) -> Result<(), Failure> {
    let library = library::find(args.library.as_deref())?;
    let refused = userfaultfd::check();
    if let Err(why) = &refused {
        complain(why.clone().within("nothing can be elided"));
    }
    let results = measure(args, &library)?;
    if refused.is_ok() {
        for warning in results.rows.iter().filter_map(nothing_elided) {
            eprintln!("uncopy: {warning}");
        }
    }
    if args.json {
        let json = serde_json::to_string(&results).expect("results can be written");
        return print(&format!("{json}\n"));
    }
    print(&format!("{}\n{}", table(&results.rows), notes(args, &results.rows)))
}

/// Whether a row that should have elided something did not.
fn nothing_elided(row: &Row) -> Option<String> {
    let threshold = std::env::var("UNCOPY_THRESHOLD").ok();
    let spec = &uncopy_options::OPTIONS[uncopy_options::index_of("threshold")];
    let threshold =
        threshold.and_then(|text| uncopy_options::parse(spec, &text).ok()).unwrap_or(spec.default);
    let expected = row.copies > 0 && row.size as u64 >= threshold;
    (expected && row.uncopy.elided_bytes == 0).then(|| {
        format!(
            "nothing was elided at size {}, copies {}: the ratio shows noise only",
            units::size(row.size as u64),
            row.copies
        )
    })
}
