//! Compiles C and C++, each content once: what was built stays in `target/c-programs`.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::product::repository;
use crate::verdict::Stop;

/// One file to be made of one source.
#[derive(Clone, Debug, Hash)]
pub struct Part {
    /// Under `tests/`, or from the repository's root with a leading `/`.
    pub source: String,
    /// The file's name.
    pub target: String,
    /// For the compiler; `{dir}` is the directory that all parts are made in.
    pub flags: Vec<String>,
}

impl Part {
    /// A program named like its source.
    pub fn program(source: &str, flags: &[&str]) -> Self {
        let name = Path::new(source).file_stem().expect("a file is named").to_string_lossy();
        Self::named(source, &name, flags)
    }

    /// A program with another name, or a library if the flags say so.
    pub fn named(source: &str, target: &str, flags: &[&str]) -> Self {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self { source: source.to_owned(), target: target.to_owned(), flags }
    }

    fn path(&self) -> PathBuf {
        match self.source.strip_prefix('/') {
            Some(path) => repository().join(path),
            None => Path::new(env!("CARGO_MANIFEST_DIR")).join(&self.source),
        }
    }
}

/// Makes the parts in their order; the directory that they are in.
pub fn compile(name: &str, parts: &[Part]) -> Result<PathBuf, Stop> {
    let mut hasher = DefaultHasher::new();
    for part in parts {
        part.hash(&mut hasher);
        compiler(&part.source)?.hash(&mut hasher);
        for file in with_headers(&part.path()) {
            std::fs::read(&file)
                .map_err(|e| format!("{} cannot be read ({e})", file.display()))?
                .hash(&mut hasher);
        }
    }
    let directory = storage()?.join(format!("{name}-{:016x}", hasher.finish()));
    let done = directory.join("done");
    if done.exists() {
        return Ok(directory);
    }
    std::fs::create_dir_all(&directory)
        .map_err(|e| format!("{} cannot be made ({e})", directory.display()))?;
    for part in parts {
        make(part, &directory)?;
    }
    std::fs::write(&done, "").map_err(|e| format!("{} cannot be written ({e})", done.display()))?;
    Ok(directory)
}

/// Beside cargo's own directories: this program is target/PROFILE/deps/NAME.
fn storage() -> Result<PathBuf, Stop> {
    let own = std::env::current_exe()
        .map_err(|e| format!("where this program is cannot be told ({e})"))?;
    Ok(own.ancestors().nth(3).unwrap_or(&own).join("c-programs"))
}

fn make(part: &Part, directory: &Path) -> Result<(), Stop> {
    // Other tests may make the same file now: it appears whole.
    let target = directory.join(&part.target);
    let here = tempfile::Builder::new()
        .prefix(".making")
        .tempdir_in(directory)
        .map_err(|e| e.to_string())?;
    let made = here.path().join(&part.target);
    let mut command = Command::new(&compiler(&part.source)?.command);
    command.args(["-O2", "-pthread", "-o"]).arg(&made).arg(part.path());
    command.args(part.flags.iter().map(|flag| flag.replace("{dir}", &directory.to_string_lossy())));
    let output = command.output().map_err(|e| format!("the compiler cannot be run ({e})"))?;
    if !output.status.success() {
        return Err(format!(
            "{} cannot be compiled: {}",
            part.source,
            String::from_utf8_lossy(&output.stderr)
        )
        .into());
    }
    Ok(std::fs::rename(&made, &target)
        .map_err(|e| format!("{} cannot be put in place ({e})", target.display()))?)
}

/// A compiler, and what it says of itself.
#[derive(Clone, Debug, Hash)]
struct Compiler {
    command: String,
    version: Vec<u8>,
}

/// `CC` and `CXX` name others than `cc` and `c++`.
fn compiler(source: &str) -> Result<&'static Compiler, Stop> {
    static C: LazyLock<Result<Compiler, Stop>> = LazyLock::new(|| find("CC", "cc", "C"));
    static CXX: LazyLock<Result<Compiler, Stop>> = LazyLock::new(|| find("CXX", "c++", "C++"));
    let found = if source.ends_with(".cpp") { &CXX } else { &C };
    found.as_ref().map_err(Clone::clone)
}

fn find(variable: &str, usual: &str, language: &str) -> Result<Compiler, Stop> {
    let command = std::env::var(variable).unwrap_or_else(|_| usual.to_owned());
    match Command::new(&command).arg("--version").output() {
        Ok(output) => Ok(Compiler { command, version: output.stdout }),
        Err(_) => Err(Stop::Skip(format!("no {language} compiler ({command})"))),
    }
}

/// The source and the headers beside it that it includes.
fn with_headers(source: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut left = vec![source.to_owned()];
    while let Some(file) = left.pop() {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        for line in text.lines() {
            let name = line
                .trim_start()
                .strip_prefix("#include \"")
                .and_then(|rest| rest.split('"').next());
            left.extend(
                name.map(|name| file.with_file_name(name)).filter(|header| !found.contains(header)),
            );
        }
        found.insert(file);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_compiled_once_is_found_again_and_other_flags_make_another() {
        let part = |flags: &[&str]| [Part::program("security/secure.c", flags)];
        let Ok(first) = compile("test", &part(&[])) else { return };
        let made = first.join("secure").metadata().unwrap().modified().unwrap();
        assert_eq!(compile("test", &part(&[])).unwrap(), first);
        assert_eq!(first.join("secure").metadata().unwrap().modified().unwrap(), made);
        assert_ne!(compile("test", &part(&["-DOTHER"])).unwrap(), first);
    }

    #[test]
    fn headers_of_headers_belong_to_a_source() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("security/recycled_pages.c");
        let found: Vec<_> =
            with_headers(&source).into_iter().map(|p| p.file_name().unwrap().to_owned()).collect();
        assert!(found.iter().any(|name| name == "stress.h"), "{found:?}");
    }

    #[test]
    fn a_program_that_cannot_be_compiled_says_why() {
        let wrong =
            compile("test-wrong", &[Part::program("security/secure.c", &["-DDIR=int int"])]);
        assert!(
            matches!(wrong, Err(Stop::Fail(why)) if why.contains("secure.c") && why.contains("error"))
        );
    }
}
