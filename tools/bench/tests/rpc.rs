//! `uncopy-bench rpc`: every answer is compared, and nothing is left behind.

// Unsafe: rights are given up in a child.

#[allow(dead_code)]
mod support;

use std::os::unix::process::CommandExt;
use std::process::Stdio;

use serde_json::Value;
use support::{bench, leave_out, stderr, stdout};

#[test]
fn rpc_prints_every_row_with_every_answer_compared() {
    let words = [
        "rpc",
        "--json",
        "--api",
        "rings",
        "--wire",
        "shared",
        "--connections",
        "1,5",
        "--size",
        "64,100000",
        "--wait",
        "sleep",
        "--pipeline",
        "2",
        "--work",
        "100",
        "--repeats",
        "1",
        "--seconds",
        "0.3",
        "--warmup",
        "0.2",
    ];
    let output = bench().args(words).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let results: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let rows = results["rows"].as_array().unwrap();
    let found: Vec<_> = rows
        .iter()
        .map(|r| (r["size"].as_u64().unwrap(), r["connections"].as_u64().unwrap()))
        .collect();
    assert_eq!(found, [(64, 1), (64, 5), (100_000, 1), (100_000, 5)]);
    for row in rows {
        assert_eq!(
            (&row["wire"], &row["wait"], &row["pipeline"]),
            (&"shared".into(), &"sleep".into(), &2.into())
        );
        for side in ["linux", "again", "uncopy"] {
            for number in ["rpc_per_s", "cpu_us_per_rpc", "p50_us", "p99_us"] {
                assert!(row[side][number].as_f64().unwrap() > 0.0, "{side} {number}: {row}");
            }
        }
        let number = |of: &Value, name: &str| of[name].as_f64().unwrap();
        let ratio = number(&row["uncopy"], "rpc_per_s") / number(&row["linux"], "rpc_per_s");
        assert!((number(row, "ratio") - ratio).abs() < 0.01, "{row}");
        let ratio =
            number(&row["linux"], "cpu_us_per_rpc") / number(&row["uncopy"], "cpu_us_per_rpc");
        assert!((number(row, "cpu_ratio") - ratio).abs() < 0.01, "{row}");
        assert!(row["verified"].as_u64().unwrap() > 10);
    }
}

/// As one who may not make a namespace.
#[test]
fn rpc_over_a_wire_that_cannot_be_made_is_refused_in_one_line() {
    for wire in ["xdp", "tap"] {
        let mut command = bench();
        command.args(["rpc", "--wire", wire]);
        if is_root() {
            // SAFETY: gives rights up, in the child alone, between fork and exec.
            unsafe { command.pre_exec(|| check(libc::setuid(65_534))) };
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains("run it as root") && said.trim().lines().count() == 1, "{said}");
    }
}

#[test]
fn rpc_over_wires_compares_every_answer_and_leaves_nothing_behind() {
    if !is_root() {
        return leave_out("only root may make network namespaces and devices");
    }
    for wire in ["xdp", "tap"] {
        if wire == "tap" && !std::path::Path::new("/dev/net/tun").exists() {
            leave_out("no /dev/net/tun");
            continue;
        }
        let words = ["--wire", wire, "--connections", "1,70", "--size", "64,5000"];
        let short = ["--repeats", "1", "--seconds", "0.3", "--warmup", "0.1", "--json"];
        let mut command = bench();
        command.args(["rpc"]).args(words).args(short);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let own = format!("uncopy-bench-{}", child.id());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{wire}: {}", stderr(&output));
        let left = std::fs::read_dir("/run/netns").unwrap().flatten();
        let left: Vec<_> = left.map(|name| name.file_name().into_string().unwrap()).collect();
        assert!(["a", "b"].iter().all(|end| !left.contains(&format!("{own}{end}"))), "{left:?}");
        let results: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let rows = results["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 8, "two ways to wait, two sizes, two numbers of connections");
        for row in rows {
            assert_eq!((&row["wire"], &row["api"]), (&wire.into(), &"lanes".into()));
            for side in ["linux", "again", "uncopy"] {
                assert!(row[side]["rpc_per_s"].as_f64().unwrap() > 0.0, "{side}: {row}");
            }
            assert!(row["verified"].as_u64().unwrap() > 10);
        }
    }
}

fn is_root() -> bool {
    // SAFETY: a call without arguments.
    unsafe { libc::geteuid() == 0 }
}

fn check(result: libc::c_int) -> std::io::Result<()> {
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
