//! Output by reference: which pieces of an output are lent to the kernel, what becomes of lent
//! pages, and ranges that are sent again and again.
//!
//! The filled part of an extent is never written again, so the kernel, or a peer on this host, may
//! hold its pages for as long as it likes. The one thing to be kept from it is recycling: pages of
//! an extent that was lent are dropped (`MADV_DONTNEED`) when it ends, as those are that were the
//! program's (see `pool`). A kernel or peer that refers to them keeps them; our addresses get
//! others.

use super::limits::Lack;
use super::{NOBODY, Tracker};
use crate::extents::ExtentId;
use crate::memory::Memory;
use crate::plan::{OutputPlan, Went};
use uncopy_counters::add;
use uncopy_decide::{Act, Event, LEND_MIN, Operation, SiteId};
use uncopy_ranges::span::{PAGE, Span};

/// Shortest piece that is lent, in bytes; shorter ones are copied beside the lent ones.
const PIECE_MIN: usize = 2 * PAGE;
/// Most that is copied beside what is lent: so many bytes, or one for so many lent ones.
const BESIDE_MAX: usize = 16 << 10;
const BESIDE_SHARE: usize = 4;

impl<M: Memory> Tracker<M> {
    /// Decides what of a planned output goes by reference, for a descriptor that takes pages, on
    /// behalf of the call site that returns to `caller`. From here on those extents count as lent.
    pub fn lend(&mut self, plan: &mut OutputPlan, caller: usize) {
        let c = self.counters;
        let total: usize = plan.pieces.iter().map(|p| p.1).sum();
        if !self.lends(plan.gathered) {
            return add(&c.unlent_small, 1);
        }
        let site = self.control.site(caller, total);
        if !self.control.act(site, Act::Lend(self.control.threshold().max(total))) {
            return add(&c.unlent_resting, 1);
        }
        let (mut lent, mut bytes, mut once) = (0u64, 0, false);
        for (i, (&(at, len), &id)) in plan.pieces.iter().zip(&plan.extents).enumerate() {
            if id == ExtentId::NONE || len < PIECE_MIN {
                continue;
            }
            let e = self.extents.get(id);
            // (Others' memory is filled anew once it is released, whoever refers to its pages.)
            if e.is_foreign() {
                continue;
            }
            let begins_anew = ((at - e.at) as u32) < e.mark;
            if e.lent || begins_anew || e.passes > 0 {
                lent |= 1 << i;
                bytes += len;
            } else {
                once = true;
            }
        }
        if !self.lends(bytes) || total - bytes > BESIDE_MAX.max(bytes / BESIDE_SHARE) {
            return add(if once { &c.unlent_sent_once } else { &c.unlent_small }, 1);
        }
        for (i, &id) in plan.extents.iter().enumerate() {
            if lent >> i & 1 != 0 {
                let e = self.extents.get_mut(id);
                (e.lent, e.lender) = (true, site);
            }
        }
        (plan.lent, plan.lent_bytes, plan.lender) = (lent, bytes, site);
    }

    /// Whether so many bytes are worth being lent to the kernel at all.
    pub fn lends(&mut self, bytes: usize) -> bool {
        self.control.act(NOBODY, Act::ByReference { bytes })
    }

    /// An output was made: `sent` bytes went out, and those of extents the way that `went` says.
    /// Unpins the extents.
    pub fn output_done(&mut self, plan: &mut OutputPlan, sent: usize, went: Went) {
        if plan.call != 0 {
            self.control.did(|| Operation::Sent { call: plan.call, bytes: sent });
        }
        let (gathered, referred, pages) = self.note_sent(plan, sent, went);
        add(&self.counters.output_bytes, gathered as u64);
        let kept = if let Went::Kept(bytes) = went { bytes.min(gathered) } else { 0 };
        let copied = gathered - kept;
        if went != Went::Lent && copied > 0 {
            let cold = plan.cold.min(copied);
            // (Bytes that were sent before are as near as a copy would be.)
            let read = if plan.again { cold } else { copied };
            self.control.tell(plan.payer, Event::Gathered { bytes: read, cold });
        }
        match went {
            Went::Lent if referred > 0 => {
                self.control.tell(plan.lender, Event::Lent { bytes: referred, pages });
                add(&self.counters.lent_bytes, referred as u64);
                add(&self.counters.lent_sends, 1);
            }
            // (Nobody handles their pages.)
            Went::Kept(_) if referred.min(kept) > 0 => {
                let bytes = referred.min(kept);
                self.control.tell(plan.lender, Event::Lent { bytes, pages: 0 });
            }
            _ => {}
        }
        self.unpin(&mut plan.pins);
    }

    /// Notes which bytes of extents were among the `sent` ones. Returns how many; and how many of
    /// them went by reference, or were adopted to be kept, in how many pages.
    fn note_sent(
        &mut self,
        plan: &mut OutputPlan,
        sent: usize,
        went: Went,
    ) -> (usize, usize, usize) {
        let mut left = sent;
        let (mut gathered, mut referred, mut pages) = (0, 0, 0);
        for (i, (&(at, len), &id)) in plan.pieces.iter().zip(&plan.extents).enumerate() {
            let part = len.min(left);
            left -= part;
            if id == ExtentId::NONE || part == 0 {
                continue;
            }
            gathered += part;
            let e = self.extents.get_mut(id);
            let offset = (at - e.at) as u32;
            if offset < e.mark {
                e.passes = e.passes.saturating_add(1);
            }
            e.mark = offset + part as u32;
            e.used = self.clock;
            self.traffic += part as u64;
            e.warm = self.traffic;
            let counts = match went {
                Went::Copied => false,
                Went::Lent => plan.lent >> i & 1 != 0,
                Went::Kept(_) => e.adopted && e.is_foreign(),
            };
            if counts {
                referred += part;
                pages += Span::sized(at, part).covering_pages().pages();
            }
            if counts && went != Went::Lent {
                plan.lender = e.lender;
            }
        }
        (gathered, referred, pages)
    }

    /// The program keeps sending `span`, which is resident, by the call that returns to `caller`:
    /// its whole pages become a view. Returns whether any did.
    pub fn adopt(&mut self, span: Span, caller: usize, total: usize) -> bool {
        let core = span.core();
        if core.len() < LEND_MIN || self.books_have_room().is_err() {
            return false;
        }
        let site = self.control.site(caller, total);
        if !self.control.act(site, Act::Lend(self.control.threshold().max(total))) {
            add(&self.counters.unlent_resting, 1);
            return false;
        }
        let moved = self.adopt_pages(core, site);
        if moved == 0 {
            add(&self.counters.unlent_resident, 1);
        }
        add(&self.counters.adopted_bytes, moved as u64);
        self.gauges();
        moved > 0
    }

    fn adopt_pages(&mut self, core: Span, site: SiteId) -> usize {
        // (No eviction for its sake: what does not fit is sent as always.)
        let room = self.limits.extent_bytes / 2;
        if self.extents.bytes() + core.len() > room
            || self.registered.count() >= self.limits.ranges / 2
            || self.views.count() >= self.limits.views / 2
            || self.extent_allowed(core.pages()).is_err()
        {
            return 0;
        }
        let mut adopted = 0;
        let mut at = core.start;
        while at < core.end {
            let (run, unmapped) = self.views.covered_run(at, core.end);
            at = run.end;
            if unmapped || run.len() < LEND_MIN {
                continue;
            }
            if !self.extents.reserve() {
                self.exhausted(Lack::Books);
                break;
            }
            let Ok(moved) = self.move_out(run, false, site) else { break };
            if moved.span.is_empty() {
                break;
            }
            // It was sent before.
            let e = self.view_moved(moved, site);
            (e.adopted, e.passes, e.lender) = (true, 1, site);
            adopted += moved.span.len();
            if moved.span != run {
                break;
            }
        }
        adopted
    }
}
