//! The machine, and what it permits.

use std::fmt::Write;
use std::fs;

use uncopy_measure::machine::Machine;
use uncopy_measure::printable::printable;
use uncopy_measure::{cache, library};

use crate::doctor::checks;

/// Settings of the kernel that matter to uncopy.
const SETTINGS: &[&str] = &[
    "/proc/sys/kernel/osrelease",
    "/proc/sys/vm/unprivileged_userfaultfd",
    "/proc/sys/vm/max_map_count",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/lru_gen/enabled",
];

/// Lines of `/proc/meminfo` that do.
const MEMORY: &[&str] = &["MemTotal", "MemAvailable", "SwapTotal", "Hugepagesize"];

/// Where the library is, or why it is not found.
pub fn library() -> String {
    match library::find(None) {
        Ok(path) => format!("library: {}\n", printable(&path)),
        Err(why) => format!("library: {}\n", printable(why.to_string())),
    }
}

/// Processor, memory, kernel, distribution, settings.
pub fn text() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut text = format!("processor: {}, {cores} cores\n", Machine::own().cpu);
    let distribution = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let distribution = distribution.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let _ = writeln!(text, "distribution: {}", printable(distribution.unwrap_or("unknown")));
    for path in SETTINGS {
        let value = fs::read_to_string(path).unwrap_or_else(|e| format!("({e})"));
        let _ = writeln!(text, "{path}: {}", printable(value.trim()));
    }
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let wanted = |line: &&str| MEMORY.iter().any(|name| line.starts_with(name));
    memory.lines().filter(wanted).for_each(|line| text.extend([line, "\n"]));
    text
}

/// The doctor's checks, and the costs that it has kept.
pub fn permits() -> String {
    let kernel = Machine::own().kernel;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut text = String::new();
    for check in checks::all(&kernel, cores) {
        let state = if check.ok { "ok" } else { "missing" };
        let _ = writeln!(text, "{}: {state}, {}", check.name, printable(&check.found));
    }
    let costs = cache::handed_on().unwrap_or_else(|| "none kept".to_owned());
    text + &format!("costs: {costs}\n")
}
