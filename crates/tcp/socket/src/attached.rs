//! A slot of a region, as one of its two sides sees it.

use crate::door::OwnDoor;
use crate::mapped::Mapped;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use uncopy_tcp_service::Client;
use uncopy_tcp_shared::layout::{Direction, Header};
use uncopy_tcp_shared::notice::SLOTS;
use uncopy_tcp_shared::phase::At;
use uncopy_tcp_shared::region::Slot;
use uncopy_tcp_shared::ring::{FINISHED, OWES, RECEIVES, RING, TAKES_BLOCKS};
use uncopy_tcp_shared::wanted::{ASK, DOORS, Doors};

/// See above.
#[derive(Debug)]
pub(crate) struct Attached {
    pub mapped: Arc<Mapped>,
    pub slot: usize,
    pub generation: u32,
    /// The other side's own door for it.
    pub other_door: OnceLock<OwnDoor>,
    /// As Linux names the socket (SO_COOKIE).
    pub cookie: u64,
}

/// A ring with so many bytes in it has room enough for poll to say so, as Linux does: a third of
/// the buffer.
pub(crate) fn has_room(used: u32) -> bool {
    RING.saturating_sub(used) >= RING / 3
}

impl Attached {
    #[inline]
    pub fn slot(&self) -> Slot<'_> {
        self.mapped.region.slot(self.slot)
    }

    /// The direction that we write.
    #[inline]
    pub fn out(&self) -> &Direction {
        &self.slot_header().directions[self.mapped.side]
    }

    /// The direction that we read.
    #[inline]
    pub fn inward(&self) -> &Direction {
        &self.slot_header().directions[1 - self.mapped.side]
    }

    #[inline]
    pub fn slot_header(&self) -> &Header {
        self.slot().header
    }

    /// The other side has attached: its socket is our peer.
    #[inline]
    pub fn peer_is_here(&self) -> bool {
        let ends = &self.slot_header().ends;
        ends[1 - self.mapped.side].attached.load(Ordering::Acquire) == self.generation
    }

    /// The program receives no more, whichever of its processes said so.
    #[inline]
    pub fn is_shut(&self) -> bool {
        self.mapped.ends.shut(self.slot).load(Ordering::Relaxed)
    }

    /// No other process holds our end.
    pub fn is_sole(&self) -> bool {
        self.mapped.ends.processes(self.slot).load(Ordering::Acquire) == 1
    }

    /// We will not look at the slot again.
    pub fn detach(&self) {
        self.mapped.set_flow(self.slot, None);
        self.slot_header().ends[self.mapped.side].closed.store(self.generation, Ordering::Release);
    }

    /// How far this side has received, and sent. (Not as the region says it: the other side can
    /// write there, and would have this one find news for ever where there is none.)
    #[inline]
    pub fn head(&self) -> u32 {
        self.mapped.ends.head(self.slot)
    }

    /// See above.
    #[inline]
    pub fn tail(&self) -> u32 {
        self.mapped.ends.tail(self.slot)
    }

    /// Bytes of the other side's lie in the ring, or it cannot be understood. (A ring that is being
    /// left and is empty has nothing: what follows, or the end, is the kernel's to tell.)
    pub fn has_bytes(&self) -> bool {
        self.has_bytes_behind(0)
    }

    /// As above, behind the first so many.
    #[inline]
    pub fn has_bytes_behind(&self, lent: u32) -> bool {
        let inward = self.inward();
        match inward.switch.phase.at() {
            Ok(At::Linux | At::Returned) => false,
            Ok(At::Offered | At::Ring | At::Leaving) => {
                inward.produced.tail.load(Ordering::Acquire) != self.head().wrapping_add(lent)
            }
            Err(_) => true,
        }
    }

    /// The other side has taken back what this side did not receive of the ring, and has not given
    /// Linux all of it yet: it is in neither of the two. (Only then lies the tail ahead of the head
    /// in this phase.) False where Linux has no room for the rest.
    pub fn is_under_way(&self) -> bool {
        let inward = self.inward();
        let there = || inward.produced.tail.load(Ordering::Acquire).wrapping_sub(self.head());
        inward.switch.phase.at() == Ok(At::Linux)
            && (1..=RING).contains(&there())
            && !self.other_owes()
    }

    /// Linux has no room for all that the other side has taken back.
    pub fn other_owes(&self) -> bool {
        self.inward().produced.flags.load(Ordering::Acquire) & OWES != 0
    }

    /// Room is the ring's matter, not Linux': sending goes there, and the stream has not been
    /// ended.
    #[inline]
    pub fn room_is_of_ring(&self) -> bool {
        let out = self.out();
        !matches!(out.switch.phase.at(), Ok(At::Linux | At::Leaving | At::Returned))
            && out.produced.flags.load(Ordering::Relaxed) & FINISHED == 0
    }

    /// [`has_room`], of what it sends to.
    pub fn has_room(&self) -> bool {
        let out = self.out();
        // (Before the tail, which is not behind it then.)
        let head = out.consumed.head.load(Ordering::Acquire);
        has_room(self.tail().wrapping_sub(head))
    }

    /// The other side may offer its ring: we look for bytes.
    pub fn receives(&self) {
        let flags = &self.inward().consumed.flags;
        if flags.load(Ordering::Relaxed) & RECEIVES == 0 {
            flags.fetch_or(RECEIVES, Ordering::Release);
        }
    }

    /// This side has asked for blocks, and does not rest from them.
    pub fn asks_for_blocks(&self) -> bool {
        self.inward().consumed.flags.load(Ordering::Relaxed) & TAKES_BLOCKS != 0
    }

    /// Asks the other side to look at the phase of what it sends: a thread that attends to that,
    /// and those that sleep.
    pub fn ask(&self) {
        self.mapped.region.notice(1 - self.mapped.side, ASK).post(self.slot);
        for door in (0..DOORS).chain([ASK]) {
            self.mapped.wakes(door);
            self.mapped.knock(door);
        }
        (0..SLOTS).filter_map(|slot| self.mapped.flow(slot)).for_each(|flow| flow.knock());
    }

    /// The other side knocks at our own door for it.
    pub fn other_knocks(&self) -> bool {
        let ends = &self.slot_header().ends;
        ends[1 - self.mapped.side].knocks.load(Ordering::Acquire) == self.generation
    }

    /// Has the other side given a door of our own for it.
    pub fn give_door(&self, client: &Client, door: BorrowedFd) -> Result<(), Errno> {
        let Mapped { id, side, .. } = *self.mapped;
        client.door((id, side), (self.slot, self.generation), door)
    }

    /// Tells who wanted to be told.
    #[inline]
    pub fn tell(&self, doors: Doors) {
        if doors.is_empty() {
            return;
        }
        let other = 1 - self.mapped.side;
        for door in doors.notices() {
            let by_linux = self.mapped.by_linux.stamp(&self.out().produced);
            let asleep = self.mapped.region.notice(other, door).post(self.slot);
            if self.mapped.knocked.is_due(door, by_linux) || asleep {
                self.mapped.knocks.at(&self.mapped.doors, door);
            }
        }
        for door in doors.wakes() {
            self.mapped.wakes(door);
            self.mapped.knocks.at(&self.mapped.doors, door);
        }
        if doors.wakes_own()
            && let Some(own) = self.other_door.get()
        {
            self.mapped.knocks.knock(&own.0);
        }
    }
}
