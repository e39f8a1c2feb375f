//! A sweep that decodes only the needed text finds the same as one that decodes all of it.

use crate::frames::functions;
use crate::linked::{File, file, object};
use crate::object::Object;
use crate::places::found;
use crate::runs::{decode, runs};
use crate::sweep::Decodes;

#[test]
fn what_is_not_decoded_would_have_changed_nothing() {
    for name in ["/libc.so.6", "/ld-linux-x86-64.so.2"] {
        let file = file(name);
        let object = object(&file);
        let all = found(&object, Decodes::All).unwrap();
        assert_eq!(found(&object, Decodes::Needed).unwrap(), all, "{name}");
    }
}

/// Where instructions begin in a text: those of sound runs.
fn begins(object: &Object<'_>) -> Vec<u64> {
    let (mut room, mut all) = (Vec::new(), Vec::new());
    for run in runs(object, &functions(object).unwrap()) {
        if decode(&run, &mut room) {
            all.extend(room.iter().map(|it| it.ip()));
        }
    }
    all
}

/// Jumps, operands and tables that lead near calls, anywhere: some in place of instructions, some
/// in the middle of them.
#[test]
fn whatever_leads_near_a_call_is_found_wherever_it_is() {
    let seed =
        std::env::var("SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(fastrand::u64(..));
    println!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let original = file("/ld-linux-x86-64.so.2");
    let as_it_was = found(&object(&original), Decodes::All).unwrap();
    let begins = begins(&object(&original));
    let mut changed = 0;
    for _ in 0..TIMES {
        let mut file = original.clone();
        let call = as_it_was[random.usize(0..as_it_was.len())].call;
        leads_near(&mut file, call, &begins, &mut random);
        let all = found(&object(&file), Decodes::All);
        changed += usize::from(all.as_ref() != Ok(&as_it_was));
        assert_eq!(found(&object(&file), Decodes::Needed), all);
    }
    println!("{changed} of {TIMES} differ from what is there");
    assert!(changed > TIMES / 10);
}

const TIMES: usize = 400;

fn leads_near(file: &mut File, call: u64, begins: &[u64], random: &mut fastrand::Rng) {
    let text = file.0.iter().position(|it| it.2).unwrap();
    let of_call = begins.binary_search(&call).unwrap();
    let to = match random.u32(0..4) {
        0 => call.wrapping_add_signed(random.i64(-12..6)),
        _ => begins[of_call - random.usize(0..3)],
    };
    // Nearby, or anywhere.
    let near = (of_call + random.usize(0..120)).saturating_sub(60).clamp(1, begins.len() - 20);
    let site = if random.bool() { near } else { random.usize(1..begins.len() - 20) };
    let inside = u64::from(random.u32(0..4) == 0);
    let at = begins[site] + inside;
    let by = |from: u64, to: u64| (to.wrapping_sub(from) as i32).to_le_bytes();
    let bytes: Vec<u8> = match random.u32(0..8) {
        0 => [&[0xe9][..], &by(at + 5, to)].concat(),
        1 => [&[0x0f, 0x84][..], &by(at + 6, to)].concat(),
        2 | 3 => vec![0xeb, to.wrapping_sub(at + 2) as u8],
        4 => [&[0x48, 0x8d, 0x05][..], &by(at + 7, to)].concat(),
        5 => [&[0xc7, 0x05][..], &by(at + 10, to), &[0; 4]].concat(),
        _ => [&[0x48, 0x8d, 0x05][..], &by(at + 7, table(file, text + 1, to, random))].concat(),
    };
    // The rest of what was there does nothing.
    let end = begins[site..].iter().find(|it| **it >= at + bytes.len() as u64).unwrap();
    let (from, behind) = ((at - file.0[text].0) as usize, (end - file.0[text].0) as usize);
    if inside == 0 && begins[site..].iter().take(20).any(|it| it == end) {
        file.0[text].1[from..behind].fill(0x90);
    }
    file.0[text].1[from..from + bytes.len()].copy_from_slice(&bytes);
}

/// A jump table somewhere in the data, whose second entry leads there.
fn table(file: &mut File, data: usize, to: u64, random: &mut fastrand::Rng) -> u64 {
    let (begins, bytes) = (file.0[data].0, &mut file.0[data].1);
    let i = random.usize(0..bytes.len() / 4 - 4);
    let table = begins + 4 * i as u64;
    let entry = to.wrapping_sub(table) as u32;
    for (n, it) in bytes[4 * i..4 * i + 8].chunks_exact_mut(4).enumerate() {
        it.copy_from_slice(&(entry + n as u32 - 1).to_le_bytes());
    }
    table
}
