//! The load of a server, and the number that it prints.

use std::process::{Command, Stdio};
use std::time::Instant;

use regex_lite::Regex;
use uncopy_measure::Outcome;

use super::said::last_lines;

/// A command for the shell.
#[derive(Clone, Debug)]
pub struct Load {
    /// As it was given.
    pub text: String,
    /// Finds how much work was done.
    count: Option<Regex>,
}

impl Load {
    /// `count`: a regular expression with a group.
    pub fn new(text: &str, count: Option<&str>) -> Outcome<Self> {
        let count = count.map(expression).transpose()?;
        Ok(Self { text: text.to_owned(), count })
    }

    /// Whether its work is counted.
    pub fn counts(&self) -> bool {
        self.count.is_some()
    }

    /// Runs it; how long it took, in seconds, and how much work it did.
    pub fn run(&self) -> Outcome<(f64, Option<f64>)> {
        let begin = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", &self.text]).stdin(Stdio::null());
        let output = command.output().map_err(|e| format!("the load cannot be run ({e})"))?;
        let elapsed = begin.elapsed().as_secs_f64();
        if !output.status.success() {
            return Err(format!(
                "the load ended with {}; it said: {}",
                output.status,
                last_lines(&[output.stderr, output.stdout].concat())
            ));
        }
        let number = |regex| number(regex, &String::from_utf8_lossy(&output.stdout));
        Ok((elapsed, self.count.as_ref().map(number).transpose()?))
    }
}

fn expression(text: &str) -> Outcome<Regex> {
    let regex = Regex::new(text).map_err(|e| format!("--count '{text}': {e}"))?;
    if regex.captures_len() < 2 {
        return Err(format!(
            "--count '{text}' has no group; write parentheses around the number, as in \
             'Requests/sec: *([0-9.]+)'"
        ));
    }
    Ok(regex)
}

/// What the first group finds.
fn number(regex: &Regex, text: &str) -> Outcome<f64> {
    let found = regex.captures(text).and_then(|groups| groups.get(1)).map(|group| group.as_str());
    match found.map(str::parse::<f64>) {
        Some(Ok(number)) if number > 0.0 && number.is_finite() => Ok(number),
        Some(_) => Err(format!(
            "--count found '{}' in what the load printed, which is no number above 0",
            found.unwrap_or_default()
        )),
        None => Err(format!(
            "--count '{regex}' finds nothing in what the load printed to standard output: {}",
            last_lines(text.as_bytes())
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_group_is_the_number() {
        let regex = expression("Requests/sec: *([0-9.]+)").unwrap();
        assert_eq!(number(&regex, "a\nRequests/sec:  12.5\n"), Ok(12.5));
        assert!(number(&regex, "Requests/sec: 1.2.3").unwrap_err().contains("no number"));
        assert!(number(&regex, "none").unwrap_err().contains("finds nothing"));
        assert!(expression("[0-9]+").unwrap_err().contains("no group"));
        assert!(expression("(").is_err());
    }

    #[test]
    fn a_load_that_fails_is_quoted() {
        let load = |text| Load::new(text, Some("n=([0-9]+)")).unwrap().run();
        assert_eq!(load("echo n=3").unwrap().1, Some(3.0));
        let why = load("echo cannot connect >&2; exit 3").unwrap_err();
        assert!(why.contains("exit status: 3") && why.contains("cannot connect"), "{why}");
    }
}
