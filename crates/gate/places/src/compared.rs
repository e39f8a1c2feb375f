//! A sweep that decodes only the needed text finds the same as one that decodes all of it.

use crate::frames::functions;
use crate::object::{Object, Segment};
use crate::places::found;
use crate::runs::{decode, runs};
use crate::sweep::Decodes;
use object::Endianness;
use object::elf::{FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};

/// (So that no number in data looks like an address.)
const BASE: u64 = 0x7f00_0000_0000;

/// Its segments, each with where it lies and whether it is text; where its tables are.
type File = (Vec<(u64, Vec<u8>, bool)>, Option<u64>);

/// The object of that name which this test is linked with.
fn file(name: &str) -> File {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|it| it.split_whitespace().nth(5));
    let file = std::fs::read(paths.find(|it| it.ends_with(name)).unwrap()).unwrap();
    let header = FileHeader64::<Endianness>::parse(&*file).unwrap();
    let little = header.endian().unwrap();
    let (mut segments, mut frames) = (Vec::new(), None);
    for it in header.program_headers(little, &*file).unwrap() {
        let at = BASE + it.p_vaddr(little);
        if it.p_type(little) == PT_LOAD {
            let bytes = it.data(little, &*file).unwrap().to_vec();
            segments.push((at, bytes, it.p_flags(little).0 & PF_X.0 != 0));
        } else if it.p_type(little) == PT_GNU_EH_FRAME {
            frames = Some(at);
        }
    }
    (segments, frames)
}

fn object((segments, frames): &File) -> Object<'_> {
    let segments = segments.iter().map(|it| {
        let (at, bytes, executable) = (it.0, it.1.as_slice(), it.2);
        Segment { at, bytes, executable }
    });
    Object { segments: segments.collect(), symbols: Vec::new(), frames: *frames }
}

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
