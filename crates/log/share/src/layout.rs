//! Where what is shared lies: a header, an entry for each held file, and as many rings.

use crate::words::Words;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use rustix::io::Errno;
use uncopy_inject::Point;
use uncopy_kernel::inject;

/// Programs and service must have the same.
pub const VERSION: u64 = 3;
/// Files that are held at a time, of one user and file system.
pub const SLOTS: usize = 64;
/// Bytes of a file that are held, at most. A byte of the file lies at its own place modulo this: so
/// memory and file are congruent modulo 4,096, as O_DIRECT wants it.
pub const RING: u64 = 16 << 20;
/// Bytes that are copied into a ring at a time, at most: so all but these are what was appended
/// last, also while somebody appends.
pub const FILL: u64 = RING / 4;
/// A ring gets its memory in so many pieces, as it is used.
pub const PIECES: u64 = 64;
/// Bytes of such a piece.
pub const PIECE: u64 = RING / PIECES;
/// Bytes of the header.
pub const HEADER: usize = 4096;
/// Bytes of an entry.
pub const ENTRY: usize = 8192;
/// Where the first ring lies.
pub const RINGS: u64 = 1 << 20;
/// Bytes of all of it.
pub const BYTES: u64 = RINGS + SLOTS as u64 * RING;
/// Bytes of a handle (`MAX_HANDLE_SZ`), and of a path (`PATH_MAX`).
pub const HANDLE: usize = 128;
/// See [`HANDLE`].
pub const PATH: usize = 4096;

const _: () = assert!(HEADER + SLOTS * ENTRY <= RINGS as usize && size_of::<Entry>() <= ENTRY);
const MAGIC: u64 = u64::from_le_bytes(*b"uclogmem");

/// Says what it is.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    /// The mount through which the service reaches its files (`stx_mnt_id`, unique since boot). A
    /// file that is reached through another one may have lost what was not durable: its device was
    /// gone, and came back. 0: not known.
    pub mount: AtomicU64,
}

impl Header {
    /// It is what this version knows.
    pub fn is_known(&self) -> bool {
        let version = self.version.load(Ordering::Acquire);
        version == VERSION && self.magic.load(Ordering::Acquire) == MAGIC
    }

    /// Service: it is, from now on.
    pub fn begin(&self) {
        self.version.store(VERSION, Ordering::Release);
        self.magic.store(MAGIC, Ordering::Release);
    }
}

/// The fate of a file that an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// The entry is nobody's.
    Free = 0,
    /// The service holds the lease, and the program appends.
    Held = 1,
    /// All is home, and the lease is given up: the file is plain. The entry is the program's until
    /// it has said that it knows.
    Plain = 2,
}

impl State {
    fn of(word: u32) -> Self {
        match word {
            1 => Self::Held,
            2 => Self::Plain,
            _ => Self::Free,
        }
    }
}

/// [`Entry::position`]: the kernel's own is right.
pub const KERNELS: u64 = u64::MAX;

/// A held file.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Entry {
    /// How far it is.
    pub words: Words,
    state: AtomicU32,
    /// Changes with whatever somebody may wait for; they sleep on it.
    turn: AtomicU32,
    /// Its number in the log's records: another one with each holding.
    pub index: AtomicU32,
    /// Why its bytes could last not come home: an error number; 0: they could.
    pub error: AtomicU32,
    /// Which program holds it: the service's number of it.
    pub client: AtomicU64,
    /// Where the file's position is; [`KERNELS`]: where the kernel has it.
    pub position: AtomicU64,
    /// The file's length when it began to be held: the ring has its bytes from there on.
    pub base: AtomicU64,
    /// How far the file has room on its disk.
    pub reserved: AtomicU64,
    /// How far it is in the log of the program.
    pub logged: AtomicU64,
    /// Which pieces of the ring have memory: a bit each.
    pub backed: AtomicU64,
    /// The program has asked the service to bring bytes home, and it has not begun.
    pub asked: AtomicU32,
    handle_kind: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    generation: AtomicU64,
    handle_length: AtomicU32,
    path_length: AtomicU32,
    handle: [AtomicU64; HANDLE / 8],
    path: [AtomicU64; PATH / 8],
    /// Why a sync of its file failed: an error number; 0: none has. It stays until what is kept was
    /// written once more and synced: the kernel says an error once, and may have dropped what it
    /// was about.
    pub failed: AtomicU32,
    /// Syncs of its file that are under way.
    syncs: AtomicU32,
    /// The error that the program's next sync says, whatever came of it: nothing, [`ONCE`],
    /// [`FOR_GOOD`].
    pub lost: AtomicU32,
    /// How often it was named: a log names a file again that has another name.
    pub names: AtomicU32,
    /// 1: room behind its end is the program's own.
    pub roomy: AtomicU32,
    /// 1: its bytes were put aside.
    pub aside: AtomicU32,
}

/// [`Entry::lost`]: an error that the program has not heard of yet.
pub const ONCE: u32 = 1;
/// [`Entry::lost`]: what was durable may be so no more, and nobody has its bytes.
pub const FOR_GOOD: u32 = 2;

/// Which file an entry is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Its device, as `stat` says.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// The inode's generation; 0 where there is none.
    pub generation: u64,
    /// Kind of the handle.
    pub handle_kind: i32,
    /// Its handle (`name_to_handle_at`); empty where there is none.
    pub handle: Vec<u8>,
    /// A path that led to it.
    pub path: Vec<u8>,
}

fn put(words: &[AtomicU64], bytes: &[u8]) -> u32 {
    let bytes = &bytes[..bytes.len().min(words.len() * 8)];
    for (word, part) in words.iter().zip(bytes.chunks(8)) {
        let mut of = [0; 8];
        of[..part.len()].copy_from_slice(part);
        word.store(u64::from_ne_bytes(of), Ordering::Relaxed);
    }
    bytes.len() as u32
}

fn get(words: &[AtomicU64], length: u32) -> Vec<u8> {
    let length = (length as usize).min(words.len() * 8);
    let bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    bytes.take(length).collect()
}

impl Entry {
    /// The fate of the file.
    pub fn state(&self) -> State {
        State::of(self.state.load(Ordering::Acquire))
    }

    /// Something that others may wait for has changed.
    pub fn turned(&self) {
        self.turn.fetch_add(1, Ordering::Release);
        let _ = rustix::thread::futex::wake(
            &self.turn,
            rustix::thread::futex::Flags::empty(),
            i32::MAX as u32,
        );
    }

    /// Its bytes cannot come home for now, for this reason: all who wait are told.
    pub fn refuses(&self, error: u32) {
        self.error.store(error, Ordering::Release);
        self.turned();
    }

    /// Sleeps until something changes for which [`Entry::turned`] was called after `turn` was read,
    /// for `millis` at most.
    pub fn wait(&self, turn: u32, millis: u32) {
        let timeout = rustix::time::Timespec {
            tv_sec: i64::from(millis / 1000),
            tv_nsec: i64::from(millis % 1000) * 1_000_000,
        };
        let flags = rustix::thread::futex::Flags::empty();
        let _ = rustix::thread::futex::wait(&self.turn, flags, turn, Some(&timeout));
    }

    /// For [`Entry::wait`]: read before what is waited for is looked at.
    pub fn turn(&self) -> u32 {
        self.turn.load(Ordering::Acquire)
    }

    /// Service: a file of `size` bytes is held for `client` from now on.
    pub fn hold(&self, client: u64, index: u32, size: u64, named: &Named) {
        self.index.store(index, Ordering::Relaxed);
        self.error.store(0, Ordering::Relaxed);
        self.client.store(client, Ordering::Relaxed);
        self.position.store(KERNELS, Ordering::Relaxed);
        self.reserved.store(0, Ordering::Relaxed);
        self.logged.store(0, Ordering::Relaxed);
        self.base.store(size, Ordering::Relaxed);
        self.asked.store(0, Ordering::Relaxed);
        for word in [&self.failed, &self.syncs, &self.lost, &self.roomy, &self.aside] {
            word.store(0, Ordering::Relaxed);
        }
        self.name(named);
        self.words.begin(size);
        self.state.store(State::Held as u32, Ordering::Release);
    }

    /// `sync`, by whichever process, makes durable what is home. `Ok(false)`: another sync was
    /// under way, which may have had the kernel's error instead of this one.
    ///
    /// # Errors
    /// The error of `sync`, or of one before that was not made good.
    pub fn synced(&self, sync: impl FnOnce() -> Result<(), Errno>) -> Result<bool, Errno> {
        let failed = || match self.failed.load(Ordering::SeqCst) {
            0 => Ok(()),
            why => Err(Errno::from_raw_os_error(why as i32)),
        };
        failed()?;
        let home = self.words.home();
        self.syncs.fetch_add(1, Ordering::SeqCst);
        let result = sync();
        inject::point(Point::Synced);
        if let Err(why) = result {
            self.failed.store(why.raw_os_error() as u32, Ordering::SeqCst);
        }
        // (Looked at in this order: a sync that fails says so before it is under way no more.)
        let alone = self.syncs.load(Ordering::SeqCst) == 1;
        let failed = failed();
        if alone && failed.is_ok() {
            self.words.synced(home);
        }
        self.syncs.fetch_sub(1, Ordering::SeqCst);
        result.and(failed).map(|()| alone)
    }

    /// A sync is under way, or whoever made it has died over it.
    pub fn is_synced_now(&self) -> bool {
        self.syncs.load(Ordering::SeqCst) != 0
    }

    /// The ring's bytes were written once more, and synced: a failure before counts no more.
    pub fn made_good(&self) {
        self.syncs.store(0, Ordering::SeqCst);
        self.failed.store(0, Ordering::SeqCst);
    }

    /// The program's next sync says so. (A word that was said before and is worse stays.)
    pub fn loses(&self, what: u32) {
        self.lost.fetch_max(what, Ordering::SeqCst);
    }

    /// Service: it is this file.
    pub fn name(&self, named: &Named) {
        self.device.store(named.device, Ordering::Relaxed);
        self.inode.store(named.inode, Ordering::Relaxed);
        self.generation.store(named.generation, Ordering::Relaxed);
        self.handle_kind.store(named.handle_kind as u32, Ordering::Relaxed);
        self.handle_length.store(put(&self.handle, &named.handle), Ordering::Relaxed);
        self.path_length.store(put(&self.path, &named.path), Ordering::Release);
        self.names.fetch_add(1, Ordering::Release);
    }

    /// Which file it is.
    pub fn named(&self) -> Named {
        let path_length = self.path_length.load(Ordering::Acquire);
        let handle_length = self.handle_length.load(Ordering::Relaxed);
        Named {
            device: self.device.load(Ordering::Relaxed),
            inode: self.inode.load(Ordering::Relaxed),
            generation: self.generation.load(Ordering::Relaxed),
            handle_kind: self.handle_kind.load(Ordering::Relaxed) as i32,
            handle: get(&self.handle, handle_length),
            path: get(&self.path, path_length),
        }
    }

    /// Its device and inode.
    pub fn identity(&self) -> (u64, u64) {
        (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed))
    }

    /// The file is plain: all is home, and the lease given up. All who wait are woken.
    pub fn plain(&self) {
        self.state.store(State::Plain as u32, Ordering::Release);
        self.turned();
    }

    /// Program, one thread at a time: the file's position is `to`, and was `from`. False: the file
    /// is on its way to be plain, and the kernel's position, which was set to `from`, is the
    /// caller's to move.
    #[must_use]
    pub fn moves(&self, from: u64, to: u64) -> bool {
        self.position.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// For the process that makes the file plain: the kernel's position becomes the file's, by
    /// `set`, and counts from then on. (In this order: a process that dies between both leaves it
    /// to be done again.)
    pub fn hands_position_over(&self, mut set: impl FnMut(u64)) {
        loop {
            let position = self.position.load(Ordering::Acquire);
            if position == KERNELS {
                return;
            }
            set(position);
            inject::point(Point::Positioned);
            if self.moves(position, KERNELS) {
                return;
            }
        }
    }

    /// The program knows that it is plain, or is no more.
    pub fn free(&self) {
        self.state.store(State::Free as u32, Ordering::Release);
    }
}
