//! Calls that objdump finds in glibc's objects are found here.

use crate::linked::{BASE, file, object, path};
use crate::{JUMP, places};
use std::process::Command;

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
    let path = path(name);
    let Some(expected) = by_objdump(&path) else {
        println!("skipped: no objdump");
        return;
    };
    let file = file(name);
    let object = object(&file);
    let before = std::time::Instant::now();
    let all = places(&object).unwrap();
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
