//! Rows of the echo server as bars, for a terminal.

use super::rows::{Compared, Row};
use crate::units;

/// Width of the longest bar.
const BAR: f64 = 44.0;

/// Requests a second as bars, a group for each row. `no elision`: uncopy that makes every copy;
/// `placed`: and makes it by libc. Where they were measured; what they gain is not elision's.
pub fn chart<'a>(rows: impl IntoIterator<Item = &'a Row> + Clone) -> String {
    let rates = |row: &Row| {
        let bar = |name, side: &Option<Compared>| {
            side.as_ref().map(|side| (name, side.common.req_per_s, Some(side.ratio)))
        };
        [
            Some(("plain", row.plain.req_per_s, None)),
            bar("placed", &row.placed),
            bar("no elision", &row.unelided),
            Some(("uncopy", row.uncopy.common.req_per_s, Some(row.ratio))),
        ]
    };
    let all = rows.clone().into_iter().flat_map(rates).flatten();
    let most = all.map(|(_, rate, _)| rate).fold(1.0, f64::max);
    let mut text = String::from("  Messages echoed in a second (longer is better)\n\n");
    for row in rows {
        let noun = if row.copies == 1 { "copy" } else { "copies" };
        let mut label = format!("{:>2} {noun}", row.copies);
        for (side, rate, ratio) in rates(row).into_iter().flatten() {
            let times = ratio.map_or(String::new(), |ratio| format!("  {ratio:.2}x"));
            let number = units::grouped(rate.round() as u64);
            text += &format!("  {label:<10} {side:<11} {} {number}{times}\n", bar(rate / most));
            label.clear();
        }
        text.push('\n');
    }
    text
}

/// A bar for a share between 0 and 1, to an eighth of a character.
fn bar(share: f64) -> String {
    let eighths = (share * BAR * 8.0).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    text.extend(['▏', '▎', '▍', '▌', '▋', '▊', '▉'].get((eighths % 8).wrapping_sub(1)));
    if text.is_empty() {
        text.push('▏');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_by_eighths_and_never_vanish() {
        assert_eq!(bar(1.0).chars().count(), BAR as usize);
        assert_eq!(bar(0.0), "▏");
        assert_eq!(bar(1.5 / BAR), "█▌");
    }
}
