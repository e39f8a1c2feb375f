//! The ways in which a script is run besides plainly.

use core::str::FromStr;
use uncopy_torture::text::BadText;

/// A name, options for `uncopy run`, and environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The name.
    pub name: &'static str,
    /// Options.
    pub options: &'static [&'static str],
    /// Environment.
    pub environment: &'static [(&'static str, &'static str)],
    /// A script begins when its connections have rings.
    pub at_once: bool,
}

/// `once`: with rings from the first call on. `four`: shown after four calls, so the ways change
/// while the script runs. `views`: as `once`, with all messages in blocks, and copies elided
/// wherever they can be. `eager`: the latter without blocks but for large messages.
const KNOWN: [Variant; 4] = [
    Variant {
        name: "once",
        options: &[],
        environment: &[("UNCOPY_TCP_AFTER", "1")],
        at_once: true,
    },
    Variant {
        name: "four",
        options: &[],
        environment: &[("UNCOPY_TCP_AFTER", "4")],
        at_once: false,
    },
    Variant {
        name: "views",
        options: &["--backoff=no", "--threshold=8K"],
        environment: &[("UNCOPY_TCP_AFTER", "1"), ("UNCOPY_TCP_BLOCKS", "1")],
        at_once: true,
    },
    Variant {
        name: "eager",
        options: &["--backoff=no", "--threshold=8K"],
        environment: &[("UNCOPY_TCP_AFTER", "1")],
        at_once: true,
    },
];

impl Variant {
    /// Those that are run where nothing is said.
    pub fn usual() -> Vec<Self> {
        KNOWN[..3].to_vec()
    }
}

impl FromStr for Variant {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let found = KNOWN.into_iter().find(|way| way.name == text);
        found.ok_or_else(|| BadText::new(format_args!("{text} is not once, four, views or eager")))
    }
}
