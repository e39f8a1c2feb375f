//! Text that somebody else chose, made fit to be shown: names of processes, paths, symbols, words
//! of a command line.
//!
//! A program or a user that names a process, a file or a function could otherwise move the cursor
//! of a reader's terminal, set the title of the window, or have text shown in another order than it
//! has.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// The text with everything that is no visible character written out: `\n`, `\x1b`, `\u{9b}`, and
/// bytes that are no UTF-8 as `\xff`.
pub fn printable(text: impl AsRef<OsStr>) -> String {
    let mut shown = String::new();
    for chunk in text.as_ref().as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            let _ = match c {
                '\n' => shown.write_str("\\n"),
                '\t' => shown.write_str("\\t"),
                '\r' => shown.write_str("\\r"),
                c if c.is_ascii_control() => write!(shown, "\\x{:02x}", u32::from(c)),
                c if steers(c) => write!(shown, "\\u{{{:x}}}", u32::from(c)),
                c => shown.write_char(c),
            };
        }
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// JSON's text: what it need not escape, but a terminal obeys, is escaped too; a reader finds the
/// same.
pub fn json(value: &serde_json::Value) -> String {
    let mut shown = String::new();
    for c in value.to_string().chars() {
        let _ = match c {
            c if steers(c) => write!(shown, "\\u{:04x}", u32::from(c)),
            c => shown.write_char(c),
        };
    }
    shown
}

/// Control characters (C0, DEL, C1), ends of lines and paragraphs, and what changes the direction
/// of writing.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &[u8]) -> String {
        printable(OsStr::from_bytes(text))
    }

    #[test]
    fn visible_characters_stay() {
        for text in ["", "redis-server", "/a b/naïve-名前.so", "C:\\path", "🦀 👩‍🚀"] {
            assert_eq!(printable(text), text);
        }
    }

    #[test]
    fn characters_that_a_terminal_obeys_are_written_out() {
        assert_eq!(printable("\x1b[31mR\x07\n\t\r\0\x7f"), r"\x1b[31mR\x07\n\t\r\x00\x7f");
        assert_eq!(printable("\u{9b}31m\u{80}"), r"\u{9b}31m\u{80}");
        assert_eq!(
            printable("a\u{202e}b\u{2066}c\u{200f}\u{2028}"),
            r"a\u{202e}b\u{2066}c\u{200f}\u{2028}"
        );
        // The same controls as bytes of their own, and characters that are cut off.
        assert_eq!(bytes(b"\x9b31m\xff\xe2\x82"), r"\x9b31m\xff\xe2\x82");
    }

    #[test]
    fn json_says_the_same_without_a_control_character() {
        let value = serde_json::json!({ "name": "\x1b[1m\u{9b}2m\x7f\u{202e}é" });
        let text = json(&value);
        assert!(!text.chars().any(steers), "{text}");
        assert!(text.contains('é'));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
