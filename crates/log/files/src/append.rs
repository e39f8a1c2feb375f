//! Bytes are appended to a held file: into its ring, and published by one word.
//!
//! unsafe: the program's buffers, and the ring.

use crate::file::{File, Plain, State};
use crate::log::Log;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use libc::iovec;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::process::{Resource, getrlimit};
use std::os::fd::RawFd;
use std::sync::Arc;
use uncopy_inject::{Call, Point};
use uncopy_kernel::inject;
use uncopy_log_service::protocol::Message;
use uncopy_log_service::{Client, PlainReason};
use uncopy_log_share::layout::FILL;
use uncopy_log_share::words::End;
use uncopy_log_share::{Entry, RING};
use uncopy_tcp_shared::copy::copy;

use crate::begin::borrowed;
use crate::session::Session;

/// From so many bytes on that are held the service is asked to bring whole blocks home.
const BRING: u64 = 1 << 20;
/// Room in the file is taken for so many bytes at once.
const RESERVE: u64 = 4 << 20;

/// Which way a call goes.
#[derive(Debug)]
pub enum Appended {
    /// It is made: what it returns; -1 with errno set.
    Made(isize),
    /// The kernel makes it as it is. (`None`: it is no file of ours.)
    Plain(Option<Plain>),
}

/// The outcome of one try.
enum Tried {
    Made(isize),
    /// The file is to be plain, for this reason.
    Leave(PlainReason),
    /// Somebody else has ended appending.
    Ended,
    /// There is no room in the ring before more is home.
    Full(u32),
    Plain,
}

fn failed(errno: i32) -> isize {
    // SAFETY: errno's address is always valid.
    unsafe { *libc::__errno_location() = errno };
    -1
}

impl Log {
    /// Writes `buffers` to `fd` at its position. `at`: at this place instead.
    ///
    /// # Safety
    /// The buffers are the program's, of a call that it makes; or the same bytes from elsewhere.
    pub unsafe fn write(&'static self, fd: RawFd, buffers: &[iovec], at: Option<i64>) -> Appended {
        let Some(file) = self.file(fd) else { return Appended::Plain(None) };
        self.await_others(&file);
        while file.state() != State::Held {
            if let Some(plain) = file.writes_plainly(at) {
                return Appended::Plain(Some(plain));
            }
            match file.state() {
                State::Beginning => file.alone(|| ()),
                State::Inherited => break,
                _ => {}
            }
        }
        let Some(session) = self.known_session().filter(|_| file.state() == State::Held) else {
            return Appended::Plain(Some(self.made_plain(&file, fd, PlainReason::NotAppended)));
        };
        let mut done = 0;
        loop {
            // SAFETY: the caller's promise.
            let tried = file.alone(|| unsafe { session.append(&file, fd, buffers, at, &mut done) });
            let plain = |reason| {
                if done > 0 {
                    return Appended::Made(done as isize);
                }
                let index = file.index();
                match self.leave(&file, fd, reason) {
                    Err(why) if file.state() == State::Held && file.index() == index => {
                        Appended::Made(failed(why.raw_os_error()))
                    }
                    _ => Appended::Plain(Some(self.made_plain(&file, fd, reason))),
                }
            };
            match tried {
                Tried::Made(n) => return Appended::Made(n),
                Tried::Leave(reason) => return plain(reason),
                Tried::Ended => return plain(PlainReason::OpenedLater),
                Tried::Plain => return plain(PlainReason::NotAppended),
                Tried::Full(turn) => {
                    let entry = session.memory.entry(file.slot());
                    let error = entry.error.load(SeqCst);
                    if error != 0 {
                        return if done > 0 {
                            Appended::Made(done as isize)
                        } else {
                            Appended::Made(failed(error as i32))
                        };
                    }
                    if !session.ask(Client::lives) {
                        return plain(PlainReason::NoService);
                    }
                    entry.wait(turn, 20);
                }
            }
        }
    }
}

impl Session {
    /// Appends what of `buffers` lies behind the first `done` bytes, as much as there is room for.
    unsafe fn append(
        &'static self,
        file: &Arc<File>,
        fd: RawFd,
        buffers: &[iovec],
        at: Option<i64>,
        done: &mut usize,
    ) -> Tried {
        if file.state() != State::Held {
            return Tried::Plain;
        }
        let slot = file.slot();
        let Some(entry) = self.entry(file) else { return Tried::Plain };
        let turn = entry.turn();
        let End::Open(end) = entry.words.end() else { return Tried::Ended };
        let position = entry.position.load(SeqCst);
        let is_append = match at {
            // (Where O_APPEND is set the kernel heeds no place.)
            _ if file.appends.load(Relaxed) => true,
            None => position == end,
            Some(at) => at as u64 == end,
        };
        if !is_append {
            return Tried::Leave(PlainReason::NotAppended);
        }
        let all: usize = buffers.iter().map(|buffer| buffer.iov_len).sum();
        if all == 0 {
            return Tried::Made(0);
        }
        let left = all - *done;
        let room = RING - (end - entry.words.home().min(end));
        // (A little is not worth a turn, unless it is all.)
        if room < (left as u64).min(RING / 4) {
            self.bring(entry, file);
            return Tried::Full(turn);
        }
        let part = left.min(room.min(FILL) as usize);
        if let Err(reason) = reserve(entry, fd, end + part as u64) {
            return Tried::Leave(reason);
        }
        if self.memory.back(slot, end, part).is_err() {
            return Tried::Leave(PlainReason::NoMemory);
        }
        // SAFETY: the caller's promise; this thread alone appends, and there is room.
        if !unsafe { self.fill(slot, end, part, buffers, *done) } {
            // (How much of it the kernel takes it says.)
            return if *done > 0 {
                Tried::Made(*done as isize)
            } else {
                Tried::Leave(PlainReason::NotAppended)
            };
        }
        let to = end + part as u64;
        inject::point(Point::Filled);
        if !entry.words.publish(end, to) {
            return Tried::Ended;
        }
        inject::point(Point::Appended);
        *done += part;
        // (At a place of the program's choice its position stays.)
        if at.is_none() && !entry.moves(position, to) {
            let _ = seek(borrowed(fd), SeekFrom::Start(to));
        }
        if to - entry.words.home().min(to) >= BRING {
            self.bring(entry, file);
        }
        if *done == all { Tried::Made(all as isize) } else { Tried::Full(turn) }
    }

    /// Asks the service to bring whole blocks home, once.
    pub(crate) fn bring(&'static self, entry: &Entry, file: &File) {
        if entry.asked.swap(1, SeqCst) == 0 {
            let (slot, index) = (file.slot() as u64, file.index().into());
            self.ask(|client| client.tell(Message::Bring { slot, index }));
        }
    }

    /// Copies `bytes` of the buffers, behind the first `skip`, into the ring. False: a pointer
    /// leads nowhere.
    unsafe fn fill(
        &self,
        slot: usize,
        end: u64,
        bytes: usize,
        buffers: &[iovec],
        mut skip: usize,
    ) -> bool {
        let (mut at, mut left) = (end, bytes);
        for buffer in buffers {
            let passed = skip.min(buffer.iov_len);
            skip -= passed;
            let mut n = (buffer.iov_len - passed).min(left);
            let mut from = buffer.iov_base.cast::<u8>().wrapping_add(passed).cast_const();
            for (to, run) in self.memory.runs(slot, at, n) {
                // SAFETY: the ring's bytes are ours to write; the program's are what it named.
                if run > 0 && unsafe { copy(to, from, run) }.is_err() {
                    return false;
                }
                from = from.wrapping_add(run);
                at += run as u64;
                left -= run;
                n -= run;
            }
            if left == 0 {
                return true;
            }
        }
        left == 0
    }
}

/// There is room on the file's disk, and below the program's limit, up to `to`.
fn reserve(entry: &Entry, fd: RawFd, to: u64) -> Result<(), PlainReason> {
    let reserved = entry.reserved.load(Relaxed);
    if to <= reserved {
        return Ok(());
    }
    let from = reserved.max(entry.words.home());
    let wanted = (to.max(from) + RESERVE).next_multiple_of(4096);
    if getrlimit(Resource::Fsize).current.is_some_and(|most| wanted > most) {
        return Err(PlainReason::Limit);
    }
    let taken = inject::check(Call::LogReserve)
        .and_then(|()| fallocate(borrowed(fd), FallocateFlags::KEEP_SIZE, from, wanted - from));
    // (A full disk: the kernel takes of the call what there is room for, and says so.)
    taken.map_err(|_| PlainReason::NoReserve)?;
    inject::point(Point::Reserved);
    entry.reserved.store(wanted, SeqCst);
    Ok(())
}
