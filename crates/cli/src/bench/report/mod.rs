//! `uncopy bench report`: runs the modes, keeps their JSON, and draws a page of them.
//!
//! | file | one idea |
//! | --- | --- |
//! | `about` | the machine, the commit, the time |
//! | `modes` | what is run, and how its results become a section |
//! | `echo_sections`, `touch_sections`, `views_section`, `transfer_sections` | pictures and sentences of the modes |
//! | `page` | HTML |

mod about;
mod echo_sections;
mod modes;
mod page;
mod section;
mod touch_sections;
mod transfer_sections;
mod views_section;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use self::about::About;
use self::modes::Mode;
use crate::run::userfaultfd;
use crate::{Outcome, library};

/// Options of `bench report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Directory for index.html, the pictures and the results
    #[arg(long, value_name = "DIRECTORY", default_value = "bench-report")]
    out: PathBuf,
    /// About two minutes instead of about forty: a look, not a measurement
    #[arg(long)]
    quick: bool,
    /// Only these modes; results of others that are in the directory are shown too
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    only: Vec<Mode>,
    /// Measure nothing: draw the page of the results that are in the directory
    #[arg(long, conflicts_with_all = ["quick", "only"])]
    redraw: bool,
    /// The preload library [default: as for 'uncopy run']
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
}

/// Measures and writes.
pub fn main(args: &ReportArgs) -> Outcome {
    let out = &args.out;
    if args.redraw {
        let about = About::read(out)?;
        draw(out, &about)?;
        return crate::print(&format!("{}\n", out.join("index.html").display()));
    }
    let library = library::find(args.library.as_deref())?;
    if let Err(why) = userfaultfd::check() {
        eprintln!("uncopy: nothing can be elided: {why}");
    }
    fs::create_dir_all(out).map_err(|e| format!("cannot make {} ({e})", out.display()))?;
    let begin = Instant::now();
    let mut about = About::now(args.quick, &args.only)?;
    let modes = if args.only.is_empty() { Mode::ALL } else { &args.only };
    for (i, mode) in modes.iter().enumerate() {
        eprintln!(
            "uncopy: {} ({} of {}, {} s so far)",
            mode.name(),
            i + 1,
            modes.len(),
            begin.elapsed().as_secs()
        );
        match mode.measure(args.quick, &library) {
            Ok(json) => write(out, &format!("{}.json", mode.name()), &json)?,
            // The other modes are worth having all the same.
            Err(why) if !why.contains("WRONG DATA") => {
                eprintln!("uncopy: {}: {why}", mode.name());
                about.failed.push(format!("{}: {why}", mode.name()));
            }
            Err(why) => return Err(why),
        }
        about.took(begin.elapsed());
        write(out, "about.json", &serde_json::to_string(&about).expect("it can be written"))?;
        draw(out, &about)?;
    }
    crate::print(&format!("{}\n", out.join("index.html").display()))
}

/// Writes the page of all results in `out`.
fn draw(out: &Path, about: &About) -> Outcome {
    let mut sections = Vec::new();
    for mode in Mode::ALL {
        let path = out.join(format!("{}.json", mode.name()));
        if let Ok(json) = fs::read_to_string(&path) {
            sections.push(
                mode.section(&json)
                    .map_err(|e| format!("{} cannot be shown ({e})", path.display()))?,
            );
        }
    }
    for plot in sections.iter().flat_map(|s| &s.plots) {
        write(out, &format!("{}.svg", plot.name), &plot.standalone())?;
    }
    write(out, "index.html", &page::html(about, &sections))
}

fn write(out: &Path, name: &str, text: &str) -> Outcome {
    let path = out.join(name);
    fs::write(&path, text).map_err(|e| format!("cannot write {} ({e})", path.display()))
}
