//! Large messages in blocks: what this process has given of its own arena, and what it has been
//! given of its peers'. See `uncopy_tcp_shared::runs` for how they come, and
//! `uncopy_tcp_shared::returns` for how they go back.
//!
//! A process has one arena, which it fills and which its peers map read-only. It is given to a peer
//! when a receiver there would take blocks; only where both could trace each other.
//!
//! Blocks outlive a program that dies: the arena's memory lives as long as somebody maps it.
//! A process that has mapped an arena holds a lock of it. The lock ends with the last process that
//! has the file description of then, and no earlier: until it is free nothing that the peer has not
//! given back is used again.
//!
//! unsafe: a system call.

use crate::lock::{Guarded, lock};
use crate::own::{Own, PAGES, Settling, UNUSED};
use crate::views::{Known, Views};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::any::Any;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use uncopy_kernel::call::syscall4;
use uncopy_kernel::descriptors::{Kept, OwnFd};
use uncopy_kernel::{clock, critical, placement};
use uncopy_tcp_blocks::out::Out;
use uncopy_tcp_blocks::pages::Block;
use uncopy_tcp_service::protocol::GIVERS;
use uncopy_tcp_shared::arena::{ARENA, Arena};
use uncopy_tcp_shared::layout::PAGE;
use uncopy_tcp_shared::region::SharedRegion;
use uncopy_tcp_shared::returns::Returns;
use uncopy_tcp_shared::ring::ARENAS;
use uncopy_tcp_shared::runs::Run;

/// Which messages go in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The bytes from which on a message goes in blocks.
    pub from: usize,
    /// Whether the receiver would take them or not, for tests.
    pub always: bool,
}

impl Blocks {
    /// None.
    pub const NONE: Self = Self { from: usize::MAX, always: false };
    /// Those that it pays for: up to 128 KB a view takes both ends as long as the copy, or longer.
    pub const LARGE: Self = Self { from: 256 << 10, always: false };
}

/// By which runs name a sender's own arena.
pub(crate) const NUMBER: u16 = 0;
/// Which that is of all that ever had the number: a region's side has one.
pub(crate) const OWN: u32 = 1;

/// After so many ms: there was no descriptor free, or no memory, or the service was behind.
const OFFERS_AGAIN: u64 = 1000;

/// An owner that is to stay as it is until a receiver is done with its bytes.
pub type Keeps = Arc<dyn Any + Send + Sync>;

/// The owner of arena bytes that go on from where they lie.
#[derive(Clone, Debug)]
pub(crate) enum Whose {
    /// A peer's, who has given them to this process.
    Peer(Arc<Peer>),
    /// This process' own: they were sent again and again ([`crate::settling`]).
    Own(Arc<Own>),
}

impl Whose {
    /// Where in it these bytes lie, which do.
    pub(crate) fn offset(&self, at: usize) -> u32 {
        match self {
            Self::Peer(peer) => peer.offset(at),
            Self::Own(own) => (at - own.range().0) as u32,
        }
    }
}

/// A range that is out to a peer.
#[derive(Debug)]
pub(crate) enum Given {
    /// A block of our own.
    Own(Block),
    /// A part of one that we were given, in the arena that the peer knows by this number.
    Onward(u16, Keeps),
    /// A part of a block of our own that has settled, which begins at this offset, and since when,
    /// in ms.
    Settled(Keeps, u32, u64),
}

/// Of one region: what this side has given to the other, and what it was given.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The process whose books they are; 0: a parent process', which a forked child leaves alone.
    process: AtomicU32,
    /// Our own arena, once the other side was offered it.
    own: OnceLock<Arc<Own>>,
    out: Guarded<Out<Given>>,
    /// How many parts of it keep something until they are back, and how many that are back have not
    /// been dropped.
    kept: AtomicUsize,
    /// Back, and to be dropped without a lock.
    freed: Guarded<Vec<Keeps>>,
    /// The other side's arenas, as they have come.
    peers: Guarded<[Option<Of>; ARENAS]>,
    /// Which of them can be read here: of each number the one that has it; 0: none.
    there: [AtomicU32; ARENAS],
    /// Those whose numbers are free again, until nothing of them is viewed.
    leaving: Guarded<Vec<Arc<Peer>>>,
    /// Arenas that we were given, and have offered.
    onward: Guarded<[Option<Onward>; ARENAS]>,
    /// The last of them, counted over all numbers.
    generation: AtomicU32,
    /// Our own was offered, or cannot be.
    offered: AtomicBool,
    /// If it could not for the moment it is tried again then, in ms.
    offers_again: AtomicU64,
    /// Nothing of the other side's is read here any more, and none of its arenas taken.
    forsworn: AtomicBool,
    /// It was another user's program's that this process is not any more: it is given nothing.
    another_users: AtomicBool,
}

/// Which of those that had a number.
type Of = (u32, Arc<Peer>);

/// An arena that we were given, and have offered to another peer.
#[derive(Debug)]
struct Onward {
    /// Which.
    id: u64,
    /// By this the other side tells it from others that had its number.
    generation: u32,
    /// It is mapped as long as something of it is out, also in children that may have to send that
    /// by Linux. None: nothing is, and the other side was told so.
    peer: Option<Arc<Peer>>,
    /// Its program has ended: nothing more of it is given.
    ends: bool,
    /// The other side was told so.
    told: bool,
}

/// A place in a block, to be filled.
pub(crate) struct Place<'a> {
    pub own: &'a Own,
    pub at: u32,
    pub handle: u16,
}

impl Exchange {
    /// The books of this process.
    pub fn new(process: u32) -> Self {
        Self {
            process: AtomicU32::new(process),
            own: OnceLock::new(),
            out: Guarded::default(),
            kept: AtomicUsize::new(0),
            freed: Guarded::default(),
            peers: Guarded::default(),
            there: [const { AtomicU32::new(0) }; ARENAS],
            leaving: Guarded::default(),
            onward: Guarded::default(),
            generation: AtomicU32::new(OWN),
            offered: AtomicBool::new(false),
            offers_again: AtomicU64::new(0),
            forsworn: AtomicBool::new(false),
            another_users: AtomicBool::new(false),
        }
    }

    /// Leaves the books alone in a forked child.
    pub fn is_inherited(&self) {
        self.process.store(0, Ordering::Relaxed);
    }

    /// Before fork: a child reads what its parent's peers have given, and sends by Linux what its
    /// parent has. (It may drop what it does not use.)
    pub fn hold(&self) {
        self.out.hold();
        self.peers.hold();
        self.leaving.hold();
        self.onward.hold();
        self.freed.hold();
    }

    /// After it.
    pub fn let_go(&self) {
        self.freed.let_go();
        self.onward.let_go();
        self.leaving.let_go();
        self.peers.let_go();
        self.out.let_go();
    }

    /// It is this process's own. (A child of vfork has its memory, and is another.)
    fn is_own(&self) -> bool {
        self.process.load(Ordering::Relaxed) == std::process::id()
    }

    /// Our own arena, if the other side was offered it.
    pub fn own(&self) -> Option<&Own> {
        self.own.get().map(|own| &**own)
    }

    /// It is this one.
    pub fn gives(&self, own: &Arc<Own>) -> bool {
        self.own.get().is_some_and(|given| Arc::ptr_eq(given, own))
    }

    /// A block of it for so many bytes that settle. `None`: there is no room, or it was not
    /// offered.
    pub fn settling(&self, bytes: usize) -> Option<Settling> {
        let own = self.own.get()?;
        Settling::new(own.clone(), bytes)
    }

    /// One of the other side's, if it has come.
    #[inline]
    pub fn peer(&self, number: u16) -> Option<Arc<Peer>> {
        if self.there.get(usize::from(number))?.load(Ordering::Acquire) == 0 {
            return None;
        }
        Some(lock(&self.peers)[usize::from(number)].as_ref()?.1.clone())
    }

    /// Which of them can be read here, as the other side is to be told with the lock of the
    /// receiving end held. (A child's numbers of what its parent was given may be others' by now.)
    pub fn there(&self) -> [u32; ARENAS] {
        let inherited = self.process.load(Ordering::Relaxed) == 0;
        let of = |number: usize| match inherited && number != usize::from(NUMBER) {
            true => 0,
            false => self.there[number].load(Ordering::Acquire),
        };
        std::array::from_fn(of)
    }

    /// The one in whose memory these bytes lie.
    pub fn peer_with(&self, at: usize, bytes: usize) -> Option<Arc<Peer>> {
        let inside = |peer: &&Arc<Peer>| {
            let (base, len) = peer.memory();
            at >= base && at.saturating_add(bytes) <= base + len
        };
        if self.there.iter().all(|there| there.load(Ordering::Acquire) == 0) {
            return None;
        }
        lock(&self.peers).iter().flatten().map(|(_, peer)| peer).find(inside).cloned()
    }

    /// Room for so many bytes to the connection of this slot. `None`: they are to be copied.
    pub fn room(&self, returns: &Returns, slot: usize, bytes: u32) -> Option<Place<'_>> {
        let own = self.own()?;
        let mut out = lock(&self.out);
        self.take_back(&mut out, returns);
        let slot = u8::try_from(slot).ok()?;
        if !out.may(slot, bytes) {
            return None;
        }
        let block = own.take(bytes, out.bytes())?;
        match out.give(slot, bytes, Given::Own(block)) {
            Ok(handle) => {
                returns.begin(handle);
                Some(Place { own, at: block.page * PAGE as u32, handle })
            }
            Err(_) => {
                own.give_back(block);
                None
            }
        }
    }

    /// By which number the other side knows this arena, which we were given, and which it is of
    /// those that had it: as soon as its ends say so. `None`: by none yet.
    pub fn number_of(&self, peer: &Peer) -> Option<(u16, u32)> {
        let onward = lock(&self.onward);
        let same = |of: &Option<Onward>| of.as_ref().is_some_and(|of| of.id == peer.id && !of.ends);
        let number = onward.iter().position(same)?;
        Some((number as u16, onward[number].as_ref()?.generation))
    }

    /// A number for this arena, which is to be offered: one that none has, or that was another's,
    /// which some end there may still take it for. So no two are of one generation.
    pub fn new_number(&self, peer: &Arc<Peer>) -> Option<(u16, u32)> {
        let mut onward = lock(&self.onward);
        let same = |of: &Option<Onward>| of.as_ref().is_some_and(|of| of.id == peer.id);
        if onward.iter().any(same) || peer.ends.load(Ordering::Acquire) {
            return None;
        }
        let free = |(number, of): (usize, &Option<Onward>)| {
            let free = of.as_ref().is_none_or(|of| of.peer.is_none());
            number > 0 && free
        };
        let number = onward.iter().enumerate().position(free)?;
        let generation = self.generation.load(Ordering::Relaxed).checked_add(1)?;
        self.generation.store(generation, Ordering::Relaxed);
        let (id, peer) = (peer.id, Some(peer.clone()));
        onward[number] = Some(Onward { id, generation, peer, ends: false, told: false });
        Some((number as u16, generation))
    }

    /// It could not be offered.
    pub fn no_number(&self, (number, generation): (u16, u32)) {
        let of = &mut lock(&self.onward)[usize::from(number)];
        let _ = of.take_if(|of| of.generation == generation);
    }

    /// Gives so many bytes of this arena, from this offset on, to the connection of this slot,
    /// whose end is `sole`: this process alone holds it. `keeps` is dropped once they are back.
    /// `None`: they are to be copied.
    pub fn give_on(
        &self,
        returns: &Returns,
        (slot, at, bytes): (usize, u32, u32),
        (number, whose): (u16, &Whose),
        keeps: &Keeps,
        sole: impl Fn() -> bool,
    ) -> Option<u16> {
        let now = clock::millis();
        let mut out = lock(&self.out);
        self.take_back(&mut out, returns);
        let onward = lock(&self.onward);
        let (there, given) = match whose {
            Whose::Own(_) => (true, Given::Settled(keeps.clone(), at, now)),
            Whose::Peer(peer) => {
                let of = onward.get(usize::from(number))?.as_ref();
                let there = of.is_some_and(|of| of.id == peer.id && !of.ends);
                (there, Given::Onward(number, keeps.clone()))
            }
        };
        // (A fork holds these books meanwhile: the child has what is given before.)
        if !sole() || !there {
            return None;
        }
        let slot = u8::try_from(slot).ok()?;
        let handle = out.give(slot, bytes, given).ok()?;
        if let Whose::Own(own) = whose {
            own.is_given(at, now);
        }
        self.kept.fetch_add(1, Ordering::Relaxed);
        returns.begin(handle);
        Some(handle)
    }

    /// What this connection, whose receiver views nothing, was given last of what has settled is
    /// out for long: its receiver does not read on.
    pub fn is_slow(&self, returns: &Returns, slot: usize) -> bool {
        let mut out = lock(&self.out);
        self.take_back(&mut out, returns);
        u8::try_from(slot).is_ok_and(|slot| is_slow(&out, slot, clock::millis()))
    }

    /// Where a part of a run lies that we have given. `None`: nowhere here; a forked child does not
    /// know what its parent has given since.
    pub fn given(&self, run: Run) -> Option<*const u8> {
        if run.arena == NUMBER {
            let own = self.own()?;
            return own.memory.address(run.at, run.bytes).map(<*mut u8>::cast_const);
        }
        let onward = lock(&self.onward);
        onward.get(usize::from(run.arena))?.as_ref()?.peer.as_ref()?.address(run)
    }

    /// Something of arenas that we were given is out, or is to be dropped.
    pub fn keeps_some(&self) -> bool {
        self.kept.load(Ordering::Relaxed) > 0
    }

    /// Blocks of others that were given on, and that are back, go back themselves. Not with a lock
    /// held.
    pub fn collects(&self, returns: &Returns) {
        if !self.is_own() {
            return;
        }
        self.take_back(&mut lock(&self.out), returns);
        self.drops_freed();
    }

    fn drops_freed(&self) {
        if !critical::may_wait() {
            return;
        }
        let freed = std::mem::take(&mut *lock(&self.freed));
        self.kept.fetch_sub(freed.len(), Ordering::Relaxed);
        drop(freed);
    }

    /// The other side hears which arenas are of programs that have ended, and then that their
    /// numbers are free: by `tells`, until that says that it has told it. True: again later.
    pub fn arenas_end(
        &self,
        returns: &Returns,
        mut tells: impl FnMut((u16, u32), bool) -> bool,
    ) -> bool {
        if !self.is_own() {
            return false;
        }
        // (They may go with that, which is not for with a lock.)
        let mut over = vec![];
        let mut out = lock(&self.out);
        self.take_back(&mut out, returns);
        let mut onward = lock(&self.onward);
        let mut again = false;
        for (number, of) in onward.iter_mut().enumerate() {
            let Some(of) = of else { continue };
            let Some(peer) = &of.peer else { continue };
            of.ends |= peer.ends.load(Ordering::Acquire);
            if !of.ends {
                continue;
            }
            let number = number as u16;
            let is_out = |given: &Given| matches!(given, Given::Onward(n, _) if *n == number);
            of.told = of.told || tells((number, of.generation), false);
            if of.told && !out.all().any(is_out) && tells((number, of.generation), true) {
                over.extend(of.peer.take());
            } else {
                again = true;
            }
        }
        again
    }

    /// The other side's program has ended, and nobody looks at what it has given: so have its
    /// arenas, for those that they were given on to.
    pub fn all_end(&self) {
        if self.is_own() {
            self.peers().for_each(|peer| peer.ends.store(true, Ordering::Release));
        }
    }

    /// The other side says that this arena is an ended program's. `done`: nothing unread names it.
    /// True: there is something to be let go of.
    pub fn ends(&self, (number, generation): (u64, u32), done: bool) -> bool {
        let peers = lock(&self.peers);
        let of = usize::try_from(number).ok().and_then(|number| peers.get(number)?.as_ref());
        let Some((_, peer)) = of.filter(|of| of.0 == generation && generation != OWN) else {
            return false;
        };
        peer.ends.store(true, Ordering::Release);
        peer.done.fetch_or(done, Ordering::Release);
        true
    }

    /// By numbers that are free now nothing is found from here on. (The ends that were announced
    /// for them stay: these are of the arenas that had them.)
    pub fn frees_numbers(&self) {
        if !self.is_own() {
            return;
        }
        let mut peers = lock(&self.peers);
        for (of, there) in peers.iter_mut().zip(&self.there) {
            if let Some((_, peer)) = of.take_if(|of| of.1.done.load(Ordering::Acquire)) {
                there.store(0, Ordering::Release);
                lock(&self.leaving).push(peer);
            }
        }
    }

    /// Those that have numbers.
    fn peers(&self) -> impl Iterator<Item = Arc<Peer>> + use<> {
        let peers = lock(&self.peers).clone();
        peers.into_iter().flatten().map(|(_, peer)| peer)
    }

    /// The other side has given some, and they are mapped here.
    pub fn has_arenas(&self) -> bool {
        self.there.iter().any(|there| there.load(Ordering::Acquire) != 0)
    }

    /// From now on this process is another user's than when they met.
    pub fn user_changes(&self) {
        self.another_users.store(true, Ordering::Release);
    }

    /// So it is.
    pub fn is_another_users(&self) -> bool {
        self.another_users.load(Ordering::Relaxed)
    }

    /// Nobody here reads what the other side has sent, from now on: its arenas are let go of.
    pub fn forswears(&self) {
        self.forsworn.store(true, Ordering::Release);
    }

    /// That is so, and some are mapped still.
    pub fn is_to_be_forsworn(&self) -> bool {
        self.forsworn.load(Ordering::Acquire) && self.is_own() && self.has_arenas()
    }

    /// Something of an ended program's is viewed here still.
    pub fn has_leaving(&self) -> bool {
        let ends = |peer: Arc<Peer>| peer.ends.load(Ordering::Acquire);
        self.is_own() && (!lock(&self.leaving).is_empty() || self.peers().any(ends))
    }

    /// Views of ended programs' arenas (`all`: of any) are called back. Arenas without views go.
    /// Not with a lock held.
    pub fn recalls(&self, all: bool) {
        if !self.is_own() {
            return;
        }
        let mut peers: Vec<Arc<Peer>> = self.peers().collect();
        peers.retain(|peer| all || peer.ends.load(Ordering::Acquire));
        peers.extend(lock(&self.leaving).iter().cloned());
        peers.iter().for_each(|peer| peer.recalls());
        drop(peers);
        if all && self.viewed() == 0 {
            // (It may be our own that we hold so, and would wait for.)
            self.there.iter().for_each(|there| there.store(0, Ordering::Release));
            let mut peers = lock(&self.peers);
            let all = peers.iter_mut().filter_map(Option::take);
            lock(&self.leaving).extend(all.map(|(_, peer)| peer));
        }
        // (Nobody finds these any more: so nothing more of them is handed over.)
        let is_over = |peer: &mut Arc<Peer>| {
            Arc::get_mut(peer).is_some_and(|peer| *peer.viewed.get_mut() == 0)
        };
        let over: Vec<_> = lock(&self.leaving).extract_if(.., is_over).collect();
        drop(over);
    }

    /// Nobody looks at it again: all that it was given, and has given on, goes. Not with a lock
    /// held.
    pub fn lets_go(&self) {
        if self.is_own() {
            self.recalls(true);
            let mut onward = lock(&self.onward);
            let peers: Vec<_> =
                onward.iter_mut().flatten().filter_map(|of| of.peer.take()).collect();
            drop((onward, peers));
            self.drops_freed();
        }
    }

    /// Ranges of the other side's that were handed over, and are not released.
    fn viewed(&self) -> usize {
        let viewed = |peer: &Arc<Peer>| peer.viewed.load(Ordering::Acquire);
        let known: usize = lock(&self.peers).iter().flatten().map(|of| viewed(&of.1)).sum();
        known + lock(&self.leaving).iter().map(viewed).sum::<usize>()
    }

    /// Nothing of the other side's is viewed here, and nothing of ours is out to it; or nobody is
    /// left who could look at that: then it is ours again. `id` names the region.
    pub fn is_over(&self, returns: &Returns, id: u64) -> bool {
        self.process.load(Ordering::Relaxed) == 0
            // (In this order: what was given back to whom it came from keeps what is viewed.)
            || self.is_own() && self.is_back(returns, id) && self.viewed() == 0
    }

    fn is_back(&self, returns: &Returns, id: u64) -> bool {
        let mut out = lock(&self.out);
        self.take_back(&mut out, returns);
        if out.is_empty() {
            return true;
        }
        let held = |fd: BorrowedFd| is_held(fd, id) != Ok(false);
        let own = self.own().is_some_and(|own| held(own.memory()));
        let others = || {
            let onward = lock(&self.onward);
            let mut peers = onward.iter().flatten().filter_map(|of| of.peer.as_ref());
            peers.any(|peer| held(peer.held.as_fd()))
        };
        if own || others() {
            return false;
        }
        let all: Vec<Given> = out.take_all().collect();
        self.has_back(all.into_iter());
        true
    }

    fn take_back(&self, out: &mut Out<Given>, returns: &Returns) {
        returns.collect(|handle, done| self.has_back(out.done(handle, done).into_iter()));
    }

    fn has_back(&self, back: impl Iterator<Item = Given>) {
        for given in back {
            match given {
                Given::Own(block) => {
                    if let Some(own) = self.own() {
                        own.give_back(block);
                    }
                }
                Given::Onward(_, keeps) => lock(&self.freed).push(keeps),
                Given::Settled(keeps, at, _) => {
                    if let Some(own) = self.own() {
                        own.is_back(at);
                    }
                    lock(&self.freed).push(keeps);
                }
            }
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.is_own() {
            // (Memory that is viewed stays, whatever was found before.)
            let leaving = lock(&self.leaving).clone();
            let peers = self.peers().chain(leaving);
            peers.filter(|peer| peer.viewed.load(Ordering::Acquire) > 0).for_each(std::mem::forget);
        }
        if self.is_own()
            && let Some(own) = self.own.get()
        {
            let pages = |given| match given {
                Given::Own(block) => block.pages as usize,
                Given::Onward(..) => 0,
                // (It may be viewed still: so its block is never used again.)
                Given::Settled(keeps, ..) => {
                    std::mem::forget(keeps);
                    0
                }
            };
            let out: Vec<Given> = lock(&self.out).take_all().collect();
            let lost: usize = out.into_iter().map(pages).sum();
            own.loses(lost);
        }
    }
}

/// A peer's arena, of which this process is given blocks.
#[derive(Debug)]
pub struct Peer {
    /// Which of this process'.
    id: u64,
    memory: Arena,
    /// The descriptor that holds this process' locks of it.
    held: Kept,
    /// By which regions it has come, the last its own.
    by: Vec<u64>,
    /// Its program has ended: nothing more of it is viewed.
    ends: AtomicBool,
    /// And nothing that is unread names it.
    done: AtomicBool,
    /// The region by which it comes, and the side of it that we are.
    region: Arc<SharedRegion>,
    side: usize,
    /// Ranges that were handed over, and are not released.
    viewed: AtomicUsize,
    /// By which handle they are given back: by the page in which they begin, one more than it.
    handles: OnceLock<Box<[AtomicU16]>>,
    /// The same of those that begin in a page where another one does: what was sent more than once
    /// ([`Again`]).
    again: [AtomicU64; AGAIN],
    /// How many of these there are.
    agains: AtomicUsize,
    known: Known,
}

/// So many ranges of a peer's that begin where others do may be out.
const AGAIN: usize = 32;

/// Such a range, in a word: where it begins, how long it is, one more than its handle. 0: none.
#[derive(Clone, Copy)]
struct Again(u64);

impl Again {
    const LENGTH: u32 = 24;
    const HANDLE: u32 = 12;

    /// `None`: it does not fit.
    fn of(run: Run) -> Option<Self> {
        const _: () = assert!(ARENA <= 1 << (u64::BITS - Again::LENGTH - Again::HANDLE));
        let handle = u64::from(run.handle) + 1;
        (run.bytes < 1 << Self::LENGTH && handle < 1 << Self::HANDLE)
            .then(|| Self(Self::place(run.at, run.bytes) | handle))
    }

    fn place(at: u32, bytes: u32) -> u64 {
        (u64::from(at) << Self::LENGTH | u64::from(bytes)) << Self::HANDLE
    }

    fn is_of(self, at: u32, bytes: u32) -> bool {
        self.0 != 0 && self.0 >> Self::HANDLE == Self::place(at, bytes) >> Self::HANDLE
    }

    fn handle(self) -> u16 {
        ((self.0 & ((1 << Self::HANDLE) - 1)) - 1) as u16
    }
}

impl Peer {
    /// Where a part of a run lies. `None`: nowhere in it.
    #[inline]
    pub(crate) fn address(&self, run: Run) -> Option<*const u8> {
        self.memory.address(run.at, run.bytes).map(<*mut u8>::cast_const)
    }

    /// Where it lies, and how long it is.
    pub fn memory(&self) -> (usize, usize) {
        (self.memory.base(), ARENA)
    }

    /// The region that it is to the owner of views; made once, dropped before its memory goes.
    /// `None`: it could not be made.
    pub fn known<T: Views>(&self, make: impl FnOnce() -> Option<T>) -> Option<&T> {
        self.known.get(make)
    }

    /// The descriptor and the regions that a peer is told when it is given this arena. `None`: it
    /// has come by many already.
    pub(crate) fn introduces(&self) -> Option<(BorrowedFd<'_>, [u64; GIVERS])> {
        let mut by = [0; GIVERS];
        by.get_mut(..self.by.len())?.copy_from_slice(&self.by);
        Some((self.held.as_fd(), by))
    }

    /// Where in it these bytes lie, which do.
    pub(crate) fn offset(&self, at: usize) -> u32 {
        (at - self.memory.base()) as u32
    }

    /// Views of it in this process are called back.
    fn recalls(&self) {
        if self.viewed.load(Ordering::Acquire) > 0
            && let Some(known) = self.known.made()
        {
            known.recall();
        }
    }

    /// Notes that a range is handed over. False: too many that begin in the same page are still
    /// out.
    pub(crate) fn hands_over(&self, run: Run) -> bool {
        if self.ends.load(Ordering::Acquire) {
            return false;
        }
        let new = || (0..PAGES).map(|_| AtomicU16::new(0)).collect();
        let handle = &self.handles.get_or_init(new)[run.at as usize / PAGE];
        // (There is none of the highest number.)
        let Some(noted) = run.handle.checked_add(1) else { return false };
        let free = handle.compare_exchange(0, noted, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let taken = free || self.notes_again(run);
        if taken {
            self.viewed.fetch_add(1, Ordering::AcqRel);
        }
        taken
    }

    fn notes_again(&self, run: Run) -> bool {
        let Some(again) = Again::of(run) else { return false };
        self.agains.fetch_add(1, Ordering::AcqRel);
        let free = |slot: &AtomicU64| {
            slot.compare_exchange(0, again.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let noted = self.again.iter().any(free);
        if !noted {
            self.agains.fetch_sub(1, Ordering::AcqRel);
        }
        noted
    }

    /// By which handle a range comes back that was handed over: it is noted no more. (Of two that
    /// are alike either is the one: as many bytes of both come back.)
    fn handle_of(&self, at: u32, bytes: u32) -> Option<u16> {
        if self.agains.load(Ordering::Acquire) > 0 {
            for slot in &self.again {
                let noted = slot.load(Ordering::Acquire);
                if Again(noted).is_of(at, bytes)
                    && slot.compare_exchange(noted, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
                {
                    self.agains.fetch_sub(1, Ordering::AcqRel);
                    return Some(Again(noted).handle());
                }
            }
        }
        let handle = self.handles.get()?.get(at as usize / PAGE)?.swap(0, Ordering::AcqRel);
        handle.checked_sub(1)
    }

    /// A range that was handed over, of so many bytes from this address on, is not used any more.
    /// Any thread may say so.
    pub fn released(&self, at: usize, bytes: usize) {
        let at = at.wrapping_sub(self.memory.base());
        if at < ARENA
            && let Some(handle) = self.handle_of(at as u32, bytes as u32)
        {
            self.region.returns(1 - self.side).done(handle, bytes as u32);
            // Last: from here on the region may go.
            self.viewed.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Before its memory.
        self.known.end();
    }
}

impl Exchange {
    /// It is to be offered now: the first time it is asked, or a while after it could not be.
    pub fn is_to_be_offered(&self) -> bool {
        !self.offered.load(Ordering::Relaxed)
            && clock::millis() >= self.offers_again.load(Ordering::Relaxed)
            && !self.offered.swap(true, Ordering::AcqRel)
            && is_dumpable()
    }

    /// It could not be offered for the moment.
    pub fn was_not_offered(&self) {
        self.offers_again.store(clock::millis() + OFFERS_AGAIN, Ordering::Relaxed);
        self.offered.store(false, Ordering::Release);
    }

    /// The other side was given our arena.
    pub fn was_offered(&self, own: Arc<Own>) {
        let _ = self.own.set(own);
    }

    /// An arena of the other side's has come, `by` these regions before its own. A peer that gives
    /// a number anew has nothing out any more by the arena that had it.
    pub(crate) fn takes(
        &self,
        fd: OwnFd,
        (number, generation): (u64, u32),
        region: &Arc<SharedRegion>,
        (id, side): (u64, usize),
        by: [u64; GIVERS],
    ) -> Result<(), Errno> {
        let number = usize::try_from(number).map_err(|_| Errno::INVAL)?;
        let is_own = number == usize::from(NUMBER);
        let has = lock(&self.peers).get(number).ok_or(Errno::INVAL)?.as_ref().map(|of| of.0);
        let fits = is_own == (generation == OWN) && generation != 0;
        let forsworn = self.forsworn.load(Ordering::Acquire);
        if !fits || forsworn || has.is_some_and(|has| has >= generation) || !is_dumpable() {
            return Err(Errno::INVAL);
        }
        let memory = Arena::of_peer(placement::SHARED.next(ARENA), &fd)?;
        // (Opened anew: locks are of what was opened.)
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let held = Kept::if_room(|| rustix::fs::open(path, flags, Mode::empty()))?;
        let by: Vec<u64> = by.into_iter().filter(|id| *id != 0).chain([id]).collect();
        by.iter().try_for_each(|&id| hold(held.as_fd(), id))?;
        static LAST: AtomicU64 = AtomicU64::new(0);
        let peer = Peer {
            id: LAST.fetch_add(1, Ordering::Relaxed),
            memory,
            held,
            by,
            ends: AtomicBool::new(false),
            done: AtomicBool::new(false),
            region: region.clone(),
            side,
            viewed: AtomicUsize::new(0),
            handles: OnceLock::new(),
            again: [const { AtomicU64::new(0) }; AGAIN],
            agains: AtomicUsize::new(0),
            known: Known::default(),
        };
        let mut peers = lock(&self.peers);
        if let Some((_, last)) = peers[number].replace((generation, Arc::new(peer))) {
            last.ends.store(true, Ordering::Release);
            last.done.store(true, Ordering::Release);
            lock(&self.leaving).push(last);
        }
        self.there[number].store(generation, Ordering::Release);
        Ok(())
    }
}

/// See [`Exchange::is_slow`]. (Each part that is not read keeps the whole block of a value.)
fn is_slow(out: &Out<Given>, slot: u8, now: u64) -> bool {
    let since = out.of(slot).filter_map(|given| match given {
        Given::Settled(_, _, since) => Some(*since),
        Given::Own(_) | Given::Onward(..) => None,
    });
    since.max().is_some_and(|last| now.saturating_sub(last) >= UNUSED)
}

/// Others of its user's may look at its memory: else none of its bytes are to be seen by all who
/// have its arena, and it is not to believe theirs.
pub(crate) fn is_dumpable() -> bool {
    rustix::process::dumpable_behavior() == Ok(rustix::process::DumpableBehavior::Dumpable)
}

/// One byte of the arena's file for each region.
fn byte(id: u64, kind: i32) -> libc::flock {
    // SAFETY: plain data.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_start = (id & i64::MAX as u64) as i64;
    lock.l_len = 1;
    lock
}

/// Says that this process, and each child of it, has what it is given by this region.
fn hold(fd: BorrowedFd, id: u64) -> Result<(), Errno> {
    locks(fd, libc::F_OFD_SETLK, &mut byte(id, libc::F_RDLCK))
}

/// Whether any process does.
fn is_held(fd: BorrowedFd, id: u64) -> Result<bool, Errno> {
    let mut lock = byte(id, libc::F_WRLCK);
    locks(fd, libc::F_OFD_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

fn locks(fd: BorrowedFd, what: i32, lock: &mut libc::flock) -> Result<(), Errno> {
    let (fd, lock) = (fd.as_raw_fd() as usize, std::ptr::from_mut(lock) as usize);
    // SAFETY: reads and writes the lock's description.
    let done = unsafe { syscall4(libc::SYS_fcntl as usize, fd, what as usize, lock, 0) };
    if done < 0 { Err(Errno::from_raw_os_error(-done as i32)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memfd() -> std::os::fd::OwnedFd {
        rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
    }

    fn region() -> Arc<SharedRegion> {
        Arc::new(SharedRegion::map(0, uncopy_tcp_shared::region::create().unwrap()).unwrap())
    }

    /// The exchange with a program, of which one arena has come.
    fn given() -> (Exchange, Arc<Peer>) {
        let exchange = Exchange::new(std::process::id());
        let (_, fd) = Arena::create(0).unwrap();
        let number = (NUMBER.into(), OWN);
        exchange.takes(OwnFd::from(fd), number, &region(), (1, 0), [0; GIVERS]).unwrap();
        let peer = exchange.peer(NUMBER).unwrap();
        (exchange, peer)
    }

    #[test]
    fn viewed_memory_stays_when_the_books_go() {
        let (exchange, peer) = given();
        let run = Run { position: 0, bytes: 10, at: 0, arena: NUMBER, handle: 0 };
        assert!(peer.hands_over(run));
        let lives = Arc::downgrade(&peer);
        drop((exchange, peer));
        assert!(lives.upgrade().is_some());
        let (exchange, peer) = given();
        assert!(peer.hands_over(run));
        peer.released(peer.memory().0, 10);
        let lives = Arc::downgrade(&peer);
        drop((exchange, peer));
        assert!(lives.upgrade().is_none());
    }

    #[test]
    fn a_connection_whose_last_settled_part_is_out_for_long_is_slow_until_that_is_back() {
        let mut out = Out::default();
        let settled = |out: &mut Out<Given>, slot, since| {
            out.give(slot, 10, Given::Settled(Arc::new(()), 0, since)).unwrap()
        };
        let _first = settled(&mut out, 1, 0);
        assert!(!is_slow(&out, 1, UNUSED - 1) && is_slow(&out, 1, UNUSED));
        let second = settled(&mut out, 1, UNUSED - 1);
        let _others = settled(&mut out, 2, UNUSED);
        assert!(!is_slow(&out, 1, UNUSED), "it reads on");
        assert!(is_slow(&out, 1, 2 * UNUSED - 1) && !is_slow(&out, 2, 2 * UNUSED - 1));
        assert!(out.done(second, 10).is_some());
        let third = settled(&mut out, 3, 0);
        assert!(is_slow(&out, 3, UNUSED));
        assert!(out.done(third, 10).is_some());
        assert!(!is_slow(&out, 3, UNUSED));
    }

    #[test]
    fn that_a_program_has_ended_is_said_until_it_was_told() {
        let ((giver, peer), to, region) = (given(), Exchange::new(std::process::id()), region());
        let number = to.new_number(&peer).unwrap();
        let tells = |heard: bool| {
            let mut said = vec![];
            let again = to.arenas_end(region.returns(0), |number, done| {
                said.push((number, done));
                heard
            });
            (said, again)
        };
        assert_eq!(tells(true), (vec![], false));
        giver.all_end();
        assert_eq!(tells(false), (vec![(number, false)], true));
        assert_eq!(tells(false), (vec![(number, false)], true));
        assert_eq!(tells(true), (vec![(number, false), (number, true)], false));
        assert_eq!(tells(true), (vec![], false));
    }

    #[test]
    fn a_region_is_held_until_what_was_opened_is_closed_everywhere() {
        let fd = memfd();
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let opened = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
        let id = i64::MAX as u64 - 4;
        assert_eq!(is_held(fd.as_fd(), id), Ok(false));
        hold(opened.as_fd(), id).unwrap();
        let copy = opened.try_clone().unwrap();
        assert_eq!((is_held(fd.as_fd(), id), is_held(fd.as_fd(), id - 2)), (Ok(true), Ok(false)));
        drop(opened);
        assert_eq!(is_held(fd.as_fd(), id), Ok(true), "a copy is open, as in a forked child");
        drop(copy);
        assert_eq!(is_held(fd.as_fd(), id), Ok(false));
    }
}
