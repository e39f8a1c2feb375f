//! Where, when and with what a report was made.

// Unsafe: libc is asked for its version.

use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uncopy_decide::Costs;
use uncopy_measure::cache::{self, Cached};
use uncopy_measure::machine::{self, Machine};
use uncopy_measure::{Failure, build, cores, failure};

use super::modes::Mode;

/// How long a report takes where nothing else is asked for.
pub const MINUTES: f64 = 20.0;

/// All of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct About {
    /// The processor's name.
    pub cpu: String,
    /// The kernel's release.
    pub kernel: String,
    /// Cores that could be used.
    pub cores: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// The share of the processors that others used before it began, and at the end (0 to 1). (Not
    /// in reports of versions that looked at the load average.)
    #[serde(default)]
    pub busy: Option<[f64; 2]>,
    /// uncopy's version.
    pub version: String,
    /// The commit that uncopy was built from.
    pub commit: String,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The command that makes it again.
    pub command: String,
    /// The minutes that it was to take.
    pub minutes: f64,
    /// How TCP controls congestion.
    pub congestion: String,
    /// The version of glibc.
    pub glibc: String,
    /// The prices in use: name, here, and the reference machine's; nanoseconds.
    pub costs: Vec<(String, u64, u64)>,
    /// Whether the prices were measured here.
    pub costs_measured: bool,
    /// The rows that could not be measured, and why.
    #[serde(default)]
    pub failed: Vec<String>,
}

impl About {
    /// Here and now.
    pub fn now(minutes: f64, only: &[Mode]) -> Result<Self, Failure> {
        let machine = Machine::own();
        let cores = cores::all()?.len();
        let kept = cache::path().map(|path| cache::read(&path, || machine.clone()));
        let (costs, costs_measured) = match kept {
            Some(Cached::Costs(costs)) => (costs, true),
            _ => (Costs::REFERENCE, false),
        };
        let mut command = "uncopy-bench report".to_owned();
        if minutes != MINUTES {
            command += &format!(" --minutes {minutes}");
        }
        if !only.is_empty() {
            let names: Vec<&str> = only.iter().map(|m| m.name()).collect();
            command += &format!(" --only {}", names.join(","));
        }
        let busy = machine::busy_share();
        Ok(Self {
            cpu: machine.cpu,
            kernel: machine.kernel,
            cores,
            memory: memory(),
            busy: Some([busy, busy]),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: build::COMMIT.to_owned(),
            began: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            seconds: 0.0,
            command,
            minutes,
            congestion: congestion(),
            glibc: glibc(),
            costs: costs
                .iter()
                .zip(Costs::REFERENCE.iter())
                .map(|((name, here), (_, reference))| {
                    (name.to_owned(), here.cast_unsigned(), reference.cast_unsigned())
                })
                .collect(),
            costs_measured,
            failed: Vec::new(),
        })
    }

    /// Reads what a report in `out` says of itself.
    pub fn read(out: &Path) -> Result<Self, Failure> {
        let path = out.join("about.json");
        let bad = |e: &dyn std::fmt::Display| failure!("cannot read {}", path.display()).because(e);
        let json = fs::read_to_string(&path).map_err(|e| bad(&e))?;
        serde_json::from_str(&json).map_err(|e| bad(&e))
    }

    /// It has taken so long by now.
    pub fn took(&mut self, elapsed: Duration) {
        self.seconds = elapsed.as_secs_f64().round();
        self.busy = self.busy.map(|[before, _]| [before, machine::busy_share()]);
    }

    /// Warnings that a reader of the numbers must know first.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.minutes < MINUTES / 2.0 {
            warnings.push(format!("Made in {} minutes: a look, not a measurement.", self.minutes));
        }
        warnings.extend(self.busy());
        warnings.extend(self.failed.iter().map(|why| format!("Not measured: {why}")));
        warnings
    }

    /// How much others used the machine, in words.
    pub fn used_by_others(&self) -> String {
        self.busy.map_or_else(
            || "not known".to_owned(),
            |[before, after]| {
                format!("{:.0}% before, {:.0}% at the end", before * 100.0, after * 100.0)
            },
        )
    }

    /// That others used the machine too, if they did.
    pub fn busy(&self) -> Option<String> {
        let [before, after] = self.busy?;
        (before > 0.1 || after > 0.1).then(|| {
            format!(
                "The machine was busy with other work: {:.0}% of its processors before, {:.0}% \
                 at the end. Throughput suffers from that on all sides; CPU a message much less. \
                 The second plain side shows it.",
                before * 100.0,
                after * 100.0
            )
        })
    }

    /// When it began, in UTC.
    pub fn date(&self) -> String {
        let (days, rest) = (self.began / 86_400, self.began % 86_400);
        let (year, month, day) = civil(days);
        format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3600, rest % 3600 / 60)
    }
}

/// Year, month and day of a day since 1970-01-01 (years of 365.2425 days, counted from March, so
/// that the leap day is the last).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

fn congestion() -> String {
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn glibc() -> String {
    // SAFETY: it answers a C string that lives as long as the process.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_string_lossy().into_owned()
}

fn memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kb = line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kb.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(59), (1970, 3, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_819), (2027, 1, 1));
    }
}
