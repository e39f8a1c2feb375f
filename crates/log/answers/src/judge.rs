//! A system call of the program's, before it is made: the kernel makes it now, or later, or its
//! bytes go into a queue.
//!
//! unsafe: a call of the program's.

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
        // (What our own code calls is not the program's.)
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
            Meaning::ReadsAt(fd) => {
                if self.is_busy() && !sockets::is_regular(fd) {
                    self.wait_for_all();
                }
            }
            Meaning::Leaves => self.wait_for_all(),
            Meaning::Shares(fd) => {
                if sockets::is_for_writing(fd) {
                    self.off(AsEver::Mapped);
                }
            }
            Meaning::Loads => return Verdict::Made(self.loads(call)),
            Meaning::Wraps => {
                self.wraps.store(true, SeqCst);
                self.wait_for_all();
            }
            Meaning::Rights => self.rights(),
            Meaning::EndsThread => self.thread_ends(),
            Meaning::Ends => self.ends(),
            Meaning::Forks => self.forks(),
            Meaning::Off(reason) => self.goes_off(reason),
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
        let Some(cookie) = sockets::stream(fd) else { return waits() };
        let Some(buffers) = buffers(what) else { return waits() };
        let Some(bytes) = length(&buffers).filter(|n| (1..=MOST).contains(n)) else {
            return waits();
        };
        // (What does not fit is not copied.)
        if !sockets::has_room(fd, bytes) {
            return waits();
        }
        let Some(copy) = copied(&buffers, bytes) else { return waits() };
        match sockets::asks(fd) {
            0 => {}
            // (The kernel has more to do for the first; it is not yet connected.)
            n if n == -(libc::EPIPE as isize) || n == -(libc::EAGAIN as isize) => return waits(),
            error => return Verdict::Made(error as i64),
        }
        let leaves = self.with(|inner| {
            let stream = inner.stream(cookie, fd);
            let queued = inner.book.queued(stream);
            let leaves = match inner.book.is_busy() {
                false => Leaves::Now,
                true if !self.is_early() || !sockets::has_room(fd, queued + bytes) => {
                    Leaves::Waits(inner.book.given())
                }
                true => inner.book.sends(stream, &[&copy]),
            };
            self.says(inner);
            leaves
        });
        match leaves {
            Leaves::Now => Verdict::GoOn,
            Leaves::Queued => {
                self.works();
                Verdict::Made(bytes as i64)
            }
            Leaves::Waits(number) => {
                self.wait_for(number);
                Verdict::GoOn
            }
            // (The process is about to end.)
            Leaves::Never => waits(),
        }
    }

    /// Code is mapped: it is looked through before the next sync returns early. (So the call is
    /// made here: what is to be looked through is there by then.)
    fn loads(&self, call: &Call) -> i64 {
        self.pauses();
        let args = call.args.map(|word| word as usize);
        // SAFETY: the program's own call.
        let result = unsafe { syscall6(call.number as usize, args) };
        self.loads.store(true, SeqCst);
        self.resumes();
        result as i64
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

    fn goes_off(&'static self, reason: AsEver) {
        // (What is a child's own ends nothing here, and what it does to memory does.)
        if self.is_own() || matches!(reason, AsEver::Mapped | AsEver::Code | AsEver::Lent) {
            self.off(reason);
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
    static TOLD: AtomicU32 = AtomicU32::new(0);

    fn flush(_: &[u32]) -> bool {
        while HELD.load(SeqCst) {
            rustix::thread::sched_yield();
        }
        true
    }

    fn told(reason: AsEver) {
        TOLD.store(reason as u32, SeqCst);
    }

    /// Of a process whose flushes do not end before `HELD` is false.
    fn outputs() -> (MutexGuard<'static, ()>, &'static Outputs) {
        let one = ONE.lock().unwrap_or_else(|why| why.into_inner());
        HELD.store(true, SeqCst);
        TOLD.store(0, SeqCst);
        (one, Outputs::for_tests(Settings { flush, told, trial: Trial::default() }))
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
        assert!(outputs.gives(1) && outputs.is_busy());
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
    fn what_leaves_otherwise_waits_in_its_call() {
        let (_one, outputs) = outputs();
        assert!(outputs.gives(1));
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
        assert!(outputs.gives(1));
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
        assert!(outputs.gives(1));
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
        assert!(outputs.gives(1));
        let (child, waited) = waits(|| {
            outputs.pauses();
            Verdict::GoOn
        });
        assert!(waited && !outputs.gives(1));
        HELD.store(false, SeqCst);
        child.join().unwrap();
        assert!(!outputs.is_busy() && !outputs.gives(1));
        outputs.resumes();
        assert!(outputs.gives(1));
        outputs.wait_for_all();
    }

    #[test]
    fn what_cannot_be_seen_ends_it_once_nothing_waits() {
        let (_one, outputs) = outputs();
        assert!(outputs.gives(1));
        let (mapping, waited) = waits(|| called(outputs, libc::SYS_shmat, &[1]));
        assert!(waited && TOLD.load(SeqCst) == 0);
        HELD.store(false, SeqCst);
        assert_eq!(mapping.join().unwrap(), Verdict::GoOn);
        assert_eq!(TOLD.load(SeqCst), AsEver::Mapped as u32);
        assert_eq!(outputs.reason(), Some(AsEver::Mapped));
        assert!(!outputs.gives(1) && uncopy_gate::pending().load(SeqCst) == 0);
    }
}
