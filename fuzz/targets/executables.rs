//! Files that are executed: whatever their headers say, looking at one ends, and does not panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncopy_executable::Executable;

fuzz_target!(|file: &[u8]| {
    match uncopy_executable::look(file) {
        Executable::Script(interpreter) => {
            assert!(file.starts_with(b"#!") && !interpreter.is_empty())
        }
        Executable::Program(program) => {
            assert!(file.starts_with(b"\x7fELF"));
            let _ = program.minds_the_library(b"/lib64/ld-linux-x86-64.so.2");
        }
        Executable::Other => {}
    }
});
