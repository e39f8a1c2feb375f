//! The sections that a manual page has beside `--help`: variables, files, known defects, other
//! pages.

use clap::Command;
use clap_mangen::roff::{Roff, bold, roman};
use uncopy_options::OPTIONS;

/// A name and what it means.
type Entry = (&'static str, &'static str);

/// The commands that begin a program under the library.
const STARTS: &[&str] = &["uncopy-run", "uncopy-try", "uncopy-enable"];

const VARIABLES: &[Entry] = &[
    ("UNCOPY_LIBRARY", "The path of libuncopy.so, where it is not beside the command."),
    ("XDG_RUNTIME_DIR", "Where statistics lie; without it, or if it is no memory, /dev/shm."),
    ("XDG_CACHE_HOME", "Where 'uncopy doctor' keeps measured costs; without it, ~/.cache."),
];

const FILES: &[Entry] = &[
    ("/dev/userfaultfd", "What eliding needs; whoever may open it, or root, can use it."),
    (
        "$XDG_RUNTIME_DIR/uncopy-UID/PID, /dev/shm/uncopy-UID/PID",
        "Statistics of a running program.",
    ),
    ("~/.cache/uncopy/costs", "What operations cost here, as 'uncopy doctor' has measured it."),
    ("PREFIX/lib/uncopy/libuncopy.so", "The library that is put in front of the program."),
    ("PREFIX/share/doc/uncopy/", "Documents: users/, limitations.md, security.md, tcp-api.md."),
];

const DROP_IN: Entry = (
    "/etc/systemd/system/UNIT.service.d/90-uncopy.conf",
    "What 'uncopy enable' writes and 'uncopy disable' removes.",
);

/// The sections at the end of the page called `name`; `pages` are all there are.
pub fn text(name: &str, command: &Command, pages: &[String]) -> String {
    let mut page = Roff::new();
    let mut variables: Vec<(String, String)> = Vec::new();
    if STARTS.contains(&name) {
        let option = |of: &uncopy_options::Spec| (of.env.into(), format!("As --{}.", of.name));
        variables.extend(OPTIONS.iter().map(option));
    }
    let mut files = FILES.to_vec();
    if name.ends_with("able") {
        files.insert(0, DROP_IN);
    }
    variables.extend(owned(VARIABLES));
    list(&mut page, "ENVIRONMENT", &variables);
    list(&mut page, "FILES", &owned(&files));
    page.control("SH", ["BUGS"]);
    page.text([
        roman("What does not work is listed in limitations.md. "),
        roman(
            "'uncopy report PID' collects what belongs to a report; users/reporting.md says how.",
        ),
    ]);
    page.control("SH", ["SEE ALSO"]);
    let others: Vec<String> = pages
        .iter()
        .filter(|page| page.as_str() != name && related(name, command, page))
        .map(|page| format!("{page}(1)"))
        .collect();
    page.text([roman(format!("{}, ld.so(8), userfaultfd(2)", others.join(", ")))]);
    page.to_roff()
}

/// The whole, the parts of this command, and those beside it.
fn related(name: &str, command: &Command, other: &str) -> bool {
    let part = |of: &str| other.strip_prefix(of).and_then(|rest| rest.strip_prefix('-'));
    let above = name.rsplit_once('-').map_or(name, |(above, _)| above);
    let own = part(name).is_some_and(|rest| !rest.contains('-'));
    let beside = part(above).is_some_and(|rest| !rest.contains('-'));
    other == above || own || beside && !command.has_subcommands()
}

fn owned(entries: &[Entry]) -> Vec<(String, String)> {
    entries.iter().map(|(name, says)| ((*name).to_owned(), (*says).to_owned())).collect()
}

fn list(page: &mut Roff, title: &str, entries: &[(String, String)]) {
    page.control("SH", [title]);
    for (name, says) in entries {
        page.control("TP", []);
        page.text([bold(name.as_str())]);
        page.text([roman(says.as_str())]);
    }
}
