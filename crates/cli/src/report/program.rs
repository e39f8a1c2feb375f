//! One program: what it is, and what uncopy did in it.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use uncopy_measure::printable::printable;

use super::Part;
use crate::stat::symbols::Symbols;
use crate::stat::{files, json, process, text, view::View};

/// The prefix of our variables.
const OURS: &[u8] = b"UNCOPY_";

/// Lines of `/proc/PID/status` that hold no data.
const STATUS: &[&str] = &[
    "Name",
    "State",
    "Pid",
    "PPid",
    "Uid",
    "Gid",
    "FDSize",
    "VmPeak",
    "VmSize",
    "VmLck",
    "VmHWM",
    "VmRSS",
    "RssAnon",
    "RssFile",
    "RssShmem",
    "VmData",
    "VmStk",
    "VmSwap",
    "Threads",
    "SigBlk",
    "SigIgn",
    "SigCgt",
    "CapPrm",
    "CapEff",
    "NoNewPrivs",
    "Seccomp",
];

/// The parts that are about it.
pub fn parts(pid: u32) -> Vec<Part> {
    let found = files::of(pid).map(|program| View::new(program, None));
    let mut symbols = HashMap::from([(pid, Symbols::of(pid))]);
    let (people, programs) = match &found {
        Ok(view) => (
            text::program(view, &mut symbols),
            json::lines(std::slice::from_ref(view), &mut symbols),
        ),
        Err(why) => (format!("{why}\n"), format!("{why}\n")),
    };
    vec![
        Part {
            name: "program-stat.txt",
            holds: "its page of 'uncopy stat': counters, call sites by function, decisions",
            text: people,
        },
        Part { name: "program-stat.json", holds: "the same for programs", text: programs },
        Part {
            name: "program-status.txt",
            holds: "from /proc: memory, threads, signals, rights; limits; its memory group's",
            text: status(pid),
        },
        Part {
            name: "program-files.txt",
            holds: "the paths of its executable and of the libraries that it has loaded",
            text: loaded(pid),
        },
        Part {
            name: "program-variables.txt",
            holds: "its variables that begin with UNCOPY_, and no others",
            text: of_process(pid),
        },
    ]
}

/// Those of ours, a line each.
pub fn variables(all: impl Iterator<Item = (OsString, OsString)>) -> String {
    let mut text = String::new();
    for (name, value) in all.filter(|(name, _)| name.as_bytes().starts_with(OURS)) {
        let _ = writeln!(text, "{}={}", printable(&name), printable(&value));
    }
    if text.is_empty() { "none\n".to_owned() } else { text }
}

fn of_process(pid: u32) -> String {
    let Ok(bytes) = fs::read(format!("/proc/{pid}/environ")) else {
        return "not permitted\n".to_owned();
    };
    variables(bytes.split(|b| *b == 0).filter_map(|line| {
        let equals = line.iter().position(|b| *b == b'=')?;
        let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((part(&line[..equals]), part(&line[equals + 1..])))
    }))
}

fn status(pid: u32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
    let mut text = String::new();
    for line in read("status").unwrap_or_default().lines() {
        if STATUS.iter().any(|name| line.split(':').next() == Some(name)) {
            // (The kernel writes a tab behind the name.)
            let _ = writeln!(text, "{}", printable(line.replace('\t', " ")));
        }
    }
    let _ = writeln!(text, "\n{}", read("limits").unwrap_or_else(|e| format!("limits: {e}\n")));
    let group = read("cgroup").unwrap_or_default();
    let group = group.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    for name in ["memory.max", "memory.high", "memory.current", "memory.events"] {
        let path = format!("/sys/fs/cgroup{group}/{name}");
        if let Ok(value) = fs::read_to_string(&path) {
            let _ = writeln!(text, "{name}: {}", value.trim().replace('\n', ", "));
        }
    }
    text
}

fn loaded(pid: u32) -> String {
    let Ok(maps) = process::maps(pid) else { return "not permitted\n".to_owned() };
    let is_code = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.contains(".so")
            || fs::read_link(format!("/proc/{pid}/exe"))
                .is_ok_and(|exe| exe.as_os_str() == OsStr::new(path))
    };
    let paths: BTreeSet<&str> =
        maps.iter().map(|m| m.path.as_str()).filter(|path| is_code(path)).collect();
    paths.into_iter().map(|path| format!("{}\n", printable(path))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_environment_only_our_variables_are_taken() {
        let pairs = [("SECRET", "a"), ("UNCOPY_TCP", "yes"), ("MY_UNCOPY_X", "b")];
        let all = pairs.map(|(name, value)| (name.into(), value.into()));
        assert_eq!(variables(all.into_iter()), "UNCOPY_TCP=yes\n");
        assert_eq!(variables(std::iter::empty()), "none\n");
    }

    #[test]
    fn this_process_has_its_libraries_limits_and_status() {
        let me = std::process::id();
        assert!(loaded(me).contains("libc.so"), "{}", loaded(me));
        let status = status(me);
        assert!(status.contains("VmRSS:") && status.contains("Max open files"), "{status}");
    }
}
