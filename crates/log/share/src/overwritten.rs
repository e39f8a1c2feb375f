//! A file that is overwritten: its bytes are the kernel's, and a sync puts what was written into
//! the log. An entry says that it is one, and how many flushes of its bytes there were; of these
//! `durable` says how many the file has durably.

use crate::layout::Entry;
use crate::memory::Memory;
use crate::writer::{Live, NotLogged, Writer};
use core::sync::atomic::Ordering;
use rustix::fd::AsFd;
use rustix::io::Errno;
use uncopy_inject::Point;
use uncopy_kernel::inject;
pub use uncopy_log_record::Range;
use uncopy_log_record::record::data_length;
use uncopy_log_record::{Flush, Purpose, SEGMENT};

/// In the index of a holding: the file is overwritten. So recovery knows how its bytes are brought
/// to it.
pub const OVERWRITTEN: u32 = 1 << 31;

impl Entry {
    /// Its bytes are the kernel's, and syncs go to the log.
    pub fn is_overwritten(&self) -> bool {
        self.index.load(Ordering::Acquire) & OVERWRITTEN != 0
    }

    /// Program, one thread at a time: bytes of it are about to be in the log. The number of that
    /// flush; `None`: they must not be any more.
    pub fn logs(&self) -> Option<u64> {
        let flush = self.logged.load(Ordering::SeqCst) + 1;
        // (Said before it is looked whether it still may be logged: the one that ends that looks
        // the other way round.)
        self.logged.store(flush, Ordering::SeqCst);
        core::sync::atomic::fence(Ordering::SeqCst);
        inject::point(Point::Logging);
        matches!(self.words.end(), crate::End::Open(_)).then_some(flush)
    }

    /// Program, while it logs nothing of it: all that is logged is durable in the file, and no log
    /// has it any more.
    pub fn logs_nothing(&self) {
        self.words.synced(self.logged.load(Ordering::SeqCst));
    }

    /// The file's own sync, by `sync`. A process that dies over it may have been told that it
    /// failed.
    ///
    /// # Errors
    /// The error of `sync`.
    pub fn syncs_itself(&self, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        let result = sync();
        if let Err(why) = result {
            self.failed.store(why.raw_os_error() as u32, Ordering::SeqCst);
        }
        self.syncs.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Whether some log has bytes of it that may not be durable in the file.
    pub fn has_logged(&self) -> bool {
        self.logged.load(Ordering::SeqCst) > self.words.durable()
    }
}

/// The ranges of an overwritten file that are to go into the log.
#[derive(Clone, Copy, Debug)]
pub struct Overwritten<'a> {
    /// Its slot.
    pub slot: usize,
    /// Its number in records.
    pub index: u32,
    /// Its length in bytes.
    pub size: u64,
    /// The number that [`Entry::logs`] gave.
    pub flush: u64,
    /// The ranges that were written.
    pub ranges: &'a [Range],
}

impl Writer {
    /// Puts `ranges` of a file into the log: they are durable once it returns. `enters` hears which
    /// segment they go to, before they do; `fill` reads them from the file, one after the other
    /// (false: that failed).
    ///
    /// # Errors
    /// They are not.
    pub fn overwrites<F: AsFd>(
        &mut self,
        memory: &Memory<F>,
        of: &Overwritten<'_>,
        mut enters: impl FnMut(u64),
        fill: impl Fn(&[Range], &mut [u8]) -> bool,
    ) -> Result<(), NotLogged> {
        let bytes: u64 = of.ranges.iter().map(|range| range.length).sum();
        // (With its name, and a block that begins a segment.)
        let need = data_length(of.ranges.len(), bytes as usize) + 8192;
        if need + 4096 > SEGMENT {
            return Err(NotLogged::Full);
        }
        self.begins(memory)?;
        if Flush::begin(&self.log, self.cursor, self.store.memory()).room() < need {
            self.next_segment(memory, Purpose::Data)?;
        }
        let mut flush = Flush::begin(&self.log, self.cursor, self.store.memory());
        enters(flush.segment());
        let known = self.named.len();
        if !Self::name(memory, &mut flush, &mut self.named, (of.slot, of.index, of.size)) {
            return Err(NotLogged::Full);
        }
        let put = |place: &mut [u8]| fill(of.ranges, place).then_some(()).ok_or(Errno::IO);
        if flush.data_by(of.index, of.size, of.ranges, put).is_err() {
            self.named.truncate(known);
            return Err(NotLogged::Failed(Errno::IO));
        }
        inject::point(Point::ReadBack);
        let Some(written) = flush.finish() else { return Ok(()) };
        self.write(&written)?;
        let (segment, to) = (written.segment, of.flush);
        self.live.push_back(Live { segment, slot: of.slot, index: of.index, to });
        Ok(())
    }

    /// Says, durably, that what the log has of this index until now is in its file. Records that
    /// come later count.
    ///
    /// # Errors
    /// It could not be said.
    pub fn home_until_now<F: AsFd>(
        &mut self,
        memory: &Memory<F>,
        index: u32,
        size: u64,
    ) -> Result<(), NotLogged> {
        self.says_home(memory, index, size, |flush| flush.sequence() - 1)
    }
}
