//! Programs with more rights than the user's: they are left alone, whoever preloads the library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Trial;
use tempfile::TempDir;
use uncopy_tests::product::library;
use uncopy_tests::run::Bounded;
use uncopy_tests::verdict::{Stop, test};

use super::{expect, secure};

const USER: &str = "65534";

/// The tests.
pub fn trials() -> Vec<Trial> {
    vec![
        test("a_set_user_id_program_is_not_preloaded_by_its_user", || {
            let place = Place::new()?;
            let preload = place.assignment("LD_PRELOAD=", "libuncopy.so");
            let said = place.as_user(&[
                "env".into(),
                preload,
                "UNCOPY_VERBOSE=counters".into(),
                place.path("setuid"),
            ])?;
            expect(
                &said,
                said.trim_end().ends_with("secure=1 library=0 userfaultfds=0"),
                "it should find no library",
            )
        }),
        test("nor_when_a_preloaded_program_executes_it", || {
            let place = Place::new()?;
            let words = [
                "env".into(),
                place.assignment("LD_PRELOAD=", "libuncopy.so"),
                place.assignment("UNCOPY_LIBRARY=", "libuncopy.so"),
                "sh".into(),
                "-c".into(),
                place.assignment("exec ", "setuid"),
            ];
            let said = place.as_user(&words)?;
            expect(
                &said,
                said.trim_end() == "secure=1 library=0 userfaultfds=0",
                "it should find no library, in silence",
            )
        }),
        test(
            "preloaded_by_the_administrator_it_stands_aside_and_takes_nothing_from_the_environment",
            by_the_administrator,
        ),
    ]
}

/// /etc/ld.so.preload reaches such programs too. Tried in a mount namespace of its own, on a copy
/// of /etc.
fn by_the_administrator() -> Result<(), Stop> {
    let place = Place::new()?;
    let private = ["--mount", "--propagation", "private"];
    if !Command::new("unshare")
        .args(private)
        .arg("true")
        .output()
        .is_ok_and(|done| done.status.success())
    {
        return Err(Stop::Skip("no mount namespaces here".into()));
    }
    let etc = place.at("etc");
    let copied = Command::new("cp").arg("-a").arg("/etc").arg(&etc).status();
    copied.map_err(|e| format!("/etc cannot be copied ({e})"))?;
    std::fs::write(etc.join("ld.so.preload"), format!("{}\n", place.at("libuncopy.so").display()))
        .map_err(|e| e.to_string())?;
    let script = format!(
        "mount --bind '{0}/etc' /etc && cd / && exec setpriv --reuid={USER} --regid={USER} \
         --clear-groups env UNCOPY_VERBOSE=counters UNCOPY_LIBRARY=/tmp/evil.so '{0}/setuid' \
         '{0}/secure'",
        place.root().display()
    );
    let mut words: Vec<OsString> = vec!["unshare".into()];
    words.extend(private.map(OsString::from));
    words.extend(["sh".into(), "-c".into(), script.into()]);
    let said = Bounded { words: &words, environment: &[], seconds: None }.run()?;
    // (A program that it executes is no longer secure, and may say that it is ready.)
    let silent = said.errors.lines().filter(|line| line.ends_with(": ready")).count() <= 1;
    let expected = said.output == "secure=1 library=1 userfaultfds=0\npreload=\n";
    let found = format!("{}{}", said.errors, said.output);
    expect(&found, silent && expected, "it should stand aside in silence and hand on no preload")
}

/// A directory that another user may read, with the library and a set-user-ID program in it.
struct Place(TempDir);

impl Place {
    fn new() -> Result<Self, Stop> {
        let root = std::fs::metadata("/proc/self").map_err(|e| e.to_string())?;
        if std::os::unix::fs::MetadataExt::uid(&root) != 0 {
            return Err(Stop::Skip("not root".into()));
        }
        if Command::new("setpriv").arg("--version").output().is_err() {
            return Err(Stop::Skip("no setpriv".into()));
        }
        let place = tempfile::Builder::new()
            .prefix("uncopy-security.")
            .tempdir_in("/tmp")
            .map_err(|e| e.to_string())?;
        let place = Self(place);
        // By 'cp', because what is executed must not be open in a process that forks now.
        for (from, to) in
            [(library()?, "libuncopy.so"), (secure()?, "secure"), (secure()?, "setuid")]
        {
            sure("cp", &[from, place.at(to)])?;
        }
        sure("chmod", &["755".into(), place.root().into(), place.at("libuncopy.so")])?;
        sure("chmod", &["4755".into(), place.at("setuid")])?;
        if !place.as_user(&[place.path("setuid")])?.starts_with("secure=1") {
            return Err(Stop::Skip("/tmp is mounted without set-user-ID programs".into()));
        }
        Ok(place)
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    fn path(&self, name: &str) -> OsString {
        self.at(name).into()
    }

    fn assignment(&self, before: &str, name: &str) -> OsString {
        format!("{before}{}", self.at(name).display()).into()
    }

    /// The output of a command that the other user runs.
    fn as_user(&self, words: &[OsString]) -> Result<String, Stop> {
        let user = [format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".into()];
        let mut all: Vec<OsString> =
            ["sh", "-c", "cd / && exec \"$@\"", "sh", "setpriv"].map(OsString::from).into();
        all.extend(user.map(OsString::from));
        all.extend_from_slice(words);
        said(&all)
    }
}

fn said(words: &[OsString]) -> Result<String, Stop> {
    let said = Bounded { words, environment: &[], seconds: None }.run()?;
    Ok(format!("{}{}", said.errors, said.output))
}

fn sure(command: &str, words: &[PathBuf]) -> Result<(), Stop> {
    let done = Command::new(command)
        .args(words)
        .output()
        .map_err(|e| format!("{command} cannot be run ({e})"))?;
    let why = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("{command}: {why}").into()) }
}
