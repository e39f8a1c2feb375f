//! Numbers and tables as people write and read them: `512K` in, `512K` and `12,345` out.

use crate::bad_value::BadValue;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{ContentArrangement, Table, TableStyle};

pub use uncopy_counters::formatting::{grouped, rough_size};

/// Lines above, below and under the header, none between rows.
pub const TABLE_STYLE: TableStyle =
    UTF8_HORIZONTAL_ONLY.row_separator(comfy_table::LineStyle::none());

/// A table as wide as the terminal, or so wide where there is none or it does not count.
pub fn table(header: &[&str], width: u16, terminal_counts: bool) -> Table {
    let mut table = Table::new();
    table.load_style(TABLE_STYLE).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    if !terminal_counts || table.width().is_none() {
        table.set_width(width);
    }
    table
}

/// Reads a number of bytes with an optional suffix `K`, `M` or `G` (powers of 1024).
///
/// # Errors
/// [`BadValue`]: it is none, or too large.
pub fn parse_size(text: &str) -> Result<usize, BadValue> {
    let text = text.trim();
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: usize = digits.parse().map_err(|_| BadValue::NoSize(text.to_owned()))?;
    number.checked_mul(1 << shift).ok_or_else(|| BadValue::TooLarge(text.to_owned()))
}

/// Writes a number of bytes with the largest suffix that keeps it exact.
pub fn size(bytes: u64) -> String {
    [(30, "G"), (20, "M"), (10, "K")]
        .into_iter()
        .find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift)
        .map_or_else(|| bytes.to_string(), |(shift, suffix)| format!("{}{suffix}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_suffixes() {
        assert_eq!(parse_size("512K"), Ok(512 << 10));
        assert_eq!(parse_size("1m"), Ok(1 << 20));
        assert_eq!(parse_size("100"), Ok(100));
        assert!(parse_size("K").is_err() && parse_size("-1").is_err() && parse_size("").is_err());
        assert!(parse_size("99999999999999G").is_err());
    }

    #[test]
    fn sizes_are_written_exactly() {
        assert_eq!(size(512 << 10), "512K");
        assert_eq!(size(3 << 20), "3M");
        assert_eq!(size(1000), "1000");
        assert_eq!(size(0), "0");
    }
}
