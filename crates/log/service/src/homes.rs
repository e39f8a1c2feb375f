//! The service's own log: which files' bytes are home, that programs have in their logs. Each flush
//! says all that has to be known, so the last one suffices, and what is older may be written over.

use crate::place::{Place, now};
use rustix::fs::renameat;
use rustix::io::Errno;
use std::collections::HashSet;
use uncopy_log_record::{Cursor, Flush, HEAD, Log, Purpose, Scan, ScanItem, Superblock};
use uncopy_log_share::writer::{NoLog, superblock, write_superblock};
use uncopy_log_store::{Failed, Kind, Store, create, open};

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
        Self::named(place, &Place::log_name(0), kind)
    }

    fn named(place: &Place, name: &str, kind: Kind) -> Result<Self, Failed> {
        let size = HEAD as u64 + SEGMENTS * u64::from(SEGMENT);
        let mut store = create(place, name, size, kind)?;
        let superblock = first(place, size, SEGMENT);
        let wrote = write_superblock(&mut *store, &superblock);
        wrote.map_err(|why| Failed { what: "write the service's log", why, hint: "" })?;
        let log = superblock.log();
        Ok(Self { store, log, cursor: Cursor::START, last: None, home: Vec::new() })
    }

    /// As [`Homes::begin`], and what the one before has said counts still.
    pub(crate) fn resume(place: &Place, kind: Kind) -> Result<Self, Failed> {
        let failed = |why| Failed { what: "write the service's log", why, hint: "" };
        let name = Place::log_name(0);
        let new = format!("{name}.new");
        let known = said(place, kind).into_iter().map(|index| (index, 0));
        let mut homes = Self::named(place, &new, kind)?;
        homes.home = known.collect();
        homes.write().map_err(failed)?;
        renameat(place, &new, place, &name).map_err(failed)?;
        rustix::fs::fsync(place).map_err(failed)?;
        Ok(homes)
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

/// The holdings that the service's own log says are home.
pub(crate) fn said(place: &Place, kind: Kind) -> HashSet<u32> {
    let mut settled = HashSet::new();
    // (Where it is none no program has logged anything that had to be struck out.)
    let Ok(Some(file)) = place.log(0) else { return settled };
    let Ok(store) = open(file, kind) else { return settled };
    let Ok((superblock, bytes)) = whole(&*store) else { return settled };
    let Ok(scan) = Scan::new(&superblock.log(), &bytes) else { return settled };
    for found in scan {
        if let ScanItem::Record(record) = found {
            settled.insert(record.index);
        }
    }
    settled
}

/// All of a log.
pub(crate) fn whole(store: &dyn Store) -> Result<(Superblock, Vec<u8>), NoLog> {
    let superblock = superblock(store)?;
    let mut bytes = vec![0; store.bytes() as usize];
    store.read(0, &mut bytes).map_err(NoLog::Kernel)?;
    Ok((superblock, bytes))
}
