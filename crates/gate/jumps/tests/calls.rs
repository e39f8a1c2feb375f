//! libc's own calls through the gate: programs (`calls.c`) with a library before them that installs
//! it (`examples/gate.rs`) and counts what is judged. And what keeps it from being installed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Where `cargo test` puts libraries of examples, beside the directory of this test.
static GATE: LazyLock<PathBuf> = LazyLock::new(|| {
    let own = std::env::current_exe().expect("a test is a file");
    let gate = own.ancestors().nth(2).expect("it is in deps").join("examples/libgate.so");
    assert!(gate.exists(), "{} is built by `cargo test`", gate.display());
    gate
});

/// Where programs are compiled to: each to a name of its own.
fn made(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gate");
    std::fs::create_dir_all(&directory).expect("a directory of ours");
    let to = directory.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wno-unused-result", "-pthread", "-o"]).arg(&to);
    let done = compiler.args(flags).arg(source).arg("-ldl").status().expect("cc is there");
    assert!(done.success(), "{name}");
    to
}

static PROGRAM: LazyLock<PathBuf> =
    // (Bound at once: looking names up takes more than a small stack has.)
    LazyLock::new(|| made("calls.c", "calls", &["-fexceptions", "-Wl,-z,now"]));

/// Whether the gate can be installed where this test runs.
fn can_be_installed() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    if status.lines().any(|it| it.starts_with("Seccomp:") && !it.ends_with("\t0")) {
        println!("skipped: a filter of system calls is in force");
        return false;
    }
    true
}

/// Runs a test of the program with these libraries before it; what it says.
fn run(name: &str, libraries: &[&Path]) -> String {
    run_with(name, libraries, "")
}

/// As [`run`]; calls of the gate's fail by these rules.
fn run_with(name: &str, libraries: &[&Path], rules: &str) -> String {
    let before: Vec<_> = libraries.iter().map(|it| it.to_str().expect("a plain path")).collect();
    let mut program = Command::new(&*PROGRAM);
    program.arg(name).current_dir(PROGRAM.parent().expect("a directory"));
    program.env("LD_PRELOAD", before.join(":")).env("GATE_INJECT", rules);
    let done = program.output().expect("it is there");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let complained = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        done.status.success() && said.ends_with("done\n") && complained.is_empty(),
        "{}\n{said}{complained}",
        done.status
    );
    said
}

/// A library whose constructor runs before the gate's.
fn before(what: &str) -> PathBuf {
    let (name, flag) = (format!("before-{what}.so"), format!("-D{what}"));
    made("before.c", &name, &["-shared", "-fPIC", &flag])
}

/// With that library before it the gate is not installed, for this reason; all text stays.
fn refused(what: &str, reason: &str) -> String {
    refused_in("nothing_was_changed", what, reason)
}

fn refused_in(test: &str, what: &str, reason: &str) -> String {
    let said = run(test, &[&GATE, &before(what)]);
    assert!(said.contains(&format!("refused: {reason}: ")), "{said}");
    said
}

macro_rules! through_the_gate {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            if !can_be_installed() {
                return;
            }
            run(stringify!($name), &[&GATE]);
        }
    )* };
}

through_the_gate! {
    syncs_are_judged_always
    everything_is_judged_while_something_is_pending
    what_the_judge_says_is_the_result
    processes_and_threads
    handlers_interrupt_calls
    handlers_run_while_the_judge_waits_and_may_leave
    frames_are_found_through_a_trampoline
    threads_are_cancelled
    threads_are_cancelled_at_any_moment
    frames_are_found_from_every_instruction
    threads_are_cancelled_at_every_instruction
    a_thread_that_is_cancelled_already_makes_no_call
    vector_registers_stay
    general_registers_stay
    a_small_alternate_stack_is_enough
    small_alternate_stacks_of_several_threads_are_enough
    handlers_come_anywhere_while_the_word_changes
    faults_of_the_judge_are_handled_on_any_stack
    a_stack_of_who_lives_is_taken_over_by_nobody
    a_stack_of_who_died_is_taken_over
    a_look_sees_that_code_was_made
    calls_may_be_dispatched_to_the_program
    many_threads_do_everything_at_once
}

#[test]
fn calls_are_led_through_the_gate() {
    if !can_be_installed() {
        return;
    }
    print!("{}", run("calls_are_led_through_the_gate", &[&GATE]));
    print!("{}", run("costs", &[&GATE]));
}

#[test]
fn a_look_finds_what_was_loaded() {
    if !can_be_installed() {
        return;
    }
    made("before.c", "past.so", &["-shared", "-fPIC", "-DPAST"]);
    let said = run("a_look_finds_what_was_loaded", &[&GATE]);
    assert!(said.contains("answers-past-us: ./past.so: a system call at 0x"), "{said}");
    assert!(said.contains("answers-code: executable memory r-xp at 0x"), "{said}");
}

#[test]
fn a_look_may_be_taken_while_others_load_and_fork() {
    if !can_be_installed() {
        return;
    }
    for (name, what) in [("past-too.so", "-DPAST"), ("plain.so", "-DNONE"), ("other.so", "-DNONE")]
    {
        made("before.c", name, &["-shared", "-fPIC", what]);
    }
    run("a_look_is_taken_while_others_load", &[&GATE]);
    run("a_child_that_is_forked_during_a_look_may_load", &[&GATE]);
}

#[test]
fn without_the_gate_nothing_is_changed() {
    run("nothing_was_changed", &[]);
}

#[test]
fn a_system_call_in_another_library_keeps_it_out() {
    if !can_be_installed() {
        return;
    }
    refused("PAST", "answers-past-us");
}

#[test]
fn threads_keep_it_out() {
    if !can_be_installed() {
        return;
    }
    assert!(refused("THREADS", "answers-code").contains("2 threads run"));
}

#[test]
fn executable_memory_without_a_file_keeps_it_out() {
    if !can_be_installed() {
        return;
    }
    assert!(refused("CODE", "answers-code").contains("executable memory rwxp"));
}

#[test]
fn a_breakpoint_over_a_call_of_another_library_keeps_it_out() {
    if !can_be_installed() {
        return;
    }
    let said = refused("BREAKPOINT", "answers-code");
    assert!(said.contains("before-BREAKPOINT.so: its text is not what its file has"), "{said}");
}

#[test]
fn a_breakpoint_in_libc_keeps_it_out() {
    if !can_be_installed() {
        return;
    }
    let said = refused_in("nothing_is_judged", "LIBC_BREAKPOINT", "answers-code");
    assert!(said.contains("libc.so.6: its text is not what its file has"), "{said}");
}

#[test]
fn a_filter_of_system_calls_keeps_it_out() {
    refused("FILTER", "answers-sandbox");
}

#[test]
fn a_policy_against_new_code_keeps_it_out() {
    if !can_be_installed() {
        return;
    }
    let library = before("NO_CODE");
    let said = run("nothing_was_changed", &[&GATE, &library]);
    if said.contains("no such policy") {
        println!("skipped: this kernel has no PR_SET_MDWE");
        return;
    }
    assert!(said.contains("refused: answers-code: "), "{said}");
}

#[test]
fn what_fails_half_way_leaves_nothing_changed() {
    if !can_be_installed() {
        return;
    }
    let (mut text, mut installed) = (0, 0);
    for seed in 1..=60 {
        let rules = format!("mprotect:EACCES:1/3,seed={seed}");
        let said = run_with("all_or_nothing", &[&GATE], &rules);
        text += usize::from(said.contains("text cannot be changed"));
        installed += usize::from(!said.contains("refused"));
    }
    assert_eq!(text + installed, 60);
    assert!(text > 0 && installed > 0, "{text} {installed}");
}
