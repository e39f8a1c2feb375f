//! The benchmarks themselves: each describes its sides as data, and the sides are compared. The
//! difference between them must be what the row's name says; all else is a comparison that is not
//! fair.
//!
//! A side is described by its own sockets (`getsockopt`, on a descriptor taken from the process),
//! by its threads' class and its cores, by what the link sees of its handshakes, and by what it was
//! made to do.

use std::collections::BTreeMap;

use serde_json::Value;

use super::no_network;
use super::support::{json, leave_out};

/// A side: facts by their names.
type Facts = BTreeMap<String, String>;

fn facts(value: &Value) -> Facts {
    let object =
        value.as_object().unwrap_or_else(|| panic!("it does not describe itself: {value}"));
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{value}")).to_owned();
    object.iter().map(|(fact, value)| (fact.clone(), text(value))).collect()
}

/// The differences of two sides.
fn differences(a: &Facts, b: &Facts) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let of = |facts: &Facts, name| facts.get(name).cloned().unwrap_or_else(|| "nothing".into());
    names
        .into_iter()
        .filter(|name| a.get(*name) != b.get(*name))
        .map(|name| format!("{name}: {} and {}", of(a, name), of(b, name)))
        .collect()
}

/// Fails where a side differs from the first by more than `excused`, whose facts' names contain one
/// of these words; or where a side says nothing of `required`.
fn alike(bench: &str, sides: &[(String, Facts)], required: &[&str], excused: &[&str]) {
    assert!(sides.len() > 1, "{bench}: one side is compared with nothing");
    for (name, side) in sides {
        for fact in required {
            let told = side.iter().any(|(name, value)| name.contains(fact) && !value.is_empty());
            assert!(told, "{bench}: {name} says nothing of {fact}: {side:?}");
        }
        let found: Vec<String> = differences(&sides[0].1, side)
            .into_iter()
            .filter(|found| !excused.iter().any(|word| found.contains(word)))
            .collect();
        assert!(found.is_empty(), "{bench}: {} and {name} differ: {found:#?}", sides[0].0);
    }
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// loss, incast, bulk: a row is a side.
#[test]
fn flows_of_linux_and_of_the_core_differ_by_nothing_but_whose_they_are() {
    if let Some(why) = no_network() {
        return leave_out(why);
    }
    let short = ["--json", "--seconds", "0.4", "--warmup", "0.2", "--repeats", "2"];
    let hosts = ["--hosts", "linux-cubic,uncopy-cubic"];
    for (bench, own) in [
        ("incast", &["--flows", "4", "--senders", "2"][..]),
        ("loss", &["--flows", "4", "--loss", "1"]),
        ("bulk", &["--flows", "4", "--to", "linux-cubic"]),
    ] {
        let results = json(&[&[bench], &short[..], &hosts, own].concat());
        let rows = results["rows"].as_array().unwrap();
        for end in ["from", "to"] {
            let named = |row: &Value| {
                let whose = if bench == "bulk" { &row["from"] } else { &row["hosts"] };
                (whose.as_str().unwrap().to_owned(), facts(&row["ends"][end]))
            };
            let sides: Vec<_> = rows.iter().map(named).collect();
            let required =
                ["congestion control", "small segments", "scheduled", "marks", "segment"];
            alike(bench, &sides, &required, &[]);
            // The name of a row is what its connections are.
            for (whose, side) in &sides {
                let (_, control) = whose.split_once('-').unwrap();
                assert_eq!((control, &*side["marks"]), (&*side["congestion control"], "yes"));
            }
        }
        let again: Vec<_> = rows.iter().filter(|row| row["again"] == true).collect();
        assert!(!again.is_empty(), "{bench}: no second row of Linux'");
        assert!(rows.iter().all(|row| number(row, "mbit_per_s") > 0.0), "{bench}: {results}");
    }
}

/// Programs of this host: what differs on uncopy's side is what carries its bytes, which its own
/// Linux sockets do not say.
#[test]
fn pairs_of_programs_differ_by_nothing_but_what_carries_their_bytes() {
    let short = ["--json", "--seconds", "0.3", "--warmup", "0.1", "--repeats", "1"];
    let few = ["--wait", "sleep", "--api", "rings", "--connections", "4"];
    for (bench, own) in [
        ("rpc", &[][..]),
        // (With work for each the server is what limits, and not the client.)
        ("rpc", &["--way", "in", "--work", "4000"]),
        ("rpc", &["--way", "out"]),
        ("short", &["--rpcs", "64"]),
        ("kv", &["--load", "zipf", "--keys", "100"]),
    ] {
        let results = json(&[&[bench], &short[..], &few, own].concat());
        for row in results["rows"].as_array().unwrap() {
            let sides: Vec<_> = row["sides"].as_object().unwrap().iter().collect();
            let sides: Vec<_> = sides.iter().map(|(n, f)| ((*n).clone(), facts(f))).collect();
            let required =
                ["server: congestion control", "client: small segments", "client: marks"];
            let others = ["server: threads", "client: cores", "load, not timed", "load, timed"];
            alike(bench, &sides, &[&required[..], &others].concat(), &[]);
            assert_eq!(sides.len(), 3, "{bench}: Linux, Linux again, uncopy");
            // All that works for a side is in its time. (The service does where connections come.)
            let [linux, uncopy] = ["linux", "uncopy"].map(|side| &row[side]);
            let service = number(uncopy, "service_us_per_rpc");
            assert!(service > 0.0 || bench != "short", "the service's time is not counted: {row}");
            assert_eq!(number(linux, "service_us_per_rpc"), 0.0, "{bench}: {row}");
            assert!(number(uncopy, "cpu_us_per_rpc") > service, "{bench}: {row}");
            // A rate is of requests that were compared.
            assert!(number(row, "verified") >= 0.3 * number(linux, "rpc_per_s"), "{bench}: {row}");
            // The receiver is measured where the sender waits for it.
            for side in [linux, uncopy].into_iter().filter(|_| own.contains(&"in")) {
                assert!(number(side, "waited_share") > 0.1, "the client limits: {row}");
            }
        }
    }
}

#[test]
fn programs_over_a_device_and_clients_that_come_and_go_are_alike() {
    if let Some(why) = no_network() {
        return leave_out(why);
    }
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let words = ["proportional", "--json", "--out", out, "--clients", "1", "--repeats", "1"];
    let load = ["--connections", "2", "--rate", "300", "--work", "1000", "--lanes", "1"];
    let results = json(&[&words[..], &load, &["--step", "0.4", "--interval", "0.2"]].concat());
    let told = results["rows"].as_array().unwrap().iter();
    let told: Vec<_> = told.filter(|row| row["client_facts"].is_object()).collect();
    let of = |which: &str| -> Vec<(String, Facts)> {
        let side = |row: &&Value| row["side"].as_str().unwrap().to_owned();
        told.iter().map(|row| (side(row), facts(&row[which]))).collect()
    };
    let required = ["congestion control", "small segments", "marks", "threads", "cores"];
    alike("proportional", &of("client_facts"), &required, &[]);
    assert_eq!(told.len(), 3, "Linux, Linux again, uncopy");
    // (Lanes have no sockets of Linux': the clients' say what was agreed.)
    let servers: Vec<_> = of("server_facts");
    for (name, server) in &servers {
        let ordinary = server["threads"].split(" or ").all(|class| class.starts_with("ordinary"));
        assert!(ordinary && server["cores"] == servers[0].1["cores"], "{name}: {server:?}");
    }
    let [linux, uncopy] = ["linux", "uncopy"].map(|side| {
        let row = of("client_facts").into_iter().find(|(name, _)| name == side).unwrap().1;
        (row["congestion control"].clone(), row["marks"].clone())
    });
    assert_eq!((linux, &*uncopy.1), (uncopy.clone(), "yes"));
}

#[test]
fn echo_servers_of_all_sides_are_warmed_alike_and_a_word_is_what_its_column_says() {
    let words = ["echo", "--json", "--sizes", "16K", "--copies", "1", "--connections", "2"];
    let short = ["--repeats", "2", "--seconds", "0.1", "--warmup", "0.2", "--verify", "2"];
    let results = json(&[&words[..], &short].concat());
    let row = &results["rows"][0];
    let sides = row["servers"].as_object().unwrap().iter();
    let sides: Vec<_> = sides.map(|(name, side)| (name.clone(), facts(side))).collect();
    let required = ["congestion control", "marks", "load, not timed", "messages compared", "cores"];
    // (The library answers faults on a thread of its own.)
    alike("echo", &sides, &required, &["threads"]);
    assert_eq!((sides.len(), &row["times"]), (6, &2.into()));
}

/// The way and the side are what differs: neither the socket, nor the cores, nor the class.
#[test]
fn senders_and_copiers_of_a_file_are_alike_on_each_side_and_way() {
    let short = ["--json", "--repeats", "1", "--seconds", "0.1"];
    let send = ["send", "--sizes", "64K", "--buffers", "2", "--times", "many", "--warm", "1M"];
    let file = ["file", "--sizes", "1M", "--to", "socket", "--ways", "sendfile"];
    for words in [&[&send[..], &["--ways", "sendfile"]].concat(), &file[..]] {
        let results = json(&[words, &short[..]].concat());
        let columns = results["rows"][0]["columns"].as_array().unwrap().iter();
        let named = |column: &Value| {
            let name = format!("{} {}", column["way"], column["side"]);
            (name, facts(&column["facts"]))
        };
        let sides: Vec<_> = columns.map(named).collect();
        let required = ["congestion control", "small segments", "marks", "cores", "threads"];
        alike(words[0], &sides, &required, &[]);
        assert_eq!(sides.len(), 4, "{}: plain, again, uncopy, sendfile", words[0]);
    }
}

#[test]
fn processes_with_views_and_without_are_of_one_class_and_on_the_same_cores() {
    let words = ["views", "--json", "--views", "10", "--sizes", "16K", "--repeats", "1"];
    let results = json(&words);
    let sides = results["sides"].as_object().unwrap().iter();
    let sides: Vec<_> = sides.map(|(name, side)| (name.clone(), facts(side))).collect();
    alike("views", &sides, &["cores", "threads"], &[]);
    assert_eq!(sides.len(), 3, "plain, again, uncopy");
}

#[test]
fn a_published_row_is_called_elided_where_its_column_has_bytes() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/numbers");
    let docs = std::path::Path::new(docs);
    let read = |name| std::fs::read_to_string(docs.join(name)).unwrap();
    let results: Value = serde_json::from_str(&read("sizes.json")).unwrap();
    let series = results["series"].as_array().unwrap();
    let low = series.iter().find(|series| series["label"] == "threshold 8 KB").unwrap();
    let row = low["rows"].as_array().unwrap().iter().find(|row| row["size"] == 8 << 10);
    let elided = number(&row.unwrap()["uncopy"], "elided_bytes") > 0.0;
    let page = read("README.md");
    let line = page.lines().find(|line| line.starts_with("| 8 KB, 5 copies, threshold 8 KB"));
    let line = line.expect("the page has such a row");
    assert_eq!(line.contains("nothing elided"), !elided, "{line}");
}

/// The driver of the servers: which congestion control each side's connections have, and that a
/// side is compared with one of the same.
#[test]
fn servers_are_compared_with_a_plain_one_of_the_same_congestion_control() {
    let apps = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/apps");
    let script = "
import harness
from harness import Turn
def turns(**controls):
    return [{side: Turn(10.0 / (i + 1), 1.0, [1.0], [c]) for i, (side, c) in enumerate(controls.items())}]
assert harness.same(turns(plain='bbr', uncopy='reno', switched='reno')) == 'switched'
assert harness.same(turns(plain='bbr', uncopy='bbr', switched='reno')) == 'plain'
assert harness.same(turns(plain='cubic', uncopy='cubic')) == 'plain'
assert harness.same(turns(plain='bbr', uncopy='reno')) is None
";
    let mut python = std::process::Command::new("python3");
    python.args(["-c", script]).env("PYTHONPATH", apps).env("PYTHONDONTWRITEBYTECODE", "1");
    let Ok(output) = python.output() else { return leave_out("no python3") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A table that is of one run says which; another says in its first line that it is older.
#[test]
fn the_first_line_of_a_servers_table_says_of_which_run_it_is() {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let results: Value = serde_json::from_str(&read("docs/numbers/servers.json")).unwrap();
    let expected = match results["run"]["commit"].as_str() {
        Some(commit) => format!(", commit {commit}, "),
        None => "**Older rows**".to_owned(),
    };
    for (page, begin) in [
        ("README.md", "<!-- table, written by `make numbers`: begin -->\n"),
        ("docs/numbers/README.md", "## In short\n\n"),
    ] {
        let text = read(page);
        let first = text.split_once(begin).unwrap().1.lines().next().unwrap();
        assert!(first.contains(&expected), "{page}: {first}");
    }
}

/// A difference that has a name here cannot pass unseen: the comparison itself.
#[test]
fn a_difference_of_one_fact_is_found_and_named() {
    let side =
        |marks: &str| Facts::from([("marks".into(), marks.into()), ("x".into(), "1".into())]);
    assert_eq!(differences(&side("yes"), &side("no")), ["marks: yes and no"]);
    assert_eq!(differences(&side("yes"), &Facts::new()).len(), 2);
    assert!(differences(&side("yes"), &side("yes")).is_empty());
}
