//! The file that a profiled process left: a damaged part is read without a panic, and its tree
//! leads to its root.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncopy_flow::layout::WORDS;
use uncopy_flow::part::Part;

fuzz_target!(|changes: Vec<(u32, u64)>| {
    // (The file has one length. Only its content counts.)
    let mut words = vec![0u64; WORDS];
    words[uncopy_flow::layout::header::MAGIC] = uncopy_flow::layout::MAGIC;
    words[uncopy_flow::layout::header::LAYOUT] = uncopy_flow::layout::LAYOUT;
    for (at, value) in changes {
        words[at as usize % WORDS] = value;
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    if let Some(part) = Part::read(&bytes) {
        for (i, node) in part.nodes.iter().enumerate() {
            assert!(node.parent <= i);
        }
    }
});
