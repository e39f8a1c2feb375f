//! Why a file is not held: its calls are the kernel's.

macro_rules! reasons {
    ($( $name:ident $number:literal $text:literal $means:literal; )*) => {
        /// See the module.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u64)]
        pub enum PlainReason { $( #[doc = $means] $name = $number, )* }

        impl PlainReason {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[ $( Self::$name, )* ];

            /// Its name, for people and for programs.
            pub fn name(self) -> &'static str {
                match self { $( Self::$name => $text, )* }
            }

            /// The meaning of the reason.
            pub fn text(self) -> &'static str {
                match self { $( Self::$name => $means, )* }
            }

            /// The one of this number.
            pub fn of(number: u64) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| *reason as u64 == number)
            }
        }
    };
}

reasons! {
    NotRegular 1 "not-regular" "It is no regular file.";
    OtherFileSystem 2 "other-file-system" "It lies on another file system than the log.";
    NotNamed 3 "not-named" "No pattern of --log-files names it.";
    Mode 4 "mode" "It was opened with O_DIRECT, O_SYNC or O_DSYNC, or not for writing.";
    OpenElsewhere 5 "open-elsewhere" "Somebody else has it open, so that the kernel grants no lease.";
    NotOurs 6 "not-ours" "It is another user's, so that the kernel grants no lease.";
    NoLease 7 "no-lease" "The file system has no leases, or this kernel has none.";
    Shared 8 "shared" "Another process has the same description, by fork, exec or a message.";
    NoRoom 9 "no-room" "As many files are held as there is room for.";
    NoMemory 10 "no-memory" "There is no room in /dev/shm.";
    NoReserve 11 "no-reserve" "The file system reserves no room for a file, or has none.";
    Limit 12 "limit" "The program's limit of a file's size (RLIMIT_FSIZE) is near.";
    NoService 13 "no-service" "There is no service, or it does not answer.";
    NotAppended 14 "not-appended" "The program does with it what is no append: reads, overwrites, \
        maps, truncates.";
    OpenedLater 15 "opened-later" "Somebody else opened it while it was held; it is tried again later.";
    NoGain 16 "no-gain" "Its syncs were not faster by the log.";
    NoLog 17 "no-log" "The program has no log: it is being made, or there is no room for one.";
    Failed 18 "failed" "Its bytes could not be brought home, or the log could not be written.";
    PastUs 19 "past-us" "The process uses io_uring or asynchronous requests, which go past the library.";
    Ends 20 "ends" "It was closed, or the program or the service has ended.";
    Moved 21 "moved" "It was renamed into another directory; it is tried again later.";
    Busy 22 "busy" "Calls on it were under way all the time; it is tried again later.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_numbered_in_order_and_documented() {
        let page = include_str!("../../../../docs/inside/log.md");
        for (i, reason) in PlainReason::ALL.iter().enumerate() {
            assert_eq!((*reason as usize, PlainReason::of(*reason as u64)), (i + 1, Some(*reason)));
            let row = format!("| `{}` | {} |", reason.name(), reason.text());
            assert!(page.contains(&row), "docs/inside/log.md lacks: {row}");
        }
        assert_eq!(PlainReason::of(0), None);
    }
}
