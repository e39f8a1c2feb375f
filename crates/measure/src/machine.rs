//! Which machine this is: measurements of another one, or of another kernel, say nothing here.

use std::fs::File;
use std::io::Read;
use std::thread;
use std::time::Duration;

use procfs::{CpuTime, CurrentSI, KernelStats};
use serde::Serialize;

/// Processor and kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The processor's name, as the kernel has it.
    pub cpu: String,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// This one. Two small reads: also made by every `uncopy run` that finds a cache.
    pub fn own() -> Self {
        let cpu = start_of("/proc/cpuinfo");
        Self { cpu: model(&cpu), kernel: start_of("/proc/sys/kernel/osrelease").trim().to_owned() }
    }
}

/// The first processor's entry is enough: the whole file is long where there are many.
fn start_of(path: &str) -> String {
    let mut bytes = [0; 2048];
    let read = File::open(path).and_then(|mut f| f.read(&mut bytes)).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

fn model(cpuinfo: &str) -> String {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found.trim() == name).then(|| value.trim().to_owned())
        })
    };
    let parts: Vec<String> =
        ["model name", "cpu family", "model", "stepping"].into_iter().filter_map(field).collect();
    if parts.is_empty() { "unknown".to_owned() } else { parts.join(" / ") }
}

/// The share of all processors' time (0 to 1) that is in use now, or that the host of this virtual
/// machine takes: looked at for half a second, in which the caller does nothing. (The load average
/// would tell of what ended a minute ago.) 0 if the kernel does not say.
pub fn busy_share() -> f64 {
    let look = || KernelStats::current().map(|stats| spent(&stats.total));
    let Ok(before) = look() else { return 0.0 };
    thread::sleep(Duration::from_millis(500));
    let Ok(after) = look() else { return 0.0 };
    let (busy, all) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    if all == 0 { 0.0 } else { busy as f64 / all as f64 }
}

/// Ticks in use, and all. (The time that guests use is in user's time already: proc_stat(5).)
fn spent(time: &CpuTime) -> (u64, u64) {
    let busy = time.user
        + time.nice
        + time.system
        + time.irq.unwrap_or(0)
        + time.softirq.unwrap_or(0)
        + time.steal.unwrap_or(0);
    (busy, busy + time.idle + time.iowait.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_processor_is_its_name_and_stepping() {
        let cpuinfo = "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Some CPU\n\
                       stepping\t: 7\n\nprocessor\t: 1\n";
        assert_eq!(model(cpuinfo), "Some CPU / 6 / 85 / 7");
        assert_eq!(model(""), "unknown");
        assert!(!Machine::own().kernel.is_empty());
    }

    #[test]
    fn a_thread_that_computes_makes_the_machine_busy() {
        let ends = AtomicBool::new(false);
        let share = thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            });
            let share = busy_share();
            ends.store(true, Ordering::Relaxed);
            share
        });
        // One of them at least; half of that, where others have it too.
        let processors = thread::available_parallelism().map_or(1, usize::from);
        assert!(share > 0.5 / processors as f64, "{share}");
        assert!(share <= 1.0, "{share}");
    }
}
