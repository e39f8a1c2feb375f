//! `uncopy`: starts unmodified programs without their copies, and measures what that gains.

mod bench;
mod build;
mod demo;
mod doctor;
mod examples;
#[cfg(test)]
mod foreign_bytes;
mod options_table;
mod pages;
mod profile;
mod replay;
mod run;
#[cfg(test)]
mod screens;
mod startup;
mod stat;
mod table;
mod tcp;
mod tcp_service;
mod top;
mod trial;
mod unit;

use std::process::ExitCode;

use clap::{Args, Command, FromArgMatches};
use uncopy_measure::{Outcome, complain, echo, printable};

fn command() -> Command {
    let demo = with_args::<demo::DemoArgs>(
        Command::new("demo").about("Show in about a minute what uncopy does, in plain words"),
    );
    let stat = with_args::<stat::StatArgs>(
        Command::new("stat").about("Show what programs under uncopy did, and do"),
    );
    let top = with_args::<top::TopArgs>(
        Command::new("top").about("Show all programs under uncopy on the whole screen"),
    );
    let program = Command::new("uncopy")
        .version(build::SHORT)
        .long_version(build::long())
        .about("Starts unmodified programs without their copies")
        .max_term_width(100)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(run::command())
        .subcommand(trial::command())
        .subcommand(profile::command())
        .subcommand(stat)
        .subcommand(top)
        .subcommand(demo)
        .subcommand(doctor::command())
        .subcommand(unit::enable_command())
        .subcommand(unit::disable_command())
        .subcommand(bench::command())
        .subcommand(
            Command::new("options")
                .about("Print the table of options, variables, defaults and ranges"),
        )
        .subcommand(tcp::command())
        .subcommand(echo::server::command())
        .subcommand(bench::rpc::server::command())
        .subcommand(bench::rpc::client::command())
        .subcommand(bench::short::server::command())
        .subcommand(bench::short::client::command())
        .subcommand(bench::kv::server::command())
        .subcommand(bench::kv::client::command())
        .subcommand(bench::proportional::server::command())
        .subcommand(bench::proportional::client::command())
        .subcommand(bench::memcpy::loop_command())
        .subcommand(bench::sender::command())
        .subcommand(bench::file::copier::command())
        .subcommand(bench::views_loop::command())
        .subcommand(replay::command())
        .subcommand(trial::supervisor::command())
        .subcommand(tcp_service::command())
        .subcommand(pages::command());
    examples::add(program)
}

/// A subcommand with options. What the type of the options says about itself is not for the user: `augment_args`
/// would put it in the place of the subcommand's own sentence.
fn with_args<T: Args>(command: Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    T::augment_args(command).about(about)
}

/// Exit status where the command line is not understood.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(why) if why.use_stderr() => {
            // (It repeats words of the command line.)
            let text = why.render().to_string();
            text.lines().for_each(|line| eprintln!("{}", printable::printable(line)));
            return ExitCode::from(MISUSED);
        }
        Err(help) => help.exit(),
    };
    let (name, matches) = matches.subcommand().expect("clap demands a subcommand");
    let outcome = match name {
        "run" => return run::main(matches),
        "profile" => return profile::main(matches),
        "try" => trial::main(matches),
        "options" => options_table::main(),
        "demo" => parsed(matches).and_then(|args| demo::main(&args)),
        "stat" => parsed(matches).and_then(|args| stat::main(&args)),
        "top" => parsed(matches).and_then(|args| top::main(&args)),
        "doctor" => return doctor::main(matches),
        "enable" => unit::enable(matches),
        "disable" => unit::disable(matches),
        "bench" => bench::main(matches),
        echo::server::NAME => echo::server::main(matches),
        "tcp" => tcp::main(matches),
        bench::rpc::server::NAME => bench::rpc::server::main(matches),
        bench::short::server::NAME => bench::short::server::main(matches),
        bench::short::client::NAME => bench::short::client::main(matches),
        bench::kv::server::NAME => bench::kv::server::main(matches),
        bench::kv::client::NAME => bench::kv::client::main(matches),
        bench::proportional::server::NAME => bench::proportional::server::main(matches),
        bench::proportional::client::NAME => bench::proportional::client::main(matches),
        bench::rpc::client::NAME => bench::rpc::client::main(matches),
        bench::sender::NAME => bench::sender::main(matches),
        bench::file::copier::NAME => bench::file::copier::main(matches),
        bench::views_loop::NAME => bench::views_loop::main(matches),
        replay::NAME => replay::main(matches),
        trial::supervisor::NAME => trial::supervisor::main(matches),
        tcp_service::NAME => tcp_service::main(matches),
        pages::NAME => pages::main(matches, command()),
        bench::memcpy::LOOP_NAME => bench::memcpy::loop_main(matches),
        _ => unreachable!("clap knows only the subcommands above"),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            complain(&message);
            ExitCode::FAILURE
        }
    }
}

/// Reads the options of a subcommand that was declared with clap's derive.
fn parsed<T: FromArgMatches>(matches: &clap::ArgMatches) -> Outcome<T> {
    T::from_arg_matches(matches).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_says_what_it_is_for() {
        fn check(command: &Command) {
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
                let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
                let fine = !about.is_empty() && !about.contains("ptions of");
                assert!(fine, "{}: '{about}'", sub.get_name());
                check(sub);
            }
        }
        check(&command());
    }
}
