//! Screens of fixed input, compared with `crates/cli/screens/`: help texts, tables, the whole
//! screen of `top`.
//!
//! `make screens` writes those files anew; what changed is then read with `git diff`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Command;
use expect_test::expect_file;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use uncopy_copies::routine::Vectors;
use uncopy_counters::{NAMES, Snapshot};
use uncopy_decide::{CREDIT, Costs, REASONS};
use uncopy_measure::machine::Machine;

use crate::doctor::{checks::Check, copies, measured, measured::Measured, report};
use crate::profile::prices::{Origin, Prices};
use crate::profile::screens::programs;
use crate::profile::{html, text};
use crate::stat::program::{Program, Site};
use crate::stat::view::View;
use crate::top::{state::State, view};

fn same(name: &str, text: &str) {
    let place: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("screens").join(name);
    expect_file![place].assert_eq(text);
}

/// A program that says something of everything.
fn program(since: u64) -> Program {
    // (Each counter another number, so that one in the place of another is seen.)
    let mut counters =
        Snapshot::from_values((0..NAMES.len() as u64).map(|i| 1_000 * since + i * i * 97));
    counters.trials_won = counters.trials / 2;
    let site = |caller, class, elided| Site {
        caller,
        class,
        elided,
        elided_bytes: elided * class,
        faults: 12,
        touched_pages: 34,
        credit: CREDIT,
        rested: 0,
        pause_left: 0,
        abstains: false,
        reasons: vec![0; REASONS.len()],
        last: 0,
    };
    let rests = Site {
        rested: 512,
        pause_left: 768,
        reasons: (0..REASONS.len() as u64).collect(),
        last: 2,
        ..site(0x401_234, 65_536, 7)
    };
    let copies = Site { reasons: vec![0, 5, 0], last: 1, ..site(0, 0, 0) };
    let sites = vec![site(0x7f12_3456, 1 << 20, 4_321), rests, copies];
    // (Not yet started: so its age is 0 at any time.)
    Program {
        pid: 4711,
        command: "server\u{1b}".into(),
        start_time: u64::MAX,
        counters,
        none_elides: false,
        sites,
    }
}

fn view() -> View {
    View { program: program(3), seconds: 2.0, before: program(1).counters }
}

#[test]
fn screens_of_stat() {
    let views = [view()];
    same("stat-process.txt", &crate::stat::text::program(&views[0], &mut HashMap::new()));
    same("stat-list.txt", &crate::stat::text::list(&views));
    same("stat-none.txt", &crate::stat::text::list(&[]));
    same("stat.prometheus", &crate::stat::prometheus::text(&views, &mut HashMap::new()));
    same("stat.json", &crate::stat::json::lines(&views, &mut HashMap::new()));
}

#[test]
fn screens_of_top() {
    let screen = |state: &mut State| {
        let mut terminal = Terminal::new(TestBackend::new(150, 34)).unwrap();
        terminal.draw(|frame| view::draw(frame, state)).unwrap();
        terminal.backend().to_string()
    };
    let mut state = State::default();
    same("top-none.txt", &screen(&mut state));
    let start = Instant::now();
    state.take(vec![program(1)], start);
    state.take(vec![program(3)], start + Duration::from_secs(1));
    same("top.txt", &screen(&mut state));
    state.help = true;
    same("top-help.txt", &screen(&mut state));
}

#[test]
fn screens_of_tcp() {
    let (before, now) = crate::tcp::screens::looks();
    for (name, text) in crate::tcp::screens::texts(&before, &now) {
        same(name, &text);
    }
}

#[test]
fn screens_of_profile() {
    let prices = Prices { costs: Costs::REFERENCE, origin: Origin::Measured(None) };
    same("profile.txt", &text::report(&programs(), &prices));
    same("profile.html", &html::page(&programs(), &prices));
    same("profile-none.txt", &text::report(&[], &prices));
    same("profile.json", &crate::profile::json::lines(&programs(), &prices));
}

/// Copies of this size, of which libc makes the far one in so many ns.
fn near_and_far((bytes, ns): (usize, f64)) -> [copies::Cell; 2] {
    let cell = |ahead, libc_ns, ours_ns| copies::Cell { ahead, bytes, libc_ns, ours_ns };
    [cell(0, ns, 1.1 * ns), cell(16, 20.0 * ns, 1.2 * ns)]
}

#[test]
fn screens_of_doctor() {
    let fine = Check {
        name: "kernel",
        ok: true,
        found: "6.18.1".into(),
        costs: "everything",
        command: None,
    };
    let missing = Check {
        name: "userfaultfd",
        ok: false,
        found: "refused".into(),
        costs: "nothing is elided",
        command: Some("sysctl -w vm.unprivileged_userfaultfd=1".into()),
    };
    let result = |work, bytes, ns| Measured { work, bytes, ns };
    let mut all = report::Report {
        machine: Machine { cpu: "Some CPU".into(), kernel: "6.18.1".into() },
        cores: 4,
        busy_share: 0.25,
        checks: vec![fine, missing],
        obstacle: None,
        results: vec![
            result(measured::Work::CopyHot, 4096, 83.4),
            result(measured::Work::Move, 1 << 20, 21_543.2),
            result(measured::Work::SystemCall, 0, 71.0),
        ],
        copies: copies::Grid {
            cells: [(4096, 52.3), (65_536, 1_512.0)]
                .map(near_and_far)
                .into_iter()
                .flatten()
                .collect(),
            widest: Vectors::Avx,
            libc_over_ours: 14.2,
            ours_taken: true,
        },
        costs: Some(Costs::REFERENCE),
        kept: report::Kept::In("/home/me/.cache/uncopy/costs".into()),
        in_use: None,
    };
    same("doctor.txt", &all.text());
    same("doctor.json", &all.json());
    all.obstacle = Some("userfaultfd is refused".into());
    (all.copies.ours_taken, all.copies.libc_over_ours) = (false, 1.1);
    (all.costs, all.kept) = (None, report::Kept::Not("they could not all be measured".into()));
    same("doctor-refused.txt", &all.text());
}

#[test]
fn screens_of_help_and_options() {
    let mut command = crate::command().term_width(100);
    command.build();
    help("", command);
    same("options.txt", &crate::options_table::text());
}

/// Of the command and all below it; those that are not for people are not shown.
fn help(before: &str, mut command: Command) {
    let name = format!("{before}{}", command.get_name());
    same(&format!("help/{name}.txt"), &command.render_long_help().to_string());
    let below = command.get_subcommands().filter(|c| !c.is_hide_set()).cloned();
    below.for_each(|c| help(&format!("{name}-"), c));
}
