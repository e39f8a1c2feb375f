//! `uncopy enable UNIT` and `uncopy disable UNIT`: a systemd service starts under uncopy, or no
//! more.
//!
//! The command writes one drop-in, in the administrator's directory; the unit's own file stays as
//! it is.
//!
//! | file | one idea |
//! | --- | --- |
//! | `manager` | what systemd is asked and told |
//! | `obstacles` | settings of a unit that keep uncopy out, and what has to be let in |
//! | `dropin` | the drop-in's text and file |

mod dropin;
mod manager;
mod obstacles;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use uncopy_measure::printable::printable;
use uncopy_measure::{Failure, cache, failure, library};
use uncopy_options as options;

use crate::run;
use crate::stat::process;

fn unit_arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("unit")
                .value_name("UNIT")
                .required(true)
                .help("The service, as systemctl names it"),
        )
        .arg(
            Arg::new("dry-run")
                .long("dry-run")
                .action(ArgAction::SetTrue)
                .help("Only say what would be done"),
        )
        .arg(
            Arg::new("now")
                .long("now")
                .action(ArgAction::SetTrue)
                .help("Restart the service if it runs; without it, its next start counts"),
        )
}

/// `enable`, with the library's options.
pub fn enable_command() -> Command {
    let command = Command::new("enable")
        .about("Have a systemd service start under uncopy")
        .override_usage("uncopy enable [OPTIONS] UNIT")
        .after_help(
            "Writes /etc/systemd/system/UNIT.service.d/90-uncopy.conf and nothing else. It reads \
             what the unit forbids its service first: what uncopy needs of that is let in, and \
             where something cannot be, nothing is written and the reason is said. Exit status: 0 \
             if the service will start under uncopy.",
        );
    run::with_options(unit_arguments(command))
}

/// `disable`.
pub fn disable_command() -> Command {
    let command =
        Command::new("disable").about("Have a systemd service start without uncopy again");
    unit_arguments(command)
}

/// The unit's name as systemd takes it.
fn unit_name(matches: &ArgMatches) -> Result<String, Failure> {
    let given: &String = matches.get_one("unit").expect("clap demands it");
    let fine = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    if given.is_empty() || given.starts_with('-') || !given.chars().all(fine) {
        return Err(failure!("'{given}' is not the name of a unit")
            .advise("'systemctl list-units' lists them"));
    }
    match given.rsplit_once('.').map(|(_, kind)| kind) {
        Some("service") => Ok(given.clone()),
        Some(
            "socket" | "timer" | "target" | "mount" | "path" | "slice" | "scope" | "device"
            | "swap",
        ) => Err(failure!("{given} is not a service").advise("name the service that it starts")),
        _ => Ok(format!("{given}.service")),
    }
}

/// Writes the drop-in.
pub fn enable(matches: &ArgMatches) -> Result<(), Failure> {
    let unit = manager::show(&unit_name(matches)?)?;
    let library = library::find(matches.get_one::<PathBuf>("library").map(PathBuf::as_path))?;
    let found = obstacles::look(&unit, &library, &obstacles::Machine::own());
    if !found.blocks.is_empty() {
        let reasons: Vec<String> =
            found.blocks.iter().map(|why| format!("\n  {}", printable(why))).collect();
        // (`complain` shows one line; the reasons are many.)
        eprintln!(
            "uncopy: {} cannot run under uncopy; nothing was written:{}",
            unit.name,
            reasons.concat()
        );
        return Err(failure!("{} is as it was", unit.name));
    }
    let mut settings: Vec<(String, String)> = run::given(matches)
        .map(|(spec, value)| (spec.env.to_owned(), options::text(spec, value)))
        .collect();
    if let Some(costs) = cache::handed_on() {
        settings.push((options::COSTS.to_owned(), costs));
    }
    let text = dropin::text(&unit, &library, &settings, &found.let_in);
    let path = dropin::path(&unit.name);
    let mut said = String::new();
    for note in &found.notes {
        said += &format!("note: {}\n", printable(note));
    }
    if matches.get_flag("dry-run") {
        return uncopy_measure::print(&format!("{said}would write {}:\n\n{text}", path.display()));
    }
    let changed = dropin::write(&path, &text)?;
    said += &if changed {
        manager::reload()?;
        format!("wrote {}\n", path.display())
    } else {
        format!("{} was as it has to be\n", path.display())
    };
    uncopy_measure::print(&said)?;
    after(matches, &unit.name, true)
}

/// Removes it.
pub fn disable(matches: &ArgMatches) -> Result<(), Failure> {
    let name = unit_name(matches)?;
    // (A unit that is gone may have left its drop-in.)
    let name = manager::show(&name).map_or(name, |unit| unit.name);
    let path = dropin::path(&name);
    if !path.exists() {
        return uncopy_measure::print(&format!(
            "{name} is not enabled: there is no {}\n",
            path.display()
        ));
    }
    if matches.get_flag("dry-run") {
        return uncopy_measure::print(&format!("would remove {}\n", path.display()));
    }
    dropin::remove(&path)?;
    manager::reload()?;
    uncopy_measure::print(&format!("removed {}\n", path.display()))?;
    after(matches, &name, false)
}

/// Restarts the service if that was asked for, and looks whether it is what it should be.
fn after(matches: &ArgMatches, name: &str, wanted: bool) -> Result<(), Failure> {
    let Some(before) = manager::main_process(name)? else {
        return uncopy_measure::print(&format!("{name} does not run; its next start counts\n"));
    };
    let loaded = |pid| process::has_library(pid).is_ok_and(|has| has);
    if !matches.get_flag("now") {
        let already = loaded(before) == wanted;
        let text = if already {
            format!("{name} runs so already (process {before})\n")
        } else {
            format!("{name} runs as before until it is restarted: systemctl restart {name}\n")
        };
        return uncopy_measure::print(&text);
    }
    if loaded(before) == wanted && wanted {
        return uncopy_measure::print(&format!(
            "{name} runs under uncopy already (process {before})\n"
        ));
    }
    manager::restart(name)?;
    let advice = |advice: String| {
        let undo = format!("; 'uncopy disable --now {name}' undoes it");
        if wanted { advice + &undo } else { advice }
    };
    let Some(pid) = manager::main_process(name)? else {
        let journal = advice(format!("'journalctl -u {name}' says why"));
        return Err(failure!("{name} did not start again").advise(journal));
    };
    if loaded(pid) != wanted {
        let journal = advice(format!("'journalctl -u {name}' may say why"));
        return Err(failure!("{name} was restarted, but is not as it should be")
            .because(format_args!("process {pid}"))
            .advise(journal));
    }
    let under = if wanted { "under uncopy" } else { "without uncopy" };
    uncopy_measure::print(&format!("{name} was restarted {under} (process {pid})\n"))
}

/// A service as systemd describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Its name, not an alias.
    pub name: String,
    /// The known properties.
    properties: Vec<(String, String)>,
}

impl Unit {
    /// The property of this name; empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        self.properties.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }

    /// All values of the property of this name: some have a line for each.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.properties.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether it is set.
    pub fn is(&self, name: &str) -> bool {
        self.get(name) == "yes"
    }

    /// The value of a variable of its environment, as far as the unit says it.
    pub fn variable(&self, name: &str) -> Option<OsString> {
        let words = self.get("Environment").split(' ').map(|word| word.trim_matches('"'));
        let value = |word: &str| word.strip_prefix(name)?.strip_prefix('=').map(OsString::from);
        words.filter_map(value).next_back()
    }

    /// The file that its main command executes.
    pub fn program(&self) -> Option<PathBuf> {
        let (_, rest) = self.get("ExecStart").split_once("path=")?;
        Some(rest.split(" ;").next()?.into())
    }
}
