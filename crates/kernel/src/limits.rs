//! The room that the program's own limits leave for address space of ours.

use crate::procfs;
use rustix::process::{Resource, getrlimit};

/// The limits that count address space that is mapped, used or not: all of it; what can be written,
/// of ours alone.
const COUNTING: [Resource; 2] = [Resource::As, Resource::Data];

/// The lowest limit of address space, in bytes.
pub fn address_space() -> Option<usize> {
    COUNTING.into_iter().filter_map(|r| getrlimit(r).current).min().map(|l| l as usize)
}

/// Whether each writable mapping counts against what the kernel promises to all
/// (`vm.overcommit_memory=2`), used or not, and in each forked child again.
pub fn strict_overcommit() -> bool {
    let mut room = [0; 8];
    let mode = procfs::read(c"/proc/sys/vm/overcommit_memory", &mut room);
    mode.is_some_and(|text| text.starts_with(b"2"))
}

/// Whether the program would miss what is only reserved.
pub fn reserving_counts() -> bool {
    address_space().is_some() || strict_overcommit()
}

/// Whether the process is about to have less address space than it may use now: `new` is to be its
/// soft limit of `resource`, in bytes; `None`: none.
pub fn lowers(resource: u32, new: Option<u64>) -> bool {
    let limits = [(libc::RLIMIT_AS, Resource::As), (libc::RLIMIT_DATA, Resource::Data)];
    let Some(new) = new else { return false };
    limits.into_iter().any(|(number, resource_)| {
        number == resource && getrlimit(resource_).current.is_none_or(|now| new < now)
    })
}
