//! The one table of options: it yields `uncopy run --help`, the `UNCOPY_*` variables that the
//! preload library reads, their ranges, and the warning for a misspelt one.
#![forbid(unsafe_code)]

/// The form of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `0`/`1`, `no`/`yes`, `false`/`true`, `off`/`on`; on the command line a bare `--name`
    /// means yes.
    Flag,
    /// As [`Kind::Flag`], or one of these words, which stand for 2, 3, ...
    FlagOr(&'static [&'static str]),
    /// One of these words, which stand for 0, 1, ...
    Word(&'static [&'static str]),
    /// A number of bytes with an optional suffix `K`, `M` or `G` (powers of 1024).
    Bytes,
    /// A plain number.
    Count,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Long option of `uncopy run`, without the dashes.
    pub name: &'static str,
    /// The environment variable that carries it to the preload library.
    pub env: &'static str,
    /// How the value is read.
    pub kind: Kind,
    /// Value when nothing is said.
    pub default: u64,
    /// Smallest accepted value.
    pub min: u64,
    /// Largest accepted value.
    pub max: u64,
    /// One sentence for `--help`.
    pub help: &'static str,
}

/// `--verbose`: one summary for the program and all that it starts.
pub const VERBOSE: u64 = 1;
/// `--verbose=all`: one for each process.
pub const VERBOSE_ALL: u64 = 2;
/// `--verbose=counters`: the same, to be read by programs.
pub const VERBOSE_COUNTERS: u64 = 3;

/// `--copies=auto`: what is faster here.
pub const COPIES_AUTO: u64 = 0;
/// `--copies=libc`: libc's routine makes all of them.
pub const COPIES_LIBC: u64 = 1;
/// `--copies=ours`: ours makes those that libc's is slow at on some processors.
pub const COPIES_OURS: u64 = 2;

/// Every option that the preload library understands.
pub const OPTIONS: &[Spec] = &[
    Spec {
        name: "elide",
        env: "UNCOPY_ELIDE",
        kind: Kind::Flag,
        default: 1,
        min: 0,
        max: 1,
        help: "Elide copies; with `no` here and for the allocator, and `libc` for copies, the \
            library is loaded and stands aside",
    },
    Spec {
        name: "copies",
        env: "UNCOPY_COPIES",
        kind: Kind::Word(&["auto", "libc", "ours"]),
        default: COPIES_AUTO,
        min: COPIES_AUTO,
        max: COPIES_OURS,
        help: "Who makes copies whose destination begins 1 to 63 bytes ahead of the source within \
            the page, which some processors are slow at: libc, a routine of ours, or the one that \
            a trial copy finds faster when the program starts",
    },
    Spec {
        name: "allocator",
        env: "UNCOPY_ALLOCATOR",
        kind: Kind::Flag,
        default: 1,
        min: 0,
        max: 1,
        help: "Serve large blocks of programs that use glibc's malloc from an allocator that \
            recycles pages",
    },
    Spec {
        name: "foreign-allocator",
        env: "UNCOPY_FOREIGN_ALLOCATOR",
        kind: Kind::Flag,
        default: 0,
        min: 0,
        max: 1,
        help: "Do so also for programs that bring their own malloc (jemalloc, tcmalloc, ...)",
    },
    Spec {
        name: "threshold",
        env: "UNCOPY_THRESHOLD",
        kind: Kind::Bytes,
        default: 16 << 10,
        min: 8 << 10,
        max: 1 << 30,
        help: "Smallest copy that is considered, in bytes",
    },
    Spec {
        name: "extent-memory",
        env: "UNCOPY_EXTENT_MEMORY",
        kind: Kind::Bytes,
        default: 0,
        min: 0,
        max: 1 << 42,
        help: "Cap on memory held in extents, in bytes; 0 means an eighth of the machine's memory, \
            or of a control group's limit",
    },
    Spec {
        name: "file-memory",
        env: "UNCOPY_FILE_MEMORY",
        kind: Kind::Bytes,
        default: 0,
        min: 0,
        max: 1 << 40,
        help: "Keep files that are read again and again, in so many bytes, and hold others' \
            writing off until they are let go; 0 means not",
    },
    Spec {
        name: "max-mappings",
        env: "UNCOPY_MAX_MAPPINGS",
        kind: Kind::Count,
        default: 0,
        min: 0,
        max: 1 << 24,
        help: "Cap on registered address ranges (each may split a mapping); 0 means a quarter of \
            vm.max_map_count",
    },
    Spec {
        name: "backoff",
        env: "UNCOPY_BACKOFF",
        kind: Kind::Flag,
        default: 1,
        min: 0,
        max: 1,
        help: "Stop eliding at a call site whose data the program keeps touching",
    },
    Spec {
        name: "lend",
        env: "UNCOPY_LEND",
        kind: Kind::Flag,
        default: 1,
        min: 0,
        max: 1,
        help: "Send by reference what is sent again and again to stream sockets and pipes",
    },
    Spec {
        name: "tcp",
        env: "UNCOPY_TCP",
        kind: Kind::Flag,
        default: 0,
        min: 0,
        max: 1,
        help: "Let TCP connections go past Linux: to programs of this host that also run with \
            --tcp through shared memory, and, while 'uncopy tcp serve --if' serves a device, to \
            and from other hosts, which need no uncopy",
    },
    Spec {
        name: "tcp-references",
        env: "UNCOPY_TCP_REFERENCES",
        kind: Kind::Flag,
        default: 1,
        min: 0,
        max: 1,
        help: "Let programs of the same user that could trace each other map what the other sends, \
            so that the receiver need not copy large messages",
    },
    Spec {
        name: "tcp-spin",
        env: "UNCOPY_TCP_SPIN",
        kind: Kind::Flag,
        default: 1,
        min: 0,
        max: 1,
        help: "Before a call sleeps over such a connection, look for bytes again and again for 10 \
            us, where that has paid lately",
    },
    Spec {
        name: "follow-exec",
        env: "UNCOPY_FOLLOW_EXEC",
        kind: Kind::Flag,
        default: 1,
        min: 0,
        max: 1,
        help: "Stay loaded in programs that the program executes",
    },
    Spec {
        name: "stats",
        env: "UNCOPY_STATS",
        kind: Kind::Flag,
        default: 1,
        min: 0,
        max: 1,
        help: "Let `uncopy stat` and `uncopy top` of the same user (and root) see what is done",
    },
    Spec {
        name: "verbose",
        env: "UNCOPY_VERBOSE",
        kind: Kind::FlagOr(&["all", "counters"]),
        default: 0,
        min: 0,
        max: VERBOSE_COUNTERS,
        help: "Say on standard error one line at the start, and at exit what was done: by the \
            program, and by all that it started together; all: each process for itself; counters: \
            each, as NAME=VALUE",
    },
];

/// Variables that begin with `UNCOPY_` and are not options: set by `uncopy run` itself, and for
/// tests.
pub const RESERVED: &[&str] = &[
    LOG,
    LOG_FILES,
    LOG_SYNC,
    LOG_SYNC_TRIAL,
    "UNCOPY_LIBRARY",
    TCP_SERVICE,
    TCP_AFTER,
    TCP_BLOCKS,
    SUMMARY,
    INJECT,
    COSTS,
    CONTROLLER,
    RECORD,
    RECORD_BYTES,
    PROFILE,
    PROFILE_LEAST,
    PROFILE_TOUCH,
    REQUIRED_OF,
];

/// The directory of the log's service; set by `uncopy run --log`.
pub const LOG: &str = "UNCOPY_LOG";

/// Patterns of the files whose appends may be held, separated by colons; set by `uncopy run
/// --log-files`. Nothing said: all.
pub const LOG_FILES: &str = "UNCOPY_LOG_FILES";

/// `answers`: a sync returns before it is durable, and what follows from it waits; set by `uncopy
/// run --log-sync`, and else the user's.
pub const LOG_SYNC: &str = "UNCOPY_LOG_SYNC";

/// What is let through of it, and how long flushes take, for tests: see
/// `uncopy_log_answers::Trial`.
pub const LOG_SYNC_TRIAL: &str = "UNCOPY_LOG_SYNC_TRIAL";

/// The file in which a program and all that it starts are summed up (see
/// `uncopy_counters::family`); set by `uncopy run --verbose`.
pub const SUMMARY: &str = "UNCOPY_SUMMARY";

/// The name of the service that `--tcp` asks, in place of the user's own, or the system's.
pub const TCP_SERVICE: &str = "UNCOPY_TCP_SERVICE";

/// Calls after which a connection is shown to the service, for tests: 1 is at once. Nothing said:
/// as `uncopy_tcp_socket` finds that it pays.
pub const TCP_AFTER: &str = "UNCOPY_TCP_AFTER";

/// Bytes from which on messages go in blocks, whether the receiver would take them so or not, for
/// tests.
pub const TCP_BLOCKS: &str = "UNCOPY_TCP_BLOCKS";

/// The directory in which processes that are profiled leave their parts; set by `uncopy profile`.
pub const PROFILE: &str = "UNCOPY_PROFILE";

/// Smallest copy that `uncopy profile` follows, in bytes.
pub const PROFILE_LEAST: &str = "UNCOPY_PROFILE_LEAST";

/// `0`: `uncopy profile` does not look for touches.
pub const PROFILE_TOUCH: &str = "UNCOPY_PROFILE_TOUCH";

/// The number of the process that ends where nothing can be elided, with [`REFUSED`]; set by
/// `uncopy run --require`. (A limit of descriptors, for one, holds in the program alone.)
pub const REQUIRED_OF: &str = "UNCOPY_REQUIRED_OF";

/// The status with which `--require` refuses.
pub const REFUSED: u8 = 125;

/// Makes calls of the library's fail, for tests: see `uncopy_inject`.
pub const INJECT: &str = "UNCOPY_INJECT";

/// The controller that decides, for those who work on uncopy: see `uncopy_decide::Choice`.
pub const CONTROLLER: &str = "UNCOPY_CONTROLLER";

/// The file in which the program is recorded; set by `uncopy run --record`. Others that it starts,
/// and its children, have their numbers behind that.
pub const RECORD: &str = "UNCOPY_RECORD";

/// Size of that file at most, in bytes.
pub const RECORD_BYTES: &str = "UNCOPY_RECORD_BYTES";

/// [`RECORD_BYTES`] where nothing is said: half a minute of a busy server.
pub const RECORD_BYTES_DEFAULT: usize = 16 << 20;

/// The costs on this machine, as `uncopy doctor` measured them: see `uncopy_decide::Costs`.
pub const COSTS: &str = "UNCOPY_COSTS";

/// Index of the option called `name` on the command line, for [`Values::get`].
///
/// # Panics
/// At compile time (it is used in constants) if there is no such option.
pub const fn index_of(name: &str) -> usize {
    let mut i = 0;
    while i < OPTIONS.len() {
        if str_eq(OPTIONS[i].name, name) {
            return i;
        }
        i += 1;
    }
    panic!("no such option");
}

const fn str_eq(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Why a value was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadValue {
    /// Not of the option's [`Kind`].
    Syntax,
    /// Outside the option's `min..=max`.
    Range,
}

/// Reads one value of `spec`.
///
/// # Errors
/// [`BadValue`], when `text` is not of the option's kind or out of its range.
pub fn parse(spec: &Spec, text: &str) -> Result<u64, BadValue> {
    let text = text.trim();
    let flag = match text {
        "1" | "yes" | "true" | "on" => Ok(1),
        "0" | "no" | "false" | "off" => Ok(0),
        _ => Err(BadValue::Syntax),
    };
    let value = match spec.kind {
        Kind::Flag => flag?,
        Kind::FlagOr(words) => match words.iter().position(|word| *word == text) {
            Some(at) => at as u64 + 2,
            None => flag?,
        },
        Kind::Word(words) => {
            words.iter().position(|word| *word == text).ok_or(BadValue::Syntax)? as u64
        }
        Kind::Count => text.parse().map_err(|_| BadValue::Syntax)?,
        Kind::Bytes => {
            let (digits, shift) = match text.as_bytes().last() {
                Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
                Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
                Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
                _ => (text, 0),
            };
            let n: u64 = digits.parse().map_err(|_| BadValue::Syntax)?;
            n.checked_mul(1 << shift).ok_or(BadValue::Range)?
        }
    };
    if value < spec.min || value > spec.max {
        return Err(BadValue::Range);
    }
    Ok(value)
}

/// The text that [`parse`] reads as this value.
pub fn text(spec: &Spec, value: u64) -> String {
    match (spec.kind, value) {
        (Kind::Flag | Kind::FlagOr(_), 0) => "no".to_owned(),
        (Kind::Flag | Kind::FlagOr(_), 1) => "yes".to_owned(),
        (Kind::FlagOr(words), n) if n as usize - 2 < words.len() => {
            words[n as usize - 2].to_owned()
        }
        (Kind::Word(words), n) if (n as usize) < words.len() => words[n as usize].to_owned(),
        _ => value.to_string(),
    }
}

/// A value for every option of [`OPTIONS`], in its order.
#[derive(Clone, Copy, Debug)]
pub struct Values([u64; OPTIONS.len()]);

impl Default for Values {
    fn default() -> Self {
        Self::new()
    }
}

impl Values {
    /// Every option at its default.
    pub const fn new() -> Self {
        let mut v = [0; OPTIONS.len()];
        let mut i = 0;
        while i < OPTIONS.len() {
            v[i] = OPTIONS[i].default;
            i += 1;
        }
        Self(v)
    }

    /// The value of option number `index` (see [`index_of`]).
    pub const fn get(&self, index: usize) -> u64 {
        self.0[index]
    }

    /// Sets option number `index`.
    pub fn set(&mut self, index: usize, value: u64) {
        self.0[index] = value;
    }

    /// The options that are not at their defaults.
    pub fn changed(&self) -> impl Iterator<Item = (&'static Spec, u64)> + '_ {
        OPTIONS.iter().zip(self.0).filter(|(s, v)| s.default != *v)
    }
}

/// Whether `variable` is an option's or a reserved one.
pub fn known(variable: &str) -> bool {
    OPTIONS.iter().any(|s| s.env == variable) || RESERVED.contains(&variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> &'static Spec {
        &OPTIONS[index_of(name)]
    }

    #[test]
    fn bytes_take_suffixes() {
        assert_eq!(parse(spec("threshold"), "64K"), Ok(65536));
        assert_eq!(parse(spec("extent-memory"), "2g"), Ok(2 << 30));
        assert_eq!(parse(spec("threshold"), "16384"), Ok(16384));
    }

    #[test]
    fn values_out_of_range_and_nonsense_are_told_apart() {
        assert_eq!(parse(spec("threshold"), "1"), Err(BadValue::Range));
        assert_eq!(parse(spec("threshold"), "many"), Err(BadValue::Syntax));
        assert_eq!(parse(spec("verbose"), "2"), Err(BadValue::Syntax));
        assert_eq!(parse(spec("extent-memory"), "99999999999999999G"), Err(BadValue::Range));
    }

    #[test]
    fn a_value_that_is_written_as_text_is_read_as_the_same() {
        for s in OPTIONS {
            for value in [s.min, s.default, s.max] {
                assert_eq!(parse(s, &text(s, value)), Ok(value), "{}", s.name);
            }
        }
        assert_eq!(parse(spec("verbose"), "all"), Ok(VERBOSE_ALL));
        assert_eq!(parse(spec("verbose"), "counters"), Ok(VERBOSE_COUNTERS));
        assert_eq!(parse(spec("copies"), "ours"), Ok(COPIES_OURS));
        assert_eq!(parse(spec("copies"), "yes"), Err(BadValue::Syntax));
    }

    #[test]
    fn reserved_variables_are_known() {
        assert!(known("UNCOPY_VERBOSE") && !known("UNCOPY_VERBOSITY"));
    }

    #[test]
    fn every_default_is_in_range_and_named_once() {
        for (i, s) in OPTIONS.iter().enumerate() {
            assert!(s.default >= s.min && s.default <= s.max, "{}", s.name);
            assert_eq!(index_of(s.name), i);
        }
    }
}
