//! `uncopy run`: the program is the same with it in front, and what stands in the way is said.

#[allow(dead_code)]
mod support;

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use support::{UNCOPY, leave_out, library, stderr, stdout, uncopy, works_here};

fn run(words: &[&str]) -> Output {
    uncopy().arg("run").args(words).output().unwrap()
}

/// The one line on standard error, and it is ours.
fn one_line(output: &Output) -> String {
    let text = stderr(output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].starts_with("uncopy: "), "{text}");
    lines[0].to_owned()
}

/// Programs are written by another process: a descriptor of ours, open for writing while another
/// test forks, would make the kernel refuse to execute them (ETXTBSY).
fn write(path: &Path, content: &[u8], mode: u32) {
    let mut command = Command::new("sh");
    command.args(["-c", "cat > \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(content).unwrap();
    assert!(child.wait().unwrap().success());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn copy_of(program: &str, directory: &Path, mode: u32) -> PathBuf {
    let path = directory.join("program");
    write(&path, &std::fs::read(program).unwrap(), mode);
    path
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_exit_status_is_the_programs() {
    for status in [0, 1, 7, 125, 255] {
        let output = run(&["--", "sh", "-c", &format!("exit {status}")]);
        assert_eq!(output.status.code(), Some(status));
    }
}

#[test]
fn a_program_killed_by_a_signal_is_seen_to_be_killed_by_it() {
    let output = run(&["--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.signal(), Some(15));
}

#[test]
fn the_program_is_the_same_process() {
    let script = r#"echo $$; exec "$0" run -- sh -c 'echo $$'"#;
    let mut command = Command::new("sh");
    let output = command.args(["-c", script, UNCOPY]).env("UNCOPY_LIBRARY", library()).output();
    let output = stdout(&output.unwrap());
    let pids: Vec<&str> = output.lines().collect();
    assert_eq!(pids.len(), 2);
    assert_eq!(pids[0], pids[1]);
}

#[test]
fn signal_dispositions_pass_through() {
    let inner = r#"'kill -PIPE $$; echo alive'"#;
    for (before, alive) in [("trap '' PIPE", true), (":", false)] {
        let script = format!(r#"{before}; exec "$0" run -- sh -c {inner}"#);
        let mut command = Command::new("sh");
        command.args(["-c", &script, UNCOPY]).env("UNCOPY_LIBRARY", library());
        let output = command.output().unwrap();
        assert_eq!(stdout(&output) == "alive\n", alive, "{before}");
        assert_eq!(output.status.signal() == Some(13), !alive, "{before}");
    }
}

#[test]
fn a_closed_standard_input_stays_closed() {
    let script =
        r#"exec "$0" run -- sh -c 'test -e /proc/$$/fd/0 && echo open || echo closed' <&-"#;
    let mut command = Command::new("sh");
    // Without the library: what it opens itself is not this program's business.
    command.args(["-c", script, UNCOPY]).env("UNCOPY_LIBRARY", "/nowhere.so");
    assert_eq!(stdout(&command.output().unwrap()), "closed\n");
}

#[test]
fn standard_input_and_output_pass_through_untouched() {
    let bytes: Vec<u8> =
        (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut command = uncopy();
    command.args(["run", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || input.write_all(&sent).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.stdout == bytes, "the bytes differ");
    if works_here() {
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn syncs_return_as_the_command_line_says_or_else_as_the_variable_does() {
    if !works_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let log = format!("--log={}", text(&directory.path().join("log")));
    let told = |option: Option<&str>, variable: Option<&str>| {
        let mut command = uncopy();
        command.args(["run", &log, "--log-size=1M", "--log-store=memory"]).args(option);
        if let Some(value) = variable {
            command.env("UNCOPY_LOG_SYNC", value);
        }
        let print = r#"printf %s "${UNCOPY_LOG_SYNC-unset}""#;
        stdout(&command.args(["--", "sh", "-c", print]).output().unwrap())
    };
    let (call, answers) = (Some("--log-sync=call"), Some("--log-sync=answers"));
    for (option, variable, expected) in [
        (None, None, "unset"),
        (None, Some("answers"), "answers"),
        (None, Some("call"), "call"),
        (call, None, "call"),
        (answers, None, "answers"),
        (call, Some("answers"), "call"),
        (answers, Some("call"), "answers"),
    ] {
        assert_eq!(told(option, variable), expected, "{option:?} {variable:?}");
    }
}

#[test]
fn the_program_keeps_its_name_arguments_and_variables() {
    let words =
        ["--", "sh", "-c", r#"printf '%s|' "$0" "$@" "$COLOUR""#, "zero", "--verbose", "", "a b"];
    let output = uncopy().arg("run").args(words).env("COLOUR", "red").output().unwrap();
    assert_eq!(stdout(&output), "zero|--verbose||a b|red|");
}

#[test]
fn the_library_goes_in_front_of_what_is_preloaded() {
    if !works_here() {
        return;
    }
    let print = "printf '%s\\n' \"$LD_PRELOAD\" \"$UNCOPY_LIBRARY\"";
    let words = ["run", "--", "sh", "-c", print];
    let ours = text(library());
    let output = uncopy().args(words).output().unwrap();
    assert_eq!(stdout(&output), format!("{ours}\n{ours}\n"));
    // A library that is there and harmless: libc itself, by its name.
    let output = uncopy().args(words).env("LD_PRELOAD", "libc.so.6").output().unwrap();
    assert_eq!(stdout(&output), format!("{ours}:libc.so.6\n{ours}\n"));
}

#[test]
fn options_reach_the_program_as_variables_and_win() {
    if !works_here() {
        return;
    }
    let print = r#"printf '%s ' "$UNCOPY_THRESHOLD" "$UNCOPY_ELIDE" "$UNCOPY_BACKOFF""#;
    let output = uncopy()
        .args(["run", "--threshold", "64K", "--elide=no", "--", "sh", "-c", print])
        .envs([("UNCOPY_THRESHOLD", "nonsense"), ("UNCOPY_BACKOFF", "off")])
        .output()
        .unwrap();
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("65536 no off ", ""));
}

#[test]
fn a_missing_command_gives_127() {
    for command in ["no-such-command-here", "/no/such/file", "./nothing"] {
        let output = run(&["--", command]);
        assert_eq!(output.status.code(), Some(127));
        assert!(one_line(&output).contains(command));
    }
}

#[test]
fn a_file_that_cannot_be_executed_gives_126() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("notes");
    write(&file, b"words", 0o644);
    for command in [&file, &directory.path().to_owned()] {
        let output = run(&["--", text(command)]);
        assert_eq!(output.status.code(), Some(126));
        assert!(one_line(&output).contains(text(command)));
    }
}

#[test]
fn scripts_run_with_and_without_a_first_line() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    for content in ["#!/bin/sh\necho \"$1\"; exit 3\n", "echo \"$1\"; exit 3\n"] {
        write(&script, content.as_bytes(), 0o755);
        let output = run(&["--", text(&script), "word"]);
        assert_eq!((stdout(&output).as_str(), output.status.code()), ("word\n", Some(3)));
    }
    write(&script, b"#!/no/such/interpreter\n", 0o755);
    let output = run(&["--", text(&script)]);
    assert_eq!(output.status.code(), Some(127));
    assert!(one_line(&output).contains("/no/such/interpreter"));
}

#[test]
fn a_static_program_runs_plainly_also_behind_a_script() {
    if !works_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("p.c"), directory.path().join("p"));
    std::fs::write(&source, "int main(void) { return 9; }\n").unwrap();
    for kind in ["-static", "-static-pie"] {
        let built = Command::new("cc").arg(kind).arg("-o").arg(&program).arg(&source).output();
        if !built.is_ok_and(|b| b.status.success()) {
            leave_out(format!("cc {kind} does not work here"));
            continue;
        }
        let script = directory.path().join("script");
        write(&script, format!("#!{}\n", program.display()).as_bytes(), 0o755);
        for command in [&program, &script] {
            let output = run(&["--", text(command)]);
            assert_eq!(output.status.code(), Some(9));
            assert!(one_line(&output).contains("statically linked"), "{}", stderr(&output));
            let output = run(&["--require", "--", text(command)]);
            assert_eq!(output.status.code(), Some(125));
            assert!(one_line(&output).contains("refused"), "{}", stderr(&output));
        }
    }
}

#[test]
fn setuid_and_setgid_programs_run_plainly() {
    if !works_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for (mode, word) in [(0o4755, "setuid"), (0o2755, "setgid")] {
        let program = copy_of("/bin/true", directory.path(), mode);
        let output = run(&["--", text(&program)]);
        assert!(output.status.success());
        assert!(one_line(&output).contains(word), "{}", stderr(&output));
    }
}

#[test]
fn programs_with_file_capabilities_run_plainly() {
    if !works_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = copy_of("/bin/true", directory.path(), 0o755);
    let done = Command::new("setcap").arg("cap_net_bind_service+ep").arg(&program).output();
    if !done.is_ok_and(|d| d.status.success()) {
        leave_out("setcap does not work here");
        return;
    }
    let output = run(&["--", text(&program)]);
    assert!(output.status.success());
    assert!(one_line(&output).contains("file capabilities"), "{}", stderr(&output));
}

#[test]
fn a_program_for_another_machine_is_named_as_such() {
    if !works_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    // 32-bit ARM: a header and nothing behind it.
    let mut header = vec![0u8; 52];
    header[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
    (header[16], header[18], header[20]) = (2, 40, 1);
    write(&program, &header, 0o755);
    let output = run(&["--", text(&program)]);
    let said = stderr(&output);
    assert!(said.lines().next().unwrap().contains("32-bit ARM"), "{said}");
    // Nothing here can execute it, plainly either.
    assert_eq!(output.status.code(), Some(126), "{said}");
    assert_eq!(run(&["--require", "--", text(&program)]).status.code(), Some(125));
}

#[test]
fn a_misspelt_variable_is_told_its_neighbour_and_a_bad_value_is_dropped() {
    let mut command = uncopy();
    command.args(["run", "--", "true"]).env("UNCOPY_TRESHOLD", "64K");
    let said = stderr(&command.output().unwrap());
    assert!(said.contains("UNCOPY_TRESHOLD") && said.contains("UNCOPY_THRESHOLD?"), "{said}");
    let mut command = uncopy();
    command.args(["run", "--", "sh", "-c", "echo ${UNCOPY_THRESHOLD-unset}"]);
    let output = command.env("UNCOPY_THRESHOLD", "1").output().unwrap();
    assert_eq!(stdout(&output), "unset\n");
    assert!(stderr(&output).contains("8K..1G"), "{}", stderr(&output));
}

#[test]
fn without_the_library_it_runs_plainly_or_is_refused() {
    let lost =
        |words: &[&str]| uncopy().arg("run").args(words).env("UNCOPY_LIBRARY", "/x.so").output();
    let output = lost(&["--", "sh", "-c", "echo ran${LD_PRELOAD}"]).unwrap();
    assert_eq!(stdout(&output), "ran\n");
    assert!(stderr(&output).contains("/x.so"), "{}", stderr(&output));
    let output = lost(&["--require", "--", "echo", "ran"]).unwrap();
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(125), ""));
    let output = lost(&["--library", "/etc/passwd", "--", "true"]).unwrap();
    assert!(stderr(&output).contains("/etc/passwd is not a library"), "{}", stderr(&output));
}

#[test]
fn with_require_a_program_whose_own_limits_leave_no_userfaultfd_is_not_begun() {
    // (The shell has one; what it becomes has not.)
    let script = "ulimit -n 6; exec echo ran";
    let output = run(&["--", "sh", "-c", script]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "ran\n"));
    let output = run(&["--require", "--", "sh", "-c", script]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(125), ""));
    assert!(stderr(&output).contains("uncopy: refused: "), "{}", stderr(&output));
}

#[test]
fn where_userfaultfd_is_refused_one_line_says_so_and_the_program_runs() {
    let sysctl =
        std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    // SAFETY: the call takes nothing and cannot fail.
    if sysctl.trim() != "0" || unsafe { libc::geteuid() } != 0 {
        leave_out("needs root and vm.unprivileged_userfaultfd=0");
        return;
    }
    // Where an unprivileged user can reach them.
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (program, stub) = (directory.path().join("uncopy"), directory.path().join("libuncopy.so"));
    write(&program, &std::fs::read(UNCOPY).unwrap(), 0o755);
    std::fs::copy(library(), &stub).unwrap();
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new(&program);
        command
            .arg("run")
            .args(words)
            .env_remove("UNCOPY_LIBRARY")
            .env_remove("UNCOPY_TEST_LIBRARY");
        command.uid(65534).gid(65534).current_dir("/").output().unwrap()
    };
    let output = as_nobody(&["--", "echo", "ran"]);
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("ran\n", Some(0)));
    let line = one_line(&output);
    assert!(line.contains("sysctl -w vm.unprivileged_userfaultfd=1"), "{line}");
    assert!(line.contains("/dev/userfaultfd"), "{line}");
    assert_eq!(as_nobody(&["--require", "--", "true"]).status.code(), Some(125));
}

#[test]
fn words_that_a_message_repeats_do_not_steer_the_terminal() {
    let name = OsStr::from_bytes(b"/nowhere/\x1b[31m\xc2\x9b1m\xff\n\xe2\x80\xae");
    let shown = r"/nowhere/\x1b[31m\u{9b}1m\xff\n\u{202e}";
    for command in ["run", "profile"] {
        let output = uncopy().arg(command).arg("--").arg(name).output().unwrap();
        assert_eq!(output.status.code(), Some(127));
        assert_eq!(one_line(&output), format!("uncopy: {shown}: no such file; check the path"));
    }
    let output = uncopy().args(["run", "--thr\u{9b}esh=4\u{7}", "--", "true"]).output().unwrap();
    assert!(!stderr(&output).contains(|c: char| c.is_control() && c != '\n'), "{output:?}");
    let output = uncopy().arg("\u{9b}1m\u{202e}").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains(r"\u{9b}1m\u{202e}"), "{output:?}");
}

#[test]
fn a_stack_of_64_kb_is_enough_for_every_command() {
    let small = |words: &str| {
        let script = format!("ulimit -s 64; exec {UNCOPY} {words}");
        Command::new("sh").args(["-c", &script]).env("UNCOPY_LIBRARY", library()).output().unwrap()
    };
    for words in ["run -- true", "--help", "help tcp serve", "options", "stat", "doctor --no-cache"]
    {
        let output = small(words);
        let said = stderr(&output);
        assert!(output.status.code().is_some() && !said.contains("overflow"), "{words}: {said}");
    }
}

#[test]
fn a_misspelt_option_is_not_taken_for_the_program() {
    for (command, option, hint) in [
        ("run", "--tresh=4", "did you mean --threshold?"),
        ("run", "--verbos", "did you mean --verbose?"),
        ("run", "--quiet-please", "'uncopy run --help' lists the options"),
        ("run", "-x", "'uncopy run --help' lists the options"),
        ("profile", "--jsno", "did you mean --json?"),
    ] {
        for more in [&["--", "true"][..], &["true"], &[]] {
            let output = uncopy().arg(command).arg(option).args(more).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{option}");
            let name = option.split('=').next().unwrap();
            assert_eq!(one_line(&output), format!("uncopy: unknown option {name}; {hint}"));
        }
    }
    // The word behind `--` is the program, whatever it is called.
    let output = run(&["--verbose=no", "--", "--tresh=4"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(one_line(&output).contains("--tresh=4: command not found"));
    let output = run(&["--threshold", "64K", "echo", "--tresh=4", "--", "-x"]);
    assert_eq!(stdout(&output), "--tresh=4 -- -x\n");
}
