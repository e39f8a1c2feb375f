//! A row of the echo server in words.

use super::plan::Checksum;
use super::rows::Row;
use crate::units;

/// The server's work on the bytes: pages that it touches, and copies that it sums up.
pub fn touch_text(row: &Row) -> String {
    let mut text = row.touched_pages.to_string();
    if row.touched_moving {
        text.push('~');
    }
    text + match row.checksum {
        Checksum::None => "",
        Checksum::Last => " last",
        Checksum::Every => " every",
    }
}

/// A ratio that need not have been measured.
pub fn ratio(ratio: Option<f64>) -> String {
    ratio.filter(|ratio| *ratio > 0.0).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// A row in a few words, before the table is there.
pub fn summary(row: &Row) -> String {
    format!(
        "{}, {} copies, {} connections, {} threads, touches {}: rate {}, CPU {} (again {}; \
         elision's own {})",
        units::size(row.size as u64),
        row.copies,
        row.connections,
        row.threads,
        touch_text(row),
        ratio(Some(row.ratio)),
        ratio(Some(row.cpu_ratio)),
        ratio(Some(row.again.cpu_ratio)),
        ratio(row.elision_cpu_ratio),
    )
}
