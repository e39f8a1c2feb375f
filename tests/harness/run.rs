//! Runs a program within bounds: no input, a directory of its own, and an end.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use crate::product::named_library;
use crate::verdict::{Stop, number};

/// How long a program may take, in seconds, if `TIMEOUT` does not say otherwise.
const TIMEOUT: u64 = 60;

/// The output of a program, and how it ended.
#[derive(Clone, Debug)]
pub struct Said {
    /// On standard output.
    pub output: String,
    /// On standard error.
    pub errors: String,
    /// As a shell says it: of a program that a signal ended, 128 and its number.
    pub status: i32,
}

impl Said {
    /// The last line of its output.
    pub fn last(&self) -> &str {
        self.output.lines().last().unwrap_or_default()
    }

    /// The last line of its errors.
    pub fn last_error(&self) -> &str {
        self.errors.lines().last().unwrap_or_default()
    }

    /// How it ended, in words.
    pub fn end(&self) -> String {
        match self.status {
            137 => "status 137 (killed, perhaps because it did not end)".to_owned(),
            status => format!("status {status}"),
        }
    }
}

/// A command, and the bounds in which it runs.
#[derive(Debug)]
pub struct Bounded<'a> {
    /// The command, with its options.
    pub words: &'a [OsString],
    /// More environment for it.
    pub environment: &'a [(&'a str, &'a OsStr)],
    /// It is killed after so many seconds.
    pub seconds: Option<u64>,
}

impl Bounded<'_> {
    /// Runs it to its end. Output goes to a file, as from a shell's script: programs look at what
    /// it is.
    pub fn run(&self) -> Result<Said, Stop> {
        let scratch = tempfile::Builder::new()
            .prefix("uncopy-tests.")
            .tempdir()
            .map_err(|e| e.to_string())?;
        let (output, errors, work) = (
            scratch.path().join("output"),
            scratch.path().join("errors"),
            scratch.path().join("work"),
        );
        std::fs::create_dir(&work).map_err(|e| e.to_string())?;
        let create = |path| File::create(path).map_err(|e| e.to_string());
        let seconds = self.seconds.or_else(|| number("TIMEOUT")).unwrap_or(TIMEOUT);
        // (The program is no leader of a process group, and what it left behind in its own is
        // killed with it.)
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", &seconds.to_string(), "env"]);
        command.args(self.environment.iter().map(|(name, value)| {
            let mut pair = OsString::from(format!("{name}="));
            pair.push(value);
            pair
        }));
        command.args(self.words).current_dir(&work);
        clean(&mut command);
        command.stdin(Stdio::null()).stdout(create(&output)?).stderr(create(&errors)?);
        let status =
            command.status().map_err(|e| format!("'timeout' of coreutils cannot be run ({e})"))?;
        let read =
            |path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let (output, errors) =
            (read(&output).map_err(|e| e.to_string())?, read(&errors).map_err(|e| e.to_string())?);
        Ok(Said { output, errors, status: number_of(status) })
    }
}

/// Takes out of the environment what cargo and the tests' callers put there, and names the library
/// under test.
pub fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("UNCOPY") || text.starts_with("CARGO") || text == "LD_LIBRARY_PATH" {
            command.env_remove(name);
        }
    }
    if let Some(library) = named_library() {
        command.env("UNCOPY_LIBRARY", library);
    }
}

fn number_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(script: &str, environment: &[(&str, &OsStr)]) -> Said {
        let words = ["sh", "-c", script].map(OsString::from);
        Bounded { words: &words, environment, seconds: Some(2) }.run().unwrap()
    }

    #[test]
    fn output_and_end_are_kept_apart() {
        let said = said("echo a; echo $X; echo c >&2; exit 3", &[("X", OsStr::new("b d"))]);
        assert_eq!((&*said.output, &*said.errors, said.status), ("a\nb d\n", "c\n", 3));
        assert_eq!((said.last(), said.last_error()), ("b d", "c"));
    }

    #[test]
    fn a_signal_is_said_as_a_shell_says_it_and_what_does_not_end_is_killed() {
        assert_eq!(said("kill -SEGV $$", &[]).status, 128 + 11);
        assert_eq!(said("trap '' TERM; while :; do sleep 1; done", &[]).status, 128 + 9);
    }

    #[test]
    fn cargos_environment_is_not_the_programs() {
        assert_eq!(said("env | grep -c '^CARGO'", &[]).output, "0\n");
    }
}
