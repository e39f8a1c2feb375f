//! Requests to the key-value store: none makes the parser panic, and none is longer than what came.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncopy_tcp_kv::protocol::{Parsed, parse};

fuzz_target!(|bytes: &[u8]| {
    match parse(bytes) {
        Parsed::Request(_, used) | Parsed::Unknown(used) => {
            assert!((1..=bytes.len()).contains(&used));
        }
        Parsed::Incomplete | Parsed::Broken(_) => {}
    }
});
