//! `--verbose`: one line at the start, and at the end what was done.
//!
//! Statics: what is said at the end is asked for by `_exit` and by the linker's array of destructors.
//!
//! unsafe: duplicates and writes to a descriptor by its number; the program's name is libc's.

use crate::process::PROCESS;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicU64, Ordering};
use std::fmt::Write;
use std::os::fd::BorrowedFd;
use uncopy_counters::summary;
use uncopy_kernel::descriptors::{AtomicFd, lift};
use uncopy_options::{self as options, VERBOSE, VERBOSE_ALL, VERBOSE_COUNTERS, Values, index_of};

/// Where it is said: standard error as it was at the start, because programs close theirs before we come to the summary.
/// -1: nowhere.
static TO: AtomicFd = AtomicFd::none();
/// The value of `--verbose`; 0 once the summary was said.
static WHAT: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    static program_invocation_short_name: *const c_char;
}

/// For the constructor; `file` is where a family is summed up.
pub fn begin(values: &Values, file: Option<&CStr>) {
    const AT: usize = index_of("verbose");
    let what = values.get(AT);
    if what == 0 {
        return;
    }
    let Ok(fd) = lift(rustix::stdio::stderr()) else { return };
    TO.set(fd.into_raw());
    WHAT.store(what, Ordering::Relaxed);
    PROCESS.family.join(file.filter(|_| what == VERBOSE));
}

/// The descriptor that it is written to, or -1.
pub fn descriptor() -> c_int {
    TO.get()
}

fn say(text: &str) {
    let fd = descriptor();
    if fd >= 0 {
        // SAFETY: opened by the constructor, spared by `close`; a write to another is an error.
        let _ = rustix::io::write(unsafe { BorrowedFd::borrow_raw(fd) }, text.as_bytes());
    }
}

/// The line at the start: of the first process, or of each.
pub fn banner(values: &Values, state: &str) {
    let what = WHAT.load(Ordering::Relaxed);
    if what == 0 || what == VERBOSE && !PROCESS.family.announces() {
        return;
    }
    let mut line = format!(
        "uncopy: {} [{}]: {state}",
        env!("CARGO_PKG_VERSION"),
        rustix::process::getpid().as_raw_nonzero()
    );
    for (spec, value) in values.changed().filter(|(s, _)| s.name != "verbose") {
        let _ = write!(line, ", {}={}", spec.name, options::text(spec, value));
    }
    line.push('\n');
    say(&line);
}

/// Before the program executes another: what was done so far is the program's still.
pub fn before_exec() {
    if WHAT.load(Ordering::Relaxed) == VERBOSE {
        PROCESS.family.add(PROCESS.space.counters());
    }
}

/// At exit.
pub fn end() {
    let what = WHAT.load(Ordering::Relaxed);
    if what == 0 || !PROCESS.family.is_ours(PROCESS.space.counters()) {
        return;
    }
    PROCESS.family.add(PROCESS.space.counters());
    let mut text = String::new();
    match WHAT.swap(0, Ordering::Relaxed) {
        VERBOSE => {
            if let Some((own, others, of_others)) = PROCESS.family.take(PROCESS.space.counters()) {
                let others = summary::of_others(others, &of_others);
                let mut lines = named(summary::phrases(&own));
                lines.extend(others.map(|line| format!("uncopy: {line}")));
                if lines.is_empty() {
                    lines.push(format!(
                        "uncopy: {}: nothing was left out: no large copy of data that came in was seen",
                        name()
                    ));
                }
                lines.iter().for_each(|line| text.extend([line, "\n"]));
            }
        }
        VERBOSE_ALL => {
            let lines = named(summary::phrases(&PROCESS.space.counters().snapshot()));
            lines.iter().for_each(|line| text.extend([line, "\n"]));
        }
        VERBOSE_COUNTERS => {
            // (What is 0 says nothing, and a process that did nothing has nothing to say.)
            for (name, value) in
                PROCESS.space.counters().snapshot().iter().filter(|(_, value)| *value > 0)
            {
                let _ = writeln!(text, "uncopy: {name}={value}");
            }
        }
        _ => {}
    }
    if !text.is_empty() {
        say(&text);
    }
}

/// Lines about this process.
fn named(phrases: Vec<String>) -> Vec<String> {
    let name = name();
    phrases.into_iter().map(|phrase| format!("uncopy: {name}: {phrase}")).collect()
}

/// Whose it is: `redis-server [4711]`. What is no visible character of the name's is left out.
fn name() -> String {
    // SAFETY: libc's own string, which lives as long as the process.
    let name = unsafe { CStr::from_ptr(program_invocation_short_name) }.to_string_lossy();
    let name: String = name.chars().filter(|c| !c.is_control()).collect();
    format!("{name} [{}]", PROCESS.family.owner())
}
