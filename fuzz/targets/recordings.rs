//! Recordings (`run --record`): none makes the reader panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncopy_trace::{Trace, is_recording};

fuzz_target!(|bytes: &[u8]| {
    if Trace::read(bytes).is_ok() {
        assert!(is_recording(bytes));
    }
});
