//! One of the two processes: carries out what it is told, call by call, and says what came of it.
//!
//! unsafe: libc's calls on numbers that the driver names; what is wrong with them is the script's
//! affair, the kernel checks them.

mod bytes;
mod calls;
mod sockets;

use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use std::fmt::Write as _;

/// The page in which each actor says that it is in a call.
pub const PAGE: c_int = 3;
/// The connection to the other process, over which descriptors are passed.
pub const LINK: c_int = 4;
/// The first actor's channel; then those of the two threads and the child.
pub const SEATS: c_int = 5;
/// Where duplicates go whose number is said.
pub const NAMED: c_int = 60;

/// Seconds after which a forked child ends, if nobody has ended it.
const CHILD: u32 = 300;

/// The result of a call.
#[derive(Debug, Default)]
pub struct Said {
    result: i64,
    errno: i32,
    digest: u64,
    more: Vec<u64>,
}

impl Said {
    /// The result of a libc call.
    fn of(result: i64) -> Self {
        let errno = if result < 0 { errno() } else { 0 };
        Self { result, errno, ..Self::default() }
    }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

thread_local! {
    static PIPES: Cell<u32> = const { Cell::new(0) };
}

extern "C" fn handled(signal: c_int) {
    if signal == libc::SIGPIPE {
        PIPES.with(|pipes| pipes.set(pipes.get() + 1));
    }
}

/// Serves until it is killed. `child`: it is a forked child that has executed this program.
pub fn work(child: bool) -> ! {
    // SAFETY: settings of this process; the handler touches its own thread's variable only.
    unsafe {
        if !child {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handled as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &action, core::ptr::null_mut());
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR2, &action, core::ptr::null_mut());
        libc::sigaction(libc::SIGPIPE, &action, core::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    if child {
        serve(3);
    }
    for actor in 1..3 {
        std::thread::spawn(move || serve(actor));
    }
    serve(0)
}

/// The word in which an actor says that it is in a call.
fn word(actor: usize) -> &'static AtomicU32 {
    // SAFETY: the driver gave the page, which stays mapped; only words in it are used.
    unsafe {
        let page = libc::mmap(
            core::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            PAGE,
            0,
        );
        assert_ne!(page, libc::MAP_FAILED, "no page");
        &*page.cast::<AtomicU32>().add(actor)
    }
}

fn serve(actor: usize) -> ! {
    let mut actor = actor;
    let side = std::env::var("DIFFER_SIDE").ok().and_then(|side| side.parse().ok());
    let side: usize = side.expect("the driver says which side");
    let mut word_of = word(side * 4 + actor);
    say_hello(actor);
    let mut worker = bytes::Worker::default();
    let mut line = [0; 1024];
    loop {
        // SAFETY: our own buffer.
        let got =
            unsafe { libc::recv(SEATS + actor as c_int, line.as_mut_ptr().cast(), line.len(), 0) };
        if got < 0 && errno() == libc::EINTR {
            continue;
        }
        let Ok(got @ 1..) = usize::try_from(got) else { std::process::exit(0) };
        let text = std::str::from_utf8(&line[..got]).expect("the driver writes text");
        let words: Vec<&str> = text.split(' ').collect();
        PIPES.with(|pipes| pipes.set(0));
        word_of.store(1, Ordering::SeqCst);
        let said = worker.call(&words);
        word_of.store(0, Ordering::SeqCst);
        let Some(said) = said else {
            // The forked child.
            actor = 3;
            word_of = word(side * 4 + actor);
            // (It lives on when its parent is killed; no script takes so long.)
            // SAFETY: a setting of this process.
            unsafe { libc::alarm(CHILD) };
            say_hello(actor);
            continue;
        };
        let pipes = PIPES.with(Cell::get);
        let mut answer = format!("{} {} {pipes} {}", said.result, said.errno, said.digest);
        said.more.iter().for_each(|more| {
            let _ = write!(answer, " {more}");
        });
        answers(actor, &answer);
    }
}

fn say_hello(actor: usize) {
    // SAFETY: no arguments.
    let thread = unsafe { libc::gettid() };
    answers(actor, &format!("{} 0 0 0 {thread}", std::process::id()));
}

fn answers(actor: usize, text: &str) {
    // SAFETY: the text's bytes.
    let sent = unsafe {
        libc::send(SEATS + actor as c_int, text.as_ptr().cast(), text.len(), libc::MSG_NOSIGNAL)
    };
    if sent < 0 {
        std::process::exit(0);
    }
}
