//! An example or two for each command, at the end of its `--help` and of its manual page.

use clap::Command;

/// Command, and its examples.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "run",
        &[
            "uncopy run -- redis-server",
            "uncopy run --verbose --threshold 64K -- python3 server.py",
        ],
    ),
    (
        "profile",
        &[
            "uncopy profile -- python3 server.py",
            "uncopy profile --duration 30 --html flow.html -- redis-server",
        ],
    ),
    ("stat", &["uncopy stat", "uncopy stat -p $(pidof redis-server) -w 5"]),
    ("top", &["uncopy top --delay 2"]),
    ("demo", &["uncopy demo"]),
    ("doctor", &["uncopy doctor", "uncopy doctor --no-cache"]),
    ("enable", &["uncopy enable --dry-run redis-server", "uncopy enable --now redis-server"]),
    ("disable", &["uncopy disable --now redis-server"]),
    (
        "tcp",
        &[
            "uncopy tcp flows",
            "uncopy tcp top --delay 2",
            "uncopy tcp serve",
            "uncopy tcp trace :6379 --out redis.pcapng --seconds 10",
        ],
    ),
    (
        "log",
        &[
            "uncopy log status",
            "uncopy log digest /srv/data/log",
            "uncopy log recover /srv/data/log",
        ],
    ),
    ("options", &["uncopy options"]),
    ("report", &["uncopy report", "uncopy report --list $(pidof redis-server)"]),
    ("help", &["uncopy help run", "uncopy help tcp serve"]),
];

/// Puts them there. (`try` has a page of its own.)
pub fn add(mut program: Command) -> Command {
    for (name, examples) in EXAMPLES {
        program = program.mut_subcommand(name, |command| {
            let more =
                command.get_after_help().map(|text| format!("\n\n{text}")).unwrap_or_default();
            command.after_help(format!("Examples:\n  {}{more}", examples.join("\n  ")))
        });
    }
    program
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_command_has_an_example_that_it_understands() {
        for command in crate::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let name = command.get_name();
            let after = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let of_it: Vec<&str> = after
                .lines()
                .map(str::trim)
                .filter(|l| l.starts_with(&format!("uncopy {name}")))
                .collect();
            assert!(!of_it.is_empty(), "{name}:\n{after}");
            if name == "try" {
                continue; // (They quote for a shell.)
            }
            for line in of_it {
                let words = line.replace("$(pidof redis-server)", "1");
                let read = crate::command().try_get_matches_from(words.split(' '));
                assert!(read.is_ok(), "{line}: {:?}", read.err());
            }
        }
    }
}
