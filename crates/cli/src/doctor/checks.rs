//! Features that the kernel has and permits, what each missing one costs, and the command that
//! grants it.

// Unsafe: libc's name of its own version.

use std::ffi::CStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use serde::Serialize;
use uncopy_kernel::descriptors::LEAST_LIMIT;
use uncopy_kernel::procfs;
use uncopy_kernel::survey::{Group, Outcome, Survey};
use uncopy_kernel::uffd::{FEATURE_EVENTS, FEATURE_MOVE, Maker, Refusal};
use uncopy_measure::userfaultfd::{self, DEVICE};
use uncopy_measure::{Failure, units};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The name of the thing.
    pub name: &'static str,
    /// Whether it is as it should be.
    pub ok: bool,
    /// The finding.
    pub found: String,
    /// The loss where it is missing.
    pub costs: &'static str,
    /// The command that grants it, where there is one.
    pub command: Option<String>,
}

fn check(name: &'static str, ok: bool, found: impl Into<String>, costs: &'static str) -> Check {
    Check { name, ok, found: found.into(), costs, command: None }
}

impl Check {
    fn by(mut self, command: impl Into<String>) -> Self {
        self.command = Some(command.into());
        self
    }
}

const EVERYTHING: &str = "nothing is elided: programs run plainly";
const A_WAY: &str = "nothing while the other way is open; without both nothing is elided";
const NEWER: &str = "boot Linux 6.8 or newer";

/// All of them.
pub fn all(kernel: &str, cores: usize) -> Vec<Check> {
    let mut checks =
        vec![check("kernel", is_new_enough(kernel), kernel, EVERYTHING).by(NEWER), libc_version()];
    checks.push(proc());
    checks.extend(ways());
    checks.extend(limits());
    checks.extend(memory());
    checks.push(sandbox());
    checks.push(check(
        "cores",
        cores > 1,
        cores.to_string(),
        "nothing much: the fault-handling thread and the program take turns",
    ));
    checks
}

fn is_new_enough(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6u32, 8u32)
}

fn libc_version() -> Check {
    // SAFETY: the call takes nothing and gives a constant string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    let version = version.to_string_lossy();
    let minor = version.strip_prefix("2.").and_then(|minor| minor.parse().ok()).unwrap_or(0u32);
    check("glibc", minor >= 34, version, "the library may not load: programs run plainly")
        .by("use a distribution with glibc 2.34 or newer")
}

fn proc() -> Check {
    let there = Path::new("/proc/self/exe").exists();
    check(
        "/proc",
        there,
        if there { "yes" } else { "not mounted" },
        "uncopy does not find its library: programs run plainly",
    )
    .by("mount -t proc proc /proc")
}

fn ways() -> Vec<Check> {
    let device = fs::OpenOptions::new().read(true).write(true).open(DEVICE);
    let by_device = match device {
        Ok(device) => Maker::Device(OwnedFd::from(device).into()).make(0).map(drop).map_err(said),
        Err(e) => Err(Failure::new(Errno::from_raw(e.raw_os_error().unwrap_or_default()).desc())),
    };
    let by_call = Maker::SystemCall.make(0).map(drop).map_err(said);
    let sysctl = setting("/proc/sys/vm/unprivileged_userfaultfd");
    let ways = by_device.is_ok() || by_call.is_ok();
    let maker = || if by_device.is_ok() { Maker::open() } else { Maker::SystemCall };
    let feature = |bits| {
        if ways {
            maker().make(bits).map(drop).map_err(said)
        } else {
            Err(Failure::new("cannot be asked without a way"))
        }
    };
    let found = |what: &Result<(), Failure>| {
        what.as_ref().err().map_or_else(|| "yes".to_owned(), ToString::to_string)
    };
    let (command, remark) = userfaultfd::allow();
    let remedy = || if ways { NEWER.to_owned() } else { command.clone() };
    let (moves, events) = (feature(FEATURE_MOVE), feature(FEATURE_EVENTS));
    vec![
        check("userfaultfd by its device", by_device.is_ok(), found(&by_device), A_WAY)
            .by(format!("{command}  # {remark}")),
        check("userfaultfd by system call", by_call.is_ok(), found(&by_call), A_WAY)
            .by("sysctl -w vm.unprivileged_userfaultfd=1"),
        check(
            "vm.unprivileged_userfaultfd",
            ways || sysctl.as_deref() == Some("1"),
            sysctl.as_deref().unwrap_or("not there"),
            "whoever is not root needs the device, or runs plainly",
        )
        .by("sysctl -w vm.unprivileged_userfaultfd=1"),
        check("faults inside the kernel", ways, if ways { "yes" } else { "no" }, EVERYTHING)
            .by("sysctl -w vm.unprivileged_userfaultfd=1"),
        check("UFFDIO_MOVE", moves.is_ok(), found(&moves), EVERYTHING).by(remedy()),
        check("events (unmap, remove, remap)", events.is_ok(), found(&events), EVERYTHING)
            .by(remedy()),
    ]
}

fn said(why: Refusal) -> Failure {
    match why {
        Refusal::Permission => Failure::new("not permitted"),
        Refusal::Kernel => Failure::new("the kernel has none"),
        Refusal::Other(e) => Failure::new(e),
    }
}

fn limits() -> Vec<Check> {
    let soft = |resource| getrlimit(resource).map_or(RLIM_INFINITY, |(soft, _)| soft);
    let shown = |limit, unit: fn(u64) -> String| {
        if limit == RLIM_INFINITY { "unlimited".to_owned() } else { unit(limit) }
    };
    let bytes: fn(u64) -> String = |n| units::rough_size(n as f64);
    let space = soft(Resource::RLIMIT_AS);
    let locked = soft(Resource::RLIMIT_MEMLOCK);
    let files = soft(Resource::RLIMIT_NOFILE);
    let maps = setting("/proc/sys/vm/max_map_count").unwrap_or_default();
    let many = maps.parse().is_ok_and(|n: u64| n >= 65_530);
    vec![
        check(
            "vm.max_map_count",
            many,
            maps,
            "a quarter of it is uncopy's: copies of further buffers are executed",
        )
        .by("sysctl -w vm.max_map_count=65530"),
        check(
            "RLIMIT_AS",
            space == RLIM_INFINITY,
            shown(space, bytes),
            "the pool of extents takes at most a 32nd of it: fewer copies are elided at a time",
        )
        .by("ulimit -v unlimited"),
        check(
            "RLIMIT_MEMLOCK",
            true,
            shown(locked, bytes),
            "nothing: uncopy locks no memory, and elides nothing in locked memory",
        ),
        check(
            "RLIMIT_NOFILE",
            files >= LEAST_LIMIT,
            shown(files, |n| n.to_string()),
            "few descriptors, of which none is uncopy's then: programs run plainly",
        )
        .by("ulimit -n 1024"),
    ]
}

fn memory() -> Vec<Check> {
    let huge = setting("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let huge = chosen(&huge).to_owned();
    let overcommit = setting("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    vec![
        check(
            "transparent huge pages",
            huge != "always",
            if huge.is_empty() { "none" } else { &huge },
            "a huge page is split when a part of it is first moved: the first copies are dearer",
        )
        .by("echo madvise >/sys/kernel/mm/transparent_hugepage/enabled"),
        check(
            "overcommit",
            overcommit != "2",
            overcommit,
            "address space counts as memory: the pool of extents is smaller, or cannot be had",
        )
        .by("sysctl -w vm.overcommit_memory=0"),
    ]
}

fn sandbox() -> Check {
    let filtered = procfs::is_filtered() == Some(true);
    let container = ["/.dockerenv", "/run/.containerenv"].iter().any(|p| Path::new(p).exists());
    let found = match (filtered, container) {
        (false, false) => "none",
        (true, false) => "a seccomp filter",
        (false, true) => "a container",
        (true, true) => "a container with a seccomp filter",
    };
    check(
        "sandbox",
        !filtered,
        [found].into_iter().map(str::to_owned).chain(minds()).collect::<Vec<_>>().join(", "),
        "a filter may refuse userfaultfd: then nothing is elided, unless the device is let in",
    )
    .by(format!("docker run --device {DEVICE} ..."))
}

/// What filters of system calls mind, as children have found out.
fn minds() -> impl Iterator<Item = String> {
    let survey = Survey::new();
    survey.look();
    Group::ALL.into_iter().filter_map(move |group| match survey.found(group)? {
        Outcome::Ends(call) => Some(format!("which ends programs for {call}")),
        // (Calls of the others are made so that the kernel refuses them.)
        Outcome::Refused(call)
            if matches!(group, Group::Binding | Group::Rights | Group::Blocks) =>
        {
            Some(format!("which refuses {call}"))
        }
        _ => None,
    })
}

fn setting(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The word in brackets.
fn chosen(choices: &str) -> &str {
    choices.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(c, _)| c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_from_6_8_on_are_new_enough() {
        for (release, new) in
            [("6.8.0", true), ("6.18.44-x", true), ("7.0", true), ("6.7.9", false), ("5.15", false)]
        {
            assert_eq!(is_new_enough(release), new, "{release}");
        }
    }

    #[test]
    fn the_chosen_word_is_the_one_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen(""), "");
    }

    #[test]
    fn every_check_says_what_it_costs_and_what_is_missing_how_to_get_it() {
        for check in all("5.4.0", 2) {
            assert!(!check.costs.is_empty() && !check.found.contains('\n'), "{check:?}");
            assert!(check.ok || check.command.is_some(), "{check:?}");
        }
    }
}
