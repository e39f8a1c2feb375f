//! The thread with a server that answers every fault with zeros.

use super::serve::{LockedServer, READ_AT_ONCE, Side};
use super::*;
use core::sync::atomic::AtomicU64;
use uncopy_kernel::mapping;
use uncopy_kernel::uffd::{Event, FEATURE_MOVE, Maker, Msg};
use uncopy_ranges::span::Span;

struct Zeros {
    monitor: Monitor,
    numbers: [AtomicI32; 2],
    lock: Lock,
    answered: AtomicU64,
    wake_page: AtomicUsize,
    /// Faults are to be tried again.
    changing: AtomicBool,
}

struct AtLock<'a>(&'a Zeros, &'a Fds);

impl LockedServer for AtLock<'_> {
    fn read(&mut self, side: Side, events: &mut [Event; READ_AT_ONCE]) -> usize {
        let uffd = if side == Side::Pool { &self.1.pool } else { &self.1.program };
        let mut messages = [Msg::default(); READ_AT_ONCE];
        let read = uffd.read(&mut messages);
        events.iter_mut().zip(read).for_each(|(to, from)| *to = from.event());
        read.len()
    }

    fn answer(&mut self, address: usize) -> bool {
        if self.0.changing.load(Ordering::Relaxed) {
            return false;
        }
        let page = Span::sized(address & !(PAGE - 1), PAGE);
        self.0.answered.fetch_add(1, Ordering::Relaxed);
        // (A waiting thread is woken by that which the page is registered with.)
        let pool = page.start == self.0.wake_page.load(Ordering::Relaxed);
        let uffd = if pool { &self.1.pool } else { &self.1.program };
        uffd.zero(page).1.is_none()
    }

    fn let_fault_again(&mut self, _: usize) {}
    fn report(&mut self, _: Event) {}
    fn has_room(&self) -> bool {
        true
    }
    fn near(&mut self, _: bool) {}
}

impl Server for Zeros {
    type Sources = ();

    fn sources(&self) {}

    fn tend(&self, _: &mut Option<Fds>, (): &mut ()) -> u64 {
        60_000
    }

    fn serve(&self, own: &mut Option<Fds>, f: &mut dyn FnMut(&mut dyn LockedServer)) {
        self.lock.lock();
        if let Some(own) = own {
            f(&mut AtLock(self, own));
        }
        self.lock.unlock();
    }

    fn descriptors(&self) -> Option<[i32; 2]> {
        Some([0, 1].map(|i| self.numbers[i].load(Ordering::Relaxed)))
    }

    fn runs(&self) -> bool {
        true
    }

    fn monitor(&'static self) -> &'static Monitor {
        &self.monitor
    }

    fn bindings(&'static self) -> &'static AtomicU64 {
        static BINDINGS: AtomicU64 = AtomicU64::new(0);
        &BINDINGS
    }
}

fn server(numbers: [i32; 2]) -> &'static Zeros {
    Box::leak(Box::new(Zeros {
        monitor: Monitor::new(),
        numbers: numbers.map(AtomicI32::new),
        lock: Lock::new(),
        answered: AtomicU64::new(0),
        wake_page: AtomicUsize::new(0),
        changing: AtomicBool::new(false),
    }))
}

#[test]
fn where_another_file_has_the_number_of_a_userfaultfd_no_thread_is_made() {
    let (one, other) = pipe();
    let server = server([one, other]);
    assert!(!server.monitor.spawn(server));
    assert!(!server.monitor.runs());
}

fn pipe() -> (i32, i32) {
    let mut both = [0; 2];
    // SAFETY: writes two numbers.
    assert_eq!(unsafe { libc::pipe(both.as_mut_ptr()) }, 0);
    (both[0], both[1])
}

/// A server whose thread runs, the first of `pages` pages that it answers for, and the page that
/// wakes its thread.
fn running(pages: usize) -> Option<(&'static Zeros, usize, usize)> {
    let maker = Maker::open();
    let (Ok(program), Ok(pool)) = (maker.make(FEATURE_MOVE), maker.make(FEATURE_MOVE)) else {
        println!("skipped: userfaultfd is not permitted here");
        return None;
    };
    let memory = mapping::reserve(0, (pages + 1) * PAGE, mapping::BOTH).unwrap();
    program.register(Span::sized(memory, pages * PAGE)).unwrap();
    let wake_page = memory + pages * PAGE;
    pool.register(Span::sized(wake_page, PAGE)).unwrap();
    // (Open as long as this process lives.)
    let fds = Box::leak(Box::new(Fds { program, pool }));
    let server = server(fds.numbers());
    server.wake_page.store(wake_page, Ordering::Relaxed);
    assert!(server.monitor.spawn(server));
    Some((server, memory, wake_page))
}

fn read(address: usize) -> u8 {
    // SAFETY: a page of `running`'s; its thread puts one there.
    unsafe { (address as *const u8).read_volatile() }
}

#[test]
fn the_thread_answers_faults_also_after_another_took_its_place_and_ends() {
    let Some((server, memory, wake_page)) = running(3) else { return };
    assert_eq!(read(memory), 0);
    assert_eq!(server.answered.load(Ordering::Relaxed), 1);
    assert!(server.monitor.renew(server, wake_page));
    assert_eq!(read(memory + PAGE), 0);
    let (inside, again) = server.monitor.without(server, wake_page, || server.monitor.runs());
    assert!(!inside && again);
    assert_eq!(read(memory + 2 * PAGE), 0);
    server.monitor.dismiss(wake_page);
    assert!(!server.monitor.runs());
    // Three pages of the program's, and the page that wakes, three times.
    assert_eq!(server.answered.load(Ordering::Relaxed), 6);
}

#[test]
fn that_a_fault_waits_is_known_until_it_is_answered() {
    let Some((server, memory, wake_page)) = running(1) else { return };
    server.changing.store(true, Ordering::Relaxed);
    let touches = std::thread::spawn(move || read(memory));
    while !server.monitor.faults_wait() {
        std::thread::yield_now();
    }
    assert_eq!(server.answered.load(Ordering::Relaxed), 0);
    server.changing.store(false, Ordering::Relaxed);
    assert_eq!(touches.join().unwrap(), 0);
    while server.monitor.faults_wait() {
        std::thread::yield_now();
    }
    server.monitor.dismiss(wake_page);
}
