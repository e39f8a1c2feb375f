//! Table, next hops and socket together, and the thread that keeps them.

use crate::hops::Hops;
use crate::kernel::Kernel;
use crate::messages::{All, Said, look_for};
use crate::table::{Change, Device, Hardware, NextHop, Table};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Linux is told so often of the neighbours that are in use: it does not see our frames, and would
/// find out late that one has moved.
const IN_USE: Duration = Duration::from_secs(15);

/// A neighbour that is in use and was lost is looked for so soon after news, in which it may come
/// back by itself,
const SOON: Duration = Duration::from_millis(100);
/// and again and again after so long, as long as something is sent there.
const LOST: Duration = Duration::from_secs(1);

/// The known ways of one device. Any thread may ask; [`Routes::keep`] is for one of its own.
#[derive(Debug)]
pub struct Routes {
    device: u32,
    /// Its hardware address, as a word.
    own: AtomicU64,
    table: Mutex<Table>,
    /// Of the table's routes: counted up with each change.
    version: AtomicU64,
    hops: Hops,
    /// Requests; nobody waits for their answers.
    asks: Kernel,
    /// Where changes are heard, and where all is asked for.
    news: Mutex<Option<(Kernel, Kernel)>>,
}

impl Routes {
    /// Reads all, and hears of changes from now on.
    ///
    /// # Errors
    /// No descriptor is left; the kernel refuses.
    pub fn of(device: u32) -> io::Result<Self> {
        // It hears before it asks, so that nothing is missed between.
        let news = Kernel::open(true)?;
        let mut dumps = Kernel::open(false)?;
        let mut table = Table::default();
        read_all(&mut dumps, &mut table)?;
        let own = AtomicU64::new(own_word(&table, device));
        Ok(Self {
            device,
            own,
            table: Mutex::new(table),
            version: AtomicU64::new(0),
            hops: Hops::new(),
            asks: Kernel::open(false)?,
            news: Mutex::new(Some((news, dumps))),
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device, as it is now.
    pub fn device(&self) -> Device {
        self.table().device(self.device).unwrap_or_default()
    }

    /// Its hardware address. No lock.
    #[inline]
    pub fn hardware(&self) -> Hardware {
        let [_, _, own @ ..] = self.own.load(Relaxed).to_be_bytes();
        own
    }

    /// Its addresses.
    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        self.table().addresses(self.device).collect()
    }

    /// An address of this host, by any of its devices.
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        self.table().is_own(address)
    }

    /// Another number: peers may be reached by another way.
    pub fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// The number of the next hop to a peer by this device; none: Linux has no such way there, or
    /// takes nothing that comes from there. Linux looks for one that it does not know.
    pub fn number(&self, peer: Ipv4Addr) -> Option<u16> {
        let table = self.table();
        let hop = table.way(peer, self.device)?;
        if table.is_nobody_else(peer) {
            return None;
        }
        let (number, new) = self.hops.number(hop)?;
        let at = table.neighbour(hop);
        if new {
            self.hops.set(hop, at);
        }
        if at.is_none() {
            self.look_for(hop);
        }
        Some(number)
    }

    /// Where the next hop of this number is. None: not known now.
    #[inline]
    pub fn find(&self, number: u16) -> Option<Hardware> {
        self.hops.find(number)
    }

    fn look_for(&self, hop: NextHop) {
        // (Refused, where it may not: then it is found when Linux itself sends there.)
        let _ = self.asks.send(&look_for(hop.device, hop.neighbour));
        let mut answers = [0u8; 256];
        let drop_them = rustix::net::RecvFlags::DONTWAIT;
        while rustix::net::recv(self.asks.descriptor(), &mut answers, drop_them).is_ok() {}
    }

    /// Hears Linux until `stop` can be read, and calls `changed` after each change.
    ///
    /// # Errors
    /// The socket's; the device is gone.
    ///
    /// # Panics
    /// It is called twice.
    pub fn keep(&self, stop: BorrowedFd<'_>, mut changed: impl FnMut()) -> io::Result<()> {
        let news = self.news.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (mut news, mut dumps) = news.expect("one thread keeps it");
        let mut told = Instant::now();
        // After news, neighbours may be lost that are in use.
        let mut looks = None;
        loop {
            let now = Instant::now();
            if now - told >= IN_USE {
                told = now;
                // (Linux forgets one that is fixed where it is told to use it.)
                let used = self.hops.used().into_iter();
                let fixed = |hop: &NextHop| self.table().is_fixed(*hop);
                used.filter(|hop| !fixed(hop)).for_each(|hop| self.look_for(hop));
            }
            if looks.is_some_and(|at| at <= now) {
                let missed = self.hops.missed();
                looks = (!missed.is_empty()).then(|| now + LOST);
                missed.into_iter().for_each(|hop| self.look_for(hop));
            }
            let next = looks.into_iter().chain([told + IN_USE]).min();
            let wait = next.map_or(IN_USE, |next| next.saturating_duration_since(now));
            let wait =
                Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
            let mut fds = [
                PollFd::from_borrowed_fd(news.descriptor(), PollFlags::IN),
                PollFd::from_borrowed_fd(stop, PollFlags::IN),
            ];
            match poll(&mut fds, Some(&wait)) {
                Ok(0) | Err(Errno::INTR) => continue,
                polled => polled?,
            };
            if !fds[1].revents().is_empty() {
                return Ok(());
            }
            match news.receive(false) {
                Ok(None) => {}
                Ok(Some(said)) => self.hear(&said),
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    let mut table = Table::default();
                    read_all(&mut dumps, &mut table)?;
                    self.hops.refresh(|hop| table.neighbour(hop));
                    *self.table() = table;
                    self.version.fetch_add(1, Release);
                }
                Err(error) => return Err(error),
            }
            let own = own_word(&self.table(), self.device);
            self.own.store(own, Relaxed);
            if self.table().device(self.device).is_none() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the device is gone"));
            }
            looks.get_or_insert(Instant::now() + SOON);
            changed();
        }
    }

    fn hear(&self, said: &Said) {
        let mut table = self.table();
        for change in &said.changes {
            table.apply(change);
            match *change {
                Change::Neighbour { device, address: neighbour, at, .. } => {
                    self.hops.set(NextHop { device, neighbour }, at);
                }
                Change::Route { .. } | Change::Device { .. } => {
                    self.version.fetch_add(1, Release);
                }
                _ => {}
            }
        }
    }
}

fn own_word(table: &Table, device: u32) -> u64 {
    let [a, b, c, d, e, f] = table.device(device).and_then(|d| d.address).unwrap_or_default();
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// By a socket that hears no news: where they overran it, the rest of a dump would be in the way of
/// the next question. Changes meanwhile come as news, and are taken behind this: the last of them
/// is how things are.
fn read_all(dumps: &mut Kernel, table: &mut Table) -> io::Result<()> {
    for what in [All::Devices, All::Addresses, All::Routes, All::Neighbours] {
        dumps.all(what, |said| said.changes.iter().for_each(|change| table.apply(change)))?;
    }
    Ok(())
}
