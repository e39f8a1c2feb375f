//! Random sends, receives, switches and ends: every byte, once, in order. A failing seed is
//! printed.

#![allow(missing_docs)]

mod common;

use common::{End, program_that, service, shared};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use uncopy_tcp_socket::{Errno, Waiting};

/// The stream's byte at a position: no two neighbourhoods are alike.
fn byte(seed: u64, at: u64) -> u8 {
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(seed) >> 56) as u8
}

fn size(rng: &mut fastrand::Rng) -> usize {
    match rng.u32(0..10) {
        0 => rng.usize(1..400_000),
        1..4 => rng.usize(1..20_000),
        _ => rng.usize(1..300),
    }
}

fn sends(end: &End, seed: u64, total: u64) {
    let mut rng = fastrand::Rng::with_seed(seed ^ 1);
    let mut at = 0;
    while at < total {
        let bytes = (size(&mut rng) as u64).min(total - at);
        let message: Vec<u8> = (at..at + bytes).map(|at| byte(seed, at)).collect();
        let flags = libc::MSG_NOSIGNAL | if rng.bool() { libc::MSG_DONTWAIT } else { 0 };
        match end.send_with(&message, flags) {
            Ok(sent) => at += sent as u64,
            Err(Errno::AGAIN) => std::thread::yield_now(),
            Err(error) => panic!("send at {at}: {error}"),
        }
        match rng.u32(0..20) {
            0 => match end.flow.send_by_linux(false) {
                Ok(()) | Err(Errno::AGAIN) => {}
                Err(error) => panic!("{error}"),
            },
            1 => std::thread::sleep(Duration::from_micros(rng.u64(0..300))),
            _ => {}
        }
    }
}

fn receives(end: &End, seed: u64, total: u64) {
    let mut rng = fastrand::Rng::with_seed(seed ^ 2);
    let mut at = 0;
    while at < total {
        let mut buffer = vec![0; size(&mut rng)];
        let flags = match rng.u32(0..8) {
            0 => libc::MSG_PEEK,
            1 => libc::MSG_DONTWAIT,
            2 if (buffer.len() as u64) < total - at => libc::MSG_WAITALL,
            _ => 0,
        };
        match end.receive_with(&mut buffer, flags) {
            Ok(0) => panic!("the stream ended at {at} of {total}"),
            Ok(got) => {
                for (i, got) in buffer[..got].iter().enumerate() {
                    assert_eq!(*got, byte(seed, at + i as u64), "at {}", at + i as u64);
                }
                if flags != libc::MSG_PEEK {
                    at += got as u64;
                }
            }
            Err(Errno::AGAIN) => std::thread::yield_now(),
            Err(error) => panic!("receive at {at}: {error}"),
        }
        if rng.u32(0..30) == 0 {
            std::thread::sleep(Duration::from_micros(rng.u64(0..300)));
        }
    }
    assert_eq!(end.receive(&mut [0]), Ok(0), "nothing comes after the end");
}

#[test]
fn random_streams_both_ways_with_switches_in_between() {
    let service = service();
    let seeds: Vec<u64> = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..12).map(|_| fastrand::u64(..)).collect(),
    };
    let (mut by_ring, mut leaves, mut offers) = (0, 0, 0);
    for (round, seed) in seeds.into_iter().enumerate() {
        println!("seed {seed}");
        let waiting = [Waiting::Adaptive, Waiting::Sleep][round % 2];
        let (a, b) =
            shared(&program_that(&service.name, waiting), &program_that(&service.name, waiting));
        let total = 3_000_000;
        std::thread::scope(|scope| {
            let (a, b) = (&a, &b);
            for (from, to, seed) in [(a, b, seed), (b, a, seed ^ 99)] {
                scope.spawn(move || {
                    sends(from, seed, total);
                    from.flow.shutdown(rustix::net::Shutdown::Write).unwrap();
                });
                scope.spawn(move || receives(to, seed, total));
            }
        });
        for end in [&a, &b] {
            by_ring += end.flow.counts.sent_by_ring.load(Relaxed);
            leaves += end.flow.counts.leaves.load(Relaxed);
            offers += end.flow.counts.offers.load(Relaxed);
        }
        a.close();
        b.close();
    }
    println!("{by_ring} bytes by ring, {offers} offers, {leaves} leaves");
    assert!(by_ring > 1_000_000 && leaves > 20 && offers > 20);
}

#[test]
fn large_messages_come_whole_by_ordinary_and_by_streaming_stores() {
    come_whole_by_both_stores(|end, pattern, _, bytes| {
        assert_eq!(end.send(&pattern[bytes.clone()]), Ok(bytes.len()));
        bytes.len()
    });
}

#[test]
fn files_come_whole_by_ordinary_and_by_streaming_stores() {
    come_whole_by_both_stores(|end, pattern, file, bytes| {
        let sent = end.flow.send_file(file.as_fd(), bytes.start as u64, bytes.len()).unwrap();
        // (A ring that nobody empties for a while is left.)
        sent.unwrap_or_else(|| end.send(&pattern[bytes]).unwrap())
    });
}

/// More than a stretch after which streaming stores are tried, and a stretch of them.
fn come_whole_by_both_stores(
    sends: impl Fn(&End, &[u8], &File, Range<usize>) -> usize + Send + Copy,
) {
    const TOTAL: usize = 48 << 20;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let service = service();
    let of = || program_that(&service.name, Waiting::Adaptive);
    let (a, b) = shared(&of(), &of());
    // (A stream of it begins anywhere: its length has no factor of any message's.)
    let pattern: Vec<u8> = (0..1_000_003).map(|at| byte(seed, at)).collect();
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(&pattern).unwrap();
    std::thread::scope(|scope| {
        for (from, to, seed) in [(&a, &b, seed), (&b, &a, seed ^ 1)] {
            let (pattern, file) = (&pattern, &file);
            scope.spawn(move || {
                let (mut rng, mut at) = (fastrand::Rng::with_seed(seed), 0);
                while at < TOTAL {
                    let begin = at % pattern.len();
                    let most = (pattern.len() - begin).min(TOTAL - at).min(900_000);
                    at += sends(from, pattern, file, begin..begin + rng.usize(1..=most));
                }
            });
            scope.spawn(move || {
                let (mut rng, mut at) = (fastrand::Rng::with_seed(seed ^ 2), 0);
                let mut buffer = vec![0; 900_000];
                while at < TOTAL {
                    let begin = at % pattern.len();
                    let most = (pattern.len() - begin).min(TOTAL - at).min(buffer.len());
                    let into = &mut buffer[..rng.usize(1..=most)];
                    let got = to.receive(into).unwrap();
                    assert!(into[..got] == pattern[begin..begin + got], "at or after {at}");
                    at += got;
                }
            });
        }
    });
    for end in [&a, &b] {
        let streamed = end.flow.counts.streamed.load(Relaxed);
        let by_ring = end.flow.counts.sent_by_ring.load(Relaxed);
        assert!((8 << 20..by_ring).contains(&streamed), "{streamed} of {by_ring}");
    }
}

/// Many connections of two programs, none of which carries a batch. Their cost is known when they
/// are closed.
#[test]
fn short_connections_too_are_written_by_both_stores() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Adaptive);
    let (one, two) = (of(), of());
    let pattern: Vec<u8> = (0..40_000).map(|at| byte(7, at)).collect();
    let mut buffer = vec![0; pattern.len()];
    let mut streamed = 0;
    for _ in 0..1000 {
        let (a, b) = shared(&one, &two);
        assert_eq!(a.send(&pattern), Ok(pattern.len()));
        assert_eq!(b.receive(&mut buffer), Ok(pattern.len()));
        assert!(buffer == pattern);
        streamed += a.flow.counts.streamed.load(Relaxed);
        a.close();
        b.close();
    }
    println!("{streamed} bytes streamed");
    assert!(streamed > 8 << 20);
}

#[test]
fn several_threads_may_share_an_end() {
    let service = service();
    let of = || program_that(&service.name, Waiting::Adaptive);
    let (a, b) = shared(&of(), &of());
    let counted: u64 = std::thread::scope(|scope| {
        for sender in 0..3u8 {
            let a = &a;
            scope.spawn(move || {
                for _ in 0..2000 {
                    assert_eq!(a.send(&[sender; 100]), Ok(100));
                }
            });
        }
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let b = &b;
                scope.spawn(move || {
                    let mut sum = 0;
                    let mut buffer = [0; 100];
                    // Whole messages: a call takes what one send put, or several.
                    while let Ok(got @ 1..) = b.receive_with(&mut buffer, libc::MSG_DONTWAIT) {
                        sum += got as u64;
                    }
                    sum
                })
            })
            .collect();
        let mut sum: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        let mut buffer = [0; 1000];
        while sum < 600_000 {
            sum += b.receive(&mut buffer).unwrap() as u64;
        }
        sum
    });
    assert_eq!(counted, 600_000);
}
