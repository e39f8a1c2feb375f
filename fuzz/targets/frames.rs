//! Frames of the network: none makes the reader panic; what it reads of one lies in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncopy_tcp_proto::wire::{Checksums, parse};

fuzz_target!(|frame: &[u8]| {
    for checksums in [Checksums::Nobody, Checksums::Software, Checksums::Device] {
        let _ = parse(frame, checksums);
    }
});
