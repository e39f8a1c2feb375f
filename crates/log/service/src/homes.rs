//! The service's own log: which files' bytes are home, that programs have in their logs. Each flush
//! says all that has to be known, so the last one suffices, and what is older may be written over.

use crate::place::{Place, now};
use rustix::io::Errno;
use uncopy_log_record::{Cursor, Flush, HEAD, Log, Purpose, Superblock};
use uncopy_log_share::writer::{superblock, write_superblock};
use uncopy_log_store::{Failed, Kind, Store, create};

/// Length of a segment in bytes. (A flush is no longer: so many files, see [`MOST`].)
const SEGMENT: u32 = 128 << 10;
const SEGMENTS: u64 = 4;
/// Files that are known to be home, at most: then programs' logs must begin anew.
pub(crate) const MOST: usize = 1500;

/// See the module.
#[derive(Debug)]
pub(crate) struct Homes {
    store: Box<dyn Store>,
    log: Log,
    cursor: Cursor,
    last: Option<u64>,
    /// Indexes, and whose log has bytes of them.
    home: Vec<(u32, u64)>,
}

/// A superblock for a log that was just made.
pub(crate) fn first(place: &Place, size: u64, segment: u32) -> Superblock {
    let here = place.here();
    let mut uuid = [0; 16];
    let random = std::fs::File::open("/dev/urandom");
    let read = random.and_then(|mut file| std::io::Read::read_exact(&mut file, &mut uuid));
    if read.is_err() {
        uuid[..8].copy_from_slice(&now().to_le_bytes());
    }
    Superblock {
        uuid,
        host: here.host,
        filesystem: here.filesystem,
        boot: here.boot,
        epoch: 1,
        turn: 0,
        heartbeat: now(),
        size,
        segment,
        recovering: false,
    }
}

impl Homes {
    /// Begins anew: all that was in it counts no more. (So first everything else was recovered, and
    /// the logs of programs have begun their next epochs.)
    pub(crate) fn begin(place: &Place, kind: Kind) -> Result<Self, Failed> {
        let size = HEAD as u64 + SEGMENTS * u64::from(SEGMENT);
        let mut store = create(place, &Place::log_name(0), size, kind)?;
        let superblock = first(place, size, SEGMENT);
        let wrote = write_superblock(&mut *store, &superblock);
        wrote.map_err(|why| Failed { what: "write the service's log", why, hint: "" })?;
        let log = superblock.log();
        Ok(Self { store, log, cursor: Cursor::START, last: None, home: Vec::new() })
    }

    /// Says that what `client`'s log has of `index` is home, or must not come there. Durable once
    /// it returns.
    pub(crate) fn add(&mut self, index: u32, client: u64) -> Result<(), Errno> {
        if !self.home.contains(&(index, client)) {
            self.home.push((index, client));
        }
        self.write()
    }

    /// `client`'s log has begun anew: nothing need be known of what it had.
    pub(crate) fn forget(&mut self, client: u64) {
        self.home.retain(|(_, of)| *of != client);
    }

    /// Whether there is room for another file.
    pub(crate) fn has_room(&self) -> bool {
        self.home.len() < MOST
    }

    fn write(&mut self) -> Result<(), Errno> {
        loop {
            let mut flush = Flush::begin(&self.log, self.cursor, self.store.memory());
            let all = self.home.iter().all(|(index, _)| flush.home(*index, 0, u64::MAX).is_ok());
            let next = |cursor: Cursor| {
                cursor.next_segment(&self.log, self.last, Purpose::Home).map_err(|_| Errno::NOSPC)
            };
            if !all {
                self.cursor = next(self.cursor)?;
                continue;
            }
            let Some(written) = flush.finish() else { return Ok(()) };
            match self.store.flush(written.offset, written.length) {
                Ok(()) => {
                    (self.cursor, self.last) = (written.after, Some(written.segment));
                    return Ok(());
                }
                Err(why) => {
                    self.cursor = next(self.cursor).unwrap_or(self.cursor);
                    return Err(why);
                }
            }
        }
    }
}

/// The superblock of a log's file, for whoever looks at it only.
pub(crate) fn read_superblock(store: &dyn Store) -> Result<Superblock, String> {
    superblock(store).map_err(|why| why.to_string())
}
