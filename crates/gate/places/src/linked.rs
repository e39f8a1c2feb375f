//! The objects that a test is linked with, as their files have them.

use crate::object::{Object, Segment};
use object::Endianness;
use object::elf::{FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};

/// (So that no number in data looks like an address.)
pub(crate) const BASE: u64 = 0x7f00_0000_0000;

/// Its segments, each with where it lies and whether it is text; where its tables are.
pub(crate) type File = (Vec<(u64, Vec<u8>, bool)>, Option<u64>);

/// Where the object of that name is which this test is linked with.
pub(crate) fn path(name: &str) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|it| it.split_whitespace().nth(5));
    paths.find(|it| it.ends_with(name)).expect("it is loaded").to_owned()
}

/// The object of that name.
pub(crate) fn file(name: &str) -> File {
    let file = std::fs::read(path(name)).unwrap();
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

/// As the sweep is given it.
pub(crate) fn object((segments, frames): &File) -> Object<'_> {
    let segments = segments.iter().map(|it| {
        let (at, bytes, executable) = (it.0, it.1.as_slice(), it.2);
        Segment { at, bytes, executable }
    });
    Object { segments: segments.collect(), symbols: Vec::new(), frames: *frames }
}
