//! The functions that the libraries interpose, compared with their one table ([`table`]), with what
//! the libraries export, with what the installed libc exports under other names, with the numbers
//! that `syscall(2)`'s shim knows, and with docs/interposed.md.
//!
//! `UPDATE=1 cargo test -p uncopy-preload --test interposed` writes that page. The libraries are
//! those beside `UNCOPY_TEST_LIBRARY`, else the release build's; without them that part is left
//! out.

mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use object::elf;
use object::endian::LittleEndian;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use table::{
    CONSIDERED, LEFT_OUT, MADE_BY_ROWS, NEWER, NOT_IN_PROFILE, NUMBERS, Number, Row, TABLE, Where,
};
use uncopy_tests::verdict::leave_out;

type Names = BTreeSet<String>;

/// A symbol that others can bind to.
struct Export {
    name: String,
    function: bool,
    version: Option<String>,
}

fn exports(file: &Path) -> Vec<Export> {
    let data = fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let data = data.as_slice();
    let header = elf::FileHeader64::<LittleEndian>::parse(data).unwrap();
    let sections = header.sections(LittleEndian, data).unwrap();
    let versions = sections.versions(LittleEndian, data).unwrap();
    let symbols = sections.symbols(LittleEndian, data, elf::SHT_DYNSYM).unwrap();
    let others = [elf::STB_GLOBAL, elf::STB_WEAK, elf::STB_GNU_UNIQUE];
    let mut found = Vec::new();
    for (index, symbol) in symbols.enumerate() {
        if symbol.is_undefined(LittleEndian) || !others.contains(&symbol.st_bind()) {
            continue;
        }
        let name = symbol.name(LittleEndian, symbols.strings()).unwrap();
        let version = versions.as_ref().and_then(|all| {
            let version = all.version(all.version_index(LittleEndian, index).into()).ok()??;
            Some(String::from_utf8_lossy(version.name()).into_owned())
        });
        found.push(Export {
            name: String::from_utf8_lossy(name).into_owned(),
            function: [elf::STT_FUNC, elf::STT_GNU_IFUNC].contains(&symbol.st_type()),
            version,
        });
    }
    found
}

/// The built libraries: libuncopy.so, libuncopy_profile.so.
fn libraries() -> Option<[PathBuf; 2]> {
    let run = match std::env::var_os("UNCOPY_TEST_LIBRARY") {
        Some(path) => PathBuf::from(path),
        // (target/PROFILE/deps/this)
        None => {
            let this = std::env::current_exe().unwrap();
            this.ancestors().nth(3).unwrap().join("release/libuncopy.so")
        }
    };
    let all = [run.clone(), run.with_file_name("libuncopy_profile.so")];
    if let Some(missing) = all.iter().find(|file| !file.exists()) {
        leave_out(format!("{} is not built", missing.display()));
        return None;
    }
    Some(all)
}

/// The functions that the libc of this process exports to programs.
fn libcs() -> Names {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps
        .lines()
        .find_map(|l| l.split_whitespace().nth(5).filter(|f| f.ends_with("/libc.so.6")));
    let public = |e: &Export| e.function && e.version.as_deref() != Some("GLIBC_PRIVATE");
    let all = exports(Path::new(libc.expect("glibc is there")));
    all.into_iter().filter(public).map(|e| e.name).collect()
}

fn names(row: &Row) -> impl Iterator<Item = &'static str> {
    [row.name].into_iter().chain(row.others.iter().copied())
}

fn has(list: &[(&str, &str)], name: &str) -> bool {
    list.iter().any(|(n, _)| *n == name)
}

/// The names of the table that a library has.
fn expected(profile: bool) -> Names {
    let rows = TABLE.iter().filter(|row| row.place.is_in(profile));
    let all = rows.flat_map(names).filter(|name| !(profile && has(NOT_IN_PROFILE, name)));
    all.map(str::to_owned).collect()
}

/// The stem that names of the same function have in common.
fn stem(name: &str) -> String {
    let mut stem = name.trim_start_matches('_');
    for prefix in ["libc_", "IO_", "GI_"] {
        stem = stem.strip_prefix(prefix).unwrap_or(stem);
    }
    stem = stem.strip_suffix("_chk").unwrap_or(stem);
    let stem = stem.replace("64", "");
    let mut stem = stem.as_str();
    for suffix in ["v2", "_unlocked", "_nocancel"] {
        stem = stem.strip_suffix(suffix).unwrap_or(stem);
    }
    stem.to_owned()
}

#[test]
fn the_libraries_export_the_table_and_nothing_else() {
    let Some(libraries) = libraries() else { return };
    for (file, profile) in libraries.iter().zip([false, true]) {
        let mut exported: Names = exports(file).into_iter().map(|e| e.name).collect();
        exported.retain(|name| profile || !name.starts_with("uncopy_"));
        let expected = expected(profile);
        let file = file.display();
        let leaks: Vec<_> = exported.difference(&expected).collect();
        assert!(leaks.is_empty(), "{file} exports what is not in the table: {leaks:?}");
        let missing: Vec<_> = expected.difference(&exported).collect();
        assert!(missing.is_empty(), "{file} does not export: {missing:?}");
    }
}

/// Bytes of a section.
fn size(file: &Path, section: &[u8]) -> u64 {
    let data = fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let data = data.as_slice();
    let header = elf::FileHeader64::<LittleEndian>::parse(data).unwrap();
    let sections = header.sections(LittleEndian, data).unwrap();
    let found = sections.section_by_name(LittleEndian, section);
    found.map_or(0, |(_, section)| section.sh_size(LittleEndian))
}

/// One word of it that is not zero at first would make all of it a part of the file, and each
/// process would read it from there.
#[test]
fn the_state_of_a_process_takes_no_room_in_the_librarys_file() {
    let Some([library, _]) = libraries() else { return };
    let (data, bss) = (size(&library, b".data"), size(&library, b".bss"));
    assert!(bss > 1 << 20, "it is somewhere: {bss} bytes");
    assert!(data < 64 << 10, "{data} bytes of .data");
}

#[test]
fn every_name_that_libc_has_for_an_interposed_function_is_interposed_or_left_out_for_a_reason() {
    let libc = libcs();
    for profile in [false, true] {
        let ours = expected(profile);
        let stems: BTreeMap<String, &String> = ours.iter().map(|name| (stem(name), name)).collect();
        for name in libc.difference(&ours) {
            let left_out = has(LEFT_OUT, name) || profile && has(NOT_IN_PROFILE, name);
            if let Some(known) = stems.get(&stem(name))
                && !left_out
            {
                panic!(
                    "libc has {name} besides {known}: interpose it, or say in the table why not"
                );
            }
        }
    }
    for row in TABLE {
        for name in names(row).filter(|name| !NEWER.contains(name)) {
            assert!(libc.contains(name), "libc has no {name}");
        }
    }
    for (name, _) in LEFT_OUT {
        assert!(libc.contains(*name) && !expected(false).contains(*name), "{name} is not left out");
    }
}

#[test]
fn every_system_call_of_the_table_is_reached_by_its_number_too() {
    let sources =
        [include_str!("../../src/hooks/syscall.rs"), include_str!("../../src/hooks/rights.rs")];
    let code =
        sources.iter().flat_map(|s| s.lines()).filter(|line| !line.trim_start().starts_with("//"));
    let word = |text: &str| -> String {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        text[..end].to_lowercase()
    };
    let mut known: Names = code.flat_map(|line| line.split("SYS_").skip(1).map(word)).collect();
    for made in MADE_BY_ROWS {
        assert!(known.insert((*made).to_owned()), "{made}: a row makes it, so no arm is reached");
    }
    let by = |row: &Row| if let Number::By(name) = row.number { Some(name) } else { None };
    let listed = TABLE.iter().filter_map(by).chain(NUMBERS.iter().map(|(name, _)| *name));
    let listed: Names = listed.map(str::to_owned).collect();
    assert_eq!(listed, known, "the table, and what hooks/syscall.rs and hooks/rights.rs look at");

    // A call that the kernel has a number for needs one here, or a reason.
    let headers = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"];
    let Some(header) = headers.iter().find_map(|file| fs::read_to_string(file).ok()) else {
        leave_out("no asm/unistd_64.h");
        return;
    };
    let numbers: Names = header.split("__NR_").skip(1).map(word).collect();
    for row in TABLE.iter().filter(|row| row.number == Number::None) {
        let missing = names(row).find(|name| numbers.contains(*name));
        assert!(missing.is_none(), "SYS_{} does not go through the shim", missing.unwrap());
    }
}

#[test]
fn nothing_is_in_the_table_twice() {
    let mut seen = Names::new();
    for name in TABLE.iter().flat_map(names).chain(LEFT_OUT.iter().map(|(name, _)| *name)) {
        assert!(seen.insert(name.to_owned()), "{name}");
    }
    assert!(TABLE.is_sorted_by_key(|row| row.group), "groups stand together");
}

fn page() -> String {
    let mut page = String::from(
        "# Interposed functions\n\n\
         Written by a test from `crates/real/src/table.rs` \
         (`UPDATE=1 cargo test -p uncopy-preload --test interposed`); do not edit.\n\
         The test compares that table with what the libraries export, and with the other names \
         that libc has for the same functions.\n\n\
         *By number*: whether `syscall(2)` with the call's number reaches the same code in \
         `libuncopy.so`; a dash: there is no such system call.\n\
         *Where*: `run` is `libuncopy.so`, `profile` is `libuncopy_profile.so` (which follows and \
         elides nothing).\n",
    );
    for rows in TABLE.chunk_by(|a, b| a.group == b.group) {
        write!(page, "\n## {:?}\n\n", rows[0].group).unwrap();
        page.push_str(
            "| function | other names | by number | where | why |\n| --- | --- | --- | --- | --- \
             |\n",
        );
        for row in rows {
            let others: Vec<_> = row.others.iter().map(|name| format!("`{name}`")).collect();
            let number = match row.number {
                Number::None => "-".to_owned(),
                Number::By(name) if name == row.name => "yes".to_owned(),
                Number::By(name) => format!("yes (`{name}`)"),
                Number::Not(why) => format!("no: {why}"),
            };
            let place = match row.place {
                Where::Both => "both",
                Where::Run => "run",
                Where::Profile => "profile",
            };
            let (name, others, why) = (row.name, others.join(", "), row.why);
            writeln!(page, "| `{name}` | {others} | {number} | {place} | {why} |").unwrap();
        }
    }
    let lists = [
        ("Known by number only", "number", NUMBERS),
        ("Other names, left to libc", "name", LEFT_OUT),
        ("Not in the profile's library", "name", NOT_IN_PROFILE),
    ];
    for (title, what, list) in lists {
        write!(page, "\n## {title}\n\n| {what} | why |\n| --- | --- |\n").unwrap();
        for (name, why) in list {
            writeln!(page, "| `{name}` | {why} |").unwrap();
        }
    }
    page.push_str("\n## Other functions, left to libc\n\n| functions | why |\n| --- | --- |\n");
    for (names, why) in CONSIDERED {
        writeln!(page, "| {names} | {why} |").unwrap();
    }
    page
}

#[test]
fn the_page_says_what_the_table_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/interposed.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, page()).unwrap();
    }
    let there = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        there == page(),
        "docs/interposed.md is stale: UPDATE=1 cargo test -p uncopy-preload --test interposed"
    );
}
