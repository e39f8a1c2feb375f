//! Output of a program or a load, quoted where it failed.

use super::counters;

/// The end of what was said, in one line, without what uncopy itself says in its summary.
pub fn last_lines(said: &[u8]) -> String {
    const SHOWN: usize = 4;
    let text = String::from_utf8_lossy(said);
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.trim().is_empty() && !counters::is_ours(line)).collect();
    let shown = &lines[lines.len().saturating_sub(SHOWN)..];
    if shown.is_empty() { "nothing".into() } else { shown.join(" | ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_what_was_said_is_shown() {
        assert_eq!(last_lines(b""), "nothing");
        assert_eq!(last_lines(b"1\n2\n\n3\n4\n5\nuncopy: moves=1\n"), "2 | 3 | 4 | 5");
        assert_eq!(last_lines(b"uncopy: refused: why\n"), "uncopy: refused: why");
    }
}
