//! The load of a server, and the number that it prints.

use std::cell::OnceCell;
use std::process::{Command, Stdio};
use std::time::Instant;

use regex_lite::Regex;
use uncopy_measure::{Failure, failure};

use super::said::last_lines;

/// How programs that load servers, often for a fixed time, say how much they did: all of it, not a
/// rate, so that it is right for a fixed amount of work, too.
const KNOWN: [(&str, &str); 3] = [
    ("wrk", "([0-9]+) requests in [0-9.]+[a-z]+,"),
    ("ab", "Complete requests: +([0-9]+)"),
    ("h2load", "requests: [0-9]+ total, [0-9]+ started, [0-9]+ done, ([0-9]+) succeeded"),
];

/// A command for the shell.
#[derive(Clone, Debug)]
pub struct Load {
    /// The text that was given.
    pub text: String,
    /// Finds how much work was done: what was given, or what the first output shows.
    count: OnceCell<Option<Regex>>,
}

impl Load {
    /// `count`: a regular expression with a group.
    pub fn new(text: &str, count: Option<&str>) -> Result<Self, Failure> {
        let cell = OnceCell::new();
        if let Some(count) = count {
            let _ = cell.set(Some(expression(count)?));
        }
        Ok(Self { text: text.to_owned(), count: cell })
    }

    /// Whether its work is counted, as far as is known.
    pub fn counts(&self) -> bool {
        matches!(self.count.get(), Some(Some(_)))
    }

    /// Runs it; how long it took, in seconds, and how much work it did.
    pub fn run(&self) -> Result<(f64, Option<f64>), Failure> {
        let begin = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", &self.text]).stdin(Stdio::null());
        let output =
            command.output().map_err(|e| Failure::new("the load cannot be run").because(e))?;
        let elapsed = begin.elapsed().as_secs_f64();
        if !output.status.success() {
            return Err(failure!("the load ended with {}", output.status).advise(format_args!(
                "it said: {}",
                last_lines(&[output.stderr, output.stdout].concat())
            )));
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let count = self.count.get_or_init(|| known(&said));
        Ok((elapsed, count.as_ref().map(|regex| number(regex, &said)).transpose()?))
    }
}

fn expression(text: &str) -> Result<Regex, Failure> {
    let regex = Regex::new(text)
        .map_err(|e| failure!("--count '{text}' is no regular expression").because(e))?;
    if regex.captures_len() < 2 {
        return Err(failure!("--count '{text}' has no group")
            .advise("write parentheses around the number, as in 'Requests/sec: *([0-9.]+)'"));
    }
    Ok(regex)
}

/// How work is counted in what a load said, if it is one of [`KNOWN`]; tells the user so.
fn known(said: &str) -> Option<Regex> {
    KNOWN.iter().find_map(|(name, text)| {
        let regex = Regex::new(text).ok().filter(|regex| regex.is_match(said))?;
        eprintln!(
            "uncopy try: the load's output is {name}'s: its work is counted by '{text}'. Another \
             way: --count REGEX"
        );
        Some(regex)
    })
}

/// The number that the first group finds.
fn number(regex: &Regex, text: &str) -> Result<f64, Failure> {
    let found = regex.captures(text).and_then(|groups| groups.get(1)).map(|group| group.as_str());
    match found.map(str::parse::<f64>) {
        Some(Ok(number)) if number > 0.0 && number.is_finite() => Ok(number),
        Some(_) => Err(failure!(
            "--count found '{}' in what the load printed, which is no number above 0",
            found.unwrap_or_default()
        )),
        None => Err(failure!(
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
        assert!(
            number(&regex, "Requests/sec: 1.2.3").unwrap_err().to_string().contains("no number")
        );
        assert!(number(&regex, "none").unwrap_err().to_string().contains("finds nothing"));
        assert!(expression("[0-9]+").unwrap_err().to_string().contains("no group"));
        assert!(expression("(").is_err());
    }

    #[test]
    fn work_is_counted_in_the_output_of_known_loads_without_being_told() {
        let wrk = "  4 threads\n  20714 requests in 2.00s, 1.27GB read\nRequests/sec:  10354.99\n";
        let load = Load::new(&format!("cat <<'E'\n{wrk}E"), None).unwrap();
        assert!(!load.counts());
        assert_eq!(load.run().unwrap().1, Some(20714.0));
        assert!(load.counts());
        let load = Load::new("echo done", None).unwrap();
        assert_eq!(load.run().unwrap().1, None);
        assert!(!load.counts());
        let ab = "Concurrency Level:      1\nComplete requests:      100\n";
        assert_eq!(number(&known(ab).unwrap(), ab), Ok(100.0));
        let h2load = "requests: 10 total, 10 started, 10 done, 9 succeeded, 1 failed, 0 errored\n";
        assert_eq!(number(&known(h2load).unwrap(), h2load), Ok(9.0));
    }

    #[test]
    fn a_load_that_fails_is_quoted() {
        let load = |text| Load::new(text, Some("n=([0-9]+)")).unwrap().run();
        assert_eq!(load("echo n=3").unwrap().1, Some(3.0));
        let why = load("echo cannot connect >&2; exit 3").unwrap_err().to_string();
        assert!(why.contains("exit status: 3") && why.contains("cannot connect"), "{why}");
    }
}
