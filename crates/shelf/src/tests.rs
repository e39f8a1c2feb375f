//! The book of kept files, without any file.

use super::candidates::FIRST_PAUSE;
use super::*;

const MB: u64 = 1 << 20;

fn shelf() -> Shelf {
    let mut s = Shelf::new();
    s.furnish(Span::sized(PAGE, address_space(8 << 20)), 8 << 20);
    s
}

fn stamp(ino: u64, size: u64) -> Stamp {
    Stamp { dev: 1, ino, size, mtime: (7, 0), ctime: (7, 0) }
}

/// Reads the file over and over until somebody is to be woken; returns how often.
fn read_until_wanted(s: &mut Shelf, st: &Stamp, now: u64) -> usize {
    (1..100)
        .find(|_| s.ask(st, 3, st.size as usize, 1, now) == Answer::PlainAndWake)
        .expect("wanted")
}

fn keep(s: &mut Shelf, st: &Stamp, now: u64) -> usize {
    read_until_wanted(s, st, now);
    let (file, ..) = s.wanted().expect("a wanted file");
    s.settle(file, Outcome::Leased { timed: true }, now);
    file
}

#[test]
fn a_file_is_wanted_when_it_was_read_three_times_over() {
    let mut s = shelf();
    assert_eq!(read_until_wanted(&mut s, &stamp(1, MB), 0), 3);
    // One pass in small reads is no repetition, however many there are; nor is one weighty read.
    let st = stamp(2, MB);
    assert!((0..32).all(|_| s.ask(&st, 3, 32 << 10, 1, 0) == Answer::Plain));
    assert_eq!(s.ask(&stamp(3, MB), 3, 1 << 20, 8, 0), Answer::Plain);
}

#[test]
fn a_changed_file_is_not_answered_even_where_the_lease_was_lost() {
    let mut s = shelf();
    let st = stamp(1, MB);
    keep(&mut s, &st, 0);
    assert!(matches!(s.ask(&st, 3, 4096, 1, 0), Answer::Kept(_)));
    let changed = Stamp { ctime: (7, 1), ..st };
    assert_eq!(s.ask(&changed, 3, 4096, 1, 0), Answer::PlainAndWake);
    assert_eq!(s.ask(&st, 3, 4096, 1, 0), Answer::Plain);
    assert_eq!(s.leaving(), None, "somebody still uses it");
}

#[test]
fn a_chunk_read_while_the_lease_ended_is_not_good() {
    let mut s = shelf();
    let st = stamp(1, 2 * MB);
    let file = keep(&mut s, &st, 0);
    let Answer::Kept(hit) = s.ask(&st, 3, 1 << 20, 1, 0) else { panic!() };
    assert_eq!(s.need(file, 1), Chunk::Yours);
    assert_eq!(s.need(file, 0), Chunk::NotNow, "one at a time");
    assert!(!s.filled(file, 1, Some(stamp(1, MB))), "not at another stamp");
    assert_eq!(s.need(file, 1), Chunk::Yours);
    assert!(s.filled(file, 1, Some(st)));
    assert_eq!((s.need(file, 1), s.need(file, 0)), (Chunk::There, Chunk::Yours));
    s.leave(file, 0);
    assert!(!s.filled(file, 0, Some(st)));
    assert_eq!(s.need(file, 1), Chunk::There, "what was good is what it was");
    assert!(s.done(&hit));
    assert_eq!(s.leaving().map(|l| l.0), Some(file));
    s.gone(file);
    assert!(s.is_empty());
}

#[test]
fn a_file_that_is_rewritten_is_left_alone_for_longer_and_longer() {
    let mut s = shelf();
    let st = stamp(1, MB);
    let mut now = 0;
    let mut waits = Vec::new();
    for _ in 0..3 {
        let file = keep(&mut s, &st, now);
        s.leave(file, now);
        s.gone(file);
        let from = now;
        while s.ask(&st, 3, 1 << 20, 1, now) != Answer::PlainAndWake {
            now += FIRST_PAUSE / 2;
        }
        waits.push(now - from);
        let (file, ..) = s.wanted().unwrap();
        s.settle(file, Outcome::Refused, now);
        s.gone(file);
        now += FIRST_PAUSE << 8;
    }
    assert!(waits.windows(2).all(|w| w[1] > w[0]), "{waits:?}");
}

#[test]
fn an_unused_file_makes_room_and_a_used_one_does_not() {
    let mut s = shelf();
    let a = keep(&mut s, &stamp(1, 4 * MB), 0);
    keep(&mut s, &stamp(2, 4 * MB), 10 * BUSY);
    let third = stamp(3, 4 * MB);
    read_until_wanted(&mut s, &third, 10 * BUSY);
    assert_eq!(s.leaving().map(|l| l.0), Some(a));
    s.gone(a);
    keep(&mut s, &third, 10 * BUSY);
    let fourth = stamp(4, 4 * MB);
    assert!((0..9).all(|_| s.ask(&fourth, 3, 4 << 20, 1, 10 * BUSY) == Answer::Plain));
    assert_eq!(s.totals(), (2, 8 << 20));
}

#[test]
fn a_file_that_leaves_and_is_used_for_long_does_not_keep_others_from_being_replaced() {
    let mut s = shelf();
    let sent = stamp(1, 2 * MB);
    let a = keep(&mut s, &sent, 0);
    let Answer::Kept(hit) = s.ask(&sent, 3, 2 << 20, 1, 0) else { panic!() };
    let b = keep(&mut s, &stamp(2, 4 * MB), 0);
    s.leave(a, 0);
    let third = stamp(3, 4 * MB);
    read_until_wanted(&mut s, &third, 10 * BUSY);
    assert_eq!(s.leaving().map(|l| l.0), Some(b), "the oldest one goes");
    s.gone(b);
    keep(&mut s, &third, 10 * BUSY);
    assert_eq!(s.totals(), (1, 6 << 20), "what is used stays where it is");
    assert!(s.done(&hit));
    assert_eq!(s.leaving().map(|l| l.0), Some(a));
}

#[test]
fn files_do_not_overlap_and_idle_ones_go() {
    let mut s = shelf();
    let spans: Vec<Span> = (1..6)
        .map(|ino| {
            let file = keep(&mut s, &stamp(ino, MB + ino), 0);
            s.files[file].span()
        })
        .collect();
    for (i, a) in spans.iter().enumerate() {
        assert!(spans[i + 1..].iter().all(|b| !a.overlaps(*b)));
    }
    s.leave_idle(IDLE - 1);
    assert_eq!(s.leaving(), None);
    s.leave_idle(IDLE);
    while let Some((file, _)) = s.leaving() {
        s.gone(file);
    }
    assert!(s.is_empty() && s.totals() == (0, 0));
}

#[test]
fn chunks_are_counted_from_the_first_byte_to_the_last() {
    assert_eq!(chunks(0, CHUNK), 0..=0);
    assert_eq!(chunks(CHUNK as u64 - 1, 2), 0..=1);
}
