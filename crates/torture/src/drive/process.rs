//! One run of a script in a process of its own.

use super::variant::Variant;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How scripts are run.
#[derive(Clone, Debug)]
pub struct Runner {
    /// The `uncopy` command.
    pub uncopy: PathBuf,
    /// More environment under uncopy.
    pub environment: Vec<(String, String)>,
    /// How long a run may take.
    pub timeout: Duration,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The line of each operation.
    pub log: BTreeMap<String, String>,
    /// How the program ended, if not well.
    pub end: Option<String>,
    /// The counters that uncopy printed, added up over all processes.
    pub counters: BTreeMap<String, u64>,
}

impl Runner {
    /// Runs the script in `file`; logs go beside it.
    ///
    /// # Errors
    /// When no process can be started or a log not be read.
    pub fn run(&self, file: &Path, way: Option<&Variant>) -> io::Result<Outcome> {
        let name = way.map_or("plain", |w| &w.name);
        let log = file.with_extension(format!("{name}.log"));
        let errors = file.with_extension(format!("{name}.err"));
        let own = std::env::current_exe()?;
        let mut command = match way {
            None => Command::new(own),
            Some(way) => {
                let mut c = Command::new(&self.uncopy);
                c.arg("run").arg("--require").arg("--verbose=counters").args(&way.options);
                // The eager ways send by reference what is hardly worth it.
                if way.options.iter().any(|o| o == "--backoff=no") {
                    c.env("UNCOPY_COSTS", "lend=0");
                }
                c.arg("--").arg(own).envs(self.environment.iter().cloned());
                c
            }
        };
        let _ = fs::remove_file(&log);
        let out = OpenOptions::new().create(true).append(true).open(&log)?;
        command.arg("exec").arg(file).stdin(Stdio::null()).stdout(out);
        command.stderr(fs::File::create(&errors)?).process_group(0);
        let mut child = command.spawn()?;
        let end = self.wait(&mut child, &file.with_extension(format!("{name}.stacks")))?;
        // Children of a program that crashed may be left.
        end_group(&child);
        let mut outcome = Outcome { end, ..Outcome::default() };
        for line in fs::read_to_string(&log)?.lines() {
            let (key, text) = line.split_once(' ').unwrap_or((line, ""));
            if outcome.log.insert(key.to_owned(), text.to_owned()).is_some() {
                outcome.end.get_or_insert(format!("operation {key} was logged twice"));
            }
        }
        let said = String::from_utf8_lossy(&fs::read(&errors)?).into_owned();
        let mut last = "";
        for line in said.lines() {
            let counter = line.strip_prefix("uncopy: ").and_then(|l| l.split_once('='));
            if let Some((name, Ok(value))) = counter.map(|(n, v)| (n, v.parse::<u64>())) {
                let sum = outcome.counters.entry(name.to_owned()).or_default();
                *sum = sum.wrapping_add(value);
            } else if !line.starts_with("uncopy: ") {
                last = line;
            }
        }
        if let (Some(end), false) = (&mut outcome.end, last.is_empty()) {
            *end = format!("{end}: {last}");
        }
        Ok(outcome)
    }

    fn wait(&self, child: &mut Child, stacks: &Path) -> io::Result<Option<String>> {
        let end = Instant::now() + self.timeout;
        let mut pause = Duration::from_micros(500);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(bad(status));
            }
            if Instant::now() > end {
                let where_to = whereabouts(child.id());
                write_stacks(child.id(), stacks);
                end_group(child);
                child.wait()?;
                return Ok(Some(format!("no end after {} s; {where_to}", self.timeout.as_secs())));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
    }
}

fn bad(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("exit status {code}")),
        (_, Some(signal)) => Some(format!("killed by signal {signal}")),
        _ => Some("ended somehow".to_owned()),
    }
}

/// Ends what is left of the process group that `child` led.
fn end_group(child: &Child) {
    // SAFETY: a group that this program made.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
}

/// The stacks of a process that hangs and of its children, where there is a debugger.
fn write_stacks(pid: u32, file: &Path) {
    let Ok(mut out) = fs::File::create(file) else { return };
    for pid in family(pid) {
        // (It waits for ever for a thread that the kernel does not stop.)
        let mut gdb = Command::new("timeout");
        gdb.args(["-k", "1", "20", "gdb", "-p", &pid.to_string()]);
        gdb.args(["-batch", "-ex", "thread apply all bt 30"]);
        gdb.stdin(Stdio::null()).stderr(Stdio::null());
        let Ok(stacks) = gdb.output() else { return };
        let _ = writeln!(out, "\n== process {pid}").and_then(|()| out.write_all(&stacks.stdout));
    }
}

/// A process and all that descends from it.
fn family(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.flat_map(|task| {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        list.split_ascii_whitespace().filter_map(|c| c.parse().ok()).collect::<Vec<u32>>()
    });
    std::iter::once(pid).chain(children.flat_map(family)).collect()
}

/// The place where each thread of a process and of its children waits.
fn whereabouts(pid: u32) -> String {
    let mut all = Vec::new();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let call = read("syscall");
        let call = call.split(' ').next().unwrap_or_default().trim().to_owned();
        all.push(format!("{}:{}@{}", read("comm").trim(), call, read("wchan")));
        for child in read("children").split_ascii_whitespace().filter_map(|c| c.parse().ok()) {
            all.push(format!("child[{}]", whereabouts(child)));
        }
    }
    all.join(" ")
}
