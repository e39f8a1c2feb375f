//! The instructions that can be displaced, on text that is written down here.

use uncopy_gate_places::object::{Object, Segment};
use uncopy_gate_places::{CALL, JUMP, Place, Trouble, first_call, places};

const TEXT: u64 = 0x7f00_0001_0000;
const DATA: u64 = 0x7f00_0002_0000;
const TABLES: u64 = 0x7f00_0003_0000;

/// A function as the unwinder's tables have it: from where, up to where in the text; a landing pad,
/// from where it begins.
#[derive(Clone, Copy, Default)]
struct Function {
    from: u64,
    to: u64,
    pad: Option<u8>,
    signal: bool,
}

const fn function(from: u64, to: u64) -> Function {
    Function { from, to, pad: None, signal: false }
}

/// `.eh_frame_hdr`, `.eh_frame` and lists of landing pads at [`TABLES`].
fn tables(functions: &[Function]) -> Vec<u8> {
    let n = functions.len();
    let mut frames: Vec<u8> = Vec::new();
    let frames_at = 12 + 8 * n as u64;
    // The part that entries have in common: with landing pads, and of signals.
    for letters in [b"zLR\0".as_slice(), b"zRS\0"] {
        let mut common = vec![0, 0, 0, 0, 1];
        common.extend_from_slice(letters);
        common.extend([1, 0x78, 16]);
        common.extend_from_slice(if letters[1] == b'L' { &[2, 0x1b, 0x1b] } else { &[1, 0x1b] });
        common.resize((common.len() + 4).next_multiple_of(8) - 4, 0);
        frames.extend((common.len() as u32).to_le_bytes());
        frames.extend(common);
    }
    let second = 4 + u32::from_le_bytes(frames[..4].try_into().unwrap());
    let pads_at = TABLES + 0x8000;
    let mut pads: Vec<u8> = Vec::new();
    let mut starts = Vec::new();
    for it in functions {
        let at = frames.len() as u32;
        starts.push((it.from, frames_at + u64::from(at)));
        let mut entry = (at + 4 - if it.signal { second } else { 0 }).to_le_bytes().to_vec();
        let here = TABLES + frames_at + u64::from(at) + 8;
        let from = TEXT + it.from - u64::from(it.signal);
        entry.extend((from.wrapping_sub(here) as u32).to_le_bytes());
        entry.extend(((TEXT + it.to - from) as u32).to_le_bytes());
        if it.signal {
            entry.push(0);
        } else {
            entry.push(4);
            let list = pads_at + pads.len() as u64;
            let by = it.pad.map_or(0, |_| list.wrapping_sub(here + 9) as u32);
            entry.extend(by.to_le_bytes());
            // Omitted, omitted, seven bits a byte; one site.
            pads.extend(it.pad.iter().flat_map(|&pad| [0xff, 0xff, 1, 4, 0, 1, pad, 0]));
        }
        entry.resize((entry.len() + 4).next_multiple_of(8) - 4, 0);
        frames.extend((entry.len() as u32).to_le_bytes());
        frames.extend(entry);
    }
    frames.extend([0; 4]);
    let mut all = vec![1, 0x1b, 3, 0x3b];
    all.extend((frames_at as u32 - 4).to_le_bytes());
    all.extend((n as u32).to_le_bytes());
    for (from, entry) in starts {
        all.extend(((TEXT + from).wrapping_sub(TABLES) as u32).to_le_bytes());
        all.extend((entry as u32).to_le_bytes());
    }
    all.extend(frames);
    all.resize(0x8000, 0);
    all.extend(pads);
    all
}

fn with<T>(
    text: &[u8],
    data: &[u8],
    functions: &[Function],
    ask: impl Fn(&Object<'_>) -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    let tables = tables(functions);
    let segment = |at, bytes, executable| Segment { at, bytes, executable };
    let segments = vec![
        segment(TEXT, text, true),
        segment(DATA, data, false),
        segment(TABLES, &tables, false),
    ];
    ask(&Object { segments, frames: Some(TABLES), symbols: Vec::new() })
}

fn found(text: &[u8]) -> Result<Vec<Place>, Trouble> {
    with(text, &[], &[function(0, text.len() as u64)], places)
}

fn place(from: u64, call: u64, end: u64, number: Option<u32>, begins: &[u64]) -> Place {
    let begins = begins.iter().map(|at| TEXT + at).collect();
    Place { from: TEXT + from, call: TEXT + call, end: TEXT + end, number, begins, cancels: None }
}

const CALL_1: [u8; 8] = [0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0xc3]; // mov $1, %eax; syscall; ret
const NO_ROOM: Result<Vec<Place>, Trouble> = Err(Trouble::NoRoom(TEXT + 5));

#[test]
fn a_number_before_the_call_makes_room_enough_and_the_call_stays() {
    assert_eq!(found(&CALL_1), Ok(vec![place(0, 5, 5, Some(1), &[0])]));
}

#[test]
fn several_instructions_before_the_call_are_room_and_the_number_is_known_through_them() {
    // mov $2, %eax; mov %rsi, %rdi; mov %rdx, %rsi; syscall; ret
    let text = [0xb8, 2, 0, 0, 0, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x0f, 0x05, 0xc3];
    assert_eq!(found(&text), Ok(vec![place(5, 11, 11, Some(2), &[5, 8])]));
}

#[test]
fn a_number_that_comes_from_elsewhere_is_not_known() {
    // mov %edi, %eax; mov %rsi, %rdi; syscall; ret
    let text = [0x89, 0xf8, 0x48, 0x89, 0xf7, 0x0f, 0x05, 0xc3];
    assert_eq!(found(&text), Ok(vec![place(0, 5, 5, None, &[0, 2])]));
    // mov $1, %eax; lea (%rdi), %rax; mov %rsi, %rdi; syscall; ret
    let text = [0xb8, 1, 0, 0, 0, 0x48, 0x8d, 0x07, 0x48, 0x89, 0xf7, 0x0f, 0x05, 0xc3];
    assert_eq!(found(&text).unwrap()[0].number, None);
    // jmp over the number; mov $1, %eax; mov %rsi, %rdi; mov %rdx, %rsi; syscall; ret
    let text = [0xeb, 5, 0xb8, 1, 0, 0, 0, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x0f, 0x05, 0xc3];
    assert_eq!(found(&text), Ok(vec![place(7, 13, 13, None, &[7, 10])]));
}

#[test]
fn where_there_is_no_room_before_it_the_call_is_displaced_with_what_follows() {
    // ret; xor %eax, %eax; syscall; cmp $-4096, %rax; ret
    let text = [0xc3, 0x31, 0xc0, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0xc3];
    assert_eq!(found(&text), Ok(vec![place(1, 3, 11, Some(0), &[1, 3, 5])]));
}

#[test]
fn the_first_byte_of_a_function_is_left_alone_where_there_is_room_behind_the_call() {
    // mov $1, %eax; syscall; cmp $-4096, %rax; ret
    let text = [0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0xc3];
    assert_eq!(found(&text), Ok(vec![place(5, 5, 13, Some(1), &[5, 7])]));
    let after = [&[0x90], &text[..]].concat();
    assert_eq!(found(&after), Ok(vec![place(1, 6, 6, Some(1), &[1])]));
    // A symbol says the same; and what leads behind the call leaves only room before it.
    let named = |it: &Object<'_>| places(&Object { symbols: vec![TEXT + 1], ..it.clone() });
    let all = [function(0, 15)];
    assert_eq!(with(&after, &[], &all, named), Ok(vec![place(6, 6, 14, Some(1), &[6, 8])]));
    let entered = [&text[..], &[0xeb, 0xf7]].concat();
    assert_eq!(found(&entered), Ok(vec![place(0, 5, 5, Some(1), &[0])]));
    // The next call has its own room.
    let next = [&text[..13], &CALL_1].concat();
    let all = found(&next).unwrap();
    assert_eq!((all[0].from, all[1].from), (TEXT, TEXT + 13));
}

#[test]
fn a_loop_around_the_call_is_displaced_from_where_it_begins() {
    // nop; xor %edi, %edi; mov %edx, %eax; syscall; jmp to the xor
    let text = [0x90, 0x31, 0xff, 0x89, 0xd0, 0x0f, 0x05, 0xeb, 0xf8];
    assert_eq!(found(&text), Ok(vec![place(1, 5, 7, None, &[1, 3, 5])]));
}

#[test]
fn an_instruction_that_names_an_address_relative_to_itself_stays() {
    // ret; lea 0x10000(%rip), %rsi; syscall; mov (%rsi), %eax; ret
    let text = [0xc3, 0x48, 0x8d, 0x35, 0, 0, 1, 0, 0x0f, 0x05, 0x8b, 0x06, 0xc3];
    assert_eq!(found(&text), Err(Trouble::NoRoom(TEXT + 8)));
}

#[test]
fn calls_jumps_and_returns_stay() {
    for stays in
        [&[0xc3_u8, 0x90, 0x90][..], &[0xff, 0xd0, 0x90], &[0xeb, 1, 0x90], &[0xff, 0xe0, 0x90]]
    {
        let text = [&[0xc3, 0x0f, 0x05], stays].concat();
        assert_eq!(found(&text), Err(Trouble::NoRoom(TEXT + 1)), "{stays:x?}");
    }
}

#[test]
fn who_jumps_to_the_call_itself_does_not_get_past_the_gate() {
    // ...; jmp to the syscall
    let text = [&CALL_1[..], &[0xeb, 0xfb]].concat();
    assert_eq!(found(&text), NO_ROOM);
    // With room behind it, the call is the first that is displaced.
    let text = [&CALL_1[..7], &[0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0xc3, 0xeb, 0xf5]].concat();
    assert_eq!(found(&text), Ok(vec![place(5, 5, 13, None, &[5, 7])]));
}

#[test]
fn who_jumps_into_an_instruction_before_the_call_leaves_no_room() {
    // (Behind a prefix, say.) lock or %eax, (%rdi); mov %edi, %esi; syscall; ret; jmp past `lock`
    let text = [0xf0, 0x09, 0x07, 0x89, 0xfe, 0x0f, 0x05, 0xc3, 0xeb, 0xf7];
    assert_eq!(found(&text), NO_ROOM);
    // With less before the call, and itself: mov %rdi, %rsi
    let text = [0xf0, 0x09, 0x07, 0x48, 0x89, 0xfe, 0x0f, 0x05, 0xc3, 0xeb, 0xf6];
    assert_eq!(found(&text), Ok(vec![place(3, 6, 8, None, &[3, 6])]));
}

#[test]
fn an_address_in_data_is_a_landing() {
    // mov %rsi, %rdi; mov %ebx, %eax; syscall; ret
    let text = [0x48, 0x89, 0xf7, 0x89, 0xd8, 0x0f, 0x05, 0xc3];
    let all = [function(0, 8)];
    let word = |at: u64| (TEXT + at).to_le_bytes();
    assert_eq!(with(&text, &word(3), &all, places), NO_ROOM);
    assert_eq!(with(&text, &word(5), &all, places), NO_ROOM);
    // (No instruction begins there: it is a number that looks like an address.)
    assert!(with(&text, &word(4), &all, places).is_ok());
    assert!(with(&text, &word(0), &all, places).is_ok());
}

#[test]
fn an_address_that_an_instruction_computes_is_a_landing() {
    // mov %rsi, %rdi; mov %ebx, %eax; syscall; lea -11(%rip), %rax
    let text = [0x48, 0x89, 0xf7, 0x89, 0xd8, 0x0f, 0x05, 0x48, 0x8d, 0x05, 0xf5, 0xff, 0xff, 0xff];
    assert_eq!(found(&text), NO_ROOM);
}

#[test]
fn the_entries_of_a_jump_table_are_landings() {
    // mov %rsi, %rdi; mov %ebx, %eax; syscall; ret; lea TABLE(%rip), %rax
    let mut text = vec![0x48, 0x89, 0xf7, 0x89, 0xd8, 0x0f, 0x05, 0xc3, 0x48, 0x8d, 0x05];
    text.extend(((DATA - TEXT - 15) as u32).to_le_bytes());
    let all = [function(0, 15)];
    let table = |to: &[u64]| -> Vec<u8> {
        to.iter().flat_map(|to| ((TEXT + to).wrapping_sub(DATA) as u32).to_le_bytes()).collect()
    };
    assert_eq!(with(&text, &table(&[7, 3]), &all, places), NO_ROOM);
    assert!(with(&text, &table(&[7, 0]), &all, places).is_ok());
    // It ends where an entry leads out of the text.
    assert!(with(&text, &table(&[7, 0x0100_0000, 3]), &all, places).is_ok());
}

#[test]
fn a_landing_pad_is_a_landing() {
    let text = [0x48, 0x89, 0xf7, 0x89, 0xd8, 0x0f, 0x05, 0xc3];
    let pad = |pad| [Function { pad: Some(pad), ..function(0, 8) }];
    assert_eq!(with(&text, &[], &pad(3), places), NO_ROOM);
    assert!(with(&text, &[], &pad(7), places).is_ok());
}

#[test]
fn a_function_begins_with_a_landing_and_its_end_is_none() {
    // mov %rsi, %rdi; mov %ebx, %eax; syscall; ret
    let text = [0x48, 0x89, 0xf7, 0x89, 0xd8, 0x0f, 0x05, 0xc3];
    assert_eq!(with(&text, &[], &[function(0, 3), function(3, 8)], places), NO_ROOM);
    // As of `clone`: what the tables say ends before the call.
    let whole = [place(0, 5, 5, None, &[0, 3])];
    assert_eq!(with(&text, &[], &[function(0, 5)], places).as_deref(), Ok(whole.as_slice()));
}

#[test]
fn the_frame_of_a_signal_begins_a_byte_early() {
    // nopl 0(%rax); mov $15, %rax; syscall
    let text = [0x0f, 0x1f, 0x40, 0, 0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
    let returns = Function { signal: true, ..function(4, 13) };
    let whole = [place(4, 11, 11, Some(15), &[4])];
    assert_eq!(with(&text, &[], &[returns], places).as_deref(), Ok(whole.as_slice()));
}

#[test]
fn two_calls_that_would_share_their_room_have_none() {
    // mov $1, %eax; syscall; syscall; ret
    let text = [0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0x0f, 0x05, 0xc3];
    assert_eq!(found(&text), Err(Trouble::NoRoom(TEXT + 7)));
    // ret; syscall; mov %rax, %rdi; mov %ebx, %eax; syscall; ret: what is behind the first one is
    // what is before the second one.
    let text = [0xc3, 0x0f, 0x05, 0x48, 0x89, 0xc7, 0x89, 0xd8, 0x0f, 0x05, 0xc3];
    assert_eq!(found(&text), Err(Trouble::NoRoom(TEXT + 8)));
}

#[test]
fn other_ways_to_the_kernel_are_found() {
    assert_eq!(found(&[0xcd, 0x80, 0xc3]), Err(Trouble::Other(TEXT)));
    assert_eq!(found(&[0x90, 0x0f, 0x34]), Err(Trouble::Other(TEXT + 1)));
    for text in [[0x90, 0xcd, 0x80], [0x90, 0x0f, 0x34], [0x90, 0x0f, 0x05]] {
        let all = [function(0, 3)];
        assert_eq!(with(&text, &[], &all, first_call), Ok(Some(TEXT + 1)));
    }
    assert!(found(&[0xcd, 0x81, 0xc3]).unwrap().is_empty());
}

#[test]
fn bytes_of_a_call_within_an_instruction_are_none() {
    // mov $0x050f, %eax; ret
    let text = [0xb8, 0x0f, 0x05, 0, 0, 0xc3];
    assert_eq!(found(&text), Ok(vec![]));
    assert_eq!(with(&text, &[], &[function(0, 6)], first_call), Ok(None));
}

#[test]
fn text_whose_instructions_are_not_known_has_no_call_that_is_believed_in() {
    // (The function ends within the mov.) mov $0x050f, %eax
    let text = [0xb8, 0x0f, 0x05, 0, 0];
    let all = [function(0, 3)];
    assert_eq!(with(&text, &[], &all, places), Err(Trouble::Unsure(TEXT + 1)));
    // Half of it is behind the end.
    let all = [function(0, 2), function(2, 5)];
    assert_eq!(with(&text, &[], &all, places), Err(Trouble::Unsure(TEXT + 1)));
    // Without bytes of a call, what may be a jump there is one.
    // mov %rsi, %rdi; mov %ebx, %eax; syscall; ret; (mov $.., %eax; cut off: jmp to the second mov)
    let text = [0x48, 0x89, 0xf7, 0x89, 0xd8, 0x0f, 0x05, 0xc3, 0xb8, 0xeb, 0xf8];
    assert_eq!(with(&text, &[], &[function(0, 8), function(8, 11)], places), NO_ROOM);
}

#[test]
fn in_text_that_no_table_has_a_call_counts_where_something_leads_there() {
    // A function; constants that have bytes of a call; and a function of which no table knows.
    // ret; 06 (invalid), syscall; 06; getpid: mov $39, %eax; syscall; ret
    let own = [0xc3, 0x06, 0x0f, 0x05, 0x06, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3];
    let all = [function(0, 1)];
    assert_eq!(with(&own, &[], &all, first_call), Ok(None));
    let leads = Ok(Some(TEXT + 10));
    // An address in data; a symbol; a call of it, and an address that is computed, from elsewhere.
    assert_eq!(with(&own, &(TEXT + 5).to_le_bytes(), &all, first_call), leads);
    let named = |it: &Object<'_>| first_call(&Object { symbols: vec![TEXT + 5], ..it.clone() });
    assert_eq!(with(&own, &[], &all, named), leads);
    for way in [&[0xe8_u8][..], &[0xe9], &[0x48, 0x8d, 0x05], &[0x0f, 0x84]] {
        let from = own.len() + 200;
        let mut text = own.to_vec();
        text.resize(from, 0x90);
        text.extend_from_slice(way);
        text.extend((5 - (from + way.len() + 4) as i32).to_le_bytes());
        text.push(0x90);
        let all = [function(0, 1), function(13, text.len() as u64)];
        assert_eq!(with(&text, &[], &all, first_call), leads, "{way:x?}");
    }
    // A short jump from the function before: jmp
    let short = [&[0xeb, 4], &own[1..]].concat();
    let all = [function(0, 2)];
    assert_eq!(with(&short, &[], &all, first_call), Ok(Some(TEXT + 11)));
    // The call that it jumps to itself: jmp over a constant; syscall, of which half is in the next
    // run
    let jumps = [0xc3, 0xeb, 1, 0x06, 0x0f, 0x05];
    let all = [function(0, 1), function(5, 6)];
    assert_eq!(with(&jumps, &[], &all, first_call), Ok(Some(TEXT + 4)));
}

#[test]
fn an_object_without_tables_is_fine_as_long_as_it_has_no_bytes_of_a_call() {
    let text = |bytes| Segment { at: TEXT, bytes, executable: true };
    let object = |bytes| Object { segments: vec![text(bytes)], frames: None, symbols: Vec::new() };
    assert_eq!(first_call(&object(&[0x90, 0xc3])), Ok(None));
    assert_eq!(first_call(&object(&CALL_1)), Err(Trouble::NoFrames));
    assert_eq!(places(&object(&CALL_1)), Err(Trouble::NoFrames));
}

/// Random text of instructions that compute, calls and jumps: all calls are found, and whatever is
/// displaced keeps the rules.
#[test]
fn in_random_text_every_call_is_found_and_no_jump_leads_into_a_place() {
    const PLAIN: [&[u8]; 8] = [
        &[0x90],
        &[0x31, 0xc0],
        &[0x48, 0x89, 0xf7],
        &[0xb8, 0x0f, 0x05, 0, 0],
        &[0x48, 0x3d, 0, 0xf0, 0xff, 0xff],
        &[0x48, 0x8d, 0x05, 0, 0, 1, 0],
        &[0xff, 0xd0],
        &[0x64, 0x8b, 0x04, 0x25, 0, 3, 0, 0],
    ];
    let seed =
        std::env::var("SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(fastrand::u64(..));
    println!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut refused = 0;
    for _ in 0..2000 {
        let (mut text, mut begins, mut calls, mut jumps) = (Vec::new(), vec![], vec![], vec![]);
        for _ in 0..random.usize(5..60) {
            begins.push(text.len());
            match random.u32(0..24) {
                0 => {
                    calls.push(text.len());
                    text.extend([0x0f, 0x05]);
                }
                1 => {
                    jumps.push(text.len());
                    text.extend([0xeb, 0]);
                }
                _ => text.extend_from_slice(PLAIN[random.usize(0..PLAIN.len())]),
            }
        }
        let mut targets = Vec::new();
        for at in jumps {
            let to = begins[random.usize(0..begins.len())];
            if let Ok(by) = i8::try_from(to as isize - at as isize - 2) {
                text[at + 1] = by as u8;
                targets.push(to as u64);
            } else {
                targets.push(at as u64 + 2);
            }
        }
        match found(&text) {
            Ok(all) => {
                let at: Vec<_> = all.iter().map(|it| (it.call - TEXT) as usize).collect();
                assert_eq!(at, calls);
                for it in &all {
                    assert!(it.end - it.from >= JUMP && it.from <= it.call);
                    assert!(it.end == it.call || it.end >= it.call + CALL);
                    let inside = it.from + 1..it.end.max(it.call + 1);
                    assert!(!targets.iter().any(|to| inside.contains(&(TEXT + to))), "{it:x?}");
                    let known = |it: &u64| begins.contains(&((it - TEXT) as usize));
                    assert!(it.begins.iter().all(known) && it.begins[0] == it.from);
                }
                assert!(all.windows(2).all(|it| it[0].end.max(it[0].call + CALL) <= it[1].from));
            }
            Err(Trouble::NoRoom(at)) => {
                assert!(calls.contains(&((at - TEXT) as usize)));
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!((100..1900).contains(&refused), "{refused} of 2000 had a call without room");
}

/// `__syscall_cancel_arch` of glibc 2.41, at 0x10; before it a function to which cancelled threads
/// go.
fn cancels() -> Vec<u8> {
    let mut text = vec![0x0f, 0x0b];
    text.resize(0x10, 0xcc);
    text.extend([0x8b, 0x07, 0xf6, 0x07, 8, 0x0f, 0x85, 0xe5, 0xff, 0xff, 0xff]);
    text.extend([0x49, 0x89, 0xfb, 0x48, 0x89, 0xf0, 0x48, 0x89, 0xd7, 0x48, 0x89, 0xce]);
    text.extend([0x4c, 0x89, 0xc2, 0x4d, 0x89, 0xca, 0x4c, 0x8b, 0x44, 0x24, 8]);
    text.extend([0x4c, 0x8b, 0x4c, 0x24, 16, 0x4c, 0x89, 0x5c, 0x24, 8, 0x0f, 0x05, 0xc3]);
    text
}

#[test]
fn the_function_in_whose_call_threads_are_cancelled_is_displaced_as_a_whole() {
    let functions = [function(0, 2), function(0x10, 0x3f)];
    let begins = [0x10, 0x12, 0x15, 0x1b, 0x1e, 0x21, 0x24, 0x27, 0x2a, 0x2d, 0x32, 0x37];
    let expected = Place { cancels: Some(TEXT), ..place(0x10, 0x3c, 0x3c, None, &begins) };
    assert_eq!(with(&cancels(), &[], &functions, places), Ok(vec![expected.clone()]));
    // An address in data is that of its beginning, as of any function; none leads to its middle.
    let word = |at: u64| (TEXT + at).to_le_bytes();
    assert_eq!(with(&cancels(), &word(0x10), &functions, places), Ok(vec![expected]));
    let entered = with(&cancels(), &word(0x1b), &functions, places);
    assert_eq!(entered, Err(Trouble::NoRoom(TEXT + 0x3c)));
    // Another bit says whether the thread is cancelled: it is none that is known.
    let mut other = cancels();
    other[0x14] = 4;
    assert_eq!(with(&other, &[], &functions, places).unwrap()[0].cancels, None);
}
