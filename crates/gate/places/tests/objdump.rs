//! Calls that objdump finds in glibc's objects are found here.

use object::Endianness;
use object::elf::{FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use std::process::Command;
use uncopy_gate_places::object::{Object, Segment};
use uncopy_gate_places::{JUMP, places};

/// Where the objects are that this test is linked with.
fn path(name: &str) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps.lines().filter_map(|it| it.split_whitespace().nth(5));
    paths.into_iter().find(|it| it.ends_with(name)).expect("it is loaded").to_owned()
}

/// Addresses of its system calls, by objdump.
fn by_objdump(path: &str) -> Option<Vec<u64>> {
    let done = Command::new("objdump").args(["-d", "--no-show-raw-insn", path]).output().ok()?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let calls = text.lines().filter_map(|line| {
        let (at, what) = line.split_once(':')?;
        let is = what.split_whitespace().next() == Some("syscall");
        is.then(|| u64::from_str_radix(at.trim(), 16).expect("an address"))
    });
    Some(calls.collect())
}

fn compare(name: &str) {
    // (So that no number in its data looks like an address.)
    const BASE: u64 = 0x7f00_0000_0000;
    let path = path(name);
    let Some(expected) = by_objdump(&path) else {
        println!("skipped: no objdump");
        return;
    };
    let file = std::fs::read(&path).unwrap();
    let header = FileHeader64::<Endianness>::parse(&*file).unwrap();
    let little = header.endian().unwrap();
    let (mut segments, mut frames) = (Vec::new(), None);
    for it in header.program_headers(little, &*file).unwrap() {
        let at = BASE + it.p_vaddr(little);
        if it.p_type(little) == PT_LOAD {
            let bytes = it.data(little, &*file).unwrap();
            segments.push(Segment { at, bytes, executable: it.p_flags(little).0 & PF_X.0 != 0 });
        } else if it.p_type(little) == PT_GNU_EH_FRAME {
            frames = Some(at);
        }
    }
    let before = std::time::Instant::now();
    let all = places(&Object { segments, frames, symbols: Vec::new() }).unwrap();
    let took = before.elapsed();
    let found: Vec<u64> = all.iter().map(|it| it.call - BASE).collect();
    assert_eq!(found, expected);
    assert!(!all.is_empty() && all.iter().all(|it| it.end - it.from >= JUMP));
    let moved = all.iter().filter(|it| it.moves_the_call()).count();
    let known = all.iter().filter(|it| it.number.is_some()).count();
    println!(
        "{path}: {} calls, {moved} displaced themselves, {known} numbers; {took:?}",
        all.len()
    );
}

#[test]
fn the_calls_of_libc_are_those_that_objdump_finds_and_each_has_room() {
    compare("/libc.so.6");
}

#[test]
fn the_calls_of_the_dynamic_linker_are_those_that_objdump_finds_and_each_has_room() {
    compare("/ld-linux-x86-64.so.2");
}
