//! The measurements that a process of the bench takes of itself: its CPU time, its memory, the
//! library's counters.

// Unsafe: the library in front, if there is one, is asked through a symbol of its own.

use std::io;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use uncopy_counters::{Counters, Snapshot};

/// User and system time of this process, or of this thread, so far.
pub fn cpu_ns(who: UsageWho) -> io::Result<u64> {
    let usage = getrusage(who)?;
    let ns = |time: TimeVal| {
        time.tv_sec().cast_unsigned() * 1_000_000_000 + time.tv_usec().cast_unsigned() * 1000
    };
    Ok(ns(usage.user_time()) + ns(usage.system_time()))
}

/// Resident memory now.
pub fn resident_kb() -> io::Result<u64> {
    Ok(resident_in(&std::fs::read_to_string("/proc/self/status")?).unwrap_or(0))
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The counters of the library, if it is loaded in this process.
pub fn library_counters() -> Option<Snapshot> {
    // SAFETY: the name is a C string; looking it up has no other effect.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"uncopy_counters".as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: the library of this workspace, which alone has that name, gives it this type.
    let counters: extern "C" fn() -> *const Counters = unsafe { std::mem::transmute(symbol) };
    // SAFETY: what it returns is null or lives as long as the library, which is never unloaded.
    unsafe { counters().as_ref() }.map(Counters::snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_the_status_file() {
        assert_eq!(resident_in("VmPeak:\t 9 kB\nVmRSS:\t  1234 kB\n"), Some(1234));
        assert_eq!(resident_in(""), None);
    }

    #[test]
    fn without_the_library_there_are_no_counters() {
        assert!(library_counters().is_none());
    }
}
