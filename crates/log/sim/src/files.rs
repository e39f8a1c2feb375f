//! Files as ext4 has them (data=ordered): a page cache, metadata in a journal that commits in
//! order, a size that is durable only behind the bytes it brings to light.

use crate::platter::{Area, Fate, Platter};
use uncopy_log_record::{BLOCK, SECTOR};

/// A file, by number.
pub type FileId = usize;

/// The changes that the journal has.
#[derive(Clone, Debug)]
enum Change {
    /// The file has this size, in this area. The bytes that writes before that one brought from
    /// `from` on are there.
    Extent { file: FileId, area: Area, size: usize, from: usize, after: usize },
    /// The file has this name, or none.
    Named { file: FileId, name: Option<u32> },
}

/// The durable part of a file's metadata.
#[derive(Clone, Copy, Debug)]
struct Inode {
    area: Area,
    size: usize,
    name: Option<u32>,
}

#[derive(Clone, Debug)]
struct File {
    /// The content that the kernel shows.
    content: Vec<u8>,
    dirty: Vec<bool>,
    name: Option<u32>,
    modified: u64,
    /// Areas whose blocks a write changes, and up to where: the last is the file's own; earlier
    /// ones were before a truncation that may not be durable.
    areas: Vec<(Area, usize)>,
    /// The size that the journal was told last.
    told: usize,
    durable: Inode,
}

/// All files.
#[derive(Clone, Debug, Default)]
pub struct Files {
    files: Vec<File>,
    journal: Vec<Change>,
    areas: Area,
}

impl Files {
    /// A file that was there before, durable.
    pub fn add(&mut self, platter: &mut Platter, content: &[u8], now: u64) -> FileId {
        self.areas += 1;
        let (area, file) = (self.areas, self.files.len());
        platter.write(area, 0, content);
        platter.flush();
        let name = Some(file as u32);
        self.files.push(File {
            content: content.to_vec(),
            dirty: Vec::new(),
            name,
            modified: now,
            areas: vec![(area, usize::MAX)],
            told: content.len(),
            durable: Inode { area, size: content.len(), name },
        });
        file
    }

    /// The content that the kernel shows of it.
    pub fn content(&self, file: FileId) -> &[u8] {
        &self.files[file].content
    }

    /// Whether it has a name.
    pub fn has_name(&self, file: FileId) -> bool {
        self.files[file].name.is_some()
    }

    /// Its mtime.
    pub fn modified(&self, file: FileId) -> u64 {
        self.files[file].modified
    }

    /// write: to the page cache.
    pub fn write(&mut self, file: FileId, at: usize, bytes: &[u8], now: u64) {
        let file = &mut self.files[file];
        file.put(at, bytes, now);
        let pages = at / BLOCK..(at + bytes.len()).div_ceil(BLOCK);
        file.dirty.resize(file.dirty.len().max(pages.end), false);
        file.dirty[pages].fill(true);
    }

    /// write by O_DIRECT, of whole blocks.
    pub fn write_direct(
        &mut self,
        platter: &mut Platter,
        file: FileId,
        at: usize,
        bytes: &[u8],
        now: u64,
    ) {
        assert!(at.is_multiple_of(BLOCK) && bytes.len().is_multiple_of(BLOCK));
        let of = &mut self.files[file];
        // The kernel writes back and drops what it has of these pages first.
        let pages = at / BLOCK..(at + bytes.len()) / BLOCK;
        of.dirty.iter_mut().take(pages.end).skip(pages.start).for_each(|dirty| *dirty = false);
        of.put(at, bytes, now);
        of.to_disk(platter, at, bytes);
        self.tell(platter, file, at + bytes.len());
    }

    /// The kernel writes dirty pages back, whenever it likes.
    pub fn write_back(&mut self, platter: &mut Platter, file: FileId) {
        let of = &mut self.files[file];
        for page in 0..of.dirty.len() {
            if std::mem::take(&mut of.dirty[page]) {
                let end = ((page + 1) * BLOCK).min(of.content.len());
                let Some(bytes) = of.content.get(page * BLOCK..end) else { continue };
                of.to_disk(platter, page * BLOCK, bytes);
            }
        }
        self.tell(platter, file, usize::MAX);
    }

    /// Behind [`write_back`](Self::write_back): fsync's, or fdatasync's, flush and commit.
    pub fn sync(&mut self, platter: &mut Platter, file: FileId, data_only: bool) {
        platter.flush();
        let grew =
            |change: &Change| matches!(change, Change::Extent { file: of, .. } if *of == file);
        if !data_only || self.journal.iter().any(grew) {
            self.commit(platter);
        }
    }

    /// fsync fails: of the dirty pages some were written, others not, and the kernel takes all for
    /// clean.
    pub fn fail_sync(&mut self, platter: &mut Platter, file: FileId, seed: u64) {
        let mut coins = fastrand::Rng::with_seed(seed);
        self.files[file].dirty.iter_mut().for_each(|dirty| *dirty &= coins.bool());
        self.write_back(platter, file);
    }

    /// The journal commits.
    pub fn commit(&mut self, platter: &mut Platter) {
        platter.flush();
        for change in std::mem::take(&mut self.journal) {
            self.apply(&change);
        }
    }

    /// ftruncate.
    pub fn truncate(&mut self, platter: &mut Platter, file: FileId, size: usize, now: u64) {
        self.write_back(platter, file);
        self.areas += 1;
        let area = self.areas;
        let of = &mut self.files[file];
        of.content.resize(size, 0);
        of.dirty.truncate(size.div_ceil(BLOCK));
        of.modified = now;
        let (last, _) = of.areas[of.areas.len() - 1];
        platter.fork(last, area, size);
        for (_, limit) in &mut of.areas {
            *limit = (*limit).min(size);
        }
        of.areas.push((area, usize::MAX));
        of.told = size;
        let after = platter.written();
        self.journal.push(Change::Extent { file, area, size, from: size, after });
    }

    /// rename, unlink: the file's name from now on.
    pub fn name(&mut self, file: FileId, name: Option<u32>) {
        self.files[file].name = name;
        self.journal.push(Change::Named { file, name });
    }

    /// Changes that are not durable.
    pub fn uncommitted(&self) -> usize {
        self.journal.len()
    }

    /// Power is lost, and the host starts again: of the journal `committed` changes are there.
    pub fn lose_power(&mut self, platter: &mut Platter, fate: &Fate, committed: usize) {
        let mut journal = std::mem::take(&mut self.journal);
        journal.truncate(committed);
        platter.lose_power(fate, |area, at, write| {
            journal.iter().any(|change| match *change {
                Change::Extent { area: of, from, after, .. } => {
                    of == area && at + SECTOR > from && write < after
                }
                Change::Named { .. } => false,
            })
        });
        for change in &journal {
            self.apply(change);
        }
        for file in &mut self.files {
            let Inode { area, size, name } = file.durable;
            // (Behind the end are zeros, whatever the blocks had.)
            platter.cut(area, size);
            let mut content = platter.durable(area).to_vec();
            content.resize(size, 0);
            file.content = content;
            file.areas = vec![(area, usize::MAX)];
            (file.name, file.told) = (name, size);
            file.dirty.clear();
        }
    }

    /// The journal learns of a size that grew, by what is written up to `to`.
    fn tell(&mut self, platter: &Platter, file: FileId, to: usize) {
        let of = &mut self.files[file];
        let size = of.content.len().min(to);
        if size > of.told {
            let from = std::mem::replace(&mut of.told, size);
            let (area, after) = (of.areas[of.areas.len() - 1].0, platter.written());
            self.journal.push(Change::Extent { file, area, size, from, after });
        }
    }

    fn apply(&mut self, change: &Change) {
        match *change {
            Change::Extent { file, area, size, .. } => {
                let durable = &mut self.files[file].durable;
                (durable.area, durable.size) = (area, size);
            }
            Change::Named { file, name } => self.files[file].durable.name = name,
        }
    }
}

impl File {
    fn put(&mut self, at: usize, bytes: &[u8], now: u64) {
        if self.content.len() < at + bytes.len() {
            self.content.resize(at + bytes.len(), 0);
        }
        self.content[at..at + bytes.len()].copy_from_slice(bytes);
        self.modified = now;
    }

    fn to_disk(&self, platter: &mut Platter, at: usize, bytes: &[u8]) {
        for &(area, limit) in &self.areas {
            let length = bytes.len().min(limit.saturating_sub(at));
            if length > 0 {
                platter.write(area, at, &bytes[..length]);
            }
        }
    }
}
