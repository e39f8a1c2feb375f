//! Every byte, and none beside it: all distances within the page, sizes around every border,
//! overlaps in both directions, and both buffers at the edge of what may be touched.

use std::ptr::null_mut;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use uncopy_copies::features::Features;
use uncopy_copies::near::{LEAST, MOST, REACH};
use uncopy_copies::routine::{FEWEST, Routine, Vectors, of};

const PAGE: usize = 4096;

/// Those that this processor has.
fn routines() -> impl Iterator<Item = (&'static str, Routine)> {
    let has = |v: &Vectors| *v != Vectors::Avx || Features::own().avx;
    Vectors::ALL.into_iter().filter(has).map(|v| (v.name(), of(v)))
}

/// So many whole pages, between two that must not be touched.
struct Guarded {
    start: *mut u8,
    bytes: usize,
}

impl Guarded {
    fn new(pages: usize) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping; its first and last page are closed.
        unsafe {
            let all =
                mmap_anonymous(null_mut(), (pages + 2) * PAGE, access, MapFlags::PRIVATE).unwrap();
            mprotect(all, PAGE, MprotectFlags::empty()).unwrap();
            mprotect(all.byte_add((pages + 1) * PAGE), PAGE, MprotectFlags::empty()).unwrap();
            Self { start: all.cast::<u8>().add(PAGE), bytes: pages * PAGE }
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: ours, and zeros at first.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        unsafe { munmap(self.start.sub(PAGE).cast(), self.bytes + 2 * PAGE).unwrap() };
    }
}

fn pattern(at: usize) -> u8 {
    ((at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Copies `n` bytes within `room` from `from` to `to`, and compares all of it with what a simple
/// move makes of it.
fn check(
    name: &str,
    copy: Routine,
    room: &mut Guarded,
    expected: &mut [u8],
    to: usize,
    from: usize,
    n: usize,
) {
    let lines =
        (to.min(from) / 64 * 64).saturating_sub(128)..(to.max(from) + n + 192).min(room.bytes);
    expected[lines.clone()].copy_from_slice(&room.bytes()[lines.clone()]);
    expected.copy_within(from..from + n, to);
    // SAFETY: within the room.
    let result = unsafe { copy(room.start.add(to), room.start.add(from), n) };
    assert_eq!(result as usize, room.start as usize + to);
    assert!(
        room.bytes()[lines.clone()] == expected[lines],
        "{name}: {n} bytes from {from} to {to} within {} bytes",
        room.bytes
    );
}

fn filled(pages: usize) -> (Guarded, Vec<u8>) {
    let mut room = Guarded::new(pages);
    room.bytes().iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at));
    let expected = room.bytes().to_vec();
    (room, expected)
}

/// Sizes around every border: of what it is written for, of its loops (four vectors), of what it
/// takes over, of pages.
fn sizes() -> Vec<usize> {
    let mut sizes: Vec<usize> = (FEWEST..=FEWEST + 2 * 128 + 2).collect();
    for border in [LEAST, PAGE, 2 * PAGE, 3 * PAGE] {
        sizes.extend(border - 3..=border + 3);
        sizes.extend([border - 128, border + 127, border + 128, border + 129]);
    }
    sizes
}

#[test]
fn every_distance_within_the_page_and_every_size_around_a_border() {
    let (mut room, mut expected) = filled(12);
    for (name, copy) in routines() {
        for distance in 0..PAGE {
            // (All sizes at the distances that it is made for; elsewhere some, others each time.)
            let sizes = sizes();
            let all = (1..=2 * REACH).contains(&distance) || distance > PAGE - 64;
            let chosen = |i: usize| all || (i + distance).is_multiple_of(29);
            for (_, n) in sizes.into_iter().enumerate().filter(|(i, _)| chosen(*i)) {
                let from = distance * 7 % 64;
                check(name, copy, &mut room, &mut expected, 5 * PAGE + from + distance, from, n);
            }
        }
    }
}

#[test]
fn overlapping_buffers_in_both_directions() {
    let (mut room, mut expected) = filled(10);
    for (name, copy) in routines() {
        for n in sizes() {
            let shifts = (0..160).chain([n / 2, n - 1, n, n + 1, 4095, 4096, 4097, 4080, 4112]);
            for shift in shifts {
                let at = 64 + (n + shift) % 32;
                check(name, copy, &mut room, &mut expected, at + shift, at, n);
                check(name, copy, &mut room, &mut expected, at, at + shift, n);
            }
        }
    }
}

#[test]
fn buffers_at_the_edge_of_what_may_be_touched() {
    for (name, copy) in routines() {
        for n in sizes() {
            let pages = n.div_ceil(PAGE);
            let (mut from, mut to) = (Guarded::new(pages), Guarded::new(pages));
            let room = pages * PAGE - n;
            from.bytes().iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at));
            let places = [0, 1, 16, 31, room.saturating_sub(1), room];
            for source in places.into_iter().filter(|p| *p <= room) {
                for there in places.into_iter().filter(|p| *p <= room) {
                    to.bytes().fill(0);
                    // SAFETY: within both.
                    unsafe { copy(to.start.add(there), from.start.add(source), n) };
                    let same = to.bytes()[there..there + n] == from.bytes()[source..source + n];
                    assert!(same, "{name}: {n} bytes from {source} to {there}");
                    let beside = to.bytes()[..there].iter().all(|b| *b == 0);
                    let behind = to.bytes()[there + n..].iter().all(|b| *b == 0);
                    assert!(beside && behind, "{name}: {n} bytes from {source} to {there}: beside");
                }
            }
        }
    }
}

#[test]
fn random_moves_up_to_the_largest_size() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut room, mut expected) = filled(2 * MOST / PAGE + 4);
    for (name, copy) in routines() {
        for _ in 0..400 {
            let n = 1usize << random.usize(8..=20);
            let n = (n + random.usize(..n)).clamp(FEWEST, MOST);
            let from = random.usize(..=room.bytes - n);
            let to = random.usize(..=room.bytes - n);
            check(name, copy, &mut room, &mut expected, to, from, n);
            // (And near, apart or not.)
            let to =
                (from + random.usize(1..=REACH) + PAGE * random.usize(..8)).min(room.bytes - n);
            check(name, copy, &mut room, &mut expected, to, from, n);
        }
    }
}
