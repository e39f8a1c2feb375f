//! Files of control groups, as the kernel or a container's runtime says them: no text makes their
//! reader panic, and a limit that it finds is one that the text names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncopy_cgroup::{Version, Waiting};

fuzz_target!(|data: (&[u8], &[u8])| {
    let (groups, mounts) = data;
    let _ = uncopy_cgroup::place(groups, mounts);
    let limit = uncopy_cgroup::limit(groups);
    assert!(
        limit.is_none() || uncopy_cgroup::number(groups).is_some() || groups.trim_ascii() == b"max"
    );
    let _ = uncopy_cgroup::outer_limit(groups);
    for version in [Version::One, Version::Two] {
        let _ = uncopy_cgroup::file_cache(version, groups);
        let _ = uncopy_cgroup::times_at_limit(version, groups);
    }
    for whose in [Waiting::Some, Waiting::All] {
        let _ = uncopy_cgroup::waited(whose, groups);
    }
});
