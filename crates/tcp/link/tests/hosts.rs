//! Hosts on a link: every byte of every flow, also where frames are lost.

#![allow(missing_docs)]

use std::time::Duration;
use uncopy_tcp_link::direction::Terms;
use uncopy_tcp_link::{Plan, Tcp, run};
use uncopy_tcp_proto::Algorithm;

fn plan(tcp: Tcp, loss: f64) -> Plan {
    Plan {
        from: tcp.clone(),
        to: tcp,
        senders: 2,
        flows: 6,
        link: Terms { rate: 2_500_000, delay: 50_000, queue: 200_000, mark: 97_500, loss },
        ecn: true,
        seed: 1,
        warmup: Duration::from_millis(300),
        length: Duration::from_millis(700),
        interval: Duration::from_millis(100),
    }
}

#[test]
fn flows_of_uncopys_tcp_share_the_link_and_go_on_where_frames_are_lost() {
    for loss in [0.0, 0.01] {
        let report = run(&plan(Tcp::Uncopy(Algorithm::Cubic), loss)).unwrap();
        assert!(report.got.iter().all(|flows| flows.len() == 6));
        assert!(report.got.len() >= 4, "{}", report.got.len());
        // (How much that is, a busy machine decides.)
        let of_flow = |flow: usize| report.got.iter().map(|got| got[flow]).sum::<u64>();
        assert!((0..6).all(|flow| of_flow(flow) > 0), "{report:?}");
        assert!(report.goodput() < 2_500_000.0, "{}", report.goodput());
        assert_eq!(report.counts.lost > 0, loss > 0.0, "{:?}", report.counts);
    }
}

/// Why Linux' hosts cannot be made here.
fn missing() -> Option<&'static str> {
    let is_there = |path: &str| std::path::Path::new(path).exists();
    let ip = std::process::Command::new("ip").args(["netns", "list"]).output();
    match () {
        () if !rustix::process::geteuid().is_root() => Some("network namespaces are root's"),
        () if !is_there("/dev/net/tun") => Some("no /dev/net/tun"),
        () if ip.is_err() => Some("no 'ip' (iproute2)"),
        () => None,
    }
}

#[test]
fn flows_of_linux_go_over_the_same_link() {
    if let Some(why) = missing() {
        assert!(std::env::var_os("NO_SKIPS").is_none(), "{why}");
        eprintln!("skipped: {why}");
        return;
    }
    for loss in [0.0, 0.01] {
        let report = run(&plan(Tcp::Linux("cubic".into()), loss)).unwrap();
        assert!(report.goodput() > 0.0 && report.goodput() < 2_500_000.0, "{report:?}");
        assert_eq!(report.counts.lost > 0, loss > 0.0, "{:?}", report.counts);
    }
}

#[test]
fn flows_go_from_linux_to_uncopys_tcp_and_back() {
    if let Some(why) = missing() {
        assert!(std::env::var_os("NO_SKIPS").is_none(), "{why}");
        eprintln!("skipped: {why}");
        return;
    }
    let (linux, uncopy) = (Tcp::Linux("cubic".into()), Tcp::Uncopy(Algorithm::Cubic));
    for (from, to) in [(linux.clone(), uncopy.clone()), (uncopy, linux)] {
        let report = run(&Plan { from: from.clone(), to, ..plan(from, 0.01) }).unwrap();
        let of_flow = |flow: usize| report.got.iter().map(|got| got[flow]).sum::<u64>();
        assert!((0..6).all(|flow| of_flow(flow) > 0), "{report:?}");
        assert!(report.goodput() < 2_500_000.0 && report.counts.lost > 0, "{report:?}");
    }
}

/// The comparison is of the two TCPs: all else that a connection can have is the same.
#[test]
fn connections_of_linux_and_of_uncopys_tcp_ask_for_the_same_and_run_in_the_same_class() {
    if let Some(why) = missing() {
        assert!(std::env::var_os("NO_SKIPS").is_none(), "{why}");
        eprintln!("skipped: {why}");
        return;
    }
    for ecn in [true, false] {
        let ends = [Tcp::Linux("cubic".into()), Tcp::Uncopy(Algorithm::Cubic)].map(|tcp| {
            let plan = plan(tcp, 0.0);
            run(&Plan { ecn, ..plan }).unwrap().ends
        });
        assert_eq!(ends[0], ends[1]);
        let marks = if ecn { "yes" } else { "no" };
        assert!(ends[0].iter().all(|end| end.len() == 8 && end["marks"] == marks), "{ends:?}");
    }
}
