//! The words that a script may speak of. The rest of a seed's script is the same, whichever of them
//! are left out.

use crate::op::{Flags, NONE, Op, Opt, RecvBy};
use crate::script::{Line, Script};
use core::fmt;
use core::str::FromStr;
use uncopy_torture::text::{BadText, UnknownWord};
use uncopy_torture::words;

words! {
    /// A word that can be left out.
    Word {
        /// SIGKILL.
        Kill = "kill",
        /// `shutdown`.
        Shut = "shut",
        /// `close`, and what else ends a descriptor.
        Close = "close",
        /// SO_LINGER with a time of 0.
        Linger = "linger",
        /// MSG_WAITALL.
        Waitall = "waitall",
        /// MSG_PEEK.
        Peek = "peek",
        /// `recvmmsg`.
        Recvmmsg = "recvmmsg",
        /// MSG_MORE, TCP_CORK.
        More = "more",
        /// Urgent data.
        Urgent = "urgent",
        /// More than there is room for.
        Bulk = "bulk",
        /// Sets of epoll.
        Sets = "sets",
        /// Sets in sets, and in poll.
        Nested = "nested",
        /// `fork`, ends of children.
        Fork = "fork",
        /// A child executes a program.
        Exec = "exec",
        /// SCM_RIGHTS.
        Pass = "pass",
        /// Duplicates.
        Dup = "dup",
        /// Signals for a call that waits.
        Signal = "signal",
    }
}

/// Words that are left out.
#[derive(Clone, Debug, Default)]
pub struct Without(Vec<Word>);

impl FromStr for Without {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let words = text.split(',').filter(|word| !word.is_empty());
        let words: Result<Vec<Word>, UnknownWord> = words.map(str::parse).collect();
        let all = Word::ALL.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        words.map(Self).map_err(|_| BadText::new(format_args!("{text} is not of {all}")))
    }
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&words.join(","))
    }
}

impl Without {
    fn has(&self, word: Word) -> bool {
        self.0.contains(&word)
    }

    /// Leaves them out of a script.
    pub fn of(&self, mut script: Script) -> Script {
        script.lines.retain_mut(|line| self.leaves(line));
        script
    }

    /// The line stays, perhaps changed.
    fn leaves(&self, line: &mut Line) -> bool {
        let mut drop = Flags::default();
        for (word, flag) in [
            (Word::Waitall, Flags::WAITALL),
            (Word::Peek, Flags::PEEK),
            (Word::More, Flags::MORE),
            (Word::Urgent, Flags::OOB),
        ] {
            if self.has(word) {
                drop |= flag;
            }
        }
        if let Op::Send { flags, .. } | Op::Recv { flags, .. } = &mut line.op {
            flags.0 &= !drop.0;
        }
        if let Op::Poll { set, .. } = &mut line.op
            && (self.has(Word::Sets) || self.has(Word::Nested))
        {
            *set = NONE;
        }
        let word = match line.op {
            Op::Recv { by: RecvBy::Recvmmsg, .. } => Word::Recvmmsg,
            Op::Stream { .. } => Word::Bulk,
            Op::Shut { .. } => Word::Shut,
            Op::Close { .. } | Op::CloseFrom {} => Word::Close,
            Op::Dup { .. } => Word::Dup,
            Op::Set { what: Opt::Linger, .. } => Word::Linger,
            Op::Set { what: Opt::Cork, .. } => Word::More,
            Op::Set { what: Opt::Inline, .. } => Word::Urgent,
            Op::NewSet { .. } | Op::EndSet { .. } | Op::Control { .. } | Op::Wait { .. } => {
                Word::Sets
            }
            Op::Nest { .. } if self.has(Word::Sets) => return false,
            Op::Nest { .. } => Word::Nested,
            Op::Exec {} if self.has(Word::Fork) => return false,
            Op::Exec {} => Word::Exec,
            Op::Fork {} | Op::Exit {} => Word::Fork,
            Op::Kill {} => Word::Kill,
            Op::Pass { .. } => Word::Pass,
            Op::Signal { .. } => Word::Signal,
            _ => return true,
        };
        !self.has(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::generate;

    #[test]
    fn words_that_are_left_out_are_not_there_and_the_rest_is_as_it_was() {
        let without: Without = "kill,waitall".parse().unwrap();
        for seed in 0..100 {
            let whole = generate(seed, 60);
            let part = without.of(whole.clone());
            let text = part.to_string();
            assert!(!text.contains("kill") && !text.contains("waitall"), "{text}");
            let kills = whole.lines.iter().filter(|line| line.op == Op::Kill {}).count();
            assert_eq!(part.lines.len() + kills, whole.lines.len());
        }
        assert!("kil".parse::<Without>().unwrap_err().to_string().contains("kill"));
    }
}
