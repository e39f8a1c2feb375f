//! The sides of a comparison: the program as it is, twice, and what takes its copies or its
//! memory's faults away, one thing after the other.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::process::Command as Process;

use serde::{Deserialize, Serialize};
use uncopy_options::{self as options, OPTIONS};

use crate::failure::Failure;
use crate::{cache, library};

/// glibc's own settings.
pub const TUNABLES: &str = "GLIBC_TUNABLES";
/// With these glibc gives no memory back, so that no page of it faults twice (as in `bench/apps`).
pub const KEEP: &str = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184:\
                        glibc.malloc.top_pad=67108864";
/// Options of `uncopy run` that leave faster copies, placing and recycling of memory, and nothing
/// else.
const UNELIDED: &[(&str, &str)] = &[("elide", "no"), ("lend", "no")];
/// And without faster copies.
const PLACED: &[(&str, &str)] =
    &[("allocator", "yes"), ("elide", "no"), ("lend", "no"), ("copies", "libc")];

/// One of what is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The program as it is.
    Plain,
    /// The same once more: what it differs by is noise.
    Again,
    /// glibc keeps what is freed.
    Kept,
    /// uncopy's allocator only: where memory lies, and that it is recycled.
    Placed,
    /// The same, and faster copies.
    NoElision,
    /// All of uncopy.
    Uncopy,
}

impl Side {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Plain, Self::Again, Self::Kept, Self::Placed, Self::NoElision, Self::Uncopy];

    /// All in the order of round number `round`. In six rounds each one has each place once, and
    /// comes once behind each other one (a Williams square): what a side leaves behind, in the
    /// kernel's memory and the caches, meets all others alike.
    pub fn in_turn(round: usize) -> [Self; Self::ALL.len()] {
        const FIRST: [usize; Side::ALL.len()] = [0, 5, 1, 4, 2, 3];
        FIRST.map(|side| Self::ALL[(side + round) % Self::ALL.len()])
    }

    /// `sides` in the order of round number `round`: all of them as [`Self::in_turn`] has it; of
    /// fewer each has each place as often, in an order and in its reverse.
    pub fn some_in_turn(sides: &[Self], round: usize) -> Vec<Self> {
        if sides.len() == Self::ALL.len() {
            return Self::in_turn(round).to_vec();
        }
        let mut order = sides.to_vec();
        let places = order.len().max(1);
        order.rotate_left(round % places);
        if (round / places) % 2 == 1 {
            order.reverse();
        }
        order
    }

    /// Plain and uncopy alone, in the order of turn number `turn`.
    pub fn pair_in_turn(turn: usize) -> [Self; 2] {
        if turn.is_multiple_of(2) {
            [Self::Plain, Self::Uncopy]
        } else {
            [Self::Uncopy, Self::Plain]
        }
    }

    /// Plain, plain again and uncopy, in the order of turn number `turn`.
    pub fn three_in_turn(turn: usize) -> [Self; 3] {
        let mut sides = [Self::Plain, Self::Again, Self::Uncopy];
        sides.rotate_left(turn % 3);
        sides
    }

    /// The side's name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Again => "plain again",
            Self::Kept => "memory kept",
            Self::Placed => "uncopy's allocator alone",
            Self::NoElision => "uncopy without elision",
            Self::Uncopy => "uncopy",
        }
    }

    /// Whether the library is in front.
    pub fn preloads(self) -> bool {
        !self.options().is_empty() || self == Self::Uncopy
    }

    /// Options of `uncopy run` that make it this side.
    pub fn options(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Plain | Self::Again | Self::Kept | Self::Uncopy => &[],
            Self::Placed => PLACED,
            Self::NoElision => UNELIDED,
        }
    }

    /// Has `command` run on this side, with `library` in front where it is one of uncopy's: the
    /// environment is the only difference.
    pub fn arrange(self, command: &mut Process, library: &Path) {
        let preloaded = std::env::var_os(library::PRELOAD);
        if self.preloads() {
            command
                .env(library::PRELOAD, library::preload_value(library, preloaded.as_deref()))
                .env(library::VARIABLE, library);
            if std::env::var_os(options::COSTS).is_none()
                && let Some(costs) = cache::handed_on()
            {
                command.env(options::COSTS, costs);
            }
        } else {
            match library::without(library, preloaded.as_deref()) {
                Some(others) => command.env(library::PRELOAD, others),
                None => command.env_remove(library::PRELOAD),
            };
            for name in
                OPTIONS.iter().map(|spec| spec.env).chain([library::VARIABLE, options::COSTS])
            {
                command.env_remove(name);
            }
        }
        if self == Self::Kept {
            command.env(TUNABLES, kept(std::env::var_os(TUNABLES)));
        }
        for (name, value) in self.options() {
            let spec = OPTIONS.iter().find(|spec| spec.name == *name).expect("it is an option");
            command.env(spec.env, value);
        }
    }

    /// This program again with the hidden subcommand `name`, on this side.
    pub fn own_command(self, name: &str, library: &Path) -> Result<Process, Failure> {
        let program = std::env::current_exe()
            .map_err(|e| Failure::new("cannot tell where uncopy itself is").because(e))?;
        let mut command = Process::new(program);
        command.arg(name);
        self.arrange(&mut command, library);
        Ok(command)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// [`KEEP`] behind what the user has set: of two settings of one thing glibc takes the last.
fn kept(given: Option<OsString>) -> OsString {
    match given.filter(|given| !given.is_empty()) {
        Some(mut given) => {
            given.push(":");
            given.push(KEEP);
            given
        }
        None => KEEP.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_take_turns_at_being_first() {
        assert_eq!(Side::in_turn(7)[0], Side::Again);
        let rounds: Vec<_> = (0..6).map(Side::in_turn).collect();
        let mut behind: Vec<_> = rounds.iter().flat_map(|r| r.windows(2)).collect();
        behind.sort_unstable();
        behind.dedup();
        assert_eq!(behind.len(), 30);
        for place in 0..6 {
            assert!(Side::ALL.iter().all(|side| rounds.iter().any(|r| r[place] == *side)));
        }
        assert!(Side::ALL.iter().enumerate().all(|(i, side)| *side as usize == i));
    }

    #[test]
    fn some_sides_have_each_place_as_often_and_nobody_is_always_behind_the_same() {
        let two = [Side::Kept, Side::Uncopy];
        let first = |round| Side::some_in_turn(&two, round)[0];
        assert_eq!([0, 1, 2, 3].map(first), [two[0], two[1], two[1], two[0]]);
        let three = [Side::Kept, Side::Placed, Side::Uncopy];
        let rounds: Vec<_> = (0..6).map(|round| Side::some_in_turn(&three, round)).collect();
        for side in three {
            for place in 0..3 {
                assert_eq!(rounds.iter().filter(|r| r[place] == side).count(), 2);
            }
        }
        let mut behind: Vec<_> = rounds.iter().flat_map(|r| r.windows(2)).collect();
        behind.sort_unstable();
        behind.dedup();
        assert_eq!(behind.len(), 6);
        assert_eq!(Side::some_in_turn(&Side::ALL, 3), Side::in_turn(3));
    }

    #[test]
    fn only_its_environment_tells_a_side_from_plain() {
        let variables = |side: Side| -> Vec<String> {
            let mut command = Process::new("true");
            side.arrange(&mut command, Path::new("/l.so"));
            let set = command.get_envs().filter(|(_, value)| value.is_some());
            set.map(|(name, _)| name.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(variables(Side::Plain), variables(Side::Again));
        assert!(variables(Side::Kept).contains(&TUNABLES.to_owned()));
        assert!(variables(Side::NoElision).contains(&"UNCOPY_ELIDE".to_owned()));
        assert!(!variables(Side::NoElision).contains(&"UNCOPY_COPIES".to_owned()));
        assert!(variables(Side::Placed).contains(&"UNCOPY_COPIES".to_owned()));
        assert!(!variables(Side::Uncopy).contains(&"UNCOPY_ELIDE".to_owned()));
        assert!(variables(Side::Uncopy).contains(&"LD_PRELOAD".to_owned()));
    }

    #[test]
    fn the_users_own_tunables_stay() {
        assert_eq!(kept(Some("a=1".into())), format!("a=1:{KEEP}").as_str());
        assert_eq!(kept(Some("".into())), KEEP);
        assert_eq!(kept(None), KEEP);
    }
}
