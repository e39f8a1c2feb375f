//! A script out of a seed.

use crate::op::{
    Advice, CopyBy, Forbidden, GiveBy, Heap, Hold, InputBy, Limited, ListedBy, MapOf, Mutex, Op,
    OutputBy, Rights, Slot, Via, WriteBy,
};
use crate::random::Random;
use crate::script::{Buffer, Line, Script, Storage, room};

const PAGE: usize = 4096;
/// Call sites that the program has.
pub const SITES: usize = 32;

/// The kind of script.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Operations, nearly.
    pub lines: usize,
    /// Threads.
    pub threads: usize,
    /// Whether it forks.
    pub forks: bool,
    /// Whether a timer interrupts.
    pub signals: bool,
    /// Size of the larger buffers, in bytes.
    pub large: usize,
    /// Only what needs no kernel: no protection, locking, sharing, files.
    pub bare: bool,
}

impl Default for Profile {
    fn default() -> Self {
        Self { lines: 160, threads: 1, forks: false, signals: false, large: 512 << 10, bare: false }
    }
}

impl Profile {
    /// The same with forks.
    pub fn with_forks(self) -> Self {
        Self { forks: true, ..self }
    }
}

/// Makes the script of `seed`.
pub fn generate(seed: u64, profile: &Profile) -> Script {
    let mut g = Generator {
        random: Random::new(seed),
        profile,
        script: Script { threads: profile.threads, signals: profile.signals, ..Script::default() },
        sizes: Vec::new(),
        children: 0,
        running: Vec::new(),
    };
    g.buffers();
    while g.script.lines.len() < profile.lines {
        g.more();
    }
    g.script
}

/// The thread that carries a line out: thread, child.
type Who = (usize, Option<usize>);

struct Generator<'a> {
    random: Random,
    profile: &'a Profile,
    script: Script,
    /// How large each buffer is believed to be.
    sizes: Vec<usize>,
    children: usize,
    /// Children that nobody has waited for, and their parents' threads.
    running: Vec<(usize, usize)>,
}

impl Generator<'_> {
    fn add(&mut self, who: Who, op: Op) {
        let fresh = !self.profile.bare && self.random.one_in(40);
        let fresh = fresh && !matches!(op, Op::Fork { .. } | Op::Wait { .. } | Op::Rights { .. });
        self.script.lines.push(Line { thread: who.0, child: who.1, fresh, op });
    }

    fn key(&mut self) -> u64 {
        self.random.bits() >> 32
    }

    // ------------------------------------------------------------ buffers

    fn buffers(&mut self) {
        let p = self.profile;
        let dynamic = if p.bare { 3 } else { 6 + p.threads };
        for _ in 0..dynamic {
            self.slot(Storage::Dynamic, 0, 0);
        }
        let mut fixed = vec![(Storage::Bss, 3), (Storage::Arena, 3 + p.threads / 2)];
        if !p.bare {
            fixed.push((Storage::Data, 1));
            fixed.extend((0..p.threads).map(|t| (Storage::Stack(t), 1)));
        }
        for (place, count) in fixed {
            // Side by side, so that neighbours have bytes on the same page.
            let mut start = self.random.below(2) * self.random.below(PAGE);
            let most = (room(place) - PAGE) / count - 64;
            for _ in 0..count {
                let len = self.size().min(most);
                self.slot(place, start, len);
                start += len + self.random.below(2) * self.random.below(64);
            }
        }
        for slot in 0..dynamic {
            if !self.random.one_in(8) {
                let thread = self.random.below(p.threads);
                self.anew((thread, None), slot);
            }
        }
    }

    fn slot(&mut self, place: Storage, start: usize, len: usize) {
        self.script.slots.push(Buffer { place, start, len });
        self.sizes.push(len);
    }

    /// The size of a buffer.
    fn size(&mut self) -> usize {
        let large = self.profile.large;
        match self.random.below(10) {
            0 => self.random.between(1, 3 * PAGE),
            1 => large / 8 + self.random.below(PAGE),
            2 => large * 2,
            3..6 => (large / 8 + self.random.below(large * 7 / 8)) & !(PAGE - 1),
            _ => large / 4 + self.random.below(large * 3 / 4),
        }
        .max(1)
    }

    /// Makes a new block or mapping.
    fn anew(&mut self, who: Who, slot: Slot) {
        let size = self.size();
        self.sizes[slot] = size;
        let op = if self.random.one_in(2) {
            Op::Alloc { slot, size, by: self.random.pick(Heap::ALL) }
        } else {
            let skew = self.random.below(2) * self.random.below(PAGE);
            let of = match self.random.below(8) {
                0 if !self.profile.bare => self.random.pick(&[MapOf::Shared, MapOf::File]),
                _ => MapOf::Anonymous,
            };
            Op::Map { slot, pages: (size + skew).div_ceil(PAGE), skew, of }
        };
        self.add(who, op);
    }

    // ------------------------------------------------------------ choices

    /// Some buffer, rather one of the thread's own favourites.
    fn some(&mut self, thread: usize) -> Slot {
        let all = self.script.slots.len();
        let slot = self.random.below(all);
        let threads = self.profile.threads;
        let own = slot - slot % threads + thread;
        if threads > 1 && !self.random.one_in(4) && own < all { own } else { slot }
    }

    /// The same, rather a large one.
    fn some_large(&mut self, thread: usize) -> Slot {
        let mut slot = self.some(thread);
        for _ in 0..3 {
            if self.sizes[slot] < self.profile.large / 4 {
                slot = self.some(thread);
            }
        }
        slot
    }

    /// A part of a buffer: offset and length.
    fn part(&mut self, slot: Slot) -> (usize, usize) {
        let size = self.sizes[slot].max(1);
        let at = match self.random.below(10) {
            0..4 => 0,
            4..7 => self.random.below(size) & !(PAGE - 1),
            7 => self.random.below(size.min(64)),
            _ => self.random.below(size),
        };
        let rest = size - at;
        let unit = self.profile.large / 8;
        let len = match self.random.below(20) {
            0 => self.random.between(1, 64),
            1 => self.random.between(1, 3 * PAGE),
            2 => self.random.pick(&[PAGE, 2 * PAGE, 4 * PAGE, 8 * PAGE]) + self.random.below(3) - 1,
            3..6 => unit + self.random.below(3) - 1 + PAGE * self.random.below(2),
            6..8 => unit + self.random.below(unit),
            8..11 => (1 + self.random.below(rest.div_ceil(PAGE))) * PAGE,
            11..14 => self.random.between(1, rest),
            _ => rest,
        };
        (at, len.min(rest))
    }

    fn small(&mut self, slot: Slot) -> (usize, usize) {
        let (at, len) = self.part(slot);
        let within = at + self.random.below(len);
        (within, self.random.between(1, 64).min(at + len - within))
    }

    fn whole_pages(&mut self, slot: Slot) -> (usize, usize) {
        let pages = self.sizes[slot] / PAGE + 1;
        let page = self.random.below(pages);
        let most = if self.random.one_in(3) { pages - page } else { (pages - page).min(8) };
        (page, self.random.between(1, most))
    }

    fn input(&mut self, slot: Slot, at: usize, len: usize) -> Op {
        let r = &mut self.random;
        let via = r.weighted(&[
            (5, Via::File),
            (1, Via::Disk),
            (4, Via::Pipe),
            (6, Via::Unix),
            (1, Via::Datagram),
            (2, Via::Tcp),
            (1, Via::SlowPipe),
        ]);
        use InputBy::*;
        let plain = [Read, Read, ReadChk, Readv, RawRead, RawReadv];
        let placed = [Pread, PreadChk, Preadv, Preadv2, Pread, Preadv];
        let socket = [Recv, RecvChk, RecvPeek, RecvAll, Recvfrom, RecvfromChk, Recvmsg, Recvmsg];
        let by = match via {
            Via::File | Via::Disk if r.one_in(2) => r.pick(&placed),
            Via::Datagram if r.one_in(3) => Recvmmsg,
            Via::Unix | Via::Datagram | Via::Tcp if !r.one_in(3) => r.pick(&socket),
            _ => r.pick(&plain),
        };
        let give = match r.below(6) {
            0 => r.below(len + 1),
            1 => len + r.below(PAGE),
            _ => len,
        };
        let pieces = match r.below(10) {
            0..6 => r.between(2, 5),
            6..9 => r.between(6, 20),
            _ => r.between(40, 70),
        };
        Op::Input { slot, at, len, by, via, give, pieces, key: self.key() }
    }

    fn output(&mut self, slot: Slot, at: usize, len: usize) -> Op {
        let r = &mut self.random;
        let via = r.weighted(&[
            (4, Via::File),
            (1, Via::Disk),
            (4, Via::Pipe),
            (6, Via::Unix),
            (1, Via::Datagram),
            (2, Via::Tcp),
            (1, Via::SlowPipe),
        ]);
        use OutputBy::*;
        let plain = [Write, Write, Writev, Writev, RawWrite];
        let by = match via {
            Via::File | Via::Disk if r.one_in(2) => r.pick(&[Pwrite, Pwritev, Pwritev2]),
            Via::Pipe if r.one_in(6) => Vmsplice,
            Via::Unix | Via::Datagram | Via::Tcp if !r.one_in(3) => {
                r.pick(&[Send, Sendto, Sendmsg, Sendmmsg])
            }
            _ => r.pick(&plain),
        };
        let pieces = if r.one_in(8) { r.between(6, 60) } else { r.between(2, 5) };
        Op::Output { slot, at, len, by, via, pieces, key: self.key() }
    }

    fn copy_by(&mut self) -> CopyBy {
        if self.random.one_in(12) {
            self.random.pick(&[CopyBy::Inline, CopyBy::Kernel])
        } else {
            self.random.pick(&CopyBy::ALL[..7])
        }
    }

    /// Changes or looks at a little of a buffer.
    fn disturb(&mut self, slot: Slot) -> Op {
        let (at, len) = self.small(slot);
        match self.random.below(3) {
            0 => Op::Read { slot, at, len },
            1 => Op::Write { slot, at, len, by: WriteBy::Memset, key: self.key() },
            _ => Op::Write { slot, at, len, by: WriteBy::Stores, key: self.key() },
        }
    }

    // ------------------------------------------------------------ steps

    fn more(&mut self) {
        let thread = self.random.below(self.profile.threads);
        let who = (thread, None);
        if self.profile.forks && self.random.one_in(14) {
            return self.fork(who, 0);
        }
        if let Some(i) = self.running.iter().position(|r| r.1 == thread)
            && self.random.one_in(10)
        {
            let (child, _) = self.running.remove(i);
            return self.add(who, Op::Wait { child });
        }
        if self.random.one_in(6) {
            return self.message(who, None);
        }
        let slot = self.some(thread);
        self.single(who, slot, None);
    }

    /// A message that is received, passed on several times and sent: as servers do. Again and
    /// again, through the same buffers.
    fn message(&mut self, who: Who, among: Option<&[Slot]>) {
        let stops = self.random.between(2, 5);
        let way: Vec<Slot> = (0..stops)
            .map(|_| match among {
                Some(slots) => self.random.pick(slots),
                None => self.some_large(who.0),
            })
            .collect();
        let (_, len) = self.part(way[0]);
        let mut at = Vec::new();
        for &s in &way {
            let spare = self.sizes[s].saturating_sub(len);
            at.push(match self.random.below(3) {
                0 => 0,
                1 => self.random.below(spare + 1) & !(PAGE - 1),
                _ => self.random.below(spare + 1),
            });
        }
        let calls: Vec<_> =
            (1..stops).map(|_| (self.copy_by(), self.random.below(SITES))).collect();
        let rounds = if self.random.one_in(8) { 8 } else { self.random.between(1, 3) };
        for _ in 0..rounds {
            self.receive(who, way[0], at[0], len);
            for (i, &(by, site)) in calls.iter().enumerate() {
                let (src, from, dst, to) = (way[i], at[i], way[i + 1], at[i + 1]);
                self.add(who, Op::Copy { dst, to, src, from, len, by, site });
                if self.random.one_in(4) {
                    let slot = self.random.pick(&way);
                    let op = self.disturb(slot);
                    self.add(who, op);
                }
            }
            let last = stops - 1;
            let op = if self.random.one_in(4) {
                Op::Read { slot: way[last], at: at[last], len }
            } else {
                self.output(way[last], at[last], len)
            };
            self.add(who, op);
        }
    }

    /// A whole message, in one call or in several that go on where the last one ended.
    fn receive(&mut self, who: Who, slot: Slot, at: usize, len: usize) {
        let parts = if self.random.one_in(3) { self.random.between(2, 5) } else { 1 };
        let mut done = 0;
        for part in 1..=parts {
            let rest = len - done;
            let n = if part == parts { rest } else { self.random.below(rest + 1) };
            // The buffer that is offered is the whole rest, more often than not.
            let offered = if self.random.one_in(3) { n } else { rest };
            let op = match self.input(slot, at + done, offered) {
                Op::Input { slot, at, len, by, via, pieces, key, .. } if part < parts => {
                    Op::Input { slot, at, len, by, via, give: n, pieces, key }
                }
                op => op,
            };
            self.add(who, op);
            done += n;
        }
    }

    fn single(&mut self, who: Who, slot: Slot, among: Option<&[Slot]>) {
        let (at, len) = self.part(slot);
        let (page, pages) = self.whole_pages(slot);
        let bare = self.profile.bare;
        // (A bare profile has the scripts that it had before there was more.)
        let op = match self.random.below(if bare { 50 } else { 68 }) {
            0..10 => self.input(slot, at, len),
            10..22 => {
                let src = match among {
                    Some(slots) => self.random.pick(slots),
                    None if self.random.one_in(5) => slot,
                    None => self.some(who.0),
                };
                let (from, n) = self.part(src);
                let (by, site) = (self.copy_by(), self.random.below(SITES));
                Op::Copy { dst: slot, to: at, src, from, len: len.max(n), by, site }
            }
            22..28 => self.output(slot, at, len),
            28..34 => self.disturb(slot),
            34..36 => Op::Read { slot, at, len },
            36 => Op::Write { slot, at, len, by: self.random.pick(WriteBy::ALL), key: self.key() },
            37 => {
                let other = match among {
                    Some(slots) => self.random.pick(slots),
                    None => self.some(who.0),
                };
                Op::Compare { one: slot, at, other, with: self.part(other).0, len }
            }
            38..41 => {
                let how = if self.random.one_in(3) && !bare {
                    self.random.pick(Advice::ALL)
                } else {
                    Advice::DontNeed
                };
                Op::Advise { slot, page, pages, how }
            }
            41 if !bare => {
                Op::Protect { slot, page, pages, then: self.random.pick(Forbidden::ALL) }
            }
            42 if !bare && self.random.one_in(2) => Op::Lock { slot, page, pages },
            43 => Op::MapOver { slot, page, pages },
            44 => Op::Remap { slot, pages: self.size().div_ceil(PAGE) },
            45 => {
                let size = self.size();
                self.grow(slot, size);
                Op::Realloc { slot, size }
            }
            46 => Op::Free { slot },
            50..68 => return self.rarer(who, slot, among),
            _ => return self.renew(who, slot),
        };
        if let Op::Remap { pages, .. } = op {
            self.grow(slot, pages * PAGE);
        }
        self.add(who, op);
    }

    /// Operations that programs do less often.
    fn rarer(&mut self, who: Who, slot: Slot, among: Option<&[Slot]>) {
        let (at, len) = self.part(slot);
        let (page, pages) = self.whole_pages(slot);
        let op = match self.random.below(18) {
            0..5 => {
                let how = if self.profile.forks && self.random.one_in(3) {
                    self.random.pick(&[Advice::WipeOnFork, Advice::WipeOnFork, Advice::DontFork])
                } else {
                    self.random.pick(Advice::ALL)
                };
                Op::Advise { slot, page, pages, how }
            }
            5 => {
                let how = self.random.pick(&[Hold::Now, Hold::Now, Hold::OnFault, Hold::No]);
                Op::Hold { slot, page, pages: pages.min(16), how }
            }
            6..9 => {
                let by = self.random.weighted(&[(3, GiveBy::Vmsplice), (1, GiveBy::ZeroCopy)]);
                Op::Give { slot, at, len, by, pieces: self.random.between(1, 5), key: self.key() }
            }
            9 => Op::Take { slot },
            10..12 => {
                let list = match among {
                    Some(slots) => self.random.pick(slots),
                    None => self.some(who.0),
                };
                let (within, _) = self.part(list);
                let by = self.random.pick(ListedBy::ALL);
                let via = match by {
                    ListedBy::Preadv => Via::File,
                    ListedBy::Recvmsg | ListedBy::RawRecvmsg | ListedBy::Sendmsg => Via::Unix,
                    _ => self.random.pick(&[Via::File, Via::Pipe, Via::Unix]),
                };
                let pieces = self.random.between(1, 60);
                Op::Listed { slot, at, len, list, within, by, via, pieces, key: self.key() }
            }
            12 => Op::Clone { slot, at, len, key: self.key() },
            13 | 14 => Op::AltStack { slot, at, times: self.random.between(1, 4), key: self.key() },
            15 => Op::Mutex { slot, at, kind: self.random.pick(Mutex::ALL), key: self.key() },
            16 if who.1.is_some() => Op::Rights { how: self.random.pick(Rights::ALL) },
            16 if self.random.one_in(3) => Op::Rights { how: Rights::NoNewPrivs },
            _ => {
                let more = if self.random.one_in(3) { 0 } else { self.random.between(800, 3000) };
                Op::Limit { what: self.random.pick(Limited::ALL), more }
            }
        };
        self.add(who, op);
    }

    fn grow(&mut self, slot: Slot, size: usize) {
        if self.script.slots[slot].place == Storage::Dynamic {
            self.sizes[slot] = size;
        }
    }

    fn renew(&mut self, who: Who, slot: Slot) {
        if self.script.slots[slot].place == Storage::Dynamic {
            self.anew(who, slot);
        } else {
            let op = self.disturb(slot);
            self.add(who, op);
        }
    }

    /// A child, which goes on with some of the buffers while its parent does so too.
    fn fork(&mut self, who: Who, depth: usize) {
        let child = self.children;
        self.children += 1;
        let slots: Vec<Slot> = (0..self.random.between(1, 4)).map(|_| self.some(who.0)).collect();
        self.fork_with(who, depth, child, &slots);
        if depth == 0 {
            self.running.push((child, who.0));
        }
    }

    fn fork_with(&mut self, who: Who, depth: usize, child: usize, slots: &[Slot]) {
        self.add(who, Op::Fork { child });
        let sizes = self.sizes.clone();
        let inside = (who.0, Some(child));
        for _ in 0..self.random.between(2, 10) {
            if depth < 2 && self.random.one_in(12) {
                let grandchild = self.children;
                self.children += 1;
                self.fork_with(inside, depth + 1, grandchild, slots);
            } else if !self.profile.bare && self.random.one_in(12) {
                let how = self.random.pick(Rights::ALL);
                self.add(inside, Op::Rights { how });
            } else if self.random.one_in(6) {
                self.message(inside, Some(slots));
            } else {
                let slot = self.random.pick(slots);
                self.single(inside, slot, Some(slots));
            }
        }
        self.sizes = sizes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_script_and_another_seed_another() {
        let p = Profile { threads: 3, ..Profile::default().with_forks() };
        assert_eq!(generate(9, &p), generate(9, &p));
        assert_ne!(generate(9, &p), generate(10, &p));
    }

    #[test]
    fn every_operation_and_every_call_comes_up() {
        let p = Profile { threads: 2, ..Profile::default().with_forks() };
        let text: String = (0..200).map(|s| generate(s, &p).to_string()).collect();
        let all = |words: Vec<String>| {
            for w in words {
                assert!(text.contains(&w), "{w} never came up");
            }
        };
        all(InputBy::ALL.iter().map(|w| format!("by={w} ")).collect());
        all(OutputBy::ALL.iter().map(|w| format!("by={w} ")).collect());
        all(CopyBy::ALL.iter().map(|w| format!("by={w} ")).collect());
        all(Via::ALL.iter().map(|w| format!("via={w} ")).collect());
        all(Advice::ALL.iter().map(|w| format!("how={w}\n")).collect());
        all(Hold::ALL.iter().map(|w| format!("how={w}\n")).collect());
        all(GiveBy::ALL.iter().map(|w| format!("by={w} ")).collect());
        all(ListedBy::ALL.iter().map(|w| format!("by={w} ")).collect());
        all(Mutex::ALL.iter().map(|w| format!("kind={w} ")).collect());
        all(Rights::ALL.iter().map(|w| format!("how={w}\n")).collect());
        all(Limited::ALL.iter().map(|w| format!("what={w} ")).collect());
        all(Forbidden::ALL.iter().map(|w| format!("then={w}\n")).collect());
        all(MapOf::ALL.iter().map(|w| format!("of={w}\n")).collect());
        all(Heap::ALL.iter().map(|w| format!("by={w}\n")).collect());
        for op in "free remap map_over lock realloc compare fork wait read take clone alt_stack"
            .split(' ')
        {
            assert!(text.contains(&format!(" {op} ")), "{op} never came up");
        }
    }

    #[test]
    fn scripts_are_valid() {
        for seed in 0..50 {
            let p = Profile { threads: 1 + seed as usize % 8, ..Profile::default().with_forks() };
            generate(seed, &p).to_string().parse::<Script>().unwrap();
        }
    }
}
