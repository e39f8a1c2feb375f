//! The settings of a unit that keep uncopy from working in its service, and what has to be let in.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use uncopy_kernel::descriptors::LEAST_LIMIT;
use uncopy_measure::library;
use uncopy_measure::userfaultfd::{self, DEVICE, GROUP};

use super::Unit;
use crate::run::{checks, program};

/// A line for the drop-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The setting.
    pub text: String,
    /// Why it is needed.
    pub why: String,
}

/// The findings.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Obstacles {
    /// Why the service cannot run under uncopy: nothing is to be written.
    pub blocks: Vec<String>,
    /// The lines to let it in.
    pub let_in: Vec<Line>,
    /// The notes for the user.
    pub notes: Vec<String>,
}

/// The facts of the machine that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Whether the group of those who may use userfaultfd is there.
    pub group: bool,
    /// Whether it may open the device.
    pub device: bool,
    /// Whether everybody may.
    pub everybody: bool,
}

impl Machine {
    /// This one.
    pub fn own() -> Self {
        let group = userfaultfd::group();
        let found = fs::metadata(DEVICE).ok().filter(|found| found.file_type().is_char_device());
        let open_to_group =
            |found: fs::Metadata| Some(found.gid()) == group && found.mode() & 0o060 == 0o060;
        let setting =
            fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
        Self {
            group: group.is_some(),
            device: found.is_some_and(open_to_group),
            everybody: setting.trim() == "1",
        }
    }
}

/// System calls that the library makes in a service and a filter may well refuse: most would end
/// the service for that, so that nothing is elided there (`kernel::survey`). Calls that every
/// program makes (reading, mapping memory, waiting) are not listed.
const CALLS: &[&str] = &[
    "clone",
    "close_range",
    "ioctl",
    "madvise",
    "mremap",
    "prctl",
    "process_vm_readv",
    "process_vm_writev",
    "splice",
    "sysinfo",
    "tgkill",
    "vmsplice",
];

/// Looks through a unit.
pub fn look(unit: &Unit, library: &Path, machine: &Machine) -> Obstacles {
    let mut found = Obstacles::default();
    the_program(unit, &mut found);
    the_preload(unit, &mut found);
    the_library(unit, library, &mut found);
    the_device(unit, machine, &mut found);
    the_filter(unit, &mut found);
    the_limits(unit, &mut found);
    found
}

fn the_program(unit: &Unit, found: &mut Obstacles) {
    let Some(path) = unit.program() else {
        return found.blocks.push("it starts no program (no ExecStart=)".to_owned());
    };
    match program::loaded(&path) {
        Ok(loaded) => found.blocks.extend(checks::obstacle(&loaded).map(String::from)),
        Err(why) => found.blocks.push(format!("{}: {}", path.display(), why.text)),
    }
}

fn the_preload(unit: &Unit, found: &mut Obstacles) {
    let names = |name: &'static str| {
        move |word: &str| word == name || word.starts_with(&format!("{name}="))
    };
    if unit.get("UnsetEnvironment").split(' ').any(names(library::PRELOAD)) {
        found.blocks.push("UnsetEnvironment= takes LD_PRELOAD away".to_owned());
    }
    for file in unit.all("EnvironmentFiles") {
        let file = file.split(" (").next().unwrap_or(file);
        let text = fs::read_to_string(file).unwrap_or_default();
        if text.lines().any(|line| line.trim_start().starts_with("LD_PRELOAD=")) {
            found.blocks.push(format!(
                "EnvironmentFile={file} sets LD_PRELOAD, which counts more than a drop-in; set it \
                 there, with uncopy's library in front"
            ));
        }
    }
}

/// Whether `path` is below one of the directories.
fn below<'a>(path: &Path, directories: impl IntoIterator<Item = &'a str>) -> bool {
    // (A minus in front: it may be missing; a plus: below the service's root. Options follow a
    // colon.)
    let mut names = directories
        .into_iter()
        .map(|d| d.trim_start_matches(['-', '+']).split(':').next().unwrap_or_default());
    names.any(|directory| !directory.is_empty() && path.starts_with(directory))
}

fn the_library(unit: &Unit, library: &Path, found: &mut Obstacles) {
    let hidden: &[(&str, bool, &[&str])] = &[
        (
            "ProtectHome=",
            !matches!(unit.get("ProtectHome"), "" | "no" | "read-only"),
            &["/home", "/root", "/run/user"],
        ),
        ("PrivateTmp=", unit.is("PrivateTmp"), &["/tmp", "/var/tmp"]),
    ];
    for (setting, is_set, directories) in hidden {
        if *is_set && below(library, directories.iter().copied()) {
            found.blocks.push(format!(
                "{setting} hides {} from it; install uncopy below /usr ('make install', or the \
                 package)",
                library.display()
            ));
        }
    }
    for setting in ["InaccessiblePaths", "TemporaryFileSystem"] {
        if below(library, unit.get(setting).split(' ')) {
            found.blocks.push(format!("{setting}= hides {} from it", library.display()));
        }
    }
    for setting in ["RootDirectory", "RootImage"] {
        if !unit.get(setting).is_empty() {
            found
                .blocks
                .push(format!("{setting}= gives it another file system, without uncopy in it"));
        }
    }
    if below(library, unit.get("NoExecPaths").split(' ')) {
        let directory = library.parent().unwrap_or(Path::new("/"));
        let others = unit.get("ExecPaths").split(' ').filter(|path| Path::new(path) != directory);
        if !below(library, others) {
            found.let_in.push(Line {
                text: format!("ExecPaths={}", directory.display()),
                why: "Code of the library may be executed.".to_owned(),
            });
        }
    }
}

fn the_device(unit: &Unit, machine: &Machine, found: &mut Obstacles) {
    let root = matches!(unit.get("User"), "" | "root" | "0") && !unit.is("DynamicUser");
    if !root && !machine.everybody {
        if !machine.group {
            found.blocks.push(format!(
                "its user may not use userfaultfd, and there is no group {GROUP}; install the \
                 package, or: {}",
                userfaultfd::grant()
            ));
        } else if !machine.device {
            found
                .blocks
                .push(format!("the group {GROUP} may not open {DEVICE}; {}", userfaultfd::grant()));
        } else {
            found.let_in.push(Line {
                text: format!("SupplementaryGroups={GROUP}"),
                why: format!("Who may open {DEVICE}."),
            });
        }
    }
    if unit.is("PrivateDevices") {
        found.let_in.push(Line {
            text: format!("BindPaths=-{DEVICE}"),
            why: "PrivateDevices= leaves all devices out.".to_owned(),
        });
    }
    // (By itself this line would shut all other devices out.)
    let others =
        unit.all("DeviceAllow").any(|device| !device.is_empty() && !device.starts_with(DEVICE));
    if !matches!(unit.get("DevicePolicy"), "" | "auto") || others {
        found.let_in.push(Line {
            text: format!("DeviceAllow={DEVICE} rw"),
            why: "The unit's devices are listed.".to_owned(),
        });
    }
}

fn the_filter(unit: &Unit, found: &mut Obstacles) {
    let filter = unit.get("SystemCallFilter");
    let (listed_pass, names) = match filter.strip_prefix('~') {
        Some(names) => (false, names),
        None => (true, filter),
    };
    if names.is_empty() {
        return;
    }
    // (A call may be listed with what it answers: "ptrace:EPERM".)
    let listed = |call: &str| names.split(' ').any(|name| name.split(':').next() == Some(call));
    let refused: Vec<&str> =
        CALLS.iter().copied().filter(|call| listed(call) != listed_pass).collect();
    if !refused.is_empty() {
        let calls = refused.join(" ");
        // Not written by us: should the unit drop its own list one day, ours alone would be all
        // that the service may do.
        found.blocks.push(format!(
            "SystemCallFilter= refuses {calls}, without which less is elided, or nothing; \
             'systemctl edit {}' lets them pass: [Service] SystemCallFilter={calls}",
            unit.name
        ));
    }
}

fn the_limits(unit: &Unit, found: &mut Obstacles) {
    let limit = |name: &str| unit.get(name).parse::<u64>().ok();
    if limit("LimitNOFILE").is_some_and(|files| files < LEAST_LIMIT) {
        found.notes.push(format!(
            "LimitNOFILE= is below {LEAST_LIMIT}: of so few descriptors none is uncopy's, \
             and then nothing is left out"
        ));
    }
    if limit("LimitAS").is_some_and(|bytes| bytes < 1 << 40) {
        found.notes.push(
            "LimitAS= leaves little address space: at most a 32nd of it holds data, so fewer \
             copies are left out"
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Machine = Machine { group: true, device: true, everybody: false };

    fn unit(properties: &[(&str, &str)]) -> Unit {
        let start = ("ExecStart", "{ path=/bin/sh ; argv[]=/bin/sh ; ignore_errors=no }");
        let all = [&[start], properties].concat();
        let properties = all.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Unit { name: "x.service".into(), properties }
    }

    fn look_at(properties: &[(&str, &str)]) -> Obstacles {
        look(&unit(properties), Path::new("/usr/lib/uncopy/libuncopy.so"), &FINE)
    }

    fn lines(found: &Obstacles) -> Vec<&str> {
        found.let_in.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn roots_service_without_a_sandbox_needs_nothing() {
        assert_eq!(look_at(&[]), Obstacles::default());
    }

    #[test]
    fn a_user_gets_the_group_and_a_closed_set_of_devices_the_device() {
        let found =
            look_at(&[("User", "redis"), ("PrivateDevices", "yes"), ("DevicePolicy", "closed")]);
        assert_eq!(found.blocks, [""; 0]);
        assert_eq!(
            lines(&found),
            [
                "SupplementaryGroups=uncopy",
                "BindPaths=-/dev/userfaultfd",
                "DeviceAllow=/dev/userfaultfd rw"
            ]
        );
        // With our own drop-in in force the same is found, and no list begins with ours.
        let again = look_at(&[
            ("User", "redis"),
            ("DevicePolicy", "auto"),
            ("DeviceAllow", "/dev/userfaultfd rw"),
        ]);
        assert_eq!(lines(&again), ["SupplementaryGroups=uncopy"]);
    }

    #[test]
    fn without_a_way_to_the_device_nothing_is_written_and_the_command_is_named() {
        for machine in
            [Machine { group: false, device: false, ..FINE }, Machine { device: false, ..FINE }]
        {
            let found = look(&unit(&[("User", "redis")]), Path::new("/usr/lib/x.so"), &machine);
            assert!(
                found.blocks[0].contains("uncopy") && found.blocks[0].contains(DEVICE),
                "{found:?}"
            );
        }
        let everybody = Machine { group: false, device: false, everybody: true };
        let found = look(&unit(&[("User", "redis")]), Path::new("/usr/lib/x.so"), &everybody);
        assert_eq!(found, Obstacles::default());
    }

    #[test]
    fn a_filter_that_would_end_the_service_blocks_and_says_which_calls() {
        let allowed = CALLS.join(" ");
        assert!(look_at(&[("SystemCallFilter", &allowed)]).blocks.is_empty());
        let found = look_at(&[("SystemCallFilter", &allowed.replace("splice", ""))]);
        assert!(found.blocks[0].contains("SystemCallFilter=splice vmsplice"), "{found:?}");
        assert!(look_at(&[("SystemCallFilter", "~mount ptrace:1")]).blocks.is_empty());
        assert!(look_at(&[("SystemCallFilter", "~mount madvise")]).blocks[0].contains("madvise"));
    }

    #[test]
    fn a_hidden_library_blocks_and_one_that_may_not_be_executed_is_let_in() {
        let at = |path: &str, properties: &[(&str, &str)]| {
            look(&unit(properties), Path::new(path), &FINE)
        };
        assert!(at("/home/me/l.so", &[("ProtectHome", "yes")]).blocks[0].contains("ProtectHome="));
        assert!(at("/home/me/l.so", &[("ProtectHome", "read-only")]).blocks.is_empty());
        assert!(
            at("/opt/l.so", &[("InaccessiblePaths", "-/opt /srv")]).blocks[0].contains("/opt/l.so")
        );
        assert!(!at("/usr/lib/l.so", &[("RootDirectory", "/srv/x")]).blocks.is_empty());
        let found = at(
            "/usr/local/lib/uncopy/l.so",
            &[("NoExecPaths", "/"), ("ExecPaths", "/usr/bin/x /usr/lib")],
        );
        assert_eq!(lines(&found), ["ExecPaths=/usr/local/lib/uncopy"]);
        assert!(
            at("/usr/lib/uncopy/l.so", &[("NoExecPaths", "/"), ("ExecPaths", "/usr/lib")])
                .let_in
                .is_empty()
        );
    }

    #[test]
    fn others_that_set_the_preload_block() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("env");
        fs::write(&file, "A=1\nLD_PRELOAD=/j.so\n").unwrap();
        let shown = format!("{} (ignore_errors=no)", file.display());
        assert!(look_at(&[("EnvironmentFiles", &shown)]).blocks[0].contains("LD_PRELOAD"));
        assert!(!look_at(&[("UnsetEnvironment", "A LD_PRELOAD")]).blocks.is_empty());
    }
}
