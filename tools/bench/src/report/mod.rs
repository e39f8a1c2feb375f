//! `uncopy-bench report`: runs the modes, keeps their JSON, and draws a page of them.
//!
//! | file | one idea |
//! | --- | --- |
//! | `about` | the machine, the commit, the time |
//! | `modes` | what is run, for how long, and how its results become a section |
//! | `budget` | time shared out among the modes |
//! | `servers` | the servers of `bench/apps`, driven by Python |
//! | `servers_section`, `echo_sections`, `touch_sections` | pictures and sentences of the modes |
//! | `views_section`, `transfer_sections` | the same |
//! | `noise` | how much of the servers' numbers is noise |
//! | `row_pictures` | rows of the echo server as points and as a table |
//! | `section` | what all sections are made of |
//! | `page`, `markdown` | HTML; markdown |

mod about;
mod budget;
mod echo_sections;
mod markdown;
mod modes;
mod noise;
mod page;
mod row_pictures;
mod section;
mod servers;
mod servers_section;
mod touch_sections;
mod transfer_sections;
mod views_section;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use uncopy_measure::{Failure, complain, failure, library, userfaultfd};

use self::about::About;
use self::budget::{Budget, text};
use self::markdown::Excerpt;
use self::modes::Mode;
use self::servers::ServerResults;

/// Options of `uncopy-bench report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Directory for README.md, index.html, the pictures and the results
    #[arg(long, value_name = "DIRECTORY", default_value = "bench-report")]
    out: PathBuf,
    /// Minutes to take: what does not fit is repeated less often, then less finely, and named if it
    /// is left out
    #[arg(long, value_name = "N", default_value_t = about::MINUTES, value_parser = minutes)]
    minutes: f64,
    /// Only these modes; results of others that are in the directory are shown too
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    only: Vec<Mode>,
    /// Measure nothing: draw the page of the results that are in the directory
    #[arg(long, conflicts_with_all = ["minutes", "only"])]
    redraw: bool,
    /// With --redraw: the servers' rows that 'bench/apps/all.py --json' of the same build wrote to
    /// a file, in place of those in the directory (a run of all servers, sizes and connections with
    /// a noise of 1 or 2% takes two hours)
    #[arg(long, value_name = "FILE", requires = "redraw")]
    servers: Option<PathBuf>,
    /// Put the first table and the bars of `demo` into this file too, between its marks (the README
    /// has them)
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,
    /// The preload library [default: as for 'uncopy run']
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
}

fn minutes(text: &str) -> Result<f64, Failure> {
    text.parse()
        .ok()
        .filter(|n| (0.05..=24.0 * 60.0).contains(n))
        .ok_or_else(|| Failure::new("it must be a number of minutes, from 0.05 to 1440"))
}

/// Measures and writes.
pub fn main(args: &ReportArgs) -> Result<(), Failure> {
    let out = &args.out;
    if args.redraw {
        let mut about = About::read(out)?;
        if let Some(path) = &args.servers {
            take_servers(&ServerResults::read(path)?, out, &mut about)?;
        }
        draw(args, &about)?;
        return uncopy_measure::print(&format!("{}\n", out.join("index.html").display()));
    }
    let library = library::find(args.library.as_deref())?;
    if let Err(why) = userfaultfd::check() {
        complain(why.within("nothing can be elided"));
    }
    fs::create_dir_all(out).map_err(|e| failure!("cannot make {}", out.display()).because(e))?;
    let modes = Mode::in_order(if args.only.is_empty() { Mode::ALL } else { &args.only });
    let begin = Instant::now();
    let mut budget = Budget::new(begin, Duration::from_secs_f64(args.minutes * 60.0), &modes);
    let mut about = About::now(args.minutes, &args.only)?;
    eprintln!("uncopy: this takes {} at most: {}", text(budget.whole()), budget.plan());
    for &mode in &modes {
        let allowed = budget.next(Instant::now(), mode);
        if allowed < mode.least() {
            about.failed.push(format!("{}: no time was left", mode.name()));
            continue;
        }
        eprintln!("uncopy: {}, {} ({} so far)", mode.name(), text(allowed), text(begin.elapsed()));
        match mode.measure(allowed, &library) {
            Ok((json, left_out)) => {
                write(out, &format!("{}.json", mode.name()), &json)?;
                for what in left_out {
                    eprintln!("uncopy: {}: not measured: {what}", mode.name());
                    about.failed.push(format!("{}: {what}", mode.name()));
                }
            }
            // The other modes are worth having all the same.
            Err(why) if !why.to_string().contains("WRONG DATA") => {
                let why = why.within(mode.name());
                complain(&why);
                about.failed.push(why.to_string());
            }
            Err(why) => return Err(why),
        }
        about.took(begin.elapsed());
        write(out, "about.json", &serde_json::to_string(&about).expect("it can be written"))?;
        draw(args, &about)?;
    }
    uncopy_measure::print(&format!("{}\n", out.join("index.html").display()))
}

/// These rows of servers take the place of those in the directory.
fn take_servers(rows: &ServerResults, out: &Path, about: &mut About) -> Result<(), Failure> {
    let name = Mode::Servers.name();
    let json = |of: serde_json::Result<String>| of.expect("it can be written");
    write(out, &format!("{name}.json"), &json(serde_json::to_string(rows)))?;
    about.failed.retain(|why| !why.starts_with(name));
    about.failed.extend(rows.left_out().iter().map(|what| format!("{name}: {what}")));
    write(out, "about.json", &json(serde_json::to_string(about)))
}

/// Writes the pages of all results in the directory.
fn draw(args: &ReportArgs, about: &About) -> Result<(), Failure> {
    let out = &args.out;
    let mut sections = Vec::new();
    let (mut summary, mut bars) = (None, None);
    for mode in Mode::ALL {
        let path = out.join(format!("{}.json", mode.name()));
        let Ok(json) = fs::read_to_string(&path) else { continue };
        let bad = |e: serde_json::Error| failure!("{} cannot be shown", path.display()).because(e);
        sections.push(mode.section(&json).map_err(bad)?);
        match mode {
            Mode::Servers => {
                let results = serde_json::from_str(&json).map_err(bad)?;
                let machine = format!("{}, {}, glibc {}", about.cpu, about.congestion, about.glibc);
                summary = Some(servers_section::summary(&machine, &results));
            }
            Mode::Copies => {
                bars = Some(echo_sections::bars(&serde_json::from_str(&json).map_err(bad)?))
            }
            _ => {}
        }
    }
    for plot in sections.iter().flat_map(|s| &s.plots) {
        write(out, &format!("{}.svg", plot.name), &plot.standalone())?;
    }
    write(out, "README.md", &markdown::page(about, summary.as_ref(), &sections))?;
    write(out, "index.html", &page::html(about, summary.as_ref(), &sections))?;
    match (&args.readme, summary, bars) {
        (Some(readme), Some(summary), Some(chart)) => markdown::replace(
            readme,
            about,
            &Excerpt { run: summary.run, table: summary.short, chart },
        ),
        _ => Ok(()),
    }
}

fn write(out: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = out.join(name);
    fs::write(&path, text).map_err(|e| failure!("cannot write {}", path.display()).because(e))
}
