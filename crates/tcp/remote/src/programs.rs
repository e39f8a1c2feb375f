//! The service's programs as the protocol's applications: each has its own limits. A program has a
//! number there while it has listeners or connections.
//!
//! A connection that comes is of the program that has registered the listener last, whoever accepts
//! it; one that is opened is of the program that connects.

use std::collections::HashMap;
use uncopy_tcp_proto::Limits;

/// The parts of an application's state that are used here.
pub trait Applications {
    /// How many connections it has.
    fn connections(&self, app: u16) -> u32;
    /// Sets what it may have from now on.
    fn limit(&mut self, app: u16, limits: Limits);
    /// Connections that it did not get, since that was asked last.
    fn refused(&mut self, app: u16) -> u64;
}

/// See the module.
#[derive(Debug)]
pub struct Programs {
    limits: Limits,
    /// Each program's number, and how many connections it did not get.
    all: HashMap<u64, (u16, u64)>,
    /// How many listeners each number has.
    listeners: Vec<u32>,
    free: Vec<u16>,
}

impl Programs {
    /// Up to so many, each with these limits. Number 0 is that of all who find none left.
    pub fn new(count: u16, limits: Limits) -> Self {
        Self {
            limits,
            all: HashMap::new(),
            listeners: vec![0; usize::from(count)],
            free: (1..count).rev().collect(),
        }
    }

    /// A program's number.
    pub fn of(&mut self, program: u64, applications: &mut impl Applications) -> u16 {
        if let Some((app, _)) = self.all.get(&program) {
            return *app;
        }
        if self.free.is_empty() {
            self.sweep(applications);
        }
        let app = self.free.pop().unwrap_or(0);
        applications.limit(app, self.limits);
        if app != 0 {
            // (The counts for it before are somebody else's.)
            applications.refused(app);
            self.all.insert(program, (app, 0));
        }
        app
    }

    /// A program has one listener more.
    pub fn listens(&mut self, app: u16) {
        self.listeners[usize::from(app)] += 1;
    }

    /// A program has one listener less.
    pub fn listens_no_more(&mut self, app: u16) {
        self.listeners[usize::from(app)] -= 1;
    }

    /// This program has gone. Others may still have what it has opened.
    pub fn gone(&mut self, program: u64, applications: &impl Applications) {
        if let Some((app, _)) = self.all.get(&program)
            && self.is_unused(*app, applications)
        {
            self.free.push(*app);
            self.all.remove(&program);
        }
    }

    /// How many connections each program did not get.
    pub fn refused(&mut self, applications: &mut impl Applications) -> Vec<(u64, u64)> {
        let all = self.all.iter_mut().map(|(program, (app, refused))| {
            *refused += applications.refused(*app);
            (*program, *refused)
        });
        all.filter(|(_, refused)| *refused > 0).collect()
    }

    fn is_unused(&self, app: u16, applications: &impl Applications) -> bool {
        self.listeners[usize::from(app)] == 0 && applications.connections(app) == 0
    }

    fn sweep(&mut self, applications: &impl Applications) {
        let unused = |app| self.is_unused(app, applications);
        let free: Vec<(u64, u16)> = self
            .all
            .iter()
            .filter(|(_, (app, _))| unused(*app))
            .map(|(program, (app, _))| (*program, *app))
            .collect();
        for (program, app) in free {
            self.all.remove(&program);
            self.free.push(app);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Some {
        connections: HashMap<u16, u32>,
        limited: Vec<u16>,
        refused: HashMap<u16, u64>,
    }

    impl Applications for Some {
        fn connections(&self, app: u16) -> u32 {
            self.connections.get(&app).copied().unwrap_or(0)
        }

        fn limit(&mut self, app: u16, _: Limits) {
            self.limited.push(app);
        }

        fn refused(&mut self, app: u16) -> u64 {
            self.refused.remove(&app).unwrap_or(0)
        }
    }

    #[test]
    fn a_program_keeps_its_number_while_it_uses_it_and_others_get_what_is_unused() {
        let (mut programs, mut some) = (Programs::new(3, Limits::default()), Some::default());
        assert_eq!([10, 11, 10].map(|program| programs.of(program, &mut some)), [1, 2, 1]);
        programs.listens(1);
        some.connections.insert(2, 1);
        // None is left.
        assert_eq!(programs.of(12, &mut some), 0);
        programs.gone(10, &some);
        assert_eq!(programs.of(12, &mut some), 0);
        // A child goes on with its listener.
        programs.listens_no_more(1);
        assert_eq!(programs.of(12, &mut some), 1);
        some.connections.clear();
        programs.gone(11, &some);
        assert_eq!([13, 12].map(|program| programs.of(program, &mut some)), [2, 1]);
        assert_eq!(some.limited, [1, 2, 0, 0, 1, 2]);
    }

    #[test]
    fn connections_that_a_program_did_not_get_are_added_up() {
        let (mut programs, mut some) = (Programs::new(3, Limits::default()), Some::default());
        some.refused.insert(1, 7);
        assert_eq!(programs.of(10, &mut some), 1);
        assert!(programs.refused(&mut some).is_empty(), "that was another one's");
        for sum in [2, 4] {
            some.refused.insert(1, 2);
            assert_eq!(programs.refused(&mut some), [(10, sum)]);
        }
    }
}
