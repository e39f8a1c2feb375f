//! `uncopy run --verbose`: one line at the start, and at the end what was done, in words; what the
//! program started is summed up in one line.

#[allow(dead_code)]
mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use support::{UNCOPY, publishes_here, pump, stderr, stdout, uncopy};

/// A shell that runs the script, under uncopy; in it `pump WORDS` copies as it is told. In a
/// session of its own.
fn shell(option: &str, script: &str) -> (Vec<String>, Output) {
    let session = tempfile::tempdir_in("/dev/shm").unwrap();
    let input = pump().with_file_name("input");
    let script = format!(
        "pump() {{ printf '%s\\n' \"$@\" | {} {}; }}; {script}",
        pump().display(),
        input.display()
    );
    let mut command = uncopy();
    command.env("XDG_RUNTIME_DIR", session.path());
    // Eliding begins with the first copy, not when it has shown a gain.
    command.env("UNCOPY_CONTROLLER", "accounts-alone");
    let output = command.args(["run", option, "--", "sh", "-c", &script]).output().unwrap();
    let left = fs::read_dir(session.path()).unwrap().flatten();
    let left: Vec<_> = left.flat_map(|d| fs::read_dir(d.path()).unwrap().flatten()).collect();
    assert!(left.iter().all(|file| file.path().extension().is_none()), "{left:?}");
    (stderr(&output).lines().map(str::to_owned).collect(), output)
}

#[test]
fn a_wrapper_shell_says_one_line_at_the_start_and_one_about_all_that_it_started() {
    if !publishes_here() {
        return;
    }
    let (said, output) = shell("--verbose", "pump 'copy 50' quit; pump 'copy 30' quit; ls /; true");
    assert!(output.status.success());
    let [banner, sum] = &said[..] else { panic!("{said:?}") };
    assert!(banner.contains("]: ready"), "{banner}");
    assert!(sum.starts_with("uncopy: 2 processes that it started: 1"), "{sum}");
    assert!(sum.contains(" copies left out, ") && !sum.contains('='), "{sum}");
}

#[test]
fn a_program_that_the_shell_becomes_speaks_for_itself() {
    if !publishes_here() {
        return;
    }
    let input = pump().with_file_name("input");
    let (said, _) = shell(
        "--verbose",
        &format!("exec {} {} <<END\ncopy 50\nexec\nEND\n", pump().display(), input.display()),
    );
    let [_, own] = &said[..] else { panic!("{said:?}") };
    // Work before it executed another file is its own, too.
    assert!(own.starts_with("uncopy: cat [") && own.contains(" copies left out, "), "{own}");
}

#[test]
fn forked_children_are_counted_once_and_not_what_they_inherited() {
    if !publishes_here() {
        return;
    }
    let (said, _) = shell("--verbose", "pump 'copy 100' fork 'copy 20' end 'copy 10' quit; true");
    let [_, sum] = &said[..] else { panic!("{said:?}") };
    let copies = sum.split("started: ").nth(1).and_then(|t| t.split(' ').next());
    let copies: u64 = copies.unwrap().replace(',', "").parse().unwrap();
    assert!(sum.starts_with("uncopy: 2 processes"), "{sum}");
    assert!((200..=260).contains(&copies), "{sum}");
}

#[test]
fn where_nothing_was_left_out_one_line_says_so() {
    if !publishes_here() {
        return;
    }
    let (said, _) = shell("--verbose", "ls /; sh -c 'echo a; true'; true");
    let [banner, nothing] = &said[..] else { panic!("{said:?}") };
    assert!(banner.contains("]: ready"), "{banner}");
    assert!(
        nothing.starts_with("uncopy: sh [") && nothing.contains("nothing was left out"),
        "{nothing}"
    );
}

#[test]
fn a_program_in_a_sandbox_says_its_summary_and_is_not_killed_for_it() {
    if !publishes_here() {
        return;
    }
    let (_, output) = shell("--verbose", "pump 'copy 20' sandbox quit >&2; echo status $?");
    assert_eq!(stdout(&output), "status 0\n", "{}", stderr(&output));
}

#[test]
fn all_says_it_for_each_process_and_counters_for_programs() {
    if !publishes_here() {
        return;
    }
    let (said, _) = shell("--verbose=all", "pump 'copy 50' quit; pump 'copy 30' quit; true");
    let of_pumps =
        said.iter().filter(|l| l.starts_with("uncopy: pump [") && l.contains("copies left out"));
    assert_eq!(of_pumps.count(), 2, "{said:?}");
    assert_eq!(said.iter().filter(|l| l.ends_with("]: ready, verbose=all")).count(), 0);
    let (said, _) = shell("--verbose=counters", "pump 'copy 50' quit");
    assert!(said.iter().any(|l| l.starts_with("uncopy: elided_copies=")), "{said:?}");
}

/// Programs that are started from now on begin with signals that end them. (A caller that started
/// the tests in the background, or by nohup, has left some ignored.)
fn signals_as_usual() {
    for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGTERM] {
        // SAFETY: no handler is involved.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Pumps under uncopy until it is ended by the signal; what it said.
fn ended_by((signal, number): (&str, i32)) -> String {
    let input = pump().with_file_name("input");
    let mut command = uncopy();
    command.args(["run", "--verbose", "--"]).arg(pump()).arg(&input);
    command.env("UNCOPY_CONTROLLER", "accounts-alone");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = command.spawn().unwrap();
    writeln!(program.stdin.as_ref().unwrap(), "copy 50").unwrap();
    let answers = BufReader::new(program.stdout.as_mut().unwrap()).lines();
    assert!(answers.map_while(Result::ok).any(|line| line == "done"));
    let pid = program.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    let output = program.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(number));
    stderr(&output)
}

#[test]
fn a_program_that_a_signal_ends_by_default_says_its_summary_and_is_seen_to_be_ended_by_it() {
    signals_as_usual();
    if !publishes_here() {
        return;
    }
    for signal in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let said = ended_by(signal);
        assert!(said.contains("uncopy: pump [") && said.contains("copies left out"), "{said}");
    }
    assert!(!ended_by(("KILL", 9)).contains("left out"));
}

#[test]
fn a_signal_that_is_ignored_or_handled_stays_so() {
    signals_as_usual();
    if !publishes_here() {
        return;
    }
    let (said, output) = shell(
        "--verbose",
        "trap '' TERM; trap 'echo caught' INT; kill -TERM $$; kill -INT $$; pump 'copy 50' quit; \
         echo end",
    );
    assert_eq!(
        stdout(&output)
            .lines()
            .filter(|line| !["ready", "done"].contains(line))
            .collect::<Vec<_>>(),
        ["caught", "end"],
        "{said:?}"
    );
}

#[test]
fn without_a_directory_for_the_sum_a_program_says_one_line_at_the_start_and_sums_up_itself() {
    if !publishes_here() {
        return;
    }
    // (The first process to take the name of the directory takes the sum away. A `/dev/shm` of its
    // own: a remount would make that of all programs of this machine read-only.)
    let input = pump().with_file_name("input");
    let script = format!("exec env nice {} {}", pump().display(), input.display());
    let script = format!(
        "mount -t tmpfs -o ro none /dev/shm && exec {UNCOPY} run --verbose -- sh -c \"ls / \
         >/dev/null; {script}\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).env("UNCOPY_LIBRARY", support::library());
    command.env("UNCOPY_CONTROLLER", "accounts-alone").env_remove("XDG_RUNTIME_DIR");
    let mut program =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let _ = writeln!(program.stdin.take().unwrap(), "copy 50\nquit");
    let output = program.wait_with_output().unwrap();
    let said = stderr(&output);
    if !said.starts_with("uncopy: ") {
        return support::leave_out(said.trim());
    }
    let begins = said.lines().filter(|line| line.contains("]: ready")).count();
    assert_eq!(begins, 1, "{said}");
    assert!(said.contains("not counted") && said.contains("copies left out"), "{said}");
}
