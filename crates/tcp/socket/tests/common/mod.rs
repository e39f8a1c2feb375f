//! A service, programs (each a context of its own), and connections between them.

#![allow(dead_code, missing_docs)]

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uncopy_counters::Counters;
use uncopy_tcp_service::{Limits, Options, Service};
use uncopy_tcp_shared::ring::{RING, Writer};
use uncopy_tcp_socket::{Context, Errno, Flow, Settings, Waiting, iovec};

/// Bytes of a full ring.
pub const FULL: usize = Writer::<RING>::FULL as usize;

/// A service of this test's own.
pub struct Running {
    pub name: String,
    stop: uncopy_tcp_service::server::Stop,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub fn service() -> Running {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    service_of(format!("uncopy-tcp-test-{}-{number}", std::process::id()))
}

pub fn service_of(name: String) -> Running {
    let options = Options { name: name.clone(), limits: Limits::default(), ends_idle: None };
    let service = Service::bind(options).unwrap();
    let stop = service.stop();
    let thread = std::thread::spawn(|| service.run().unwrap());
    Running { name, stop, thread: Some(thread) }
}

impl Running {
    pub fn end(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

pub fn program(service: &str) -> Arc<Context> {
    program_that(service, Waiting::Adaptive)
}

pub fn program_that(service: &str, waiting: Waiting) -> Arc<Context> {
    Context::new(Settings { waiting, ..Settings::new(service) }).unwrap()
}

/// As [`program_that`] sleeps, and what it counts.
pub fn counted(service: &str) -> (Arc<Context>, &'static Counters) {
    let counters = Box::leak(Box::default());
    let settings = Settings { waiting: Waiting::Sleep, counters, ..Settings::new(service) };
    (Context::new(settings).unwrap(), counters)
}

/// A connection's end: the socket and the flow.
pub struct End {
    pub flow: Arc<Flow>,
    pub socket: Option<TcpStream>,
}

impl End {
    pub fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.send_with(bytes, libc::MSG_NOSIGNAL)
    }

    pub fn send_with(&self, bytes: &[u8], flags: i32) -> Result<usize, Errno> {
        let part = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: ours.
        unsafe { self.flow.send(&[part], flags) }
    }

    pub fn receive(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.receive_with(bytes, 0)
    }

    pub fn receive_with(&self, bytes: &mut [u8], flags: i32) -> Result<usize, Errno> {
        let part = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: ours.
        unsafe { self.flow.receive(&[part], flags) }
    }

    pub fn close(mut self) {
        self.flow.close();
        drop(self.socket.take());
        self.flow.closed();
    }
}

pub fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    (a, b)
}

pub fn end(program: &Arc<Context>, socket: TcpStream) -> End {
    End { flow: program.register(socket.as_raw_fd(), false), socket: Some(socket) }
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Signals interrupt calls that wait, from here on.
pub fn handle_interruptions() {
    extern "C" fn interrupts(_: i32) {}
    // SAFETY: plain data; a handler that does nothing.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = interrupts as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGUSR1, &action, core::ptr::null_mut());
    }
}

/// Interrupts a thread, by its `pthread_self`. It has not been joined.
pub fn interrupt(thread: &AtomicU64) {
    // SAFETY: as said.
    unsafe { libc::pthread_kill(thread.load(Ordering::Relaxed), libc::SIGUSR1) };
}

/// The steps of a process with a connection's ends before and after fork.
pub fn forks(context: &Arc<Context>, end: &End, in_child: impl FnOnce()) -> i32 {
    use uncopy_tcp_socket::fork;
    let (contexts, flows) = ([context.clone()], [end.flow.clone()]);
    end.flow.will_be_shared();
    fork::hold(&contexts, &flows, &[]);
    // SAFETY: the child only uses what is here, and ends by _exit.
    let child = unsafe { libc::fork() };
    fork::let_go(&contexts, &flows, &[], child == 0);
    if child == 0 {
        in_child();
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0);
    child
}

/// Two ends, both attached.
pub fn shared(a: &Arc<Context>, b: &Arc<Context>) -> (End, End) {
    let (x, y) = connection();
    let (x, y) = (end(a, x), end(b, y));
    wait_until("both ends attach", || x.flow.is_shared() & y.flow.is_shared());
    looks(&x);
    looks(&y);
    (x, y)
}

/// Both at their rings, both ways.
pub fn at_rings(a: &Arc<Context>, b: &Arc<Context>) -> (End, End) {
    let (x, y) = shared(a, b);
    for (from, to) in [(&x, &y), (&y, &x)] {
        from.send(b"ring").unwrap();
        assert_eq!(to.receive(&mut [0; 4]), Ok(4));
        assert_eq!(from.flow.counts.sent_by_ring.load(Ordering::Relaxed), 4);
    }
    (x, y)
}

/// The bytes that are sent behind so many.
pub fn bytes(from: usize, bytes: usize) -> Vec<u8> {
    (from..from + bytes).map(|at| (at * 7 % 251) as u8).collect()
}

/// Fills the ring with [`bytes`], and Linux' buffers too: of what stands before the ring's bytes,
/// so many.
pub fn fills_both(a: &End) -> usize {
    let from = a.socket.as_ref().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(from, 4 << 20).unwrap();
    let mut sent = 0;
    while let Ok(more) = a.send_with(&bytes(sent, 100_000), libc::MSG_DONTWAIT) {
        sent += more;
    }
    assert_eq!(sent, FULL);
    let mut before = 0;
    rustix::io::ioctl_fionbio(from, true).unwrap();
    while let Ok(more) = (&mut &*from).write(&[1; 10_000]) {
        before += more;
    }
    before
}

/// The program has looked for bytes: so the other side may offer its ring.
pub fn looks(end: &End) {
    let _ = end.receive_with(&mut [0], libc::MSG_DONTWAIT | libc::MSG_PEEK);
}
