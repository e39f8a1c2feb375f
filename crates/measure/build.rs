//! Tells the program which commit it was built from, as far as that is known, with what and for
//! what.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The day of a time in seconds since 1970, as `2026-11-23` (Howard Hinnant's `civil_from_days`).
fn day(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).map(|commit| {
        let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", "../.."]);
        let clean = changed.is_some_and(|files| files.is_empty());
        if clean { commit } else { format!("{commit} with changes") }
    });
    println!("cargo::rustc-env=BUILT_FROM_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    // The commit's date, not today's: the same build is the same. Packagers may say another
    // (reproducible-builds.org).
    let epoch = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    let date = epoch.map(day).or_else(|| git(&["log", "-1", "--format=%cs"]));
    println!("cargo::rustc-env=BUILT_FROM_DATE={}", date.as_deref().unwrap_or("unknown date"));
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = Command::new(rustc).arg("--version").output().ok();
    let version = version.and_then(|output| String::from_utf8(output.stdout).ok());
    let version = version.as_deref().unwrap_or("rustc").trim();
    // (Without the compiler's own commit and date.)
    println!("cargo::rustc-env=BUILT_WITH={}", version.split(" (").next().unwrap_or(version));
    let told = |name: &str| std::env::var(name).unwrap_or_default();
    println!("cargo::rustc-env=BUILT_FOR={}", told("TARGET"));
    println!("cargo::rustc-env=BUILT_AS={}", told("PROFILE"));
    // All crates and tools: whether the tree differs from the commit is told too. (A path that is
    // not there would mean "always".)
    println!("cargo::rerun-if-changed=..");
    println!("cargo::rerun-if-changed=../../tools");
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}
