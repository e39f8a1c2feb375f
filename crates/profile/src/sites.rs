//! Which file a return address lies in, found when a site is first seen.
//!
//! unsafe: asks the dynamic linker, and reads the headers of what it has loaded.

use crate::state;
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use uncopy_flow::layout::{Call, MODULES, SITES, site};

const SLOTS: usize = 4096;
const CALL_BITS: u32 = 6;
/// Numbers of sites share a word with their keys, so that nobody finds the one without the other.
const ID_BITS: u32 = 10;
const _: () = assert!(SITES.room <= 1 << ID_BITS);

/// Sites by hash, so that a known one takes no lock: key and number. A site that finds no place is
/// looked up each time.
static KNOWN: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

/// A return address in a file.
#[derive(Clone, Debug)]
pub struct InFile {
    /// The file's path; of the program itself an empty one. The dynamic linker's own: nothing is
    /// allocated without the follower's lock (see `HEAP`), and a caller in a file keeps it loaded.
    path: &'static CStr,
    /// The address, as the file has it.
    address: usize,
}

fn slot(key: usize) -> &'static AtomicUsize {
    &KNOWN[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % SLOTS]
}

/// The number of the site where `call` is made and returns to `caller`. Not to be asked with the
/// follower's lock held: the dynamic linker has locks of its own.
pub fn site(call: Call, caller: usize) -> u32 {
    let key = caller << CALL_BITS | call as usize;
    let slot = slot(key);
    let known = slot.load(Relaxed);
    if known >> ID_BITS == key {
        return (known % (1 << ID_BITS)) as u32;
    }
    state::site_known(key).unwrap_or_else(|| {
        let found = locate(caller);
        let id = state::with(|s| s.add_site(key, call, caller, found)).unwrap_or(0);
        // (Code lies below 2^47, so a key has room; it is one store that tells others all.)
        if id != 0 && key >> (usize::BITS - ID_BITS) == 0 {
            let _ = slot.compare_exchange(0, key << ID_BITS | id as usize, Relaxed, Relaxed);
        }
        id
    })
}

/// In a forked child, whose numbers begin anew.
pub fn forget() {
    KNOWN.iter().for_each(|s| s.store(0, Relaxed));
}

fn locate(caller: usize) -> Option<InFile> {
    // SAFETY: errno's address is valid; `info` is written where dladdr succeeds, and its string
    // stays while the file is loaded, which is while this call goes on; a loaded file begins with
    // its header, whose type stands at byte 16.
    unsafe {
        let errno = *libc::__errno_location();
        let mut info: libc::Dl_info = core::mem::zeroed();
        let found = libc::dladdr((caller - 1) as *const _, &mut info) != 0;
        *libc::__errno_location() = errno;
        if !found || info.dli_fname.is_null() {
            return None;
        }
        let base = info.dli_fbase as usize;
        let kind = ((base + 16) as *const u16).read_unaligned();
        let address = if kind == 2 { caller } else { caller - base };
        let headers = libc::getauxval(libc::AT_PHDR) as usize;
        let path = if headers.wrapping_sub(base) < 4096 {
            // The program itself, which is known here by the name that it was called by.
            c""
        } else {
            CStr::from_ptr(info.dli_fname)
        };
        Some(InFile { path, address })
    }
}

impl state::State {
    /// Adds a site; number 0 is the place of those for which there is no room.
    pub fn add_site(
        &mut self,
        key: usize,
        call: Call,
        caller: usize,
        found: Option<InFile>,
    ) -> u32 {
        if let Some(id) = self.sites.get(&key) {
            return *id;
        }
        let book = self.follower.book();
        let Some(id) = book.open(SITES) else { return 0 };
        book.set(SITES, id, site::CALL, call as u64);
        book.set(SITES, id, site::ADDRESS, caller as u64);
        if let Some(found) = found {
            let module = self.module(found.path.to_bytes());
            book.set(SITES, id, site::IN_FILE, found.address as u64);
            book.set(SITES, id, site::MODULE, module);
        }
        self.sites.insert(key, id as u32);
        id as u32
    }

    /// The number of a module, from 1 on; 0: there is no room.
    fn module(&mut self, path: &[u8]) -> u64 {
        if let Some(id) = self.modules.get(path) {
            return *id;
        }
        let book = self.follower.book();
        let Some(id) = book.open(MODULES) else { return 0 };
        if path.is_empty() {
            book.set_path(Some(id), &crate::book::executable());
        } else {
            book.set_path(Some(id), path);
        }
        self.modules.insert(path.to_vec(), id as u64 + 1);
        id as u64 + 1
    }
}
