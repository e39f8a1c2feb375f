//! `uncopy report [PID]`: what belongs to a report of a bug, in a directory that its reader can
//! look through first.
//!
//! | file | one idea |
//! | --- | --- |
//! | `machine` | the machine, and what it permits |
//! | `program` | one program: what it is, what uncopy did in it |
//!
//! No data of the program's, no words of a command line, and of its environment what begins with
//! `UNCOPY_`.

mod machine;
mod program;

use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use uncopy_measure::printable::printable;
use uncopy_measure::{Failure, build, failure};

use crate::stat::{self, files, process, view::View};

/// The options of `uncopy report`.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// The program that behaves wrongly; without it, the machine and a line for each program under
    /// uncopy
    pid: Option<u32>,
    /// The directory to make [default: uncopy-report, or uncopy-report-NAME-PID]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Only list what it would contain
    #[arg(long)]
    list: bool,
}

/// A file of the report.
struct Part {
    name: &'static str,
    /// Its content, for the list.
    holds: &'static str,
    text: String,
}

/// Lists what is to be written, and writes it.
pub fn main(args: &ReportArgs) -> Result<(), Failure> {
    let name = match args.pid {
        None => "uncopy-report".to_owned(),
        Some(pid) => {
            let name =
                process::command(pid).ok_or_else(|| failure!("there is no process {pid}"))?;
            format!("uncopy-report-{}-{pid}", file_name(&name))
        }
    };
    let directory = args.output.clone().unwrap_or_else(|| name.into());
    let parts = gather(args.pid);
    uncopy_measure::print(&list(&directory, &parts))?;
    if args.list {
        return Ok(());
    }
    write(&directory, &parts)?;
    if let Some(Err(why)) = args.pid.map(files::of) {
        uncopy_measure::complain(why.within("the program's parts say little"));
    }
    uncopy_measure::print(&format!(
        "\nWritten. Look through it, then attach it: tar czf {0}.tar.gz {0}\n",
        printable(&directory)
    ))
}

/// A file name made of the name that others gave a program.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

fn gather(pid: Option<u32>) -> Vec<Part> {
    let all: Vec<View> = files::all().into_iter().map(|p| View::new(p, None)).collect();
    let mut parts = vec![
        Part {
            name: "version.txt",
            holds: "version, commit, date and compiler of uncopy; where its library is",
            text: format!("{}\n{}", build::long(), machine::library()),
        },
        Part {
            name: "machine.txt",
            holds: "processor, memory, kernel, distribution, C library, settings of the kernel",
            text: machine::text(),
        },
        Part {
            name: "permits.txt",
            holds: "what 'uncopy doctor' checks, without its measurements; costs that it has kept",
            text: machine::permits(),
        },
        Part {
            name: "variables.txt",
            holds: "variables of this environment that begin with UNCOPY_, and no others",
            text: program::variables(std::env::vars_os()),
        },
        Part {
            name: "programs.txt",
            holds: "the table of 'uncopy stat': programs under uncopy by number and name",
            text: stat::text::list(&all),
        },
    ];
    parts.extend(pid.into_iter().flat_map(program::parts));
    parts
}

fn list(directory: &Path, parts: &[Part]) -> String {
    let widest = parts.iter().map(|part| part.name.len()).max().unwrap_or(0);
    let mut text = format!("{} will contain:\n", printable(directory));
    for Part { name, holds, .. } in parts {
        text += &format!("  {name:widest$}  {holds}\n");
    }
    text + "No data of the program's, no words of its command line, no other variables.\n"
}

fn write(directory: &Path, parts: &[Part]) -> Result<(), Failure> {
    let shown = printable(directory);
    DirBuilder::new().mode(0o700).create(directory).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => {
            failure!("{shown} is there already").advise("give another by --output")
        }
        _ => failure!("cannot make {shown}").because(e),
    })?;
    for Part { name, text, .. } in parts {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(directory.join(name));
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|e| failure!("cannot write {shown}/{name}").because(e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_listed_and_every_name_is_one() {
        let parts = gather(Some(std::process::id()));
        let text = list(Path::new("here"), &parts);
        for part in &parts {
            assert!(text.contains(&format!("  {} ", part.name)) && !part.text.is_empty());
        }
        assert_eq!(file_name("../a b\n"), "---a-b-");
    }
}
