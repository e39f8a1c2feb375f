//! A script out of a seed.

use crate::op::{
    Actor, Ask, CloseBy, Ctl, DupBy, Events, Flags, HANDLES, Handle, How, NONE, NonblockBy, Op,
    Opt, PollBy, RecvBy, SETS, SendBy, Timeout, WaitBy,
};
use crate::script::{Connection, Line, Script};
use uncopy_torture::random::Random;

/// The subjects of a script.
#[derive(Clone, Copy, Debug)]
struct Profile {
    threads: bool,
    forks: bool,
    sets: bool,
    urgent: bool,
    bulk: bool,
    passes: bool,
    /// Ends, resets, kills: of so many operations one.
    ends: usize,
}

struct Generator {
    r: Random,
    profile: Profile,
    connections: usize,
    lines: Vec<Line>,
}

/// The script of a seed, with so many lines or some more.
pub fn generate(seed: u64, lines: usize) -> Script {
    let mut r = Random::new(seed);
    let count = r.weighted(&[(5, 1), (3, 2), (2, 3)]);
    let connections: Vec<Connection> = (0..count)
        .map(|_| Connection { v6: r.one_in(3), by: r.below(2), nodelay: !r.one_in(6) })
        .collect();
    let profile = Profile {
        threads: !r.one_in(3),
        forks: r.one_in(4),
        sets: r.one_in(2),
        urgent: r.one_in(5),
        bulk: r.one_in(6),
        passes: r.one_in(10),
        ends: r.pick(&[12, 25, 60]),
    };
    let mut g = Generator { r, profile, connections: count, lines: vec![] };
    g.begin();
    while g.lines.len() < lines {
        g.one();
    }
    g.end();
    Script { connections, lines: g.lines }
}

impl Generator {
    fn add(&mut self, actor: Actor, op: Op) {
        self.lines.push(Line { actor, op });
    }

    fn begin(&mut self) {
        if !self.profile.sets {
            return;
        }
        for actor in [Actor::A, Actor::B] {
            if self.r.one_in(4) {
                continue;
            }
            for s in 0..=self.r.below(2) {
                self.add(actor, Op::NewSet { s });
            }
            for h in 0..self.connections {
                let op = Op::Control { s: 0, h, how: Ctl::Add, events: self.set_events() };
                self.add(actor, op);
            }
            if self.r.one_in(3) {
                let events = self.r.pick(&[Events::IN, Events::IN, Events::IN | Events::EDGE]);
                self.add(actor, Op::NewSet { s: 2 });
                self.add(actor, Op::Nest { s: 0, within: 2, how: Ctl::Add, events });
            }
        }
    }

    fn end(&mut self) {
        for h in 0..self.connections {
            for actor in [Actor::A, Actor::B] {
                self.add(actor, Op::Drain { h, chunk: 5000, by: RecvBy::Recv });
            }
        }
        for h in 0..self.connections {
            for actor in [Actor::A, Actor::B] {
                let events = Events::IN | Events::OUT | Events::RDHUP;
                let op = Op::Poll {
                    h,
                    events,
                    also: NONE,
                    others: Events::default(),
                    set: NONE,
                    by: PollBy::Poll,
                    wait: Timeout::No,
                };
                self.add(actor, op);
            }
        }
    }

    fn set_events(&mut self) -> Events {
        let mut events = self.r.pick(&[
            Events::IN,
            Events::IN,
            Events::IN | Events::OUT,
            Events::OUT,
            Events::IN | Events::RDHUP,
            Events::RDHUP,
            Events::default(),
            Events::IN | Events::OUT | Events::RDHUP | Events::PRI,
        ]);
        if self.r.one_in(3) {
            events |= Events::EDGE;
        }
        if self.r.one_in(8) {
            events |= Events::ONESHOT;
        }
        events
    }

    fn poll_events(&mut self) -> Events {
        let mut events = Events::default();
        for one in [Events::IN, Events::OUT, Events::RDHUP, Events::PRI] {
            if self.r.one_in(2) {
                events |= one;
            }
        }
        events
    }

    fn actor(&mut self) -> Actor {
        let child = if self.profile.forks { 2 } else { 0 };
        self.r.weighted(&[(10, Actor::A), (10, Actor::B), (child, Actor::Ax), (child, Actor::Bx)])
    }

    /// One that may wait.
    fn waiter(&mut self) -> Actor {
        if !self.profile.threads {
            return self.actor();
        }
        self.r.pick(&[Actor::A1, Actor::A1, Actor::A2, Actor::B1, Actor::B1, Actor::B2])
    }

    fn handle(&mut self) -> Handle {
        let n = self.connections;
        if self.r.one_in(5) { self.r.between(n, (n + 2).min(HANDLES - 1)) } else { self.r.below(n) }
    }

    fn len(&mut self) -> usize {
        match self.r.weighted(&[(1, 0), (8, 1), (8, 2), (5, 3), (2, 4)]) {
            0 => 0,
            1 => self.r.between(1, 10),
            2 => self.r.between(11, 300),
            3 => self.r.between(301, 4000),
            _ => self.r.between(4001, 20_000),
        }
    }

    fn one(&mut self) {
        let p = self.profile;
        let when = |is: bool, weight: usize| if is { weight } else { 0 };
        let ends = 100 / p.ends;
        let kinds = [
            (26, 0),
            (26, 1),
            (8, 2),
            (when(p.sets, 14), 3),
            (when(p.sets, 5), 4),
            (6, 5),
            (3, 6),
            (2, 7),
            (3, 8),
            (ends, 9),
            (when(p.forks, 4), 10),
            (when(p.passes, 4), 11),
            (when(p.bulk, 5), 12),
            (when(p.threads, 3), 13),
            (1, 14),
        ];
        let h = self.handle();
        match self.r.weighted(&kinds) {
            0 => self.send(h),
            1 => self.receive(h),
            2 => self.poll(h),
            3 => self.wait(),
            4 => self.control(h),
            5 => {
                let what = self.r.pick(&[
                    Ask::Unread,
                    Ask::Unread,
                    Ask::Error,
                    Ask::Mark,
                    Ask::Peer,
                    Ask::Name,
                    Ask::Kind,
                ]);
                let actor = self.actor();
                self.add(actor, Op::Ask { h, what });
            }
            6 => {
                let by = self.r.pick(NonblockBy::ALL);
                let (actor, on) = (self.actor(), self.r.one_in(2));
                self.add(actor, Op::Nonblock { h, on, by });
            }
            7 => {
                let what = self.r.weighted(&[
                    (3, Opt::Nodelay),
                    (2, Opt::Cork),
                    (1, Opt::Linger),
                    (if p.urgent { 3 } else { 0 }, Opt::Inline),
                    (1, Opt::Rcvtimeo),
                    (2, Opt::Keepalive),
                ]);
                let (actor, on) = (self.actor(), !self.r.one_in(3));
                self.add(actor, Op::Set { h, what, on });
            }
            8 => {
                let to = self.r.between(self.connections, (self.connections + 2).min(HANDLES - 1));
                let (actor, by) = (self.actor(), self.r.pick(DupBy::ALL));
                self.add(actor, Op::Dup { h, to, by });
            }
            9 => self.ends(h),
            10 => self.fork(),
            11 => {
                let to = self.r.between(self.connections, (self.connections + 2).min(HANDLES - 1));
                let actor = self.r.pick(&[Actor::A, Actor::B]);
                self.add(actor, Op::Pass { h, to });
            }
            12 => self.bulk(h),
            13 => {
                let (actor, restart) = (self.waiter(), self.r.one_in(2));
                self.add(actor, Op::Signal { restart });
            }
            _ => {
                let actor = self.actor();
                self.add(actor, Op::CloseFrom {});
            }
        }
    }

    fn send(&mut self, h: Handle) {
        let (actor, len) = (self.actor(), self.len());
        let by = self.r.weighted(&[
            (5, SendBy::Write),
            (5, SendBy::Send),
            (2, SendBy::Writev),
            (1, SendBy::Sendto),
            (2, SendBy::Sendmsg),
            (1, SendBy::Sendmmsg),
            (1, SendBy::Sendfile),
            (1, SendBy::Splice),
        ]);
        let mut flags = Flags::default();
        for (one_in, flag) in [(4, Flags::DONTWAIT), (3, Flags::NOSIGNAL), (12, Flags::MORE)] {
            if self.r.one_in(one_in) {
                flags |= flag;
            }
        }
        if self.profile.urgent && self.r.one_in(6) {
            flags |= Flags::OOB;
        }
        let pieces = self.r.between(1, 4);
        self.add(actor, Op::Send { h, len, by, flags, pieces });
    }

    fn receive(&mut self, h: Handle) {
        let waits = self.r.one_in(3);
        let actor = if waits { self.waiter() } else { self.actor() };
        let by = self.r.weighted(&[
            (4, RecvBy::Read),
            (6, RecvBy::Recv),
            (2, RecvBy::Readv),
            (2, RecvBy::Recvfrom),
            (3, RecvBy::Recvmsg),
            (1, RecvBy::Recvmmsg),
            (1, RecvBy::Splice),
        ]);
        let mut flags = Flags::default();
        if !waits && !self.r.one_in(8) {
            flags |= Flags::DONTWAIT;
        }
        for (one_in, flag) in [(5, Flags::PEEK), (7, Flags::WAITALL), (20, Flags::TRUNC)] {
            if self.r.one_in(one_in) {
                flags |= flag;
            }
        }
        if self.profile.urgent && self.r.one_in(6) {
            flags |= Flags::OOB;
        }
        let len = if self.r.one_in(2) { self.r.between(1000, 30_000) } else { self.len() };
        let pieces = self.r.between(1, 4);
        // (These have no flags, and would wait.)
        let plain = matches!(by, RecvBy::Read | RecvBy::Readv | RecvBy::Splice);
        if plain && !waits && !self.r.one_in(4) {
            let by = NonblockBy::Fcntl;
            self.add(actor, Op::Nonblock { h, on: true, by });
        }
        self.add(actor, Op::Recv { h, len, by, flags, pieces });
    }

    fn timeout(&mut self) -> Timeout {
        self.r.weighted(&[(10, Timeout::No), (1, Timeout::Short), (2, Timeout::Ever)])
    }

    fn poll(&mut self, h: Handle) {
        let wait = self.timeout();
        let actor = if wait == Timeout::Ever { self.waiter() } else { self.actor() };
        let (events, others) = (self.poll_events(), self.poll_events());
        let also = if self.r.one_in(3) { self.handle() } else { NONE };
        let set = if self.profile.sets && self.r.one_in(4) { self.r.below(SETS) } else { NONE };
        let by = self.r.pick(PollBy::ALL);
        self.add(actor, Op::Poll { h, events, also, others, set, by, wait });
    }

    fn wait(&mut self) {
        let wait = self.timeout();
        let actor = if wait == Timeout::Ever { self.waiter() } else { self.actor() };
        let s = self.r.weighted(&[(6, 0), (1, 1), (2, 2)]);
        let (max, by) = (self.r.pick(&[8, 8, 8, 1, 2]), self.r.pick(WaitBy::ALL));
        self.add(actor, Op::Wait { s, max, by, wait });
    }

    fn control(&mut self, h: Handle) {
        let actor = self.actor();
        let s = self.r.weighted(&[(6, 0), (1, 1)]);
        let how = self.r.pick(&[Ctl::Add, Ctl::Mod, Ctl::Mod, Ctl::Del]);
        let op = match self.r.below(12) {
            0 => Op::NewSet { s: self.r.below(SETS) },
            1 => Op::EndSet { s },
            2 => Op::Nest { s, within: 2, how, events: Events::IN },
            _ => Op::Control { s, h, how, events: self.set_events() },
        };
        self.add(actor, op);
    }

    fn ends(&mut self, h: Handle) {
        let actor = self.actor();
        let op = match self.r.weighted(&[(5, 0), (6, 1), (1, 2), (1, 3)]) {
            0 => Op::Shut { h, how: self.r.pick(&[How::Wr, How::Wr, How::Rd, How::Rdwr]) },
            1 => Op::Close { h, by: self.r.pick(CloseBy::ALL) },
            2 => Op::Set { h, what: Opt::Linger, on: true },
            _ => Op::Kill {},
        };
        self.add(actor, op);
    }

    fn fork(&mut self) {
        let actor = self.r.pick(&[Actor::A, Actor::B]);
        let child = if actor == Actor::A { Actor::Ax } else { Actor::Bx };
        match self.r.weighted(&[(5, 0), (2, 1), (2, 2), (1, 3)]) {
            0 => self.add(actor, Op::Fork {}),
            1 => self.add(child, Op::Exit {}),
            2 => self.add(child, Op::Exec {}),
            _ => self.add(child, Op::Kill {}),
        }
    }

    /// More than there is room for.
    fn bulk(&mut self, h: Handle) {
        let actor = if self.profile.threads { self.waiter() } else { self.actor() };
        let reader = if actor.side() == 0 { Actor::B } else { Actor::A };
        let len = self.r.pick(&[30_000, 100_000, 1_200_000, 5_000_000]);
        let chunk = self.r.pick(&[3000, 50_000, 100_000]);
        let (fill, edge) = (self.r.one_in(2), self.r.one_in(2));
        if self.r.one_in(2) {
            self.add(actor, Op::Nonblock { h, on: true, by: NonblockBy::Ioctl });
        }
        self.add(actor, Op::Stream { h, len, chunk, fill, edge });
        for _ in 0..self.r.below(4) {
            self.one_quick(h, reader);
        }
        if !self.r.one_in(4) {
            let by = self.r.pick(&[RecvBy::Read, RecvBy::Recv, RecvBy::Readv, RecvBy::Splice]);
            let chunk = self.r.between(500, 100_000);
            self.add(reader, Op::Drain { h, chunk, by });
        }
    }

    fn one_quick(&mut self, h: Handle, actor: Actor) {
        let flags = Flags::DONTWAIT;
        let op = match self.r.below(3) {
            0 => Op::Recv { h, len: 20_000, by: RecvBy::Recv, flags, pieces: 1 },
            1 => Op::Send { h, len: 100, by: SendBy::Send, flags, pieces: 1 },
            _ => Op::Poll {
                h,
                events: self.poll_events(),
                also: NONE,
                others: Events::default(),
                set: NONE,
                by: PollBy::Poll,
                wait: Timeout::No,
            },
        };
        self.add(actor, op);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_script_it_has_always_given() {
        let first = |seed| generate(seed, 40).lines.iter().map(Line::to_string).take(3).collect();
        let lines: Vec<String> = first(1);
        assert_eq!(lines.len(), 3);
        assert_eq!(generate(1, 40), generate(1, 40));
        assert_ne!(generate(1, 40), generate(2, 40));
    }

    #[test]
    fn all_operations_come_up() {
        let mut names: Vec<String> = (0..300)
            .flat_map(|seed| generate(seed, 60).lines)
            .map(|line| line.op.to_string().split(' ').next().unwrap_or_default().to_owned())
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 23, "{names:?}");
    }
}
