//! Why the syncs of a process do not return early although it was asked for: they are as ever.

macro_rules! reasons {
    ($( $name:ident $number:literal $text:literal $means:literal; )*) => {
        /// See the module.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum AsEver { $( #[doc = $means] $name = $number, )* }

        impl AsEver {
            /// All of them, in the order of their numbers, which begin at 1.
            pub const ALL: &[Self] = &[ $( Self::$name, )* ];

            /// Its name, for people and for programs.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $( Self::$name => $text, )* }
            }

            /// Its meaning.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $( Self::$name => $means, )* }
            }

            /// The one of this number.
            #[must_use]
            pub fn of(number: u32) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| *reason as u32 == number)
            }
        }
    };
}

reasons! {
    PastUs 1 "answers-past-us" "The process makes system calls that go past libc, or past its \
        thread's: io_uring, asynchronous requests, code with system calls of its own, descriptors \
        or namespaces of a thread's own, what is executed without libc's functions.";
    Mapped 2 "answers-mapped" "The process shares memory that it can write to: a shared \
        mapping, or System V shared memory.";
    Lent 3 "answers-lent" "The process lends its memory (vmsplice, MSG_ZEROCOPY, \
        userfaultfd, requests to devices): what it does there later is seen without a call.";
    Code 4 "answers-code" "The process makes code at run time, or its code may not be changed.";
    Sandbox 5 "answers-sandbox" "The process filters its system calls.";
    Tcp 6 "answers-tcp" "Its connections go past Linux (--tcp).";
    Forked 7 "answers-forked" "It is a child that has executed nothing yet.";
    Rights 8 "answers-rights" "The process has changed its user or its rights after its \
        first sync.";
    NoThread 9 "answers-no-thread" "There was no room for another thread.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_numbered_in_order_and_documented() {
        let page = include_str!("../../../../docs/inside/log.md");
        for (i, reason) in AsEver::ALL.iter().enumerate() {
            assert_eq!((*reason as usize, AsEver::of(*reason as u32)), (i + 1, Some(*reason)));
            let row = format!("| `{}` | {} |", reason.name(), reason.text());
            assert!(page.contains(&row), "docs/inside/log.md lacks: {row}");
        }
        assert_eq!(AsEver::of(0), None);
    }
}
