//! The programs that calls are made to fail under, and what they print plainly.

use std::ffi::OsString;
use std::sync::LazyLock;

use uncopy_tests::compile::{Part, compile};
use uncopy_tests::run::Bounded;
use uncopy_tests::verdict::Stop;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    /// Copies in all ways.
    Consistency,
    /// Does little else than send by reference.
    Lent,
    /// One thread, which has faults.
    Faults,
    /// Moves what has become several mappings, without descriptors.
    Remapped,
    /// The same in a process whose first thread has ended.
    RemappedAfterMain,
    /// Moves such while another thread maps and unmaps.
    RemappedBeside,
}

type Plain = LazyLock<Result<String, Stop>>;

impl Program {
    /// The one that a rule is tried on.
    pub fn of(rule: &str) -> Self {
        if rule.contains("splice") || rule.starts_with("pipe") {
            Self::Lent
        } else if rule.starts_with("affinity") {
            Self::Faults
        } else if rule == "unregister:EINVAL" {
            Self::Remapped
        } else if rule == "unregister:EINVAL:1/1" {
            Self::RemappedAfterMain
        } else if rule.contains("mremap:") {
            Self::RemappedBeside
        } else {
            Self::Consistency
        }
    }

    /// Its command, compiled.
    pub fn words(self) -> Result<Vec<OsString>, Stop> {
        const NO_BUILTIN: &str = "-fno-builtin";
        let (name, part, words): (_, _, &[&str]) = match self {
            Self::Consistency => {
                let flags = [NO_BUILTIN, "-fno-builtin-memcpy", "-fno-builtin-memmove"];
                let part = Part::program("consistency/consistency.c", &flags);
                (
                    "consistency",
                    part,
                    &["--threads", "2", "--align", "odd", "--size", "200000", "--rounds", "2"],
                )
            }
            Self::Lent => {
                ("lent_pages_stay", Part::program("process/lent_pages_stay.c", &[]), &["48"])
            }
            Self::Remapped => {
                let part = Part::program("process/remapped_without_descriptors.c", &[NO_BUILTIN]);
                ("remapped_without_descriptors", part, &[])
            }
            Self::RemappedAfterMain => {
                let part = Part::program("process/remapped_after_main_has_left.c", &[NO_BUILTIN]);
                ("remapped_after_main_has_left", part, &[])
            }
            Self::RemappedBeside => {
                let part = Part::program("process/remapped_beside_others.c", &[NO_BUILTIN]);
                ("remapped_beside_others", part, &[])
            }
            Self::Faults => {
                let part = Part::program("/bench/experiments/faults_in_a_loop.c", &[NO_BUILTIN]);
                ("faults_in_a_loop", part, &["300", "8"])
            }
        };
        let program = compile(&format!("inject-{name}"), &[part])?.join(name).into_os_string();
        Ok([program].into_iter().chain(words.iter().map(OsString::from)).collect())
    }

    /// The output of a plain run.
    pub fn plain(self) -> Result<&'static str, Stop> {
        static CONSISTENCY: Plain = LazyLock::new(|| Program::Consistency.run());
        static LENT: Plain = LazyLock::new(|| Program::Lent.run());
        static FAULTS: Plain = LazyLock::new(|| Program::Faults.run());
        static REMAPPED: Plain = LazyLock::new(|| Program::Remapped.run());
        static AFTER_MAIN: Plain = LazyLock::new(|| Program::RemappedAfterMain.run());
        static BESIDE: Plain = LazyLock::new(|| Program::RemappedBeside.run());
        let said = match self {
            Self::Consistency => &CONSISTENCY,
            Self::Lent => &LENT,
            Self::Faults => &FAULTS,
            Self::Remapped => &REMAPPED,
            Self::RemappedAfterMain => &AFTER_MAIN,
            Self::RemappedBeside => &BESIDE,
        };
        said.as_deref().map_err(Clone::clone)
    }

    fn run(self) -> Result<String, Stop> {
        let said = Bounded { words: &self.words()?, environment: &[], seconds: Some(120) }.run()?;
        match said.status {
            0 => Ok(said.output),
            _ => Err(format!("plainly: {}: {}", said.end(), said.last_error()).into()),
        }
    }
}

/// A counter, over all processes that said their summary.
pub fn sum(errors: &str, name: &str) -> u64 {
    let value = |line: &str| {
        line.strip_prefix("uncopy: ")?.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok()
    };
    errors.lines().filter_map(value).sum()
}
