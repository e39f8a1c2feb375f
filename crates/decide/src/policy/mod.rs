//! Whether a call site's copies are worth eliding.
//!
//! An account for each call site and size class, in nanoseconds: elided bytes earn what copying them
//! would have cost; keeping the books, page-table calls, faults, and the detours of input and output
//! through extents pay. A site whose credit is used up, or that saves next to nothing of its process's time
//! ([`crate::window`]), is left alone for a number of copies that grows fourfold every time, then tried again. The prices
//! are [`Costs`], corrected by what is measured in the program itself ([`crate::copy_prices`], [`crate::scale`]).
//!
//! | file | one idea |
//! | --- | --- |
//! | `answers` | the boundary: what it is told and asked |
//! | `decide` | whether a copy is to be elided, now |
//! | `charges` | what each event earns or costs |
//! | `rest` | debt, and how long it is paid for |

mod answers;
mod charges;
mod decide;
mod rest;

use crate::copy_prices::CopyPrices;
use crate::costs::{Costs, share_of_mb};
use crate::pauses::Pauses;
use crate::reasons::Reason;
use crate::records::{RECORDS, Record, Records};
use crate::scale::{Charged, Scale};
use crate::site::{SiteId, class, hash, key, slot};
use crate::trial::Trial;
use crate::window::Window;
use answers::Due;
use core::sync::atomic::Ordering::Relaxed;

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

/// But for so many at first, and after each pause: a page that a program touches in every message (a header, a trailer) is
/// found out by one fault, and stays resident from then on. Those of the first try are charged half of its credit at most.
const FINDING_OUT: u8 = 128;

/// After so many elided copies a site whose copies were never timed rests for [`AUDIT`] copies: what they cost is not known
/// until it does.
const AUDIT_AFTER: u32 = 256;
/// Every second of the last so many copies of a rest is timed.
pub const AUDIT: u32 = 128;

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
    /// Inputs that filled none of their extents, less those that did.
    short: u8,
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
    /// What it waits to be told the time for.
    due: Option<Due>,
    /// How much dearer our own books are in it.
    scale: Scale,
    /// Faults are answered on the core that took them.
    near: bool,
    recorded: u16,
    /// How many sites have fallen into debt and not earned their way out of it.
    in_debt: u32,
    /// What all sites have saved, in ns, but for faults and page-table calls,
    saved: i64,
    /// and what these were charged at.
    spent: i64,
    trial: Trial,
    /// Bytes that were elided for sites that are tried.
    elided: u64,
    /// No accounts are kept: all sites elide, or none does, or that is being undone.
    frozen: bool,
    /// What faults have taken lately, in ns, that eliding all did not make up for.
    lost: i64,
    /// What is charged.
    costs: Costs,
    /// Smallest copy that is considered, in bytes.
    threshold: usize,
    /// Whether sites in debt are left alone.
    backoff: bool,
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
            due: None,
            scale: Scale::default(),
            near: false,
            recorded: 0,
            in_debt: 0,
            saved: 0,
            spent: 0,
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

    /// Smallest copy that is considered, in bytes.
    #[inline]
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    /// From how many bytes on a send by reference is worth it.
    pub fn lend_from(&self) -> usize {
        self.costs.lend_from()
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

    /// What was `charged` for an event of `site` took `ns`, the copying of `copied` bytes included. Returns what the books
    /// cost here, in percent of what is modelled; 0: not known.
    pub fn took(&mut self, site: SiteId, charged: Charged, ns: u64, copied: usize) -> u64 {
        let copying = share_of_mb(copied, self.copy_mb(site));
        self.scale.took(charged, ns.min(i64::MAX as u64) as i64 - copying);
        self.scale.percent()
    }

    /// The place of `site` in [`Pauses`].
    #[inline]
    fn slot(&self, site: SiteId) -> usize {
        slot(self.sites[site as usize].key)
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
}

#[cfg(test)]
mod tests;
