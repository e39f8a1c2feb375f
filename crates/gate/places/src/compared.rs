//! What is found where only what is needed is decoded is what is found where all is.

use crate::object::{Object, Segment};
use crate::places::found;
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

/// Jumps, operands and tables that lead near calls, anywhere: mostly in the middle of
/// instructions.
#[test]
fn whatever_leads_near_a_call_is_found_wherever_it_is() {
    let seed =
        std::env::var("SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(fastrand::u64(..));
    println!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let original = file("/ld-linux-x86-64.so.2");
    let calls: Vec<u64> = {
        let all = found(&object(&original), Decodes::All).unwrap();
        all.iter().map(|it| it.call).collect()
    };
    let text = original.0.iter().position(|it| it.2).unwrap();
    let data = text + 1;
    let mut changed = 0;
    let as_it_was = found(&object(&original), Decodes::All);
    for _ in 0..150 {
        let mut file = original.clone();
        for _ in 0..random.usize(1..4) {
            leads_near(&mut file, calls[random.usize(0..calls.len())], (text, data), &mut random);
        }
        let all = found(&object(&file), Decodes::All);
        changed += usize::from(all != as_it_was);
        assert_eq!(found(&object(&file), Decodes::Needed), all);
    }
    println!("{changed} of 150 differ from what is there");
    assert!(changed > 20);
}

fn leads_near(
    file: &mut File,
    call: u64,
    (text, data): (usize, usize),
    random: &mut fastrand::Rng,
) {
    let to = call.wrapping_add_signed(random.i64(-12..6));
    let n = file.0[text].1.len();
    // (Also nearby.)
    let nearby = (call - file.0[text].0) as i64 + random.i64(-160..160);
    let i = if random.bool() { random.usize(16..n - 16) } else { nearby as usize };
    let at = file.0[text].0 + i as u64;
    let by = |from: u64, to: u64| (to.wrapping_sub(from) as i32).to_le_bytes();
    let (table, entries) = (file.0[data].0, file.0[data].1.len() / 4);
    let entry = random.usize(0..entries - 4);
    let table = table + 4 * entry as u64;
    let bytes: Vec<u8> = match random.u32(0..6) {
        0 => [&[0xe9][..], &by(at + 5, to)].concat(),
        1 => [&[0x0f, 0x84][..], &by(at + 6, to)].concat(),
        2 => vec![0xeb, to.wrapping_sub(at + 2) as u8],
        3 => [&[0x48, 0x8d, 0x05][..], &by(at + 7, to)].concat(),
        4 => [&[0xc7, 0x05][..], &by(at + 10, to), &[0; 4]].concat(),
        _ => {
            let mut lies = [0; 16];
            for (i, it) in lies.chunks_exact_mut(4).enumerate() {
                it.copy_from_slice(&by(table, to + i as u64));
            }
            file.0[data].1[4 * entry..4 * entry + 16].copy_from_slice(&lies);
            // (Perhaps another begins within it.)
            let begins = table + 4 * random.u64(0..2);
            [&[0x48, 0x8d, 0x05][..], &by(at + 7, begins)].concat()
        }
    };
    file.0[text].1[i..i + bytes.len()].copy_from_slice(&bytes);
}
