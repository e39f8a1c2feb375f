//! Whether a call site's copies are worth eliding.
//!
//! An account for each call site and size class, in nanoseconds: elided bytes earn what copying them
//! would have cost; keeping the books, page-table calls, faults, and the detours of input and output
//! through extents pay. A site whose credit is used up, or that saves next to nothing of its process's time
//! ([`crate::window`]), is left alone for a number of copies that grows fourfold every time, then tried again. The prices are [`Costs`], corrected by what is measured in the program
//! itself ([`crate::prices`]).

use crate::prices::{Charged, CopyPrices, Scale};
use crate::shared::{CLASS_BITS, RECORDS, Reason, Record, Records, UNTRIED, bump};
use crate::span::PAGE;
use crate::trial::{LOSS_MAX, Outcome, Progress, Trial};
use crate::window::{Times, Verdict, Window};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Names the account of a call site and size class; 0 is nobody's.
pub type SiteId = u16;

/// What things cost on this machine, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Copying 1 MB, most of it in the cache (cold it takes 144 us on the reference machine, hot 30):
    /// what is copied has just been received.
    pub copy_mb: i64,
    /// The books of a copy that does what the last one did.
    pub again: i64,
    /// The books of any other elided copy.
    pub elide: i64,
    /// Looking at a copy in vain.
    pub look: i64,
    /// Receiving into an extent instead of in place.
    pub input: i64,
    /// Gathering an output from extents; its bytes cost a part of what copying them would.
    pub output: i64,
    /// One fault, handled by the thread on another core.
    pub fault: i64,
    /// Each page that a fault fills.
    pub fill: i64,
    /// Each page that the kernel provides anew, cleared.
    pub fresh: i64,
    /// One `UFFDIO_MOVE` call.
    pub move_pages: i64,
    /// Each page of it.
    pub move_page: i64,
    /// One `UFFDIO_REGISTER` call.
    pub register: i64,
    /// A refusal by the kernel: the call, and what follows because of it.
    pub refused: i64,
    /// Receiving into an extent what is then freed without having been copied or sent.
    pub wasted_input: i64,
    /// The kernel's copying of 1 MB from memory into a socket.
    pub send_mb: i64,
    /// Handing pages to the kernel: each call.
    pub lend: i64,
    /// The same: each page.
    pub lend_page: i64,
    /// Dropping a page that was lent and getting another.
    pub drop_page: i64,
}

impl Costs {
    /// Measured on the reference machine (see the README's tables).
    pub const REFERENCE: Self = Self {
        copy_mb: 40_000,
        again: 120,
        elide: 500,
        look: 250,
        input: 500,
        output: 300,
        fault: 11_000,
        fill: 1_000,
        fresh: 1_200,
        move_pages: 2_000,
        move_page: 60,
        register: 1_500,
        refused: 20_000,
        wasted_input: 10_000,
        send_mb: 60_000,
        lend: 4_000,
        lend_page: 60,
        drop_page: 1_300,
    };
}

impl Costs {
    /// From how many bytes on a send by reference costs less than the kernel's copying.
    pub fn lend_from(&self) -> usize {
        let gain = self.send_mb * PAGE as i64 / (1 << 20) - self.lend_page;
        let pages = if gain > 0 { self.lend / gain + 1 } else { i64::from(u32::MAX) };
        (pages as usize * PAGE).max(LEND_MIN)
    }
}

/// Least that one call lends, in bytes, whatever the prices are.
pub const LEND_MIN: usize = 32 << 10;

/// Most credit that a site can hold, in ns, and begins with where no other has fallen into debt: what it may
/// invest in registering and moving its buffers before they come round again (which costs the same whatever
/// their size), or waste after its program has turned bad.
pub const CREDIT_MAX: i64 = 4_000_000;
/// But no more than copying so many times what its copies are of costs: what a site may gain grows with their size.
const WORTH: i64 = 1536;
/// Most credit after a pause, and the same for it.
const CREDIT_AGAIN: i64 = 1_000_000;
const WORTH_AGAIN: i64 = 128;
/// Each site in debt halves what a new one begins with, so many times at most: a program where elision does not pay
/// has many call sites, and each would find that out for itself.
const HALVED_MAX: u32 = 4;
/// Faults weigh more than they cost: they are mis-speculation, not investment.
const FAULT_WEIGHT: i64 = 4;
/// But for so many at first, and after each pause: a page that a program touches in every message (a header, a trailer) is
/// found out by one fault, and stays resident from then on. Those of the first try are charged half of its credit at most.
const FINDING_OUT: u8 = 128;
/// How much of a copy's price an output pays for bytes that are not in the cache, besides [`COLD_OUTPUT`]:
/// Redis, which makes one copy of a value that it has not touched for long, loses by eliding it at 64 KB
/// and gains a tenth of its time at most at 512 KB.
pub const COLD_OUTPUT_8THS: i64 = 6;
/// The same for bytes that are: the copy would have left them one level nearer to the processor, and whoever reads them next
/// waits for what the copy waited for. So of several copies of the same bytes the first saves least.
const WARM_8THS: i64 = 2;
/// What an output of bytes that are not in the cache costs more than one of others, in ns: short pieces are
/// over before the processor fetches ahead.
pub const COLD_OUTPUT: i64 = 2_000;
const FIRST_PAUSE: u32 = 256;
const LONGEST_PAUSE_SHIFT: u8 = 12;
/// Each pause is so many powers of two longer than the one before: a try costs its credit, whatever comes of it.
const PAUSE_GROWS: u8 = 2;

/// A rest of so many copies is long enough for registering the site's buffers once more after it.
const LONG_REST: u32 = 512;

/// After so many elided copies a site whose copies were never timed rests for [`AUDIT`] copies: what they cost is not known
/// until it does.
const AUDIT_AFTER: u32 = 256;
/// Every second of the last so many copies of a rest is timed.
pub const AUDIT: u32 = 128;

/// Copies that sites are still to be left alone for, readable without the lock: a copy at a resting
/// site, of memory that is not tracked, must cost next to nothing.
#[repr(C)]
#[derive(Debug)]
pub struct Pauses {
    left: [AtomicU32; PAUSES],
    /// Not 0: all sites elide, and nobody's rest goes on (see [`crate::trial`]).
    pub all_elide: AtomicU32,
}

/// How many there are; sites share them by hash.
pub const PAUSES: usize = 4096;

impl Default for Pauses {
    fn default() -> Self {
        Self::new()
    }
}

impl Pauses {
    /// Nobody rests.
    pub const fn new() -> Self {
        Self { left: [const { AtomicU32::new(0) }; PAUSES], all_elide: AtomicU32::new(0) }
    }

    /// Whether the transfers of `len` bytes for `caller`, which are no copies, rest; counts this one.
    #[inline]
    pub fn rests(&self, caller: usize, len: usize) -> bool {
        self.tick(slot(key(caller, len))) > 0
    }

    /// How many copies of `len` bytes for `caller`, this one among them, are still to be left alone; counts it.
    #[inline]
    pub fn left(&self, caller: usize, len: usize) -> u32 {
        if self.all_elide() { 0 } else { self.tick(slot(key(caller, len))) }
    }

    /// Whether all sites elide.
    #[inline]
    pub fn all_elide(&self) -> bool {
        self.all_elide.load(Relaxed) != 0
    }

    fn tick(&self, slot: usize) -> u32 {
        let left = self.left[slot].load(Relaxed);
        if left > 0 {
            // Two threads may count one copy: no harm.
            self.left[slot].store(left - 1, Relaxed);
        }
        left
    }
}

/// Largest size class told apart: copies of 1 MB and more are one.
const CLASS_MAX: u32 = 20;
/// How many there are.
pub(crate) const CLASSES: usize = CLASS_MAX as usize + 1;

/// Call site and size class (powers of two) in one word.
#[inline]
pub(crate) fn key(caller: usize, len: usize) -> usize {
    let class = len.max(1).ilog2().min(CLASS_MAX) as usize;
    caller << CLASS_BITS | class
}

/// The size class in a key.
pub(crate) fn class(key: usize) -> usize {
    (key & ((1 << CLASS_BITS) - 1)).min(CLASSES - 1)
}

/// A hash of a key.
#[inline]
fn hash(key: usize) -> usize {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

pub(crate) fn slot(key: usize) -> usize {
    hash(key) % PAUSES
}

#[derive(Clone, Copy, Debug, Default)]
struct Site {
    key: usize,
    credit: i64,
    pause_shift: u8,
    record: u16,
    /// Copies to be elided until it is audited; 0: it will not be.
    unaudited: u32,
    /// Faults that are still charged as what they cost, or less.
    finding_out: u8,
    /// It rests to be timed: undoing what it did is not its own fault.
    audited: bool,
    /// It has used its credit up, and not earned its way out of that.
    in_debt: bool,
    /// It rested last because what it saves is not worth having.
    light: bool,
    /// It sends by reference, or its copies are not made by the processor: trials are not its concern.
    untried: bool,
    window: Window,
}

const SITES: usize = 2048;

/// The accounts of all call sites.
#[derive(Debug)]
pub struct Policy {
    sites: Box<[Site]>,
    pauses: &'static Pauses,
    records: &'static Records,
    /// What copies cost in this program.
    copies: &'static CopyPrices,
    /// How late it is.
    now: fn() -> Option<Times>,
    /// How much dearer our own books are in it.
    scale: Scale,
    recorded: u16,
    /// How many sites have fallen into debt and not earned their way out of it.
    in_debt: u32,
    /// What all sites have saved, in ns, but for faults and page-table calls.
    saved: i64,
    trial: Trial,
    /// Bytes that were elided for sites that are tried.
    elided: u64,
    /// No accounts are kept: all sites elide, or undo that.
    frozen: bool,
    /// What faults have taken lately, in ns, that eliding all did not make up for.
    lost: i64,
    /// What is charged.
    pub costs: Costs,
    /// Smallest copy that is considered, in bytes.
    pub threshold: usize,
    /// Whether sites in debt are left alone.
    pub backoff: bool,
}

impl Policy {
    /// Every site free to elide copies of `threshold` bytes and more.
    pub fn new(threshold: usize, backoff: bool, costs: Costs, pauses: &'static Pauses) -> Self {
        static NOBODYS: Records = Records::new();
        static UNKNOWN: CopyPrices = CopyPrices::new();
        let sites = vec![Site::default(); SITES].into_boxed_slice();
        Self {
            sites,
            pauses,
            records: &NOBODYS,
            copies: &UNKNOWN,
            now: || None,
            scale: Scale::default(),
            recorded: 0,
            in_debt: 0,
            saved: 0,
            trial: Trial::default(),
            elided: 0,
            frozen: false,
            lost: 0,
            costs,
            threshold,
            backoff,
        }
    }

    /// Writes down in `records` what is done for each call site.
    #[must_use]
    pub fn recording(mut self, records: &'static Records) -> Self {
        self.records = records;
        self
    }

    /// Takes what copies cost here from `copies`.
    #[must_use]
    pub fn priced_by(mut self, copies: &'static CopyPrices) -> Self {
        self.copies = copies;
        self
    }

    /// Asks `now` how late it is, now and then.
    #[must_use]
    pub fn timed_by(mut self, now: fn() -> Option<Times>) -> Self {
        self.now = now;
        self
    }

    /// What copying 1 MB costs `site`, in ns.
    #[inline]
    fn copy_mb(&self, site: SiteId) -> i64 {
        self.copies.of(self.sites[site as usize].key, self.costs.copy_mb)
    }

    /// What our own calls have been charged at modelled prices since this was asked last.
    #[inline]
    pub fn charged(&mut self) -> Charged {
        self.scale.restart()
    }

    /// What was `charged` for a copy of `site` took `ns`, the copying of `copied` bytes included. Returns what the books
    /// cost here, in percent of what is modelled; 0: not known.
    pub fn took(&mut self, site: SiteId, charged: Charged, ns: u64, copied: usize) -> u64 {
        let copying = (copied as i64).saturating_mul(self.copy_mb(site)) >> 20;
        self.scale.took(charged, ns.min(i64::MAX as u64) as i64 - copying);
        self.scale.percent()
    }

    #[inline]
    fn record(&self, site: SiteId) -> &'static Record {
        &self.records.0[self.sites[site as usize].record as usize % RECORDS]
    }

    /// A record for the account of `key`, while there are any.
    #[cold]
    fn open_record(&mut self, key: usize) -> u16 {
        if self.recorded as usize + 1 >= RECORDS {
            return 0;
        }
        self.recorded += 1;
        let r = &self.records.0[self.recorded as usize];
        r.key.store(key as u64, Relaxed);
        r.credit.store(self.first_credit(key), Relaxed);
        r.pause.store(slot(key) as u32, Relaxed);
        self.recorded
    }

    fn first_credit(&self, key: usize) -> i64 {
        self.full_credit(key) >> self.in_debt.min(HALVED_MAX)
    }

    /// What the account `key` begins with where no other is in debt.
    fn full_credit(&self, key: usize) -> i64 {
        self.worth(key, WORTH).min(CREDIT_MAX)
    }

    /// What it goes on with after a pause.
    fn credit_again(&self, key: usize) -> i64 {
        self.worth(key, WORTH_AGAIN).min(CREDIT_AGAIN)
    }

    /// What so many `copies` of the account `key` cost, in ns.
    fn worth(&self, key: usize, copies: i64) -> i64 {
        (copies << class(key)).saturating_mul(self.copies.of(key, self.costs.copy_mb)) >> 20
    }

    /// A copy of `site` was not elided.
    pub fn missed(&self, site: SiteId, why: Reason) {
        self.record(site).missed(why);
    }

    /// The account of copies of `len` bytes for the call site that returns to `caller`. Sites share
    /// an account when the table is full.
    #[inline]
    pub fn site(&mut self, caller: usize, len: usize) -> SiteId {
        let key = key(caller, len);
        let hash = hash(key);
        for probe in 0..8 {
            let i = (hash + probe) % (SITES - 1) + 1;
            if self.sites[i].key == 0 {
                let record = self.open_record(key);
                let credit = self.first_credit(key);
                let unaudited = AUDIT_AFTER;
                let finding_out = FINDING_OUT;
                self.sites[i] =
                    Site { key, credit, record, unaudited, finding_out, ..Site::default() };
            }
            if self.sites[i].key == key {
                return i as SiteId;
            }
        }
        (hash % (SITES - 1) + 1) as SiteId
    }

    /// Whether this copy of `len` bytes should be elided; counts down a pause.
    pub fn allows(&mut self, site: SiteId, len: usize) -> bool {
        len >= self.threshold && (self.joins(site) || self.tick(site))
    }

    /// Whether `len` bytes should be sent by reference for `site`; counts down a pause.
    pub fn allows_lending(&mut self, site: SiteId, len: usize) -> bool {
        self.never_try(site);
        len >= self.threshold && self.tick(site)
    }

    fn never_try(&mut self, site: SiteId) {
        let s = &mut self.sites[site as usize];
        if !s.untried && s.record > 0 {
            self.records.0[s.record as usize].pause.fetch_or(UNTRIED, Relaxed);
        }
        s.untried = true;
    }

    fn tick(&self, site: SiteId) -> bool {
        self.pauses.tick(slot(self.sites[site as usize].key)) == 0
    }

    fn left(&self, site: SiteId) -> u32 {
        if self.joins(site) {
            return 0;
        }
        self.pauses.left[slot(self.sites[site as usize].key)].load(Relaxed)
    }

    /// Whether `site` elides, whatever its account says, because all do.
    #[inline]
    fn joins(&self, site: SiteId) -> bool {
        self.pauses.all_elide() && !self.sites[site as usize].untried
    }

    /// Whether the account of `site` is not kept at present.
    #[inline]
    fn is_frozen(&self, site: SiteId) -> bool {
        self.frozen && !self.sites[site as usize].untried
    }

    /// Whether `site` is left alone at present.
    pub fn paused(&self, site: SiteId) -> bool {
        self.left(site) > 0
    }

    /// Whether `site` is left alone for long: what it has registered is better let go.
    pub fn rests_long(&self, site: SiteId) -> bool {
        self.left(site) >= LONG_REST
    }

    /// Whether what `site` copies has been going on untouched.
    pub fn trusts(&self, site: SiteId) -> bool {
        let Site { key, credit, .. } = self.sites[site as usize];
        self.joins(site) || !self.paused(site) && credit > self.full_credit(key) / 2
    }

    /// The program's large copies have come to `copied` bytes by now. Returns what a trial has come to that ended with that.
    pub fn try_together(&mut self, copied: u64) -> Option<Outcome> {
        let elided = self.elided;
        let times = if self.backoff { (self.now)() } else { None };
        let now = times.map(|times| Progress { times, copied, elided });
        let mut outcome = None;
        match now {
            Some(now) if self.lost < LOSS_MAX => {
                outcome = self.trial.look(now, self.costs.copy_mb.unsigned_abs());
            }
            _ if self.frozen => {
                self.trial.give_up(now);
                (outcome, self.lost) = (Some(Outcome::Lost), 0);
            }
            _ => {}
        }
        let all = self.trial.all_elide();
        self.frozen = all || self.trial.settles();
        if all != self.pauses.all_elide() {
            self.pauses.all_elide.store(u32::from(all), Relaxed);
            self.lost = 0;
            // (The time that passed meanwhile is no site's own.)
            self.sites.iter_mut().for_each(|s| s.window = Window::default());
        }
        outcome
    }

    /// While no accounts are kept: a fault took `ns`, or a copy that was not made saved them. Faults that go on and on are what a
    /// trial must not wait for the end of a stretch for.
    fn lose(&mut self, ns: i64) {
        self.lost = (self.lost + ns).max(0);
        if self.lost >= LOSS_MAX {
            // (What is next to be looked at ends it for good.)
            self.pauses.all_elide.store(0, Relaxed);
        }
    }

    /// `bytes` were elided for `site`; the books of it took `cost` ns.
    #[inline]
    pub fn earn(&mut self, site: SiteId, bytes: usize, cost: i64) {
        let cost = self.scale.books(cost);
        let gain = (bytes as i64).saturating_mul(self.copy_mb(site)) >> 20;
        let r = self.record(site);
        bump(&r.elided, 1);
        bump(&r.elided_bytes, bytes as u64);
        if !self.sites[site as usize].untried {
            self.elided += bytes as u64;
        }
        if self.is_frozen(site) {
            self.lose(-gain);
            return;
        }
        self.gain(site, gain);
        if site == 0 || !self.backoff {
            return;
        }
        self.charge_steady(site, cost);
        // (Small views that stay while it rests go on being copied as such.)
        if self.paused(site) {
            return;
        }
        self.weigh(site);
        let s = &mut self.sites[site as usize];
        s.audited = false;
        if s.unaudited > 0 {
            s.unaudited -= 1;
            if s.unaudited == 0 {
                self.audit(site);
            }
        }
    }

    /// `site` has elided one copy more. (Sites that send by reference are not weighed.)
    #[inline]
    fn weigh(&mut self, site: SiteId) {
        if self.sites[site as usize].window.elided() {
            self.window_ends(site);
        }
    }

    #[cold]
    fn window_ends(&mut self, site: SiteId) {
        let s = &mut self.sites[site as usize];
        match s.window.end((self.now)(), self.saved) {
            Verdict::Unknown => {}
            Verdict::Worth => s.light = false,
            Verdict::Light => {
                s.light = true;
                self.rest(site);
            }
        }
    }

    /// The copies of `len` bytes for `caller` are not made by the processor: nobody times them.
    pub fn never_audit(&mut self, caller: usize, len: usize) {
        let site = self.site(caller, len);
        self.sites[site as usize].unaudited = 0;
        self.never_try(site);
    }

    /// Lets a site rest whose copies were never timed.
    #[cold]
    fn audit(&mut self, site: SiteId) {
        let s = &mut self.sites[site as usize];
        if self.copies.timed(s.key) {
            return;
        }
        s.audited = true;
        self.pause(site, AUDIT);
    }

    /// The program touched what `site` had left unmapped: one fault, which filled `pages`.
    pub fn fault(&mut self, site: SiteId, pages: usize) {
        let cost = self.costs.fault + pages as i64 * self.costs.fill;
        let r = self.record(site);
        bump(&r.faults, 1);
        bump(&r.touched_pages, pages as u64);
        if self.is_frozen(site) {
            self.lose(cost);
            return;
        }
        let s = &self.sites[site as usize];
        let cost = match (s.finding_out > 0, s.pause_shift) {
            // (Where waking a thread is slow, so many faults would take more than a site begins with.)
            (true, 0) => cost.min(self.first_credit(s.key) / (2 * i64::from(FINDING_OUT))),
            (true, _) => cost,
            (false, _) => FAULT_WEIGHT * cost,
        };
        let s = &mut self.sites[site as usize];
        s.finding_out = s.finding_out.saturating_sub(1);
        self.charge(site, cost);
    }

    /// An input call received into an extent for `site`.
    pub fn received(&mut self, site: SiteId) {
        self.charge_books(site, self.costs.input);
    }

    /// Memory was freed in which `site` had left views: as much to look up and to change as a copy that does what the last
    /// one did.
    pub fn freed(&mut self, site: SiteId) {
        self.charge_books(site, self.costs.again);
    }

    /// An output of `bytes` was gathered from what `site` elided, `cold_bytes` of it from memory that is hardly in the
    /// cache any more: the copy would have brought them there, now the kernel reads them cold.
    pub fn gathered(&mut self, site: SiteId, bytes: usize, cold_bytes: usize) {
        let warm_bytes = bytes.saturating_sub(cold_bytes) as i64;
        let eighths = warm_bytes * WARM_8THS + cold_bytes as i64 * COLD_OUTPUT_8THS;
        let reading = eighths.saturating_mul(self.copy_mb(site)) >> 23;
        let start = if cold_bytes > 0 { COLD_OUTPUT } else { 0 };
        let books = self.scale.books(self.costs.output);
        self.charge_steady(site, books + start + reading);
    }

    /// A copy of `bytes` that `site` had elided was executed: it has to find them, and reads what the copy that was elided would
    /// have brought nearer.
    pub fn copied_out(&mut self, site: SiteId, bytes: usize) {
        let reading = (bytes as i64 * WARM_8THS).saturating_mul(self.copy_mb(site)) >> 23;
        let books = self.scale.books(self.costs.elide);
        self.charge_steady(site, books + reading);
    }

    /// `bytes` in `pages` pages were sent by reference for `site`.
    pub fn lent(&mut self, site: SiteId, bytes: usize, pages: usize) {
        let c = self.costs;
        let saved = (bytes as i64).saturating_mul(c.send_mb) >> 20;
        let r = self.record(site);
        bump(&r.elided, 1);
        bump(&r.elided_bytes, bytes as u64);
        self.gain(site, saved);
        self.charge_steady(site, c.lend + c.lend_page * pages as i64);
    }

    /// `pages` that `site` had lent were dropped.
    pub fn dropped(&mut self, site: SiteId, pages: usize) {
        self.charge_steady(site, self.costs.drop_page * pages as i64);
    }

    /// A copy of `site` was looked at in vain.
    pub fn looked(&mut self, site: SiteId) {
        self.charge_books(site, self.costs.look);
    }

    /// A range was registered for `site`.
    pub fn registered(&mut self, site: SiteId) {
        let ns = self.scale.pages(self.costs.register);
        self.charge(site, ns);
    }

    /// `pages` were moved for `site` in `calls` system calls.
    pub fn moved(&mut self, site: SiteId, calls: u64, pages: usize) {
        let moves = self.price_of_moves(calls, pages);
        let ns = self.scale.pages(moves);
        self.charge(site, ns);
    }

    fn price_of_moves(&self, calls: u64, pages: usize) -> i64 {
        self.costs.move_pages * calls as i64 + self.costs.move_page * pages as i64
    }

    /// The program uses memory again that was freed while unmapped because of `site`: one fault.
    pub fn taken_back(&mut self, site: SiteId) {
        bump(&self.record(site).faults, 1);
        if self.is_frozen(site) {
            self.lose(self.costs.fault);
        }
        self.charge(site, FAULT_WEIGHT * self.costs.fault);
    }

    /// What was unmapped because of `site` is ordinary memory again: a page-table call, and `pages` that the
    /// kernel clears as they are touched.
    pub fn fresh(&mut self, site: SiteId, pages: usize) {
        let pages = pages as i64 * self.costs.fresh;
        let call = self.scale.pages(self.costs.register);
        self.charge(site, call + pages);
    }

    /// `pages` that `site` had unmapped were composed before anybody touched them: one call.
    pub fn filled(&mut self, site: SiteId, pages: usize) {
        let ns = self.costs.move_pages + self.costs.fill * pages as i64;
        self.charge(site, ns);
    }

    /// `pages` of the pool were cleared (half a copy) and moved where `site` had unmapped others.
    pub fn recycled(&mut self, site: SiteId, pages: usize) {
        let clearing = ((pages * PAGE) as i64).saturating_mul(self.costs.copy_mb / 2) >> 20;
        let moves = self.price_of_moves(1, pages);
        let ns = self.scale.pages(moves) + self.scale.pages(clearing);
        self.charge(site, ns);
    }

    /// Keeping the books for `site` is modelled to cost `ns`.
    fn charge_books(&mut self, site: SiteId, ns: i64) {
        let ns = self.scale.books(ns);
        self.charge_steady(site, ns);
    }

    /// `site` costs `ns`, and will go on to do so.
    #[inline]
    fn charge_steady(&mut self, site: SiteId, ns: i64) {
        self.saved -= ns;
        self.sites[site as usize].window.saved -= ns;
        self.debit(site, ns);
    }

    /// `site`'s decision cost `ns`: once, or wasted.
    #[inline]
    pub fn charge(&mut self, site: SiteId, ns: i64) {
        self.sites[site as usize].window.spent += ns;
        self.debit(site, ns);
    }

    #[inline]
    fn debit(&mut self, site: SiteId, ns: i64) {
        if site == 0 || !self.backoff {
            return;
        }
        if self.is_frozen(site) {
            return;
        }
        if self.paused(site) {
            self.charge_resting(site, ns);
            return;
        }
        let s = &mut self.sites[site as usize];
        s.credit -= ns;
        if s.credit < 0 {
            self.fall_into_debt(site);
        }
        let s = &self.sites[site as usize];
        self.records.0[s.record as usize % RECORDS].credit.store(s.credit, Relaxed);
    }

    /// What a site costs while it rests (undoing what it did; small views that stay) leaves it less for its next try, but
    /// lengthens no pause: it says nothing about how the next try will go.
    fn charge_resting(&mut self, site: SiteId, ns: i64) {
        let least = self.credit_again(self.sites[site as usize].key) / 2;
        let s = &mut self.sites[site as usize];
        if !s.audited {
            s.credit = s.credit.min((s.credit - ns).max(least));
        }
    }

    #[cold]
    fn fall_into_debt(&mut self, site: SiteId) {
        let s = &mut self.sites[site as usize];
        self.in_debt += u32::from(!s.in_debt);
        s.in_debt = true;
        self.rest(site);
    }

    /// `site` is left alone, for longer than the last time.
    fn rest(&mut self, site: SiteId) {
        let key = self.sites[site as usize].key;
        let credit = self.credit_again(key);
        let s = &mut self.sites[site as usize];
        (s.credit, s.finding_out, s.audited) = (credit, FINDING_OUT, false);
        let pause = FIRST_PAUSE << s.pause_shift;
        s.pause_shift = (s.pause_shift + PAUSE_GROWS).min(LONGEST_PAUSE_SHIFT);
        self.record(site).credit.store(credit, Relaxed);
        self.pause(site, pause);
    }

    /// Whoever shares `site`'s pause begins a new window after it.
    fn pause(&mut self, site: SiteId, copies: u32) {
        let slot_of_all = slot(self.sites[site as usize].key);
        self.pauses.left[slot_of_all].store(copies, Relaxed);
        bump(&self.record(site).paused, u64::from(copies));
        for s in self.sites.iter_mut().filter(|s| slot(s.key) == slot_of_all) {
            s.window = Window::default();
        }
    }

    #[inline]
    fn gain(&mut self, site: SiteId, ns: i64) {
        self.saved += ns;
        let s = &mut self.sites[site as usize];
        s.window.saved += ns;
        s.credit += ns;
        if s.credit > CREDIT_MAX {
            s.credit = CREDIT_MAX;
            self.in_debt -= u32::from(s.in_debt);
            s.in_debt = false;
            if !s.light {
                s.pause_shift = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        let pauses = Box::leak(Box::new(Pauses::new()));
        Policy::new(32 << 10, true, Costs::REFERENCE, pauses)
    }

    #[test]
    fn a_site_whose_data_is_touched_is_left_alone_for_longer_and_longer() {
        let mut p = policy();
        let site = p.site(0x1234, 1 << 20);
        let mut pauses = Vec::new();
        for _ in 0..3 {
            while p.allows(site, 1 << 20) {
                p.charge(site, 50 * p.costs.fault);
            }
            let mut pause = 1;
            while !p.allows(site, 1 << 20) {
                pause += 1;
            }
            pauses.push(pause);
        }
        assert!(pauses.windows(2).all(|w| w[1] > w[0] + w[0] / 2), "{pauses:?}");
    }

    #[test]
    fn a_site_that_earns_survives_a_fault_now_and_then() {
        let mut p = policy();
        let site = p.site(0x1234, 1 << 20);
        let mut rested = 0;
        for _ in 0..10_000 {
            if !p.allows(site, 512 << 10) {
                rested += 1;
                continue;
            }
            p.earn(site, 512 << 10, p.costs.elide);
            p.charge(site, p.costs.fault);
        }
        assert_eq!(rested, AUDIT, "nothing but its audit");
    }

    #[test]
    fn finding_out_which_pages_are_touched_in_every_message_does_not_end_a_try() {
        let mut p = policy();
        let site = p.site(0x1234, 512 << 10);
        (0..FINDING_OUT).for_each(|_| p.fault(site, 1));
        assert!(p.allows(site, 512 << 10));
        // Who goes on touching is charged more.
        (0..FINDING_OUT).for_each(|_| p.fault(site, 1));
        assert!(!p.allows(site, 512 << 10));
    }

    #[test]
    fn what_a_site_may_waste_grows_with_the_size_of_its_copies() {
        let mut p = policy();
        let (small, large) = (p.site(0x1234, 32 << 10), p.site(0x5678, 1 << 20));
        for site in [small, large] {
            p.charge(site, CREDIT_MAX - 1);
        }
        assert!(p.paused(small) && !p.paused(large));
    }

    thread_local! {
        /// How late it is for the test's program.
        static USED: core::cell::Cell<Times> = const { core::cell::Cell::new(Times { cpu: 0, wall: 0 }) };
    }

    /// `site` elides `copies`, as far as it may; `between` ns pass from one to the next. Returns how many rested.
    fn elides(p: &mut Policy, site: SiteId, len: usize, copies: u32, between: u64) -> u32 {
        (0..copies).fold(0, |rested, _| {
            let Times { cpu, wall } = USED.get();
            USED.set(Times { cpu: cpu + between, wall: wall + between });
            if !p.allows(site, len) {
                return rested + 1;
            }
            p.earn(site, len, p.costs.again);
            rested
        })
    }

    #[test]
    fn a_site_that_saves_next_to_nothing_of_what_its_process_does_rests_for_longer_and_longer() {
        let copies = 20_000;
        // (A copy of 64 KB saves some 2.4 us, one of 1 MB 40.)
        for (len, between, rests) in [
            (64 << 10, 10_000, false),
            (64 << 10, 1_000_000, true),
            (1 << 20, 200_000, false),
            (1 << 20, 2_000_000, true),
        ] {
            let mut p = policy().timed_by(|| Some(USED.get()));
            let site = p.site(0x1234, len);
            let rested = elides(&mut p, site, len, copies, between);
            assert_eq!(rested > copies * 9 / 10, rests, "{between}: {rested} of {copies} rested");
            assert!(rests || rested == AUDIT, "{between}: {rested}");
            // It gains: what new sites begin with is not its concern.
            assert_eq!(p.in_debt, 0);
        }
    }

    #[test]
    fn a_site_that_still_invests_is_not_weighed_by_what_it_saves() {
        let mut p = policy().timed_by(|| Some(USED.get()));
        // (A copy saves a little less than its part, moving a little more than that is spent.)
        let (len, between, moves) = (1 << 20, 1_300_000, 21);
        let site = p.site(0x1234, len);
        let rested = (0..1_000).fold(0, |rested, _| {
            p.moved(site, moves, 1);
            rested + elides(&mut p, site, len, 1, between)
        });
        assert_eq!(rested, AUDIT);
        assert!(elides(&mut p, site, len, 1_000, between) > 0, "nothing is invested any more");
    }

    #[test]
    fn finding_out_which_pages_are_touched_does_not_end_a_try_where_faults_are_slow() {
        let mut p = policy();
        p.costs.fault *= 4;
        for others_in_debt in 0..3 {
            let site = p.site(0x1234 + others_in_debt, 512 << 10);
            (0..FINDING_OUT).for_each(|_| p.fault(site, 1));
            assert!(p.allows(site, 512 << 10), "{others_in_debt}");
            p.charge(site, CREDIT_MAX);
        }
    }

    #[test]
    fn small_views_that_go_on_being_copied_while_a_site_rests_lengthen_no_pause_and_end_no_audit() {
        let mut p = policy();
        let len = 1 << 20;
        let site = p.site(0x1234, len);
        assert_eq!(elides(&mut p, site, len, AUDIT_AFTER, 0), 0);
        let credit = p.sites[site as usize].credit;
        for left in (1..=AUDIT).rev() {
            assert_eq!(p.pauses.left[slot(p.sites[site as usize].key)].load(Relaxed), left);
            p.earn(site, 100, p.costs.elide);
            p.moved(site, 100, 1_000);
            assert!(!p.allows(site, len));
        }
        assert!(p.allows(site, len));
        let lost = credit - p.sites[site as usize].credit;
        assert!(lost < CREDIT_MAX / 100, "an audit cost its site {lost} ns");
        // The same while it rests because it lost: more than its credit in all.
        p.charge(site, CREDIT_MAX + 1);
        let shift = p.sites[site as usize].pause_shift;
        for _ in 1..FIRST_PAUSE {
            (0..20).for_each(|_| p.earn(site, 100, p.costs.elide));
            assert!(!p.allows(site, len));
        }
        assert!(p.allows(site, len) || p.allows(site, len), "as long as it was to rest");
        assert_eq!(p.sites[site as usize].pause_shift, shift);
    }

    #[test]
    fn sites_have_accounts_of_their_own() {
        let mut p = policy();
        let (a, b) = (p.site(0x1234, 1 << 20), p.site(0x5678, 1 << 20));
        assert_ne!(a, b);
        assert_eq!(p.site(0x1234, 1 << 20), a);
        p.charge(a, i64::from(u32::MAX));
        assert!(!p.allows(a, 1 << 20) && p.allows(b, 1 << 20));
    }

    #[test]
    fn a_new_site_begins_with_less_where_others_fell_into_debt_until_they_earn_again() {
        let mut p = policy();
        let bad = p.site(0x1234, 1 << 20);
        p.charge(bad, CREDIT_MAX + 1);
        let (new, used) = (p.site(0x5678, 1 << 20), CREDIT_MAX / 2);
        p.charge(new, used);
        assert!(p.allows(new, 1 << 20));
        p.charge(new, 1);
        assert!(!p.allows(new, 1 << 20));
        for site in [bad, new] {
            p.earn(site, 1 << 30, 0);
        }
        let later = p.site(0x9abc, 1 << 20);
        p.charge(later, CREDIT_MAX);
        assert!(p.allows(later, 1 << 20));
    }

    #[test]
    fn a_site_that_was_never_timed_rests_once_to_be_timed_and_goes_on_with_its_own_price() {
        let copies: &'static CopyPrices = Box::leak(Box::new(CopyPrices::new()));
        let mut p = policy().priced_by(copies);
        let (caller, len) = (0x1234, 64 << 10);
        let site = p.site(caller, len);
        let mut elided = 0;
        while p.allows(site, len) {
            p.earn(site, len, p.costs.again);
            elided += 1;
        }
        assert_eq!(elided, AUDIT_AFTER);
        let mut rested = 1;
        while p.pauses.rests(caller, len) {
            copies.took(caller, len, 500);
            rested += 1;
        }
        assert_eq!(rested, AUDIT);
        assert!(p.copy_mb(site) < p.costs.copy_mb / 3);
        for _ in 0..10 * AUDIT_AFTER {
            assert!(p.allows(site, len));
            p.earn(site, len, p.costs.again);
        }
    }

    /// Lets time pass until all sites elide, or do not: a program that takes 1 ms for 16 MB that it copies where they do,
    /// and 2 otherwise.
    fn try_until(p: &mut Policy, copied: &mut u64, all: bool) {
        for _ in 0..10_000 {
            if p.pauses.all_elide() == all {
                return;
            }
            let Times { cpu, wall } = USED.get();
            let took = if p.pauses.all_elide() { 1_000_000 } else { 2_000_000 };
            USED.set(Times { cpu: cpu + took, wall: wall + took });
            *copied += 16 << 20;
            p.try_together(*copied);
        }
        panic!("never");
    }

    #[test]
    fn while_all_sites_elide_no_account_is_kept_but_of_those_that_send_by_reference() {
        let mut p = policy().timed_by(|| Some(USED.get()));
        let len = 1 << 20;
        let (rests, elides, lends) = (p.site(1, len), p.site(2, len), p.site(3, len));
        assert!(p.allows_lending(lends, len));
        p.charge(rests, i64::from(u32::MAX));
        let left = |p: &Policy, site: SiteId| {
            p.pauses.left[slot(p.sites[site as usize].key)].load(Relaxed)
        };
        let before = left(&p, rests);
        let credit = p.sites[elides as usize].credit;
        let mut copied = 0;
        try_until(&mut p, &mut copied, true);
        for site in [rests, elides] {
            for _ in 0..2 * FIRST_PAUSE {
                assert!(p.allows(site, len) && !p.paused(site) && p.trusts(site));
                p.earn(site, len, p.costs.again);
                p.fault(site, 1);
            }
        }
        assert_eq!(p.pauses.left(1, len), 0);
        // Where nothing is copied, accounts go on.
        p.charge(lends, i64::from(u32::MAX));
        assert!(!p.allows_lending(lends, len) && p.pauses.rests(3, len));
        try_until(&mut p, &mut copied, false);
        assert_eq!(left(&p, rests), before);
        assert!(!p.allows(rests, len) && p.allows(elides, len));
        assert_eq!(p.sites[elides as usize].credit, credit);
    }

    #[test]
    fn faults_without_end_end_a_trial_at_once() {
        let mut p = policy().timed_by(|| Some(USED.get()));
        let site = p.site(1, 1 << 20);
        let mut copied = 0;
        try_until(&mut p, &mut copied, true);
        let faults = (1..).find(|_| {
            p.fault(site, 1);
            !p.pauses.all_elide()
        });
        assert!(faults.unwrap() <= LOSS_MAX / p.costs.fault + 1);
        assert_eq!(p.try_together(copied), Some(Outcome::Lost));
        assert!(!p.frozen && !p.pauses.all_elide());
        assert!(p.allows(site, 1 << 20), "its own account was not charged");
        // What copies save makes up for them.
        try_until(&mut p, &mut copied, true);
        for _ in 0..100_000 {
            p.fault(site, 1);
            p.earn(site, 1 << 20, p.costs.again);
        }
        assert!(p.pauses.all_elide());
    }

    #[test]
    fn sites_that_are_never_left_alone_need_no_trial() {
        let mut p = policy().timed_by(|| Some(USED.get()));
        p.backoff = false;
        for i in 1..5_000 {
            USED.set(Times { cpu: i * 2_000_000, wall: i * 2_000_000 });
            assert_eq!(p.try_together(i * (16 << 20)), None);
            assert!(!p.pauses.all_elide());
        }
    }

    #[test]
    fn small_copies_that_cost_more_than_they_save_rest_and_large_ones_of_the_same_site_do_not() {
        let mut p = policy();
        let (small, large) = (p.site(0x1234, 16 << 10), p.site(0x1234, 1 << 20));
        for _ in 0..20_000 {
            for (site, len, elided) in [(small, 16 << 10, 8 << 10), (large, 1 << 20, 1 << 20)] {
                if !p.pauses.rests(0x1234, len) {
                    p.earn(site, elided, p.costs.elide + p.costs.input);
                }
            }
        }
        assert!(p.pauses.rests(0x1234, 16 << 10) && p.pauses.rests(0x1234, 20_000));
        assert!(!p.pauses.rests(0x1234, 1 << 20));
    }
}
