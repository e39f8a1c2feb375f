//! Several threads over one connection.

#![allow(missing_docs)]

mod common;

use common::{program_that, service, shared};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use uncopy_tcp_shared::wanted::DOORS;
use uncopy_tcp_socket::{Errno, Waiting};

/// (A wait that comes to its end looks once more.)
const PATIENCE: Duration = Duration::from_secs(3);

extern "C" fn interrupts(_: i32) {}

fn heed_interruptions() {
    // SAFETY: plain data; a handler that does nothing.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = interrupts as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGUSR1, &action, core::ptr::null_mut());
    }
}

/// More threads than doors wait for bytes of one connection. All but the last to come are interrupted; it is woken all the same.
#[test]
fn who_is_interrupted_leaves_others_their_wake_up() {
    heed_interruptions();
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let (x, y) = {
        let (client, server) = (of(), of());
        shared(&client, &server)
    };
    x.send(b"1").unwrap();
    assert_eq!(y.receive(&mut [0]), Ok(1));
    let ids: Vec<AtomicU64> = (0..=2 * DOORS).map(|_| AtomicU64::new(0)).collect();
    let interrupt = |id: &AtomicU64| {
        // SAFETY: it has not been joined.
        unsafe { libc::pthread_kill(id.load(Relaxed), libc::SIGUSR1) };
    };
    std::thread::scope(|scope| {
        let y = &y;
        let wait = |id: &AtomicU64| {
            // SAFETY: a question.
            id.store(unsafe { libc::pthread_self() }, Relaxed);
            y.receive(&mut [0])
        };
        let mut threads = vec![];
        for id in &ids {
            threads.push((id, scope.spawn(move || wait(id))));
            std::thread::sleep(Duration::from_millis(50));
        }
        let (last_id, last) = threads.pop().unwrap();
        for (id, thread) in threads {
            interrupt(id);
            assert_eq!(thread.join().unwrap(), Err(Errno::INTR));
        }
        x.send(b"2").unwrap();
        let begun = Instant::now();
        while !last.is_finished() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        let woken = last.is_finished();
        if !woken {
            interrupt(last_id);
        }
        let got = last.join().unwrap();
        assert!(woken && got == Ok(1), "nobody woke it: {got:?}");
    });
}
