//! The modes of `uncopy-bench`, short: they end, verify, and print what they promise.

mod fair;
#[allow(dead_code)]
mod support;

use serde_json::{Value, json};
use support::{bench, json, leave_out, stderr, stdout, works_here};

const SHORT: [&str; 8] =
    ["--repeats", "1", "--seconds", "0.1", "--warmup", "0.05", "--verify", "2"];

#[test]
fn echo_prints_every_row_with_its_messages_verified() {
    let words = ["echo", "--json", "--sizes", "16K,64K", "--copies", "0,3", "--connections", "4"];
    let results = json(&[&words[..], &SHORT].concat());
    assert_eq!(results["bench"], "echo");
    let rows = results["rows"].as_array().unwrap();
    let found: Vec<_> = rows.iter().map(|r| (r["size"].as_u64(), r["copies"].as_u64())).collect();
    let expected = [(16384, 0), (16384, 3), (65536, 0), (65536, 3)];
    assert_eq!(found, expected.map(|(s, c)| (Some(s), Some(c))));
    for row in rows {
        // 4 connections, 2 messages before and 2 after, 6 sides.
        assert_eq!(row["verified_messages"], 96);
        for side in ["plain", "again", "kept", "placed", "unelided", "uncopy"] {
            for number in ["req_per_s", "cpu_us_per_req", "p50_us", "p99_us", "rss_kb"] {
                assert!(row[side][number].as_f64().unwrap() > 0.0, "{side} {number}");
            }
        }
        assert!(row["ratio"].as_f64().unwrap() > 0.0);
        let without = rows.iter().find(|r| r["size"] == row["size"] && r["copies"] == 0).unwrap();
        let unelided = |row: &Value| row["unelided"]["cpu_us_per_req"].as_f64().unwrap();
        let most = row["elision_most"].as_f64().unwrap();
        assert!((most - unelided(row) / unelided(without)).abs() < 0.001, "{most}");
    }
}

#[test]
fn echo_verifies_with_threads_touches_and_every_allocation() {
    for allocation in ["malloc", "aligned", "fresh"] {
        let words = [
            "echo",
            "--json",
            "--sizes",
            "200001",
            "--copies",
            "2",
            "--connections",
            "3",
            "--threads",
            "2",
            "--touch-pages",
            "3",
            "--alloc",
            allocation,
        ];
        let results = json(&[&words[..], &SHORT].concat());
        let row = &results["rows"][0];
        assert_eq!((&row["threads"], &row["touched_pages"]), (&2.into(), &3.into()));
        assert_eq!(row["verified_messages"], 72);
        // The row without copies that it needs is measured besides.
        assert!(row["elision_most"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn echo_verifies_with_every_checksum_and_with_moving_touches() {
    for checksum in ["last", "every"] {
        let words = [
            "echo",
            "--json",
            "--sizes",
            "100001",
            "--copies",
            "0,2",
            "--connections",
            "2",
            "--checksum",
            checksum,
            "--touch-pages",
            "1",
            "--touched",
            "last",
            "--touch-moving",
        ];
        let results = json(&[&words[..], &SHORT].concat());
        for row in results["rows"].as_array().unwrap() {
            assert_eq!((&row["checksum"], &row["touched_in"]), (&checksum.into(), &"last".into()));
            assert_eq!(
                (&row["touched_moving"], &row["verified_messages"]),
                (&true.into(), &48.into())
            );
        }
    }
}

#[test]
fn the_papers_figures_print_rows_with_spreads() {
    for (figure, rows) in [("copies", 4), ("threads", 2), ("touch", 4)] {
        let words = [figure, "--quick", "--json", "--seconds", "0.05", "--connections", "2"];
        let results = json(&words);
        assert_eq!(results["bench"], figure);
        let series = results["series"].as_array().unwrap();
        let found: Vec<&Value> =
            series.iter().flat_map(|s| s["rows"].as_array().unwrap()).collect();
        assert!(found.len() >= rows, "{figure}: {}", found.len());
        for row in found {
            // 2 connections, 2 messages before and 2 after, 5 sides.
            assert_eq!(row["verified_messages"], 40);
            for side in ["plain", "uncopy"] {
                let rate = row[side]["req_per_s"].as_f64().unwrap();
                let spread = row[side]["req_per_s_spread"].as_array().unwrap();
                let [low, high] = [0, 1].map(|i| spread[i].as_f64().unwrap());
                assert!(0.0 < low && low <= rate && rate <= high, "{low} {rate} {high}");
            }
        }
    }
}

#[test]
fn views_prints_the_books_and_the_processes() {
    let words = ["views", "--json", "--repeats", "1", "--views", "3,40", "--sizes", "16K,100001"];
    let results = json(&words);
    let names = |key: &str| -> Vec<_> {
        let rows = results[key].as_array().unwrap().iter();
        rows.map(|r| (r["views"].as_u64().unwrap(), r["size"].as_u64().unwrap())).collect()
    };
    let expected = [(3, 16384), (3, 100_001), (40, 16384), (40, 100_001)];
    assert_eq!((names("books"), names("processes")), (expected.to_vec(), expected.to_vec()));
    for row in results["processes"].as_array().unwrap() {
        assert!(
            row["plain_ns"].as_f64().unwrap() > 0.0 && row["uncopy_ns"].as_f64().unwrap() > 0.0
        );
        // 2 copies before and 4 after, on three sides.
        assert!(row["verified_bytes"].as_u64().unwrap() >= 18 * row["size"].as_u64().unwrap());
    }
}

#[test]
fn memcpy_prints_every_size() {
    let results = json(&["memcpy", "--json", "--repeats", "1"]);
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(
        (rows.len(), &rows[0]["size"], &rows[13]["size"]),
        (14, &8.into(), &1_048_576.into())
    );
    assert!(rows.iter().all(|row| row["plain_ns"].as_f64().unwrap() > 0.0));
}

#[test]
fn a_missing_library_is_a_clear_error() {
    for words in [["echo"], ["memcpy"]] {
        let output = bench().args(words).env("UNCOPY_LIBRARY", "/no.so").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).starts_with("uncopy: the library /no.so"), "{}", stderr(&output));
    }
}

#[test]
fn send_prints_every_way_with_numbers_or_the_errno() {
    let words = [
        "send",
        "--json",
        "--sizes",
        "64K,100001",
        "--buffers",
        "3",
        "--sockets",
        "tcp,unix",
        "--repeats",
        "1",
        "--seconds",
        "0.05",
        "--verify",
        "7",
        "--warm",
        "1M",
    ];
    let results = json(&words);
    let rows = results["rows"].as_array().unwrap();
    // Sizes, times, sockets.
    assert_eq!(rows.len(), 8);
    for row in rows {
        let columns = row["columns"].as_array().unwrap();
        let ways: Vec<_> =
            columns.iter().map(|c| [&c["way"], &c["side"]].map(|v| v.as_str().unwrap())).collect();
        let expected = [
            ["send", "plain"],
            ["send", "again"],
            ["send", "uncopy"],
            ["zerocopy", "plain"],
            ["sendfile", "plain"],
            ["uring", "plain"],
        ];
        assert_eq!(ways, expected);
        for (i, column) in columns.iter().enumerate() {
            if let Some(why) = column["refused"].as_str() {
                // Plain send works everywhere; other ways say what the kernel answered, or why not.
                assert!(i > 2 && !why.is_empty(), "{row}");
                assert!(why.starts_with('E') || row["times"] == "once", "{why}");
                continue;
            }
            assert!(column["cpu_us"].as_f64().unwrap() >= 0.0);
            assert!(column["messages_per_s"].as_f64().unwrap() > 0.0);
            assert_eq!(column["verified_messages"], 14);
        }
        if row["socket"] == "unix" {
            assert!(columns[3]["refused"].as_str().unwrap().starts_with("EOPNOTSUPP"));
        } else if columns[3]["refused"].is_null() {
            assert!((0.0..=1.0).contains(&columns[3]["copied_share"].as_f64().unwrap()));
        }
    }
}

#[test]
fn file_prints_every_way_and_compares_every_copy() {
    let words = [
        "file",
        "--json",
        "--sizes",
        "100001,2M",
        "--repeats",
        "1",
        "--seconds",
        "0.05",
        "--piece",
        "70001",
    ];
    let results = json(&words);
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let columns = row["columns"].as_array().unwrap();
        assert_eq!(columns.len(), 7);
        for column in columns {
            if column["refused"].is_null() {
                assert!(column["files_per_s"].as_f64().unwrap() > 0.0, "{column}");
                let size = row["size"].as_u64().unwrap();
                assert_eq!(column["verified_bytes"].as_u64().unwrap(), 2 * size);
            } else {
                // The kernel has none between a file and a socket.
                assert_eq!((&column["way"], &row["to"]), (&"range".into(), &"socket".into()));
            }
        }
    }
    assert!(results["java"].is_null());
}

#[test]
fn a_report_is_one_page_with_its_pictures_and_results() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let run = |words: &[&str]| {
        let words = [&["report", "--out", out], words].concat();
        let output = bench().args(words).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        std::fs::read_to_string(directory.path().join("index.html")).unwrap()
    };
    let page = run(&["--minutes", "0.2", "--only", "copies,threads"]);
    for expected in ["<!doctype html>", "id=\"copies\"", "id=\"threads\"", "commit "] {
        assert!(page.contains(expected), "{expected}");
    }
    assert!(!page.contains("NaN") && !page.contains("<script") && !page.contains("id=\"views\""));
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    for file in ["copies.json", "threads.json", "about.json", "copies-rate.svg"] {
        let text = std::fs::read_to_string(directory.path().join(file)).unwrap();
        assert!(file.ends_with(".svg") || serde_json::from_str::<Value>(&text).is_ok());
    }
    assert_eq!(run(&["--redraw"]), page);
    let markdown = std::fs::read_to_string(directory.path().join("README.md")).unwrap();
    for expected in [
        "# Numbers",
        "| processor |",
        "congestion control",
        "| glibc |",
        "a look, not a measurement",
    ] {
        assert!(markdown.contains(expected), "{expected}");
    }
}

#[test]
fn a_report_names_the_row_that_its_time_did_not_suffice_for_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let begin = std::time::Instant::now();
    let words = ["report", "--out", out, "--minutes", "0.05", "--only", "misspeculation"];
    let output = bench().args(words).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    // Three seconds, and a row that had begun.
    assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
    assert!(stderr(&output).starts_with("uncopy: this takes 3 s at most: misspeculation"));
    let page = std::fs::read_to_string(directory.path().join("README.md")).unwrap();
    assert!(page.contains("Not measured: misspeculation: "), "{page}");
}

#[test]
fn rows_of_a_longer_run_of_the_servers_take_the_place_of_those_of_a_report() {
    let numbers = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/numbers"));
    let directory = tempfile::tempdir().unwrap();
    let here = |name: &str| directory.path().join(name);
    for name in ["about.json", "servers.json"] {
        std::fs::copy(numbers.join(name), here(name)).unwrap();
    }
    let redraw = |lines: &str| {
        std::fs::write(here("rows"), lines).unwrap();
        let words = ["report", "--redraw", "--servers"];
        let mut command = bench();
        command.args(words).arg(here("rows")).arg("--out").arg(directory.path());
        command.output().unwrap()
    };
    let servers = std::fs::read_to_string(here("servers.json")).unwrap();
    let servers: Value = serde_json::from_str(&servers).unwrap();
    let mut row = servers["rows"][0].clone();
    row["name"] = "cache, as it was measured for two hours".into();
    let lines = [
        json!({ "command": "bench/apps/all.py --rounds 5" }),
        json!({ "row": row }),
        json!({ "missing": { "name": "another", "why": "it is not here" } }),
    ];
    let lines = lines.map(|line| format!("{line}\n")).concat();
    let output = redraw(&lines);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = std::fs::read_to_string(here("README.md")).unwrap();
    assert!(page.contains("| cache, as it was measured for two hours |"), "{page}");
    assert!(page.contains("Alone: `bench/apps/all.py --rounds 5`"), "{page}");
    assert!(page.contains("> Not measured: servers: another: it is not here"), "{page}");
    assert!(!page.contains("| redis GET |"), "{page}");
    // A file that is no such file is refused, and what was there stays.
    let before = std::fs::read(here("servers.json")).unwrap();
    for (bad, why) in
        [("", "it has no row"), ("{\"row\"", "says nonsense"), ("{\"wrong\": \"x\"}", "WRONG DATA")]
    {
        let output = redraw(bad);
        assert_eq!(output.status.code(), Some(1), "{bad}");
        assert!(stderr(&output).contains(why), "{bad}: {}", stderr(&output));
        assert_eq!(std::fs::read(here("servers.json")).unwrap(), before);
    }
}

#[test]
fn a_server_whose_program_is_missing_is_named_with_how_to_install_it() {
    let apps = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/apps");
    let script = "import cache, harness; harness.find = lambda program: None; \
                  print(harness.missing(cache.SERVERS['varnish cached']))";
    let Ok(output) = std::process::Command::new("python3")
        .args(["-c", script])
        .env("PYTHONPATH", apps)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
    else {
        eprintln!("skipped: no python3");
        return;
    };
    let said = stdout(&output);
    assert!(said.starts_with("varnishd is not installed: apt-get install varnish"), "{said}");
}

#[test]
fn the_readmes_numbers_are_those_of_docs_numbers() {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let directory = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(root.join("docs/numbers")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), directory.path().join(entry.file_name())).unwrap();
    }
    let readme = directory.path().join("the-readme.md");
    std::fs::copy(root.join("README.md"), &readme).unwrap();
    let output = bench()
        .args(["report", "--redraw", "--out"])
        .arg(directory.path())
        .arg("--readme")
        .arg(&readme)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let read = |path| std::fs::read_to_string(path).unwrap();
    let how = "numbers are written by 'make numbers' (or drawn again by 'uncopy-bench report \
        --redraw --out docs/numbers --readme README.md')";
    assert_eq!(read(readme), read(root.join("README.md")), "{how}");
    let page = directory.path().join("README.md");
    assert_eq!(read(page), read(root.join("docs/numbers/README.md")), "{how}");
}

/// Why devices and network namespaces cannot be made here.
fn no_network() -> Option<&'static str> {
    let ip = std::process::Command::new("ip").args(["netns", "list"]).output();
    match () {
        () if !nix::unistd::geteuid().is_root() => Some("network namespaces are root's"),
        () if ip.is_err() => Some("no 'ip' (iproute2)"),
        () => None,
    }
}

#[test]
fn clients_come_and_go_and_each_answer_is_compared() {
    if let Some(why) = no_network() {
        return leave_out(why);
    }
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let words = ["proportional", "--json", "--out", out, "--clients", "2"];
    let load =
        ["--connections", "3", "--rate", "500", "--work", "1000", "--lanes", "2", "--repeats", "1"];
    let results = json(&[&words[..], &load, &["--step", "0.4", "--interval", "0.2"]].concat());
    assert_eq!(results["bench"], "proportional");
    let rows = results["rows"].as_array().unwrap();
    for side in ["linux", "again", "uncopy"] {
        let of: Vec<&Value> = rows.iter().filter(|row| row["side"] == side).collect();
        let clients: Vec<_> = of.iter().map(|row| row["clients"].as_u64().unwrap()).collect();
        assert_eq!(clients, [0, 0, 1, 1, 2, 2, 1, 1, 0, 0]);
        let sum = |name: &str| of.iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>();
        // 500 a second of one client for 1.2 s, and of another for 0.4 s; on a machine that is busy
        // some may not be sent in time.
        assert!((100..=850).contains(&sum("verified")), "{side}: {}", sum("verified"));
        // Each client that has come has been answered, and at the end nothing is left.
        assert!(of[3]["p50_us"].as_f64().unwrap() > 0.0, "{side}");
        assert_eq!(of[9]["waiting"], 0, "{side}");
        assert!(of.iter().all(|row| row["lanes"].is_u64() == (side == "uncopy")), "{side}");
    }
    for picture in ["cores", "rate", "latency"] {
        assert!(directory.path().join(format!("proportional-{picture}.svg")).exists());
    }
}

#[test]
fn prices_above_every_gain_make_the_library_rest() {
    if !works_here() {
        return;
    }
    let elided = |costs: &str| {
        let words = ["echo", "--json", "--sizes", "512K", "--copies", "4"];
        let short = ["--connections", "2", "--repeats", "1", "--seconds", "0.3", "--warmup", "0.2"];
        let accounts = ("UNCOPY_CONTROLLER", "accounts-alone");
        let given = [("UNCOPY_COSTS", costs), accounts];
        let output = bench().args(words).args(short).envs(given).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let row = &report["rows"][0]["uncopy"];
        let requests = row["req_per_s"].as_f64().unwrap() * 0.3;
        row["elided_bytes"].as_f64().unwrap() / requests
    };
    let usual = elided("copy_mb=1000000");
    let dear = elided(
        "copy_mb=0,again=1000000000,elide=1000000000,input=1000000000,move_pages=1000000000",
    );
    // Four copies of 512 KB a request; sites that rest try again now and then.
    assert!(usual > 1e6 && dear < usual / 10.0, "bytes elided a request: {usual} and {dear}");
}
