//! A system call of the program's, before it is made: the kernel makes it now, or later, or its
//! bytes go into a queue.
//!
//! unsafe: calls of the program's.

use crate::bytes::{buffers, copied, length};
use crate::calls::{Meaning, Sends, clones, meaning};
use crate::outputs::{MOST, Outputs, Settings, the};
use crate::{gate, sockets};
use core::sync::atomic::Ordering::SeqCst;
use uncopy_gate::{Call, Verdict};
use uncopy_kernel::call::syscall6;
use uncopy_kernel::{critical, thread, user_access};
use uncopy_log_book::answers::Leaves;
use uncopy_log_book::as_ever::AsEver;

/// From so many bytes on it is looked whether they fit before they are copied.
const MUCH: usize = 16 << 10;

impl Outputs {
    /// From now on syncs may return early. Once in a process, before the program runs.
    ///
    /// # Errors
    /// Something leaves this process that cannot be seen.
    pub fn begin(settings: Settings) -> Result<&'static Self, AsEver> {
        gate::install(judge)?;
        Ok(Self::made(settings))
    }
}

fn judge(call: &Call) -> Verdict {
    match the() {
        // (Calls of our own code are not the program's.)
        Some(outputs) if !thread::is_ours() && !critical::inside() => outputs.judges(call),
        _ => Verdict::GoOn,
    }
}

impl Outputs {
    fn judges(&'static self, call: &Call) -> Verdict {
        // (The kernel looks at no more of it.)
        let number = call.number & 0xffff_ffff;
        let meaning = match meaning(number, &call.args) {
            Meaning::Stays => return Verdict::GoOn,
            // (Flags that cannot be read are the kernel's to refuse.)
            Meaning::Clones(at) => {
                user_access::read(at as *const u64).map_or(Meaning::Leaves, clones)
            }
            meaning => meaning,
        };
        if self.lets_through(number as i64) {
            return Verdict::GoOn;
        }
        match meaning {
            Meaning::Stays => {}
            Meaning::Sends(fd, what) if self.is_busy() => return self.sends(fd, what),
            Meaning::Sends(..) => {}
            Meaning::Receives(fd) => {
                if self.is_busy() && !sockets::is_internet(fd) {
                    self.wait_for_all();
                }
            }
            Meaning::ReadsAt(fd) if self.is_busy() => self.reads_at(fd),
            Meaning::ReadsAt(_) => {}
            Meaning::Asks(fd) => self.wait_for_asking(fd),
            Meaning::AsksBy(fd, path) => match user_access::read(path as *const u8) {
                Some(0) => self.wait_for_asking(fd),
                _ => self.wait_for_all(),
            },
            Meaning::Requests(fd) => self.requests(fd),
            Meaning::Leaves => self.wait_for_all(),
            Meaning::Shares(fd) => {
                if sockets::is_for_writing(fd) {
                    self.off(AsEver::Mapped);
                }
                return self.maps_of(fd, call);
            }
            Meaning::Maps => return self.maps_of(call.args[4], call),
            Meaning::Loads => return Verdict::Made(self.loads(call)),
            Meaning::Unmaps(at, length) => return self.unmaps(call, at, length),
            Meaning::Moves(at, length, to) => return self.moves(call, at, length, to),
            Meaning::Executes => self.executes(),
            Meaning::Wraps => {
                self.wraps.store(true, SeqCst);
                self.wait_for_all();
            }
            Meaning::Rights => self.rights(),
            Meaning::EndsThread => self.thread_ends(),
            Meaning::Ends => self.ends(),
            Meaning::Forks => self.forks(),
            Meaning::Off(reason) => self.off(reason),
            Meaning::OwnOff(reason) if self.is_own() => self.off(reason),
            Meaning::OwnOff(_) => self.wait_for_all(),
            Meaning::Clones(_) => self.wait_for_all(),
        }
        Verdict::GoOn
    }

    /// Bytes are about to leave by `fd` while something waits.
    fn sends(&'static self, fd: u64, what: Sends) -> Verdict {
        let waits = || {
            self.wait_for_all();
            Verdict::GoOn
        };
        if !self.is_early() || self.wraps.load(SeqCst) || !self.is_own() {
            return waits();
        }
        // (A stream that is not open has an error of the kernel's: the call asks for it.)
        let Some(cookie) = sockets::cookie(fd).filter(|_| sockets::is_open(fd)) else {
            return waits();
        };
        let Some(buffers) = buffers(what) else { return waits() };
        let Some(bytes) = length(&buffers).filter(|n| (1..=MOST).contains(n)) else {
            return waits();
        };
        // (Many bytes that do not fit are not copied.)
        if bytes >= MUCH && !sockets::has_room(fd, bytes) {
            return waits();
        }
        let Some(copy) = copied(&buffers, bytes) else { return waits() };
        let leaves = match self.queues(fd, cookie, &copy, false) {
            None if sockets::is_stream(fd) => self.queues(fd, cookie, &copy, true),
            leaves => leaves,
        };
        match leaves.unwrap_or(Leaves::Never) {
            Leaves::Now => Verdict::GoOn,
            Leaves::Queued => {
                self.works();
                Verdict::Made(bytes as i64)
            }
            Leaves::Waits(number) => {
                self.wait_for(number);
                Verdict::GoOn
            }
            // (It is no stream; or the process is about to end.)
            Leaves::Never => waits(),
        }
    }

    /// Bytes go into the queue of the socket `cookie`, or not. `None`: nobody knows yet whether it
    /// is a stream. `is_stream`: it is.
    fn queues(&self, fd: u64, cookie: u64, bytes: &[u8], is_stream: bool) -> Option<Leaves> {
        self.with(|inner| {
            if !is_stream && !inner.knows(cookie) {
                return None;
            }
            let stream = inner.stream(cookie, fd);
            let queued = inner.book.queued(stream);
            let leaves = match inner.book.is_busy() {
                false => Leaves::Now,
                true if !self.is_early() || !sockets::has_room(fd, queued + bytes.len()) => {
                    Leaves::Waits(inner.book.given())
                }
                true => inner.book.sends(stream, &[bytes]),
            };
            self.says(inner);
            Some(leaves)
        })
    }

    /// Bytes are read at a place. Of a regular file, of which only the kernel knows, it is no
    /// answer.
    fn reads_at(&self, fd: u64) {
        match sockets::known(fd) {
            Some(known) if known.is_regular() => self.wait_for_asking(fd),
            _ => self.wait_for_all(),
        }
    }

    /// Nobody knows what this request is about.
    fn requests(&'static self, fd: u64) {
        match sockets::known(fd) {
            Some(known) if known.is_device() => self.off(AsEver::Lent),
            _ => self.wait_for_all(),
        }
    }

    /// Makes the program's call here, past the gate.
    fn makes(call: &Call) -> i64 {
        let args = call.args.map(|word| word as usize);
        // SAFETY: the program's own call.
        unsafe { syscall6(call.number as usize, args) as i64 }
    }

    /// Code is mapped: it is looked through before the next sync returns early. (So the call is
    /// made here: what is to be looked through is there by then.)
    fn loads(&self, call: &Call) -> i64 {
        self.pauses();
        let result = self.maps(call);
        self.loads.fetch_add(1, SeqCst);
        self.resumes();
        result
    }

    /// As [`maps`](Self::maps), unless it is a device.
    fn maps_of(&'static self, fd: u64, call: &Call) -> Verdict {
        if sockets::known(fd).is_some_and(|known| known.is_device()) {
            self.off(AsEver::Lent);
        }
        Verdict::Made(self.maps(call))
    }

    /// A file is mapped. (Made here: where is known then.)
    fn maps(&self, call: &Call) -> i64 {
        let [at, length, _, flags, ..] = call.args;
        let replaces = flags & libc::MAP_FIXED as u64 != 0;
        if replaces && self.has_mapped(at, length) {
            self.wait_for_all();
        }
        let result = Self::makes(call);
        if result > 0 {
            self.with(|inner| inner.mapped.add(result as u64, length));
        }
        result
    }

    fn has_mapped(&self, at: u64, length: u64) -> bool {
        self.with(|inner| inner.mapped.has(at, length))
    }

    /// Memory is unmapped by this call, or something else comes there that is no file's. (Made here
    /// where a file is: it is known until it is there no more, so whoever else unmaps it waits,
    /// too.)
    fn unmaps(&self, call: &Call, at: u64, length: u64) -> Verdict {
        if !self.has_mapped(at, length) {
            return Verdict::GoOn;
        }
        self.wait_for_all();
        let added = self.with(|inner| inner.mapped.added());
        let result = Self::makes(call);
        if result >= 0 {
            self.with(|inner| inner.mapped.remove(at, length, added));
        }
        Verdict::Made(result)
    }

    /// Memory moves, or becomes longer or shorter; something else may lie where it comes to.
    fn moves(&self, call: &Call, at: u64, length: u64, to: u64) -> Verdict {
        let [.., flags, target, _] = call.args;
        // (Of shared memory there is one more mapping then; its length is not told.)
        if !self.has_mapped(at, length.max(1)) {
            let replaces = flags & libc::MREMAP_FIXED as u64 != 0;
            return if replaces { self.unmaps(call, target, to) } else { Verdict::GoOn };
        }
        self.wait_for_all();
        let result = Self::makes(call);
        if result > 0 {
            self.with(|inner| inner.mapped.add(result as u64, to));
        }
        Verdict::Made(result)
    }

    /// The process executes something. (Where that comes by libc's functions nothing waits, nor
    /// will before it has failed.)
    fn executes(&'static self) {
        if self.is_own() && self.is_early() {
            // (Nobody will say whether it has failed.)
            self.off(AsEver::PastUs);
        }
        self.wait_for_all();
    }

    /// The process ends: what it was told is durable before, and no message is lost. (A child that
    /// has the same memory ends alone.)
    fn ends(&self) {
        if self.is_own() {
            self.pauses();
        } else {
            self.wait_for_all();
        }
    }

    /// A thread ends. The kernel ends the process with its last one, of which ours is not to be
    /// one.
    fn thread_ends(&'static self) {
        if self.is_own() && rustix::thread::gettid() == rustix::process::getpid() {
            self.off(AsEver::PastUs);
        } else {
            self.wait_for_all();
        }
    }

    /// A child with a copy of the memory is made. (Where libc's handlers have run nothing waits, or
    /// will before the child is there.)
    fn forks(&'static self) {
        if !critical::forking() && self.is_own() && self.is_early() {
            // (Nobody will say when the child is there.)
            self.off(AsEver::PastUs);
        }
        self.wait_for_all();
    }

    /// The thread that flushes has the rights that it began with.
    fn rights(&'static self) {
        if self.is_own() && self.has_begun() {
            self.off(AsEver::Rights);
        } else {
            self.wait_for_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::Trial;
    use core::sync::atomic::{AtomicBool, AtomicU32};
    use std::io::{ErrorKind, Read};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::sync::{Mutex, MutexGuard};
    use std::thread::JoinHandle;
    use std::time::Duration;

    /// The gate's word is one for a process.
    static ONE: Mutex<()> = Mutex::new(());
    static HELD: AtomicBool = AtomicBool::new(false);
    /// So many flushes have begun, and so many may end though they are held.
    static BEGUN: AtomicU32 = AtomicU32::new(0);
    static MAY_END: AtomicU32 = AtomicU32::new(0);
    static TOLD: AtomicU32 = AtomicU32::new(0);

    const PAGE: u64 = 4096;

    fn flush(_: &[u32]) -> bool {
        let turn = BEGUN.fetch_add(1, SeqCst);
        while HELD.load(SeqCst) && turn >= MAY_END.load(SeqCst) {
            rustix::thread::sched_yield();
        }
        true
    }

    fn until_flushes_have_begun(count: u32) {
        let until = std::time::Instant::now() + Duration::from_secs(5);
        while BEGUN.load(SeqCst) < count {
            assert!(std::time::Instant::now() < until, "no other flush begins");
            rustix::thread::sched_yield();
        }
    }

    fn told(reason: AsEver) {
        TOLD.store(reason as u32, SeqCst);
    }

    /// Of a process whose flushes do not end before `HELD` is false.
    fn outputs() -> (MutexGuard<'static, ()>, &'static Outputs) {
        outputs_of(rustix::process::getpid().as_raw_nonzero().get().cast_unsigned())
    }

    /// Of that process: who calls is a child that has its memory, where it is another one.
    fn outputs_of(process: u32) -> (MutexGuard<'static, ()>, &'static Outputs) {
        let one = ONE.lock().unwrap_or_else(|why| why.into_inner());
        HELD.store(true, SeqCst);
        TOLD.store(0, SeqCst);
        BEGUN.store(0, SeqCst);
        MAY_END.store(0, SeqCst);
        let settings = Settings { flush, told, trial: Trial::default() };
        (one, Outputs::for_tests(settings, process))
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let there = listener.accept().unwrap().0;
        there.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        (here, there)
    }

    fn called(outputs: &'static Outputs, number: i64, args: &[u64]) -> Verdict {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        outputs.judges(&Call { number: number as u64, args: all })
    }

    fn sent(outputs: &'static Outputs, by: &TcpStream, bytes: &'static [u8]) -> Verdict {
        let fd = by.as_raw_fd() as u64;
        called(outputs, libc::SYS_write, &[fd, bytes.as_ptr() as u64, bytes.len() as u64])
    }

    /// A call on a thread of its own; whether it waits.
    fn waits(call: impl FnOnce() -> Verdict + Send + 'static) -> (JoinHandle<Verdict>, bool) {
        let thread = std::thread::spawn(call);
        std::thread::sleep(Duration::from_millis(50));
        let waits = !thread.is_finished();
        (thread, waits)
    }

    #[test]
    fn bytes_for_a_stream_are_received_once_the_sync_before_them_is_durable() {
        let (_one, outputs) = outputs();
        let (here, mut there) = pair();
        assert_eq!(sent(outputs, &here, b"before"), Verdict::GoOn);
        assert!(outputs.gives(|| Some(1)) && outputs.is_busy());
        assert_eq!(sent(outputs, &here, b"ab"), Verdict::Made(2));
        assert_eq!(sent(outputs, &here, b"c"), Verdict::Made(1));
        let mut got = [0; 3];
        assert_eq!(there.read(&mut got).unwrap_err().kind(), ErrorKind::WouldBlock);
        HELD.store(false, SeqCst);
        there.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        there.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"abc");
        outputs.wait_for_all();
        assert!(!outputs.is_busy());
        assert_eq!(sent(outputs, &here, b"after"), Verdict::GoOn);
    }

    #[test]
    fn a_sync_that_returns_while_a_flush_is_under_way_waits_for_the_next_one() {
        let (_one, outputs) = outputs();
        let (here, mut there) = pair();
        assert!(outputs.gives(|| Some(1)));
        assert_eq!(sent(outputs, &here, b"a"), Verdict::Made(1));
        until_flushes_have_begun(1);
        assert!(outputs.gives(|| Some(1)));
        assert_eq!(sent(outputs, &here, b"b"), Verdict::Made(1));
        MAY_END.store(1, SeqCst);
        until_flushes_have_begun(2);
        let mut got = [0; 2];
        assert_eq!(there.read(&mut got).unwrap(), 1, "the first answer alone");
        assert_eq!(there.read(&mut got).unwrap_err().kind(), ErrorKind::WouldBlock);
        HELD.store(false, SeqCst);
        outputs.wait_for_all();
        assert_eq!((there.read(&mut got).unwrap(), got[0]), (1, b'b'));
    }

    /// A file is mapped: where, and how long that is.
    fn mapped(outputs: &'static Outputs) -> (u64, u64) {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let (length, fd) = (2 * PAGE, file.as_raw_fd() as u64);
        let map = [0, length, libc::PROT_READ as u64, libc::MAP_PRIVATE as u64, fd, 0];
        let Verdict::Made(at) = called(outputs, libc::SYS_mmap, &map) else { panic!() };
        (at as u64, length)
    }

    #[test]
    fn a_mapping_of_a_file_ends_once_all_is_durable() {
        let (_one, outputs) = outputs();
        let (at, length) = mapped(outputs);
        assert!(outputs.gives(|| Some(1)));
        let ends = |at, n| waits(move || called(outputs, libc::SYS_munmap, &[at, n]));
        let (elsewhere, waited) = ends(at + length, PAGE);
        assert!(!waited, "no file is mapped there");
        let (inside, waited) = ends(at + PAGE, PAGE);
        assert!(waited);
        HELD.store(false, SeqCst);
        assert_eq!(elsewhere.join().unwrap(), Verdict::GoOn);
        assert_eq!(inside.join().unwrap(), Verdict::Made(0));
        outputs.wait_for_all();
        let moved = called(outputs, libc::SYS_mremap, &[at, PAGE, PAGE, 0]);
        assert_eq!(moved, Verdict::Made(at as i64));
        assert_eq!(called(outputs, libc::SYS_munmap, &[at, length]), Verdict::Made(0));
        assert!(!outputs.has_mapped(at, length));
    }

    #[test]
    fn a_mapping_is_known_until_the_kernel_has_unmapped_it() {
        let (_one, outputs) = outputs();
        HELD.store(false, SeqCst);
        let (at, length) = mapped(outputs);
        let refused = Verdict::Made(-i64::from(libc::EINVAL));
        assert_eq!(called(outputs, libc::SYS_munmap, &[at, u64::MAX / 2]), refused);
        assert_eq!(called(outputs, libc::SYS_munmap, &[at + 1, length]), refused);
        assert!(outputs.has_mapped(at, 1));
        let over = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let over = [at, length, libc::PROT_READ as u64, over as u64, u64::MAX, 0];
        assert_eq!(called(outputs, libc::SYS_mmap, &over), Verdict::Made(at as i64));
        assert!(!outputs.has_mapped(at, length));
        // (Nothing of a file's is there: the kernel is left to it.)
        assert_eq!(called(outputs, libc::SYS_munmap, &[at, length]), Verdict::GoOn);
    }

    #[test]
    fn a_child_with_the_same_memory_ends_it_by_what_concerns_that_memory_alone() {
        let (_one, outputs) = outputs_of(1);
        for (number, args) in [
            (libc::SYS_unshare, [libc::CLONE_FILES as u64, 0]),
            (libc::SYS_prctl, [libc::PR_SET_SECCOMP as u64, 2]),
            (libc::SYS_setuid, [0, 0]),
        ] {
            assert_eq!(called(outputs, number, &args), Verdict::GoOn, "{number}");
            assert_eq!(outputs.reason(), None, "{number}");
        }
        assert_eq!(called(outputs, libc::SYS_io_uring_setup, &[8, 0]), Verdict::GoOn);
        assert_eq!(outputs.reason(), Some(AsEver::PastUs));
    }

    #[test]
    fn what_serves_a_file_system_is_asked_once_all_is_durable() {
        let (_one, outputs) = outputs();
        let (pipe, _end) = std::io::pipe().unwrap();
        let fd = pipe.as_raw_fd() as u64;
        let asks = move || called(outputs, libc::SYS_fstat, &[fd]);
        assert!(outputs.gives(|| Some(1)));
        let (first, waited) = waits(asks);
        assert!(waited, "nobody knows what it is");
        HELD.store(false, SeqCst);
        assert_eq!(first.join().unwrap(), Verdict::GoOn);
        outputs.wait_for_all();
        HELD.store(true, SeqCst);
        assert!(outputs.gives(|| Some(1)));
        assert_eq!(asks(), Verdict::GoOn, "the kernel's own");
        HELD.store(false, SeqCst);
        outputs.wait_for_all();
    }

    #[test]
    fn a_file_that_was_promised_is_forgotten_once_it_is_durable() {
        let (_one, outputs) = outputs();
        assert!(outputs.gives(|| Some(1)));
        let (forgets, waited) = waits(|| {
            outputs.forgets(1, || TOLD.store(9, SeqCst));
            Verdict::GoOn
        });
        assert!(waited && TOLD.load(SeqCst) == 0);
        HELD.store(false, SeqCst);
        forgets.join().unwrap();
        assert_eq!(TOLD.load(SeqCst), 9);
        assert!(!outputs.gives(|| None), "it is closed");
        assert!(!outputs.is_busy());
    }

    #[test]
    fn no_sync_returns_early_once_code_came_that_was_not_looked_through() {
        let (_one, outputs) = outputs();
        HELD.store(false, SeqCst);
        assert!(outputs.gives(|| Some(1)));
        // (There is no gate here, so nobody can say that it has all calls.)
        outputs.loads.fetch_add(1, SeqCst);
        assert!(!outputs.gives(|| Some(1)) && !outputs.gives(|| Some(1)));
        assert_eq!(outputs.reason(), Some(AsEver::PastUs));
    }

    #[test]
    fn what_leaves_otherwise_waits_in_its_call() {
        let (_one, outputs) = outputs();
        assert!(outputs.gives(|| Some(1)));
        let (pipe, _end) = std::io::pipe().unwrap();
        let (here, _there) = pair();
        let on = |fd: u64, number| move || called(outputs, number, &[fd, 0, 1]);
        let (pipe, stream) = (pipe.as_raw_fd() as u64, here.as_raw_fd() as u64);
        assert_eq!(on(stream, libc::SYS_read)(), Verdict::GoOn, "it is no answer");
        assert_eq!(on(pipe, libc::SYS_poll)(), Verdict::GoOn);
        let made = [
            waits(on(pipe, libc::SYS_read)),
            waits(on(stream, libc::SYS_close)),
            waits(on(pipe, libc::SYS_write)),
            waits(on(0, libc::SYS_kill)),
        ];
        HELD.store(false, SeqCst);
        for (i, (thread, waited)) in made.into_iter().enumerate() {
            assert!(waited, "{i}");
            assert_eq!(thread.join().unwrap(), Verdict::GoOn, "{i}");
        }
    }

    #[test]
    fn bytes_that_lie_nowhere_and_messages_to_who_is_gone_are_the_kernels_to_refuse() {
        let (_one, outputs) = outputs();
        let (here, there) = pair();
        let fd = here.as_raw_fd() as u64;
        assert!(outputs.gives(|| Some(1)));
        let (nowhere, waited) = waits(move || called(outputs, libc::SYS_writev, &[fd, 8, 2]));
        assert!(waited);
        here.shutdown(std::net::Shutdown::Write).unwrap();
        drop(there);
        let (gone, waited) = waits(move || called(outputs, libc::SYS_write, &[fd, fd, 0]));
        assert!(waited);
        HELD.store(false, SeqCst);
        assert_eq!(nowhere.join().unwrap(), Verdict::GoOn);
        assert_eq!(gone.join().unwrap(), Verdict::GoOn);
    }

    #[test]
    fn an_append_waits_for_other_files_only() {
        let (_one, outputs) = outputs();
        assert!(outputs.gives(|| Some(1)));
        outputs.wait_but_for(1);
        let (other, waited) = waits(|| {
            outputs.wait_but_for(2);
            Verdict::GoOn
        });
        assert!(waited);
        HELD.store(false, SeqCst);
        other.join().unwrap();
    }

    #[test]
    fn no_sync_returns_early_while_a_child_is_made() {
        let (_one, outputs) = outputs();
        assert!(outputs.gives(|| Some(1)));
        let (child, waited) = waits(|| {
            outputs.pauses();
            Verdict::GoOn
        });
        assert!(waited && !outputs.gives(|| Some(1)));
        HELD.store(false, SeqCst);
        child.join().unwrap();
        assert!(!outputs.is_busy() && !outputs.gives(|| Some(1)));
        outputs.resumes();
        assert!(outputs.gives(|| Some(1)));
        outputs.wait_for_all();
    }

    #[test]
    fn what_cannot_be_seen_ends_it_once_nothing_waits() {
        let (_one, outputs) = outputs();
        assert!(outputs.gives(|| Some(1)));
        let (mapping, waited) = waits(|| called(outputs, libc::SYS_shmat, &[1]));
        assert!(waited && TOLD.load(SeqCst) == 0);
        HELD.store(false, SeqCst);
        assert_eq!(mapping.join().unwrap(), Verdict::GoOn);
        assert_eq!(TOLD.load(SeqCst), AsEver::Mapped as u32);
        assert_eq!(outputs.reason(), Some(AsEver::Mapped));
        assert!(!outputs.gives(|| Some(1)) && uncopy_gate::pending().load(SeqCst) == 0);
    }
}
