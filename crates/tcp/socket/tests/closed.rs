//! A thread waits over a connection while another one closes it. (Alone in its process, for what it
//! tests is whose a descriptor's number is.)

#![allow(missing_docs)]

mod common;

use common::{connection, program_that, service, shared};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};
use uncopy_tcp_socket::{Errno, Waiting, iovec};

const TIMEOUT: Duration = Duration::from_secs(5);

#[test]
fn a_thread_that_waited_over_a_closed_connection_receives_nothing_by_its_number() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Sleep);
    let (client, server) = (of(), of());
    for (by_ring, shuts) in [(true, false), (false, false), (true, true), (false, true)] {
        let (x, mut y) = shared(&client, &server);
        if by_ring {
            x.send(b"1").unwrap();
            assert_eq!(y.receive(&mut [0]), Ok(1));
        }
        let (flow, number) = (y.flow.clone(), y.flow.number());
        let receives = move || {
            let mut bytes = [0u8; 6];
            let to = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            // SAFETY: ours.
            unsafe { flow.receive(&[to], 0) }
        };
        let waiting = std::thread::spawn(receives);
        std::thread::sleep(Duration::from_millis(50));
        let (other, mut peer) = connection();
        peer.write_all(b"secret").unwrap();
        if shuts {
            y.flow.shutdown(rustix::net::Shutdown::Both).unwrap();
        }
        y.flow.closes(number);
        drop(y.socket.take());
        // SAFETY: it was just closed, and nobody else opens anything meanwhile.
        let mut reuses = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::dup2(&other, &mut reuses).unwrap();
        let mut reuses = TcpStream::from(reuses);
        y.flow.closed();
        x.close();
        let begun = Instant::now();
        while !waiting.is_finished() && begun.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(waiting.is_finished(), "it sleeps on");
        let got = waiting.join().unwrap();
        let ended = shuts && got == Ok(0);
        assert!(ended || got == Err(Errno::BADF), "{by_ring}, {shuts}: {got:?}");
        let mut all = [0; 6];
        reuses.read_exact(&mut all).unwrap();
        assert_eq!(&all, b"secret");
        let _ = reuses.shutdown(Shutdown::Both);
    }
}
