//! The superblock: whose log this is, and which epoch of it.
//!
//! There are two, written in turns, so that one stands whatever becomes of the other. All of it
//! lies in one sector.

use crate::fields::{Fields, Writer, crc, zeros};
use crate::log::{BLOCK, HEAD, Log, SECTOR};
use std::fmt;

/// Version of the format. Another one is refused.
pub const VERSION: u32 = 1;
/// Where the two superblocks lie, in bytes.
pub const PLACES: [u64; 2] = [0, (HEAD / 2) as u64];
/// How far the clocks of heartbeat and files may differ, in ns: a file that changed later than that
/// after the last heartbeat was changed by somebody who does not know of the log.
pub const GRACE: u64 = 10_000_000_000;

const MAGIC: [u8; 8] = *b"uncopylg";
/// Behind magic and version. These three lie there in every version.
const CRC_AT: usize = 12;

/// The content of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The log's own, random, made with the file.
    pub uuid: [u8; 16],
    /// `/etc/machine-id` of the host that wrote it.
    pub host: [u8; 16],
    /// The file system that it lies on, as `statfs` names it (f_fsid), or its uuid.
    pub filesystem: [u8; 16],
    /// `/proc/sys/kernel/random/boot_id` when it was written.
    pub boot: [u8; 16],
    /// Which life of the log this is; each opening begins the next. From 1 on.
    pub epoch: u64,
    /// How often a superblock was written: the higher one of two is the newer, and its lowest bit
    /// is its place.
    pub turn: u64,
    /// When somebody last held leases for this log; ns since 1970.
    pub heartbeat: u64,
    /// Length of the file in bytes.
    pub size: u64,
    /// Length of a segment in bytes: a multiple of [`BLOCK`], at least two.
    pub segment: u32,
    /// Recovery of this epoch is under way, in this boot. (Its files may hold what it wrote.)
    pub recovering: bool,
}

/// Why bytes are no superblock that could be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// There are fewer bytes than a superblock, or than it says.
    Truncated {
        /// So many there are.
        is: u64,
        /// So many there should be.
        should: u64,
    },
    /// Nothing was ever written there.
    Empty,
    /// It does not begin as logs do.
    NotALog,
    /// The checksum is another: torn, or changed since.
    Damaged,
    /// Sound, and of a version that this program does not know.
    OtherVersion {
        /// That version.
        version: u32,
    },
    /// Sound, and what it says cannot be.
    Senseless,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Truncated { is, should } => {
                write!(f, "the file was truncated: it has {is} bytes, and should have {should}")
            }
            Unusable::Empty => f.write_str("the file has no superblock: only zeros"),
            Unusable::NotALog => f.write_str("the file is no log of uncopy's"),
            Unusable::Damaged => f.write_str("both superblocks are damaged"),
            Unusable::OtherVersion { version } => write!(
                f,
                "the log has version {version} of the format, this program knows {VERSION}: \
                 recover it with the uncopy that wrote it"
            ),
            Unusable::Senseless => f.write_str("the superblock says what cannot be"),
        }
    }
}

impl std::error::Error for Unusable {}

/// Where a program finds itself, to compare a superblock with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Here {
    /// As [`Superblock::host`].
    pub host: [u8; 16],
    /// As [`Superblock::filesystem`].
    pub filesystem: [u8; 16],
    /// As [`Superblock::boot`].
    pub boot: [u8; 16],
}

/// Where a log comes from, seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Written in this boot: memory that outlives programs is still there.
    ThisBoot,
    /// Written before this host was started last: only the disk is left.
    EarlierBoot,
    /// Written here, by another host: a disk that was moved, or is shared.
    OtherHost,
    /// It was copied here from another file system. Its inode numbers mean nothing.
    OtherFileSystem,
}

impl Superblock {
    /// Writes it into its block; the rest of the block is zeros.
    pub fn encode(&self, block: &mut [u8; BLOCK]) {
        block.fill(0);
        let mut to = Writer::new(block);
        to.put(&MAGIC).u32(VERSION).u32(0);
        to.put(&self.uuid).put(&self.host).put(&self.filesystem).put(&self.boot);
        to.u64(self.epoch).u64(self.turn).u64(self.heartbeat).u64(self.size);
        to.u32(self.segment).u32(self.recovering.into());
        let sum = crc(0, &block[..SECTOR], CRC_AT);
        block[CRC_AT..CRC_AT + 4].copy_from_slice(&sum.to_le_bytes());
    }

    /// Where in the file it is written: not over the one before it.
    #[must_use]
    pub fn place(&self) -> u64 {
        PLACES[(self.turn & 1) as usize]
    }

    /// Reads one from the bytes at one of [`PLACES`]; a sector suffices.
    ///
    /// # Errors
    /// Returns what is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, Unusable> {
        let Some(sector) = bytes.first_chunk::<SECTOR>() else {
            return Err(Unusable::Truncated { is: bytes.len() as u64, should: SECTOR as u64 });
        };
        if zeros(sector) {
            return Err(Unusable::Empty);
        }
        Self::fields(sector).unwrap_or(Err(Unusable::Senseless))
    }

    fn fields(sector: &[u8; SECTOR]) -> Option<Result<Superblock, Unusable>> {
        let mut from = Fields(sector);
        if from.array()? != MAGIC {
            return Some(Err(Unusable::NotALog));
        }
        let version = from.u32()?;
        if from.u32()? != crc(0, sector, CRC_AT) {
            return Some(Err(Unusable::Damaged));
        }
        if version != VERSION {
            return Some(Err(Unusable::OtherVersion { version }));
        }
        let found = Superblock {
            uuid: from.array()?,
            host: from.array()?,
            filesystem: from.array()?,
            boot: from.array()?,
            epoch: from.u64()?,
            turn: from.u64()?,
            heartbeat: from.u64()?,
            size: from.u64()?,
            segment: from.u32()?,
            recovering: from.u32()? != 0,
        };
        let log = found.log();
        let sound = found.epoch > 0
            && found.segment as usize >= 2 * BLOCK
            && (found.segment as usize).is_multiple_of(BLOCK)
            && log.segments >= 2;
        Some(if sound { Ok(found) } else { Err(Unusable::Senseless) })
    }

    /// The newer of the two, of the bytes at [`PLACES`], for a file of `length` bytes.
    ///
    /// # Errors
    /// Neither can be used: what is wrong with the one that is nearer to being one. Or the file is
    /// shorter than it says.
    pub fn choose(first: &[u8], second: &[u8], length: u64) -> Result<Superblock, Unusable> {
        let found = match (Self::decode(first), Self::decode(second)) {
            (Ok(a), Ok(b)) if a.turn >= b.turn => a,
            (Ok(_), Ok(b)) => b,
            // (A newer version's superblock beside an older one of ours: it is a newer version's
            // log.)
            (Err(e @ Unusable::OtherVersion { .. }), _) => return Err(e),
            (_, Err(e @ Unusable::OtherVersion { .. })) => return Err(e),
            (Ok(a), Err(_)) => a,
            (Err(_), Ok(b)) => b,
            (Err(a), Err(b)) => return Err(if nearness(a) >= nearness(b) { a } else { b }),
        };
        if length < found.size {
            return Err(Unusable::Truncated { is: length, should: found.size });
        }
        Ok(found)
    }

    /// As [`choose`](Self::choose), of the bytes of a whole file.
    ///
    /// # Errors
    /// As [`choose`](Self::choose).
    pub fn find(file: &[u8]) -> Result<Superblock, Unusable> {
        let at = |place: u64| file.get(place as usize..).unwrap_or_default();
        Self::choose(at(PLACES[0]), at(PLACES[1]), file.len() as u64)
    }

    /// The next one to be written: another place, a later time, all else the same. (A clock that
    /// was set back does not make files of ours younger than the heartbeat.)
    #[must_use]
    pub fn beat(&self, now: u64) -> Superblock {
        Superblock { turn: self.turn + 1, heartbeat: now.max(self.heartbeat), ..*self }
    }

    /// The next one, here: the same epoch goes on in another boot, for its recovery.
    #[must_use]
    pub fn adopt(&self, here: &Here, now: u64) -> Superblock {
        let Here { host, filesystem, boot } = *here;
        Superblock { host, filesystem, boot, recovering: true, ..self.beat(now) }
    }

    /// The one that begins the next epoch, here. Once it is durable no record of this epoch counts:
    /// so first all that is live has come home, durably.
    #[must_use]
    pub fn succeed(&self, here: &Here, now: u64) -> Superblock {
        let (epoch, heartbeat) = (self.epoch + 1, now);
        Superblock { epoch, heartbeat, recovering: false, ..self.adopt(here, now) }
    }

    /// The facts of it that encoding and scanning need.
    #[must_use]
    pub fn log(&self) -> Log {
        let room = self.size.saturating_sub(HEAD as u64);
        let segments = room / u64::from(self.segment.max(1));
        let segments = u32::try_from(segments).unwrap_or(u32::MAX);
        Log { uuid: self.uuid, epoch: self.epoch, segment: self.segment, segments }
    }

    /// Where it comes from, seen from `here`.
    #[must_use]
    pub fn origin(&self, here: &Here) -> Origin {
        if self.filesystem != here.filesystem {
            Origin::OtherFileSystem
        } else if self.host != here.host {
            Origin::OtherHost
        } else if self.boot != here.boot {
            Origin::EarlierBoot
        } else {
            Origin::ThisBoot
        }
    }
}

/// How near a superblock's bytes are to being one.
fn nearness(why: Unusable) -> u32 {
    match why {
        Unusable::Empty => 1,
        Unusable::NotALog => 2,
        Unusable::Truncated { .. } => 0,
        Unusable::Damaged => 4,
        Unusable::Senseless => 5,
        Unusable::OtherVersion { .. } => 6,
    }
}
