//! Small programs, each one way to take a preload library with userfaultfd by surprise; every one
//! of them failed once (found in review by programs like these). Run under uncopy with eager
//! options; each must end by itself and say what is expected.
//!
//! `cargo test -p uncopy-tests --test races [NAME]`

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use regex_lite::Regex;
use uncopy_tests::compile::{Part, compile};
use uncopy_tests::product::under;
use uncopy_tests::run::Bounded;
use uncopy_tests::verdict::{Stop, test};

const EAGER: &[&str] = &["--backoff=no", "--threshold=8K"];

/// The program, and what its last line must match.
const PROGRAMS: &[(&str, &str)] = &[
    ("clone_child_can_exec", "^exit 0$"),
    ("dup2_over_our_descriptors", "^bad=0$"),
    ("dup2_in_vfork_child", "^bad=0"),
    ("descriptors_closed_by_raw_call", "^bad=0"),
    ("one_shot_handlers_survive", "^ok"),
    ("coroutine_stack_on_freed_block", "^done=1$"),
    ("many_threads_fault_during_unmaps", "^done,.bad=0$"),
    ("unmapped_addresses_belong_to_malloc", "bad=0$"),
    ("freed_mapping_is_given_out_again", "bad=0$"),
    ("dropped_pages_while_forking", "stale-after-DONTNEED=0$"),
    ("moved_mapping_while_forking", "LOST=0$"),
    ("mapping_moved_in_a_child_without_us", "^bad=0$"),
    ("protecting_while_unmapping", "stale=0$"),
    ("first_thread_exits_early", "worker.done"),
    ("allocator_without_usable_size", "^bad=0$"),
    ("first_thread_exits_while_starting", "^bad=0$"),
    ("child_after_first_thread_ended", "^child.ended.with.7$"),
    ("touched_and_dropped_while_forking", "^stale=0$"),
    ("limited_address_space_is_not_used_up", "1[12][0-9][0-9].MB"),
    ("lookup_error_stays_for_dlerror", "^bad=0$"),
    ("first_copy_in_a_signal_handler", "^bad=0$"),
    ("first_call_in_a_signal_handler", "^bad=0$"),
];

fn main() -> ExitCode {
    let trials = PROGRAMS
        .iter()
        .map(|&(name, pattern)| -> Trial { test(name, move || race(name, pattern)) });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn race(name: &str, pattern: &str) -> Result<(), Stop> {
    let with_toy = name == "allocator_without_usable_size";
    let mut parts = vec![Part::program(&format!("races/{name}.c"), &["-w", "-O1", "-fno-builtin"])];
    if with_toy {
        parts.push(Part::named(
            "races/toy_allocator.c",
            "libtoy.so",
            &["-shared", "-fPIC", "-fno-builtin"],
        ));
    }
    let directory = compile(name, &parts)?;
    let toy = directory.join("libtoy.so");
    let mut environment = vec![("R", OsStr::new("20"))];
    if with_toy {
        environment.push(("LD_PRELOAD", toy.as_os_str()));
    }
    let words = under(EAGER, &[directory.join(name).into()])?;
    let said = Bounded { words: &words, environment: &environment, seconds: None }.run()?;
    if said.status == 0 && Regex::new(pattern).expect("a pattern").is_match(said.last()) {
        return Ok(());
    }
    Err(format!(
        "{}, said '{}', which should match '{pattern}' ({})",
        said.end(),
        said.last(),
        said.last_error()
    )
    .into())
}
