//! Which machine this is: measurements of another one, or of another kernel, say nothing here.

use std::fs::File;
use std::io::Read;

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

/// Runnable threads for each processor, of the last minute.
pub fn load_per_core(cores: usize) -> f64 {
    let load = start_of("/proc/loadavg");
    let load: f64 = load.split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(0.0);
    load / cores.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_its_name_and_stepping() {
        let cpuinfo = "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Some CPU\n\
                       stepping\t: 7\n\nprocessor\t: 1\n";
        assert_eq!(model(cpuinfo), "Some CPU / 6 / 85 / 7");
        assert_eq!(model(""), "unknown");
        assert!(!Machine::own().kernel.is_empty());
    }
}
