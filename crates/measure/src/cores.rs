//! Which cores the server and the load generator run on.

use std::sync::OnceLock;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::failure;
use crate::failure::Failure;

/// Cores of a bench: one for every server thread (they may repeat) and one for the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Core of each server thread.
    pub server: Vec<usize>,
    /// Core of the load generator.
    pub load: usize,
}

/// Gives every server thread a core of its own as far as there are any, the load's core last.
pub fn plan(
    available: &[usize],
    threads: usize,
    server: usize,
    load: usize,
) -> Result<Cores, Failure> {
    for (core, option) in [(server, "--server-core"), (load, "--load-core")] {
        if !available.contains(&core) {
            return Err(failure!("core {core} is not available here")
                .because(format_args!("available: {available:?}"))
                .advise(format_args!("choose another one with {option}")));
        }
    }
    let others = available.iter().copied().filter(|c| *c != server && *c != load);
    let mut order: Vec<usize> = [server].into_iter().chain(others).collect();
    if load != server {
        order.push(load);
    }
    Ok(Cores { server: order.into_iter().cycle().take(threads.max(1)).collect(), load })
}

/// The cores that this process may use.
pub fn available() -> Result<Vec<usize>, Failure> {
    let set = sched_getaffinity(Pid::from_raw(0))
        .map_err(|e| Failure::new("cannot tell which cores there are").because(e.desc()))?;
    Ok((0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect())
}

/// The cores that this process could use when it was first asked: what [`pin`] bound it to since
/// does not count.
pub fn all() -> Result<Vec<usize>, Failure> {
    static ALL: OnceLock<Vec<usize>> = OnceLock::new();
    match ALL.get() {
        Some(all) => Ok(all.clone()),
        None => available().map(|now| ALL.get_or_init(|| now).clone()),
    }
}

/// The set of `cores` as the kernel wants it.
pub fn set_of(cores: &[usize]) -> Result<CpuSet, Failure> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core).map_err(|_| failure!("there can be no core {core}"))?;
    }
    Ok(set)
}

/// Binds the calling thread (and what it starts from now on) to `core`.
pub fn pin(core: usize) -> Result<(), Failure> {
    sched_setaffinity(Pid::from_raw(0), &set_of(&[core])?)
        .map_err(|e| failure!("cannot run on core {core}").because(e.desc()))
}

/// Lets the calling thread run where it could before [`pin`].
pub fn unpin() -> Result<(), Failure> {
    sched_setaffinity(Pid::from_raw(0), &set_of(&all()?)?)
        .map_err(|e| Failure::new("cannot run on all cores").because(e.desc()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_spread_and_come_to_the_loads_core_last() {
        let server = |threads| plan(&[0, 1, 2], threads, 0, 1).unwrap().server;
        assert_eq!(server(1), [0]);
        assert_eq!(server(2), [0, 2]);
        assert_eq!(server(4), [0, 2, 1, 0]);
        assert_eq!(plan(&[0], 2, 0, 0).unwrap().server, [0, 0]);
        assert!(plan(&[0], 1, 0, 1).unwrap_err().to_string().contains("--load-core"));
    }
}
