//! The programs, and what some need more than being compiled.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// A program.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Its name.
    pub name: String,
    /// Its file; another program's where that runs in another way.
    pub source: String,
    /// Flags for the compiler.
    pub flags: &'static [&'static str],
    /// A library to be preloaded.
    pub preload: Option<&'static str>,
    /// A file that is built as NAME.so beside the program.
    pub plugin: Option<&'static str>,
    /// A file that is built and linked with the program.
    pub library: Option<&'static str>,
    /// Prices (`UNCOPY_COSTS`).
    pub costs: Option<&'static str>,
    /// How it ends.
    pub status: i32,
}

fn some() -> Vec<Needs> {
    let plain =
        |name: &str| Needs { name: name.into(), source: format!("{name}.c"), ..Needs::default() };
    let with = |name: &str, source: &str| Needs {
        name: name.into(),
        source: source.into(),
        ..Needs::default()
    };
    let mut all = vec![
        Needs { plugin: Some("copying_plugin.c"), ..plain("plugins_come_and_go") },
        Needs { library: Some("locking_library.c"), ..plain("library_fork_handlers_wait") },
        Needs { library: Some("slow_library.c"), ..plain("slow_copies_are_taken_over") },
        Needs { library: Some("numbering_library.c"), ..plain("libraries_make_calls_by_number") },
        Needs {
            flags: &["-fnon-call-exceptions"],
            ..with("exceptions_across_calls", "exceptions_across_calls.cpp")
        },
        Needs {
            flags: &["-DCOPIES_BEFORE"],
            ..with("fork_in_a_sandbox_after_copies", "fork_in_a_strict_sandbox.c")
        },
        Needs { costs: Some("send_mb=200000"), ..plain("sends_that_are_paced") },
        Needs { costs: Some("send_mb=200000"), ..plain("connections_that_are_not_paced") },
    ];
    let linked: [(&str, &str, &[&str]); 3] = [
        ("jemalloc", "libjemalloc.so.2", &["-Xlinker", "--no-as-needed", "-l:libjemalloc.so.2"]),
        ("mimalloc", "libmimalloc.so.2", &["-Xlinker", "--no-as-needed", "-l:libmimalloc.so.2"]),
        (
            "tcmalloc",
            "libtcmalloc_minimal.so.4",
            &["-Xlinker", "--no-as-needed", "-l:libtcmalloc_minimal.so.4"],
        ),
    ];
    for (name, library, flags) in linked {
        let name = |how| format!("other_malloc_{name}_{how}");
        all.push(Needs { preload: Some(library), ..with(&name("preloaded"), "other_malloc.c") });
        all.push(Needs { flags, ..with(&name("linked"), "other_malloc.c") });
    }
    all
}

/// All of them, by name.
pub fn all() -> Vec<Needs> {
    let mut all = some();
    let here = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/process"));
    for entry in std::fs::read_dir(here).expect("the programs are there").flatten() {
        let path = entry.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_program =
            path.extension().is_some_and(|kind| kind == "c" || kind == "cpp" || kind == PYTHON);
        let part = name.ends_with("_plugin") || name.ends_with("_library");
        if is_program && !part && all.iter().all(|needs| needs.name != name) {
            let source = entry.file_name().to_string_lossy().into_owned();
            all.push(Needs { name, source, ..Needs::default() });
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// The ending of a script's name.
const PYTHON: &str = "py";

impl Needs {
    /// Whether it is run as it is.
    pub fn is_script(&self) -> bool {
        Path::new(&self.source).extension().is_some_and(|kind| kind == PYTHON)
    }

    /// The need of the program that this machine does not meet, if any. (A library to be preloaded
    /// that is not there would be passed over with a message.)
    pub fn lacking(&self) -> Option<String> {
        if self.is_script() && !has_python() {
            return Some("no python3".into());
        }
        let linked = self.flags.iter().filter_map(|flag| flag.strip_prefix("-l:"));
        let missing =
            self.preload.into_iter().chain(linked).find(|library| !has_library(library))?;
        Some(format!("no {missing}"))
    }
}

fn has_python() -> bool {
    Command::new("python3").arg("-V").output().is_ok_and(|output| output.status.success())
}

/// Whether the dynamic linker knows a shared library of this name.
fn has_library(name: &str) -> bool {
    static KNOWN: LazyLock<String> = LazyLock::new(|| {
        let usual = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let output = Command::new("ldconfig").arg("-p").env("PATH", usual).output();
        output
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default()
    });
    KNOWN.contains(&format!("{name} ("))
}
