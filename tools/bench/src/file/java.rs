//! The article's experiment: a Java program that copies a file in three ways.

use std::path::Path;
use std::process::Command;

use nix::sys::resource::UsageWho;
use serde::{Deserialize, Serialize};
use uncopy_measure::medians::{median, quotient, round, spread};
use uncopy_measure::own_process::cpu_ns;
use uncopy_measure::side::Side;
use uncopy_measure::{Failure, failure};

use super::place::WorkDirectory;
use crate::warm;

const SOURCE: &str = include_str!("ArticleCopy.java");

/// The article's methods, and by how much of the first one's time it found each of them faster.
pub const METHODS: [(&str, Option<f64>); 3] =
    [("buffered", None), ("mmap", Some(0.81)), ("sendfile", Some(0.91))];

/// The result.
#[derive(Debug, Serialize, Deserialize)]
pub struct Java {
    /// Bytes of the file.
    pub size: usize,
    /// Why there are no numbers.
    pub refused: Option<String>,
    /// A row for each method.
    pub methods: Vec<Method>,
}

/// One method.
#[derive(Debug, Serialize, Deserialize)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// By how much of the buffered method's time the article found it faster.
    pub article: Option<f64>,
    /// Without the library.
    pub plain: Times,
    /// The times with uncopy.
    pub uncopy: Times,
    /// Bytes that were compared.
    pub verified_bytes: u64,
}

/// Times of a copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Times {
    /// As the program itself prints it.
    pub ms: f64,
    /// Smallest and largest.
    pub ms_spread: [f64; 2],
    /// CPU time of the whole process, the start of the JVM included.
    pub cpu_ms: f64,
    /// Smallest and largest.
    pub cpu_ms_spread: [f64; 2],
    /// By how much of the buffered method's time on the same side it is faster.
    pub saved: f64,
}

/// Compiles and measures; copies are compared each time.
pub fn measure(
    size: usize,
    repeats: usize,
    place: &WorkDirectory,
    library: &Path,
) -> Result<Java, Failure> {
    let classes = place.other("classes");
    let refused = compile(place, &classes).err().map(String::from);
    if refused.is_some() {
        return Ok(Java { size, refused, methods: Vec::new() });
    }
    warm::memory(3 * size)?;
    place.fill(size)?;
    let mut methods = Vec::new();
    let mut base: Option<[f64; 2]> = None;
    for (name, article) in METHODS {
        let mut samples: [Vec<[f64; 2]>; 2] = Default::default();
        let mut verified_bytes = 0;
        for turn in 0..repeats {
            for side in Side::pair_in_turn(turn) {
                let _ = std::fs::remove_file(place.target());
                let times = run(name, side, place, &classes, library)?;
                samples[usize::from(side == Side::Uncopy)].push(times);
                verified_bytes += place.compare(size)?;
            }
        }
        let of = |side: usize, what: usize| samples[side].iter().map(move |s| s[what]);
        let medians = [0, 1].map(|side| median(of(side, 0)));
        let base = *base.get_or_insert(medians);
        let [plain, uncopy] = [0, 1].map(|side| Times {
            ms: round(medians[side], 1),
            ms_spread: spread(of(side, 0), 1),
            cpu_ms: round(median(of(side, 1)), 1),
            cpu_ms_spread: spread(of(side, 1), 1),
            saved: round(1.0 - quotient(medians[side], base[side]), 4),
        });
        methods.push(Method { name: name.to_owned(), article, plain, uncopy, verified_bytes });
    }
    Ok(Java { size, refused: None, methods })
}

fn compile(place: &WorkDirectory, classes: &Path) -> Result<(), Failure> {
    let source = place.other("ArticleCopy.java");
    std::fs::write(&source, SOURCE)
        .map_err(|e| Failure::new("cannot write the program").because(e))?;
    let output = Command::new("javac").arg("-d").arg(classes).arg(&source).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failure!("javac: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(e) => Err(Failure::new("javac cannot be run")
            .because(e)
            .advise("install it: apt-get install default-jdk-headless")),
    }
}

/// Milliseconds: as the program says, and of CPU.
fn run(
    method: &str,
    side: Side,
    place: &WorkDirectory,
    classes: &Path,
    library: &Path,
) -> Result<[f64; 2], Failure> {
    let cpu =
        || cpu_ns(UsageWho::RUSAGE_CHILDREN).map_err(|e| Failure::new("no CPU time").because(e));
    let before = cpu()?;
    let mut command = Command::new("java");
    command.arg("-cp").arg(classes).args(["ArticleCopy", method]);
    command.args([place.source(), place.target()]);
    side.arrange(&mut command, library);
    let output = command.output().map_err(|e| Failure::new("java cannot be run").because(e))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failure!("java ended with {} ({side}, {method}): {said}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let ns: f64 = text.trim().parse().map_err(|_| failure!("java answered nonsense: {text}"))?;
    Ok([ns / 1e6, (cpu()? - before) as f64 / 1e6])
}
