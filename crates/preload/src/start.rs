//! The constructor: options, userfaultfds, fork handlers; the end.
//!
//! Statics: what the constructor finds out, for entry points that the dynamic linker binds and that
//! have nothing in hand; its own entries in the linker's arrays.
//!
//! unsafe: reads the environment that the kernel passed, registers handlers with libc, and names
//! itself to the dynamic linker's arrays.

use crate::facts::{self, GLIBC_MALLOC, GLIBC_STACK_END, USABLE_SIZE};
use crate::hooks::{entries, files, signals};
use crate::process::PROCESS;
use crate::{HEAP, real, service, summary};
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::CString;
use uncopy_copies::choice::{self, Asked};
use uncopy_copies::features::Features;
use uncopy_copies::measure;
use uncopy_counters::{Counters, family};
use uncopy_decide::{Choice, Costs};
use uncopy_inject::Plan;
use uncopy_kernel::clock;
use uncopy_kernel::imports;
use uncopy_kernel::inject;
use uncopy_kernel::uffd::Refusal;
use uncopy_kernel::user_access;
use uncopy_log_files::Settings as LogSettings;
use uncopy_log_files::answering::{AsEver, Trial, is_mapped};
use uncopy_options::{self as options, OPTIONS, Values, index_of};
use uncopy_space::space::{Record, Settings};
use uncopy_tcp_calls::Blocks;

static EXEC: AtomicPtr<ExecEntry> = AtomicPtr::new(core::ptr::null_mut());

/// What the names of our settings begin with.
pub const PREFIX: &str = "UNCOPY_";

/// What goes along into executed programs.
pub struct ExecEntry {
    /// Path of this library.
    pub library: &'static [u8],
    /// `UNCOPY_*` entries of the environment.
    pub settings: Vec<CString>,
    /// Whether we are to stay loaded there, whatever environment they get.
    pub follows: bool,
}

/// What goes along into executed programs.
pub fn exec_entry() -> Option<&'static ExecEntry> {
    // SAFETY: set once, leaked.
    unsafe { EXEC.load(Ordering::Acquire).as_ref() }
}

/// The counters of this process, for a program that looks for this symbol (the bundled echo
/// server does).
#[unsafe(no_mangle)]
pub extern "C" fn uncopy_counters() -> *const Counters {
    PROCESS.space.counters()
}

/// The counter called `name`, for such a program; 0 where there is none.
///
/// # Safety
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uncopy_counter(name: *const c_char) -> u64 {
    PROCESS.tcp.tell_totals();
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let found = PROCESS.space.counters().snapshot().iter().find(|(n, _)| n.as_bytes() == name);
    found.map_or(0, |(_, value)| value)
}

unsafe extern "C" {
    static __libc_stack_end: usize;
}

// SAFETY: the dynamic linker calls what stands in these arrays, with (argc, argv, envp) at start.
#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;
// SAFETY: as above, at exit.
#[unsafe(link_section = ".fini_array")]
#[used]
static DESTRUCTOR: extern "C" fn() = end;

unsafe extern "C" fn begin(
    _: c_int,
    words: *const *const c_char,
    environment: *const *const c_char,
) {
    // SAFETY: errno and the lookups are libc's; both lists are strings and end with a null pointer.
    unsafe {
        imports::bind();
        let errno = *libc::__errno_location();
        real::find_copies();
        real::find_all();
        clock::prepare();
        user_access::caught_by(signals::catch_faults);
        GLIBC_STACK_END.store(__libc_stack_end, Ordering::Relaxed);
        GLIBC_MALLOC.store(real::glibc_malloc(), Ordering::Relaxed);
        USABLE_SIZE.store(real::usable_size_fits(), Ordering::Relaxed);
        if libc::getauxval(libc::AT_SECURE) != 0 {
            // More rights than its user's (set-user-ID; we are in /etc/ld.so.preload, the dynamic
            // linker ignores LD_PRELOAD there): the environment is not to be trusted, least of all
            // with what is preloaded next.
            *libc::__errno_location() = errno;
            return;
        }
        let (values, costs, entry, mut places) = read_environment(environment);
        // (Asked before uncopy itself shares memory.)
        places.mapped = places.log.is_some() && places.log_answers && is_mapped();
        let with_log = places.log.is_some() && real::of_libc::is_next();
        entries::lead_files(with_log);
        if with_log {
            files::watch_mappings();
        }
        entries::go_directly();
        summary::begin(&values, places.summary.as_deref(), words.as_ref().copied());
        set_up(&values, costs, entry, places);
        libc::dlerror(); // what our lookups left there is not the program's
        *libc::__errno_location() = errno;
    }
}

/// Where things are that others made, and what else is no option.
#[derive(Default)]
struct Places {
    /// The session's directory.
    session: Option<CString>,
    /// The file in which a program and all that it starts are summed up.
    summary: Option<CString>,
    /// The service of connections within this host.
    tcp_service: Option<String>,
    /// Calls after which a connection is registered there.
    tcp_after: Option<u32>,
    /// Where the log's service answers, and which files may be held.
    log: Option<String>,
    log_files: Vec<String>,
    /// Whether that goes for files that are overwritten, too.
    log_overwrites: bool,
    /// Whether answers are to wait for syncs, and what is let through, for tests.
    log_answers: bool,
    log_trial: Trial,
    /// The program shares memory that it can write to.
    mapped: bool,
    /// Bytes from which on messages go in blocks, whoever receives them.
    tcp_blocks: Option<usize>,
    /// The file in which it is recorded, and how large that may be.
    record: Option<CString>,
    record_bytes: Option<usize>,
    /// The controller that decides.
    controller: Choice,
    /// valgrind runs the program. It runs one thread at a time: who waits for a page keeps out who
    /// would answer.
    valgrind: bool,
    /// `uncopy run --require` started this process.
    required: bool,
}

/// Options and prices from the environment; also the library's own path, what to hand on, and where
/// things are: copies of it all, for the memory that the environment lies in is the program's, and
/// servers write what they are about over it.
unsafe fn read_environment(envp: *const *const c_char) -> (Values, Costs, ExecEntry, Places) {
    let mut places = Places::default();
    let mut values = Values::new();
    let mut costs = Costs::REFERENCE;
    let mut entry = ExecEntry { library: b"", settings: Vec::new(), follows: true };
    let mut i = 0;
    // SAFETY: a null-terminated list of strings, which the kernel has put into memory of the
    // program's that may be written to; the two beginnings of SUMMARY are of one length.
    unsafe {
        while !envp.is_null() && !(*envp.add(i)).is_null() {
            // (Until the program runs: it may write its title there.)
            let line = CStr::from_ptr(*envp.add(i));
            i += 1;
            let Ok(text) = line.to_str() else { continue };
            let Some((name, value)) = text.split_once('=') else {
                continue;
            };
            if name == "XDG_RUNTIME_DIR" && value.starts_with('/') {
                places.session = CString::new(value).ok();
            }
            places.valgrind |= name == "LD_PRELOAD" && value.contains("/vgpreload_");
            if !name.starts_with(PREFIX) {
                continue;
            }
            if name == options::SUMMARY {
                places.summary = CString::new(value).ok();
                if value.starts_with(family::UNSAID) {
                    let at = (*envp.add(i - 1)).cast_mut().cast::<u8>().add(name.len() + 1);
                    family::SAID.as_ptr().copy_to(at, family::SAID.len());
                }
            }
            entry.settings.push(line.to_owned());
            // What cannot be read, here and below, was said by `uncopy run`; the default stands.
            if name == options::INJECT
                && let Ok(plan) = Plan::parse(value)
            {
                inject::arm(&plan, &PROCESS.space.counters().injected);
            }
            if name == options::COSTS
                && let Ok(measured) = Costs::parse(value)
            {
                costs = measured;
            }
            if name == options::REQUIRED_OF {
                let own = rustix::process::getpid().as_raw_nonzero().get();
                places.required = value.parse() == Ok(own);
            }
            if name == options::TCP_SERVICE {
                places.tcp_service = Some(value.to_owned());
            }
            if name == options::TCP_AFTER {
                places.tcp_after = value.parse().ok();
            }
            if name == options::LOG {
                places.log = Some(value.to_owned());
            }
            if name == options::LOG_OVERWRITES {
                places.log_overwrites = value == "yes";
            }
            if name == options::LOG_SYNC {
                places.log_answers = value == "answers";
            }
            if name == options::LOG_SYNC_TRIAL {
                places.log_trial = Trial::parse(value);
            }
            if name == options::LOG_FILES {
                places.log_files = value.split(':').map(str::to_owned).collect();
            }
            if name == options::TCP_BLOCKS {
                places.tcp_blocks = value.parse().ok();
            }
            if name == options::RECORD {
                places.record = CString::new(value).ok();
            }
            if name == options::RECORD_BYTES {
                places.record_bytes = value.parse().ok();
            }
            if name == options::CONTROLLER {
                places.controller = Choice::parse(value).unwrap_or_default();
            }
            if name == "UNCOPY_LIBRARY" {
                entry.library = value.as_bytes().to_vec().leak();
            }
            let Some(at) = OPTIONS.iter().position(|o| o.env == name) else {
                continue;
            };
            if let Ok(v) = options::parse(&OPTIONS[at], value) {
                values.set(at, v);
            }
        }
    }
    (values, costs, entry, places)
}

fn set_up(values: &Values, costs: Costs, entry: ExecEntry, places: Places) {
    const ELIDE: usize = index_of("elide");
    const COPIES: usize = index_of("copies");
    const ALLOCATOR: usize = index_of("allocator");
    const FOREIGN: usize = index_of("foreign-allocator");
    const THRESHOLD_AT: usize = index_of("threshold");
    const EXTENT_MEMORY: usize = index_of("extent-memory");
    const FILE_MEMORY: usize = index_of("file-memory");
    const MAX_MAPPINGS: usize = index_of("max-mappings");
    const BACKOFF: usize = index_of("backoff");
    const FOLLOW: usize = index_of("follow-exec");
    const LEND: usize = index_of("lend");
    const STATS: usize = index_of("stats");
    const TCP: usize = index_of("tcp");
    const TCP_REFERENCES: usize = index_of("tcp-references");
    const TCP_SPIN: usize = index_of("tcp-spin");

    let asked = match values.get(COPIES) {
        options::COPIES_AUTO => Asked::Auto,
        options::COPIES_LIBC => Asked::Libc,
        _ => Asked::Ours,
    };
    let took = || measure::near_copy(real::libcs_copy());
    let vectors = choice::choose(asked, took, Features::own);
    if let Some(vectors) = vectors {
        PROCESS.copies.take(vectors);
    }
    // Whoever chains handlers behind us (libjsig) would take our entry for the program's handler,
    // and the program's for nobody's.
    let chained = !real::of_libc::is_next();
    let tcp = values.get(TCP) != 0 && !chained;
    if values.get(STATS) != 0 {
        PROCESS.space.statistics.directory.name_session(places.session);
        PROCESS.space.statistics.allow();
    }
    if tcp {
        let spins = values.get(TCP_SPIN) != 0;
        let blocks = match places.tcp_blocks {
            Some(from) => Blocks { from: from.max(1), always: true },
            None if values.get(TCP_REFERENCES) == 0 => Blocks::NONE,
            None => Blocks::LARGE,
        };
        service::begin(entry.library, places.tcp_service, places.tcp_after, spins, blocks);
    }
    if !entry.library.is_empty() {
        let entry = ExecEntry { follows: values.get(FOLLOW) != 0, ..entry };
        EXEC.store(Box::into_raw(Box::new(entry)), Ordering::Release);
    }
    let replaceable = GLIBC_MALLOC.load(Ordering::Relaxed) || values.get(FOREIGN) != 0;
    let twin = values.get(ALLOCATOR) != 0
        && replaceable
        && !places.valgrind
        && !chained
        && PROCESS.twin().init(vectors.is_some());
    if twin {
        PROCESS.space.tended_by(|now, drop| PROCESS.twin().tend(now, drop));
    }
    // SAFETY: handlers that live as long as the process (the library is never unloaded).
    let handle_forks = || unsafe {
        signals::own();
        signals::enter();
        libc::pthread_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child));
    };
    let log = places.log.filter(|_| !chained).is_some_and(|directory| {
        let settings = LogSettings {
            directory: directory.into(),
            patterns: places.log_files.clone(),
            overwrites: places.log_overwrites,
        };
        PROCESS.log.begin(settings)
    });
    if log {
        // (Calls come by there, whether there are connections or not.)
        PROCESS.tcp.attend();
    }
    if twin || tcp || log {
        handle_forks();
    }
    // (What is lent, or sent from a file that is kept, goes past libc.)
    let answers = log && places.log_answers && begin_answers(tcp, places.mapped, places.log_trial);
    let aside = match values.get(ELIDE) {
        0 => Some("standing aside, as told"),
        _ if chained => Some(
            "standing aside: another preloaded library chains signal handlers behind uncopy; \
             name it before uncopy in LD_PRELOAD",
        ),
        _ if places.valgrind => Some("standing aside: under valgrind nothing is elided"),
        _ => None,
    };
    if summary::is_wanted() {
        signals::hold_ending();
    }
    if let Some(aside) = aside {
        summary::banner(values, aside);
        return;
    }
    let threshold = values.get(THRESHOLD_AT) as usize;
    let settings = Settings {
        threshold,
        backoff: values.get(BACKOFF) != 0,
        extent_bytes: values.get(EXTENT_MEMORY) as usize,
        ranges: values.get(MAX_MAPPINGS) as usize,
        costs,
        controller: places.controller,
        record: places.record.map(|file| Record {
            file: Box::leak(file.into_boxed_c_str()),
            bytes: places.record_bytes.unwrap_or(options::RECORD_BYTES_DEFAULT),
        }),
        copy_bytes: crate::hooks::copy::copy_bytes,
        alone,
        books_short: uncopy_heap::is_short,
        times: || PROCESS.space.times(),
        started: signals::hold_dumping,
    };
    match PROCESS.space.init(settings) {
        Ok(()) => {
            facts::set_threshold(threshold);
            if values.get(LEND) != 0 && !answers {
                PROCESS.lending.allow(costs.lend_from());
            }
            let kept = if answers { 0 } else { values.get(FILE_MEMORY) as usize };
            PROCESS.files.allow(&PROCESS.space, kept);
            if !twin && !tcp && !log {
                handle_forks();
            }
            summary::banner(values, "ready");
        }
        Err(why) => {
            let state = match why {
                Refusal::Permission => "userfaultfd is not permitted: nothing is elided",
                Refusal::Kernel => "the kernel has no UFFDIO_MOVE (Linux 6.8): nothing is elided",
                Refusal::Other(_) => "userfaultfd failed: nothing is elided",
            };
            if places.required {
                let said = format!("uncopy: refused: {state}\n");
                // SAFETY: it is as long as that. The program has not begun: nothing of it is lost.
                unsafe {
                    libc::write(libc::STDERR_FILENO, said.as_ptr().cast(), said.len());
                    libc::_exit(options::REFUSED.into())
                }
            }
            summary::banner(values, state);
        }
    }
}

/// Syncs return early, and answers wait for them, from now on: whether that is so.
fn begin_answers(tcp: bool, mapped: bool, trial: Trial) -> bool {
    let why = match (tcp, mapped) {
        (true, _) => Err(AsEver::Tcp),
        (_, true) => Err(AsEver::Mapped),
        _ => PROCESS.log.begin_answers(summary::answers_do_not_wait, trial),
    };
    match why {
        Ok(()) => summary::answers_wait(),
        Err(reason) => {
            PROCESS.log.no_answers(reason);
            summary::answers_do_not_wait(reason);
        }
    }
    why.is_ok()
}

/// Before fork.
pub extern "C" fn before_fork() {
    PROCESS.before_fork(|| {
        HEAP.before_fork();
        signals::before_fork();
    });
}

/// After fork, in the parent.
pub extern "C" fn after_fork_parent() {
    PROCESS.after_fork_parent(|| {
        signals::after_fork_parent();
        HEAP.after_fork_parent();
    });
}

/// After fork, in the child.
pub extern "C" fn after_fork_child() {
    PROCESS.after_fork_child(|| {
        signals::own();
        HEAP.after_fork_child();
    });
}

/// In a child that was made behind our back, where no other thread exists: it goes on without us.
pub fn alone() {
    PROCESS.alone(|| HEAP.after_fork_child());
}

extern "C" fn end() {
    PROCESS.log.program_ends();
    PROCESS.tcp.before_end();
    PROCESS.tcp.program_ends();
    PROCESS.space.end_recording();
    PROCESS.space.statistics.withdraw();
    summary::end();
}
