//! Programs that define every function that uncopy's library exports, or takes from another one.

use std::process::Command;

use uncopy_tests::compile::Part;
use uncopy_tests::product::library;
use uncopy_tests::verdict::Stop;

use crate::{Case, RUN, STRICT, TCP};

/// The object file with the functions of a program.
const OBJECT: &str = "every_name.o";

/// Programs of `tests/process`: what they do goes through most of the library.
const ELIDING: &[&str] = &[
    "alternate_signal_stacks",
    "cancelled_in_calls",
    "exec_in_every_way",
    "fork_both_sides_go_on",
    "handlers_called_once",
    "posix_spawn_with_actions",
    "remapped_memory",
    "sends_by_reference",
    "stdio_large_buffers",
    "vectored_calls_by_number",
];
/// Programs of `tests/connections`.
const CONNECTED: &[&str] = &["epoll_modes", "options", "shared_by_processes", "streams", "waiting"];

/// No functions: the program has those of libc, as libc has.
const DATA: &[&str] = &[
    "__libc_single_threaded",
    "__libc_stack_end",
    "_r_debug",
    "environ",
    "program_invocation_short_name",
];

pub fn cases() -> Vec<Case> {
    let named = |directory: &str, program: &str, ways| {
        let mut flags = STRICT.map(str::to_owned).to_vec();
        flags.extend([format!("{{dir}}/{OBJECT}"), "-rdynamic".to_owned()]);
        Case {
            name: format!("every_name_of_its_own_{program}"),
            source: format!("{directory}/{program}.c"),
            flags,
            others: &[],
            preload: None,
            ways,
            elides_at_once: true,
        }
    };
    let eliding = ELIDING.iter().map(|program| named("process", program, &[RUN]));
    let connected = CONNECTED.iter().map(|program| named("connections", program, &[TCP]));
    eliding.chain(connected).collect()
}

/// The functions, as something to be linked with a program.
pub fn part() -> Result<Part, Stop> {
    let mut all = String::from("-DFUNCTIONS=");
    for name in functions()? {
        all.push_str(&format!("F({name})"));
    }
    Ok(Part::named("start/every_name.c", OBJECT, &["-c", &all]))
}

/// Every function that the library exports under a name of libc's, and every one that it takes from
/// elsewhere.
fn functions() -> Result<Vec<String>, Stop> {
    let library = library()?;
    let output = Command::new("nm")
        .args(["-D", "--format=posix"])
        .arg(&library)
        .output()
        .map_err(|e| Stop::Skip(format!("no nm ({e})")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(name), Some(kind)) = (words.next(), words.next()) else { continue };
        // (A symbol without a version is the linker's.)
        let taken = matches!(kind, "U" | "w") && name.contains('@');
        let exported = matches!(kind, "T" | "W") && !name.starts_with("uncopy_");
        let name = name.split('@').next().unwrap_or_default();
        if (taken || exported) && !DATA.contains(&name) {
            found.push(name.to_owned());
        }
    }
    for known in ["sigaction", "dlsym", "clock_gettime", "memcpy"] {
        if !found.iter().any(|name| name == known) {
            return Err(format!("{} neither has nor takes {known}", library.display()).into());
        }
    }
    Ok(found)
}
