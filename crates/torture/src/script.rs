//! A script: buffers, threads, and a list of operations, as text that can be kept and run again.
//!
//! ```text
//! threads 2
//! signals yes
//! slot 0 dynamic
//! slot 1 bss 4099 300000
//! t0 alloc slot=0 size=200000 by=malloc
//! t1 fresh write slot=1 at=0 len=10 by=stores key=7
//! t0 fork child=1
//! t0 in=1 read slot=1 at=0 len=100
//! ```
//!
//! Operations on the same buffer happen in the order of the lines, whichever threads carry them
//! out; others at the same time as far as the threads' own orders permit. A child has all to
//! itself.

use crate::op::{Op, Slot};
use crate::text::{BadText, UnknownWord, commented};
use core::fmt;
use core::str::FromStr;

/// Where a buffer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Wherever operations put it: heap block or mapping; nowhere at first.
    Dynamic,
    /// In a static array that begins as zeros.
    Bss,
    /// In a static array that begins otherwise (it is mapped from the program's file).
    Data,
    /// In an array on the stack of this thread.
    Stack(usize),
    /// In a block of memory that the program mapped and divides among such buffers.
    Arena,
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dynamic => f.write_str("dynamic"),
            Self::Bss => f.write_str("bss"),
            Self::Data => f.write_str("data"),
            Self::Stack(thread) => write!(f, "stack{thread}"),
            Self::Arena => f.write_str("arena"),
        }
    }
}

impl FromStr for Storage {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        Ok(match text {
            "dynamic" => Self::Dynamic,
            "bss" => Self::Bss,
            "data" => Self::Data,
            "arena" => Self::Arena,
            _ => {
                let number = text.strip_prefix("stack").and_then(|n| n.parse().ok());
                Self::Stack(number.ok_or(UnknownWord)?)
            }
        })
    }
}

/// Bytes in the static array of zeros, in the stack array of each thread, and so on: a slot that
/// does not fit is a mistake in the script.
pub const fn room(place: Storage) -> usize {
    match place {
        Storage::Dynamic => 0,
        Storage::Bss | Storage::Arena => 4 << 20,
        Storage::Data => 512 << 10,
        Storage::Stack(_) => 512 << 10,
    }
}

/// A buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Where it lives.
    pub place: Storage,
    /// Offset of its first byte there.
    pub start: usize,
    /// Its length; dynamic ones have none.
    pub len: usize,
}

/// One line: an operation, and who carries it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The thread.
    pub thread: usize,
    /// The child that carries it out, if it is not the program itself.
    pub child: Option<usize>,
    /// In a thread of its own, which ends afterwards.
    pub fresh: bool,
    /// The operation.
    pub op: Op,
}

/// A whole script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// How many threads.
    pub threads: usize,
    /// Whether a timer interrupts them all the time.
    pub signals: bool,
    /// The buffers.
    pub slots: Vec<Buffer>,
    /// The operations.
    pub lines: Vec<Line>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{} ", self.thread)?;
        if let Some(child) = self.child {
            write!(f, "in={child} ")?;
        }
        if self.fresh {
            f.write_str("fresh ")?;
        }
        self.op.fmt(f)
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "threads {}", self.threads)?;
        writeln!(f, "signals {}", if self.signals { "yes" } else { "no" })?;
        for (i, b) in self.slots.iter().enumerate() {
            match b.place {
                Storage::Dynamic => writeln!(f, "slot {i} dynamic")?,
                place => writeln!(f, "slot {i} {place} {} {}", b.start, b.len)?,
            }
        }
        self.lines.iter().try_for_each(|l| writeln!(f, "{l}"))
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
        script.check().map(|()| script)
    }
}

impl Script {
    fn line(&mut self, text: &str) -> Result<(), BadText> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let number = |at: usize| {
            let word = words.get(at).ok_or(BadText::from("something is missing"))?;
            let number = word.parse::<usize>();
            number.map_err(|_| BadText::new(format_args!("{word} is not a number")))
        };
        match words[0] {
            "threads" => self.threads = number(1)?,
            "signals" => self.signals = words.get(1) == Some(&"yes"),
            "slot" => {
                if number(1)? != self.slots.len() {
                    return Err("slots are numbered from 0".into());
                }
                let place = words.get(2).and_then(|w| w.parse().ok()).ok_or("where?")?;
                let fixed = place != Storage::Dynamic;
                let (start, len) = if fixed { (number(3)?, number(4)?) } else { (0, 0) };
                self.slots.push(Buffer { place, start, len });
            }
            word => {
                let thread = word.strip_prefix('t').and_then(|n| n.parse().ok());
                let thread = thread.ok_or("a line begins with its thread")?;
                let mut rest = &words[1..];
                let mut child = None;
                if let Some(n) = rest.first().and_then(|w| w.strip_prefix("in=")) {
                    child = Some(n.parse().map_err(|_| "which child?")?);
                    rest = &rest[1..];
                }
                let fresh = rest.first() == Some(&"fresh");
                rest = &rest[usize::from(fresh)..];
                let (name, fields) = rest.split_first().ok_or("what?")?;
                let fields: Vec<_> = fields.iter().filter_map(|f| f.split_once('=')).collect();
                self.lines.push(Line { thread, child, fresh, op: Op::parse(name, &fields)? });
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), BadText> {
        for (i, b) in self.slots.iter().enumerate() {
            let owned = !matches!(b.place, Storage::Stack(t) if t >= self.threads);
            if b.start + b.len > room(b.place) || !owned {
                return Err(BadText::new(format_args!("slot {i} does not fit")));
            }
        }
        for l in &self.lines {
            if l.thread >= self.threads || l.op.slots().any(|s| s >= self.slots.len()) {
                return Err(BadText::new(format_args!("there is no such thread or slot: {l}")));
            }
        }
        Ok(())
    }

    /// The lines that `child`, or a child of its, carries out.
    pub fn lines_of_child(&self, child: usize) -> Vec<usize> {
        let mut children = vec![child];
        let mut lines = Vec::new();
        for (i, l) in self.lines.iter().enumerate() {
            if l.child.is_some_and(|c| children.contains(&c)) {
                lines.push(i);
                if let Op::Fork { child } = l.op {
                    children.push(child);
                }
            }
        }
        lines
    }

    /// The buffers that a child has: those which its lines use.
    pub fn slots_of_child(&self, child: usize) -> Vec<Slot> {
        let mut slots: Vec<Slot> =
            self.lines_of_child(child).into_iter().flat_map(|i| self.lines[i].op.slots()).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// For every line of the program itself, the buffers it uses, each with how many lines use it
    /// before. A fork uses the buffers that its child has.
    pub fn turns(&self) -> Vec<Vec<(Slot, usize)>> {
        let mut next = vec![0; self.slots.len()];
        let mut turn = |slots: Vec<Slot>| -> Vec<(Slot, usize)> {
            slots
                .into_iter()
                .map(|s| {
                    next[s] += 1;
                    (s, next[s] - 1)
                })
                .collect()
        };
        self.lines
            .iter()
            .map(|l| match l.op {
                _ if l.child.is_some() => Vec::new(),
                Op::Fork { child } => turn(self.slots_of_child(child)),
                op => turn(op.slots().collect()),
            })
            .collect()
    }

    /// The script with other lines.
    pub fn with_lines(&self, lines: Vec<Line>) -> Self {
        Self { threads: self.threads, signals: self.signals, slots: self.slots.clone(), lines }
    }

    /// Writes the script as text, with a comment above.
    pub fn text(&self, comment: &str) -> String {
        commented(self, comment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Profile, generate};

    #[test]
    fn a_script_is_the_same_after_writing_and_reading_it() {
        for (seed, profile) in [(1, Profile::default()), (2, Profile::default().with_forks())] {
            let script = generate(seed, &profile);
            assert_eq!(script.text("a comment\nof two lines").parse::<Script>().unwrap(), script);
        }
    }

    #[test]
    fn an_error_in_a_script_is_named() {
        let wrong = |text: &str| text.parse::<Script>().unwrap_err().to_string();
        assert!(wrong("threads 1\nt0 read slot=0 at=0 len=1").contains("no such thread or slot"));
        assert!(wrong("threads 1\nslot 0 bss 1 99999999").contains("does not fit"));
        assert!(wrong("threads 1\nslot 0 dynamic\nt0 free").contains("needs slot"));
        assert!(wrong("threads 1\nt0 explode").contains("explode"));
    }

    #[test]
    fn a_fork_waits_for_the_buffers_of_its_child() {
        let script: Script = "threads 2\nslot 0 dynamic\nslot 1 dynamic\nslot 2 dynamic\n\
            t0 free slot=0\nt1 free slot=1\nt1 fork child=5\nt1 in=5 free slot=0\n\
            t1 in=5 fork child=6\nt1 in=6 free slot=2\nt0 free slot=2"
            .parse()
            .unwrap();
        assert_eq!(script.slots_of_child(5), [0, 2]);
        let turns = script.turns();
        assert_eq!(turns[2], [(0, 1), (2, 0)]);
        assert!(turns[3].is_empty() && turns[5].is_empty());
        assert_eq!(turns[6], [(2, 1)]);
    }
}
