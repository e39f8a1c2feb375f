//! A script carried out in this process: the program that is run plainly and under uncopy.
//!
//! unsafe: everything here. Buffers are raw memory that operations free, move and protect; that no
//! two operations use one at a time is the script's order ([`Script::turns`]).

mod calls;
mod channels;
mod given;
mod log;
mod memory;
mod ops;
mod raw;
mod rights;
mod signals;
mod staged;
mod threads;
mod unread;

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;
use log::Note;
use memory::{Arrays, Buf, Kind, PAGE};
use std::sync::{Barrier, Condvar, Mutex, OnceLock};
use uncopy_torture::op::{MapOf, Op, Slot, Via};
use uncopy_torture::script::{Line, Script, Storage, room};

const STACK: usize = room(Storage::Stack(0));

struct Slots(Vec<UnsafeCell<Buf>>);
// SAFETY: an operation uses its buffers only when it is their turn; a child is alone.
unsafe impl Sync for Slots {}
// SAFETY: as above.
unsafe impl Send for Slots {}

struct World {
    script: Script,
    turns: Vec<Vec<(Slot, usize)>>,
    /// How many lines have used each buffer.
    done: Mutex<Vec<usize>>,
    changed: Condvar,
    slots: OnceLock<Slots>,
    stacks: Mutex<Vec<usize>>,
    all: Barrier,
}

/// The process that a line is carried out in.
#[derive(Clone, Copy)]
struct Process {
    child: Option<usize>,
    thread: usize,
}

/// Carries out `script`. Returns whether all that can be told without a comparison was right.
pub fn run(script: Script) -> bool {
    let threads = script.threads.max(1);
    let world = World {
        turns: script.turns(),
        done: Mutex::new(vec![0; script.slots.len()]),
        changed: Condvar::new(),
        slots: OnceLock::new(),
        stacks: Mutex::new(vec![0; threads]),
        all: Barrier::new(threads),
        script,
    };
    ops::FORKS.store(threads > 1 && script_forks(&world.script), Relaxed);
    signals::install();
    std::thread::scope(|scope| {
        signals::blocked(|| {
            for thread in 1..threads {
                let builder = std::thread::Builder::new().stack_size(STACK + (1 << 20));
                let world = &world;
                builder.spawn_scoped(scope, move || world.thread(thread)).expect("a thread");
            }
        });
        world.thread(0);
    });
    !signals::WRONG.load(Relaxed)
}

fn script_forks(script: &Script) -> bool {
    script.lines.iter().any(|l| matches!(l.op, Op::Fork { .. } | Op::Clone { .. }))
}

impl World {
    #[inline(never)]
    fn thread(&self, thread: usize) {
        // From a page on, so that it lies the same on every thread and in every run.
        let mut stack = [0u8; STACK + PAGE];
        let start = (stack.as_mut_ptr() as usize).next_multiple_of(PAGE);
        self.stacks.lock().expect("no thread panics")[thread] = start;
        self.all.wait();
        let slots = self.slots.get_or_init(|| {
            let arrays = Arrays::new(self.stacks.lock().expect("no thread panics").clone());
            Slots(self.script.slots.iter().map(|b| UnsafeCell::new(arrays.buffer(b))).collect())
        });
        if self.script.signals {
            signals::prepare(channels::file(Via::File));
            if thread == 0 {
                signals::timer(true);
            }
        }
        let process = Process { child: None, thread };
        unblock();
        self.lines(process);
        self.all.wait();
        if thread == 0 {
            self.sweep(process, 0..slots.0.len());
            signals::timer(false);
        }
        self.all.wait();
        core::hint::black_box(&mut stack);
    }

    fn lines(&self, process: Process) {
        let mut children = Vec::new();
        for (i, line) in self.script.lines.iter().enumerate() {
            if line.thread == process.thread && line.child == process.child {
                self.line(i, line, process, &mut children);
            }
        }
        for (child, pid) in children {
            wait(child, pid);
        }
        unread::read();
    }

    fn line(&self, i: usize, line: &Line, process: Process, children: &mut Vec<(usize, i32)>) {
        match line.op {
            Op::Fork { child } => {
                self.take_turns(i);
                // SAFETY: the child goes on with nothing that another thread may hold.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    self.child(Process { child: Some(child), ..process });
                }
                let mut note = Note::new(i);
                if pid < 0 {
                    note.result(-1);
                }
                note.write();
                self.pass_turns(i);
                children.push((child, pid));
            }
            Op::Wait { child } => {
                if let Some(at) = children.iter().position(|c| c.0 == child) {
                    let (child, pid) = children.remove(at);
                    wait(child, pid);
                }
            }
            op if line.fresh => {
                threads::run(|| {
                    self.operation(i, op, process);
                    unread::read();
                });
            }
            op => self.operation(i, op, process),
        }
    }

    fn child(&self, process: Process) -> ! {
        unread::forget();
        if self.script.signals {
            signals::prepare(channels::file(Via::File));
            signals::timer(true);
        }
        if let Some(child) = process.child {
            for slot in self.script.slots_of_child(child) {
                // SAFETY: it was the fork's turn, and this is a child's only thread.
                unsafe { self.buffer(slot) }.in_child();
            }
        }
        self.lines(process);
        if let Some(child) = process.child {
            self.sweep(process, self.script.slots_of_child(child));
        }
        // SAFETY: ends the process, as programs do: with what is to be done at its end.
        unsafe { libc::exit(i32::from(signals::WRONG.load(Relaxed))) }
    }

    fn operation(&self, i: usize, op: Op, process: Process) {
        let mut note = Note::new(i);
        rights::carry_out(op, process.child.is_some(), &mut note);
        let mut named = op.slots();
        if let Some(one) = named.next() {
            self.take_turns(i);
            // SAFETY: it is this line's turn; two buffers of an operation are not the same.
            let (one, two) = unsafe { (self.buffer(one), named.next().map(|s| self.buffer(s))) };
            if shared(one, process) || two.as_deref().is_some_and(|b| shared(b, process)) {
                note.add("shared");
            } else {
                ops::carry_out(op, one, two, &mut note);
            }
            self.pass_turns(i);
        }
        note.write();
    }

    #[allow(clippy::mut_from_ref)]
    unsafe fn buffer(&self, slot: Slot) -> &mut Buf {
        // SAFETY: the caller has its turn.
        unsafe { &mut *self.slots.get().expect("made before the first line").0[slot].get() }
    }

    /// Waits until the lines before `i` that use its buffers are done. (A child's lines have no
    /// turns.)
    fn take_turns(&self, i: usize) {
        if !self.turns[i].is_empty() {
            let ready = |done: &mut Vec<usize>| self.turns[i].iter().any(|&(s, n)| done[s] < n);
            let done = self.done.lock().expect("no thread panics");
            drop(self.changed.wait_while(done, ready).expect("no thread panics"));
        }
    }

    fn pass_turns(&self, i: usize) {
        if !self.turns[i].is_empty() {
            let mut done = self.done.lock().expect("no thread panics");
            self.turns[i].iter().for_each(|&(s, n)| done[s] = n + 1);
            drop(done);
            self.changed.notify_all();
        }
    }

    /// Digests of all that is there.
    fn sweep(&self, process: Process, slots: impl IntoIterator<Item = Slot>) {
        for slot in slots {
            let child = process.child.map_or(String::new(), |c| format!("child{c}-"));
            let mut note = Note::new(format_args!("{child}slot{slot}"));
            // SAFETY: the threads have done all their lines, or this is a child's only thread.
            let b = unsafe { self.buffer(slot) };
            if !shared(b, process) {
                b.given.take(0..usize::MAX);
                ops::read(b, 0..b.len, &mut note);
            }
            note.write();
        }
    }
}

/// Whether a child must keep away: its parent and it would see each other's bytes, or libc may use
/// the stacks of threads that a child does not have.
fn shared(b: &Buf, process: Process) -> bool {
    let elsewhere = match b.kind {
        Kind::Map { of, .. } => of == MapOf::Shared,
        Kind::Part(Storage::Stack(t)) => t != process.thread,
        _ => false,
    };
    process.child.is_some() && elsewhere
}

fn unblock() {
    // SAFETY: changes this thread's mask.
    unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGALRM);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, core::ptr::null_mut());
    }
}

fn wait(child: usize, pid: i32) {
    let mut status = 0;
    // SAFETY: writes the status.
    while unsafe { libc::waitpid(pid, &mut status, 0) } < 0 && log::errno() == libc::EINTR {}
    let mut note = Note::new(format_args!("child{child}"));
    note.add(format_args!("status {status:x}"));
    note.write();
}
