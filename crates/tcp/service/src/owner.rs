//! The owners of programs, and which owners a service brings together.

use rustix::io::Errno;
use std::path::PathBuf;

/// The owner of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// The service itself: its ends stand in for other hosts.
    Service,
    /// The user of this number.
    User(u32),
}

impl Owner {
    /// The user's number.
    pub fn uid(self) -> u32 {
        match self {
            Self::Service => rustix::process::geteuid().as_raw(),
            Self::User(uid) => uid,
        }
    }
}

/// The users whom a service serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serves {
    /// The user as whom it runs.
    #[default]
    ItsUser,
    /// All users.
    All {
        /// Ends of different users meet.
        across: bool,
    },
}

impl Serves {
    /// This program's owner. None: the service does not serve it.
    pub(crate) fn owner_of(self, (process, user): (u32, u32)) -> Option<Owner> {
        if self != Self::ItsUser && process == std::process::id() {
            return Some(Owner::Service);
        }
        let served = self != Self::ItsUser || user == rustix::process::geteuid().as_raw();
        (served && is_somebody(user)).then_some(Owner::User(user))
    }

    /// The two ends of a connection of theirs may meet.
    pub(crate) fn meet(self, a: Owner, b: Owner) -> bool {
        let all = matches!(self, Self::All { across: true });
        all || a == b || [a, b].contains(&Owner::Service)
    }

    /// A socket of this user's may be registered by a program of this owner.
    pub(crate) fn may_show(self, owner: Owner, user: u32) -> bool {
        self == Self::ItsUser || [0, user].contains(&owner.uid())
    }

    /// All that it has is told to this one, and not the owner's part alone; so are frames of its
    /// wire.
    pub(crate) fn sees_all(self, owner: Owner) -> bool {
        let uid = owner.uid();
        self == Self::ItsUser || uid == 0 || uid == rustix::process::geteuid().as_raw()
    }
}

/// `/proc/sys/kernel/overflowuid`, as it is everywhere.
const STRANGERS: u32 = 65_534;

/// This number is one user's. (All whom a user namespace does not know have one number there, which
/// may be this process's own user's besides.)
pub(crate) fn is_somebody(user: u32) -> bool {
    user != STRANGERS || knows_all()
}

/// This process is in the first user namespace, or one that knows as many users.
fn knows_all() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// These two processes could trace each other, as far as this one can tell: it may look at both
/// (they are dumpable, and its user's, or it has the right), and they are alike in all that says
/// what one may do to another: users, groups, capabilities, namespaces of users and processes,
/// filters of system calls, and the label of a security module; and Yama lets them.
pub(crate) fn could_trace(processes: [u32; 2]) -> bool {
    let [one, two] = processes.map(Standing::of);
    one.is_some() && one == two && one.is_some_and(|standing| standing.traces(yama()))
}

/// Yama's `ptrace_scope`: 0 where there is no Yama.
fn yama() -> u32 {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    scope.map_or(0, |scope| scope.trim().parse().unwrap_or(u32::MAX))
}

/// CAP_SYS_PTRACE, as a bit of a set.
const TRACES: u64 = 1 << 19;

fn is_no_label(error: &std::io::Error) -> bool {
    let none = [Errno::INVAL, Errno::NOENT].map(|none| Some(none.raw_os_error()));
    none.contains(&error.raw_os_error())
}

/// The standing that says what a process may do to others, and they to it.
#[derive(Debug, PartialEq, Eq)]
struct Standing {
    namespaces: [PathBuf; 2],
    ids: Vec<String>,
    /// The capabilities in force.
    capabilities: u64,
    /// None: there is no security module.
    label: Option<Vec<u8>>,
    /// Under filters of system calls, the control group and the namespace of mounts: who is alike
    /// in these, and has as many filters, was put under the same ones by whoever started it. (Which
    /// they are the kernel tells nobody.)
    place: Option<(Vec<u8>, PathBuf)>,
}

impl Standing {
    fn of(process: u32) -> Option<Self> {
        let namespace = |name| std::fs::read_link(format!("/proc/{process}/ns/{name}")).ok();
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        const IDS: [&str; 5] = ["Uid:", "Gid:", "CapPrm:", "Seccomp:", "Seccomp_filters:"];
        let is_one = |line: &&str| IDS.iter().any(|id| line.starts_with(id));
        let ids: Vec<String> = status.lines().filter(is_one).map(String::from).collect();
        let value = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let capabilities = u64::from_str_radix(value("CapEff:")?, 16).ok()?;
        // (A process without new privileges may be in a domain of Landlock's, which shows nowhere.)
        if value("NoNewPrivs:").is_some_and(|none| none != "0") {
            return None;
        }
        // (It is one file where there are several modules, too, and none of a kernel without.)
        let label = match std::fs::read(format!("/proc/{process}/attr/current")) {
            Ok(label) => Some(label),
            Err(error) if is_no_label(&error) => None,
            Err(_) => return None,
        };
        let namespaces = [namespace("user")?, namespace("pid")?];
        let place = match value("Seccomp:") {
            None | Some("0") => None,
            Some(_) => {
                let group = std::fs::read(format!("/proc/{process}/cgroup")).ok()?;
                Some((group, namespace("mnt")?))
            }
        };
        // (Older kernels do not say how many filters there are, or have none.)
        (ids.len() >= 3).then_some(Self { namespaces, ids, capabilities, label, place })
    }

    /// Yama, of this scope, lets one such process trace another that it has not made.
    fn traces(&self, scope: u32) -> bool {
        match scope {
            0 => true,
            1 | 2 => self.capabilities & TRACES != 0,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_one_user_namespace_that_live_could_trace_each_other() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let standing = Standing::of(own);
        let may = standing.is_some_and(|standing| standing.traces(yama()));
        assert_eq!(could_trace([own, child.id()]), may);
        assert!(!could_trace([own, 0]));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!could_trace([own, child.id()]));
    }

    #[test]
    fn yama_lets_those_trace_who_have_the_right_or_all_or_nobody() {
        let none = Standing {
            namespaces: Default::default(),
            ids: vec![],
            capabilities: !TRACES,
            label: None,
            place: None,
        };
        assert_eq!([0, 1, 2, 3].map(|scope| none.traces(scope)), [true, false, false, false]);
        let has = Standing { capabilities: TRACES, ..none };
        assert_eq!([0, 1, 2, 3].map(|scope| has.traces(scope)), [true, true, true, false]);
    }

    /// Each of these could not be traced by the other one, though this process may look at both.
    #[test]
    fn two_that_are_not_alike_could_not_trace_each_other() {
        let own = std::process::id();
        // (One without capabilities, or that may make no namespaces, has nothing to tell apart
        // here.)
        let mut others = vec![];
        for with in [
            &["setpriv", "--bounding-set=-all", "--inh-caps=-all"][..],
            &["unshare", "--pid", "--fork", "--kill-child"],
            &["setpriv", "--no-new-privs"],
        ] {
            let sleep = ["sh", "-c", "echo; exec sleep 100"];
            let other = std::process::Command::new(with[0])
                .args(&with[1..])
                .args(sleep)
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::null())
                .spawn();
            let Ok(mut other) = other else { continue };
            let mut line = [0];
            let out = other.stdout.as_mut().unwrap();
            let begun = std::io::Read::read(out, &mut line).unwrap() == 1;
            others.push((with[0], other, begun));
        }
        for (with, mut other, begun) in others {
            let id = other.id();
            let children = format!("/proc/{id}/task/{id}/children");
            let child = std::fs::read_to_string(children).unwrap_or_default();
            let id = child.split_whitespace().next().and_then(|id| id.parse().ok()).unwrap_or(id);
            let standing = (Standing::of(own), Standing::of(id));
            let could = could_trace([own, id]);
            other.kill().unwrap();
            other.wait().unwrap();
            let root = rustix::process::geteuid().is_root();
            assert!(!(begun && root && could), "{with}: {standing:?}");
        }
    }

    #[test]
    fn ends_of_two_users_meet_where_that_was_said_and_a_stand_in_meets_everybody() {
        let (one, two) = (Owner::User(1), Owner::User(2));
        for across in [false, true] {
            let all = Serves::All { across };
            assert!(all.meet(one, one) && all.meet(Owner::Service, two));
            assert_eq!(all.meet(one, two), across);
            assert!(all.sees_all(Owner::User(0)));
            assert!(all.may_show(one, 1) && all.may_show(Owner::User(0), 1));
            assert!(!all.may_show(two, 1) && !all.may_show(one, 0));
        }
    }
}
