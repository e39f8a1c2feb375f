//! Which limits of memory apply to a process, as the kernel's files say: control groups of version
//! 2 (`memory.max`, `memory.high`) and of version 1 (`memory.limit_in_bytes`), from the process's
//! own group up to the outermost that can be seen.
//!
//! Nothing here makes a system call: the caller reads the files and hands their texts over. They
//! are bytes: a mount point, or a group, may have any name.

#![forbid(unsafe_code)]

/// Groups that are looked at, from the innermost on.
pub const LEVELS: usize = 16;

/// A limit of so many bytes, and any above, is none: version 1 writes the largest multiple of a
/// page where nothing was set.
const NONE_FROM: u64 = 1 << 60;

/// No limit, as a number of bytes.
pub const UNLIMITED: u64 = u64::MAX;

/// Which files say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `memory.limit_in_bytes`, `memory.usage_in_bytes`.
    One,
    /// `memory.max`, `memory.high`, `memory.current`.
    Two,
}

impl Version {
    /// The files of a group that each have one limit.
    pub fn limits(self) -> &'static [&'static str] {
        match self {
            Self::One => &["memory.limit_in_bytes"],
            Self::Two => &["memory.max", "memory.high"],
        }
    }

    /// The file that says what a group uses, page cache included.
    pub fn usage(self) -> &'static str {
        match self {
            Self::One => "memory.usage_in_bytes",
            Self::Two => "memory.current",
        }
    }

    /// The file that says how often a group came to its limit, for [`times_at_limit`].
    pub fn events(self) -> &'static str {
        match self {
            Self::One => "memory.failcnt",
            Self::Two => "memory.events",
        }
    }

    /// The file in which [`file_cache`] and [`outer_limit`] are.
    pub fn statistics(self) -> &'static str {
        "memory.stat"
    }
}

/// Where the files of a process's memory group are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The names that the files have.
    pub version: Version,
    /// Directories, from the process's own group up to the outermost that can be seen.
    pub directories: Vec<Vec<u8>>,
}

/// Finds it in the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`. `None`: no group that
/// is mounted here counts memory.
///
/// Where a hierarchy of version 1 counts memory, version 2 does not.
pub fn place(groups: &[u8], mounts: &[u8]) -> Option<Place> {
    let find = |version, group: &[u8]| {
        let directories = lines(mounts)
            .filter_map(|line| mounted(line, version))
            .find_map(|(root, point)| directories(group, &root, &point))?;
        Some(Place { version, directories })
    };
    first_group(groups)
        .and_then(|group| find(Version::One, group))
        .or_else(|| find(Version::Two, second_group(groups)?))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| *b == b'\n')
}

/// `N:memory:/PATH`, or with further names before or after `memory`.
fn first_group(groups: &[u8]) -> Option<&[u8]> {
    lines(groups).find_map(|line| {
        let mut fields = line.splitn(3, |b| *b == b':');
        let (_, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        names.split(|b| *b == b',').any(|name| name == b"memory").then_some(path)
    })
}

/// `0::/PATH`.
fn second_group(groups: &[u8]) -> Option<&[u8]> {
    lines(groups).find_map(|line| line.strip_prefix(b"0::"))
}

/// Which group is at which directory, if the line of mountinfo is of a mount of `version`.
fn mounted(line: &[u8], version: Version) -> Option<(Vec<u8>, Vec<u8>)> {
    const BEHIND_PLACE: &[u8] = b" - ";
    let at = line.windows(BEHIND_PLACE.len()).position(|w| w == BEHIND_PLACE)?;
    let (place, kind) = (&line[..at], &line[at + BEHIND_PLACE.len()..]);
    let mut place = place.split(|b| *b == b' ').skip(3);
    let (root, point) = (place.next()?, place.next()?);
    let mut kind = kind.split(|b| *b == b' ');
    let (name, options) = (kind.next()?, kind.nth(1).unwrap_or(b""));
    let is_it = match version {
        Version::One => name == b"cgroup" && options.split(|b| *b == b',').any(|o| o == b"memory"),
        Version::Two => name == b"cgroup2",
    };
    is_it.then(|| (unescaped(root), unescaped(point)))
}

/// mountinfo writes blanks, tabs, line feeds and backslashes as `\OOO`.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        let byte = match (first, behind) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        plain.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[3..] } else { behind };
    }
    plain
}

fn without_slash(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |last| last + 1);
    &path[..end]
}

/// The directories of `group` and those above it, where `root` is mounted at `point`. `None`: it is
/// not below that.
fn directories(group: &[u8], root: &[u8], point: &[u8]) -> Option<Vec<Vec<u8>>> {
    // (A group outside of the process's namespace: `/../..`.)
    let outside = group.split(|b| *b == b'/').any(|part| part == b"..");
    let below = group.strip_prefix(without_slash(root))?;
    if outside || !(below.is_empty() || below.starts_with(b"/")) {
        return None;
    }
    let point = without_slash(point);
    let mut found = Vec::new();
    let mut at = without_slash(below);
    loop {
        found.push([point, at].concat());
        match at.iter().rposition(|b| *b == b'/') {
            Some(end) if found.len() < LEVELS => at = &at[..end],
            _ => return Some(found),
        }
    }
}

/// The limit in the text of a file that has one, or [`UNLIMITED`]. `None`: the text is of something
/// else.
pub fn limit(text: &[u8]) -> Option<u64> {
    let none = |bytes: &u64| *bytes >= NONE_FROM;
    match text.trim_ascii() {
        b"max" => Some(UNLIMITED),
        _ => number(text).map(|bytes| if none(&bytes) { UNLIMITED } else { bytes }),
    }
}

/// The number in the text of a file that has one.
pub fn number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Of what the group uses, the file pages that the kernel takes back before it kills anybody, by
/// the text of `memory.stat`.
pub fn file_cache(version: Version, statistics: &[u8]) -> u64 {
    let names: [&[u8]; 2] = match version {
        // (With what groups below have: so does the usage.)
        Version::One => [b"total_inactive_file", b"total_active_file"],
        Version::Two => [b"inactive_file", b"active_file"],
    };
    names.iter().map(|name| field(statistics, name).unwrap_or(0)).fold(0, u64::saturating_add)
}

/// The lowest limit of the group and of all above it, also of those that cannot be seen from here.
/// (Version 1 only.) [`UNLIMITED`]: there is none. `None`: that is not told.
pub fn outer_limit(statistics: &[u8]) -> Option<u64> {
    limit(line_of(statistics, b"hierarchical_memory_limit")?)
}

/// How often the group came to a limit, by the text of its file of events.
pub fn times_at_limit(version: Version, events: &[u8]) -> u64 {
    match version {
        Version::One => number(events).unwrap_or(0),
        Version::Two => {
            let names: [&[u8]; 2] = [b"high", b"max"];
            names.iter().map(|name| field(events, name).unwrap_or(0)).fold(0, u64::saturating_add)
        }
    }
}

/// The tasks whose waiting for memory counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Anybody's.
    Some,
    /// That of all who have something to do at once.
    All,
}

/// Time in microseconds that was spent waiting for memory, by the text of a file of pressure (PSI).
pub fn waited(whose: Waiting, pressure: &[u8]) -> Option<u64> {
    let name: &[u8] = match whose {
        Waiting::Some => b"some ",
        Waiting::All => b"full ",
    };
    let line = pressure.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(name))?;
    line.split(|b| *b == b' ').find_map(|part| number(part.strip_prefix(b"total=")?))
}

/// The number behind `name` at the beginning of a line. (Without allocating: it is asked on a
/// thread of ours.)
fn field(text: &[u8], name: &[u8]) -> Option<u64> {
    number(line_of(text, name)?)
}

fn line_of<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    lines(text).find_map(|line| line.strip_prefix(name)?.strip_prefix(b" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "9:name=systemd:/\n4:cpu,memory:/a/b\n0::/\n";
    const MOUNT_ONE: &str =
        "30 25 0:26 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,cpu,memory\n";
    const MOUNT_TWO: &str = "31 25 0:27 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";

    fn place(groups: &str, mounts: &str) -> Option<Place> {
        super::place(groups.as_bytes(), mounts.as_bytes())
    }

    fn found(groups: &str, mounts: &str) -> (Version, Vec<String>) {
        let place = place(groups, mounts).unwrap();
        let text = |path: &Vec<u8>| String::from_utf8(path.clone()).unwrap();
        (place.version, place.directories.iter().map(text).collect())
    }

    #[test]
    fn groups_are_found_from_the_own_one_up_to_the_root() {
        let (version, at) = found("0::/user.slice/a.scope\n", MOUNT_TWO);
        assert_eq!(version, Version::Two);
        assert_eq!(
            at,
            ["/sys/fs/cgroup/user.slice/a.scope", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"]
        );
        assert_eq!(found("0::/\n", MOUNT_TWO).1, ["/sys/fs/cgroup"]);
    }

    #[test]
    fn version_one_counts_where_it_has_memory_and_version_two_where_not() {
        let both = format!("{MOUNT_TWO}{MOUNT_ONE}");
        assert_eq!(found(ONE, &both).0, Version::One);
        assert_eq!(found(ONE, MOUNT_TWO), (Version::Two, vec!["/sys/fs/cgroup".to_owned()]));
        assert_eq!(found("5:cpu:/a\n0::/b\n", &both).0, Version::Two);
    }

    #[test]
    fn in_a_container_the_mounts_root_is_its_own_group() {
        // Version 1, without a namespace of groups: the path is the host's, and so is the root.
        let mount = "7 6 0:3 /docker/1a /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let groups = "3:memory:/docker/1a/in\n";
        let at = ["/sys/fs/cgroup/memory/in", "/sys/fs/cgroup/memory"];
        assert_eq!(found(groups, mount).1, at);
        assert_eq!(place("3:memory:/docker/1ab\n", mount), None, "another group");
        assert_eq!(place("3:memory:/\n", mount), None);
        // A process that was moved out of its namespace.
        assert_eq!(place("0::/../other\n", MOUNT_TWO), None);
    }

    #[test]
    fn a_mount_of_another_part_of_the_hierarchy_does_not_hide_the_right_one() {
        let other = "8 6 0:27 /x /mnt ro - cgroup2 none rw\n";
        assert_eq!(found("0::/y\n", &format!("{other}{MOUNT_TWO}")).1[0], "/sys/fs/cgroup/y");
    }

    #[test]
    fn strange_texts_are_no_place() {
        for groups in ["", "\n\n", "0", "0:", "0::", "memory", ":::", "1:memory", "a:b:c:d"] {
            let _ = place(groups, MOUNT_TWO);
            assert_eq!(place(groups, ""), None);
        }
        for mounts in ["-", " - ", "a b c - cgroup2", " - cgroup2 x y", "1 2 3 / / - cgroup"] {
            assert_eq!(place(ONE, mounts), None, "{mounts:?}");
        }
    }

    #[test]
    fn directories_with_blanks_are_found() {
        let mount = "31 25 0:27 / /my\\040groups rw - cgroup2 cgroup2 rw\n";
        assert_eq!(found("0::/a\n", mount).1, ["/my groups/a", "/my groups"]);
        for text in [&b"\\"[..], b"a\\9b\\04", b"\\777", b"\\+12"] {
            assert_eq!(unescaped(text), text);
        }
    }

    #[test]
    fn names_that_are_no_text_hide_no_limit() {
        let mounts = b"2 1 0:2 / /a\xffb rw - ext4 /dev/\xfe rw\n\
                       31 25 0:27 / /g\\040\xff rw - cgroup2 cgroup2 rw\n";
        let place = super::place(b"1:name=\xfe:/\n0::/in\xff\n", mounts).unwrap();
        assert_eq!(place.directories, [&b"/g \xff/in\xff"[..], b"/g \xff"]);
    }

    #[test]
    fn deep_hierarchies_are_looked_at_up_to_a_bound() {
        let deep = format!("0::{}\n", "/a".repeat(100));
        assert_eq!(found(&deep, MOUNT_TWO).1.len(), LEVELS);
    }

    #[test]
    fn limits_are_numbers_or_said_to_be_none() {
        assert_eq!(limit(b"67108864\n"), Some(64 << 20));
        assert_eq!(limit(b"0\n"), Some(0), "a limit");
        for none in [&b"max\n"[..], b"9223372036854771712\n"] {
            assert_eq!(limit(none), Some(UNLIMITED), "{none:?}");
        }
        for nothing in [&b""[..], b"\n", b"-1", b"1e9", b"\xff\xfe", b"12 3"] {
            assert_eq!(limit(nothing), None, "{nothing:?}");
        }
        assert_eq!(limit(b"99999999999999999999999999\n"), None);
    }

    #[test]
    fn file_pages_are_what_the_statistics_say() {
        let two = b"anon 1\nfile 100\ninactive_anon 3\ninactive_file 40\nactive_file 2\n";
        assert_eq!(file_cache(Version::Two, two), 42);
        let one = b"inactive_file 1\nhierarchical_memory_limit 4096\ntotal_inactive_file 40\n\
                    total_active_file 5\n";
        assert_eq!(file_cache(Version::One, one), 45);
        assert_eq!(outer_limit(one), Some(4096));
        let none = b"hierarchical_memory_limit 9223372036854771712\n";
        assert_eq!((outer_limit(none), outer_limit(two)), (Some(UNLIMITED), None));
        for garbage in [&b""[..], b"inactive_file", b"inactive_file x\n", b"\0\0\n\n", b"\xff"] {
            assert_eq!(file_cache(Version::Two, garbage), 0);
        }
    }

    #[test]
    fn pressure_and_events_are_what_their_files_say() {
        let pressure = b"some avg10=1.50 avg60=0.20 avg300=0.00 total=9167\n\
                         full avg10=0.00 avg60=0.00 avg300=0.00 total=8000\n";
        assert_eq!(waited(Waiting::Some, pressure), Some(9167));
        assert_eq!(waited(Waiting::All, pressure), Some(8000));
        for garbage in [
            &b""[..],
            b"some",
            b"some \n",
            b"some total=\n",
            b"some avg10=0 total=x",
            b"\xff total=1",
        ] {
            assert_eq!(waited(Waiting::Some, garbage), None);
        }
        let events = b"low 5\nhigh 3\nmax 4\noom 0\noom_kill 0\n";
        assert_eq!(times_at_limit(Version::Two, events), 7);
        assert_eq!(times_at_limit(Version::Two, b"low 5\n"), 0);
        assert_eq!(times_at_limit(Version::One, b"603\n"), 603);
        assert_eq!(times_at_limit(Version::One, b""), 0);
    }
}
