//! Whose programs are, and which owners a service brings together.

/// Whose a program is.
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

/// Whom a service serves.
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
    /// Whose this program is. None: nobody's whom it serves.
    pub(crate) fn whose(self, (process, user): (u32, u32)) -> Option<Owner> {
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

    /// A socket of this user's may be shown by a program of this owner.
    pub(crate) fn may_show(self, owner: Owner, user: u32) -> bool {
        self == Self::ItsUser || [0, user].contains(&owner.uid())
    }

    /// What it has is told to this one whole, and not the owner's part alone; so are frames of its
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
/// (they are dumpable, and its user's, or it has the right), and they are in one user namespace.
pub(crate) fn could_trace(processes: [u32; 2]) -> bool {
    let namespace = |process: u32| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
    let [one, two] = processes.map(namespace);
    one.is_some() && one == two
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_one_user_namespace_that_live_could_trace_each_other() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        assert!(could_trace([own, child.id()]));
        assert!(!could_trace([own, 0]));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!could_trace([own, child.id()]));
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
