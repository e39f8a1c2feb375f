//! A machine that has pages or not, as the kernel keeps them; it refuses at random if told to.

#[allow(dead_code, reason = "not every test that has a machine has regions of others")]
pub mod foreign;

use foreign::Foreign;
use uncopy_core::memory::{FillError, Memory, Piece, Stop, Taken};
use uncopy_decide::Refusal;
use uncopy_ranges::ranges::Ranges;
use uncopy_ranges::span::{PAGE, Span};

/// Where the program's memory begins.
pub const BASE: usize = 0x1000_0000;
/// Where the pool begins.
pub const POOL: usize = 0x8000_0000;

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Pages that are there or not, as the kernel keeps them.
pub struct Machine {
    pub program: Vec<Option<Box<[u8; PAGE]>>>,
    pub pool: Vec<Option<Box<[u8; PAGE]>>>,
    pub registered: Ranges,
    pub random: Random,
    pub refusals: bool,
    /// As what all memory is refused to be registered.
    pub register_refuses: Option<Refusal>,
    /// As what all memory is refused to be moved out.
    pub move_refuses: Option<Refusal>,
    /// Whether the memory map is changing, as far as is known.
    pub changing: bool,
    /// Pool bytes that somebody outside refers to, and what they must be: address and content.
    pub lent: Vec<(usize, Vec<u8>)>,
    /// Pages of the program's that somebody outside refers to, wherever they are by now.
    pub references: Vec<Reference>,
    /// Regions of others.
    pub foreign: Vec<Foreign>,
}

/// A page that the program gave to the kernel by reference.
pub struct Reference {
    /// Which it is: where its bytes lie in this test, which moves with nothing.
    pub page: *const u8,
    /// The program's page that it is, as long as it is any: what the program writes there changes
    /// it.
    pub home: usize,
    /// The tracker was told: it must stay there.
    pub stays: bool,
    pub bytes: Vec<u8>,
}

/// The number of the page of the program's memory that `addr` lies in.
pub fn page_of(addr: usize) -> usize {
    (addr - BASE) / PAGE
}

impl Machine {
    /// A machine with `pages` pages for the program and `pool` for the pool, all missing.
    pub fn new(pages: usize, pool: usize, seed: u64, refusals: bool) -> Self {
        Self {
            program: (0..pages).map(|_| None).collect(),
            pool: (0..pool).map(|_| None).collect(),
            registered: Ranges::new(),
            random: Random(seed),
            refusals,
            register_refuses: None,
            move_refuses: None,
            changing: false,
            lent: Vec::new(),
            references: Vec::new(),
            foreign: Vec::new(),
        }
    }

    /// Memory that somebody refers to holds what it held, or what the program wrote to it.
    pub fn check_references(&self) {
        for r in &self.references {
            let at_home = self.program[r.home].as_ref().is_some_and(|p| p.as_ptr() == r.page);
            assert!(
                !r.stays || at_home,
                "page {} was moved though the kernel refers to it",
                r.home
            );
            let mut all = self.program.iter().chain(&self.pool).flatten();
            let Some(page) = all.find(|p| p.as_ptr() == r.page) else { continue };
            let same = page.iter().eq(&r.bytes);
            assert!(same, "a page that was page {} of the program's is filled anew", r.home);
        }
    }

    /// The kernel refers to these pool bytes from now on.
    pub fn lend(&mut self, at: usize, len: usize) {
        let bytes = (at..at + len).map(|a| *self.pool_byte(a)).collect();
        self.lent.push((at, bytes));
    }

    /// Lent memory is what it was, as long as the pages behind it are the same.
    pub fn check_lent(&self) {
        for (at, bytes) in &self.lent {
            for (i, byte) in bytes.iter().enumerate() {
                let (page, offset) = ((at + i - POOL) / PAGE, (at + i) % PAGE);
                let there = self.pool[page].as_ref().map(|p| p[offset]);
                assert_eq!(there, Some(*byte), "a lent byte at {:#x} has changed", at + i);
            }
        }
    }

    /// A byte of the pool.
    pub fn pool_byte(&mut self, addr: usize) -> &mut u8 {
        let page = self.pool[(addr - POOL) / PAGE].get_or_insert_with(|| Box::new([0; PAGE]));
        &mut page[addr % PAGE]
    }

    /// The region of somebody else's that `addr` lies in.
    pub fn foreign_at(&mut self, addr: usize) -> Option<&mut Foreign> {
        self.foreign.iter_mut().find(|f| f.span().contains(addr))
    }

    /// A byte of an extent.
    pub fn extent_byte(&mut self, addr: usize) -> u8 {
        match self.foreign_at(addr) {
            Some(f) => f.byte_in_use(addr),
            None => *self.pool_byte(addr),
        }
    }

    fn refuse(&mut self) -> bool {
        self.refusals && self.random.one_in(8)
    }
}

impl Memory for Machine {
    fn pool_span(&self) -> Span {
        Span::sized(POOL, self.pool.len() * PAGE)
    }

    fn register(&mut self, span: Span) -> Result<(), Refusal> {
        if let Some(why) = self.register_refuses {
            return Err(why);
        }
        if self.refuse() {
            return Err(Refusal::Unsuitable);
        }
        self.registered.insert(span);
        Ok(())
    }

    fn unregister(&mut self, span: Span) {
        self.registered.remove(span);
    }

    fn map_changing(&mut self) -> Option<bool> {
        Some(self.changing || self.refuse())
    }

    fn move_out(&mut self, from: Span, slot: usize, holes_allowed: bool) -> Taken {
        assert!(self.registered.next_gap(from.start, from.end).is_none(), "unregistered move");
        if let Some(why) = self.move_refuses {
            return Taken { pages: 0, stop: Stop::Refused(why) };
        }
        for i in 0..from.pages() {
            if self.refuse() {
                let busy = self.random.one_in(2);
                let why = if busy { Refusal::Busy } else { Refusal::Unsuitable };
                return Taken { pages: i, stop: Stop::Refused(why) };
            }
            assert!(self.pool[slot + i].is_none(), "pool page {} is not vacant", slot + i);
            match self.program[page_of(from.start) + i].take() {
                Some(p) => self.pool[slot + i] = Some(p),
                None if holes_allowed => {}
                None => return Taken { pages: i, stop: Stop::Hole },
            }
        }
        Taken { pages: from.pages(), stop: Stop::Done }
    }

    fn move_in(&mut self, to: Span, from: usize) -> usize {
        assert!(self.registered.next_gap(to.start, to.end).is_none(), "unregistered move");
        assert_eq!(from % PAGE, 0, "a move of parts of pages");
        for i in 0..to.pages() {
            let there = &self.program[page_of(to.start) + i];
            assert!(there.is_none(), "moved onto a page of the program's");
            if self.refuse() {
                return i;
            }
            let from = from + i * PAGE;
            let page = match self.foreign_at(from) {
                Some(f) => f.move_page(from),
                None => self.pool[(from - POOL) / PAGE].take(),
            };
            if page.is_none() {
                return i;
            }
            self.program[page_of(to.start) + i] = page;
        }
        to.pages()
    }

    fn discard(&mut self, slot: usize, pages: usize) -> bool {
        if self.refuse() {
            return false;
        }
        self.check_lent();
        self.check_references();
        // A reference to the old pages keeps them.
        let gone = Span::sized(POOL + slot * PAGE, pages * PAGE);
        for (at, bytes) in std::mem::take(&mut self.lent) {
            let end = at + bytes.len();
            let left = at..gone.start.clamp(at, end);
            let right = gone.end.clamp(at, end)..end;
            for part in [left, right].into_iter().filter(|p| !p.is_empty()) {
                self.lent.push((part.start, bytes[part.start - at..part.end - at].to_vec()));
            }
        }
        for gone in &mut self.pool[slot..slot + pages] {
            if let Some(gone) = gone.take() {
                self.references.retain(|r| r.page != gone.as_ptr());
            }
        }
        true
    }

    fn room(&mut self) -> bool {
        !self.refuse()
    }

    fn books_have_room(&mut self) -> bool {
        !self.refuse()
    }

    fn fill(&mut self, span: Span, pieces: &[Piece]) -> (usize, Result<(), FillError>) {
        let mut bytes = Vec::new();
        for p in pieces {
            match *p {
                Piece::Bytes { from, len } => {
                    bytes.extend((0..len).map(|i| self.extent_byte(from + i)));
                }
                Piece::Zero { len } => bytes.resize(bytes.len() + len, 0),
            }
        }
        assert_eq!(bytes.len(), span.len(), "pieces do not tile the pages");
        for (i, chunk) in bytes.chunks_exact(PAGE).enumerate() {
            if self.refuse() {
                return (i, Err(FillError::Again));
            }
            let page = &mut self.program[page_of(span.start) + i];
            if page.is_none() {
                *page = Some(Box::new(chunk.try_into().unwrap()));
            }
        }
        (span.pages(), Ok(()))
    }
}
