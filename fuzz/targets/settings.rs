//! Values of the environment: none makes the library panic, where a panic would be the program's
//! end.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for spec in uncopy_options::OPTIONS {
        let _ = uncopy_options::parse(spec, text);
    }
    let _ = uncopy_options::known(text);
    let _ = uncopy_inject::Plan::parse(text);
});
