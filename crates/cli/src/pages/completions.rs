//! Completions of shells: clap's scripts, and what these do not know (a command behind `--`,
//! systemd's units, numbers of processes).

use clap::Command;
use clap_complete::aot::{Shell, generate};

/// The script for a shell.
pub fn script(shell: Shell, program: &Command) -> String {
    let mut text = Vec::new();
    generate(shell, &mut program.clone(), "uncopy", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    match shell {
        Shell::Bash => text + BASH,
        Shell::Zsh => zsh(&text),
        Shell::Fish => text + FISH,
        _ => text,
    }
}

/// In front of clap's function, which is asked for the rest.
const BASH: &str = r#"
_uncopy_more() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} of=${COMP_WORDS[1]-} i found=
    case $of in
    run | try | profile)
        for ((i = 2; i < COMP_CWORD; i++)); do
            [[ ${COMP_WORDS[i]} == -- ]] || continue
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            elif ((i + 1 == COMP_CWORD)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$cur")
            else
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            fi
            return
        done
        ;;
    enable | disable)
        [[ $cur == -* ]] || found=$(systemctl list-unit-files --type=service --plain --no-legend 2>/dev/null | cut -d' ' -f1)
        ;;
    report | stat | tcp)
        if [[ $prev == -p || $prev == --pid || $of == report && $cur != -* ]]; then
            found=$(uncopy stat 2>/dev/null | awk '$1 ~ /^[0-9]+$/ { print $1 }')
        fi
        ;;
    esac
    if [[ $found ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$found" -- "$cur")
    else
        _uncopy "$@"
    fi
}
complete -F _uncopy_more -o bashdefault -o default uncopy
"#;

const FISH: &str = r#"
complete -c uncopy -n "__fish_seen_subcommand_from run try profile; and contains -- -- (commandline -opc)" -a "(__fish_complete_subcommand --commandline (commandline -opc | string match -r -- '(?<=^--\n).*'))"
complete -c uncopy -n "__fish_seen_subcommand_from enable disable" -f -a "(systemctl list-unit-files --type=service --plain --no-legend 2>/dev/null | string split -f1 ' ')"
complete -c uncopy -n "__fish_seen_subcommand_from stat flows" -s p -l pid -x -a "(__fish_complete_pids)"
complete -c uncopy -n "__fish_seen_subcommand_from report" -f -a "(__fish_complete_pids)"
"#;

/// clap's script with other functions in the places of files.
fn zsh(text: &str) -> String {
    let mut done = String::new();
    for line in text.lines() {
        let line = if line.contains("]:PID:_default'") || line.contains("'::pid -- ") {
            line.replace(":_default'", ":_pids'")
        } else if line.contains("':unit -- ") {
            line.replace(":_default'", ":_uncopy_units'")
        } else {
            line.to_owned()
        };
        done += &line;
        done.push('\n');
    }
    // (Before the line that calls the function.)
    let units = "_uncopy_units() {\n    local -a units\n    units=(${(f)\"$(systemctl list-unit-files --type=service --plain --no-legend 2>/dev/null | cut -d' ' -f1)\"})\n    _describe -t units unit units\n}\n\n";
    match done.split_once("_uncopy() {") {
        Some((before, after)) => format!("{before}{units}_uncopy() {{{after}"),
        None => done,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command as Process;

    use super::*;

    /// The words that bash offers behind these, the last of which is begun.
    fn offered(words: &[&str]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("uncopy");
        std::fs::write(&file, script(Shell::Bash, &crate::command())).unwrap();
        let program = "uncopy() { printf ' %s\\n' pid 4711 4712; }; systemctl() \
            { printf '%s x\\n' a.service b.service; }
            source \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _uncopy_more \
            uncopy \"${COMP_WORDS[-1]}\" x; printf '%s\\n' \"${COMPREPLY[@]}\"";
        let mut bash = Process::new("bash");
        bash.args(["--norc", "-c", program]).arg(&file).args(words);
        let output = bash.output().expect("bash is there");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    #[test]
    fn behind_two_dashes_commands_are_offered_and_files_behind_these() {
        assert!(offered(&["uncopy", "run", "--", "bas"]).contains(&"bash".to_owned()));
        assert!(
            offered(&["uncopy", "run", "--", "cat", "/etc/pass"]).contains(&"/etc/passwd".into())
        );
        assert!(offered(&["uncopy", "run", "--thr"]).contains(&"--threshold".to_owned()));
    }

    #[test]
    fn units_and_processes_are_offered() {
        assert_eq!(offered(&["uncopy", "enable", ""]), ["a.service", "b.service"]);
        assert!(offered(&["uncopy", "enable", "--n"]).contains(&"--now".to_owned()));
        assert_eq!(offered(&["uncopy", "stat", "-p", "47"]), ["4711", "4712"]);
        assert_eq!(offered(&["uncopy", "report", ""]), ["4711", "4712"]);
    }

    #[test]
    fn zsh_is_told_of_units_commands_and_processes() {
        let text = script(Shell::Zsh, &crate::command());
        for part in [":_uncopy_units'", "_uncopy_units() {", "]:PID:_pids'", ":_cmdambivalent'"] {
            assert!(text.contains(part), "{part}");
        }
    }
}
