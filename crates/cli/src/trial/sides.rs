//! How each side of the user's program is started.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

pub use uncopy_measure::side::Side;
use uncopy_measure::{Failure, library};

use super::supervisor;

/// The results of `of` for each side, in the order of [`Side::ALL`].
pub fn by_side<T>(of: impl FnMut(Side) -> T) -> [T; Side::ALL.len()] {
    Side::ALL.map(of)
}

/// The user's program.
#[derive(Clone, Debug)]
pub struct Program {
    /// It and its arguments.
    pub words: Vec<OsString>,
    /// The library that goes in front of it.
    pub library: PathBuf,
    /// The given ones of the options of `uncopy run`.
    pub options: Vec<(&'static str, u64)>,
}

impl Program {
    /// This program as the supervisor of `side`; `server`: what it supervises does not end by
    /// itself.
    pub fn command(&self, side: Side, server: bool) -> Result<Command, Failure> {
        let own = std::env::current_exe()
            .map_err(|e| Failure::new("cannot tell where uncopy itself is").because(e))?;
        let mut command = Command::new(&own);
        command.arg(supervisor::NAME).args(server.then_some(supervisor::SERVER)).arg("--");
        match side {
            Side::Plain | Side::Again | Side::Kept => side.arrange(&mut command, &self.library),
            Side::Placed | Side::NoElision | Side::Uncopy => {
                command.env(library::VARIABLE, &self.library);
                command.arg(own).args(self.run_words(side)).arg("--");
            }
        }
        command.args(&self.words);
        Ok(command)
    }

    /// `run` and its options: those that were given but for what this side sets.
    fn run_words(&self, side: Side) -> Vec<String> {
        let own = || [("verbose", "counters")].iter().chain(side.options());
        let given = self.options.iter().filter(|(name, _)| !own().any(|(of, _)| of == name));
        ["run".to_owned(), "--require".to_owned()]
            .into_iter()
            .chain(own().map(|(name, value)| format!("--{name}={value}")))
            .chain(given.map(|(name, value)| format!("--{name}={value}")))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_options_go_on_but_for_those_that_make_the_side() {
        let options = vec![("threshold", 8192), ("elide", 1), ("verbose", 0), ("allocator", 0)];
        let program = Program { words: vec!["cat".into()], library: "/l.so".into(), options };
        let words = program.run_words(Side::NoElision).join(" ");
        assert_eq!(
            words,
            "run --require --verbose=counters --elide=no --lend=no --threshold=8192 --allocator=0"
        );
        let words = program.run_words(Side::Placed).join(" ");
        assert!(words.contains(" --allocator=yes "), "{words}");
        assert!(words.ends_with(" --lend=no --copies=libc --threshold=8192"), "{words}");
        let words = program.run_words(Side::Uncopy).join(" ");
        assert_eq!(
            words,
            "run --require --verbose=counters --threshold=8192 --elide=1 --allocator=0"
        );
    }
}
