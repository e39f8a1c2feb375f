//! The constructor: options, userfaultfds, fork handlers; the end.
//!
//! Statics: what the constructor finds out, for entry points that the dynamic linker binds and that
//! have nothing in hand; its own entries in the linker's arrays.
//!
//! unsafe: reads the environment that the kernel passed, registers handlers with libc, and names
//! itself to the dynamic linker's arrays.

use crate::facts::{GLIBC_MALLOC, GLIBC_STACK_END, USABLE_SIZE};
use crate::hooks::{entries, files, signals};
use crate::process::PROCESS;
use crate::{HEAP, real, service, summary};
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::CString;
use uncopy_copies::choice::{self, Asked};
use uncopy_copies::features::Features;
use uncopy_copies::measure;
use uncopy_copies::routine::Vectors;
use uncopy_counters::{Counters, family};
use uncopy_decide::{Choice, Costs};
use uncopy_inject::Plan;
use uncopy_kernel::clock;
use uncopy_kernel::imports;
use uncopy_kernel::inject;
use uncopy_kernel::survey::{Group, Obstacle};
use uncopy_kernel::uffd::Refusal;
use uncopy_kernel::user_access;
use uncopy_log_files::Settings as LogSettings;
use uncopy_log_files::answering::{AsEver, Trial, is_mapped};
use uncopy_options::{self as options, OPTIONS, Values, index_of};
use uncopy_space::space::{Record, Settings};
use uncopy_tcp_calls::Blocks;

static EXEC: AtomicPtr<ExecEntry> = AtomicPtr::new(core::ptr::null_mut());

/// The prefix of the names of our settings.
pub const PREFIX: &str = "UNCOPY_";

/// The environment entry that goes along into executed programs.
pub struct ExecEntry {
    /// Path of this library.
    pub library: &'static [u8],
    /// `UNCOPY_*` entries of the environment.
    pub settings: Vec<CString>,
    /// Whether we are to stay loaded there, whatever environment they get.
    pub follows: bool,
}

/// The environment entry that goes along into executed programs.
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
        let mut found = Environment::read(environment);
        // (Asked before uncopy itself shares memory.)
        found.places.mapped = found.places.wants_answers() && is_mapped();
        let with_log = found.places.log.is_some() && real::of_libc::is_next();
        entries::lead_files(with_log);
        if with_log {
            files::watch_mappings();
        }
        // (The gate takes our text only as its file has it.)
        if !found.places.wants_answers() {
            entries::go_directly();
        }
        let word = words.as_ref().copied();
        summary::begin(&found.values, found.places.summary.as_deref(), word);
        set_up(found);
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
    /// valgrind runs the program. It runs one thread at a time: a thread that waits for a page
    /// keeps out the one that would answer.
    valgrind: bool,
    /// `uncopy run --require` started this process.
    required: bool,
}

impl Places {
    /// Whether syncs of held files are to return early.
    fn wants_answers(&self) -> bool {
        self.log.is_some() && self.log_answers
    }

    /// An entry of the environment: a part of this, perhaps.
    fn note(&mut self, name: &str, value: &str) {
        match name {
            "XDG_RUNTIME_DIR" if value.starts_with('/') => self.session = CString::new(value).ok(),
            "LD_PRELOAD" => self.valgrind |= value.contains("/vgpreload_"),
            options::SUMMARY => self.summary = CString::new(value).ok(),
            options::REQUIRED_OF => {
                let own = rustix::process::getpid().as_raw_nonzero().get();
                self.required = value.parse() == Ok(own);
            }
            options::TCP_SERVICE => self.tcp_service = Some(value.to_owned()),
            options::TCP_AFTER => self.tcp_after = value.parse().ok(),
            options::TCP_BLOCKS => self.tcp_blocks = value.parse().ok(),
            options::LOG => self.log = Some(value.to_owned()),
            options::LOG_SYNC => self.log_answers = value == "answers",
            options::LOG_SYNC_TRIAL => self.log_trial = Trial::parse(value),
            options::LOG_FILES => self.log_files = value.split(':').map(str::to_owned).collect(),
            options::RECORD => self.record = CString::new(value).ok(),
            options::RECORD_BYTES => self.record_bytes = value.parse().ok(),
            options::CONTROLLER => self.controller = Choice::parse(value).unwrap_or_default(),
            _ => {}
        }
    }
}

/// Options and prices from the environment; also the library's own path, what to hand on, and where
/// things are: copies of it all, for the memory that the environment lies in is the program's, and
/// servers write what they are about over it.
struct Environment {
    values: Values,
    costs: Costs,
    entry: ExecEntry,
    places: Places,
}

impl Environment {
    /// Reads it.
    ///
    /// # Safety
    /// A null-terminated list of strings, which the kernel has put into memory of the program's
    /// that may be written to.
    unsafe fn read(envp: *const *const c_char) -> Self {
        let mut found = Self {
            values: Values::new(),
            costs: Costs::REFERENCE,
            entry: ExecEntry { library: b"", settings: Vec::new(), follows: true },
            places: Places::default(),
        };
        let mut i = 0;
        // SAFETY: the caller's promise; the two beginnings of SUMMARY are of one length.
        unsafe {
            while !envp.is_null() && !(*envp.add(i)).is_null() {
                // (Until the program runs: it may write its title there.)
                let line = CStr::from_ptr(*envp.add(i));
                i += 1;
                let Ok(text) = line.to_str() else { continue };
                let Some((name, value)) = text.split_once('=') else {
                    continue;
                };
                found.places.note(name, value);
                if !name.starts_with(PREFIX) {
                    continue;
                }
                if name == options::SUMMARY && value.starts_with(family::UNSAID) {
                    let at = (*envp.add(i - 1)).cast_mut().cast::<u8>().add(name.len() + 1);
                    family::SAID.as_ptr().copy_to(at, family::SAID.len());
                }
                found.entry.settings.push(line.to_owned());
                found.take(name, value);
            }
        }
        found
    }

    /// A setting of ours. A value that cannot be read was reported by `uncopy run`; the default
    /// stands.
    fn take(&mut self, name: &str, value: &str) {
        if name == options::INJECT
            && let Ok(plan) = Plan::parse(value)
        {
            inject::arm(&plan, &PROCESS.space.counters().injected);
        }
        if name == options::COSTS
            && let Ok(measured) = Costs::parse(value)
        {
            self.costs = measured;
        }
        if name == "UNCOPY_LIBRARY" {
            self.entry.library = value.as_bytes().to_vec().leak();
        }
        let Some(at) = OPTIONS.iter().position(|o| o.env == name) else {
            return;
        };
        if let Ok(value) = options::parse(&OPTIONS[at], value) {
            self.values.set(at, value);
        }
    }
}

/// The part that the constructor has set up beside the tracker.
#[derive(Clone, Copy)]
struct Beside {
    /// The twin allocator serves large blocks.
    twin: bool,
    /// Connections go by rings.
    tcp: bool,
    /// Files' appends are held.
    log: bool,
    /// Answers wait for syncs.
    answers: bool,
}

impl Beside {
    /// Whether any of them has to know of forks, whatever becomes of the tracker.
    fn handles_forks(self) -> bool {
        self.twin || self.tcp || self.log
    }
}

fn set_up(found: Environment) {
    const STATS: usize = index_of("stats");
    const TCP: usize = index_of("tcp");
    const FOLLOW: usize = index_of("follow-exec");

    let Environment { values, costs, entry, mut places } = found;
    PROCESS.space.survey().look();
    let vectors = choose_copies(&values);
    // A library that chains handlers behind us (libjsig) would take our entry for the program's
    // handler, and the program's for nobody's.
    let chained = !real::of_libc::is_next();
    let passes = PROCESS.space.survey().obstacle(Group::Connections).is_none();
    let tcp = values.get(TCP) != 0 && !chained && passes;
    if values.get(STATS) != 0 {
        PROCESS.space.statistics.directory.name_session(places.session.take());
        PROCESS.space.statistics.allow();
    }
    if values.get(TCP) != 0 && !passes {
        PROCESS.space.counters().tcp_filtered.store(1, Ordering::Relaxed);
    }
    if tcp {
        begin_connections(&values, entry.library, &mut places);
    }
    if !entry.library.is_empty() {
        let entry = ExecEntry { follows: values.get(FOLLOW) != 0, ..entry };
        EXEC.store(Box::into_raw(Box::new(entry)), Ordering::Release);
    }
    let obstacle = PROCESS.space.survey().obstacle(Group::Elision);
    let twin = !places.valgrind
        && !chained
        && obstacle.is_none()
        && begin_allocator(&values, vectors.is_some());
    let wants_answers = places.wants_answers();
    let log = !chained && begin_log(&mut places);
    let mut beside = Beside { twin, tcp, log, answers: false };
    if beside.handles_forks() {
        handle_forks();
    }
    beside.answers = log && wants_answers && begin_answers(tcp, &mut places);
    if summary::is_wanted() {
        signals::hold_ending();
    }
    match (stands_aside(&values, chained, places.valgrind), obstacle) {
        (Some(aside), _) => summary::banner(&values, aside),
        (None, Some(why)) => filter_ends(why, &values, places.required),
        (None, None) => begin_tracking(&values, costs, places, beside),
    }
}

/// Chooses the routine for copies that stay.
fn choose_copies(values: &Values) -> Option<Vectors> {
    const COPIES: usize = index_of("copies");

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
    vectors
}

fn begin_connections(values: &Values, library: &'static [u8], places: &mut Places) {
    const TCP_REFERENCES: usize = index_of("tcp-references");
    const TCP_SPIN: usize = index_of("tcp-spin");

    let spins = values.get(TCP_SPIN) != 0;
    let blocks = match places.tcp_blocks {
        Some(from) => Blocks { from: from.max(1), always: true },
        None if values.get(TCP_REFERENCES) == 0 => Blocks::NONE,
        None => Blocks::LARGE,
    };
    service::begin(library, places.tcp_service.take(), places.tcp_after, spins, blocks);
}

/// Has large blocks come from the twin allocator. Returns whether they do.
fn begin_allocator(values: &Values, leads: bool) -> bool {
    const ALLOCATOR: usize = index_of("allocator");
    const FOREIGN: usize = index_of("foreign-allocator");

    let replaceable = GLIBC_MALLOC.load(Ordering::Relaxed) || values.get(FOREIGN) != 0;
    let twin = values.get(ALLOCATOR) != 0 && replaceable && PROCESS.twin().init(leads);
    if twin {
        PROCESS.space.tended_by(|now, drop| PROCESS.twin().tend(now, drop));
    }
    twin
}

/// Has appends held, if that was asked for. Returns whether they are.
fn begin_log(places: &mut Places) -> bool {
    let Some(directory) = places.log.take() else { return false };
    let log = PROCESS.log.begin(LogSettings {
        directory: directory.into(),
        patterns: core::mem::take(&mut places.log_files),
    });
    if log {
        // (Calls come by there, whether there are connections or not.)
        PROCESS.tcp.attend();
    }
    log
}

fn handle_forks() {
    // SAFETY: handlers that live as long as the process (the library is never unloaded).
    unsafe {
        signals::own();
        signals::enter();
        libc::pthread_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child));
    }
}

/// Why nothing is tracked, where that is known from the beginning.
fn stands_aside(values: &Values, chained: bool, valgrind: bool) -> Option<&'static str> {
    const ELIDE: usize = index_of("elide");

    match values.get(ELIDE) {
        0 => Some("standing aside, as told"),
        _ if chained => Some(
            "standing aside: another preloaded library chains signal handlers behind uncopy; \
             name it before uncopy in LD_PRELOAD",
        ),
        _ if valgrind => Some("standing aside: under valgrind nothing is elided"),
        _ => None,
    }
}

fn begin_tracking(values: &Values, costs: Costs, places: Places, beside: Beside) {
    const THRESHOLD: usize = index_of("threshold");
    const EXTENT_MEMORY: usize = index_of("extent-memory");
    const FILE_MEMORY: usize = index_of("file-memory");
    const MAX_MAPPINGS: usize = index_of("max-mappings");
    const BACKOFF: usize = index_of("backoff");
    const LEND: usize = index_of("lend");

    let settings = Settings {
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
    match PROCESS.space.init(values.get(THRESHOLD) as usize, settings) {
        Ok(()) => {
            // (Bytes that are lent, or sent from a file that is kept, go past libc.)
            let lends = PROCESS.space.survey().obstacle(Group::Lending).is_none();
            if values.get(LEND) != 0 && lends && !beside.answers {
                PROCESS.lending.allow(costs.lend_from());
            }
            let kept = if beside.answers { 0 } else { values.get(FILE_MEMORY) as usize };
            PROCESS.files.allow(&PROCESS.space, kept);
            if !beside.handles_forks() {
                handle_forks();
            }
            summary::banner(values, "ready");
        }
        Err(why) => cannot_track(why, values, places.required),
    }
}

fn cannot_track(why: Refusal, values: &Values, required: bool) {
    let state = match why {
        Refusal::Permission => "userfaultfd is not permitted: nothing is elided",
        Refusal::Kernel => "the kernel has no UFFDIO_MOVE (Linux 6.8): nothing is elided",
        Refusal::Other(_) => "userfaultfd failed: nothing is elided",
    };
    elides_nothing(state, values, required);
}

/// A filter that was there before the program would end it, or might.
fn filter_ends(why: Obstacle, values: &Values, required: bool) {
    PROCESS.space.off(&PROCESS.space.counters().off_filter);
    let state = format!("{why}: nothing is elided");
    elides_nothing(&state, values, required);
}

/// Nothing is elided. Where `uncopy run --require` started the process, it ends here.
fn elides_nothing(state: &str, values: &Values, required: bool) {
    if required {
        let said = format!("uncopy: refused: {state}\n");
        // SAFETY: it is as long as that. The program has not begun: nothing of it is lost.
        unsafe {
            libc::write(libc::STDERR_FILENO, said.as_ptr().cast(), said.len());
            libc::_exit(options::REFUSED.into())
        }
    }
    summary::banner(values, state);
}

/// Syncs return early, and answers wait for them, from now on: whether that is so.
fn begin_answers(tcp: bool, places: &mut Places) -> bool {
    let trial = core::mem::take(&mut places.log_trial);
    if !trial.through.is_empty() {
        summary::answers_are_let_through();
    }
    let why = match (tcp, places.mapped) {
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
