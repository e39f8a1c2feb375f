//! What is compared: the program as it is, and what takes its copies or its memory's faults away.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use super::supervisor;
use crate::bench;
use crate::{Outcome, library};

/// glibc's own settings.
pub const TUNABLES: &str = "GLIBC_TUNABLES";
/// With these glibc gives no memory back, so that no page of it faults twice (as in `bench/apps`).
pub const KEEP: &str = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184:\
                        glibc.malloc.top_pad=67108864";

/// One of what is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// As it is.
    Plain,
    /// The same once more: what it differs by is noise.
    Again,
    /// glibc keeps what is freed.
    Kept,
    /// uncopy's allocator only.
    NoElision,
    /// All of uncopy.
    Uncopy,
}

impl Side {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Plain, Self::Again, Self::Kept, Self::NoElision, Self::Uncopy];

    /// Their order in round number `round`: each one is the first in its turn.
    pub fn in_turn(round: usize) -> [Self; 5] {
        let mut sides = Self::ALL;
        sides.rotate_left(round % Self::ALL.len());
        sides
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Again => "plain again",
            Self::Kept => "memory kept",
            Self::NoElision => "uncopy without elision",
            Self::Uncopy => "uncopy",
        }
    }
}

/// The user's program.
#[derive(Clone, Debug)]
pub struct Program {
    /// It and its arguments.
    pub words: Vec<OsString>,
    /// The library that goes in front of it.
    pub library: PathBuf,
    /// What was given of the options of `uncopy run`.
    pub options: Vec<(&'static str, u64)>,
}

impl Program {
    /// This program as the supervisor of `side`; `server`: what it supervises does not end by itself.
    pub fn command(&self, side: Side, server: bool) -> Outcome<Command> {
        let own = std::env::current_exe()
            .map_err(|e| format!("cannot tell where uncopy itself is ({e})"))?;
        let mut command = Command::new(&own);
        command.arg(supervisor::NAME).args(server.then_some(supervisor::SERVER)).arg("--");
        match side {
            Side::Plain | Side::Again | Side::Kept => {
                bench::on_side(&mut command, bench::Side::Plain, &self.library);
                if side == Side::Kept {
                    command.env(TUNABLES, kept(std::env::var_os(TUNABLES)));
                }
            }
            Side::NoElision | Side::Uncopy => {
                command.env(library::VARIABLE, &self.library);
                command.arg(own).args(self.run_words(side == Side::Uncopy)).arg("--");
            }
        }
        command.args(&self.words);
        Ok(command)
    }

    /// `run` and its options: those that were given but for what this side sets.
    fn run_words(&self, elides: bool) -> Vec<String> {
        let own: &[&str] = if elides {
            &["verbose=counters"]
        } else {
            &["verbose=counters", "elide=no", "lend=0"]
        };
        let given = self
            .options
            .iter()
            .filter(|(name, _)| !own.iter().any(|o| o.split('=').next() == Some(name)));
        ["run".to_owned(), "--require".to_owned()]
            .into_iter()
            .chain(own.iter().map(|option| format!("--{option}")))
            .chain(given.map(|(name, value)| format!("--{name}={value}")))
            .collect()
    }
}

/// [`KEEP`] behind what the user has set: of two settings of one thing glibc takes the last.
fn kept(given: Option<OsString>) -> OsString {
    match given.filter(|given| !given.is_empty()) {
        Some(mut given) => {
            given.push(":");
            given.push(KEEP);
            given
        }
        None => KEEP.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_take_turns_at_being_first() {
        assert_eq!(Side::in_turn(0), Side::ALL);
        assert_eq!(Side::in_turn(6)[0], Side::Again);
        assert!(Side::ALL.iter().enumerate().all(|(i, side)| *side as usize == i));
    }

    #[test]
    fn given_options_go_on_but_for_those_that_make_the_side() {
        let options = vec![("threshold", 8192), ("elide", 1), ("verbose", 0)];
        let program = Program { words: vec!["cat".into()], library: "/l.so".into(), options };
        let words = program.run_words(false).join(" ");
        assert_eq!(words, "run --require --verbose=counters --elide=no --lend=0 --threshold=8192");
        let words = program.run_words(true).join(" ");
        assert_eq!(words, "run --require --verbose=counters --threshold=8192 --elide=1");
    }

    #[test]
    fn the_users_own_tunables_stay() {
        assert_eq!(kept(Some("a=1".into())), format!("a=1:{KEEP}").as_str());
        assert_eq!(kept(Some("".into())), KEEP);
        assert_eq!(kept(None), KEEP);
    }
}
