//! A script: connections between two processes, and a list of operations, as text that can be kept
//! and run again.
//!
//! ```text
//! conn 0 ip=4 by=a nodelay=yes
//! a send h=0 len=100 by=write flags=- pieces=1
//! b1 recv h=0 len=10 by=recv flags=waitall pieces=1
//! ```
//!
//! The lines happen one after the other: each begins when what the one before it has caused has
//! come about.

use crate::op::{Actor, Op};
use core::fmt;
use core::str::FromStr;
use uncopy_torture::text::{BadText, commented};

/// Connections at most.
pub const CONNECTIONS: usize = 3;

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// IPv6.
    pub v6: bool,
    /// The side that connects: 0 or 1.
    pub by: usize,
    /// Both ends have TCP_NODELAY.
    pub nodelay: bool,
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The actor.
    pub actor: Actor,
    /// The operation.
    pub op: Op,
}

/// A whole script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The connections: both processes have each as the descriptor of its number.
    pub connections: Vec<Connection>,
    /// The operations.
    pub lines: Vec<Line>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.actor, self.op)
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, c) in self.connections.iter().enumerate() {
            let (ip, by) = (if c.v6 { 6 } else { 4 }, ["a", "b"][c.by]);
            writeln!(f, "conn {i} ip={ip} by={by} nodelay={}", c.nodelay)?;
        }
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl FromStr for Script {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let mut script = Self::default();
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                script
                    .line(line)
                    .map_err(|why| BadText::new(format_args!("line {}: {why}: {line}", i + 1)))?;
            }
        }
        Ok(script)
    }
}

impl Script {
    fn line(&mut self, text: &str) -> Result<(), BadText> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let fields: Vec<_> = words.iter().filter_map(|word| word.split_once('=')).collect();
        if words[0] == "conn" {
            let find = |name: &str| fields.iter().find(|f| f.0 == name).map(|f| f.1);
            let number = words.get(1).and_then(|word| word.parse().ok());
            if number != Some(self.connections.len()) || self.connections.len() == CONNECTIONS {
                return Err("connections are numbered from 0 to 2".into());
            }
            self.connections.push(Connection {
                v6: find("ip") == Some("6"),
                by: usize::from(find("by") == Some("b")),
                nodelay: find("nodelay") != Some("false"),
            });
            return Ok(());
        }
        let actor = words[0].parse().map_err(|_| "a line begins with who carries it out")?;
        let name = words.get(1).ok_or("what?")?;
        self.lines.push(Line { actor, op: Op::parse(name, &fields)? });
        Ok(())
    }

    /// The script with other lines.
    pub fn with_lines(&self, lines: Vec<Line>) -> Self {
        Self { connections: self.connections.clone(), lines }
    }

    /// Writes the script as text, with a comment above.
    pub fn text(&self, comment: &str) -> String {
        commented(self, comment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::generate;

    #[test]
    fn a_script_is_the_same_after_writing_and_reading_it() {
        for seed in 0..200 {
            let script = generate(seed, 60);
            assert_eq!(script.text("a comment\nof two lines").parse::<Script>().unwrap(), script);
        }
    }

    #[test]
    fn an_error_in_a_script_is_named() {
        let wrong = |text: &str| text.parse::<Script>().unwrap_err().to_string();
        assert!(wrong("conn 1 ip=4 by=a").contains("numbered"));
        assert!(wrong("c exit").contains("who"));
        assert!(wrong("a explode").contains("explode"));
        assert!(wrong("a shut h=0").contains("needs how"));
    }
}
