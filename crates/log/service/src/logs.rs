//! The logs that programs write, one each. A log is made once, which takes as long as the disk
//! needs for so many zeros, and is handed on from one program to the next: each begins a new epoch.

use crate::homes::first;
use crate::place::{LOGS, Place, now};
use rustix::fd::OwnedFd;
use rustix::fs::{renameat, unlinkat};
use std::thread::JoinHandle;
use uncopy_inject::Point;
use uncopy_kernel::inject;
use uncopy_log_record::{HEAD, SEGMENT};
use uncopy_log_share::writer::{superblock, write_superblock};
use uncopy_log_store::{Failed, Kind, Store, create, open};

/// Segments of a log, at least: some are live, one is kept free for what makes room.
const FEWEST: u64 = 4;

/// The holder of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Nobody,
    Client(u64),
}

#[derive(Debug)]
struct One {
    number: usize,
    of: Of,
    store: Box<dyn Store>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Logs {
    kind: Kind,
    bytes: u64,
    all: Vec<One>,
    making: Option<JoinHandle<Result<usize, Failed>>>,
    /// Why the last one could not be made.
    pub(crate) failed: Option<Failed>,
}

/// Makes a log that nobody has yet, under another name until it is whole.
fn make(place: &Place, number: usize, bytes: u64, kind: Kind) -> Result<usize, Failed> {
    let (name, new) = (Place::log_name(number), format!("{}.new", Place::log_name(number)));
    let made = create(place, &new, bytes, kind).and_then(|mut store| {
        let superblock = first(place, bytes, SEGMENT as u32);
        write_superblock(&mut *store, &superblock)
            .and_then(|()| renameat(place, &new, place, &name))
            .and_then(|()| rustix::fs::fsync(place))
            .map_err(|why| Failed { what: "put the new log in its place", why, hint: "" })
    });
    if made.is_err() {
        // (A part of a log is of no use, and takes room.)
        let _ = unlinkat(place, &new, rustix::fs::AtFlags::empty());
    }
    made.map(|()| number)
}

impl Logs {
    /// Those that are in `place`, which were recovered: each has begun a new epoch. `bytes`: of new
    /// ones.
    pub(crate) fn of(place: &Place, bytes: u64, kind: Kind) -> Self {
        let bytes = bytes.max(FEWEST * SEGMENT as u64) / SEGMENT as u64 * SEGMENT as u64;
        let mut logs =
            Self { kind, bytes: HEAD as u64 + bytes, all: Vec::new(), making: None, failed: None };
        for number in 1..LOGS {
            logs.add(place, number);
        }
        logs
    }

    fn add(&mut self, place: &Place, number: usize) {
        let Ok(Some(file)) = place.log(number) else { return };
        let Ok(store) = open(file, self.kind) else { return };
        if superblock(&*store).is_ok() {
            self.all.push(One { number, of: Of::Nobody, store });
        }
    }

    /// One is being made in the background, if none is free.
    pub(crate) fn prepare(&mut self, place: &Place) {
        if let Some(making) = self.making.take_if(|making| making.is_finished()) {
            match making.join() {
                Ok(Ok(number)) => self.add(place, number),
                Ok(Err(failed)) => self.failed = Some(failed),
                Err(_) => {}
            }
        }
        let free = self.all.iter().any(|one| one.of == Of::Nobody);
        if free || self.making.is_some() || self.failed.is_some() {
            return;
        }
        let number = (1..LOGS).find(|n| self.all.iter().all(|one| one.number != *n));
        let (Some(number), Ok(there)) = (number, Place::open(place.path())) else { return };
        let (bytes, kind) = (self.bytes, self.kind);
        self.making = Some(std::thread::spawn(move || make(&there, number, bytes, kind)));
    }

    /// One for `client`, of a new epoch. `None`: there is none yet.
    pub(crate) fn give(&mut self, place: &Place, client: u64) -> Option<(OwnedFd, Kind)> {
        self.prepare(place);
        let one = self.all.iter_mut().find(|one| one.of == Of::Nobody)?;
        let file = one.store.file().try_clone_to_owned().ok()?;
        begin(place, one)?;
        inject::point(Point::Begun);
        one.of = Of::Client(client);
        Some((file, self.kind))
    }

    /// `client` has gone, and all that its log has is home. False: that could not be said, and the
    /// log is used no more until the next start.
    pub(crate) fn take_back(&mut self, place: &Place, client: u64) -> bool {
        let Some(one) = self.all.iter_mut().find(|one| one.of == Of::Client(client)) else {
            return true;
        };
        let begun = begin(place, one).is_some();
        if begun {
            one.of = Of::Nobody;
        }
        begun
    }

    /// How many there are, and how many of them are used.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.all.len(), self.all.iter().filter(|one| one.of != Of::Nobody).count())
    }
}

/// The next epoch: nothing that it has counts any more.
fn begin(place: &Place, one: &mut One) -> Option<()> {
    // (The one who had it has written others meanwhile.)
    let last = superblock(&*one.store).ok()?;
    let next = last.succeed(&place.here(), now());
    write_superblock(&mut *one.store, &next).ok()
}
