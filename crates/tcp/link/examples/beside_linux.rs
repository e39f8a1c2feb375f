//! Goodput over a link that loses. `beside_linux [FLOWS] [LOSS PERCENT] [MBIT/S] [SENDERS] [DELAY
//! US]`. Needs root for Linux' hosts.

use std::time::Duration;
use uncopy_tcp_link::direction::Terms;
use uncopy_tcp_link::{Plan, Tcp, run};
use uncopy_tcp_proto::Algorithm;

fn main() -> std::io::Result<()> {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<f64>().expect("a number"));
    let mut next = |usual: f64| words.next().unwrap_or(usual);
    let (flows, loss, mbit, senders) = (next(100.0), next(0.0), next(200.0), next(1.0));
    let delay = next(50.0);
    let link = Terms {
        rate: (mbit * 125_000.0) as u64,
        delay: (delay * 1e3) as u64,
        queue: 1_000_000,
        mark: 65 * 1500,
        loss: loss / 100.0,
    };
    for tcp in [
        Tcp::Linux("cubic".into()),
        Tcp::Linux("bbr".into()),
        Tcp::Uncopy(Algorithm::Cubic),
        Tcp::Uncopy(Algorithm::Dctcp),
        Tcp::Uncopy(Algorithm::Timely),
        Tcp::Uncopy(Algorithm::Bbr),
    ] {
        let plan = Plan {
            from: tcp.clone(),
            to: tcp.clone(),
            senders: senders as usize,
            flows: flows as usize,
            link,
            ecn: true,
            seed: 1,
            warmup: Duration::from_secs(1),
            length: Duration::from_secs(3),
            interval: Duration::from_millis(100),
        };
        let report = run(&plan)?;
        let mut all: Vec<u64> = report.got.iter().flatten().copied().collect();
        all.sort_unstable();
        let at = |p: f64| all[((all.len() - 1) as f64 * p) as usize];
        println!(
            "{tcp:?}: {:.1} Mbit/s, a flow in 100 ms: median {} 99% {} 1% {}; {:?}, late {:?}",
            report.goodput() * 8e-6,
            at(0.5),
            at(0.99),
            at(0.01),
            report.counts,
            report.late
        );
    }
    Ok(())
}
