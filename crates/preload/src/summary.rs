//! `--verbose`: one line at the start, and at the end what was done.
//!
//! Statics: what is said at the end is asked for by `_exit` and by the linker's array of
//! destructors.
//!
//! unsafe: duplicates and writes to a descriptor by its number; the program's name is the kernel's
//! string.

use crate::process::PROCESS;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::fmt::Write;
use std::os::fd::BorrowedFd;
use uncopy_counters::{connections, summary};
use uncopy_kernel::descriptors::{AtomicFd, lift};
use uncopy_log_files::answering::{AsEver, found};
use uncopy_options::{self as options, VERBOSE, VERBOSE_ALL, VERBOSE_COUNTERS, Values, index_of};

/// Where it is said: standard error as it was at the start, because programs close theirs before we
/// come to the summary. -1: nowhere.
static TO: AtomicFd = AtomicFd::none();
/// The value of `--verbose`; 0 once the summary was said.
static WHAT: AtomicU64 = AtomicU64::new(0);

/// The program's name. (Its own words are the program's to write over.)
static NAME: AtomicPtr<String> = AtomicPtr::new(core::ptr::null_mut());

/// For the constructor; `file` is where a family is summed up, `word` the first of the program's.
///
/// # Safety
/// `word` is a string or null.
pub unsafe fn begin(values: &Values, file: Option<&CStr>, word: Option<*const c_char>) {
    const AT: usize = index_of("verbose");
    let what = values.get(AT);
    if what == 0 {
        return;
    }
    if let Some(word) = word.filter(|word| !word.is_null()) {
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(word) }.to_string_lossy();
        let name = name.rsplit('/').next().unwrap_or_default();
        let shown: String = name.chars().filter(|c| !c.is_control()).collect();
        NAME.store(Box::into_raw(Box::new(shown)), Ordering::Relaxed);
    }
    let Ok(fd) = lift(rustix::stdio::stderr()) else { return };
    TO.set(fd.into_raw());
    WHAT.store(what, Ordering::Relaxed);
    PROCESS.family.join(file.filter(|_| what == VERBOSE));
}

/// Whether anything is said at the end.
pub fn is_wanted() -> bool {
    WHAT.load(Ordering::Relaxed) != 0
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
    PROCESS.space.read_limits();
    if let Some(limits) = PROCESS.space.said_of_limits() {
        let _ = write!(line, ", {limits}");
    }
    if what == VERBOSE && !PROCESS.family.counts_executed() {
        line.push_str(", programs that it executes are not counted (no directory for that)");
    }
    line.push('\n');
    say(&line);
}

/// Syncs return early from now on.
pub fn answers_wait() {
    if is_wanted() {
        say("uncopy: answers wait for syncs\n");
    }
}

/// A test lets some calls through: nobody is to rely on what follows.
pub fn answers_are_let_through() {
    say("uncopy: UNCOPY_LOG_SYNC_TRIAL lets calls through: answers do not wait for all syncs\n");
}

/// Syncs are as ever, though they were to return early.
pub fn answers_do_not_wait(reason: AsEver) {
    if is_wanted() {
        let found = found().map(|what| format!(" ({what})")).unwrap_or_default();
        say(&format!("uncopy: syncs are as ever: {}: {}{found}\n", reason.name(), reason.text()));
    }
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
    // (What is said now says that the program has come so far.)
    PROCESS.log.await_answers();
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
                        "uncopy: {}: nothing was left out: no large copy of data that came in was \
                         seen",
                        name()
                    ));
                }
                let any = [&own, &of_others].map(connections::line).iter().any(Option::is_some);
                if PROCESS.tcp.begun() && !any {
                    lines.push(format!("uncopy: {}: no connection was opened or accepted", name()));
                }
                lines.iter().for_each(|line| text.extend([line, "\n"]));
            }
        }
        VERBOSE_ALL => {
            let lines = named(summary::phrases(&PROCESS.space.counters().snapshot()));
            lines.iter().for_each(|line| text.extend([line, "\n"]));
        }
        VERBOSE_COUNTERS => {
            // (Counters that are 0 are left out, and a process that did nothing writes nothing.)
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

/// The process' name: `redis-server [4711]`. Characters of it that are not visible are left out.
fn name() -> String {
    // SAFETY: made once, never freed.
    let name = unsafe { NAME.load(Ordering::Relaxed).as_ref() }.map_or("", String::as_str);
    format!("{name} [{}]", PROCESS.family.owner())
}
