//! The variants in which a script is run besides plainly.

use core::str::FromStr;
use uncopy_torture::text::BadText;

/// A name, options for `uncopy run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The name.
    pub name: String,
    /// Options.
    pub options: Vec<String>,
}

/// The known ones. `eager`: without the back-off, which would leave alone most of what a program
/// does that looks at everything, with the smallest threshold, and with our own routine for near
/// copies. `libc`: the same with libc's own allocator. `tiny`: with limits that are met all the
/// time.
const KNOWN: [(&str, &str); 4] = [
    ("default", ""),
    ("eager", "--backoff=no --threshold=8K --copies=ours"),
    ("libc", "--backoff=no --threshold=8K --allocator=no"),
    ("tiny", "--backoff=no --threshold=8K --extent-memory=1M --max-mappings=6"),
];

impl Variant {
    /// The known variants.
    pub fn known() -> Vec<Self> {
        KNOWN.iter().filter_map(|k| k.0.parse().ok()).collect()
    }
}

impl FromStr for Variant {
    type Err = BadText;

    /// `NAME=OPTIONS`, or the name of a known variant.
    fn from_str(text: &str) -> Result<Self, BadText> {
        let known = KNOWN.iter().find(|k| k.0 == text).copied();
        let (name, options) = known.or_else(|| text.split_once('=')).ok_or_else(|| {
            BadText::new(format_args!("{text} is neither a known way nor NAME=OPTIONS"))
        })?;
        let options = options.split_ascii_whitespace().map(str::to_owned).collect();
        Ok(Self { name: name.to_owned(), options })
    }
}
