//! Faults on demand, for tests: which calls can be made to fail, with what, and how a test says so.
//!
//! `UNCOPY_INJECT=RULE,RULE,...`, each `CALL[:ERROR[+ERROR...]][:N/M]` or `seed=N`. Without errors
//! a rule means all that the call can give; without a rate, always. `all` is every call, each with
//! what it can give of the errors named. Where several rules name a call the last one holds.
//!
//! ```text
//! UNCOPY_INJECT=move:EBUSY:1/10,copy:EAGAIN+short:1/20,extent:1/7,seed=42
//! UNCOPY_INJECT=all:1/50
//! ```
//!
//! `stop@POINT[:N]` is another rule: the process stops itself (SIGSTOP) when it comes to that
//! [`Point`] for the Nth time, so that a test can kill it, or another one, just there.
#![forbid(unsafe_code)]

macro_rules! calls {
    ($( $(#[$doc:meta])* $name:ident $text:literal $([$patient:ident])? : $($error:ident)*; )*) => {
        /// A call that can be made to fail.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Call { $( $(#[$doc])* $name, )* }

        /// All of them.
        pub const CALLS: &[Entry] = &[ $( Entry {
            call: Call::$name,
            name: $text,
            errors: 0 $( | 1 << Error::$error as u16 )*,
            patient: calls!(@patient $($patient)?),
        }, )* ];
    };
    (@patient) => { false };
    (@patient patient) => { true };
}

/// A line of the table of calls.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The call.
    pub call: Call,
    /// Its name in a rule.
    pub name: &'static str,
    /// The answers that the kernel can give: a bit for each [`Error`].
    pub errors: u16,
    /// There is nothing else to be done than to call again: a failure for ever cannot be survived,
    /// so it is not injected for ever.
    pub patient: bool,
}

macro_rules! errors {
    ($( $name:ident $text:literal $errno:literal )*) => {
        /// An answer that a call can be made to give.
        #[allow(missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Error { $( $name, )* }

        /// All of them, their names, and their numbers (Linux; 0 for `short`).
        pub const ERRORS: &[(Error, &str, i32)] = &[ $( (Error::$name, $text, $errno), )* ];
    };
}

errors! {
    Short "short" 0
    Perm "EPERM" 1
    NoEnt "ENOENT" 2
    Intr "EINTR" 4
    Io "EIO" 5
    Again "EAGAIN" 11
    NoMem "ENOMEM" 12
    Acces "EACCES" 13
    Busy "EBUSY" 16
    Exist "EEXIST" 17
    Inval "EINVAL" 22
    MFile "EMFILE" 24
    FBig "EFBIG" 27
    NoSpc "ENOSPC" 28
    NoSys "ENOSYS" 38
    DQuot "EDQUOT" 122
}

impl Error {
    /// Its number.
    pub const fn errno(self) -> i32 {
        ERRORS[self as usize].2
    }
}

// EPERM and ENOSYS are what a sandbox answers; the others what the call itself can.
calls! {
    /// Opening `/dev/userfaultfd`.
    Device "device": Perm Acces NoEnt MFile NoMem NoSys;
    /// `userfaultfd(2)`, or the same by the device.
    Userfaultfd "userfaultfd": Perm NoMem MFile NoSys;
    /// `UFFDIO_API`.
    Api "api": Inval Perm NoSys;
    /// `UFFDIO_REGISTER`.
    Register "register": NoMem Busy Inval Perm NoSys;
    /// `UFFDIO_UNREGISTER`.
    Unregister "unregister": NoMem Inval Perm NoSys;
    /// `UFFDIO_MOVE` out of the program's memory.
    Move "move": Busy Again Exist Inval NoMem Perm NoSys Short;
    /// `UFFDIO_MOVE` into the program's memory, where `copy` or `zeropage` was refused.
    MoveIn "move_in": Busy Again NoMem Perm NoSys;
    /// `UFFDIO_COPY`; EEXIST comes after the copy, as if another thread had been faster.
    Copy "copy": Again NoMem Exist Perm NoSys Short;
    /// `UFFDIO_ZEROPAGE`; EEXIST as for `copy`.
    Zeropage "zeropage": Again NoMem Exist Perm NoSys;
    /// `UFFDIO_WAKE`.
    Wake "wake" [patient]: Perm NoSys;
    /// The question whether the memory map is changing (an empty `UFFDIO_ZEROPAGE`).
    Probe "probe" [patient]: Again Perm NoSys;
    /// Reading reports.
    Read "read" [patient]: Again Intr NoMem Perm Short;
    /// Waiting for reports.
    Poll "poll" [patient]: Intr NoMem Perm NoSys;
    /// Mapping the pool and other memory of ours.
    Mmap "mmap": NoMem Perm NoSys;
    /// Mapping memory for the books.
    Heap "heap": NoMem Perm NoSys;
    /// Unmapping ours.
    Munmap "munmap": NoMem Perm NoSys;
    /// Making trampolines executable, and the text that leads to them writable.
    Mprotect "mprotect": Acces NoMem Perm NoSys;
    /// `madvise` on ours.
    Madvise "madvise": NoMem Again Inval Perm NoSys;
    /// `mremap` and `munmap` of the program's memory in pieces.
    Mremap "mremap": NoMem Perm NoSys;
    /// Making the monitor thread.
    Thread "thread": Again NoMem Perm;
    /// `close_range` in the monitor's own table.
    CloseRange "close_range": NoMem MFile Perm NoSys;
    /// `fcntl(F_DUPFD_CLOEXEC)`.
    Dup "dup": MFile NoMem Perm NoSys;
    /// Opening a file of `/proc`.
    Open "open" [patient]: NoEnt Acces MFile NoMem Perm NoSys;
    /// `fstat`.
    Fstat "fstat": NoMem Perm NoSys;
    /// `process_vm_readv` of our own memory.
    Peek "peek": NoMem Perm NoSys;
    /// `process_vm_writev` to our own memory.
    Poke "poke": NoMem Perm NoSys Short;
    /// Waiting on a futex.
    Futex "futex" [patient]: Intr Again;
    /// `clock_gettime` of the processor time.
    Clock "clock": Perm NoSys;
    /// `sched_setaffinity` of the monitor thread.
    Affinity "affinity": Inval Perm NoSys;
    /// `rt_tgsigqueueinfo`.
    Sigqueue "sigqueue": Again Perm NoSys;
    /// `pipe2`, or opening one of ours anew.
    Pipe "pipe": MFile NoMem Perm NoSys;
    /// `fcntl(F_SETPIPE_SZ)`.
    PipeSize "pipe_size": Perm Busy NoMem;
    /// `vmsplice`, and writing beside it, into a pipe of ours.
    Vmsplice "vmsplice": Again NoMem Perm NoSys Short;
    /// `splice` from it to the program's socket. (EAGAIN or EINTR would be a lie about the socket.)
    Splice "splice": NoMem Inval Perm NoSys;
    /// Opening a file again to keep it.
    Reopen "reopen": Acces NoEnt MFile NoMem Perm NoSys;
    /// `fcntl` that says who hears of a lease, and takes it.
    Lease "lease": Again Acces Inval NoMem Perm NoSys;
    /// `fcntl` that looks whether a lease still holds.
    LeaseHeld "lease_held": NoMem Perm NoSys;
    /// Waiting to hear of leases.
    Hear "hear" [patient]: Again Intr Perm NoSys;
    /// Reading a file to keep it.
    Refill "refill": NoMem Perm NoSys Short;
    /// Moving a file's position past what was not read.
    Seek "seek": Perm NoSys;
    /// `process_vm_readv` of our own memory into the program's buffer.
    Deliver "deliver": NoMem Perm NoSys Short;
    /// Opening or making a file of the log's.
    LogOpen "log_open": Acces NoEnt MFile NoMem NoSpc Perm NoSys;
    /// Writing zeros to a new log file.
    LogZeros "log_zeros": Io NoSpc DQuot FBig NoMem Short;
    /// Writing records to the log, durably.
    LogFlush "log_flush": Io NoSpc NoMem Short;
    /// Reading the log.
    LogRead "log_read": Io NoMem Short;
    /// Room for held bytes: `fallocate` of the log's memory, and mapping it.
    LogMemory "log_memory": NoSpc NoMem Perm NoSys;
    /// Room in the file for bytes that are held: `fallocate`.
    LogReserve "log_reserve": NoSpc DQuot FBig Io NoSys;
    /// `fcntl(F_SETFL)` with O_DIRECT, before bytes are written home.
    LogDirect "log_direct": Inval NoMem Perm;
    /// Writing held bytes to their file.
    LogHome "log_home": Io NoSpc DQuot NoMem Short;
    /// `fdatasync` of a file whose bytes have come home.
    LogSync "log_sync": Io NoSpc DQuot;
    /// Giving back what was reserved in a file: `ftruncate` to its own length.
    LogTrim "log_trim": Io Perm;
    /// Not a call: room for an extent.
    Extent "extent": NoMem;
}

macro_rules! points {
    ($( $(#[$doc:meta])* $name:ident $text:literal; )*) => {
        /// A place between two steps, after which a process may die.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Point { $( $(#[$doc])* $name, )* }

        /// All of them, and their names.
        pub const POINTS: &[(Point, &str)] = &[ $( (Point::$name, $text), )* ];
    };
}

// Of a program that has a log, then of what either process does, then of the service.
points! {
    /// Bytes are in the ring, and nobody knows yet that they are.
    Filled "filled";
    /// They are appended; the file's position has not moved.
    Appended "appended";
    /// There is room in the file for more; nobody knows yet.
    Reserved "reserved";
    /// It was said that bytes may be in the log.
    Logging "logging";
    /// A flush of the log is durable; nobody knows yet.
    Logged "logged";
    /// A sync is about to return early: its file is said to be logged, and it has no number.
    Promised "promised";
    /// What syncs that returned early have promised is about to become durable.
    Flushing "flushing";
    /// It is durable, and nothing that waited for it has left.
    Flushed "flushed";
    /// A message that waited has left; others have not.
    Sent "sent";
    /// A superblock with a heartbeat was written.
    Beaten "beaten";
    /// The kernel has synced a held file; the words do not say so.
    Synced "synced";
    /// The service was asked to make a file plain.
    Left "left";
    /// The service has said that a file is held; it is not yet in this process.
    Granted "granted";
    /// O_DIRECT is set on a program's description.
    Direct "direct";
    /// A part of what comes home is written.
    HomePart "home-part";
    /// All of it is written; the words do not say so.
    HomeWritten "home-written";
    /// The words say so.
    HomeSaid "home-said";
    /// Room behind the end was given back.
    Trimmed "trimmed";
    /// The kernel has the file's position; the entry has it, too.
    Positioned "positioned";
    /// A lease was taken, of which the entry does not know.
    Leased "leased";
    /// The entry knows; the program does not.
    Held "held";
    /// Nothing is appended any more.
    Closed "closed";
    /// All is home, and durable if it must be.
    Settled "settled";
    /// It is durable that all is home.
    Struck "struck";
    /// The lease is given up; the entry does not say so.
    GivenUp "given-up";
    /// A log has begun a new epoch; its program does not have it.
    Begun "begun";
}

/// A process stops at this point when it comes there for the nth time.
pub type Stop = (Point, u32);

/// How often a call fails, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// This often ...
    pub times: u32,
    /// ... of so many.
    pub of: u32,
    /// A bit for each [`Error`], of which one is drawn.
    pub errors: u16,
}

/// The failures that a test asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// For each of [`CALLS`].
    pub rules: [Rule; CALLS.len()],
    /// Other seeds, other draws.
    pub seed: u64,
    /// Where the process stops.
    pub stop: Option<Stop>,
}

impl Plan {
    /// Reads the value of `UNCOPY_INJECT`.
    ///
    /// # Errors
    /// The part that is not understood, and why.
    pub fn parse(text: &str) -> Result<Self, (&str, &'static str)> {
        let mut plan = Self { rules: [Rule::default(); CALLS.len()], seed: 1, stop: None };
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            plan.add(part).map_err(|why| (part, why))?;
        }
        Ok(plan)
    }

    fn add(&mut self, part: &str) -> Result<(), &'static str> {
        if let Some(seed) = part.strip_prefix("seed=") {
            self.seed = seed.parse().map_err(|_| "the seed is not a number")?;
            return Ok(());
        }
        if let Some(stop) = part.strip_prefix("stop@") {
            let (name, times) = stop.split_once(':').unwrap_or((stop, "1"));
            let point = POINTS.iter().find(|point| point.1 == name).ok_or("no such point")?.0;
            let times = times.parse().ok().filter(|times| *times > 0);
            self.stop =
                Some((point, times.ok_or("how often it comes there is a number from 1 on")?));
            return Ok(());
        }
        let mut words = part.split(':');
        let name = words.next().unwrap_or_default();
        let mut rule = Rule { times: 1, of: 1, errors: 0 };
        for word in words {
            match word.split_once('/') {
                Some((n, m)) => {
                    let number = |t: &str| t.parse().map_err(|_| "a rate is two numbers, as 1/10");
                    (rule.times, rule.of) = (number(n)?, number(m)?);
                    if rule.times > rule.of || rule.of == 0 {
                        return Err("a rate is at most 1/1");
                    }
                }
                None => {
                    for error in word.split('+') {
                        let known = ERRORS.iter().find(|e| e.1 == error);
                        rule.errors |= 1 << known.ok_or("no such error")?.0 as u16;
                    }
                }
            }
        }
        let mut found = false;
        for entry in CALLS.iter().filter(|e| e.name == name || name == "all") {
            let wanted = if rule.errors == 0 { entry.errors } else { rule.errors };
            let errors = wanted & entry.errors;
            if name != "all" && errors != wanted {
                return Err("the call cannot answer that");
            }
            self.rules[entry.call as usize] = Rule { errors, ..rule };
            found = true;
        }
        if found { Ok(()) } else { Err("no such call") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_in_the_order_of_their_enums() {
        assert!(CALLS.iter().enumerate().all(|(i, e)| e.call as usize == i && e.errors != 0));
        assert!(ERRORS.iter().enumerate().all(|(i, e)| e.0 as usize == i));
        assert!(POINTS.iter().enumerate().all(|(i, e)| e.0 as usize == i));
        assert_eq!(Error::NoSys.errno(), 38);
    }

    #[test]
    fn rules_name_calls_errors_and_rates() {
        let plan = Plan::parse("move:EBUSY+short:1/10, extent,seed=42").unwrap();
        let busy = 1 << Error::Busy as u16 | 1 << Error::Short as u16;
        assert_eq!(plan.rules[Call::Move as usize], Rule { times: 1, of: 10, errors: busy });
        assert_eq!(plan.rules[Call::Extent as usize].of, 1);
        assert_eq!((plan.rules[Call::Copy as usize].times, plan.seed), (0, 42));
    }

    #[test]
    fn a_point_is_where_a_process_stops() {
        assert_eq!(Plan::parse("seed=3").unwrap().stop, None);
        assert_eq!(Plan::parse("stop@home-said").unwrap().stop, Some((Point::HomeSaid, 1)));
        assert_eq!(Plan::parse("stop@filled:7").unwrap().stop, Some((Point::Filled, 7)));
    }

    #[test]
    fn all_means_every_call_with_what_it_can_answer() {
        let plan = Plan::parse("all:ENOMEM:1/50,copy:0/1").unwrap();
        assert_eq!(plan.rules[Call::Wake as usize].errors, 0);
        assert_eq!(plan.rules[Call::Mmap as usize].errors, 1 << Error::NoMem as u16);
        assert_eq!(plan.rules[Call::Copy as usize].times, 0);
        let plan = Plan::parse("all").unwrap();
        assert!(CALLS.iter().all(|e| plan.rules[e.call as usize].errors == e.errors));
    }

    #[test]
    fn nonsense_is_named() {
        for (text, part) in [
            ("move:1/10,mvoe:1/10", "mvoe:1/10"),
            ("move:EBSUY", "move:EBSUY"),
            ("wake:EAGAIN", "wake:EAGAIN"),
            ("move:3/2", "move:3/2"),
            ("move:x/2", "move:x/2"),
            ("seed=x", "seed=x"),
            ("stop@nowhere", "stop@nowhere"),
            ("stop@held:0", "stop@held:0"),
        ] {
            assert_eq!(Plan::parse(text).unwrap_err().0, part);
        }
    }
}
