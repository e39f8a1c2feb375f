//! Damage for whole files: what reads bytes that somebody else may have written never panics. (The
//! tests stand beside what they test.)
//!
//! `cargo test` tries some hundred random damages, and all that are kept in `__fuzz__/`; what fails
//! is made smaller, and printed with the seed. With a nightly compiler and cargo-bolero the same
//! tests are led by what the code does:
//! `cargo +nightly bolero test -p uncopy stat::program::tests::a_damaged_file_is_read_or_refused`.

use bolero::TypeGenerator;

/// The damages that are done to a file.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Damages {
    all: Vec<Damage>,
    /// Below 16: so many bytes are missing at the end.
    cut: u8,
}

/// A number that is written over another one.
#[derive(Clone, Debug, TypeGenerator)]
struct Damage {
    place: Position,
    at: u32,
    bytes: u8,
    value: Value,
}

/// Beginning and end of a file say what the rest is.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Position {
    First,
    Last,
    Anywhere,
}

#[derive(Clone, Debug, TypeGenerator)]
enum Value {
    Small(u8),
    Most,
    Any(u64),
}

impl Damages {
    /// The file's content after them.
    pub fn done_to(&self, whole: &[u8]) -> Vec<u8> {
        const END: usize = 2048;
        let mut bytes = whole.to_vec();
        for damage in &self.all {
            let (len, at) = (bytes.len(), damage.at as usize);
            let at = match damage.place {
                Position::First => at % END.min(len),
                Position::Last => len - 1 - at % END.min(len),
                Position::Anywhere => at % len,
            };
            // Fields lie at multiples of four.
            let at = at & !3;
            let value = match damage.value {
                Value::Small(n) => n.into(),
                Value::Most => u64::MAX,
                Value::Any(n) => n,
            };
            let width = [1, 2, 4, 8][usize::from(damage.bytes % 4)].min(len - at);
            bytes[at..at + width].copy_from_slice(&value.to_ne_bytes()[..width]);
        }
        if self.cut < 16 {
            bytes.truncate(bytes.len() - usize::from(self.cut));
        }
        bytes
    }
}
